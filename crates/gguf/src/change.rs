//! Makes and undoes the differences between a tensor's values in a GGUF file and in a folder.

use crate::{
    family::{Family, RECURRENT},
    keys::{Keys, Shape},
    metadata::Metadata,
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
    /// Rows of several kinds are sorted by their kind. In a folder, all rows of a head of keys are together, as many of
    /// each kind as `widths` says.
    ByKind { heads: usize, widths: [usize; 4] },
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

/// Finds the changes of a tensor, the last one first. `name` is the tensor's name in a folder, `in_file` the one that
/// messages use, and `shape` its shape in either.
pub(crate) fn changes(
    metadata: &Metadata,
    name: &str,
    in_file: &str,
    shape: &[usize],
) -> Result<Vec<Change>, String> {
    let model = Shape::of(metadata)?;

    let mut parts = name.rsplit('.');
    let kind = parts.next().unwrap_or_default();
    let part = parts.next().unwrap_or_default();

    if name.contains(".linear_attn.") && RECURRENT.contains(&model.family) {
        return match model.family {
            Family::Qwen3Next => of_qwen3_next(metadata, part, kind, in_file, shape),
            _ => of_recurrence(metadata, part, kind, in_file, shape),
        };
    }
    if model.family.adds_one() && name.ends_with("norm.weight") {
        return Ok(vec![Change::PlusOne]);
    }

    let heads = match part {
        "q_proj" => model.heads,
        "k_proj" => model.kv_heads,
        _ => return Ok(Vec::new()),
    };

    if !model.family.pairs() {
        return Ok(Vec::new());
    }

    let rows = shape[0];
    if heads == 0 || !rows.is_multiple_of(heads) || !(rows / heads).is_multiple_of(2) {
        return Err(format!(
            "{in_file} has {rows} rows, expected an even number for each of {heads} heads"
        ));
    }

    Ok(vec![Change::Pairs { heads }])
}

/// Finds the changes of a tensor of a recurrence.
fn of_recurrence(
    metadata: &Metadata,
    part: &str,
    kind: &str,
    in_file: &str,
    shape: &[usize],
) -> Result<Vec<Change>, String> {
    let sizes = Recurrence::of(&Keys::of(metadata)?)?;
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
        match shape {
            [_, columns] => *columns,
            _ => 0,
        }
    } else {
        shape[0]
    };

    if tiles.end() != Some(actual) {
        let side = if by_column { "columns" } else { "rows" };
        return Err(format!(
            "{in_file} has {actual} {side}, and the file's ssm keys make it {}",
            tiles.end().unwrap_or(usize::MAX)
        ));
    }

    let mut changes = Vec::new();
    if tiles.shared > 1 {
        changes.push(if by_column { Change::TiledColumns(tiles) } else { Change::Tiled(tiles) });
    }

    if kind == "A_log" {
        changes.push(Change::Exponential);
    }
    Ok(changes)
}

/// Finds the changes of a tensor of Qwen3-Next's recurrence, whose heads of values stay in their order. Its first
/// projection is sorted by queries, keys, values and gates, unless an older file has it in one tensor.
fn of_qwen3_next(
    metadata: &Metadata,
    part: &str,
    kind: &str,
    in_file: &str,
    shape: &[usize],
) -> Result<Vec<Change>, String> {
    if kind == "A_log" {
        return Ok(vec![Change::Exponential]);
    }
    if part != "in_proj_qkvz" || in_file.ends_with("ssm_in.weight") {
        return Ok(Vec::new());
    }

    let sizes = Recurrence::of(&Keys::of(metadata)?)?;
    let heads = sizes.key_heads;
    let values = sizes.value_heads / heads * sizes.value_dim;
    let widths = [sizes.key_dim, sizes.key_dim, values, values];
    let rows = heads.saturating_mul(widths.iter().sum());
    if rows != shape[0] {
        let actual = shape[0];
        return Err(format!("{in_file} has {actual} rows, and the file's ssm keys make it {rows}"));
    }
    Ok(vec![Change::ByKind { heads, widths }])
}

/// Whether values become those of a file, or those of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Towards {
    File,
    Folder,
}

impl Change {
    /// Makes or undoes the change, for a tensor whose first size is `rows`.
    pub(crate) fn apply(self, towards: Towards, rows: usize, values: &mut [f32]) {
        let each = |values: &mut [f32], change: fn(f32) -> f32| {
            values.iter_mut().for_each(|value| *value = change(*value));
        };

        match (self, towards) {
            (Change::PlusOne, Towards::File) => each(values, |value| value + 1.0),
            (Change::PlusOne, Towards::Folder) => each(values, |value| value - 1.0),
            // Other programs compute these with 64 bits too. The values are few.
            (Change::Exponential, Towards::File) => {
                each(values, |value| -f64::from(value).exp() as f32);
            }
            (Change::Exponential, Towards::Folder) => {
                each(values, |value| (-f64::from(value)).ln() as f32);
            }

            (Change::Pairs { heads }, _) => {
                let width = values.len() / rows;
                let half = rows / heads / 2;
                // In a folder a head's rows are two halves, and in a file they are pairs.
                for head in values.chunks_mut(2 * half * width) {
                    swap_axes(head, [2, half], width, towards);
                }
            }
            (Change::Tiled(tiles), _) => {
                let width = values.len() / rows;
                let heads = &mut values[tiles.before * width..];
                swap_axes(heads, [tiles.keys, tiles.shared], tiles.width * width, towards);
            }
            (Change::TiledColumns(tiles), _) => {
                for row in values.chunks_mut(values.len() / rows) {
                    swap_axes(row, [tiles.keys, tiles.shared], tiles.width, towards);
                }
            }
            (Change::ByKind { heads, widths }, _) => {
                let width = values.len() / rows;
                sort(values, heads, widths.map(|rows| rows * width), towards);
            }
        }
    }
}

/// Puts pieces of `width` values, `[first, second]` in a folder and `[second, first]` in a file, in the other order.
fn swap_axes(values: &mut [f32], [first, second]: [usize; 2], width: usize, towards: Towards) {
    let mut swapped = Vec::with_capacity(values.len());
    let [outer, inner] = match towards {
        Towards::File => [second, first],
        Towards::Folder => [first, second],
    };

    for row in 0..outer {
        for column in 0..inner {
            swapped.extend_from_slice(&values[(column * outer + row) * width..][..width]);
        }
    }

    values.copy_from_slice(&swapped);
}

/// Sorts pieces by their kinds towards a file, and by their heads towards a folder. Each head has a piece of each kind,
/// with as many values as `widths` says.
fn sort(values: &mut [f32], heads: usize, widths: [usize; 4], towards: Towards) {
    let old = values.to_vec();
    let of_head: usize = widths.iter().sum();
    let mut before = 0;
    let mut in_file = 0;

    for width in widths {
        for head in 0..heads {
            let in_folder = head * of_head + before;
            let [from, to] = match towards {
                Towards::File => [in_folder, in_file],
                Towards::Folder => [in_file, in_folder],
            };
            values[to..][..width].copy_from_slice(&old[from..][..width]);
            in_file += width;
        }
        before += width;
    }
}

impl Tiles {
    /// Returns the number of rows or columns, those before the first head included.
    fn end(self) -> Option<usize> {
        let heads = self.keys.checked_mul(self.shared)?;
        heads.checked_mul(self.width)?.checked_add(self.before)
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

    /// Returns the keys that state the sizes.
    pub(crate) fn keys(&self) -> [(&'static str, usize); 5] {
        [
            ("ssm.group_count", self.key_heads),
            ("ssm.time_step_rank", self.value_heads),
            ("ssm.inner_size", self.value_heads * self.value_dim),
            ("ssm.state_size", self.key_dim),
            ("ssm.conv_kernel", self.kernel),
        ]
    }

    fn tiles(&self) -> Tiles {
        let keys = self.key_heads;
        let shared = self.value_heads / self.key_heads;
        Tiles { before: 0, keys, shared, width: 1 }
    }
}
