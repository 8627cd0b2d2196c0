//! Sums of rows on the CPU: by token, and over all rows.

use rayon::prelude::*;

use super::{pieces, rows_of_a_task, simd};

/// Adds each row of `gradient` to the row of `table` that its token names, equal tokens in their order.
pub(crate) fn add(table: &mut [f32], width: usize, tokens: &[u32], gradient: &[f32]) {
    let rows = table.len() / width;
    // A counting sort: `indices` lists the gradient's rows in the order of their tokens, and `ends` says where each
    // token's rows begin.
    let mut ends = vec![0usize; rows + 1];
    for &token in tokens {
        ends[token as usize + 1] += 1;
    }
    for row in 0..rows {
        ends[row + 1] += ends[row];
    }

    let mut next = ends.clone();
    let mut indices = vec![0; tokens.len()];
    for (index, &token) in tokens.iter().enumerate() {
        indices[next[token as usize]] = index;
        next[token as usize] += 1;
    }

    // Each task has its own rows of the table, so no two add to the same numbers.
    let step = 64;
    table.par_chunks_mut(step * width).enumerate().for_each(|(chunk, table)| {
        simd!({
            for (row, sum) in (chunk * step..).zip(table.chunks_exact_mut(width)) {
                for &index in &indices[ends[row]..ends[row + 1]] {
                    let part = &gradient[index * width..(index + 1) * width];
                    for (sum, part) in sum.iter_mut().zip(part) {
                        *sum += part;
                    }
                }
            }
        });
    });
}

/// Sums all rows.
pub(crate) fn sum(x: &[f32], width: usize) -> Vec<f32> {
    let (_, parts) = pieces(x.len() / width, [], rows_of_a_task(width), |rows, []| {
        simd!({
            let mut sum = vec![0.0; width];
            for row in x[rows.start * width..rows.end * width].chunks_exact(width) {
                for (sum, x) in sum.iter_mut().zip(row) {
                    *sum += x;
                }
            }
            sum
        })
    });

    super::summed(parts)
}

/// Prepares rows to which a matmul is added: each is the sum of `bias` and of its row of `onto`, if they exist.
pub(crate) fn begin(
    rows: usize,
    width: usize,
    bias: Option<&[f32]>,
    onto: Option<&[f32]>,
) -> Vec<f32> {
    let ([all], _) = pieces(rows, [width], rows_of_a_task(width), |rows, [out]| {
        for row in rows {
            let onto = onto.map(|onto| &onto[row * width..(row + 1) * width]);
            match (bias, onto) {
                (Some(bias), Some(onto)) => out.put(bias.iter().zip(onto).map(|(x, y)| x + y)),
                (Some(one), None) | (None, Some(one)) => out.put(one.iter().copied()),
                (None, None) => out.put((0..width).map(|_| 0.0)),
            }
        }
    });
    all
}
