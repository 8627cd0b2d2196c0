//! RMSNorm on the CPU, forward and backward.

use super::{lanes::dot, pieces, rows_of_a_task, simd, summed};

/// Epsilon and offset of an RMSNorm.
pub(crate) type Rule = [f32; 2];

/// Computes x / sqrt(mean(x²) + ε) · (weight + offset), row by row.
pub(crate) fn apply(x: &[f32], weight: &[f32], [epsilon, offset]: Rule) -> Vec<f32> {
    let width = weight.len();
    let ([y], _) = pieces(x.len() / width, [width], rows_of_a_task(width), |rows, [y]| {
        simd!({
            for row in x[rows.start * width..rows.end * width].chunks_exact(width) {
                let scale = scale(row, epsilon);
                y.put(row.iter().zip(weight).map(|(x, weight)| x * scale * (weight + offset)));
            }
        });
    });
    y
}

/// Computes the sum of `x` and `branch`, and its norm.
pub(crate) fn of_sum(
    x: &[f32],
    branch: &[f32],
    weight: &[f32],
    [epsilon, offset]: Rule,
) -> [Vec<f32>; 2] {
    let width = weight.len();
    let step = rows_of_a_task(width);
    let (both, _) = pieces(x.len() / width, [width, width], step, |rows, [sums, y]| {
        simd!({
            let mut row = vec![0.0; width];
            for at in rows.clone().map(|row| row * width..(row + 1) * width) {
                let added = x[at.clone()].iter().zip(&branch[at]).map(|(x, branch)| x + branch);
                for (sum, x) in row.iter_mut().zip(added) {
                    *sum = x;
                }

                let scale = scale(&row, epsilon);
                sums.put(row.iter().copied());
                y.put(row.iter().zip(weight).map(|(x, weight)| x * scale * (weight + offset)));
            }
        });
    });
    both
}

/// Computes the gradients of `x` and of the weight; `d_residual` is added to the first.
pub(crate) fn backward(
    x: &[f32],
    weight: &[f32],
    [epsilon, offset]: Rule,
    d_y: &[f32],
    d_residual: Option<&[f32]>,
) -> (Vec<f32>, Vec<f32>) {
    let width = weight.len();

    let ([d_x], d_weights) =
        pieces(x.len() / width, [width], rows_of_a_task(width), |rows, [out]| {
            simd!({
                let mut d_weight = vec![0.0; width];
                let mut scaled = vec![0.0; width];
                for at in rows.clone().map(|row| row * width..(row + 1) * width) {
                    let x = &x[at.clone()];
                    let d_y = &d_y[at.clone()];
                    let d_x =
                        row_backward(x, weight, [epsilon, offset], d_y, &mut d_weight, &mut scaled);

                    match d_residual {
                        Some(d_residual) => out.put(
                            d_x.zip(&d_residual[at]).map(|(d_x, d_residual)| d_x + d_residual),
                        ),
                        None => out.put(d_x),
                    }
                }

                d_weight
            })
        });

    (d_x, summed(d_weights))
}

/// Computes the gradient of one row, and adds its part to the weight's gradient. With r = 1 / sqrt(mean(x²) + ε) and g
/// = d_y · (weight + offset), ∂x = r · (g − x · r² · mean(g · x)).
#[inline(always)]
pub(super) fn row_backward<'a>(
    x: &'a [f32],
    weight: &[f32],
    [epsilon, offset]: Rule,
    d_y: &[f32],
    d_weight: &mut [f32],
    scaled: &'a mut [f32],
) -> impl ExactSizeIterator<Item = f32> + 'a {
    let scale = scale(x, epsilon);
    for (((d_weight, scaled), (x, d_y)), weight) in
        d_weight.iter_mut().zip(&mut *scaled).zip(x.iter().zip(d_y)).zip(weight)
    {
        *d_weight += d_y * (x * scale);
        *scaled = d_y * (weight + offset);
    }

    let scaled: &'a [f32] = scaled;
    let mean = dot(scaled, x) * scale / x.len() as f32;
    scaled.iter().zip(x).map(move |(g, x)| (g - x * scale * mean) * scale)
}

/// Computes 1 / sqrt(mean(x²) + ε).
#[inline(always)]
pub(super) fn scale(x: &[f32], epsilon: f32) -> f32 {
    (dot(x, x) / x.len() as f32 + epsilon).sqrt().recip()
}
