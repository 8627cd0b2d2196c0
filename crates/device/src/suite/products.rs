//! Cases of the suite: matmuls in the shapes of real models, checked on the host.
//!
//! A device chooses its kernel by the shape. A kernel with large tiles never gets the small matrices of the other
//! cases, so here are the shapes that it does get: from a row of decoding to 4,096 rows of an update, and the widths of
//! Qwen2.5 0.5B and 1.5B and of Qwen3 4B and 8B. The CPU could compute none of the large ones in reasonable time (the
//! largest are 10¹¹ multiplications). So a matmul is checked in two ways, both in f64. Some thousand of its entries are
//! computed by definition: corners, entries on both sides of the borders of tiles, and entries anywhere. And each row
//! is summed up, every entry with its own sign: with signs s, (x · y) · s is x · (y · s), which needs no matmul
//! (Freivalds 1977). A wrong entry changes its row's sum.

use burn::tensor::{Device, Tensor, TensorData};
use firebrick_kernels::{Compute, Kernels, add_product, cast_in_columns, kernels, linear, product};

use super::{
    Array, Case, compares,
    noise::{Noise, on_all_cores, spread},
    operations::compute,
    tensors::values,
};
use crate::{Failure, Precision, Tolerance};

pub(super) fn cases() -> Vec<Case> {
    // Plain tensor code rounds a matmul to the format of its factors.
    let tolerance = match kernels() {
        Kernels::Fast => Tolerance::LONG_SUM,
        Kernels::Reference => Tolerance::ROUNDED,
    };

    let everywhere = [
        ("products/few", small::<16> as super::Compute),
        ("products/17", small::<17>),
        ("products/64", small::<64>),
        ("products/512", small::<512>),
        ("products/4096", small::<4096>),
    ];
    let on_gpus = [
        ("products/17_wide", wide::<17> as super::Compute),
        ("products/64_wide", wide::<64>),
        ("products/512_wide", wide::<512>),
        ("products/4096_wide", wide::<4096>),
    ];

    let everywhere = everywhere.map(|case| (case, false)).into_iter();
    let on_gpus = on_gpus.map(|case| (case, true)).into_iter();
    let products = everywhere.chain(on_gpus).flat_map(|((name, compute), large)| {
        Case::in_every_format(name, tolerance, compute).map(|case| Case { large, ..case })
    });
    products.chain(Case::in_every_format("products/batched", Tolerance::ROUNDED, batched)).collect()
}

/// A matmul of a model over `rows` tokens, from `inputs` to `outputs` values per token.
#[derive(Clone, Copy, Debug)]
struct Product {
    pass: Pass,
    rows: usize,
    inputs: usize,
    outputs: usize,
}

/// Which matmul of training it is. With weights `w`, `[inputs, outputs]`:
#[derive(Clone, Copy, Debug)]
enum Pass {
    /// `x · w`: `[rows, inputs]` to `[rows, outputs]`, with weights that were prepared.
    Forward,
    /// The same, with weights as they are kept, such as a frozen base of 16 bits.
    Frozen,
    /// `d · wᵀ`: `[rows, outputs]` to `[rows, inputs]`.
    Backward,
    /// `xᵀ · d`: the gradient of `w`, a sum over all rows.
    Weight,
}

const fn forward(rows: usize, inputs: usize, outputs: usize) -> Product {
    Product { pass: Pass::Forward, rows, inputs, outputs }
}

const fn frozen(rows: usize, inputs: usize, outputs: usize) -> Product {
    Product { pass: Pass::Frozen, rows, inputs, outputs }
}

const fn backward(rows: usize, inputs: usize, outputs: usize) -> Product {
    Product { pass: Pass::Backward, rows, inputs, outputs }
}

const fn weight(rows: usize, inputs: usize, outputs: usize) -> Product {
    Product { pass: Pass::Weight, rows, inputs, outputs }
}

/// Multiplies in shapes small enough for a processor: those of 0.5B, with its keys of width 128, and an adapter of rank
/// 16. Some matrices do not fill a tile and are stored at odd addresses.
fn small<const ROWS: usize>(device: &Device, precision: Precision) -> Result<Vec<Array>, Failure> {
    let products: &[Product] = match ROWS {
        16 => &[
            forward(1, 896, 4864),
            forward(16, 4864, 896),
            backward(16, 896, 4864),
            weight(16, 896, 128),
        ],
        17 => &[
            forward(17, 896, 4864),
            backward(17, 4864, 896),
            weight(17, 896, 128),
            frozen(19, 897, 131),
        ],
        64 => &[
            forward(64, 4864, 130),
            backward(64, 896, 128),
            weight(64, 896, 16),
            backward(61, 127, 893),
        ],
        512 => &[
            forward(512, 896, 128),
            backward(512, 896, 128),
            weight(512, 896, 128),
            frozen(512, 128, 896),
            weight(509, 131, 259),
        ],
        _ => &[forward(4096, 896, 16), backward(4093, 128, 65), weight(4096, 128, 128)],
    };

    all(products, device, precision)
}

/// Multiplies in the shapes of larger models. Over the four cases, each part has every width.
fn wide<const ROWS: usize>(device: &Device, precision: Precision) -> Result<Vec<Array>, Failure> {
    let products: &[Product] = match ROWS {
        17 => &[forward(17, 12288, 4096), backward(17, 896, 4864), weight(17, 1536, 8960)],
        64 => &[
            forward(64, 9728, 2560),
            frozen(64, 9728, 2560),
            backward(64, 4096, 12288),
            weight(64, 896, 4864),
        ],
        512 => &[
            forward(512, 1536, 8960),
            backward(512, 2560, 9728),
            weight(512, 4096, 12288),
            forward(509, 2557, 9731),
        ],
        _ => &[
            forward(4096, 896, 4864),
            frozen(4096, 4096, 4096),
            backward(4096, 1536, 8960),
            weight(4096, 2560, 9728),
            backward(4093, 893, 4867),
        ],
    };

    all(products, device, precision)
}

fn all(products: &[Product], device: &Device, precision: Precision) -> Result<Vec<Array>, Failure> {
    let checked = |&product| checked(product, precision, device, multiplied);
    let arrays: Result<Vec<_>, _> = products.iter().map(checked).collect();
    arrays.map(|arrays| arrays.into_iter().flatten().collect())
}

/// Multiplies as a model does. A gradient is added to that of another chunk: here to itself, which doubles every entry
/// exactly.
fn multiplied(case: Product, x: Tensor<2>, y: Tensor<2>, compute: Compute) -> Tensor<2> {
    match case.pass {
        Pass::Forward => linear(x, cast_in_columns(y, compute.dtype()), None, None, compute),
        Pass::Frozen => linear(x, y, None, None, compute),
        Pass::Backward => product(x, y, compute),
        Pass::Weight => {
            let once = add_product(None, x.clone(), y.clone(), compute);
            add_product(Some(once), x, y, compute).mul_scalar(0.5)
        }
    }
}

/// Computes a matmul by `multiply`, and its expected entries.
fn checked(
    case: Product,
    precision: Precision,
    device: &Device,
    multiply: impl Fn(Product, Tensor<2>, Tensor<2>, Compute) -> Tensor<2>,
) -> Result<Vec<Array>, Failure> {
    let [left, right] = case.factors(precision);
    // Rounding does not change the values, but tells the device's kernels the format before a factor is transposed.
    let [x, y] = [&left, &right].map(|factor| factor.tensor(precision, device));
    let product = values(multiply(case, x, y, compute(precision)))?;

    let [rows, columns] = [left.dims()[0], right.dims()[1]];
    if product.len() != rows * columns {
        return Err(Failure::new(format!("{case:?} has {} entries", product.len())));
    }
    if !compares() {
        return Ok(vec![Array::new(format!("{case:?}"), Vec::new())]);
    }

    let positions = positions([rows, columns], left.dims()[1]);
    let entries = positions.iter().map(|&[row, column]| product[row * columns + column]).collect();
    let exact = on_all_cores(positions.len(), |part| {
        positions[part].iter().map(|&[row, column]| left.dot(row, &right, column) as f32).collect()
    });

    // (x · y) · s against x · (y · s): see above.
    let signs: Vec<f64> = Noise::new(3).numbers(columns).into_iter().map(sign).collect();
    let sums = product.chunks_exact(columns).map(|row| {
        row.iter().zip(&signs).map(|(&entry, sign)| f64::from(entry) * sign).sum::<f64>() as f32
    });
    let of_signs = right.times(&signs);
    let exact_sums = left.times(&of_signs).into_iter().map(|sum| sum as f32).collect();

    let Product { pass, rows, inputs, outputs } = case;
    let name = format!("{pass:?} {rows}×{inputs}×{outputs}");
    Ok(vec![
        Array::with_expected(format!("{name}, entries"), entries, exact),
        Array::with_expected(format!("{name}, rows"), sums.collect(), exact_sums),
    ])
}

fn sign(number: f32) -> f64 {
    if number < 0.0 { -1.0 } else { 1.0 }
}

/// Chooses the entries that are computed on the host: fewer if their sums are long.
fn positions([rows, columns]: [usize; 2], inner: usize) -> Vec<[usize; 2]> {
    let count = ((1 << 23) / inner).clamp(256, 2048);
    let mut positions = vec![[0, 0], [0, columns - 1], [rows - 1, 0], [rows - 1, columns - 1]];
    let down = borders(rows);
    let across = borders(columns);
    // Half of the others are at the borders of tiles, and half anywhere.
    let near = spread(count, [down.len(), across.len()]);
    positions.extend(near.map(|[row, column]| [down[row], across[column]]));
    positions.extend(spread(count, [rows, columns]));
    positions
}

/// Returns the first and the last of `size` rows, and those on both sides of the borders of tiles.
fn borders(size: usize) -> Vec<usize> {
    let near = (64..size + 64).step_by(64).flat_map(|border| border - 1..border + 2);
    let mut all: Vec<usize> = [0, 1].into_iter().chain(near).filter(|&at| at + 1 < size).collect();
    all.push(size - 1);
    all
}

impl Product {
    fn factors(self, precision: Precision) -> [Factor; 2] {
        let Product { pass, rows, inputs, outputs } = self;
        let factor = |salt, stored: [usize; 2], transposed| {
            let numbers = Noise::of(precision, salt).numbers_of_large(stored[0] * stored[1]);
            Factor { numbers, stored, transposed }
        };

        match pass {
            Pass::Forward | Pass::Frozen => {
                [factor(1, [rows, inputs], false), factor(2, [inputs, outputs], false)]
            }
            Pass::Backward => {
                [factor(1, [rows, outputs], false), factor(2, [inputs, outputs], true)]
            }
            Pass::Weight => [factor(1, [rows, inputs], true), factor(2, [rows, outputs], false)],
        }
    }
}

/// A factor of a matmul on the host: a matrix, row-major, or its transpose.
struct Factor {
    numbers: Vec<f32>,
    stored: [usize; 2],
    transposed: bool,
}

impl Factor {
    fn tensor(&self, precision: Precision, device: &Device) -> Tensor<2> {
        let data = TensorData::new(self.numbers.clone(), self.stored);
        let tensor = Tensor::<2>::from_data(data, device).cast(precision.dtype());
        if self.transposed { tensor.transpose() } else { tensor }
    }

    fn dims(&self) -> [usize; 2] {
        let [rows, columns] = self.stored;
        if self.transposed { [columns, rows] } else { self.stored }
    }

    fn at(&self, row: usize, column: usize) -> f64 {
        let [row, column] = if self.transposed { [column, row] } else { [row, column] };
        f64::from(self.numbers[row * self.stored[1] + column])
    }

    /// Computes one entry of a matmul.
    fn dot(&self, row: usize, other: &Factor, column: usize) -> f64 {
        (0..self.dims()[1]).map(|at| self.at(row, at) * other.at(at, column)).sum()
    }

    /// Computes the product with a vector.
    fn times(&self, vector: &[f64]) -> Vec<f64> {
        let width = self.stored[1];
        let rows = || self.numbers.chunks_exact(width);
        on_all_cores(self.dims()[0], |part| {
            if !self.transposed {
                let dot =
                    |row: &[f32]| row.iter().zip(vector).map(|(&x, y)| f64::from(x) * y).sum();
                return rows().skip(part.start).take(part.len()).map(dot).collect();
            }

            // A transposed factor is read row by row too, as it is stored.
            let mut sums = vec![0.0; part.len()];
            for (row, factor) in rows().zip(vector) {
                for (sum, &x) in sums.iter_mut().zip(&row[part.clone()]) {
                    *sum += f64::from(x) * factor;
                }
            }
            sums
        })
    }
}

/// Multiplies batches by burn's matmul, as recurrent layers and plain attention do.
fn batched(device: &Device, precision: Precision) -> Result<Vec<Array>, Failure> {
    let format = precision.dtype();
    let mut arrays = Vec::new();
    for [heads, rows, inner, columns] in [[12, 64, 128, 64], [3, 300, 64, 300], [4, 77, 129, 33]] {
        let [x, y, across] = [
            ([2, heads, rows, inner], 1),
            ([2, heads, inner, columns], 2),
            ([2, heads, columns, inner], 3),
        ]
        .map(|(shape, salt)| Noise::new(salt).tensor(shape, device).cast(format));

        let name = format!("{heads} of {rows}×{inner}×{columns}");
        arrays.push(Array::new(format!("{name}, x·y"), values(x.clone().matmul(y))?));
        arrays.push(Array::new(format!("{name}, x·yᵀ"), values(x.matmul(across.swap_dims(2, 3)))?));
    }
    Ok(arrays)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Outcome, suite::compare};

    const SIZES: [Product; 4] =
        [forward(17, 96, 200), backward(64, 80, 140), weight(512, 130, 190), forward(4096, 40, 70)];

    fn bound() -> f64 {
        Tolerance::LONG_SUM.relative(Precision::F32)
    }

    /// Returns the sizes of the matmuls in which a wrong multiplication is noticed.
    fn seen(wrong: impl Fn(Product, Tensor<2>) -> Tensor<2>) -> Vec<usize> {
        let seen = |of: &&Product| {
            let multiply = |of, x, y, compute| wrong(of, multiplied(of, x, y, compute));
            let arrays = checked(**of, Precision::F32, &Device::flex(), multiply).unwrap();
            matches!(compare(&arrays, None, bound()), Outcome::Failed { .. })
        };
        SIZES.iter().filter(seen).map(|of| of.rows).collect()
    }

    #[test]
    fn a_product_that_is_a_hundredth_off_at_one_size_fails_there_and_nowhere_else() {
        assert!(seen(|_, y| y).is_empty());
        let off = |of: Product, y: Tensor<2>| if of.rows == 512 { y.mul_scalar(1.01) } else { y };
        assert_eq!(seen(off), [512]);
    }

    #[test]
    fn a_wrong_tile_row_column_or_entry_is_seen_at_every_size() {
        let all_rows = SIZES.map(|of| of.rows).to_vec();
        let without =
            |y: Tensor<2>, rows: std::ops::Range<usize>, columns: std::ops::Range<usize>| {
                let [height, width] = y.dims();
                let rows = rows.start..rows.end.min(height);
                let columns = columns.start..columns.end.min(width);
                let nothing = Tensor::zeros([rows.len(), columns.len()], &y.device());
                y.slice_assign([rows, columns], nothing)
            };

        assert_eq!(seen(|_, y| without(y, 0..16, 32..48)), all_rows);
        assert_eq!(seen(|_, y| without(y, 5..6, 0..1000)), all_rows);
        assert_eq!(seen(|_, y| without(y, 0..5000, 69..70)), all_rows);
        assert_eq!(seen(|_, y| without(y, 11..12, 37..38)), all_rows);
        assert_eq!(seen(|_, y| y.mul_scalar(f32::NAN)), all_rows);
    }

    /// Casts to f16, which has the 11 bits of TF32.
    #[test]
    fn factors_that_are_rounded_to_tf32_are_seen() {
        for of in SIZES {
            let rounded = |of, x: Tensor<2>, y: Tensor<2>, compute| {
                let [x, y] = [x, y].map(|factor| factor.cast(Precision::F16.dtype()));
                multiplied(of, x, y, compute)
            };
            let arrays = checked(of, Precision::F32, &Device::flex(), rounded).unwrap();
            let outcome = compare(&arrays, None, bound());
            assert!(matches!(outcome, Outcome::Failed { .. }), "{of:?}: {outcome:?}");
        }
    }

    #[test]
    fn a_step_that_a_sum_leaves_out_is_seen() {
        for of in SIZES {
            let short = |of, x: Tensor<2>, y: Tensor<2>, compute| {
                // The last term of every sum is missing.
                let inner = y.dims()[0] - 1;
                multiplied(of, x.narrow(1, 0, inner), y.narrow(0, 0, inner), compute)
            };
            let arrays = checked(of, Precision::F32, &Device::flex(), short).unwrap();
            let outcome = compare(&arrays, None, bound());
            assert!(matches!(outcome, Outcome::Failed { .. }), "{of:?}: {outcome:?}");
        }
    }

    #[test]
    fn the_host_checks_corners_borders_and_every_row_of_tiles() {
        let positions = positions([4096, 12288], 4096);
        for corner in [[0, 0], [0, 12287], [4095, 0], [4095, 12287]] {
            assert!(positions.contains(&corner));
        }

        for border in [63, 64, 65, 2047, 2048, 2049, 4094, 4095] {
            assert!(positions.iter().any(|&[row, _]| row == border), "row {border}");
            assert!(positions.iter().any(|&[_, column]| column == border), "column {border}");
        }

        for tile in 0..64 {
            assert!(positions.iter().any(|&[row, _]| row / 64 == tile));
        }

        assert_eq!(borders(1), [0]);
        assert_eq!(borders(66), [0, 1, 63, 64, 65]);
    }
}
