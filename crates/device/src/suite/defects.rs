//! Cases of the suite: known defects of burn.

use burn::tensor::{Device, Tensor};
use firebrick_models::{DecodeCache, Padding, PolicyModel, TokenBatch};

use super::{
    Array, Case,
    model::{failed, policy, tokens},
    tensors::{in_f32, values, wave},
    training::Run,
};
use crate::{Failure, Precision, Tolerance};

/// Returns the cases in which burn is known to have failed on some device.
///
/// A Vulkan device without `VK_KHR_workgroup_memory_explicit_layout` needs no case of its own. On such a device
/// cubecl itself lays out the memory that kernels share, and the first matmuls and reductions above are such
/// kernels.
pub(super) fn cases() -> Vec<Case> {
    let f16 = Case::new("defects/burn_4949", Precision::F16, Tolerance::PRODUCT, burn_4949);
    vec![
        in_f32("defects/burn_5122", Tolerance::PRODUCT, burn_5122),
        in_f32("defects/burn_5352", Tolerance::PRODUCT, burn_5352),
        in_f32("defects/burn_5257", Tolerance::FORWARD, burn_5257),
        in_f32("defects/burn_5212", Tolerance::EXACT, burn_5212),
        f16,
    ]
}

/// Multiplies a matrix by a column and goes on with elementwise operations. Fusion chose a kernel for a row times
/// a matrix (<https://github.com/tracel-ai/burn/issues/5122>).
fn burn_5122(device: &Device, _: Precision) -> Result<Vec<Array>, Failure> {
    let mut arrays = Vec::new();
    for [rows, width] in [[4, 3], [5, 3], [64, 64]] {
        let product = wave([rows, width], 0.37, device).matmul(wave([width, 1], 0.73, device));
        arrays.push(Array::new(
            format!("twice {rows}×{width}×1"),
            values(product.clone() + product)?,
        ));
        let inner = wave([rows, width], 0.53, device).tanh();
        let output = inner.matmul(wave([width, 1], 0.73, device)).add_scalar(0.25).tanh();
        arrays.push(Array::new(format!("a head of {rows}×{width}×1"), values(output)?));
    }
    Ok(arrays)
}

/// Measures aligned rows first. Rows of like length that are not aligned, and aligned rows cut from longer rows,
/// then find the same entry in the cache of choices, and with it a kernel that refuses them. The panic was lost
/// and the result never written (<https://github.com/tracel-ai/burn/issues/5352>,
/// <https://github.com/tracel-ai/cubek/pull/573>).
fn burn_5352(device: &Device, _: Precision) -> Result<Vec<Array>, Failure> {
    let mut arrays = Vec::new();
    for round in 0..2 {
        for [stride, width] in [[128, 128], [126, 126], [130, 128], [8, 8], [7, 7]] {
            let left = wave([256, stride], 0.37, device).narrow(1, 0, width);
            let right = wave([width, 256], 0.73, device);
            let product = left.matmul(right).mul_scalar(0.5).add_scalar(1.0);
            arrays.push(Array::new(format!("{width} of {stride}, {round}"), values(product)?));
        }
    }
    Ok(arrays)
}

/// Compares single tokens after their prompt, over the cache, with one pass over all tokens. With fusion and
/// autotune together the cached pass was wrong (<https://github.com/tracel-ai/burn/issues/5257>). The results are
/// read back only at the end, so that all of the work may be fused.
fn burn_5257(device: &Device, _: Precision) -> Result<Vec<Array>, Failure> {
    let policy = policy(device)?;
    let prompt = tokens(0, 6);
    let batch = TokenBatch::new(&[&prompt], Padding::Left, device);
    let (last, cache) = policy.prefill(&batch);
    let mut cache = cache.arrange(&[0], None, 2);
    let next = |token: i32| Tensor::from_ints([token], device);
    let first = policy.decode(next(17), &mut cache);
    let second = policy.decode(next(4), &mut cache);
    let decoded = Tensor::cat(vec![last, first, second], 0);

    let whole = [prompt, vec![17, 4]].concat();
    let hidden = policy.hidden(&TokenBatch::new(&[&whole], Padding::Right, device));
    let [_, length, width] = hidden.dims();
    let expected = values(hidden.narrow(1, length - 3, 3).reshape([3, width]))?;
    Ok(vec![Array::with_expected("hidden", values(decoded)?, expected)])
}

/// Measures the memory that training takes and keeps. Twenty steps must hold no more than three steps did, neither
/// at their end nor after everything was dropped (<https://github.com/tracel-ai/burn/issues/5212>,
/// <https://github.com/tracel-ai/burn/issues/4302>). A device that does not tell its memory is skipped.
fn burn_5212(device: &Device, _: Precision) -> Result<Vec<Array>, Failure> {
    // Small buffers come and go with the device's own queue, some 10 kB in all. Seventeen steps that leak one
    // batch of hidden states each are 170 kB more.
    const ALLOWED: u64 = 64 << 10;
    if device.memory_pool_usage().is_none() {
        return Ok(Vec::new());
    }
    let held = || {
        device.sync().map_err(failed)?;
        Ok::<_, Failure>(device.memory_pool_usage().map_or(0, |usage| usage.bytes_in_use))
    };
    let steps = |run: &mut Run, count| (0..count).try_for_each(|_| run.step().map(drop));
    let mut run = Run::new(device, firebrick_train::Moments::F32)?;
    steps(&mut run, 3)?;
    let during = held()?;
    drop(run);
    let after = held()?;
    let mut run = Run::new(device, firebrick_train::Moments::F32)?;
    steps(&mut run, 20)?;
    let longer_during = held()?;
    drop(run);
    let longer_after = held()?;
    let grown = |before: u64, after: u64| vec![after.saturating_sub(before + ALLOWED) as f32];
    Ok(vec![
        Array::with_expected("excess bytes during a run", grown(during, longer_during), vec![0.0]),
        Array::with_expected("excess bytes after a run", grown(after, longer_after), vec![0.0]),
    ])
}

/// Multiplies f16 matrices of shapes that fill no tile. With autotune some kernels for them failed
/// (<https://github.com/tracel-ai/burn/issues/4949>).
fn burn_4949(device: &Device, precision: Precision) -> Result<Vec<Array>, Failure> {
    [[100, 66, 130], [3, 130, 5]]
        .into_iter()
        .map(|[m, k, n]| {
            let left = wave([m, k], 0.37, device).cast(precision.dtype());
            let right = wave([k, n], 0.73, device).cast(precision.dtype());
            Ok(Array::new(format!("{m}×{k}×{n}"), values(left.matmul(right))?))
        })
        .collect()
}
