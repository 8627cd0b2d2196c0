//! The operations worth fusing, as plain tensor code, with the gradients that a layer's backward pass
//! needs, written by hand.
//!
//! Every layer calls these, so a faster body for one device has one place to go, and this code
//! stays the reference that it is compared with.

mod attention;

use burn::tensor::{Device, FloatDType, Int, Tensor, activation};

pub use self::attention::{Attended, Look, attention, attention_backward};

use crate::{Activation, Rope};

/// Added to the attention scores of keys that a query must not see.
///
/// Finite on purpose: a query of a padding position sees no key at all, and −∞ everywhere would
/// make its softmax NaN, which the backward pass would spread to the whole batch.
pub(crate) const MASKED: f32 = -1e30;

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

/// The parts one behind the other; a single one is not copied.
pub(crate) fn joined<const D: usize>(mut parts: Vec<Tensor<D>>, dim: usize) -> Tensor<D> {
    if parts.len() == 1 { parts.remove(0) } else { Tensor::cat(parts, dim) }
}

/// `x · y`, multiplied in the format of `compute` and given in f32.
pub(crate) fn product(x: Tensor<2>, y: Tensor<2>, compute: Compute) -> Tensor<2> {
    let format = compute.dtype();
    x.cast(format).matmul(y.cast(format)).cast(FloatDType::F32)
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
        let scale = self.scale(&x);
        x * scale * self.factor(weight).unsqueeze()
    }

    /// The gradients of `x` and of the weight, from that of the result. With r = 1 / sqrt(mean(x²) + ε) and
    /// g = d_y · (weight + offset), ∂x = r · (g − x · r² · mean(g · x)).
    pub(crate) fn back<const D: usize>(
        self,
        x: Tensor<D>,
        weight: Tensor<1>,
        d_y: Tensor<D>,
    ) -> (Tensor<D>, Tensor<1>) {
        let scale = self.scale(&x);
        let scaled = x * scale.clone();
        let width = scaled.dims()[D - 1];
        let rows = scaled.shape().num_elements() / width;
        let d_weight = (d_y.clone() * scaled.clone()).reshape([rows, width]).sum_dim(0);
        let d_scaled = d_y * self.factor(weight).unsqueeze();
        let mean = (d_scaled.clone() * scaled.clone()).mean_dim(D - 1);
        ((d_scaled - scaled * mean) * scale, d_weight.reshape([width]))
    }

    /// 1 / sqrt(mean(x²) + ε), `[…, 1]`.
    fn scale<const D: usize>(self, x: &Tensor<D>) -> Tensor<D> {
        x.clone().square().mean_dim(D - 1).add_scalar(self.epsilon).sqrt().recip()
    }

    fn factor(self, weight: Tensor<1>) -> Tensor<1> {
        if self.offset == 0.0 { weight } else { weight.add_scalar(self.offset) }
    }
}

/// `activation(gate) · up`, with the two side by side in the last dimension.
pub(crate) fn gated(gate_up: Tensor<2>, activation: Activation) -> Tensor<2> {
    let (gate, up) = halves(gate_up);
    match activation {
        Activation::Silu => activation::silu(gate) * up,
        Activation::GeluTanh => activation::gelu_approximate(gate) * up,
    }
}

/// [`gated`] once more, and the gradient of what it was given, from that of what it gave, `d`.
pub(crate) fn gated_back(
    gate_up: Tensor<2>,
    activation: Activation,
    d: impl FnOnce(Tensor<2>) -> Tensor<2>,
) -> Tensor<2> {
    let (gate, up) = halves(gate_up);
    let (activated, slope) = match activation {
        // σ and x · σ, of which the derivative is σ · (1 + x · (1 − σ)).
        Activation::Silu => {
            let share = activation::sigmoid(gate.clone());
            let activated = gate * share.clone();
            (activated.clone(), share.clone() + activated.clone() - activated * share)
        }
        // ½x · (1 + t) with t = tanh(c · (x + ax³)); t' = (1 − t²) · c · (1 + 3ax²).
        Activation::GeluTanh => {
            let (c, a) = ((2.0 / std::f64::consts::PI).sqrt(), 0.044_715);
            let square = gate.clone().square();
            let bent =
                (square.clone().mul_scalar(a).add_scalar(1.0) * gate.clone()).mul_scalar(c).tanh();
            let half = bent.clone().add_scalar(1.0).mul_scalar(0.5);
            let inner = square.mul_scalar(3.0 * a).add_scalar(1.0).mul_scalar(0.5 * c);
            let rest = bent.square().neg().add_scalar(1.0) * inner * gate.clone();
            (gate * half.clone(), half + rest)
        }
    };
    let d = d(activated.clone() * up.clone());
    Tensor::cat(vec![d.clone() * up * slope, d * activated], 1)
}

fn halves(x: Tensor<2>) -> (Tensor<2>, Tensor<2>) {
    let width = x.dims()[1] / 2;
    (x.clone().narrow(1, 0, width), x.narrow(1, width, width))
}

/// The angles of rotary position embedding for a batch.
#[derive(Clone)]
pub(crate) struct Rotary {
    cos: Tensor<3>, // [places, 1, head_dim]
    sin: Tensor<3>,
}

impl Rotary {
    /// `positions` is `[rows, tokens]`.
    pub(crate) fn new(positions: &Tensor<2, Int>, head_dim: usize, rope: &Rope) -> Self {
        let [rows, tokens] = positions.dims();
        let places = rows * tokens;
        let device: Device = positions.device();
        // Angles are f32 products, as in transformers; the frequencies are rounded only once.
        let frequencies: Vec<f32> = (0..head_dim / 2)
            .map(|i| rope.frequency(-2.0 * i as f64 / head_dim as f64) as f32)
            .collect();
        let frequencies = Tensor::<1>::from_floats(frequencies.as_slice(), &device);
        let positions = positions.clone().float().reshape([places, 1]);
        let angles = positions * frequencies.unsqueeze();
        let angles = Tensor::cat(vec![angles.clone(), angles], 1).reshape([places, 1, head_dim]);
        Rotary { cos: angles.clone().cos(), sin: angles.sin() }
    }

    /// The angles of some places.
    pub(crate) fn of(&self, places: std::ops::Range<usize>) -> Rotary {
        let part = |x: &Tensor<3>| x.clone().slice_dim(0, places.clone());
        Rotary { cos: part(&self.cos), sin: part(&self.sin) }
    }

    /// Rotates `[places, heads, head_dim]` in halves: (x₁, x₂) → (x₁c − x₂s, x₂c + x₁s).
    pub(crate) fn apply(&self, x: Tensor<3>) -> Tensor<3> {
        self.rotate(x, |first, second| vec![second.neg(), first])
    }

    /// The gradient of what was rotated, from that of the result: it is turned back.
    pub(crate) fn back(&self, d_y: Tensor<3>) -> Tensor<3> {
        self.rotate(d_y, |first, second| vec![second, first.neg()])
    }

    fn rotate(
        &self,
        x: Tensor<3>,
        turned: impl FnOnce(Tensor<3>, Tensor<3>) -> Vec<Tensor<3>>,
    ) -> Tensor<3> {
        let half = x.dims()[2] / 2;
        let first = x.clone().narrow(2, 0, half);
        let second = x.clone().narrow(2, half, half);
        x * self.cos.clone() + Tensor::cat(turned(first, second), 2) * self.sin.clone()
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

/// `softmax(q·kᵀ / sqrt(head_dim) + bias) · v` for the newest token of each row over the pages of a cache,
/// where several query heads share a key head.
///
/// `query` is `[rows, heads, head_dim]`; of a page keys and values are `[rows, kv_heads, keys, head_dim]` and the
/// bias `[rows, 1, 1, keys]`; the result is `[rows, heads · head_dim]`. Products are f32, as in
/// [`attention()`], whatever the cache was rounded to.
pub(crate) fn attention_over_pages<'a>(
    query: Tensor<3>,
    pages: impl Iterator<Item = (&'a Tensor<4>, &'a Tensor<4>, Tensor<4>)>,
) -> Tensor<2> {
    let [rows, heads, head_dim] = query.dims();
    let wide = FloatDType::F32;
    let query = query.cast(wide).mul_scalar(1.0 / (head_dim as f64).sqrt());
    let scored: Vec<(Tensor<4>, &Tensor<4>)> = pages
        .map(|(key, value, bias)| {
            let kv_heads = key.dims()[1];
            let query = query.clone().reshape([rows, kv_heads, heads / kv_heads, head_dim]);
            (query.matmul(key.clone().cast(wide).swap_dims(2, 3)) + bias, value)
        })
        .collect();
    let output = match scored.as_slice() {
        [(scores, value)] => {
            activation::softmax(scores.clone(), 3).matmul((*value).clone().cast(wide))
        }
        pages => {
            let scores = pages.iter().map(|(scores, _)| scores.clone()).collect();
            let weights = activation::softmax(Tensor::cat(scores, 3), 3);
            let mut first = 0;
            let parts = pages.iter().map(|(scores, value)| {
                let keys = scores.dims()[3];
                let part = weights.clone().narrow(3, first, keys);
                first += keys;
                part.matmul((*value).clone().cast(wide))
            });
            parts.reduce(|sum, part| sum + part).expect("a cache has pages")
        }
    };
    output.reshape([rows, heads * head_dim])
}
