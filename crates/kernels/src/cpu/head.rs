use std::ops::Range;

use rayon::prelude::*;

use super::{
    lanes::{exp, fold, largest},
    pieces,
    product::{Matrix, add_product, multiply},
    simd,
};

/// Rows of the head in a block.
const VOCAB: usize = 1024;

/// Numbers of a buffer of logits that stays near the cores.
const NEAR: usize = 1 << 20;

/// What is known of each token: log-probability of its label, entropy, largest logit, and the logarithm of the sum of
/// the others' exponentials, as they lack to the largest.
pub(crate) type Sums = [Vec<f32>; 4];

/// [`Sums`] of `hidden`, `[tokens, width]`, with `head`, `[vocab, width]`.
pub(crate) fn logprobs(
    hidden: Matrix<'_>,
    head: Matrix<'_>,
    labels: &[usize],
    temperature: f32,
) -> Sums {
    let ([tokens, _], [vocab, _]) = (hidden.dims(), head.dims());
    let (sums, _) = pieces(tokens, [1; 4], tokens_of_a_task(tokens), |rows, outs| {
        let mut logits = vec![0.0; rows.len() * VOCAB.min(vocab)];
        let mut carried = vec![Carried::default(); rows.len()];
        for block in blocks(vocab, VOCAB) {
            let width = block.len();
            let logits = &mut logits[..rows.len() * width];
            let weights = head.rows(block.clone()).transposed();
            multiply(logits, width, hidden.rows(rows.clone()), weights, 1.0 / temperature, false);
            let each = logits.chunks_exact(width).zip(&mut carried).zip(&labels[rows.clone()]);
            simd(|| {
                for ((logits, carried), label) in each {
                    carried.take(logits);
                    if block.contains(label) {
                        carried.chosen = logits[label - block.start];
                    }
                }
            });
        }
        for Carried { largest, sum, spread, chosen } in carried {
            let log_sum = sum.ln();
            let numbers = [chosen - largest - log_sum, log_sum - spread / sum, largest, log_sum];
            outs.iter_mut().zip(numbers).for_each(|(out, number)| out.put(std::iter::once(number)));
        }
    });
    sums
}

/// Sums over the logits that a token has met.
#[derive(Clone)]
struct Carried {
    largest: f32,
    sum: f32,
    /// Σ exp(z) · z, of logits as they lack to the largest.
    spread: f32,
    chosen: f32,
}

impl Default for Carried {
    fn default() -> Self {
        Carried { largest: f32::NEG_INFINITY, sum: 0.0, spread: 0.0, chosen: 0.0 }
    }
}

impl Carried {
    #[inline(always)]
    fn take(&mut self, logits: &[f32]) {
        let top = self.largest.max(largest(logits));
        let less = (self.largest - top).max(f32::MIN);
        let kept = exp(less);
        // A logit of −∞ adds nothing; 0 · ∞ would be no number.
        let spread = fold(
            [logits],
            0.0,
            |sum, [z]| sum + exp(z - top) * (z - top).max(f32::MIN),
            |x, y| x + y,
        );
        let sum = fold([logits], 0.0, |sum, [z]| sum + exp(z - top), |x, y| x + y);
        self.spread = spread + (self.spread + self.sum * less) * kept;
        self.sum = sum + self.sum * kept;
        self.largest = top;
    }
}

/// The gradients of what was made of a token: of its log-probability, and of its entropy.
pub(crate) struct Gradients<'a> {
    pub(crate) logprobs: &'a [f32],
    pub(crate) entropy: Option<&'a [f32]>,
}

/// The gradient of `hidden`; that of the head, `[vocab, width]`, is added to `d_head`. About `numbers` logits are there
/// at once.
#[allow(clippy::too_many_arguments, reason = "the inputs of the forward pass and their gradients")]
pub(crate) fn back(
    hidden: Matrix<'_>,
    head: Matrix<'_>,
    labels: &[usize],
    temperature: f32,
    [entropy, largest, log_sum]: [&[f32]; 3],
    gradients: &Gradients<'_>,
    mut d_head: Option<&mut [f32]>,
    numbers: usize,
) -> Vec<f32> {
    let ([tokens, width], [vocab, _]) = (hidden.dims(), head.dims());
    let at_once = (numbers.min(NEAR) / tokens.max(1)).clamp(1, VOCAB);
    let mut d_hidden = vec![0.0; tokens * width];
    let mut buffer = vec![0.0; tokens * at_once.min(vocab)];
    let step = tokens_of_a_task(tokens);
    for block in blocks(vocab, at_once) {
        let (count, first) = (block.len(), block.start == 0);
        let d_logits = &mut buffer[..tokens * count];
        let weights = head.rows(block.clone());
        d_logits
            .par_chunks_mut(step * count)
            .zip(d_hidden.par_chunks_mut(step * width))
            .enumerate()
            .for_each(|(index, (logits, d_hidden))| {
                let start = index * step;
                let rows = start..start + d_hidden.len() / width;
                let (x, y) = (hidden.rows(rows.clone()), weights.transposed());
                multiply(logits, count, x, y, 1.0 / temperature, false);
                simd(|| {
                    for (row, logits) in rows.zip(logits.chunks_exact_mut(count)) {
                        let share = exp(-log_sum[row]) / temperature;
                        let d_chosen = gradients.logprobs[row];
                        let slope = -d_chosen * share;
                        let of_entropy =
                            gradients.entropy.map_or(0.0, |entropy| entropy[row] * share);
                        let (top, difference) = (largest[row], entropy[row] - log_sum[row]);
                        for z in logits.iter_mut() {
                            let lacking = *z - top;
                            let spread = lacking.max(f32::MIN) + difference;
                            *z = exp(lacking) * (slope - of_entropy * spread);
                        }
                        if block.contains(&labels[row]) {
                            logits[labels[row] - block.start] += d_chosen / temperature;
                        }
                    }
                });
                multiply(d_hidden, width, Matrix::dense(logits, count), weights, 1.0, !first);
            });
        if let Some(d_head) = &mut d_head {
            let target = &mut d_head[block.start * width..block.end * width];
            add_product(target, Matrix::dense(d_logits, count).transposed(), hidden);
        }
    }
    d_hidden
}

fn blocks(vocab: usize, step: usize) -> impl Iterator<Item = Range<usize>> {
    (0..vocab).step_by(step).map(move |start| start..(start + step).min(vocab))
}

fn tokens_of_a_task(tokens: usize) -> usize {
    (tokens / 16).clamp(8, 64)
}
