//! Speeds that a device reaches in plain matmuls and in a plain copy.

use std::time::{Duration, Instant};

use burn::tensor::{Device, Distribution, Tensor};
use firebrick_device::guard;
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
    /// Matmuls of a model's shapes, if they were requested.
    pub products: Vec<Product>,
}

/// Speed at which a device multiplies `[rows, inner]` by `[inner, columns]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Product {
    /// Tokens that go through the matrix.
    pub rows: usize,
    /// Width of the input.
    pub inner: usize,
    /// Width of the output.
    pub columns: usize,
    /// Number format of both factors; the result is f32.
    pub dtype: String,
    /// Floating-point operations per second; `None` if one matmul would take half a second or more at
    /// [`Limits::flops`], or failed.
    pub flops: Option<f64>,
    /// The device's error, if the matmul failed.
    pub error: Option<String>,
}

/// Shapes of Qwen2.5-0.5B, in a decode step and in an update, the head's too; and one shape that fills any
/// card.
const SHAPES: [[usize; 3]; 7] = [
    [64, 896, 1152],
    [64, 896, 9728],
    [64, 896, 151_936],
    [8192, 896, 1152],
    [8192, 896, 9728],
    [2048, 896, 151_936],
    [4096, 4096, 4096],
];

impl Limits {
    /// Measures the limits, each as the best of half a second.
    pub fn measure(device: &Device) -> Self {
        let device = device.clone().inner();
        let side = 1024;
        let x = Tensor::<2>::random([side, side], Distribution::Default, &device);
        let multiply = || {
            let y = run_on_compute_thread(&device, || product(x.clone(), x.clone(), Compute::F32));
            let _ = device.sync();
            drop(y);
        };

        let count = if device == Device::flex() { 1 << 26 } else { 1 << 25 };
        let flops = 2.0 * (side as f64).powi(3) / best(multiply);
        let seconds = if device == Device::flex() {
            // On the CPU a tensor is copied by one thread, into newly mapped memory, so this copy is made by hand.
            let x = vec![1f32; count];
            let mut y = vec![0f32; count];
            best(|| {
                let pieces = y.par_chunks_mut(1 << 16).zip(x.par_chunks(1 << 16));
                pieces.for_each(|(y, x)| y.copy_from_slice(x));
            })
        } else {
            let x = Tensor::<1>::zeros([count], &device);
            best(|| {
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
            best(chain) / LAUNCHES as f64
        });

        let bandwidth = 8.0 * count as f64 / seconds;
        Limits { flops, bandwidth, launch, products: Vec::new() }
    }

    /// Also measures the matmuls of a model's shapes, in each format that the device computes. `observe` gets each
    /// result when it is done.
    pub fn with_products(mut self, device: &Device, observe: &mut dyn FnMut(&Product)) -> Self {
        let device = device.clone().inner();
        for compute in [Compute::F32, Compute::Bf16, Compute::F16] {
            if compute != Compute::F32
                && (device == Device::flex() || !device.supports_dtype(compute.dtype()))
            {
                continue;
            }

            for [rows, inner, columns] in SHAPES {
                let work = 2.0 * (rows * inner * columns) as f64;
                // Some devices are far from their limit in flat shapes, and software devices in all shapes.
                let measured = (work / self.flops < 0.5).then(|| {
                    guard(|| {
                        let of = |shape: [usize; 2]| {
                            let x = Tensor::<2>::random(shape, Distribution::Default, &device);
                            x.cast(compute.dtype())
                        };
                        let x = of([rows, inner]);
                        let y = of([inner, columns]);
                        let multiply = || {
                            run_on_compute_thread(&device, || {
                                product(x.clone(), y.clone(), compute)
                            })
                        };
                        // A launch that failed is reported to whoever reads its result, but not to whoever waits
                        // for it.
                        multiply().slice([0..1, 0..1]).into_data();
                        work / best(|| {
                            let z = multiply();
                            let _ = device.sync();
                            drop(z);
                        })
                    })
                });

                let (flops, error) = match measured {
                    Some(Ok(flops)) => (Some(flops), None),
                    Some(Err(failure)) => (None, Some(failure.to_string())),
                    None => (None, None),
                };
                let dtype = compute.to_string();
                let product = Product { rows, inner, columns, dtype, flops, error };
                observe(&product);
                self.products.push(product);
            }
        }
        self
    }
}

/// Returns the seconds of the fastest run. There are as many as fit into half a second, after one warm-up run.
fn best(mut work: impl FnMut()) -> f64 {
    work();
    let all = Instant::now();
    let mut best = f64::INFINITY;
    while all.elapsed() < Duration::from_millis(500) {
        let began = Instant::now();
        work();
        best = best.min(began.elapsed().as_secs_f64());
    }
    best
}
