//! Speeds that a device reaches in plain matmuls and in a plain copy.

use std::time::{Duration, Instant};

use burn::tensor::{DType, Device, Distribution, Tensor};
use firebrick_device::guard;
use firebrick_kernels::{Compute, Graph, ProductWay, product, run_on_compute_thread};
use rayon::prelude::*;
use serde::Serialize;

use super::Shape;

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
    /// The other ways in which the device can compute it, the fastest first: names, and operations per second. Ways
    /// whose results differ are left out.
    pub ways: Vec<(String, f64)>,
}

/// Tokens that go through a matrix: those of a decode step with few and many rows, and those of an update.
const ROWS: [usize; 3] = [64, 256, 8192];

/// Bytes that matmuls which are timed together read at least, if they are small. A card's caches hold less, so each
/// finds its weights in memory, as the layers of a model do.
const COLD: usize = 256 << 20;

/// Bytes that they take at most.
const TOGETHER: usize = 8 << 30;

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

    /// Also measures the matmuls of a model in the precision `compute`, and the other ways to compute them. `observe`
    /// gets each result when it is done.
    pub fn with_products(
        mut self,
        shape: &Shape,
        compute: Compute,
        device: &Device,
        observe: &mut dyn FnMut(&Product),
    ) -> Self {
        let device = device.clone().inner();
        let of_rows = |[inner, columns]: [usize; 2]| ROWS.map(|rows| [rows, inner, columns]);

        for [rows, inner, columns] in shape.matrices().into_iter().flat_map(of_rows) {
            let dtype = compute.to_string();
            let ways = Vec::new();
            let mut product =
                Product { rows, inner, columns, dtype, flops: None, error: None, ways };

            // Some devices are far from their limit in flat shapes, and software devices in all shapes.
            if product.work() / self.flops < 0.5 {
                match guard(|| product.measure(compute, &device)) {
                    Ok((flops, ways)) => (product.flops, product.ways) = (Some(flops), ways),
                    Err(failure) => product.error = Some(failure.to_string()),
                }
            }
            observe(&product);
            self.products.push(product);
        }
        self
    }
}

impl Product {
    fn work(&self) -> f64 {
        2.0 * (self.rows * self.inner * self.columns) as f64
    }

    /// Returns the operations per second, and those of each other way.
    fn measure(&self, compute: Compute, device: &Device) -> (f64, Vec<(String, f64)>) {
        let Product { rows, inner, columns, .. } = *self;
        let of = |shape: [usize; 2]| {
            Tensor::<2>::random(shape, Distribution::Default, device).cast(compute.dtype())
        };
        let x = of([rows, inner]);
        let bytes = inner * columns * DType::from(compute.dtype()).size();
        let most = TOGETHER / (bytes + 4 * rows * columns);
        let count = COLD.div_ceil(bytes).clamp(8, 64).min(most.max(1));
        // Neighbours along the sum are neighbours in memory, as in the weights of a policy.
        let weights: Vec<_> = (0..count).map(|_| of([columns, inner]).transpose()).collect();

        let expected =
            run_on_compute_thread(device, || product(x.clone(), weights[0].clone(), compute));
        // A launch that failed is reported to whoever reads its result, but not to whoever waits for it.
        expected.clone().slice([0..1, 0..1]).into_data();
        let rate = |work: &dyn Fn(&Tensor<2>) -> Tensor<2>| {
            let multiply = || weights.iter().for_each(|y| drop(work(y)));
            self.work() * count as f64 / seconds_of(device, &multiply)
        };
        let flops =
            rate(&|y| run_on_compute_thread(device, || product(x.clone(), y.clone(), compute)));

        let largest = |x: Tensor<2>| x.abs().max().into_scalar::<f32>();
        let mut ways: Vec<(String, f64)> = ProductWay::all(&x, &weights[0])
            .iter()
            .filter_map(|way| {
                let made = way.product(&x, &weights[0])?;
                let apart = largest(made - expected.clone());
                let wrong = apart.is_nan() || apart > 0.01 * largest(expected.clone());
                let multiply = |y: &Tensor<2>| way.product(&x, y).expect("it was made once");
                (!wrong).then(|| (way.name(), rate(&multiply)))
            })
            .collect();
        ways.sort_by(|a, b| b.1.total_cmp(&a.1));
        (flops, ways)
    }
}

/// Returns the seconds of the fastest run of many launches: recorded, if the device records, so that the host does not
/// limit them.
fn seconds_of(device: &Device, work: &dyn Fn()) -> f64 {
    let recorded = Graph::record(device, (), |()| work()).ok();
    best_within(Duration::from_millis(10), || {
        match &recorded {
            Some((_, graph)) => graph.replay().expect("it was recorded"),
            None => work(),
        }
        let _ = device.sync();
    })
}

/// Returns the seconds of the fastest run. There are as many as fit into half a second, after one warm-up run.
fn best(work: impl FnMut()) -> f64 {
    best_within(Duration::from_millis(500), work)
}

fn best_within(time: Duration, mut work: impl FnMut()) -> f64 {
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
