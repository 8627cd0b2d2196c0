//! Matmuls: of many rows by the crate `gemm`, in tiles on all cores, and of few where the weights are.

use rayon::prelude::*;

use super::{
    few::{self, INNER},
    matrix::Matrix,
    weights::Weights,
};

/// Sets `target` to `scale · x · y`, or adds that to it, on the calling thread. The rows of `target` are `step` apart.
///
/// # Panics
/// If the sizes do not fit together.
pub(crate) fn multiply(
    target: &mut [f32],
    step: usize,
    x: Matrix<'_>,
    y: Matrix<'_>,
    scale: f32,
    add: bool,
) {
    let last = x.rows.saturating_sub(1) * step + y.columns;
    assert!(last <= target.len() && y.columns <= step, "a product ends within its target");

    // SAFETY: the last number of the target is within the slice, all of which is initialised.
    #[allow(unsafe_code)]
    unsafe {
        tile(target.as_mut_ptr(), step, x, y.into(), scale, add);
    }
}

/// Computes `scale · x · y`, row by row.
///
/// # Panics
/// If the sizes do not fit together.
pub(crate) fn product<'a>(x: Matrix<'_>, y: impl Into<Weights<'a>>, scale: f32) -> Vec<f32> {
    let y = y.into();
    let length = x.rows * y.dims()[1];
    if x.columns == 0 {
        return vec![0.0; length];
    }

    let mut values = Vec::<f32>::with_capacity(length);
    // SAFETY: the vector has room for all tiles, which together fill it. Tiles that do not add are written without
    // being read.
    #[allow(unsafe_code)]
    unsafe {
        tiles(values.as_mut_ptr(), x, y, scale, false);
        values.set_len(length);
    }
    values
}

/// Adds `x · y` to `target`, row by row.
///
/// # Panics
/// If the sizes do not fit together.
pub(crate) fn add_product<'a>(target: &mut [f32], x: Matrix<'_>, y: impl Into<Weights<'a>>) {
    let y = y.into();
    assert_eq!(target.len(), x.rows * y.dims()[1], "a target is as large as the product");

    // SAFETY: the slice is as large as all tiles together.
    #[allow(unsafe_code)]
    unsafe {
        tiles(target.as_mut_ptr(), x, y, 1.0, true);
    }
}

/// Computes the matmul on all cores.
///
/// # Safety
/// `target` must be valid for writes of a row-major matrix of the product's size, and initialised if `add` is
/// true.
#[allow(unsafe_code)]
unsafe fn tiles(target: *mut f32, x: Matrix<'_>, y: Weights<'_>, scale: f32, add: bool) {
    /// A target whose tiles are disjoint.
    struct Apart(*mut f32);
    // SAFETY: each thread writes only the numbers of its own tiles.
    unsafe impl Sync for Apart {}
    impl Apart {
        fn at(&self, index: usize) -> *mut f32 {
            // SAFETY: a tile begins within the target.
            unsafe { self.0.add(index) }
        }
    }

    let step = y.dims()[1];
    if x.rows == 0 || step == 0 {
        return;
    }
    if few::takes(x, y) {
        // SAFETY: it is what the caller guarantees.
        return unsafe { few::multiply(target, step, x, y, scale, add) };
    }

    let [high, wide] = tile_size([x.rows, step, x.columns]);
    // The last tile has the columns that are left over, too.
    let across = step / wide;
    let all = Apart(target);

    let one = |index: usize| {
        let (row, column) = (index / across * high, index % across * wide);
        let rows = row..(row + high).min(x.rows);
        let columns = column..if column + 2 * wide > step { step } else { column + wide };
        // SAFETY: the tile is within the target, and no other tile shares a number with it.
        unsafe {
            tile(all.at(row * step + column), step, x.rows(rows), y.columns(columns), scale, add);
        }
    };

    match x.rows.div_ceil(high) * across {
        1 => one(0),
        count => (0..count).into_par_iter().with_max_len(1).for_each(one),
    }
}

/// Returns a tile's rows and columns. There are some tiles for every core. The order of a number's sum depends only on
/// `inner`, so tiles may be chosen by the number of threads.
fn tile_size([rows, columns, inner]: [usize; 3]) -> [usize; 2] {
    /// Multiplications that are worth a task.
    const LEAST: usize = 1 << 20;
    let tiles = 2 * rayon::current_num_threads();

    // Each tile packs its rows and columns again, so many rows have large ones. With few rows, the time is that of
    // reading the weights, and those of a narrow tile stay in the second cache from the packing on.
    let mut down = rows.div_ceil(2048);
    let mut wide = match rows {
        ..=256 => (LEAST / (rows * inner).max(1)).max(128),
        _ => columns.div_ceil(columns.div_ceil(2048)),
    };
    wide = wide.min(columns);
    loop {
        let high = rows.div_ceil(down);
        if down * (columns / wide) >= tiles || high * wide * inner <= LEAST {
            return [high, wide];
        }

        // Columns are split if there are few rows. A tile stays more than 64 wide: below that, `gemm` sums in another
        // order, and a row must not depend on how many others there are.
        if high > 64 && 2 * high >= wide {
            down *= 2;
        } else if wide >= 192 {
            wide /= 2;
        } else {
            return [high, wide];
        }
    }
}

/// Computes one tile, on the calling thread.
///
/// # Safety
/// `target` must be valid for writes of the product's rows, `step` apart, and initialised if `add` is true.
///
/// # Panics
/// If the inner sizes differ.
#[allow(unsafe_code)]
unsafe fn tile(
    target: *mut f32,
    step: usize,
    x: Matrix<'_>,
    y: Weights<'_>,
    scale: f32,
    add: bool,
) {
    assert_eq!(x.columns, y.dims()[0], "the inner sizes of a product are the same");
    // `gemm` splits a long sum into blocks, and at other places if a tile is small. So it gets one block at a time.
    let mut widened = Vec::new();
    for first in (0..x.columns.max(1)).step_by(INNER) {
        let these = first..(first + INNER).min(x.columns);
        let y = y.rows(these.clone()).widened(&mut widened);
        // SAFETY: the caller guarantees that the target is valid, and the first block has written it.
        unsafe { block(target, step, x.columns(these), y, scale, add || first > 0) };
    }
}

/// Computes the part of a tile that is the sum over at most [`INNER`] products.
///
/// # Safety
/// As of [`tile`].
#[allow(unsafe_code)]
unsafe fn block(
    target: *mut f32,
    step: usize,
    x: Matrix<'_>,
    y: Matrix<'_>,
    scale: f32,
    add: bool,
) {
    if x.rows == 0 || y.columns == 0 {
        return;
    }

    // `gemm` has separate code for a single row and for a few numbers. It sums in other orders than the code for many,
    // so a row would depend on how many others there are. So a single row or column is doubled, and few columns that
    // are stored one after the other are interleaved.
    if x.rows == 1 {
        let two = Matrix { rows: 2, steps: [0, x.steps[1]], ..x };
        let length = y.columns;

        let mut rows = vec![0.0; 2 * length];
        if add {
            // SAFETY: the caller has initialised the target if the product is added to it.
            rows[..length].copy_from_slice(unsafe { std::slice::from_raw_parts(target, length) });
        }

        multiply(&mut rows, length, two, y, scale, add);
        // SAFETY: the target has room for the row, and is not this vector.
        unsafe { target.copy_from_nonoverlapping(rows.as_ptr(), length) };
        return;
    }

    if y.columns == 1 {
        let two = Matrix { columns: 2, steps: [y.steps[0], 0], ..y };
        let mut rows = vec![0.0; 2 * x.rows];
        for (row, pair) in rows.chunks_exact_mut(2).enumerate().filter(|_| add) {
            // SAFETY: the caller has initialised the target if the product is added to it.
            pair.fill(unsafe { *target.add(row * step) });
        }

        multiply(&mut rows, 2, x, two, scale, add);
        for (row, pair) in rows.chunks_exact(2).enumerate() {
            // SAFETY: the target has room for a number of each row.
            unsafe { *target.add(row * step) = pair[0] };
        }
        return;
    }

    let packed: Vec<f32>;
    let mut y = y;
    if x.rows * y.columns <= 256 && y.steps[0] == 1 && y.columns > 1 {
        packed = y.transposed().by_columns().collect();
        y = Matrix { values: &packed, steps: [y.columns, 1], ..y };
    }

    // `gemm` packs `y` if there are more rows than this many times those that its kernel processes together, which is 4
    // or 6. Otherwise it walks down the columns again for each of these, and the numbers of a column get in each other's
    // way in the caches, unless the second one holds the whole matrix: 16 to 96 rows took up to twice as long. The
    // setting is the process's. It does not change any bits, so it does no harm if another thread changes it.
    let threshold = if x.columns * y.steps[0] > 1 << 17 { 2 } else { 16 };
    if gemm::get_lhs_packing_threshold_single_thread() != threshold {
        gemm::set_lhs_packing_threshold_single_thread(threshold);
    }

    let signed = |steps: [usize; 2]| steps.map(|step| step as isize);
    let ([x_row, x_column], [y_row, y_column]) = (signed(x.steps), signed(y.steps));

    // SAFETY: `Matrix` guarantees that both sides are within their slices, and the caller that the target is valid.
    // Sides and target do not overlap, because the target is borrowed mutably or new.
    unsafe {
        gemm::gemm(
            x.rows,
            y.columns,
            x.columns,
            target,
            1,
            step as isize,
            add,
            x.values.as_ptr(),
            x_column,
            x_row,
            y.values.as_ptr(),
            y_column,
            y_row,
            1.0,
            scale,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So that a completion does not depend on its neighbours.
    #[test]
    fn rows_of_a_product_do_not_depend_on_each_other() {
        let number = |at: usize| ((at * 2_654_435_761) % 1999) as f32 / 999.0 - 1.0;
        for [inner, columns] in [
            [40, 21],
            [576, 961],
            [64, 192],
            [128, 1024],
            [576, 16],
            [1100, 48],
            [1600, 33],
            [900, 1],
            [7, 16],
        ] {
            let x: Vec<f32> = (0..300 * inner).map(number).collect();
            let weights: Vec<f32> = (0..inner * columns).map(|at| number(at + 77)).collect();
            let x = Matrix::dense(&x, inner);
            let stored =
                [Matrix::dense(&weights, columns), Matrix::dense(&weights, inner).transposed()];
            for y in stored {
                let added = |rows: usize| {
                    let mut sum = vec![0.25; rows * columns];
                    add_product(&mut sum, x.rows(0..rows), y);
                    sum
                };
                let all = [product(x, y, 0.7), added(300)];
                for rows in [1, 2, 3, 8, few::ROWS, few::ROWS + 1, 64, 128, 256] {
                    let few = [product(x.rows(0..rows), y, 0.7), added(rows)];
                    for (few, all) in few.iter().zip(&all) {
                        let is_equal = few[..] == all[..rows * columns];
                        assert!(is_equal, "{rows} of 300 rows, {inner} × {columns}");
                    }
                }
            }
        }
    }
}
