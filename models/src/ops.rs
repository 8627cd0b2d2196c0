//! The operations worth fusing, as plain tensor code.
//!
//! Every layer calls these, so a faster body for one device has one place to go, and this code
//! stays the reference that it is compared with.

use burn::tensor::{Device, Int, Tensor, activation};

/// Added to the attention scores of keys that a query must not see.
///
/// Finite on purpose: a query of a padding position sees no key at all, and −∞ everywhere would
/// make its softmax NaN, which the backward pass would spread to the whole batch.
pub(crate) const MASKED: f32 = -1e30;

/// `x / sqrt(mean(x²) + epsilon) · weight` over the last dimension.
pub(crate) fn rms_norm(x: Tensor<3>, weight: Tensor<1>, epsilon: f64) -> Tensor<3> {
    let scale = x.clone().square().mean_dim(2).add_scalar(epsilon).sqrt().recip();
    x * scale * weight.unsqueeze()
}

/// `silu(gate) · up`, with the two side by side in the last dimension.
pub(crate) fn swiglu(gate_up: Tensor<3>) -> Tensor<3> {
    let width = gate_up.dims()[2] / 2;
    let gate = gate_up.clone().narrow(2, 0, width);
    let up = gate_up.narrow(2, width, width);
    activation::silu(gate) * up
}

/// The angles of rotary position embedding for a batch.
pub(crate) struct Rotary {
    cos: Tensor<4>, // [rows, tokens, 1, head_dim]
    sin: Tensor<4>,
}

impl Rotary {
    /// `positions` is `[rows, tokens]`; the frequencies are `theta^(−2i / head_dim)`.
    pub(crate) fn new(positions: &Tensor<2, Int>, head_dim: usize, theta: f64) -> Self {
        let [rows, tokens] = positions.dims();
        let device: Device = positions.device();
        // Angles are f32 products, as in transformers; the frequencies are rounded only once.
        let frequencies: Vec<f32> = (0..head_dim / 2)
            .map(|i| theta.powf(-2.0 * i as f64 / head_dim as f64) as f32)
            .collect();
        let frequencies = Tensor::<1>::from_floats(frequencies.as_slice(), &device);
        let angles = positions.clone().float().unsqueeze_dim::<3>(2) * frequencies.unsqueeze();
        let angles =
            Tensor::cat(vec![angles.clone(), angles], 2).reshape([rows, tokens, 1, head_dim]);
        Rotary { cos: angles.clone().cos(), sin: angles.sin() }
    }

    /// Rotates `[rows, tokens, heads, head_dim]` in halves: (x₁, x₂) → (x₁c − x₂s, x₂c + x₁s).
    pub(crate) fn apply(&self, x: Tensor<4>) -> Tensor<4> {
        let half = x.dims()[3] / 2;
        let first = x.clone().narrow(3, 0, half);
        let second = x.clone().narrow(3, half, half);
        x * self.cos.clone() + Tensor::cat(vec![second.neg(), first], 3) * self.sin.clone()
    }
}

/// `softmax(q·kᵀ / sqrt(head_dim) + bias) · v`, where several query heads share a key head.
///
/// `query` is `[rows, tokens, heads, head_dim]`, `key` and `value` `[rows, kv_heads, keys,
/// head_dim]`, `bias` `[rows or 1, 1, tokens, keys]`; the result is `[rows, tokens, heads ·
/// head_dim]`. The query heads of one key head are folded into the token axis instead of
/// repeating the keys.
pub(crate) fn attention(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    bias: Tensor<4>,
) -> Tensor<3> {
    let [rows, tokens, heads, head_dim] = query.dims();
    let [_, kv_heads, keys, _] = key.dims();
    let folded = [rows, kv_heads, heads / kv_heads * tokens, head_dim];
    let query = query.mul_scalar(1.0 / (head_dim as f64).sqrt()).swap_dims(1, 2).reshape(folded);
    let scores = query.matmul(key.swap_dims(2, 3)).reshape([rows, heads, tokens, keys]) + bias;
    let weights =
        activation::softmax(scores, 3).reshape([rows, kv_heads, heads / kv_heads * tokens, keys]);
    weights.matmul(value).reshape([rows, heads, tokens, head_dim]).swap_dims(1, 2).reshape([
        rows,
        tokens,
        heads * head_dim,
    ])
}
