//! AdamW's step on GPUs, in place, and the sum of a gradient's squares.

use super::*;
use crate::cpu::adamw::Step;

/// Does a step and returns the weights and the two moments after it, in place if their buffers are not shared.
pub(crate) fn step(
    values: Tensor<1>,
    gradient: &Tensor<1>,
    moments: Option<[Tensor<1>; 2]>,
    rule: Step,
) -> [Tensor<1>; 3] {
    let gradient = taken(gradient);
    let [first, second] = moments.unwrap_or_else(|| [0, 1].map(|_| values.zeros_like())).map(own);
    let values = own(values);

    adamw::launch(
        &values.client.clone(),
        units(count(&values)),
        dim(),
        gradient.into_buffer_arg(),
        values.clone().into_buffer_arg(),
        first.clone().into_buffer_arg(),
        second.clone().into_buffer_arg(),
        rule.betas[0],
        rule.betas[1],
        rule.corrections[0],
        rule.corrections[1],
        rule.epsilon,
        rule.lr,
        rule.kept,
    );
    [tensor(values), tensor(first), tensor(second)]
}

#[cube(launch)]
fn adamw(
    gradient: &[f32],
    values: &mut [f32],
    first: &mut [f32],
    second: &mut [f32],
    beta_1: f32,
    beta_2: f32,
    correction_1: f32,
    correction_2: f32,
    epsilon: f32,
    lr: f32,
    kept: f32,
) {
    if ABSOLUTE_POS < values.len() {
        let d = gradient[ABSOLUTE_POS];
        let mean = first[ABSOLUTE_POS] * beta_1 + d * (1.0 - beta_1);
        let square = second[ABSOLUTE_POS] * beta_2 + d * d * (1.0 - beta_2);
        let root = (square / correction_2).sqrt() + epsilon;
        let value = values[ABSOLUTE_POS] * kept - mean / correction_1 / root * lr;

        first[ABSOLUTE_POS] = mean;
        second[ABSOLUTE_POS] = square;
        values[ABSOLUTE_POS] = value;
    }
}

/// Computes a number c and Σ (x / c)², `[2]`, first for pieces, then for all.
pub(crate) fn scaled_squares<const D: usize>(x: &Tensor<D>) -> Option<Tensor<1>> {
    const PIECE: usize = 1 << 14;
    let x = wide(x)?;
    let pieces = count(&x).div_ceil(PIECE).min(UNITS as usize * 4);
    let parts = empty(&x, [2 * pieces], DType::F32);
    let all = empty(&x, [2], DType::F32);

    let client = x.client.clone();
    squares_of_pieces::launch(
        &client,
        cubes(pieces),
        dim(),
        x.into_buffer_arg(),
        parts.clone().into_buffer_arg(),
    );

    // The pieces have separate divisors, so the second launch scales their sums to the largest one.
    squares_of_all::launch(
        &client,
        cubes(1),
        dim(),
        parts.into_buffer_arg(),
        all.clone().into_buffer_arg(),
    );

    Some(tensor(all))
}

/// Computes the two numbers of each piece. The stride of a cube's numbers is the number of all units.
#[cube(launch)]
fn squares_of_pieces(x: &[f32], parts: &mut [f32]) {
    let pieces = parts.len() / 2;
    if CUBE_POS < pieces {
        let step = pieces * CUBE_DIM as usize;

        let mut largest = f32::new(0.0);
        let mut at = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
        let first = at;
        while at < x.len() {
            largest = max(largest, x[at].abs());
            at += step;
        }

        let scale = divisor(shared::largest_of_cube(largest));
        let mut sum = f32::new(0.0);
        at = first;
        while at < x.len() {
            let share = x[at] / scale;
            sum += share * share;
            at += step;
        }

        sum = sum_of_cube(sum);
        if UNIT_POS == 0 {
            parts[2 * CUBE_POS] = scale;
            parts[2 * CUBE_POS + 1] = sum;
        }
    }
}

#[cube(launch)]
fn squares_of_all(parts: &[f32], all: &mut [f32]) {
    if CUBE_POS == 0 {
        let mut largest = f32::new(0.0);
        let mut at = UNIT_POS as usize;
        while 2 * at < parts.len() {
            largest = max(largest, parts[2 * at]);
            at += CUBE_DIM as usize;
        }

        let scale = shared::largest_of_cube(largest);
        let mut sum = f32::new(0.0);
        at = UNIT_POS as usize;
        while 2 * at < parts.len() {
            let share = parts[2 * at] / scale;
            sum += parts[2 * at + 1] * share * share;
            at += CUBE_DIM as usize;
        }

        sum = sum_of_cube(sum);
        if UNIT_POS == 0 {
            all[0] = scale;
            all[1] = sum;
        }
    }
}

/// Bounds the divisor. The upper end keeps the norm of an infinite gradient infinite, because ∞ / ∞ is NaN.
#[cube]
fn divisor(largest: f32) -> f32 {
    clamp(largest, 1e-30, f32::MAX)
}
