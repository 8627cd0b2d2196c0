//! Matmuls with f32 results on GPUs, with our own kernel for few rows.

use burn_cubecl::kernel::matmul::{MatmulStrategy, matmul};
use cubek::matmul::kernels::CubeStagedMatmulRoutineSettings;

use super::{
    adapter, cuts,
    rows::plus,
    split::{self, Parts},
    *,
};

/// Upper bound on the rows for which reading the weights limits a matmul, whatever computes it.
const FEW: usize = 16;

/// Columns that one cube has in a matmul of few rows, and units that share a column.
const SIDE: usize = 16;

/// How many numbers of each row are in memory at the same time.
const STRIP: usize = 256;

/// Computes `x · weight + inner · more + bias + onto` in f32, whatever format the factors are in. `adapter` holds
/// `inner` and `more`.
pub(crate) fn linear(
    x: &Tensor<2>,
    weight: &Tensor<2>,
    adapter: Option<&[Tensor<2>; 2]>,
    bias: Option<&Tensor<1>>,
    onto: Option<&Tensor<2>>,
) -> Option<Tensor<2>> {
    let bias = bias.map(wide).map_or(Some(None), |bias| bias.map(Some))?;
    let onto = onto.map(wide).map_or(Some(None), |onto| onto.map(Some))?;

    if x.dims()[0] <= FEW {
        // The adapter's matmul becomes the matrix to which the other launch adds its own.
        let onto = match adapter {
            Some([inner, more]) => Some(product_of_few(inner, more, None, onto, DType::F32)?),
            None => onto,
        };
        return Some(tensor(product_of_few(x, weight, bias, onto, DType::F32)?));
    }

    let parts = in_parts(x, weight, DType::F32)?;
    let adapter = match adapter {
        Some(pair) if adapter::fits(pair) => {
            return adapter::plus(parts, pair, bias, onto).map(tensor);
        }
        Some([inner, more]) => Some(product(inner, more)?),
        None => None,
    };
    Some(tensor(plus(parts, bias, [adapter, onto], DType::F32)))
}

/// Computes `x · y` in the format of the factors.
pub(crate) fn factor(x: &Tensor<2>, y: &Tensor<2>) -> Option<Tensor<2>> {
    product_in(x, y, x.dtype()).map(tensor)
}

/// Adds `x · y` to the rows of `sum` starting at `start`, in place if its buffer is not shared. Returns only `x · y` if
/// there is no sum.
pub(crate) fn added(
    sum: Option<Tensor<2>>,
    start: usize,
    x: &Tensor<2>,
    y: &Tensor<2>,
) -> Tensor<2> {
    let part = product(x, y).expect("all are on one GPU");
    match sum {
        Some(sum) => {
            let width = sum.dims()[1];
            tensor(rows::add_to(own(sum), part, start * width))
        }
        None => tensor(part),
    }
}

/// Computes `x · y` in f32. Matrices may be transposed.
pub(super) fn product(x: &Tensor<2>, y: &Tensor<2>) -> Option<Buffer> {
    product_in(x, y, DType::F32)
}

/// Computes `x · y` in a format. Sums are f32, and are rounded at their end.
fn product_in(x: &Tensor<2>, y: &Tensor<2>, format: DType) -> Option<Buffer> {
    if x.dims()[0] <= FEW {
        return product_of_few(x, y, None, None, format);
    }
    Some(plus(in_parts(x, y, format)?, None, [None, None], format))
}

/// Computes a matmul of many rows: in parts of the sum, which are f32, if that is faster, and otherwise in a format.
fn in_parts(x: &Tensor<2>, y: &Tensor<2>, format: DType) -> Option<Parts> {
    let (x, y) = (strided(x)?, strided(y)?);
    let parts = split::product(&x, &y);
    Some(parts.unwrap_or_else(|| Parts { sums: whole_product(x, y, format), count: 1 }))
}

/// A way to compute a matmul of many rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// By a kernel of cubek, in boxes.
    Boxes(CubeStagedMatmulRoutineSettings),
    /// In this many parts of the sum.
    Parts(usize),
}

impl Way {
    /// Returns ways to compute `x · y`. Some may be refused.
    pub(crate) fn all(x: &Tensor<2>, y: &Tensor<2>) -> Option<Vec<Self>> {
        let boxes = cuts::alternatives(&strided(x)?, &strided(y)?);
        let parts = [1, 2, 3, 4, 6, 8, 12, 16];
        Some(boxes.into_iter().map(Way::Boxes).chain(parts.map(Way::Parts)).collect())
    }

    /// Returns the way's name.
    pub(crate) fn name(self) -> String {
        match self {
            Way::Boxes(settings) => settings.microkernel.to_string(),
            Way::Parts(count) => format!("parts={count}"),
        }
    }

    /// Computes `x · y` in f32; `None` if it is refused.
    pub(crate) fn product(self, x: &Tensor<2>, y: &Tensor<2>) -> Option<Tensor<2>> {
        let (x, y) = (strided(x)?, strided(y)?);
        match self {
            Way::Boxes(settings) => {
                let out = empty(&x, [x.meta.shape()[0], y.meta.shape()[1]], DType::F32);
                cuts::multiply_in(settings, &x, &y, &out).then(|| tensor(out))
            }
            Way::Parts(count) => {
                let parts = split::product_in(count, &x, &y)?;
                Some(tensor(plus(parts, None, [None, None], DType::F32)))
            }
        }
    }
}

fn whole_product(x: Buffer, y: Buffer, format: DType) -> Buffer {
    // It is allocated here, so no row is padded.
    let out = empty(&x, [x.meta.shape()[0], y.meta.shape()[1]], format);
    if cuts::multiply(&x, &y, &out) {
        return out;
    }
    let done = matmul(x, y, Some(out), MatmulStrategy::default(), format);
    done.expect("one of the kernels multiplies any matrices")
}

/// Computes a matmul of [`FEW`] rows or fewer, and adds `bias` and `onto`, in one launch. A row's bits do not depend on
/// the others.
fn product_of_few(
    x: &Tensor<2>,
    y: &Tensor<2>,
    bias: Option<Buffer>,
    onto: Option<Buffer>,
    out_format: DType,
) -> Option<Buffer> {
    let [rows, inner] = x.dims();
    let columns = y.dims()[1];
    let x = buffer(x)?;
    let y = strided(y)?;

    let out = empty(&x, [rows, columns], out_format);
    let with_bias = bias.is_some();
    let with_onto = onto.is_some();
    let [down, across] = [0, 1].map(|dim| y.meta.strides()[dim]);

    // A missing buffer is replaced by one that is not read.
    let bias = bias.unwrap_or(x.clone());
    let onto = onto.unwrap_or(x.clone());

    few::launch(
        &x.client.clone(),
        cubes(columns.div_ceil(SIDE)),
        dim(),
        x.clone().into_buffer_arg(),
        y.clone().into_buffer_arg(),
        bias.into_buffer_arg(),
        onto.into_buffer_arg(),
        out.clone().into_buffer_arg(),
        inner,
        columns,
        down,
        across,
        rows,
        rows.next_power_of_two(),
        across <= down,
        with_bias,
        with_onto,
        [format(&x), format(&y), format(&out)],
    );

    Some(out)
}

/// Computes a matmul of few rows. Neighbouring units read neighbouring weights: along a row of `y` if it `lies_across`,
/// and along a column otherwise.
#[cube(launch)]
fn few<X: Float, Y: Float, Z: Float>(
    x: &[X],
    y: &[Y],
    bias: &[f32],
    onto: &[f32],
    out: &mut [Z],
    inner: usize,
    columns: usize,
    down: usize,
    across: usize,
    rows: usize,
    #[comptime] at_once: usize,
    #[comptime] lies_across: bool,
    #[comptime] with_bias: bool,
    #[comptime] with_onto: bool,
    #[define(X, Y, Z)] _formats: [ElemType; 3],
) {
    if CUBE_POS * SIDE < columns {
        let unit = UNIT_POS as usize;
        let mut lane = unit / SIDE;
        let mut of = unit % SIDE;
        if !lies_across {
            lane = unit % SIDE;
            of = unit / SIDE;
        }

        let column = CUBE_POS * SIDE + of;
        let mut strip = Shared::<[f32]>::new_slice(comptime!(at_once * STRIP));
        let mut parts = Shared::<[f32]>::new_slice(comptime!(SIDE * SIDE));
        let mut sums = Array::<f32>::new(at_once);
        #[unroll]
        for row in 0..at_once {
            sums[row] = 0.0;
        }

        // Each unit sums every SIDE-th number of its column, for all rows together, while the strip of `x` is shared.
        let mut start = 0usize;
        while start < inner {
            sync_cube();
            #[unroll]
            for row in 0..at_once {
                let mut number = f32::new(0.0);
                if row < rows && start + unit < inner {
                    number = f32::cast_from(x[row * inner + start + unit]);
                }
                strip[row * STRIP + unit] = number;
            }
            sync_cube();

            if column < columns {
                let stop = min(STRIP, inner - start);
                let mut at = lane;
                while at < stop {
                    let weight = f32::cast_from(y[(start + at) * down + column * across]);
                    #[unroll]
                    for row in 0..at_once {
                        sums[row] += strip[row * STRIP + at] * weight;
                    }
                    at += SIDE;
                }
            }
            start += STRIP;
        }

        // The units' parts of a column are added in one order, and one row after the other.
        #[unroll]
        for row in 0..at_once {
            sync_cube();
            parts[lane * SIDE + of] = sums[row];
            sync_cube();
            if unit < SIDE && row < rows && CUBE_POS * SIDE + unit < columns {
                let column = CUBE_POS * SIDE + unit;
                let mut sum = f32::new(0.0);
                for lane in 0..SIDE {
                    sum += parts[lane * SIDE + unit];
                }
                if with_bias {
                    sum += bias[column];
                }
                if with_onto {
                    sum += onto[row * columns + column];
                }
                out[row * columns + column] = Z::cast_from(sum);
            }
        }
    }
}
