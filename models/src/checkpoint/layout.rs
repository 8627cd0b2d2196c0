//! The mapping from a checkpoint's tensors to parameters. A parameter here is one tensor of a checkpoint or several:
//! fused projections are joined, and matrices are transposed.

use crate::{config::DecoderConfig, names};

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
    let values = to_checkpoint(path, shape, values.to_vec());
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
    names::inputs(part, config)
}

/// Makes the values of a parameter of `shape` from the concatenated values of its [`pieces`].
pub(super) fn from_checkpoint(path: &str, shape: &[usize], values: Vec<f32>) -> Vec<f32> {
    if is_transposed(path, shape) { transpose(&values, shape[1], shape[0]) } else { values }
}

/// Undoes [`from_checkpoint`].
pub(super) fn to_checkpoint(path: &str, shape: &[usize], values: Vec<f32>) -> Vec<f32> {
    if is_transposed(path, shape) { transpose(&values, shape[0], shape[1]) } else { values }
}

/// Tells whether a parameter's values are in another order in a checkpoint.
pub(super) fn is_transposed(path: &str, shape: &[usize]) -> bool {
    shape.len() == 2 && !is_lookup(path)
}

/// Transposes a matrix of `shape` `[rows, columns]`.
pub(super) fn transposed(values: Vec<f32>, [rows, columns]: [usize; 2]) -> Vec<f32> {
    transpose(&values, rows, columns)
}

/// Tells whether the parameter is the embedding or the head. Both have a row per token on both sides; every other
/// matrix is `[outputs, inputs]` in a checkpoint and `[inputs, outputs]` here.
fn is_lookup(path: &str) -> bool {
    matches!(path, "embedding" | "head")
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
