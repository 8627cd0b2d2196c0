//! Speeds that a device reaches in plain matmuls and in a plain copy.

use std::time::{Duration, Instant};

use burn::tensor::{Device, Distribution, Tensor};
use firebrick_kernels::{Compute, product, run_on_compute_thread};
use rayon::prelude::*;
use serde::Serialize;

/// Speeds that a device reaches: the measure for everything else.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// Floating-point operations per second in a product of two matrices of 1024 × 1024, f32.
    pub flops: f64,
    /// Bytes per second that a copy reads and writes. The copy is of 256 MiB, or of 128 MiB on GPUs, because some do
    /// not allow larger tensors.
    pub bandwidth: f64,
    /// Seconds that one launch takes in a row of small ones; `None` for the CPU, which has no launches.
    pub launch: Option<f64>,
}

impl Limits {
    /// Measures the limits, each as the best of half a second.
    pub fn measure(device: &Device) -> Self {
        Limits::measure_within(device, Duration::from_millis(500))
    }

    /// Measures the limits, each as the best of this time.
    pub fn measure_within(device: &Device, time: Duration) -> Self {
        let device = device.clone().inner();
        let side = 1024;
        let x = Tensor::<2>::random([side, side], Distribution::Default, &device);
        let multiply = || {
            let y = run_on_compute_thread(&device, || product(x.clone(), x.clone(), Compute::F32));
            let _ = device.sync();
            drop(y);
        };

        let count = if device == Device::flex() { 1 << 26 } else { 1 << 25 };
        let flops = 2.0 * (side as f64).powi(3) / best_within(time, multiply);
        let seconds = if device == Device::flex() {
            // On the CPU a tensor is copied by one thread, into newly mapped memory, so this copy is made by hand.
            let x = vec![1f32; count];
            let mut y = vec![0f32; count];
            best_within(time, || {
                let pieces = y.par_chunks_mut(1 << 16).zip(x.par_chunks(1 << 16));
                pieces.for_each(|(y, x)| y.copy_from_slice(x));
            })
        } else {
            let x = Tensor::<1>::zeros([count], &device);
            best_within(time, || {
                let y = x.clone().add_scalar(1.0);
                let _ = device.sync();
                drop(y);
            })
        };

        let launch = (device != Device::flex()).then(|| {
            const LAUNCHES: usize = 500;
            let x = Tensor::<1>::zeros([64], &device);
            let chain = || {
                let y = (0..LAUNCHES).fold(x.clone(), |x, _| x.add_scalar(1.0));
                let _ = device.sync();
                drop(y);
            };
            best_within(time, chain) / LAUNCHES as f64
        });

        let bandwidth = 8.0 * count as f64 / seconds;
        Limits { flops, bandwidth, launch }
    }
}

/// Returns the seconds of the fastest run. There are as many as fit into `time`, after one warm-up run.
pub(super) fn best_within(time: Duration, mut work: impl FnMut()) -> f64 {
    work();
    let all = Instant::now();
    let mut best = f64::INFINITY;
    while all.elapsed() < time {
        let began = Instant::now();
        work();
        best = best.min(began.elapsed().as_secs_f64());
    }
    best
}
