use std::time::{Duration, Instant};

use burn::tensor::{Device, Distribution, Tensor};
use firebrick_kernels::{Compute, product, together};
use rayon::prelude::*;
use serde::Serialize;

/// What a device reaches: the measure for everything else.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// Floating-point operations a second in a product of two matrices of 1024 × 1024, f32.
    pub flops: f64,
    /// Bytes a second that a copy of 256 MiB reads and writes.
    pub bandwidth: f64,
}

impl Limits {
    /// Measures them, the best of half a second each.
    pub fn of(device: &Device) -> Self {
        let device = device.clone().inner();
        let side = 1024;
        let x = Tensor::<2>::random([side, side], Distribution::Default, &device);
        let multiply = || {
            let y = together(&device, || product(x.clone(), x.clone(), Compute::F32));
            let _ = device.sync();
            drop(y);
        };
        let numbers = 1 << 26;
        let flops = 2.0 * (side as f64).powi(3) / best(multiply);
        let seconds = if device == Device::flex() {
            // A tensor's copy is one thread's work there, in memory that is mapped anew.
            let (x, mut y) = (vec![1f32; numbers], vec![0f32; numbers]);
            best(|| {
                let pieces = y.par_chunks_mut(1 << 16).zip(x.par_chunks(1 << 16));
                pieces.for_each(|(y, x)| y.copy_from_slice(x));
            })
        } else {
            let x = Tensor::<1>::zeros([numbers], &device);
            best(|| {
                let y = x.clone().add_scalar(1.0);
                let _ = device.sync();
                drop(y);
            })
        };
        Limits { flops, bandwidth: 8.0 * numbers as f64 / seconds }
    }
}

/// The seconds of the fastest of as many runs as fit into half a second, after one that does not count.
fn best(mut work: impl FnMut()) -> f64 {
    work();
    let (all, mut best) = (Instant::now(), f64::INFINITY);
    while all.elapsed() < Duration::from_millis(500) {
        let began = Instant::now();
        work();
        best = best.min(began.elapsed().as_secs_f64());
    }
    best
}
