//! AdamW's step on GPUs, in place, and the sums of gradients' squares.

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

/// Computes a number c and Σ (x / c)² of each tensor, one after the other: first for pieces, then for all pieces of each.
pub(crate) fn scaled_squares(tensors: &[Tensor<1>]) -> Option<Tensor<1>> {
    const PIECE: usize = 1 << 14;
    let pieces = |x: &Tensor<1>| x.dims()[0].div_ceil(PIECE).min(UNITS as usize * 4);
    let other = strided(tensors.first()?)?;
    if tensors.iter().any(|x| x.dtype() != DType::F32) {
        return None;
    }

    // Where each tensor's pieces begin, and an end for the last of them.
    let mut starts = vec![0];
    let mut end = 0;
    for x in tensors {
        end += pieces(x);
        starts.push(end as u32);
    }

    let parts = empty(&other, [2 * end], DType::F32);
    let all = empty(&other, [2 * tensors.len()], DType::F32);
    for (x, &start) in tensors.iter().zip(&starts) {
        squares_of_pieces::launch(
            &other.client.clone(),
            cubes(pieces(x)),
            dim(),
            taken(x).into_buffer_arg(),
            parts.clone().into_buffer_arg(),
            start as usize,
            pieces(x),
        );
    }

    // The pieces have separate divisors, so the last launch scales each tensor's sums to its largest one.
    squares_of_all::launch(
        &other.client.clone(),
        cubes(tensors.len()),
        dim(),
        parts.into_buffer_arg(),
        uploaded(starts, &other).into_buffer_arg(),
        all.clone().into_buffer_arg(),
    );

    Some(tensor(all))
}

/// Computes the two numbers of each of a tensor's pieces, the first of which is `start`. The stride of a cube's numbers
/// is the number of all units.
#[cube(launch)]
fn squares_of_pieces(x: &[f32], parts: &mut [f32], start: usize, pieces: usize) {
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
            parts[2 * (start + CUBE_POS)] = scale;
            parts[2 * (start + CUBE_POS) + 1] = sum;
        }
    }
}

/// Adds up the pieces of each tensor, in a cube of its own.
#[cube(launch)]
fn squares_of_all(parts: &[f32], starts: &[u32], all: &mut [f32]) {
    if 2 * CUBE_POS < all.len() {
        let first = starts[CUBE_POS] as usize + UNIT_POS as usize;
        let end = starts[CUBE_POS + 1] as usize;

        let mut largest = f32::new(0.0);
        let mut at = first;
        while at < end {
            largest = max(largest, parts[2 * at]);
            at += CUBE_DIM as usize;
        }

        let scale = shared::largest_of_cube(largest);
        let mut sum = f32::new(0.0);
        at = first;
        while at < end {
            let share = parts[2 * at] / scale;
            sum += parts[2 * at + 1] * share * share;
            at += CUBE_DIM as usize;
        }

        sum = sum_of_cube(sum);
        if UNIT_POS == 0 {
            all[2 * CUBE_POS] = scale;
            all[2 * CUBE_POS + 1] = sum;
        }
    }
}

/// Bounds the divisor. The upper end keeps the norm of an infinite gradient infinite, because ∞ / ∞ is NaN.
#[cube]
fn divisor(largest: f32) -> f32 {
    clamp(largest, 1e-30, f32::MAX)
}
