//! Matmuls whose numbers stay in registers from one matmul to the next, on devices that specify which unit has which
//! number: CUDA's since sm_80.
//!
//! A plane has 16 rows. Unit `u` has the numbers 2·(u mod 4) and 2·(u mod 4) + 1 of each 8 columns of a result, in the
//! rows u / 4 and u / 4 + 8; the same holds for the left factor (PTX ISA, "Matrix fragments for mma.m16n8k16"). A
//! result is therefore a left factor without leaving its registers.

use super::{
    tiles::{Rows, STRIP},
    *,
};
use cubecl::{
    ir::features::MmaConfig,
    prelude::cmma::{MatrixIdent, MmaDefinition},
};

/// Rows of a plane, and of a plan's items.
pub(super) const OWN: usize = STRIP;

/// Numbers that are read and written together: 16 bytes.
pub(super) const LINE: usize = 8;

/// Maximum width of a head whose sums fit into the registers.
const WIDEST: usize = 128;

pub(super) type Line = Const<LINE>;
pub(super) type Pair = Const<2>;

/// Score of a masked key, and the largest score before the first key that is not masked. It is so small that it stays
/// below [`NONE`] when divided by the root of a width.
pub(super) const UNSEEN: f64 = -1e34;

/// Logarithm of no weight at all. Every score is larger.
pub(super) const NONE: f64 = -1e30;

/// Shape of a tile of scores: 16 rows for each plane, and `columns` columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Fragments {
    planes: usize,
    pub(super) columns: usize,
    pub(super) width: usize,
}

impl Fragments {
    /// Returns the shape of tiles for heads of a width, with up to `columns` columns. `None` if a device has no such
    /// matrix instructions for the format.
    pub(super) fn new(x: &Buffer, planes: usize, columns: usize, width: usize) -> Option<Self> {
        let fits = serve(x) && width.is_multiple_of(OWN) && width <= WIDEST;
        // All units read a tile's columns, and each has few registers for them.
        fits.then_some(Fragments { planes, columns: columns.min(OWN * planes), width })
    }

    pub(super) fn dim(&self) -> CubeDim {
        CubeDim::new_1d(self.units() as u32)
    }

    const fn units(&self) -> usize {
        32 * self.planes
    }

    /// Returns how many rows a tile has.
    pub(super) const fn down(&self) -> usize {
        OWN * self.planes
    }

    /// Returns how many lines a row has.
    const fn lines(&self) -> usize {
        self.width / LINE
    }

    /// Returns the step from one row in shared memory to the next, in lines. With one line more than a row has, eight
    /// rows that are read together are in different banks.
    const fn pitch(&self) -> usize {
        self.lines() + 1
    }

    /// Returns how many lines of a tile's columns a unit reads.
    pub(super) const fn fetched(&self) -> usize {
        (self.columns * self.lines()).div_ceil(self.units())
    }

    /// Returns how many matrices of 16 rows and columns a row of a head makes.
    pub(super) const fn across(&self) -> usize {
        self.width / OWN
    }
}

/// Tells whether a device has such matrix instructions for the format of `x`.
pub(super) fn serve(x: &Buffer) -> bool {
    let matmul = &x.client.properties().features.matmul;
    let [a_type, b_type] = [format(x); 2];
    let cd_type = ElemType::Float(FloatKind::F32);
    matmul.mma.contains(&MmaConfig { a_type, b_type, cd_type, m: 16, n: 8, k: 16 })
        && matmul.ldmatrix.contains(&format(x))
}

/// Rows in shared memory, those of one tile's columns next to those of the next: while one is read, the other is
/// written.
#[derive(CubeType)]
pub(super) struct Stage<X: Float> {
    lines: Shared<[Vector<X, Line>]>,
}

#[cube]
impl<X: Float> Stage<X> {
    pub(super) fn new(#[comptime] shape: Fragments) -> Self {
        Stage::<X> {
            lines: Shared::<[Vector<X, Line>]>::new_aligned_slice(
                comptime!(2 * shape.columns * shape.pitch()),
                16usize,
            ),
        }
    }

    /// Writes the lines that [`fetch`] read to a tile's side.
    pub(super) fn put(
        &mut self,
        fetched: &Array<Vector<X, Line>>,
        tile: usize,
        #[comptime] shape: Fragments,
    ) {
        let lines = comptime!(shape.lines());
        #[unroll]
        for at in 0..comptime!(shape.fetched()) {
            let line = UNIT_POS as usize + comptime!(shape.units()) * at;
            if line < comptime!(shape.columns * shape.lines()) {
                let row = tile % 2 * shape.columns + line / lines;
                self.lines[row * comptime!(shape.pitch()) + line % lines] = fetched[at];
            }
        }
    }

    /// Reads a left factor: of 16 rows starting at `rows`, the numbers starting at `16 · step`.
    pub(super) fn left(
        &self,
        tile: usize,
        rows: usize,
        #[comptime] step: usize,
        #[comptime] shape: Fragments,
    ) -> Array<Vector<X, Pair>> {
        let lane = UNIT_POS_PLANE as usize;
        let row = tile % 2 * shape.columns + rows + lane % 16;
        let at = row * comptime!(shape.pitch()) + comptime!(2 * step) + lane / 16;
        self.load(at, MatrixIdent::A, false)
    }

    /// Reads two right factors of 16 rows by 8 columns, in which a row of the stage is a column: of 16 rows starting at
    /// `rows`, the numbers starting at `16 · step`.
    pub(super) fn right_across(
        &self,
        tile: usize,
        rows: usize,
        #[comptime] step: usize,
        #[comptime] shape: Fragments,
    ) -> Array<Vector<X, Pair>> {
        let lane = UNIT_POS_PLANE as usize;
        let row = tile % 2 * shape.columns + rows + lane % 8 + lane / 16 * 8;
        let at = row * comptime!(shape.pitch()) + comptime!(2 * step) + lane / 8 % 2;
        self.load(at, MatrixIdent::B, false)
    }

    /// Reads two right factors of 16 rows by 8 columns, in which a row of the stage is a row: those of the rows
    /// starting at `16 · step`, and of the numbers starting at `16 · numbers`.
    fn right(
        &self,
        tile: usize,
        #[comptime] step: usize,
        #[comptime] numbers: usize,
        #[comptime] shape: Fragments,
    ) -> Array<Vector<X, Pair>> {
        let lane = UNIT_POS_PLANE as usize;
        let row = tile % 2 * shape.columns + comptime!(OWN * step) + lane % 16;
        let at = row * comptime!(shape.pitch()) + comptime!(2 * numbers) + lane / 16;
        self.load(at, MatrixIdent::B, true)
    }

    /// Reads four matrices of 8 by 8 numbers. Each unit names a line of one of them.
    fn load(
        &self,
        line: usize,
        #[comptime] ident: MatrixIdent,
        #[comptime] transposed: bool,
    ) -> Array<Vector<X, Pair>> {
        let of = MmaDefinition::<X, X, f32>::new(16usize, 8usize, 16usize);
        of.load_matrix::<Vector<X, Line>, Pair>(
            &self.lines[line..line + 1],
            ident,
            4usize,
            transposed,
        )
    }
}

/// Adjacent matrices of 16 rows by 8 columns: the results of a plane.
#[derive(CubeType)]
pub(super) struct Sums {
    pub(super) matrices: Sequence<Array<Vector<f32, Pair>>>,
}

#[cube]
impl Sums {
    /// Makes zeros, with `columns` columns.
    pub(super) fn zeros(#[comptime] columns: usize) -> Self {
        let mut matrices = Sequence::<Array<Vector<f32, Pair>>>::new();
        #[unroll]
        for _ in 0..comptime!(columns / 8) {
            let mut matrix = Array::<Vector<f32, Pair>>::new(2usize);
            matrix[0] = Vector::<f32, Pair>::new(0.0);
            matrix[1] = Vector::<f32, Pair>::new(0.0);
            matrices.push(matrix);
        }
        Sums { matrices }
    }

    /// Adds the products of a left factor and two right ones to the columns starting at `16 · at`.
    pub(super) fn add<X: Float>(
        &mut self,
        left: &Array<Vector<X, Pair>>,
        right: &Array<Vector<X, Pair>>,
        #[comptime] at: usize,
    ) {
        #[unroll]
        for side in 0..2usize {
            add_matrix::<X>(
                left,
                right[comptime!(2 * side)],
                right[comptime!(2 * side + 1)],
                self.matrices.index_mut(comptime!(2 * at + side)),
            );
        }
    }

    /// Multiplies the upper (0) or lower (1) row of a unit by a number.
    pub(super) fn scale(&mut self, by: f32, #[comptime] half: usize, #[comptime] columns: usize) {
        #[unroll]
        for at in 0..comptime!(columns / 8) {
            let matrix = self.matrices.index_mut(at);
            matrix[half] *= Vector::<f32, Pair>::new(by);
        }
    }

    /// Writes the rows of a plane that are before `of_y.end` to the rows starting at `to`.
    pub(super) fn write(
        &self,
        y: &mut [Vector<f32, Pair>],
        to: usize,
        of_y: &Rows,
        #[comptime] shape: Fragments,
    ) {
        #[unroll]
        for half in 0..2usize {
            let row = own_row(half);
            if of_y.first + row < of_y.end {
                let from = ((to + row) * of_y.heads + of_y.head) * comptime!(shape.width / 2)
                    + UNIT_POS_PLANE as usize % 4;
                #[unroll]
                for at in 0..comptime!(shape.width / 8) {
                    let matrix = self.matrices.index(at);
                    y[from + comptime!(4 * at)] = matrix[half];
                }
            }
        }
    }
}

/// Largest score of a unit's two rows so far, and the unit's part of their sums of weights.
#[derive(CubeType)]
pub(super) struct Softmax {
    pub(super) largest: Array<f32>,
    weights: Array<f32>,
}

#[cube]
impl Softmax {
    pub(super) fn new() -> Self {
        let mut largest = Array::<f32>::new(2usize);
        let mut weights = Array::<f32>::new(2usize);
        #[unroll]
        for half in 0..2usize {
            largest[half] = f32::new(UNSEEN);
            weights[half] = f32::new(0.0);
        }
        Softmax { largest, weights }
    }

    /// Turns the scores of more columns into weights. They are not divided by the root of the width yet. The weighted
    /// sums of earlier columns are rescaled if a larger score is found.
    pub(super) fn take_in(
        &mut self,
        scores: &mut Sums,
        sums: &mut Sums,
        #[comptime] columns: usize,
        #[comptime] width: usize,
    ) {
        let scale = 1.0 / f32::cast_from(comptime!(width as u32)).sqrt();

        #[unroll]
        for half in 0..2usize {
            let mut most = f32::new(UNSEEN);
            #[unroll]
            for at in 0..comptime!(columns / 8) {
                let pair = scores.matrices.index(at)[half];
                most = max(most, max(pair.extract(0usize), pair.extract(1usize)));
            }
            most = max(self.largest[half], of_row(most, true) * scale);
            // As long as all keys are masked, no score has weight.
            let base = select(most > f32::new(NONE), most, 0.0);
            let kept = (self.largest[half] - base).exp();
            self.largest[half] = most;

            let mut sum = self.weights[half] * kept;
            #[unroll]
            for at in 0..comptime!(columns / 8) {
                let matrix = scores.matrices.index_mut(at);
                let mut pair = matrix[half];
                #[unroll]
                for side in 0..2usize {
                    let weight = (pair.extract(side) * scale - base).exp();
                    sum += weight;
                    pair.insert(side, weight);
                }
                matrix[half] = pair;
            }

            self.weights[half] = sum;
            sums.scale(kept, half, width);
        }
    }

    /// Sums the weights of all units of a row: its two rows' sums.
    pub(super) fn totals(&self) -> Array<f32> {
        let mut totals = Array::<f32>::new(2usize);
        #[unroll]
        for half in 0..2usize {
            totals[half] = of_row(self.weights[half], false);
        }
        totals
    }
}

/// Adjacent left factors of 16 rows by 16 columns.
#[derive(CubeType)]
pub(super) struct Factors<X: Float> {
    pub(super) matrices: Sequence<Array<Vector<X, Pair>>>,
}

#[cube]
impl<X: Float> Factors<X> {
    /// Reads a plane's rows of numbers, with zeros at and after `of_x.end`.
    pub(super) fn read(x: &[Vector<X, Line>], of_x: &Rows, #[comptime] shape: Fragments) -> Self {
        let x = x.with_vector_size::<Pair>();
        let mut matrices = Sequence::<Array<Vector<X, Pair>>>::new();

        #[unroll]
        for step in 0..comptime!(shape.across()) {
            let mut matrix = Array::<Vector<X, Pair>>::new(4usize);
            #[unroll]
            for half in 0..2usize {
                let token = of_x.first + own_row(half);
                let mut near = Vector::<X, Pair>::cast_from(0.0f32);
                let mut far = Vector::<X, Pair>::cast_from(0.0f32);
                if token < of_x.end {
                    let at = (token * of_x.heads + of_x.head) * comptime!(shape.width / 2)
                        + comptime!(8 * step)
                        + UNIT_POS_PLANE as usize % 4;
                    near = x[at];
                    far = x[at + 4];
                }

                matrix[half] = near;
                matrix[half + 2] = far;
            }
            matrices.push(matrix);
        }

        Factors::<X> { matrices }
    }

    /// Rounds results to factors.
    pub(super) fn round(sums: &Sums, #[comptime] columns: usize) -> Self {
        let mut matrices = Sequence::<Array<Vector<X, Pair>>>::new();
        #[unroll]
        for at in 0..comptime!(columns / OWN) {
            let mut matrix = Array::<Vector<X, Pair>>::new(4usize);
            #[unroll]
            for side in 0..2usize {
                let sum = sums.matrices.index(comptime!(2 * at + side));
                matrix[comptime!(2 * side)] = Vector::<X, Pair>::cast_from(sum[0]);
                matrix[comptime!(2 * side + 1)] = Vector::<X, Pair>::cast_from(sum[1]);
            }
            matrices.push(matrix);
        }

        Factors::<X> { matrices }
    }

    /// Multiplies the rows by those of a tile's columns: a tile of scores.
    pub(super) fn scores(
        &self,
        right: &Stage<X>,
        tile: usize,
        #[comptime] shape: Fragments,
    ) -> Sums {
        let mut sums = Sums::zeros(shape.columns);
        #[unroll]
        for step in 0..comptime!(shape.across()) {
            #[unroll]
            for rows in 0..comptime!(shape.columns / OWN) {
                let right = right.right_across(tile, comptime!(OWN * rows), step, shape);
                sums.add::<X>(self.matrices.index(step), &right, rows);
            }
        }
        sums
    }

    /// Adds to `sums` the weighted rows of a tile's columns, where the numbers here are the weights.
    pub(super) fn add_weighted(
        &self,
        right: &Stage<X>,
        tile: usize,
        sums: &mut Sums,
        #[comptime] shape: Fragments,
    ) {
        #[unroll]
        for step in 0..comptime!(shape.columns / OWN) {
            #[unroll]
            for numbers in 0..comptime!(shape.across()) {
                let right = right.right(tile, step, numbers, shape);
                sums.add::<X>(self.matrices.index(step), &right, numbers);
            }
        }
    }
}

/// Adds the product of a left factor and a right one, whose upper and lower rows a unit has, to a result.
#[cube]
pub(super) fn add_matrix<X: Float>(
    left: &Array<Vector<X, Pair>>,
    upper: Vector<X, Pair>,
    lower: Vector<X, Pair>,
    sum: &mut Array<Vector<f32, Pair>>,
) {
    let mut right = Array::<Vector<X, Pair>>::new(2usize);
    right[0] = upper;
    right[1] = lower;
    let of = MmaDefinition::<X, X, f32>::new(16usize, 8usize, 16usize);
    of.execute_inplace(left, &right, sum);
}

/// Reads the lines of rows that a unit loads into a [`Stage`], starting at `start` and with zeros at and after
/// `of_x.end`.
#[cube]
pub(super) fn fetch<X: Float>(
    x: &[Vector<X, Line>],
    of_x: &Rows,
    fetched: &mut Array<Vector<X, Line>>,
    #[comptime] shape: Fragments,
) {
    let lines = comptime!(shape.lines());
    #[unroll]
    for at in 0..comptime!(shape.fetched()) {
        let line = UNIT_POS as usize + comptime!(shape.units()) * at;
        let row = line / lines;
        let mut numbers = Vector::<X, Line>::cast_from(0.0f32);
        if row < shape.columns && of_x.first + row < of_x.end {
            numbers = x[((of_x.first + row) * of_x.heads + of_x.head) * lines + line % lines];
        }
        fetched[at] = numbers;
    }
}

/// Returns the index of the upper (0) or lower (1) row that a unit has, among those of a tile.
#[cube]
pub(super) fn own_row(#[comptime] half: usize) -> usize {
    UNIT_POS as usize / 32 * OWN + UNIT_POS_PLANE as usize / 4 + comptime!(8 * half)
}

/// Returns the index of the first of two columns of a matrix that a unit has, among those of a tile.
#[cube]
pub(super) fn own_column(#[comptime] matrix: usize) -> usize {
    comptime!(8 * matrix) + 2 * (UNIT_POS_PLANE as usize % 4)
}

/// Sums the numbers of the units that share a row, or finds the largest.
#[cube]
fn of_row(x: f32, #[comptime] largest: bool) -> f32 {
    let mut all = x;
    #[unroll]
    for step in 0..2u32 {
        // Four neighbouring units share a row: two exchanges reach all of them.
        let other = plane_shuffle_xor(all, comptime!(1u32 << step));
        if comptime!(largest) {
            all = max(all, other);
        } else {
            all += other;
        }
    }
    all
}
