//! Log-probabilities and their gradients on the CPU, by blocks of the vocabulary.

use std::ops::Range;

use rayon::prelude::*;

use super::{
    lanes::{exp, fold, largest, tanh},
    matrix::Matrix,
    product::{add_product, product},
    rows_of_a_task, simd,
    weights::Weights,
};

/// Number of a token's logits that are folded together. A block of the vocabulary consists of several of these, so that
/// sums have the same bits whatever the block's size.
const RUN: usize = 512;

/// Size of a buffer of logits that stays in the cores' caches, in numbers.
const NEAR: usize = 1 << 20;

/// Four numbers of each token: the log-probability of its label, the entropy, the largest logit, and the logarithm of
/// the sum of exp(logit − largest).
pub(crate) type Sums = [Vec<f32>; 4];

/// Computes [`Sums`] of `hidden`, `[tokens, width]`, with `head`, `[vocab, width]`. Also returns all logits over the
/// temperature, in blocks of the vocabulary, if they are at most `kept`.
pub(crate) fn logprobs(
    hidden: Matrix<'_>,
    head: Weights<'_>,
    cap: Option<f32>,
    labels: &[usize],
    temperature: f32,
    kept: usize,
) -> (Sums, Vec<Vec<f32>>) {
    let ([tokens, _], [vocab, _]) = (hidden.dims(), head.dims());

    let mut carried = vec![Carried::default(); tokens];
    let mut waiting = Vec::new();

    for block in blocks(tokens, vocab) {
        let width = block.len();
        let logits = scaled_logits(hidden, head.rows(block.clone()), cap, temperature);

        let each = logits.par_chunks_exact(width).zip(&mut carried).zip(labels);
        each.with_min_len(rows_of_a_task(width)).for_each(|((logits, carried), label)| {
            simd!({
                for run in logits.chunks(RUN) {
                    carried.take(run);
                }
            });

            if block.contains(label) {
                carried.chosen = logits[label - block.start];
            }
        });

        if tokens * vocab <= kept {
            waiting.push(logits);
        }
    }

    let of = |number: fn(&Carried) -> f32| carried.iter().map(number).collect();
    let sums = [
        of(|token| token.chosen - token.largest - token.sum.ln()),
        of(|token| token.sum.ln() - token.spread / token.sum),
        of(|token| token.largest),
        of(|token| token.sum.ln()),
    ];

    (sums, waiting)
}

/// Running sums over a token's logits.
#[derive(Clone)]
struct Carried {
    largest: f32,
    sum: f32,
    /// Σ exp(z) · z, with z = logit − largest.
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
        // A logit of −∞ must add nothing, but 0 · ∞ would be NaN.
        let spread = fold(
            [logits],
            0.0,
            |sum, [z]| sum + exp(z - top) * (z - top).max(f32::MIN),
            |x, y| x + y,
        );

        let sum = fold([logits], 0.0, |sum, [z]| sum + exp(z - top), |x, y| x + y);
        // The sums so far are relative to another largest logit.
        self.spread = spread + (self.spread + self.sum * less) * kept;
        self.sum = sum + self.sum * kept;
        self.largest = top;
    }
}

/// Gradients of each token's results: of its log-probability, and of its entropy.
pub(crate) struct Gradients<'a> {
    pub(crate) logprobs: &'a [f32],
    pub(crate) entropy: Option<&'a [f32]>,
}

/// Computes the gradient of `hidden`, and adds that of the head, `[vocab, width]`, to `d_head`. `waiting` holds the
/// logits that [`logprobs`] returned.
#[allow(clippy::too_many_arguments, reason = "the inputs of the forward pass and their gradients")]
pub(crate) fn backward(
    hidden: Matrix<'_>,
    head: Weights<'_>,
    cap: Option<f32>,
    labels: &[usize],
    temperature: f32,
    [entropy, largest, log_sum]: [&[f32]; 3],
    gradients: &Gradients<'_>,
    mut d_head: Option<&mut [f32]>,
    waiting: Vec<Vec<f32>>,
) -> Vec<f32> {
    let ([tokens, width], [vocab, _]) = (hidden.dims(), head.dims());

    let mut d_hidden = vec![0.0; tokens * width];
    let mut waiting = waiting.into_iter();
    // What makes the hyperbolic tangent again of a capped logit over the temperature.
    let to_tanh = cap.map(|cap| temperature / cap);

    for block in blocks(tokens, vocab) {
        let count = block.len();
        let weights = head.rows(block.clone());
        let waited = waiting.next();
        let mut logits = waited.unwrap_or_else(|| scaled_logits(hidden, weights, cap, temperature));

        // The gradient of each logit is written over it.
        let each = logits.par_chunks_exact_mut(count).enumerate();
        each.with_min_len(rows_of_a_task(count)).for_each(|(row, logits)| {
            let share = exp(-log_sum[row]) / temperature;
            let d_chosen = gradients.logprobs[row];
            let slope = -d_chosen * share;
            let of_entropy = gradients.entropy.map_or(0.0, |entropy| entropy[row] * share);
            let top = largest[row];
            let difference = entropy[row] - log_sum[row];

            let label = block.contains(&labels[row]).then(|| labels[row] - block.start);
            // Its logit is written over as well.
            let slope_at_label = match (label, to_tanh) {
                (Some(label), Some(factor)) => cap_slope(logits[label] * factor),
                _ => 1.0,
            };

            simd!({
                if let Some(factor) = to_tanh {
                    for z in logits.iter_mut() {
                        let of_cap = cap_slope(*z * factor);
                        *z = d_logit(*z - top, difference, slope, of_entropy) * of_cap;
                    }
                } else {
                    for z in logits.iter_mut() {
                        *z = d_logit(*z - top, difference, slope, of_entropy);
                    }
                }
            });

            if let Some(label) = label {
                logits[label] += d_chosen / temperature * slope_at_label;
            }
        });

        let d_logits = Matrix::dense(&logits, count);
        add_product(&mut d_hidden, d_logits, weights);
        if let Some(d_head) = &mut d_head {
            let target = &mut d_head[block.start * width..block.end * width];
            add_product(target, d_logits.transposed(), hidden);
        }
    }

    d_hidden
}

/// Computes the gradient of a logit that is `lacking` less than the largest, but for what its own label adds.
#[inline(always)]
fn d_logit(lacking: f32, difference: f32, slope: f32, of_entropy: f32) -> f32 {
    let spread = lacking.max(f32::MIN) + difference;
    exp(lacking) * (slope - of_entropy * spread)
}

/// Computes the slope of c · tanh(x / c), given the hyperbolic tangent.
#[inline(always)]
fn cap_slope(tanh: f32) -> f32 {
    1.0 - tanh * tanh
}

/// Computes logits over the temperature, `[tokens, vocab]`, which are capped before it divides them.
pub(crate) fn scaled_logits(
    hidden: Matrix<'_>,
    head: Weights<'_>,
    cap: Option<f32>,
    temperature: f32,
) -> Vec<f32> {
    const PIECE: usize = 1 << 13;
    let Some(cap) = cap else { return product(hidden, head.transposed(), 1.0 / temperature) };

    let mut logits = product(hidden, head.transposed(), 1.0 / cap);
    let factor = cap / temperature;
    logits.par_chunks_mut(PIECE).for_each(|piece| {
        simd!({
            for z in piece.iter_mut() {
                *z = tanh(*z) * factor;
            }
        });
    });
    logits
}

/// Splits the vocabulary into blocks so small that the logits of all tokens in a block stay in the cores' caches.
fn blocks(tokens: usize, vocab: usize) -> impl Iterator<Item = Range<usize>> {
    let step = (NEAR / tokens.max(1) / RUN).max(1) * RUN;
    (0..vocab).step_by(step).map(move |start| start..(start + step).min(vocab))
}
