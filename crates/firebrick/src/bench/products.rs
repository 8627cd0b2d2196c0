//! Speeds of a model's matmuls, in each way in which a device can compute them.

use std::time::Duration;

use burn::tensor::{DType, Device, Distribution, Tensor};
use firebrick_device::guard;
use firebrick_kernels::{Compute, Graph, ProductWay, product, run_on_compute_thread};
use serde::Serialize;

use super::{Limits, Shape, limits::best_within};

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
    /// Floating-point operations per second; `None` if the matmul failed, or was not measured ([`products`]).
    pub flops: Option<f64>,
    /// The device's error, if the matmul failed.
    pub error: Option<String>,
    /// The other ways in which the device can compute it, the fastest first: names, and operations per second. Ways
    /// whose results differ are left out.
    pub ways: Vec<(String, f64)>,
}

/// Tokens that go through a matrix: those of a decode step with few and many rows, and those of an update.
const ROWS: [usize; 3] = [64, 256, 8192];

/// Numbers of the largest result. No update makes more logits at once.
const LARGEST: usize = 1 << 29;

/// Bytes of the weights that are multiplied in turn, if no more than 64 of them are needed for that. A card's caches
/// hold less, so each is read from memory, as the layers of a model are.
const COLD: usize = 256 << 20;

/// Measures the matmuls of a model in the precision `compute`, and the other ways to compute them. `observe` gets each
/// result when it is done. One that would take half a second at the device's `limits`, or is larger than any that an
/// update makes, is not measured.
pub fn products(
    shape: &Shape,
    compute: Compute,
    device: &Device,
    limits: &Limits,
    observe: &mut dyn FnMut(&Product),
) {
    let device = device.clone().inner();
    let of_rows = |[inner, columns]: [usize; 2]| ROWS.map(|rows| [rows, inner, columns]);
    let all = shape.matrices().into_iter().flat_map(of_rows);

    for [rows, inner, columns] in all {
        let dtype = compute.to_string();
        let ways = Vec::new();
        let mut product = Product { rows, inner, columns, dtype, flops: None, error: None, ways };

        // Some devices are far from their limit in flat shapes, and software devices in all shapes.
        if rows * columns <= LARGEST && product.work() / limits.flops < 0.5 {
            match guard(|| product.measure(compute, &device)) {
                Ok((flops, ways)) => (product.flops, product.ways) = (Some(flops), ways),
                Err(failure) => product.error = Some(failure.to_string()),
            }
        }
        observe(&product);
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
            let normal = Distribution::Normal(0.0, 1.0);
            Tensor::<2>::random(shape, normal, device).cast(compute.dtype())
        };
        let x = of([rows, inner]);
        let bytes = inner * columns * DType::from(compute.dtype()).size();
        let count = COLD.div_ceil(bytes).clamp(2, 64);
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
