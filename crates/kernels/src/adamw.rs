//! AdamW's step, and the sums of gradients' squares.

use burn::tensor::Tensor;

use crate::{
    cpu::{self, adamw::Step},
    flex::{edited, numbers, tensor},
};

/// Settings of a step of AdamW (Loshchilov and Hutter 2019).
#[derive(Clone, Copy, Debug)]
pub struct AdamWStep {
    /// Decays of the first and of the second moment.
    pub betas: [f64; 2],
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Share of a weight, times the learning rate, that is subtracted.
    pub weight_decay: f64,
    /// Learning rate.
    pub lr: f64,
    /// Number of this step, counted from 1.
    pub time: u64,
}

/// Does a step and returns the weights and the two moments after it. Missing moments count as 0. All tensors are flat.
pub fn adamw(
    values: Tensor<1>,
    gradient: Tensor<1>,
    moments: Option<[Tensor<1>; 2]>,
    step: AdamWStep,
) -> [Tensor<1>; 3] {
    #[cfg(feature = "gpu")]
    if crate::cube::takes(&gradient) {
        return crate::cube::adamw::step(values, &gradient, moments, step.numbers());
    }

    let all = (numbers(&values).map(drop), numbers(&gradient));
    let (Some(()), Some(gradient)) = all else { return plain(values, gradient, moments, step) };

    let [mut first, mut second] = moments
        .unwrap_or_else(|| [0, 1].map(|_| tensor(vec![0.0; gradient.len()], [gradient.len()])));

    // All three are edited in place where their buffers are not shared, so a step needs no second copy.
    let values = edited(values, |values| {
        first.inplace(|first| {
            edited(first, |first| {
                second.inplace(|second| {
                    edited(second, |second| {
                        cpu::adamw::step(values, &gradient, [first, second], step.numbers());
                    })
                });
            })
        });
    });

    [values, first, second]
}

/// Computes a number c and Σ (x / c)² of each flat tensor, so that no square is too large for f32. The pairs stand one
/// after the other, `[2 · tensors]`. All have one format.
///
/// # Panics
/// If there is no tensor.
pub fn scaled_squares(tensors: Vec<Tensor<1>>) -> Tensor<1> {
    on_gpu!(adamw::scaled_squares(&tensors));
    Tensor::cat(tensors.into_iter().map(scaled_squares_of).collect(), 0)
}

fn scaled_squares_of(x: Tensor<1>) -> Tensor<1> {
    if let Some(numbers) = numbers(&x) {
        return tensor(vec![cpu::adamw::squares(&numbers).sqrt() as f32, 1.0], [2]);
    }

    let largest = x.clone().abs().max();
    // The upper end keeps the norm of an infinite gradient infinite: ∞ / ∞ is NaN.
    let scale = largest.clamp(1e-30, f32::MAX);
    let sum = (x / scale.clone()).square().sum();
    Tensor::cat(vec![scale, sum], 0)
}

pub(crate) fn plain(
    values: Tensor<1>,
    gradient: Tensor<1>,
    moments: Option<[Tensor<1>; 2]>,
    step: AdamWStep,
) -> [Tensor<1>; 3] {
    let [first, second] = moments.unwrap_or_else(|| [0, 1].map(|_| gradient.zeros_like()));
    let Step { betas: [beta_1, beta_2], corrections, epsilon, lr, kept } = step.numbers();
    let first = first.mul_scalar(beta_1) + gradient.clone().mul_scalar(1.0 - beta_1);
    let second = second.mul_scalar(beta_2) + gradient.square().mul_scalar(1.0 - beta_2);
    let root = second.clone().div_scalar(corrections[1]).sqrt().add_scalar(epsilon);
    let change = first.clone().div_scalar(corrections[0]) / root;
    [values.mul_scalar(kept) - change.mul_scalar(lr), first, second]
}

impl AdamWStep {
    fn numbers(self) -> Step {
        let correction = |beta: f64| (1.0 - beta.powf(self.time as f64)) as f32;
        Step {
            betas: self.betas.map(|beta| beta as f32),
            corrections: self.betas.map(correction),
            epsilon: self.epsilon as f32,
            lr: self.lr as f32,
            kept: (1.0 - self.lr * self.weight_decay) as f32,
        }
    }
}
