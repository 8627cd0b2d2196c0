//! An MLP's gate on the CPU, forward and backward.

use super::{
    lanes::{sigmoid, tanh},
    pieces, put_three, rows_of_a_task, simd,
};
use crate::Activation;

/// Computes `activation(gate) · up`. `gate_up`, `[rows, 2 · width]`, holds the two concatenated.
pub(crate) fn apply(gate_up: &[f32], width: usize, activation: Activation) -> Vec<f32> {
    let rows = gate_up.len() / (2 * width);
    let ([inner], _) = pieces(rows, [width], rows_of_a_task(width), |rows, [inner]| {
        simd!({
            for row in gate_up[rows.start * 2 * width..rows.end * 2 * width].chunks_exact(2 * width)
            {
                let (gate, up) = row.split_at(width);
                let both = gate.iter().zip(up);

                match activation {
                    Activation::Silu => inner.put(both.map(|(&gate, up)| silu(gate)[0] * up)),
                    Activation::GeluTanh => inner.put(both.map(|(&gate, up)| gelu(gate)[0] * up)),
                }
            }
        });
    });
    inner
}

/// Computes the result of [`apply`] again, and the gradient of `gate_up`, given that of the result.
pub(crate) fn backward(
    gate_up: &[f32],
    d: &[f32],
    width: usize,
    activation: Activation,
) -> [Vec<f32>; 2] {
    let rows = d.len() / width;
    let step = rows_of_a_task(width);
    let (both, _) = pieces(rows, [width, 2 * width], step, |rows, [inner, d_gate_up]| {
        simd!({
            for row in rows.clone() {
                let both = &gate_up[row * 2 * width..(row + 1) * 2 * width];
                let (gate, up) = both.split_at(width);
                let all = gate.iter().zip(up).zip(&d[row * width..(row + 1) * width]);

                let three = |[y, slope]: [f32; 2], up: f32, d: f32| [y * up, d * up * slope, d * y];
                match activation {
                    Activation::Silu => {
                        let all = all.map(|((&gate, &up), &d)| three(silu(gate), up, d));
                        put_three(inner, d_gate_up, all);
                    }
                    Activation::GeluTanh => {
                        let all = all.map(|((&gate, &up), &d)| three(gelu(gate), up, d));
                        put_three(inner, d_gate_up, all);
                    }
                }
            }
        });
    });
    both
}

/// Computes x · σ, and its derivative σ · (1 + x · (1 − σ)).
#[inline(always)]
fn silu(x: f32) -> [f32; 2] {
    let share = sigmoid(x);
    let y = x * share;
    [y, share + y - y * share]
}

/// Computes ½x · (1 + t) with t = tanh(c · (x + ax³)), and its derivative, with t' = (1 − t²) · c · (1 + 3ax²).
#[inline(always)]
fn gelu(x: f32) -> [f32; 2] {
    const C: f32 = 0.797_884_6;
    const A: f32 = 0.044_715;
    let t = tanh(C * (x + A * x * x * x));
    let half = 0.5 * (1.0 + t);
    [x * half, half + x * 0.5 * C * (1.0 - t * t) * (1.0 + 3.0 * A * x * x)]
}
