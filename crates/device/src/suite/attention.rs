//! Cases of the suite: attention over the tokens of a batch, forward and backward.

use burn::tensor::{Device, Tensor};
use firebrick_kernels::{
    AttentionOptions, Heads, PackedMask, Segment, attention, attention_backward,
};

use super::{
    Array, Case,
    noise::Noise,
    operations::compute,
    tensors::{values, wave},
};
use crate::{Failure, Precision, Tolerance};

/// Returns cases in odd shapes, and cases with the heads of real models.
pub(super) fn cases() -> Vec<Case> {
    [
        ("operations/attention", Tolerance::FORWARD, odd as super::Compute),
        ("operations/attention_backward", Tolerance::BACKWARD, odd_backward),
        ("attention/forward", Tolerance::ROUNDED, real),
        ("attention/backward", Tolerance::ROUNDED, real_backward),
    ]
    .into_iter()
    .flat_map(|(name, tolerance, compute)| Case::in_every_format(name, tolerance, compute))
    .collect()
}

fn odd(device: &Device, precision: Precision) -> Result<Vec<Array>, Failure> {
    forward(oddities(device, precision))
}

fn odd_backward(device: &Device, precision: Precision) -> Result<Vec<Array>, Failure> {
    backward(oddities(device, precision), |shape| wave(shape, 0.11, device))
}

/// Computes attention with heads of width 64 and 128, 4 and 8 of which share a head of keys.
fn real(device: &Device, precision: Precision) -> Result<Vec<Array>, Failure> {
    forward(realities(device, precision))
}

fn real_backward(device: &Device, precision: Precision) -> Result<Vec<Array>, Failure> {
    backward(realities(device, precision), |shape| Noise::new(4).tensor(shape, device))
}

fn forward(all: Vec<Inputs>) -> Result<Vec<Array>, Failure> {
    let mut arrays = Vec::new();
    for Inputs { name, qkv: [query, key, value], mask, options } in all {
        let out = attention(&query, &key, &value, &mask, options);
        arrays.push(Array::new(format!("output, {name}"), values(out.output)?));

        // At a token of no text, the logarithm is undefined.
        let lses = values(out.lse)?.into_iter();
        let lses = lses.map(|x| if x > -1e3 { x } else { 0.0 }).collect();
        arrays.push(Array::new(format!("logarithms, {name}"), lses));
    }
    Ok(arrays)
}

fn backward(
    all: Vec<Inputs>,
    d_output: impl Fn([usize; 3]) -> Tensor<3>,
) -> Result<Vec<Array>, Failure> {
    let mut arrays = Vec::new();
    for Inputs { name, qkv, mask, options } in all {
        let qkv = qkv.each_ref();
        let out = attention(qkv[0], qkv[1], qkv[2], &mask, options);
        let d_output = d_output(qkv[0].dims());

        let gradients = attention_backward(qkv, &out, &d_output, &mask, options);
        for (d, of) in gradients.into_iter().zip(["query", "key", "value"]) {
            arrays.push(Array::new(format!("∂{of}, {name}"), values(d)?));
        }
    }
    Ok(arrays)
}

/// What an attention is computed from.
struct Inputs {
    name: String,
    qkv: [Tensor<3>; 3],
    mask: PackedMask,
    options: AttentionOptions,
}

impl Inputs {
    /// Makes inputs of the numbers that `numbers` returns for a shape: queries first, then keys and values.
    fn new(
        heads: Heads,
        segments: &[Segment],
        window: Option<usize>,
        (device, precision): (&Device, Precision),
        numbers: impl Fn(usize, [usize; 3]) -> Tensor<3>,
    ) -> Self {
        // One token after the last text belongs to none.
        let tokens = segments.iter().map(|it| it.range.end).max().unwrap_or(0) + 1;
        let counts = [heads.query, heads.key, heads.key];
        let shapes = counts.map(|count| [tokens, count, heads.width]);

        let qkv = [0, 1, 2].map(|which| {
            let x = numbers(which, shapes[which]).mul_scalar(2.0);
            x.cast(compute(precision).dtype())
        });

        let mask = PackedMask::new(segments, tokens, device);
        let name = format!("{tokens} tokens, {heads:?}, window {window:?}");
        Inputs { name, qkv, mask, options: AttentionOptions { window, scores: 1 << 14 } }
    }
}

/// Makes single texts and texts that share a beginning, with padding and with windows. In one batch, more queries
/// attend to the shared beginning than one cube processes. Heads of width 32, 48 and 112 consist of entire tiles of
/// matrix units.
fn oddities(device: &Device, precision: Precision) -> Vec<Inputs> {
    // Neither 20 nor 70 is a multiple of a matrix unit's side.
    let few = Heads { query: 4, key: 2, width: 20 };
    let wide = Heads { query: 3, key: 1, width: 70 };
    let even = |width| Heads { query: 4, key: 2, width };
    let shared = || texts(0, &[70, 5, 3, 66, 90, 2], &[(1, 0), (2, 0), (3, 0), (5, 4)]);

    let batches = [
        (few, texts(0, &[1], &[]), None),
        (few, texts(2, &[17, 30], &[(1, 0)]), None),
        (few, texts(3, &[3, 64, 65, 1], &[]), Some(40)),
        (wide, shared(), None),
        (wide, shared(), Some(9)),
        (few, texts(1, &[66, 600, 500, 7], &[(1, 0), (2, 0), (3, 0)]), None),
        (even(32), texts(0, &[9, 16], &[(1, 0)]), None),
        (even(48), texts(2, &[17, 30], &[(1, 0)]), Some(20)),
        (even(112), shared(), Some(70)),
    ];

    let numbers = |which: usize, shape| wave(shape, [0.37, 0.73, 0.53][which], device);
    let inputs = |(heads, segments, window): (Heads, Vec<Segment>, _)| {
        Inputs::new(heads, &segments, window, (device, precision), numbers)
    };
    batches.map(inputs).into()
}

/// Makes texts of 300 tokens, alone, as two parts of which others share the first, and with windows that begin in the
/// middle of a tile.
fn realities(device: &Device, precision: Precision) -> Vec<Inputs> {
    let narrow = Heads { query: 8, key: 2, width: 64 };
    let wide = Heads { query: 8, key: 1, width: 128 };

    let batches = [
        (narrow, texts(0, &[300], &[]), None),
        (narrow, texts(3, &[129, 171, 300, 64, 1], &[(1, 0), (3, 0)]), Some(100)),
        (wide, texts(0, &[130, 170, 300, 5], &[(1, 0), (3, 0)]), None),
        (wide, texts(1, &[300, 17], &[]), Some(65)),
    ];

    let numbers = |which: usize, shape| Noise::new(1 + which as u64).tensor(shape, device);
    let inputs = |(heads, segments, window): (Heads, Vec<Segment>, _)| {
        Inputs::new(heads, &segments, window, (device, precision), numbers)
    };
    batches.map(inputs).into()
}

/// Makes texts of some lengths after `gap` tokens of no text. `prefixes` says which text continues which.
fn texts(gap: usize, lengths: &[usize], prefixes: &[(usize, usize)]) -> Vec<Segment> {
    let mut start = gap;
    let mut segments: Vec<Segment> = Vec::new();
    for length in lengths {
        segments.push(Segment { range: start..start + length, prefix: None });
        start += length;
    }

    for &(text, prefix) in prefixes {
        segments[text].prefix = Some(prefix);
    }
    segments
}
