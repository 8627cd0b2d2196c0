//! Undoes the differences between a tensor's values in a GGUF file and in a folder.

use crate::{
    error::GgufError,
    family::Family,
    file::{Gguf, Tensor},
    keys::{Keys, Shape},
};

/// A change that turned a folder's values into the file's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Rows of each head are stored in pairs: a row of the first half next to a row of the second half. ggml rotates
    /// neighbours, transformers rotates halves.
    Pairs { heads: usize },
    /// 1 was added to each value.
    PlusOne,
    /// Each value `x` became `-exp(x)`.
    Exponential,
    /// Heads of values that share a head of keys are stored apart.
    Tiled(Tiles),
    /// As `Tiled`, within each row.
    TiledColumns(Tiles),
}

/// Heads of values in the order of a file, where the first heads of all heads of keys come first, then the second
/// ones. In a folder, the heads that share a head of keys follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tiles {
    /// Rows before the first head of values.
    before: usize,
    /// Number of heads of keys.
    keys: usize,
    /// How many heads of values share a head of keys.
    shared: usize,
    /// Rows or columns of a head.
    width: usize,
}

impl Gguf {
    /// Finds the changes of a tensor, the last one first. `name` is the tensor's name in a folder.
    pub(crate) fn changes(&self, name: &str, tensor: &Tensor) -> Result<Vec<Change>, GgufError> {
        let shape = Shape::of(self)?;

        let mut parts = name.rsplit('.');
        let kind = parts.next().unwrap_or_default();
        let part = parts.next().unwrap_or_default();

        if name.contains(".linear_attn.") && shape.family == Family::Qwen35 {
            return self.of_recurrence(part, kind, tensor);
        }
        if shape.family.adds_one() && name.ends_with("norm.weight") {
            return Ok(vec![Change::PlusOne]);
        }

        let heads = match part {
            "q_proj" => shape.heads,
            "k_proj" => shape.kv_heads,
            _ => return Ok(Vec::new()),
        };

        if !shape.family.pairs() {
            return Ok(Vec::new());
        }

        let rows = tensor.shape[0];
        if heads == 0 || !rows.is_multiple_of(heads) || !(rows / heads).is_multiple_of(2) {
            let problem = format!(
                "{} has {rows} rows, expected an even number for each of {heads} heads",
                tensor.name
            );
            return Err(self.model(problem));
        }

        Ok(vec![Change::Pairs { heads }])
    }

    /// Finds the changes of a tensor of a recurrence.
    fn of_recurrence(
        &self,
        part: &str,
        kind: &str,
        tensor: &Tensor,
    ) -> Result<Vec<Change>, GgufError> {
        let sizes = Recurrence::of(&Keys::of(self)?).map_err(|problem| self.model(problem))?;
        let tiles = |before, width| Tiles { before, width, ..sizes.tiles() };
        // The values are stored after the queries and the keys, which have the same size.
        let before = 2 * sizes.key_heads * sizes.key_dim;

        let (tiles, by_column) = match (part, kind) {
            ("in_proj_qkv" | "conv1d", _) => (tiles(before, sizes.value_dim), false),
            ("in_proj_z", _) => (tiles(0, sizes.value_dim), false),
            ("in_proj_b" | "in_proj_a", _) | (_, "A_log" | "dt_bias") => (tiles(0, 1), false),
            ("out_proj", _) => (tiles(0, sizes.value_dim), true),
            _ => return Ok(Vec::new()),
        };

        let actual = if by_column {
            match tensor.shape[..] {
                [_, columns] => columns,
                _ => 0,
            }
        } else {
            tensor.shape[0]
        };

        if tiles.end() != Some(actual) {
            let name = &tensor.name;
            let side = if by_column { "columns" } else { "rows" };
            return Err(self.model(format!(
                "{name} has {actual} {side}, and the file's ssm keys make it {}",
                tiles.end().unwrap_or(usize::MAX)
            )));
        }

        let mut changes = Vec::new();
        if tiles.shared > 1 {
            changes.push(if by_column {
                Change::TiledColumns(tiles)
            } else {
                Change::Tiled(tiles)
            });
        }

        if kind == "A_log" {
            changes.push(Change::Exponential);
        }
        Ok(changes)
    }
}

impl Change {
    /// Undoes the change, for a tensor whose first size is `rows`.
    pub(crate) fn undo(self, rows: usize, values: &mut [f32]) {
        match self {
            Change::PlusOne => values.iter_mut().for_each(|value| *value -= 1.0),
            // Other programs compute this with 64 bits too. The values are few.
            Change::Exponential => {
                values.iter_mut().for_each(|value| *value = (-f64::from(*value)).ln() as f32);
            }
            Change::Pairs { heads } => {
                let of_head = rows / heads;
                let width = values.len() / rows;

                let mut interleaved = Vec::with_capacity(of_head * width);
                for head in values.chunks_mut(of_head * width) {
                    interleaved.clear();
                    for row in (0..of_head).step_by(2).chain((1..of_head).step_by(2)) {
                        interleaved.extend_from_slice(&head[row * width..][..width]);
                    }
                    head.copy_from_slice(&interleaved);
                }
            }
            Change::Tiled(tiles) => {
                let width = values.len() / rows;
                tiles.undo(&mut values[tiles.before * width..], width);
            }
            Change::TiledColumns(tiles) => {
                for row in values.chunks_mut(values.len() / rows) {
                    tiles.undo(row, 1);
                }
            }
        }
    }
}

impl Tiles {
    /// Returns the number of rows or columns, those before the first head included.
    fn end(self) -> Option<usize> {
        let heads = self.keys.checked_mul(self.shared)?;
        heads.checked_mul(self.width)?.checked_add(self.before)
    }

    /// Puts heads in the order of a folder. Each of a head's rows has `values` values.
    fn undo(self, heads: &mut [f32], values: usize) {
        let of_head = self.width * values;
        let mut ordered = Vec::with_capacity(heads.len());
        for key in 0..self.keys {
            for nth in 0..self.shared {
                // The file has the first heads of all keys, then the second ones. Here a key's heads follow each other.
                ordered.extend_from_slice(&heads[(nth * self.keys + key) * of_head..][..of_head]);
            }
        }

        heads.copy_from_slice(&ordered);
    }
}

/// Sizes of a recurrence, as the file states them.
pub(crate) struct Recurrence {
    pub(crate) key_heads: usize,
    pub(crate) value_heads: usize,
    pub(crate) key_dim: usize,
    pub(crate) value_dim: usize,
    pub(crate) kernel: usize,
}

impl Recurrence {
    pub(crate) fn of(keys: &Keys<'_>) -> Result<Self, String> {
        let size_of = |key: &str| match keys.needed(key)? {
            size @ 1..=0xff_ffff => Ok(size),
            size => Err(format!("{} is {size}, expected 1 to 16777215", keys.key(key))),
        };

        let key_heads = size_of("ssm.group_count")?;
        let value_heads = size_of("ssm.time_step_rank")?;
        let values = size_of("ssm.inner_size")?;
        if !value_heads.is_multiple_of(key_heads) || !values.is_multiple_of(value_heads) {
            return Err(format!(
                "{values} values of {value_heads} heads can't share {key_heads} heads of keys: \
                 ssm.group_count must divide ssm.time_step_rank, which must divide ssm.inner_size"
            ));
        }

        Ok(Recurrence {
            key_heads,
            value_heads,
            key_dim: size_of("ssm.state_size")?,
            value_dim: values / value_heads,
            kernel: size_of("ssm.conv_kernel")?,
        })
    }

    fn tiles(&self) -> Tiles {
        let keys = self.key_heads;
        let shared = self.value_heads / self.key_heads;
        Tiles { before: 0, keys, shared, width: 1 }
    }
}
