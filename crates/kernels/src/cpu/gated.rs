use super::{
    lanes::{sigmoid, tanh},
    pieces, rows_of_a_task, simd,
};
use crate::Activation;

/// `activation(gate) · up`, of `[rows, 2 · width]` with the two side by side.
pub(crate) fn apply(gate_up: &[f32], width: usize, activation: Activation) -> Vec<f32> {
    let rows = gate_up.len() / (2 * width);
    let ([inner], _) = pieces(rows, [width], rows_of_a_task(width), |rows, [inner]| {
        simd(|| {
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

/// The gradient of `gate_up` from that of [`apply`]'s result, and that result once more.
pub(crate) fn back(gate_up: &[f32], d: &[f32], width: usize, activation: Activation) -> Vec<f32> {
    let rows = d.len() / width;
    let ([d_gate_up], _) = pieces(rows, [2 * width], rows_of_a_task(width), |rows, [out]| {
        simd(|| {
            for row in rows {
                let both = &gate_up[row * 2 * width..(row + 1) * 2 * width];
                let (gate, up) = both.split_at(width);
                let d = &d[row * width..(row + 1) * width];
                let all = || gate.iter().zip(up).zip(d);
                match activation {
                    Activation::Silu => {
                        out.put(all().map(|((&gate, up), d)| d * up * silu(gate)[1]));
                        out.put(all().map(|((&gate, _), d)| d * silu(gate)[0]));
                    }
                    Activation::GeluTanh => {
                        out.put(all().map(|((&gate, up), d)| d * up * gelu(gate)[1]));
                        out.put(all().map(|((&gate, _), d)| d * gelu(gate)[0]));
                    }
                }
            }
        });
    });
    d_gate_up
}

/// x · σ, and its derivative σ · (1 + x · (1 − σ)).
#[inline(always)]
fn silu(x: f32) -> [f32; 2] {
    let share = sigmoid(x);
    let y = x * share;
    [y, share + y - y * share]
}

/// ½x · (1 + t) with t = tanh(c · (x + ax³)), and its derivative, with t' = (1 − t²) · c · (1 + 3ax²).
#[inline(always)]
fn gelu(x: f32) -> [f32; 2] {
    const C: f32 = 0.797_884_6;
    const A: f32 = 0.044_715;
    let t = tanh(C * (x + A * x * x * x));
    let half = 0.5 * (1.0 + t);
    [x * half, half + x * 0.5 * C * (1.0 - t * t) * (1.0 + 3.0 * A * x * x)]
}
