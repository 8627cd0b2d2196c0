//! The attention of `pages` in `fragments`. Keys and values are loaded from memory into the registers of the units that
//! multiply them, without shared memory in between. A unit reads eight neighbouring numbers in one load, and uses them
//! as the four pairs that matrix units expect. If both factors of a matmul are read this way, only the order of its
//! terms changes; and if values are, only that of its columns.

use super::{
    block_table::{TOKENS, is_visible, slot},
    fragments::{Factors, LINE, Line, OWN, Pair, Softmax, Sums, UNSEEN, add_matrix, own_column},
    *,
};

/// Planes in a cube. Each processes a part of the cube's tokens.
const PLANES: usize = 4;

/// Tokens that a plane processes.
const OF_PLANE: usize = TOKENS / PLANES;

/// Upper bound on the query heads of one cube.
pub(super) const HEADS: usize = OWN;

/// Numbers of a row that the units of a plane read together: this many form the sums of entire matrices.
pub(super) const WIDTH: usize = 64;

pub(super) fn dim() -> CubeDim {
    CubeDim::new_1d(32 * PLANES as u32)
}

/// Computes attention over some of a row's pages, for some heads of its query that share a head of keys, as
/// `pages::attend_pages` does. If no row has other pages, the output is written; otherwise, the partial results to be
/// joined.
#[cube(launch)]
pub(super) fn attend_pages<X: Float>(
    query: &[Vector<X, Line>],
    keys: &[Vector<X, Line>],
    values: &[Vector<X, Line>],
    pages: &[u32],
    newest: &[i32],
    parts: &mut [f32],
    output: &mut [X],
    kv_heads: usize,
    groups: usize,
    across: usize,
    chunks: usize,
    window: u32,
    #[comptime] heads: usize,
    #[comptime] width: usize,
    #[comptime] alone: bool,
    #[define(X)] _format: ElemType,
) {
    let chunk = CUBE_POS % chunks;
    let of_row = kv_heads * groups;
    let group = CUBE_POS / chunks % of_row;
    let row = CUBE_POS / chunks / of_row;
    if row < newest.len() {
        let kv_head = group / groups;
        let last = newest[row] as usize;
        let first = chunk * TOKENS;
        let in_window = first <= last && last - min(first + TOKENS - 1, last) < window as usize;
        if in_window {
            let plane = UNIT_POS as usize / 32;
            let query = read_heads::<X>(query, (row * of_row + group) * heads, heads, width);
            let mut sums = Sums::zeros(width);
            let mut softmax = Softmax::new();

            let mut start = first + plane * OF_PLANE;
            let end = min(start + OF_PLANE, last + 1);

            while start < end {
                let rows =
                    Tokens { row: row * across, start, last, heads: kv_heads, head: kv_head };
                let keys = rows.keys::<X>(keys, pages, width);
                let values = rows.values::<X>(values, pages, width);

                let mut scores = scores::<X>(&query, &keys, width);
                rows.mask(&mut scores, window, width);
                softmax.take_in(&mut scores, &mut sums, comptime!(at_once(width)), width);
                add_weighted::<X>(&scores, &values, &mut sums, width);
                start += comptime!(at_once(width));
            }

            let at = (row * of_row + group) * heads;
            // Each plane has processed different tokens, so their results are joined in shared memory.
            let mut results = PlaneResults::new(heads, width);
            results.put(&sums, &softmax, heads, width);
            sync_cube();
            results.write::<X>(parts, output, at, chunk, chunks, heads, width, alone);
        }
    }
}

/// Returns the number of tokens whose keys and values a plane reads together: they take 64 registers.
const fn at_once(width: usize) -> usize {
    32 * WIDTH / width
}

/// Reads the heads of a query as factors: a unit has eight neighbouring numbers of the heads lane / 4 and lane / 4 +
/// 8, for each 32 numbers of a head. The first head is `at`.
#[cube]
fn read_heads<X: Float>(
    query: &[Vector<X, Line>],
    at: usize,
    #[comptime] heads: usize,
    #[comptime] width: usize,
) -> Sequence<Array<Vector<X, Pair>>> {
    let lane = UNIT_POS_PLANE as usize;
    let mut matrices = Sequence::<Array<Vector<X, Pair>>>::new();

    #[unroll]
    for block in 0..comptime!(width / 32) {
        let mut lines = Array::<Vector<X, Line>>::new(2usize);
        #[unroll]
        for half in 0..2usize {
            let head = lane / 4 + comptime!(8 * half);
            lines[half] = Vector::<X, Line>::cast_from(0.0f32);
            if head < heads {
                lines[half] =
                    query[(at + head) * comptime!(width / LINE) + comptime!(4 * block) + lane % 4];
            }
        }

        #[unroll]
        for step in 0..2usize {
            let mut matrix = Array::<Vector<X, Pair>>::new(4usize);
            #[unroll]
            for side in 0..2usize {
                let of = comptime!(4 * step + 2 * side);
                matrix[comptime!(2 * side)] = pair(lines[0], of, lines[0], comptime!(of + 1));
                matrix[comptime!(2 * side + 1)] = pair(lines[1], of, lines[1], comptime!(of + 1));
            }
            matrices.push(matrix);
        }
    }

    matrices
}

/// Pairs a number of a line with one of another line.
#[cube]
fn pair<X: Float>(
    x: Vector<X, Line>,
    #[comptime] of_x: usize,
    y: Vector<X, Line>,
    #[comptime] of_y: usize,
) -> Vector<X, Pair> {
    let mut pair = Vector::<X, Pair>::empty();
    pair.insert(0usize, x.extract(of_x));
    pair.insert(1usize, y.extract(of_y));
    pair
}

/// Some tokens of a row, starting at `start`, for a head of keys. Beyond the last token, it is read again, and gets no
/// weight there.
#[derive(CubeType, Clone, Copy)]
struct Tokens {
    /// Where the row's pages begin.
    row: usize,
    start: usize,
    last: usize,
    heads: usize,
    head: usize,
}

#[cube]
impl Tokens {
    /// Returns the first line of a token.
    fn line(&self, pages: &[u32], token: usize, #[comptime] width: usize) -> usize {
        let slot = slot(pages, self.row, min(token, self.last));
        (slot * self.heads + self.head) * comptime!(width / LINE)
    }

    /// Reads keys: of each 8 tokens, a unit has that of lane / 4, and eight numbers of each 32.
    fn keys<X: Float>(
        &self,
        keys: &[Vector<X, Line>],
        pages: &[u32],
        #[comptime] width: usize,
    ) -> Array<Vector<X, Line>> {
        let lane = UNIT_POS_PLANE as usize;
        let mut read = Array::<Vector<X, Line>>::new(comptime!(at_once(width) / 8 * (width / 32)));

        #[unroll]
        for rows in 0..comptime!(at_once(width) / 8) {
            let from = self.line(pages, self.start + comptime!(8 * rows) + lane / 4, width);
            #[unroll]
            for block in 0..comptime!(width / 32) {
                read[comptime!(rows * (width / 32) + block)] =
                    keys[from + comptime!(4 * block) + lane % 4];
            }
        }
        read
    }

    /// Reads values: of each 16 tokens, a unit has four, and eight numbers of each 64.
    fn values<X: Float>(
        &self,
        values: &[Vector<X, Line>],
        pages: &[u32],
        #[comptime] width: usize,
    ) -> Array<Vector<X, Line>> {
        let lane = UNIT_POS_PLANE as usize;
        let mut read =
            Array::<Vector<X, Line>>::new(comptime!(at_once(width) / 4 * (width / WIDTH)));

        #[unroll]
        for of_four in 0..comptime!(at_once(width) / 4) {
            // A matrix has two neighbours, and the two that are 8 rows after them.
            let within = comptime!(of_four / 4 * 16 + of_four / 2 % 2 * 8 + of_four % 2);
            let from = self.line(pages, self.start + within + lane % 4 * 2, width);
            #[unroll]
            for block in 0..comptime!(width / WIDTH) {
                read[comptime!(of_four * (width / WIDTH) + block)] =
                    values[from + comptime!(8 * block) + lane / 4];
            }
        }
        read
    }

    /// Replaces with [`UNSEEN`] the scores of masked tokens.
    fn mask(&self, scores: &mut Sums, window: u32, #[comptime] width: usize) {
        #[unroll]
        for at in 0..comptime!(at_once(width) / 8) {
            let matrix = scores.matrices.index_mut(at);
            #[unroll]
            for half in 0..2usize {
                let mut pair = matrix[half];
                #[unroll]
                for side in 0..2usize {
                    let token = self.start + own_column(at) + side;
                    let seen = is_visible(token, self.last, window);
                    pair.insert(side, select(seen, pair.extract(side), f32::new(UNSEEN)));
                }
                matrix[half] = pair;
            }
        }
    }
}

/// Multiplies the heads of a query by the keys of [`Tokens::keys`].
#[cube]
fn scores<X: Float>(
    query: &Sequence<Array<Vector<X, Pair>>>,
    keys: &Array<Vector<X, Line>>,
    #[comptime] width: usize,
) -> Sums {
    let mut sums = Sums::zeros(comptime!(at_once(width)));

    #[unroll]
    for block in 0..comptime!(width / 32) {
        #[unroll]
        for rows in 0..comptime!(at_once(width) / 8) {
            let line = keys[comptime!(rows * (width / 32) + block)];
            #[unroll]
            for step in 0..2usize {
                let from = comptime!(4 * step);
                add_matrix::<X>(
                    query.index(comptime!(2 * block + step)),
                    pair(line, from, line, comptime!(from + 1)),
                    pair(line, comptime!(from + 2), line, comptime!(from + 3)),
                    sums.matrices.index_mut(rows),
                );
            }
        }
    }
    sums
}

/// Adds to `sums` the values of [`Tokens::values`], weighted. Matrix `m` of the sums has the number m mod 8 of each
/// line of its block m / 8.
#[cube]
fn add_weighted<X: Float>(
    weights: &Sums,
    values: &Array<Vector<X, Line>>,
    sums: &mut Sums,
    #[comptime] width: usize,
) {
    let weights = Factors::<X>::round(weights, comptime!(at_once(width)));
    let blocks = comptime!(width / WIDTH);

    #[unroll]
    for step in 0..comptime!(at_once(width) / OWN) {
        #[unroll]
        for matrix in 0..comptime!(width / 8) {
            let from = comptime!(4 * step * blocks + matrix / 8);
            let of = comptime!(matrix % 8);
            add_matrix::<X>(
                weights.matrices.index(step),
                pair(values[from], of, values[comptime!(from + blocks)], of),
                pair(
                    values[comptime!(from + 2 * blocks)],
                    of,
                    values[comptime!(from + 3 * blocks)],
                    of,
                ),
                sums.matrices.index_mut(matrix),
            );
        }
    }
}

/// Results of a cube's planes for each head, in shared memory.
#[derive(CubeType)]
struct PlaneResults {
    sums: Shared<[f32]>,
    largest: Shared<[f32]>,
    weights: Shared<[f32]>,
}

#[cube]
impl PlaneResults {
    fn new(#[comptime] heads: usize, #[comptime] width: usize) -> Self {
        PlaneResults {
            sums: Shared::<[f32]>::new_slice(comptime!(PLANES * heads * (width + 8))),
            largest: Shared::<[f32]>::new_slice(comptime!(PLANES * heads)),
            weights: Shared::<[f32]>::new_slice(comptime!(PLANES * heads)),
        }
    }

    /// Stores a plane's results. Its sums are in the order of their matrices: neighbouring units have neighbours there.
    fn put(
        &mut self,
        sums: &Sums,
        softmax: &Softmax,
        #[comptime] heads: usize,
        #[comptime] width: usize,
    ) {
        let lane = UNIT_POS_PLANE as usize;
        let plane = UNIT_POS as usize / 32;
        let totals = softmax.totals();

        #[unroll]
        for half in 0..comptime!(heads.div_ceil(8)) {
            let head = lane / 4 + comptime!(8 * half);
            if head < heads {
                let at = plane * heads + head;
                let of_four = lane % 4;
                if of_four == 0 {
                    self.largest[at] = softmax.largest[half];
                    self.weights[at] = totals[half];
                }

                #[unroll]
                for matrix in 0..comptime!(width / 8) {
                    let pair = sums.matrices.index(matrix)[half];
                    let to = at * comptime!(width + 8) + own_column(matrix);
                    self.sums[to] = pair.extract(0usize);
                    self.sums[to + 1] = pair.extract(1usize);
                }
            }
        }
    }

    /// Adds up the planes' results, one after the other.
    #[allow(clippy::too_many_arguments, reason = "they say where a cube's heads lie")]
    fn write<X: Float>(
        &self,
        parts: &mut [f32],
        output: &mut [X],
        head_at: usize,
        chunk: usize,
        chunks: usize,
        #[comptime] heads: usize,
        #[comptime] width: usize,
        #[comptime] alone: bool,
    ) {
        let mut at = UNIT_POS as usize;
        while at < comptime!(heads * width) {
            let (head, number) = (at / width, at % width);
            // Matrix m has the number m mod 8 of each line of its block.
            let sum_of = number / WIDTH * WIDTH + number % LINE * 8 + number % WIDTH / LINE;

            // Each plane's sums are relative to its own largest score: rescale all to the largest of them.
            let mut most = f32::new(UNSEEN);
            #[unroll]
            for plane in 0..PLANES {
                most = max(most, self.largest[plane * heads + head]);
            }

            let mut all = f32::new(0.0);
            let mut sum = f32::new(0.0);
            #[unroll]
            for plane in 0..PLANES {
                let of = plane * heads + head;
                let kept = (self.largest[of] - most).exp();
                all += self.sums[of * comptime!(width + 8) + sum_of] * kept;
                sum += self.weights[of] * kept;
            }

            if alone {
                output[(head_at + head) * width + number] = X::cast_from(all / sum);
            } else {
                let to = ((head_at + head) * chunks + chunk) * comptime!(width + 2);
                parts[to + number] = all;
                if number == 0 {
                    parts[to + width] = most;
                    parts[to + width + 1] = sum;
                }
            }
            at += comptime!(32 * PLANES);
        }
    }
}
