//! Draws tokens, each with its log-probability.

use burn::tensor::{Device, IndexingUpdateOp, Int, Tensor, TensorData};
use rayon::prelude::*;

use crate::{
    choice::Choice,
    cpu::sample::sample_row,
    flex::{numbers, tensor},
};

/// Draws one token per row of `logits` (`rows` × `vocab`, row-major), at the uniform numbers in `[0, 1)`. Returns the
/// tokens with their log-probabilities over the entire vocabulary. Tokens are drawn in the order of their ids.
///
/// Rows run in parallel. The time is linear in the vocabulary, except for sorting the tokens that may be among the
/// likeliest. These are all tokens if logits are nearly equal and only `top_p` limits them.
pub fn sample_on_host(logits: &[f32], uniforms: &[f64], choice: &Choice) -> Vec<(u32, f32)> {
    let vocab = logits.len() / uniforms.len().max(1);
    let rows = logits.par_chunks_exact(vocab.max(1)).zip(uniforms);
    rows.with_min_len(8192usize.div_ceil(vocab.max(1)))
        .map(|(row, &uniform)| sample_row(row, uniform, choice))
        .collect()
}

/// Does [`sample_on_host`] on the device of `logits`: `[rows, vocab]` and `[rows]` to `[rows]` and `[rows]`. Both
/// invert the same cumulative distribution at the same uniform number, so they draw the same token unless that number
/// is within rounding of a boundary.
pub fn sample_on_device(
    logits: Tensor<2>,
    uniforms: Tensor<1>,
    choice: &Choice,
) -> (Tensor<1, Int>, Tensor<1>) {
    on_gpu!(sample::draw(&logits, &uniforms, choice));

    if let (Some(logits), Some(uniforms)) = (numbers(&logits), numbers(&uniforms)) {
        let uniforms: Vec<f64> = uniforms.iter().map(|&uniform| f64::from(uniform)).collect();

        let (tokens, logprobs): (Vec<i32>, Vec<f32>) = sample_on_host(&logits, &uniforms, choice)
            .into_iter()
            .map(|(token, logprob)| (token as i32, logprob))
            .unzip();

        let rows = [tokens.len()];
        let tokens = Tensor::from_data(TensorData::new(tokens, rows), &Device::flex());
        return (tokens, tensor(logprobs, rows));
    }
    plain(logits, uniforms, choice)
}

pub(crate) fn plain(
    logits: Tensor<2>,
    uniforms: Tensor<1>,
    choice: &Choice,
) -> (Tensor<1, Int>, Tensor<1>) {
    let [rows, vocab] = logits.dims();

    let logits = logits.div_scalar(choice.divisor());
    let shifted = logits.clone() - logits.max_dim(1);
    let weights = shifted.clone().exp();
    // Summed in blocks: burn's sum of 70,001 entries is too small on software Vulkan.
    let total = blocks(weights.clone()).sum_dim(2).sum_dim(1).reshape([rows, 1]);
    let log_p = shifted - total.log();

    let token: Tensor<2, Int> = if choice.temperature == 0.0 {
        log_p.clone().argmax(1)
    } else if choice.truncates(vocab) {
        let (sorted, ids) = weights.clone().sort_descending_with_indices(1);
        let total = sorted.clone().sum_dim(1);
        // A token is kept if the tokens before it have not yet reached top_p.
        let before = sorted.clone().cumsum(1) - sorted;
        let mut cut = before.greater_equal(total.mul_scalar(choice.top_p).expand([rows, vocab]));
        if (1..vocab).contains(&choice.top_k) {
            let column = Tensor::<1, Int>::arange(0..vocab as i64, &weights.device());
            let beyond = column.greater_equal_elem(choice.top_k as i64).unsqueeze::<2>();
            cut = cut.bool_or(beyond.expand([rows, vocab]));
        }
        // Back into the order of their ids.
        let kept =
            weights.zeros_like().scatter(1, ids, cut.bool_not().float(), IndexingUpdateOp::Add);

        invert(weights * kept, uniforms)
    } else {
        invert(weights, uniforms)
    };

    let logprob = log_p.gather(1, token.clone());
    (token.squeeze_dim(1), logprob.squeeze_dim(1))
}

/// Columns of a block.
const BLOCK: usize = 256;

/// Splits each row into blocks: `[rows, blocks, BLOCK]`. The last one is padded with zeros.
fn blocks(weights: Tensor<2>) -> Tensor<3> {
    let [rows, vocab] = weights.dims();
    let blocks = vocab.div_ceil(BLOCK);
    let weights = match blocks * BLOCK - vocab {
        0 => weights,
        padding => {
            let zeros = Tensor::zeros([rows, padding], &weights.device());
            Tensor::cat(vec![weights, zeros], 1)
        }
    };
    weights.reshape([rows, blocks, BLOCK])
}

/// Finds the first column whose cumulative weight exceeds `uniform · total`: first the block of columns, then the
/// column in it, so that sums are short.
fn invert(weights: Tensor<2>, uniforms: Tensor<1>) -> Tensor<2, Int> {
    let weights = blocks(weights);
    let [rows, blocks, _] = weights.dims();
    let sums = weights.clone().sum_dim(2).reshape([rows, blocks]);

    let share = |total: Tensor<2>| total * uniforms.unsqueeze_dim::<2>(1);
    let (block, rest) = exceeded(sums, share);

    // Only the chosen block's columns are summed one by one.
    let within = block.clone().unsqueeze_dim::<3>(2).expand([rows, 1, BLOCK]);
    let weights = weights.gather(1, within).reshape([rows, BLOCK]);
    let (column, _) = exceeded(weights, |_| rest);
    block.mul_scalar(BLOCK as i32) + column
}

/// Finds the first column whose cumulative weight exceeds a target, which `target` computes from the sum of all. Also
/// returns the rest of the target after the columns before it.
fn exceeded(
    weights: Tensor<2>,
    target: impl FnOnce(Tensor<2>) -> Tensor<2>,
) -> (Tensor<2, Int>, Tensor<2>) {
    let [rows, columns] = weights.dims();
    // The column is the number of columns that have not passed the target yet.
    let cumulative = weights.clone().cumsum(1);
    let total = cumulative.clone().slice_dim(1, columns - 1..columns);

    let target = target(total.clone());
    // A target can be rounded up to the total. Then columns without weight at the end have reached it too, although
    // they must not be drawn.
    let short = cumulative.clone().lower(total.expand([rows, columns]));
    let passed = cumulative.clone().lower_equal(target.clone().expand([rows, columns]));
    let column = passed.bool_and(short).int().sum_dim(1);

    let before = (cumulative - weights).gather(1, column.clone());
    (column, target - before)
}
