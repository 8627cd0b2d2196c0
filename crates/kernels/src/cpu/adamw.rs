//! AdamW's step on the CPU, in one pass.

use rayon::prelude::*;

use super::simd;

/// Numbers of a step of AdamW.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) betas: [f32; 2],
    /// 1 − βᵗ of both moments.
    pub(crate) corrections: [f32; 2],
    pub(crate) epsilon: f32,
    pub(crate) lr: f32,
    /// Factor on a weight, for its decay.
    pub(crate) kept: f32,
}

/// Does one step, in place.
pub(crate) fn step(values: &mut [f32], gradient: &[f32], moments: [&mut [f32]; 2], rule: Step) {
    const NUMBERS: usize = 1 << 14;

    let [first, second] = moments;
    let sizes = [gradient.len(), first.len(), second.len()];
    assert_eq!(sizes, [values.len(); 3], "gradient and moments are as large as the weight");

    values
        .par_chunks_mut(NUMBERS)
        .zip(gradient.par_chunks(NUMBERS))
        .zip(first.par_chunks_mut(NUMBERS))
        .zip(second.par_chunks_mut(NUMBERS))
        .for_each(|(((values, gradient), first), second)| {
            simd!({
                let [beta_1, beta_2] = rule.betas;
                let [correction_1, correction_2] = rule.corrections;

                for (((value, gradient), first), second) in
                    values.iter_mut().zip(gradient).zip(&mut *first).zip(&mut *second)
                {
                    *first = *first * beta_1 + gradient * (1.0 - beta_1);
                    *second = *second * beta_2 + gradient * gradient * (1.0 - beta_2);

                    let root = (*second / correction_2).sqrt() + rule.epsilon;
                    *value = *value * rule.kept - *first / correction_1 / root * rule.lr;
                }
            });
        });
}

/// Computes Σ x², each square in 64 bits.
pub(crate) fn squares(x: &[f32]) -> f64 {
    const NUMBERS: usize = 1 << 14;
    let parts: Vec<f64> = x
        // Pieces of a fixed size, added up in their order: the sum doesn't depend on the number of threads.
        .par_chunks(NUMBERS)
        .map(|x| {
            simd!({
                let mut lanes = [0f64; 8];
                let (chunks, rest) = x.as_chunks::<8>();
                for chunk in chunks {
                    for (lane, &x) in lanes.iter_mut().zip(chunk) {
                        *lane += f64::from(x) * f64::from(x);
                    }
                }

                lanes.iter().sum::<f64>()
                    + rest.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>()
            })
        })
        .collect();
    parts.iter().sum()
}
