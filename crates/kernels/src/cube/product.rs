use burn_cubecl::kernel::matmul::{MatmulStrategy, matmul};

use super::{rows::plus, *};

/// `x · weight + bias + onto` in f32, whatever format the factors are in.
pub(crate) fn linear(
    x: &Tensor<2>,
    weight: &Tensor<2>,
    bias: Option<&Tensor<1>>,
    onto: Option<&Tensor<2>>,
) -> Option<Tensor<2>> {
    let bias = bias.map(wide).map_or(Some(None), |bias| bias.map(Some))?;
    let onto = onto.map(wide).map_or(Some(None), |onto| onto.map(Some))?;
    Some(tensor(plus(product(x, weight)?, bias, onto)))
}

/// `sum` with `x · y` added to its rows from `start` on, in place where nobody else has it; the product alone where there is
/// no sum.
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

/// `x · y` in f32. Matrices may be transposed.
pub(super) fn product(x: &Tensor<2>, y: &Tensor<2>) -> Option<Buffer> {
    let (x_buffer, y_buffer) = (strided(x)?, strided(y)?);
    // As it is made here, no row is padded.
    let out = empty(&x_buffer, [x.dims()[0], y.dims()[1]], DType::F32);
    let done = matmul(x_buffer, y_buffer, Some(out), MatmulStrategy::default(), DType::F32);
    Some(done.expect("one of the kernels multiplies any matrices"))
}
