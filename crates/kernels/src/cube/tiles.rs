//! Matmuls of tiles of up to 64 rows by 64 columns, of which attention is made. Matrix units compute them if a device
//! has such units for the format. Otherwise, each unit computes up to four by four numbers.

use super::*;
use cubecl::prelude::cmma::{Matrix, MatrixIdent, MatrixLayout};

/// Units along a tile's rows, and along its columns. It is also how many of a row's numbers matmuls process at a time,
/// and how many rows weighted sums process at a time.
pub(super) const STRIP: usize = 16;

/// Upper bound on a tile's rows and columns that one unit has.
pub(super) const EACH: usize = 4;

/// Alignment in bytes that matrix units need for the beginning of their numbers.
const ALIGNED: usize = 32;

/// How tiles are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct How {
    /// How many of a tile's rows and columns one unit has.
    pub(super) each: usize,
    /// Width of a head.
    pub(super) width: usize,
    units: Option<MatrixUnits>,
}

/// Units that multiply matrices, `m` by `k` with `k` by `n`, and add the products in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct MatrixUnits {
    m: usize,
    n: usize,
    k: usize,
    /// Lower bound on the planes in a cube. Each plane has some of a tile's matrices.
    planes: usize,
}

impl How {
    /// Picks the largest matrix units for the format of `x`, among those that tiles can be made of.
    pub(super) fn new(x: &Buffer, each: usize, width: usize) -> Self {
        let properties = x.client.properties();
        let planes = UNITS / properties.hardware.plane_size_max.clamp(1, UNITS);
        // A strip must be made of entire matrices.
        let fits = |size: u32| (STRIP as u32).is_multiple_of(size);

        let of_format = properties.features.matmul.cmma.iter().filter(|it| {
            let formats = [it.a_type, it.b_type, it.cd_type];
            formats == [format(x), format(x), ElemType::Float(FloatKind::F32)]
                && x.dtype != DType::F32
                && [it.m, it.n, it.k].into_iter().all(fits)
        });

        let units = of_format.max_by_key(|it| it.m * it.n * it.k).map(|it| {
            let [m, n, k, planes] = [it.m, it.n, it.k, planes].map(|size| size as usize);
            MatrixUnits { m, n, k, planes }
        });
        How { each, width, units }
    }

    /// Returns the matmul precision for numbers in the format of `x`.
    pub(super) fn staged(&self, x: &Buffer) -> ElemType {
        self.units.map_or(ElemType::Float(FloatKind::F32), |_| format(x))
    }

    fn matrix_units(&self) -> MatrixUnits {
        self.units.expect("tiles are multiplied by matrix units")
    }

    /// Returns how many rows and columns a tile has.
    pub(super) const fn tile(&self) -> usize {
        STRIP * self.each
    }

    /// Returns the step from one row of [`STRIP`] numbers to the next. It is larger than the row, so that neighbours
    /// are in different banks, and where matrix units need them.
    const fn pitch(&self) -> usize {
        STRIP + if self.units.is_some() { 8 } else { 1 }
    }

    /// Returns the step from one row of a tile's weights to the next.
    pub(super) const fn across(&self) -> usize {
        self.tile() + if self.units.is_some() { 8 } else { 1 }
    }

    /// Returns the step from one row of `found` to the next. A row has a tile's dot products, or one number for each
    /// unit.
    pub(super) const fn found(&self) -> usize {
        if self.units.is_some() { self.tile() + 4 } else { STRIP + 1 }
    }

    /// Returns how many of a tile's numbers one unit has.
    pub(super) const fn numbers(&self) -> usize {
        self.each * self.each
    }

    /// Returns how many tiles the numbers of a head take.
    pub(super) const fn blocks(&self) -> usize {
        self.width.div_ceil(self.tile())
    }

    /// Returns how many weighted sums one unit has: those of all tiles, one after the other.
    pub(super) const fn sums(&self) -> usize {
        self.numbers() * self.blocks()
    }

    /// Returns how many matrices a tile has, which planes share.
    const fn matrices(&self) -> usize {
        match self.units {
            Some(units) => (self.tile() / units.m) * (self.tile() / units.n),
            None => 0,
        }
    }

    /// Returns an upper bound on a tile's matrices that one plane has.
    const fn of_plane(&self) -> usize {
        match self.units {
            Some(units) => self.matrices().div_ceil(units.planes),
            None => 0,
        }
    }
}

/// Some rows of numbers, `[tokens, heads, width]`: the rows of a head, from `first` to `end`.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Rows {
    pub(super) first: usize,
    pub(super) end: usize,
    pub(super) heads: usize,
    pub(super) head: usize,
}

/// Memory that the units of a cube share for tiles: 32 KiB at most.
#[derive(CubeType)]
pub(super) struct Bench<S: Float> {
    /// A strip of each of the rows that are multiplied.
    left: Shared<[S]>,
    right: Shared<[S]>,
    /// Weights of a tile.
    pub(super) weights: Shared<[S]>,
    /// Results of matrix units, or one number of each unit.
    pub(super) found: Shared<[f32]>,
}

#[cube]
impl<S: Float> Bench<S> {
    pub(super) fn new(#[comptime] how: How) -> Self {
        Bench::<S> {
            left: Shared::<[S]>::new_aligned_slice(comptime!(how.tile() * how.pitch()), ALIGNED),
            right: Shared::<[S]>::new_aligned_slice(comptime!(how.tile() * how.pitch()), ALIGNED),
            weights: Shared::<[S]>::new_aligned_slice(
                comptime!(how.tile() * how.across()),
                ALIGNED,
            ),
            found: Shared::<[f32]>::new_aligned_slice(comptime!(how.tile() * how.found()), ALIGNED),
        }
    }
}

/// Computes a tile of products of the rows of `x` with those of `y`.
#[cube]
pub(super) fn products<X: Float, Y: Float, S: Float>(
    x: &[X],
    of_x: &Rows,
    y: &[Y],
    of_y: &Rows,
    bench: &mut Bench<S>,
    products: &mut Array<f32>,
    #[comptime] how: How,
) {
    let down = UNIT_POS as usize / STRIP;
    let across = UNIT_POS as usize % STRIP;
    let each = comptime!(how.each);

    #[unroll]
    for at in 0..comptime!(how.numbers()) {
        products[at] = 0.0;
    }

    let mut matrices = matrices(how);
    let mut column = 0usize;
    while column < comptime!(how.width) {
        sync_cube();

        #[unroll]
        for row in 0..each {
            let at = down + STRIP * row;
            let to = at * comptime!(how.pitch()) + across;
            bench.left[to] = number::<X, S>(x, of_x, at, column + across, how);
            bench.right[to] = number::<Y, S>(y, of_y, at, column + across, how);
        }
        sync_cube();

        if comptime!(how.units.is_some()) {
            // A column of the right matrix is a row of `y`.
            multiply::<S>(
                &bench.left,
                0,
                comptime!(how.pitch()),
                &bench.right,
                comptime!(how.pitch()),
                MatrixLayout::ColMajor,
                &mut matrices,
                how,
            );
        } else {
            for at in 0..STRIP {
                #[unroll]
                for row in 0..each {
                    let x = bench.left[(down + STRIP * row) * comptime!(how.pitch()) + at];
                    #[unroll]
                    for other in 0..each {
                        let y = bench.right[(across + STRIP * other) * comptime!(how.pitch()) + at];
                        products[row * each + other] += f32::cast_from(x) * f32::cast_from(y);
                    }
                }
            }
        }
        column += STRIP;
    }

    sync_cube();
    if comptime!(how.units.is_some()) {
        found::<S>(bench, &matrices, products, 0usize, how);
    }
}

/// Adds to `sums` the rows of `x` times their weights, which are in a tile's columns.
#[cube]
pub(super) fn weighted<X: Float, S: Float>(
    x: &[X],
    of_x: &Rows,
    bench: &mut Bench<S>,
    sums: &mut Array<f32>,
    #[comptime] how: How,
) {
    let down = UNIT_POS as usize / STRIP;
    let across = UNIT_POS as usize % STRIP;
    let each = comptime!(how.each);
    let tile = comptime!(how.tile());

    // A row of the strip is where matrix units need it.
    let pitch = comptime!(if how.units.is_some() { how.across() } else { how.tile() });

    #[unroll]
    for block in 0..comptime!(how.blocks()) {
        let mut matrices = matrices(how);
        let mut start = 0usize;
        while start < tile {
            #[unroll]
            for part in 0..each {
                let at = UNIT_POS as usize + UNITS as usize * part;
                let (row, column) = (at / tile, at % tile);
                bench.right[row * pitch + column] =
                    number::<X, S>(x, of_x, start + row, block * tile + column, how);
            }
            sync_cube();

            if comptime!(how.units.is_some()) {
                multiply::<S>(
                    &bench.weights,
                    start,
                    comptime!(how.across()),
                    &bench.right,
                    comptime!(how.across()),
                    MatrixLayout::RowMajor,
                    &mut matrices,
                    how,
                );
            } else {
                for at in 0..STRIP {
                    #[unroll]
                    for row in 0..each {
                        let weight = bench.weights
                            [(down + STRIP * row) * comptime!(how.across()) + start + at];
                        #[unroll]
                        for column in 0..each {
                            let value = bench.right[at * pitch + across + STRIP * column];
                            sums[(block * each + row) * each + column] +=
                                f32::cast_from(weight) * f32::cast_from(value);
                        }
                    }
                }
            }

            sync_cube();
            start += STRIP;
        }

        if comptime!(how.units.is_some()) {
            found::<S>(bench, &matrices, sums, block, how);
        }
    }
}

/// Writes the sums of [`weighted`] for the rows of `of_y`, times `scale`, to the rows starting at `to`.
#[cube]
pub(super) fn write(
    sums: &Array<f32>,
    y: &mut [f32],
    to: usize,
    of_y: &Rows,
    scale: f32,
    #[comptime] how: How,
) {
    let down = UNIT_POS as usize / STRIP;
    let across = UNIT_POS as usize % STRIP;
    let each = comptime!(how.each);

    #[unroll]
    for row in 0..each {
        let at = down + STRIP * row;
        if of_y.first + at < of_y.end {
            #[unroll]
            for block in 0..comptime!(how.blocks()) {
                #[unroll]
                for column in 0..each {
                    let number = block * comptime!(how.tile()) + across + STRIP * column;
                    if number < comptime!(how.width) {
                        y[((to + at) * of_y.heads + of_y.head) * comptime!(how.width) + number] =
                            sums[(block * each + row) * each + column] * scale;
                    }
                }
            }
        }
    }
}

/// Returns a number of a row, or 0 beyond the rows and after their last number.
#[cube]
fn number<X: Float, S: Float>(
    x: &[X],
    of_x: &Rows,
    row: usize,
    column: usize,
    #[comptime] how: How,
) -> S {
    let token = of_x.first + row;
    let mut number = S::new(0.0);
    if token < of_x.end && column < comptime!(how.width) {
        let at = (token * of_x.heads + of_x.head) * comptime!(how.width) + column;
        number = S::cast_from(x[at]);
    }
    number
}

/// Fills with zeros the matrices of a tile that a plane has.
#[cube]
fn matrices(#[comptime] how: How) -> Sequence<Matrix<f32>> {
    let mut matrices = Sequence::<Matrix<f32>>::new();

    #[unroll]
    for _ in 0..comptime!(how.of_plane()) {
        let units = comptime!(how.matrix_units());
        matrices.push(Matrix::<f32>::from_value(
            MatrixIdent::Accumulator,
            comptime!(units.m),
            comptime!(units.n),
            comptime!(units.k),
            MatrixLayout::Undefined,
            0.0,
        ));
    }
    matrices
}

/// Adds the products of a strip to a plane's matrices: those of `left`, starting at `start`, with `right`.
#[cube]
fn multiply<S: Float>(
    left: &Shared<[S]>,
    start: usize,
    #[comptime] left_pitch: usize,
    right: &Shared<[S]>,
    #[comptime] right_pitch: usize,
    #[comptime] right_layout: MatrixLayout,
    matrices: &mut Sequence<Matrix<f32>>,
    #[comptime] how: How,
) {
    let units = comptime!(how.matrix_units());
    let (m, n, k) = comptime!((units.m, units.n, units.k));
    let planes = (CUBE_DIM / PLANE_DIM) as usize;

    #[unroll]
    for index in 0..comptime!(how.of_plane()) {
        let at = PLANE_POS as usize + planes * index;
        if at < comptime!(how.matrices()) {
            let row = at / comptime!(how.tile() / units.n) * m;
            let column = at % comptime!(how.tile() / units.n) * n;

            #[unroll]
            for part in 0..comptime!(STRIP / units.k) {
                let from = row * left_pitch + start + part * k;
                let x = Matrix::<S>::from_slice(
                    MatrixIdent::A,
                    m,
                    n,
                    k,
                    MatrixLayout::RowMajor,
                    &left[from..left.len()],
                    left_pitch as u32,
                );

                let mut from = column * right_pitch + part * k;
                if comptime!(matches!(right_layout, MatrixLayout::RowMajor)) {
                    from = part * k * right_pitch + column;
                }
                let y = Matrix::<S>::from_slice(
                    MatrixIdent::B,
                    m,
                    n,
                    k,
                    right_layout,
                    &right[from..right.len()],
                    right_pitch as u32,
                );

                let sum = matrices.index(index);
                cmma::execute(&x, &y, sum, sum);
            }
        }
    }
}

/// Adds the planes' results to each unit's numbers of a block.
#[cube]
fn found<S: Float>(
    bench: &mut Bench<S>,
    matrices: &Sequence<Matrix<f32>>,
    sums: &mut Array<f32>,
    #[comptime] block: usize,
    #[comptime] how: How,
) {
    let units = comptime!(how.matrix_units());
    let planes = (CUBE_DIM / PLANE_DIM) as usize;

    #[unroll]
    for index in 0..comptime!(how.of_plane()) {
        let at = PLANE_POS as usize + planes * index;
        if at < comptime!(how.matrices()) {
            let row = at / comptime!(how.tile() / units.n) * comptime!(units.m);
            let column = at % comptime!(how.tile() / units.n) * comptime!(units.n);
            let to = row * comptime!(how.found()) + column;
            let end = bench.found.len();
            cmma::store(
                &mut bench.found[to..end],
                matrices.index(index),
                comptime!(how.found() as u32),
                MatrixLayout::RowMajor,
            );
        }
    }

    sync_cube();
    let down = UNIT_POS as usize / STRIP;
    let across = UNIT_POS as usize % STRIP;
    let each = comptime!(how.each);

    #[unroll]
    for row in 0..each {
        #[unroll]
        for column in 0..each {
            sums[(block * each + row) * each + column] += bench.found
                [(down + STRIP * row) * comptime!(how.found()) + across + STRIP * column];
        }
    }
}
