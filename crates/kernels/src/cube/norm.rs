//! RMSNorm on GPUs, alone or of a sum, forward and backward.

use super::{rows::sums, *};
use crate::{Compute, Norm};

/// Upper bound on the cubes of a backward pass. Each processes some rows.
const CUBES: usize = 512;

/// Computes x / sqrt(mean(x²) + ε) · (weight + offset), row by row, in the matmul precision.
pub(crate) fn apply<const D: usize>(
    x: &Tensor<D>,
    weight: &Tensor<1>,
    rule: Norm,
    compute: Compute,
) -> Option<Tensor<D>> {
    let (x, weight) = (wide(x)?, wide(weight)?);
    let width = count(&weight);
    let rows = count(&x) / width;

    let y = empty(&x, x.meta.shape().dims::<D>(), products(compute));
    norm::launch(
        &x.client.clone(),
        cubes(rows),
        across(width),
        x.into_buffer_arg(),
        weight.into_buffer_arg(),
        y.clone().into_buffer_arg(),
        rule.epsilon as f32,
        rule.offset as f32,
        format(&y),
    );
    Some(tensor(y))
}

/// Computes the sum of `x` and `branch`, and its norm in the matmul precision.
pub(crate) fn of_sum<const D: usize>(
    [x, branch]: [&Tensor<D>; 2],
    weight: &Tensor<1>,
    rule: Norm,
    compute: Compute,
) -> Option<[Tensor<D>; 2]> {
    let (x, branch, weight) = (wide(x)?, wide(branch)?, wide(weight)?);
    let width = count(&weight);
    let rows = count(&x) / width;
    let shape = x.meta.shape().dims::<D>();
    let sum = empty(&x, shape, DType::F32);
    let y = empty(&x, shape, products(compute));

    norm_of_sum::launch(
        &x.client.clone(),
        cubes(rows),
        across(width),
        x.into_buffer_arg(),
        branch.into_buffer_arg(),
        weight.into_buffer_arg(),
        sum.clone().into_buffer_arg(),
        y.clone().into_buffer_arg(),
        rule.epsilon as f32,
        rule.offset as f32,
        format(&y),
    );
    Some([tensor(sum), tensor(y)])
}

/// Computes the gradients of `x` and of the weight; `d_residual` is added to the first.
pub(crate) fn backward<const D: usize>(
    x_and_d_y: [&Tensor<D>; 2],
    weight: &Tensor<1>,
    rule: Norm,
    d_residual: Option<&Tensor<D>>,
) -> Option<(Tensor<D>, Tensor<1>)> {
    let (d_x, d_weights) = backward_in_parts(x_and_d_y, weight, rule, d_residual, true)?;
    Some((d_x, sums(d_weights, weight.dims()[0])))
}

/// Computes the gradient of `x` alone.
pub(crate) fn backward_input<const D: usize>(
    x_and_d_y: [&Tensor<D>; 2],
    weight: &Tensor<1>,
    rule: Norm,
    d_residual: Option<&Tensor<D>>,
) -> Option<Tensor<D>> {
    Some(backward_in_parts(x_and_d_y, weight, rule, d_residual, false)?.0)
}

/// Does [`backward`], with the weight's gradient in parts, `[parts, width]`. Without `trained` there is none.
fn backward_in_parts<const D: usize>(
    [x, d_y]: [&Tensor<D>; 2],
    weight: &Tensor<1>,
    rule: Norm,
    d_residual: Option<&Tensor<D>>,
    trained: bool,
) -> Option<(Tensor<D>, Buffer)> {
    let (x, d_y, weight) = (wide(x)?, wide(d_y)?, wide(weight)?);

    let added = d_residual.is_some();
    // A missing buffer is replaced by one that is not read.
    let d_residual = d_residual.map_or(Some(d_y.clone()), wide)?;

    let width = count(&weight);
    let shape = x.meta.shape().dims::<D>();
    let rows = count(&x) / width;
    let of_cube = rows.div_ceil(CUBES);
    let parts = rows.div_ceil(of_cube);

    let d_x = empty(&x, shape, DType::F32);
    // A missing one is replaced by one that is not written.
    let d_weights = empty(&x, if trained { [parts, width] } else { [1, 1] }, DType::F32);

    norm_backward::launch(
        &x.client.clone(),
        cubes(parts),
        across(width),
        x.into_buffer_arg(),
        weight.into_buffer_arg(),
        d_y.into_buffer_arg(),
        d_residual.into_buffer_arg(),
        d_x.clone().into_buffer_arg(),
        d_weights.clone().into_buffer_arg(),
        rule.epsilon as f32,
        rule.offset as f32,
        of_cube,
        added,
        trained,
    );

    Some((tensor(d_x), d_weights))
}

#[cube(launch)]
fn norm<Y: Float>(
    x: &[f32],
    weight: &[f32],
    y: &mut [Y],
    epsilon: f32,
    offset: f32,
    #[define(Y)] _format: ElemType,
) {
    let width = weight.len();
    let first = CUBE_POS * width;
    if first < x.len() {
        let scale = scale(&x[first..first + width], epsilon);

        let mut at = UNIT_POS as usize;
        while at < width {
            y[first + at] = Y::cast_from(x[first + at] * scale * (weight[at] + offset));
            at += CUBE_DIM as usize;
        }
    }
}

#[cube(launch)]
fn norm_of_sum<Y: Float>(
    x: &[f32],
    branch: &[f32],
    weight: &[f32],
    sum: &mut [f32],
    y: &mut [Y],
    epsilon: f32,
    offset: f32,
    #[define(Y)] _format: ElemType,
) {
    let width = weight.len();
    let first = CUBE_POS * width;
    if first < x.len() {
        let mut squares = f32::new(0.0);
        let mut at = UNIT_POS as usize;
        while at < width {
            let both = x[first + at] + branch[first + at];
            sum[first + at] = both;
            squares += both * both;
            at += CUBE_DIM as usize;
        }

        let scale = root(sum_of_cube(squares), width, epsilon);
        // A unit reads only numbers that it wrote itself.
        at = UNIT_POS as usize;
        while at < width {
            y[first + at] = Y::cast_from(sum[first + at] * scale * (weight[at] + offset));
            at += CUBE_DIM as usize;
        }
    }
}

/// Computes the gradients of `x` and of the weight. With r = 1 / sqrt(mean(x²) + ε) and g = d_y · (weight + offset), ∂x
/// = r · (g − x · r² · mean(g · x)). A cube processes `rows` rows, and sums their part of the weight's gradient if the
/// weight is `trained`.
#[cube(launch)]
fn norm_backward(
    x: &[f32],
    weight: &[f32],
    d_y: &[f32],
    beside: &[f32],
    d_x: &mut [f32],
    d_weights: &mut [f32],
    epsilon: f32,
    offset: f32,
    rows: usize,
    #[comptime] added: bool,
    #[comptime] trained: bool,
) {
    let width = weight.len();
    let part = CUBE_POS * width;
    if CUBE_POS * rows * width < x.len() {
        let mut row = CUBE_POS * rows;
        let mut at = UNIT_POS as usize;
        if trained {
            while at < width {
                d_weights[part + at] = 0.0;
                at += CUBE_DIM as usize;
            }
        }

        while row < (CUBE_POS + 1) * rows && row * width < x.len() {
            let first = row * width;
            let scale = scale(&x[first..first + width], epsilon);

            let mut along = f32::new(0.0);
            at = UNIT_POS as usize;
            while at < width {
                let d = d_y[first + at];
                along += d * (weight[at] + offset) * x[first + at];
                if trained {
                    d_weights[part + at] += d * (x[first + at] * scale);
                }
                at += CUBE_DIM as usize;
            }

            let mean = sum_of_cube(along) * scale / f32::cast_from(width as u32);
            at = UNIT_POS as usize;
            while at < width {
                let g = d_y[first + at] * (weight[at] + offset);
                let mut d = (g - x[first + at] * scale * mean) * scale;
                if added {
                    d += beside[first + at];
                }
                d_x[first + at] = d;
                at += CUBE_DIM as usize;
            }
            row += 1;
        }
    }
}

/// Computes 1 / sqrt(mean(x²) + ε) of a row.
#[cube]
pub(super) fn scale(x: &[f32], epsilon: f32) -> f32 {
    let mut squares = f32::new(0.0);
    let mut at = UNIT_POS as usize;
    while at < x.len() {
        squares += x[at] * x[at];
        at += CUBE_DIM as usize;
    }
    root(sum_of_cube(squares), x.len(), epsilon)
}

#[cube]
pub(super) fn root(squares: f32, width: usize, epsilon: f32) -> f32 {
    1.0 / (squares / f32::cast_from(width as u32) + epsilon).sqrt()
}
