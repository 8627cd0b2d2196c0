//! The operations worth fusing, as plain tensor code.
//!
//! Every layer calls these, so a faster body for one device has one place to go, and this code
//! stays the reference that it is compared with.

use burn::tensor::{Device, FloatDType, Int, Tensor, activation};

use crate::{Activation, Rope};

/// Added to the attention scores of keys that a query must not see.
///
/// Finite on purpose: a query of a padding position sees no key at all, and −∞ everywhere would
/// make its softmax NaN, which the backward pass would spread to the whole batch.
pub(crate) const MASKED: f32 = -1e30;

/// What is added to the attention scores of a batch, in layers that see everything before a token and
/// in those that look back through a window.
///
/// A [`TokenBatch`](crate::TokenBatch) gives one, and so does a [`KvCache`](crate::KvCache).
#[derive(Clone, Debug)]
pub struct Mask {
    /// `[rows or 1, 1, tokens, keys]`.
    pub(crate) full: Tensor<4>,
    /// The same; absent where the window is wider than the batch.
    pub(crate) windowed: Option<Tensor<4>>,
}

impl Mask {
    /// For a layer with this window, `[rows or 1, 1, tokens, keys]`: 0 where a token sees a key, and
    /// a number of which the softmax makes 0 elsewhere.
    pub fn of(&self, window: Option<usize>) -> Tensor<4> {
        window.and(self.windowed.as_ref()).unwrap_or(&self.full).clone()
    }
}

/// The format that matrices are multiplied in, and that a product is rounded to. Weights and whatever lies
/// between two products are f32 anyhow: the residual stream, norms, softmax, log-probabilities, sums of
/// gradients, and moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compute {
    /// 32 bits.
    #[default]
    F32,
    /// 16 bits with the range of 32: half the memory of keys and values, and what tensor cores take.
    Bf16,
}

impl Compute {
    /// As burn calls it.
    pub fn dtype(self) -> FloatDType {
        match self {
            Compute::F32 => FloatDType::F32,
            Compute::Bf16 => FloatDType::BF16,
        }
    }
}

/// `x · weight`, multiplied in the format of `compute`; `[rows, tokens, inputs]` by `[inputs, outputs]`.
///
/// All rows are one matrix: with the weight repeated for every row instead, its gradient would be made
/// once per row before they are summed.
pub(crate) fn product(x: Tensor<3>, weight: Tensor<2>, compute: Compute) -> Tensor<3> {
    let [rows, tokens, inputs] = x.dims();
    let outputs = weight.dims()[1];
    let x = x.reshape([rows * tokens, inputs]);
    let y = match compute {
        Compute::F32 => x.matmul(weight),
        Compute::Bf16 => {
            let dtype = compute.dtype();
            x.cast(dtype).matmul(weight.cast(dtype)).cast(FloatDType::F32)
        }
    };
    y.reshape([rows, tokens, outputs])
}

/// How an RMSNorm is computed, apart from its weight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Norm {
    /// Added to the mean square.
    pub(crate) epsilon: f64,
    /// Added to the weight.
    pub(crate) offset: f64,
}

impl Norm {
    /// `x / sqrt(mean(x²) + epsilon) · (weight + offset)` over the last dimension.
    pub(crate) fn apply<const D: usize>(self, x: Tensor<D>, weight: Tensor<1>) -> Tensor<D> {
        let scale = x.clone().square().mean_dim(D - 1).add_scalar(self.epsilon).sqrt().recip();
        let weight = if self.offset == 0.0 { weight } else { weight.add_scalar(self.offset) };
        x * scale * weight.unsqueeze()
    }
}

/// `activation(gate) · up`, with the two side by side in the last dimension.
pub(crate) fn gated(gate_up: Tensor<3>, activation: Activation) -> Tensor<3> {
    let width = gate_up.dims()[2] / 2;
    let gate = gate_up.clone().narrow(2, 0, width);
    let up = gate_up.narrow(2, width, width);
    match activation {
        Activation::Silu => activation::silu(gate) * up,
        Activation::GeluTanh => activation::gelu_approximate(gate) * up,
    }
}

/// The angles of rotary position embedding for a batch.
pub(crate) struct Rotary {
    cos: Tensor<4>, // [rows, tokens, 1, head_dim]
    sin: Tensor<4>,
}

impl Rotary {
    /// `positions` is `[rows, tokens]`.
    pub(crate) fn new(positions: &Tensor<2, Int>, head_dim: usize, rope: &Rope) -> Self {
        let [rows, tokens] = positions.dims();
        let device: Device = positions.device();
        // Angles are f32 products, as in transformers; the frequencies are rounded only once.
        let frequencies: Vec<f32> = (0..head_dim / 2)
            .map(|i| rope.frequency(-2.0 * i as f64 / head_dim as f64) as f32)
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

impl Rope {
    /// The frequency `theta^exponent`, scaled.
    fn frequency(&self, exponent: f64) -> f64 {
        let frequency = self.theta.powf(exponent);
        let Some(scaling) = &self.scaling else { return frequency };
        let context = scaling.original_max_position_embeddings as f64;
        let turns = context * frequency / std::f64::consts::TAU;
        let (low, high) = (scaling.low_freq_factor, scaling.high_freq_factor);
        let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
        frequency * (kept + (1.0 - kept) / scaling.factor)
    }
}

/// `softmax(q·kᵀ / sqrt(head_dim) + bias) · v`, where several query heads share a key head.
///
/// `query` is `[rows, tokens, heads, head_dim]`, `key` and `value` `[rows, kv_heads, keys,
/// head_dim]`, `bias` `[rows or 1, 1, tokens, keys]`; the result is `[rows, tokens, heads ·
/// head_dim]`. Products are made in the format of the keys, the softmax in f32. The query heads of
/// one key head are folded into the token axis instead of repeating the keys.
pub(crate) fn attention(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    bias: Tensor<4>,
) -> Tensor<3> {
    let [rows, tokens, heads, head_dim] = query.dims();
    let [_, kv_heads, keys, _] = key.dims();
    let folded = [rows, kv_heads, heads / kv_heads * tokens, head_dim];
    let format = key.dtype();
    let query = query.mul_scalar(1.0 / (head_dim as f64).sqrt()).swap_dims(1, 2).reshape(folded);
    let scores = query.cast(format).matmul(key.swap_dims(2, 3)).cast(FloatDType::F32);
    let scores = scores.reshape([rows, heads, tokens, keys]) + bias;
    let weights =
        activation::softmax(scores, 3).reshape([rows, kv_heads, heads / kv_heads * tokens, keys]);
    weights
        .cast(format)
        .matmul(value)
        .cast(FloatDType::F32)
        .reshape([rows, heads, tokens, head_dim])
        .swap_dims(1, 2)
        .reshape([rows, tokens, heads * head_dim])
}
