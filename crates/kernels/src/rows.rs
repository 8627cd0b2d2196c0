//! The gradient of an embedding lookup.

use std::collections::BTreeMap;

use burn::tensor::{IndexingUpdateOp, Int, Tensor, TensorData};

use crate::{
    cpu,
    flex::{edited, numbers},
};

/// Adds the gradient of a lookup: `gradient`, `[tokens, width]`, is added to the rows of `table`, `[rows, width]`, that
/// `tokens` name. Equal tokens are summed in a fixed order, so that a device returns the same bits each time. This
/// takes about `scratch` more numbers of memory.
///
/// # Panics
/// If a token has no row.
pub fn add_rows(
    table: Tensor<2>,
    tokens: &[u32],
    gradient: Tensor<2>,
    scratch: usize,
) -> Tensor<2> {
    #[cfg(feature = "gpu")]
    if crate::cube::takes(&gradient) {
        return crate::cube::rows::add(table, tokens, &gradient);
    }

    match (numbers(&table).map(drop), numbers(&gradient)) {
        (Some(()), Some(numbers)) => {
            let width = table.dims()[1];
            edited(table, |table| cpu::rows::add(table, width, tokens, &numbers))
        }
        _ => plain(table, tokens, gradient, scratch),
    }
}

/// Does [`add_rows`] in plain tensor code. Equal tokens are summed by a matmul with a matrix of zeros and ones, so that
/// no device processes the tokens one by one.
pub(crate) fn plain(
    table: Tensor<2>,
    tokens: &[u32],
    gradient: Tensor<2>,
    scratch: usize,
) -> Tensor<2> {
    let device = gradient.device();

    // Only rows that some token names get a row in the sum, numbered in their order.
    let mut rows: BTreeMap<u32, i32> = tokens.iter().map(|&token| (token, 0)).collect();
    for (row, index) in rows.values_mut().zip(0..) {
        *row = index;
    }

    let ints = |values: Vec<i32>| {
        let count = values.len();
        Tensor::<1, Int>::from_data(TensorData::new(values, [count]), &device)
    };
    let all = ints((0..rows.len() as i32).collect()).unsqueeze_dim::<2>(1);

    let at_once = (scratch / rows.len().max(1)).max(1);
    let mut sum: Option<Tensor<2>> = None;

    // Row i of `chosen` has a 1 at each token that names the i-th row.
    for (tokens, start) in tokens.chunks(at_once).zip((0..).step_by(at_once)) {
        let of_tokens = ints(tokens.iter().map(|token| rows[token]).collect());
        let chosen = all.clone().equal(of_tokens.unsqueeze_dim::<2>(0)).float();
        let part = gradient.clone().slice_dim(0, start..start + tokens.len());
        let part = chosen.matmul(part);
        sum = Some(match sum {
            Some(sum) => sum + part,
            None => part,
        });
    }

    let Some(sum) = sum else { return table };
    let indices = ints(rows.keys().map(|&token| token as i32).collect());
    table.select_assign(0, indices, sum, IndexingUpdateOp::Add)
}
