//! Cases of the suite: known defects of burn.

use burn::tensor::{Device, Tensor};
use firebrick_models::{DecodeCache, Padding, PolicyModel, TokenBatch};
use firebrick_train::learner::Moments;

use super::{
    Array, Case,
    model::{failed, policy, tokens},
    tensors::{in_f32, values, wave},
    training::Run,
};
use crate::{Failure, Precision, Tolerance};

/// Returns the cases in which burn is known to have failed on some device.
///
/// A Vulkan device without `VK_KHR_workgroup_memory_explicit_layout` needs no separate case. On such a device, cubecl
/// itself lays out the memory that kernels share, and the first matmuls and reductions above are such kernels.
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

/// Multiplies a matrix by a column and continues with elementwise operations. Fusion chose a kernel for a row times a
/// matrix (<https://github.com/tracel-ai/burn/issues/5122>).
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

/// Measures aligned rows first. Rows of similar length that are not aligned, and aligned rows cut from longer rows,
/// then find the same entry in the cache of choices, and with it a kernel that refuses them. The panic was lost and
/// the result never written (<https://github.com/tracel-ai/burn/issues/5352>,
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

/// Compares single tokens after their prompt, over the cache, with one pass over all tokens. With fusion and autotune
/// together, the cached pass was wrong (<https://github.com/tracel-ai/burn/issues/5257>). The results are read back
/// only at the end, so that all of the work may be fused.
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

    // The same tokens in one pass.
    let whole = [prompt, vec![17, 4]].concat();
    let hidden = policy.hidden(&TokenBatch::new(&[&whole], Padding::Right, device));
    let [_, length, width] = hidden.dims();
    let expected = values(hidden.narrow(1, length - 3, 3).reshape([3, width]))?;
    Ok(vec![Array::with_expected("hidden", values(decoded)?, expected)])
}

/// Measures the memory that training takes and keeps (<https://github.com/tracel-ai/burn/issues/5212>,
/// <https://github.com/tracel-ai/burn/issues/4302>). Steps must hold no more than the steps before them did, and runs
/// must leave no more allocated than the runs before them. A device that does not report its memory is skipped.
fn burn_5212(device: &Device, _: Precision) -> Result<Vec<Array>, Failure> {
    if device.memory_pool_usage().is_none() {
        return Ok(Vec::new());
    }

    let held = || {
        device.sync().map_err(failed)?;
        Ok::<_, Failure>(device.memory_pool_usage().map_or(0, |usage| usage.bytes_in_use))
    };
    let steps = |run: &mut Run, count| (0..count).try_for_each(|_| run.step().map(drop));

    // Within one run, step after step.
    let mut run = Run::new(device, Moments::F32)?;
    steps(&mut run, 3)?;
    let mut during = vec![held()?];
    for _ in 0..SPANS {
        steps(&mut run, 6)?;
        during.push(held()?);
    }
    drop(run);

    // From one run to the next.
    let mut after = vec![held()?];
    for _ in 0..SPANS {
        let mut run = Run::new(device, Moments::F32)?;
        steps(&mut run, 2)?;
        drop(run);
        after.push(held()?);
    }

    let excess = |held: &[u64]| vec![growth(held).saturating_sub(ALLOWED) as f32];
    Ok(vec![
        Array::with_expected("bytes more after six steps", excess(&during), vec![0.0]),
        Array::with_expected("bytes more after a run", excess(&after), vec![0.0]),
    ])
}

/// How often memory is measured again.
const SPANS: usize = 5;

/// Bytes by which memory may grow each time. Small buffers vary with the device's own queue, some 10 kB in all. Six
/// steps that leak one batch of hidden states each are 60 kB more, and a run that leaks its weights and moments is 200
/// kB more.
const ALLOWED: u64 = 32 << 10;

/// Returns the median growth from one measurement to the next. A leak grows every time. Some pools grow by 2 MiB or
/// more at once, whatever the request is, and some buffers wait in the device's queue: such a jump occurs now and then,
/// and must not occur in most of the spans.
fn growth(held: &[u64]) -> u64 {
    let mut growths: Vec<u64> =
        held.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    growths.sort_unstable();
    growths.get(growths.len() / 2).copied().unwrap_or(0)
}

/// Multiplies f16 matrices of shapes that do not fill a tile. With autotune, some kernels for them failed
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

#[cfg(test)]
mod tests {
    use super::*;

    fn leaks(held: &[u64]) -> bool {
        growth(held) > ALLOWED
    }

    #[test]
    fn memory_that_grows_with_the_steps_leaks_and_a_pool_that_grows_does_not() {
        const KIB: u64 = 1 << 10;
        let measured = |of: fn(u64) -> u64| (0..=SPANS as u64).map(of).collect::<Vec<u64>>();
        assert!(leaks(&measured(|span| 900 * KIB + 60 * KIB * span)));
        // Each leaked buffer takes a separate page.
        assert!(leaks(&measured(|span| 6 * 2048 * KIB * span)));

        assert!(!leaks(&measured(|_| 900 * KIB)));
        assert!(!leaks(&measured(|span| 900 * KIB + span % 2 * 10 * KIB)));
        assert!(!leaks(&measured(|span| if span < 2 { 2048 * KIB } else { 4096 * KIB })));

        // Two pools, and memory that is returned.
        assert!(!leaks(&measured(|span| [1, 3, 5, 3, 3, 3][span as usize] * 1024 * KIB)));
    }
}
