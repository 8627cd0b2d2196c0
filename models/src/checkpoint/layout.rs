//! The mapping from a checkpoint's tensors to parameters. A parameter here is one tensor of a checkpoint or several:
//! fused projections are joined, matrices are transposed, and rows get the same order in all families.

use firebrick_core::config::Family;

use crate::{
    config::{DecoderConfig, GatedDeltaSizes},
    names,
};

/// A tensor with the name and the layout of a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTensor {
    /// Name, such as `model.layers.0.self_attn.q_proj.weight`.
    pub name: String,
    /// Shape; matrices are `[outputs, inputs]`.
    pub shape: Vec<usize>,
    /// Values, row-major.
    pub values: Vec<f32>,
}

/// Splits one parameter's values, or its gradient's, into the checkpoint tensors that it is made of: fused projections
/// are split, and matrices are transposed.
///
/// `path`, `shape` and `values` are those of a [`Parameter`](crate::Parameter).
///
/// # Panics
/// Panics if a model of this configuration has no such parameter.
pub fn named_tensors(
    config: &DecoderConfig,
    path: &str,
    shape: &[usize],
    values: &[f32],
) -> Vec<NamedTensor> {
    let values = to_checkpoint(config, path, shape, values.to_vec());
    let mut rest = values.as_slice();

    let take = |(name, shape): (String, Vec<usize>)| {
        let (values, others) = rest.split_at(shape.iter().product());
        rest = others;
        NamedTensor { name, shape, values: values.to_vec() }
    };
    pieces(config, path, shape).into_iter().map(take).collect()
}

/// Lists the names and shapes of the checkpoint tensors that the parameter at `path` is made of, in the order in
/// which they are joined.
pub(super) fn pieces(
    config: &DecoderConfig,
    path: &str,
    shape: &[usize],
) -> Vec<(String, Vec<usize>)> {
    if let Some(name) = names::of_adapter(path, config) {
        return vec![(name, shape.iter().rev().copied().collect())];
    }
    let other_dims = match shape {
        [_] => &[],
        // A matrix is transposed.
        [inputs, _] if !is_lookup(path) => std::slice::from_ref(inputs),
        [_, others @ ..] => others,
        [] => &[],
    };

    let pieces = names::pieces(path, config).into_iter();
    pieces.map(|piece| (piece.name, [&[piece.rows], other_dims].concat())).collect()
}

/// Returns the number of columns that the matrix at `path` has in a checkpoint: the number of its inputs, or the width
/// of a row of the embedding.
pub(super) fn inputs(config: &DecoderConfig, path: &str) -> usize {
    let of_layer = path.splitn(3, '.').nth(2).unwrap_or(path);
    let part = of_layer.strip_suffix(".weight").unwrap_or(of_layer);
    names::inputs(part, names::kind_at(path, config), config)
}

/// Makes the values of a parameter of `shape` from the concatenated values of its [`pieces`].
pub(super) fn from_checkpoint(
    config: &DecoderConfig,
    path: &str,
    shape: &[usize],
    mut values: Vec<f32>,
) -> Vec<f32> {
    for_each_piece(config, path, shape, &mut values, in_order);
    if is_transposed(path, shape) { transpose(&values, shape[1], shape[0]) } else { values }
}

/// Undoes [`from_checkpoint`].
pub(super) fn to_checkpoint(
    config: &DecoderConfig,
    path: &str,
    shape: &[usize],
    mut values: Vec<f32>,
) -> Vec<f32> {
    if is_transposed(path, shape) {
        values = transpose(&values, shape[0], shape[1]);
    }
    // Other values may be a part of the parameter alone.
    if is_reordered(config, path, shape) {
        for_each_piece(config, path, shape, &mut values, in_file_order);
    }
    values
}

/// Changes the values of each of the [`pieces`] by `change`, which also gets the piece's name.
fn for_each_piece(
    config: &DecoderConfig,
    path: &str,
    shape: &[usize],
    mut values: &mut [f32],
    change: fn(&DecoderConfig, &str, &mut [f32]),
) {
    for (name, shape) in pieces(config, path, shape) {
        let (piece, others) = values.split_at_mut(shape.iter().product());
        change(config, &name, piece);
        values = others;
    }
}

/// Puts the rows of the checkpoint's tensor `name` in the order that they have here.
pub(super) fn in_order(config: &DecoderConfig, name: &str, values: &mut [f32]) {
    let Some(rows) = rows_in_file(config, name) else { return };
    let width = values.len() / rows.len();
    let in_file = values.to_vec();
    for (row, values) in rows.into_iter().zip(values.chunks_mut(width)) {
        values.copy_from_slice(&in_file[row * width..][..width]);
    }
}

/// Undoes [`in_order`].
fn in_file_order(config: &DecoderConfig, name: &str, values: &mut [f32]) {
    let Some(rows) = rows_in_file(config, name) else { return };
    let width = values.len() / rows.len();
    let ordered = values.to_vec();
    for (row, ordered) in rows.into_iter().zip(ordered.chunks(width)) {
        values[row * width..][..width].copy_from_slice(ordered);
    }
}

/// Returns the row in a checkpoint's tensor of each row here. `None` if they are in the same order, as in most
/// families.
fn rows_in_file(config: &DecoderConfig, name: &str) -> Option<Vec<usize>> {
    if name.contains(".lora_A.") {
        return None;
    }
    match name.rsplit_once("self_attn.") {
        Some((_, part)) if config.paired => side_by_side(config, part),
        Some(_) => None,
        None if config.family == Family::Qwen3Next => by_key_head(&config.delta?, name),
        None => None,
    }
}

/// Finds the rows of queries or keys whose file has the two numbers of a rotated pair next to each other.
fn side_by_side(config: &DecoderConfig, part: &str) -> Option<Vec<usize>> {
    let heads = match part.split_once('.')? {
        ("q_proj", _) => config.heads,
        ("k_proj", _) => config.kv_heads,
        _ => return None,
    };

    let width = config.head_dim;
    let pairs = config.rope.pairs(width);
    // The two numbers of pair `i` are in the places `i` and `pairs + i` here, and in `2i` and `2i + 1` there.
    let in_head = |at: usize| if at < 2 * pairs { 2 * (at % pairs) + at / pairs } else { at };
    Some((0..heads * width).map(|row| row / width * width + in_head(row % width)).collect())
}

/// Finds the rows of a recurrence's first projections whose file has everything of a key head together. Here, all
/// queries are together, then all keys, all values and all gates; or the strengths of all heads, and then their decays.
fn by_key_head(delta: &GatedDeltaSizes, name: &str) -> Option<Vec<usize>> {
    let each = delta.value_heads / delta.key_heads;
    let values = each * delta.value_dim;
    let widths = match name.rsplit_once("linear_attn.")?.1.split_once('.')?.0 {
        "in_proj_qkvz" => vec![delta.key_dim, delta.key_dim, values, values],
        "in_proj_ba" => vec![each; 2],
        _ => return None,
    };

    let of_head: usize = widths.iter().sum();
    let mut before = 0;
    let mut rows = Vec::new();
    for width in widths {
        rows.extend((0..delta.key_heads).flat_map(|head| {
            let first = head * of_head + before;
            first..first + width
        }));
        before += width;
    }
    Some(rows)
}

/// Tells whether a parameter's values are in another order in a checkpoint, so that it is needed as a whole.
pub(super) fn is_reordered(config: &DecoderConfig, path: &str, shape: &[usize]) -> bool {
    let rows = |(name, _): &(String, _)| rows_in_file(config, name).is_some();
    is_transposed(path, shape) || pieces(config, path, shape).iter().any(rows)
}

/// Tells whether a parameter is the transpose of a matrix in a checkpoint.
fn is_transposed(path: &str, shape: &[usize]) -> bool {
    shape.len() == 2 && !is_lookup(path)
}

/// Transposes a matrix of `shape` `[rows, columns]`.
pub(super) fn transposed(values: Vec<f32>, [rows, columns]: [usize; 2]) -> Vec<f32> {
    transpose(&values, rows, columns)
}

/// Tells whether the parameter is an embedding or the head. They have a row per token on both sides; every other matrix
/// is `[outputs, inputs]` in a checkpoint and `[inputs, outputs]` here.
fn is_lookup(path: &str) -> bool {
    matches!(path, "embedding" | "head" | "per_layer.table")
}

/// Transposes `[rows, columns]` to `[columns, rows]`.
fn transpose(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    // A few rows at a time, so that the numbers for the next column are still in the CPU cache.
    const BLOCK_ROWS: usize = 32;

    let mut transposed = vec![0.0; values.len()];
    for first in (0..rows).step_by(BLOCK_ROWS) {
        for column in 0..columns {
            for row in first..rows.min(first + BLOCK_ROWS) {
                transposed[column * rows + row] = values[row * columns + column];
            }
        }
    }
    transposed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_transposed_twice_is_itself() {
        let rows = 67;
        let columns = 3;
        let values: Vec<f32> = (0..rows * columns).map(|value| value as f32).collect();
        let transposed = transpose(&values, rows, columns);

        assert_eq!(transposed[..2], [0.0, 3.0]);
        assert_eq!(transposed[rows * 2 + 40], values[40 * columns + 2]);
        assert_eq!(transpose(&transposed, columns, rows), values);
    }
}
