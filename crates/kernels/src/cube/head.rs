//! Log-probabilities and the gradients of logits on GPUs, by blocks of the vocabulary.

use super::{product::product, shared::largest_of_cube, *};
use crate::{LmHead, TokenLogProbs};

/// Results of [`carry`] over all blocks.
pub(crate) struct Found {
    pub(crate) logprobs: Tensor<1>,
    pub(crate) entropy: Tensor<1>,
    pub(crate) largest: Tensor<2>,
    pub(crate) log_sum: Tensor<2>,
}

/// Computes the logits, f32, of a head or of a part of it. The matmul precision is the format of `hidden`.
pub(crate) fn logits(hidden: &Tensor<2>, head: &LmHead) -> Option<Tensor<2>> {
    let matrix = head.matrix.clone().cast(hidden.dtype());
    let logits = product(hidden, &matrix.transpose())?;
    Some(tensor(match head.cap {
        Some(cap) => capped(logits, cap),
        None => logits,
    }))
}

/// Caps logits in place.
fn capped(logits: Buffer, cap: f64) -> Buffer {
    let logits = lined_up(logits);
    soft_cap::launch(
        &logits.client.clone(),
        units(count(&logits)),
        dim(),
        logits.clone().into_buffer_arg(),
        cap as f32,
    );
    logits
}

/// Sums that tokens carry through the blocks of the vocabulary.
pub(crate) struct Carried {
    sums: Buffer,
    labels: Buffer,
    divisor: f32,
}

impl Carried {
    /// Prepares the sums before the first block.
    pub(crate) fn new(
        sides: [&Tensor<2>; 2],
        labels: &Tensor<1, Int>,
        temperature: f64,
    ) -> Option<Self> {
        let ([Some(_), Some(_)], labels) = (sides.map(strided), ints(labels)?) else { return None };
        let sums = empty(&labels, [count(&labels), 4], DType::F32);
        Some(Carried { sums, labels, divisor: temperature as f32 })
    }

    /// Adds a block of logits, `[tokens, columns]`, that begins at `start`.
    pub(crate) fn add(&mut self, logits: &Tensor<2>, start: usize) {
        let logits = taken(logits);
        carry::launch(
            &logits.client.clone(),
            cubes(count(&self.labels)),
            dim(),
            logits.into_buffer_arg(),
            self.labels.clone().into_buffer_arg(),
            self.sums.clone().into_buffer_arg(),
            self.divisor,
            start,
            start == 0,
        );
    }

    /// Computes the results over all blocks.
    pub(crate) fn finish(self) -> Found {
        let tokens = count(&self.labels);
        let [logprobs, entropy, largest, log_sum] =
            [0; 4].map(|_| empty(&self.sums, [tokens], DType::F32));

        found::launch(
            &self.sums.client.clone(),
            units(tokens),
            dim(),
            self.sums.into_buffer_arg(),
            logprobs.clone().into_buffer_arg(),
            entropy.clone().into_buffer_arg(),
            largest.clone().into_buffer_arg(),
            log_sum.clone().into_buffer_arg(),
        );

        let column = |x| tensor::<1>(x).reshape([tokens, 1]);
        Found {
            logprobs: tensor(logprobs),
            entropy: tensor(entropy),
            largest: column(largest),
            log_sum: column(log_sum),
        }
    }
}

/// Factors of each token's gradients, `[tokens, 5]`.
pub(crate) struct Factors {
    factors: Buffer,
    labels: Buffer,
    divisor: f32,
    cap: Option<f32>,
}

impl Factors {
    /// Computes the factors, given the results in `now` and the gradients of log-probabilities and of entropy.
    pub(crate) fn new(
        sides: [&Tensor<2>; 2],
        labels: &Tensor<1, Int>,
        temperature: f64,
        now: &TokenLogProbs,
        d_logprobs: &Tensor<1>,
        d_entropy: Option<&Tensor<1>>,
    ) -> Option<Self> {
        let ([Some(_), Some(_)], labels) = (sides.map(strided), ints(labels)?) else { return None };

        let with_entropy = d_entropy.is_some();
        let (entropy, d_logprobs) = (wide(&now.entropy)?, wide(d_logprobs)?);
        let d_entropy = d_entropy.map_or(Some(d_logprobs.clone()), wide)?;

        let tokens = count(&labels);
        let factors = empty(&entropy, [tokens, 5], DType::F32);
        let divisor = temperature as f32;

        factors_of::launch(
            &factors.client.clone(),
            units(tokens),
            dim(),
            wide(&now.largest)?.into_buffer_arg(),
            wide(&now.log_sum)?.into_buffer_arg(),
            entropy.into_buffer_arg(),
            d_logprobs.into_buffer_arg(),
            d_entropy.into_buffer_arg(),
            factors.clone().into_buffer_arg(),
            divisor,
            with_entropy,
        );

        Some(Factors { factors, labels, divisor, cap: now.cap.map(|cap| cap as f32) })
    }

    /// Computes the gradient of a block's logits, `[tokens, columns]`, in `format`. The block begins at `start`.
    pub(crate) fn d_logits(&self, logits: &Tensor<2>, start: usize, format: DType) -> Tensor<2> {
        let shape = logits.dims();
        let logits = taken(logits);
        let d = empty(&logits, shape, format);

        d_of_logits::launch(
            &d.client.clone(),
            units(count(&d)),
            dim(),
            logits.into_buffer_arg(),
            self.labels.clone().into_buffer_arg(),
            self.factors.clone().into_buffer_arg(),
            d.clone().into_buffer_arg(),
            self.divisor,
            self.cap.unwrap_or(1.0),
            shape[1],
            start,
            self.cap.is_some(),
            super::format(&d),
        );
        tensor(d)
    }
}

#[cube(launch)]
fn soft_cap(logits: &mut [f32], cap: f32) {
    if ABSOLUTE_POS < logits.len() {
        // Beyond these bounds, a hyperbolic tangent is 1 to the last bit, and some devices return NaN.
        let logit = logits[ABSOLUTE_POS];
        let tanh = clamp(logit / cap, -15.0, 15.0).tanh();
        // A bound is a number, so a logit that is none would become one here, and nobody would notice.
        logits[ABSOLUTE_POS] = select(logit == logit, tanh * cap, logit);
    }
}

/// Carries four numbers of a token through a block: its largest logit, its sum of weights, its sum of weights times
/// (logit − largest), and the label's logit.
#[cube(launch)]
fn carry(
    logits: &[f32],
    labels: &[i32],
    sums: &mut [f32],
    divisor: f32,
    start: usize,
    #[comptime] begins: bool,
) {
    if CUBE_POS < labels.len() {
        let columns = logits.len() / labels.len();
        let row = CUBE_POS * columns;

        let mut own = logits[row] / divisor;
        let mut at = UNIT_POS as usize;
        while at < columns {
            own = max(own, logits[row + at] / divisor);
            at += CUBE_DIM as usize;
        }

        let mut largest = largest_of_cube(own);
        let token = CUBE_POS * 4;
        if !begins {
            largest = max(largest, sums[token]);
        }

        let mut sum = f32::new(0.0);
        let mut spread = f32::new(0.0);
        at = UNIT_POS as usize;
        while at < columns {
            let lacking = logits[row + at] / divisor - largest;
            let weight = lacking.exp();
            sum += weight;
            // A logit of −∞ must add nothing, but 0 · ∞ would be NaN.
            spread += weight * max(lacking, -3e38);
            at += CUBE_DIM as usize;
        }

        sum = sum_of_cube(sum);
        spread = sum_of_cube(spread);

        if UNIT_POS == 0 {
            let mut chosen = f32::new(0.0);
            let label = labels[CUBE_POS] as usize;
            if label >= start && label < start + columns {
                chosen = logits[row + label - start] / divisor;
            }

            // The carried sums are relative to another largest logit.
            if !begins {
                let less = max(sums[token] - largest, -3e38);
                let kept = less.exp();
                spread += (sums[token + 2] + sums[token + 1] * less) * kept;
                sum += sums[token + 1] * kept;
                chosen += sums[token + 3];
            }

            sums[token] = largest;
            sums[token + 1] = sum;
            sums[token + 2] = spread;
            sums[token + 3] = chosen;
        }
    }
}

#[cube(launch)]
fn found(
    sums: &[f32],
    logprobs: &mut [f32],
    entropy: &mut [f32],
    largest: &mut [f32],
    log_sum: &mut [f32],
) {
    if ABSOLUTE_POS < logprobs.len() {
        let token = ABSOLUTE_POS * 4;
        let log = sums[token + 1].ln();
        largest[ABSOLUTE_POS] = sums[token];
        log_sum[ABSOLUTE_POS] = log;
        logprobs[ABSOLUTE_POS] = sums[token + 3] - sums[token] - log;
        entropy[ABSOLUTE_POS] = log - sums[token + 2] / sums[token + 1];
    }
}

/// Computes the five factors of a token: its largest logit; the factor of a weight for the log-probability, and that
/// for the entropy; what is added to a logit for the entropy; and what is added to the label's gradient.
#[cube(launch)]
fn factors_of(
    largest: &[f32],
    log_sum: &[f32],
    entropy: &[f32],
    d_logprobs: &[f32],
    d_entropy: &[f32],
    factors: &mut [f32],
    divisor: f32,
    #[comptime] with_entropy: bool,
) {
    if ABSOLUTE_POS < largest.len() {
        let token = ABSOLUTE_POS * 5;
        let share = (-log_sum[ABSOLUTE_POS]).exp();
        let d = d_logprobs[ABSOLUTE_POS] / divisor;

        factors[token] = largest[ABSOLUTE_POS];
        factors[token + 1] = -d * share;
        factors[token + 2] = 0.0;
        if with_entropy {
            factors[token + 2] = d_entropy[ABSOLUTE_POS] / divisor * share;
        }
        factors[token + 3] = entropy[ABSOLUTE_POS] - log_sum[ABSOLUTE_POS];
        factors[token + 4] = d;
    }
}

#[cube(launch)]
fn d_of_logits<Y: Float>(
    logits: &[f32],
    labels: &[i32],
    factors: &[f32],
    d: &mut [Y],
    divisor: f32,
    cap: f32,
    columns: usize,
    start: usize,
    #[comptime] capped: bool,
    #[define(Y)] _format: ElemType,
) {
    if ABSOLUTE_POS < d.len() {
        let row = ABSOLUTE_POS / columns;
        let token = row * 5;

        // With z = logit − largest, each factor of `factors_of` is used once here.
        let lacking = logits[ABSOLUTE_POS] / divisor - factors[token];
        let weight = lacking.exp();
        let spread = max(lacking, -3e38) + factors[token + 3];
        let mut sum = weight * factors[token + 1] - weight * spread * factors[token + 2];

        if labels[row] as usize == start + ABSOLUTE_POS % columns {
            sum += factors[token + 4];
        }
        if capped {
            // The slope of the cap, where the logit is capped already.
            let tanh = logits[ABSOLUTE_POS] / cap;
            sum *= 1.0 - tanh * tanh;
        }
        d[ABSOLUTE_POS] = Y::cast_from(sum);
    }
}
