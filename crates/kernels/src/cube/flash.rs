//! Attention on GPUs in `fragments`: scores, weights and sums never leave the registers of the units that have them
//! (Dao 2023). Rows are queries that iterate over the keys they attend to.

use super::{
    attention::{hidden, window_of},
    fragments::{
        Factors, Fragments, Line, NONE, OWN, Pair, Softmax, Stage, Sums, UNSEEN, fetch, own_column,
        own_row,
    },
    plan::{ITEM, Plan},
    tiles::Rows,
    *,
};
use crate::{AttentionOptions, AttentionOutput, launch_ranges::launch_ranges};

/// Keys in a tile. With 64, an H200 was as fast with heads of width 64, and heads of width 128 would take more memory
/// than a cube has.
const KEYS: usize = 32;

/// Factor on the maximum work of a launch, compared with other devices. A device with such matrix instructions
/// multiplies at least this many times as fast.
pub(super) const FASTER: usize = 10;

/// Does what [`attention::forward`](super::attention::forward) does, with tiles of a shape.
pub(super) fn forward(
    [query, key, value]: &[Buffer; 3],
    plan: &Plan,
    options: AttentionOptions,
    shape: Fragments,
) -> AttentionOutput {
    let [tokens, heads, width] = query.meta.shape().dims();
    let kv_heads = key.meta.shape()[1];

    let output = plan.room(query, [tokens, heads, width]);
    let lse = plan.room(query, [tokens, heads, 1]);
    // Scores, and the weighted sum of values.
    let cost = 2 * shape.down() * heads * width;
    for items in launch_ranges(&plan.queries, |keys| keys * cost / FASTER) {
        attend::launch(
            &query.client.clone(),
            cubes(items.len() * heads),
            shape.dim(),
            query.clone().into_buffer_arg(),
            key.clone().into_buffer_arg(),
            value.clone().into_buffer_arg(),
            plan.numbers.clone().into_buffer_arg(),
            output.clone().into_buffer_arg(),
            lse.clone().into_buffer_arg(),
            tokens + items.start * ITEM,
            items.len(),
            heads,
            kv_heads,
            window_of(options.window),
            shape,
            format(query),
        );
    }

    AttentionOutput { output: tensor(output), lse: tensor(lse) }
}

/// Returns the shape of the tiles, if the device has such matrix instructions for the format.
pub(super) fn shape(query: &Buffer, plan: &Plan) -> Option<Fragments> {
    Fragments::new(query, plan.each, KEYS, query.meta.shape()[2])
}

/// Computes attention with one cube for each item of queries and each head. A query's largest score is carried along
/// with its sum of weights and its weighted sum of values.
#[cube(launch)]
fn attend<X: Float>(
    query: &[Vector<X, Line>],
    key: &[Vector<X, Line>],
    value: &[Vector<X, Line>],
    plan: &[u32],
    output: &mut [Vector<f32, Pair>],
    lse: &mut [f32],
    items: usize,
    count: usize,
    heads: usize,
    kv_heads: usize,
    window: u32,
    #[comptime] shape: Fragments,
    #[define(X)] _format: ElemType,
) {
    if CUBE_POS < count * heads {
        let head = CUBE_POS % heads;
        let kv_head = head / (heads / kv_heads);
        // Late queries of a text attend to more keys. They are computed first, so that few cubes begin them when the
        // others end.
        let item = items + (count - 1 - CUBE_POS / heads) * ITEM;
        let tiles = KeyTiles::new(plan, item, window, shape.columns);
        let queries = Rows { first: tiles.first, end: tiles.end, heads, head };

        let left = Factors::<X>::read(query, &queries, shape);
        let mut sums = Sums::zeros(shape.width);
        let mut softmax = Softmax::new();

        let mut key_stage = Stage::<X>::new(shape);
        let mut value_stage = Stage::<X>::new(shape);
        let mut keys = Array::<Vector<X, Line>>::new(shape.fetched());
        let mut values = Array::<Vector<X, Line>>::new(shape.fetched());

        let rows = tiles.rows(0, kv_heads, kv_head);
        fetch::<X>(key, &rows, &mut keys, shape);
        fetch::<X>(value, &rows, &mut values, shape);
        // Two stages alternate, so one barrier for each tile is enough.
        let mut tile = 0usize;

        while tile < tiles.count {
            key_stage.put(&keys, tile, shape);
            value_stage.put(&values, tile, shape);
            sync_cube();
            // The next tile's numbers are loaded while this one is multiplied.
            let rows = tiles.rows(tile + 1, kv_heads, kv_head);
            fetch::<X>(key, &rows, &mut keys, shape);
            fetch::<X>(value, &rows, &mut values, shape);

            let seen = tiles.seen(tile, window, shape.columns);
            if !seen.none {
                let mut scores = left.scores(&key_stage, tile, shape);
                if !seen.all {
                    seen.mask(&mut scores, shape.columns);
                }
                softmax.take_in(&mut scores, &mut sums, shape.columns, shape.width);
                let weights = Factors::<X>::round(&scores, shape.columns);
                weights.add_weighted(&value_stage, tile, &mut sums, shape);
            }
            tile += 1;
        }

        let totals = softmax.totals();
        #[unroll]
        for half in 0..2usize {
            let sum = totals[half];
            // A window may hide everything.
            sums.scale(select(sum > 0.0, 1.0 / sum, 0.0), half, shape.width);

            let token = queries.first + own_row(half);
            let of_four = UNIT_POS_PLANE % 4;
            if token < queries.end && of_four == 0 {
                lse[token * heads + head] =
                    select(sum > 0.0, softmax.largest[half] + sum.ln(), f32::new(NONE));
            }
        }

        sums.write(output, queries.first, &queries, shape);
    }
}

/// Tiles of keys that an item's queries attend to: first those before the segment, then its own.
#[derive(CubeType)]
pub(super) struct KeyTiles {
    /// Tokens of the queries.
    pub(super) first: usize,
    pub(super) end: usize,
    before: Run,
    own: Run,
    /// Number of tiles before the segment, and number of all tiles.
    before_count: usize,
    pub(super) count: usize,
    #[cube(comptime)]
    columns: usize,
}

/// Adjacent keys, and the distance of an item's first query from the first of them.
#[derive(CubeType, Clone, Copy)]
struct Run {
    start: usize,
    stop: usize,
    distance: i32,
}

#[cube]
impl KeyTiles {
    pub(super) fn new(plan: &[u32], item: usize, window: u32, #[comptime] columns: usize) -> Self {
        let first = plan[item] as usize;
        let end = plan[item + 1] as usize;
        let before =
            Run::new(plan, first, plan[item + 2] as usize, plan[item + 3] as usize, window);
        let own = Run::new(plan, first, plan[item + 4] as usize, end, window);
        let before_count = (before.stop - before.start).div_ceil(columns);
        let count = before_count + (own.stop - own.start).div_ceil(columns);
        KeyTiles { first, end, before, own, before_count, count, columns }
    }

    /// Returns a tile's keys; none after the last tile.
    pub(super) fn rows(&self, tile: usize, heads: usize, head: usize) -> Rows {
        let mut first = self.before.start + tile * self.columns;
        let mut end = self.before.stop;
        if tile >= self.before_count {
            first = self.own.start + (tile - self.before_count) * self.columns;
            end = self.own.stop;
        }
        Rows { first, end, heads, head }
    }

    /// Returns which part of a tile a plane's queries attend to.
    pub(super) fn seen(&self, tile: usize, window: u32, #[comptime] columns: usize) -> Seen {
        let mut distance = self.before.distance - (tile * columns) as i32;
        let rows = self.rows(tile, 1, 0);
        if tile >= self.before_count {
            distance = self.own.distance - ((tile - self.before_count) * columns) as i32;
        }
        Seen::new(distance, rows.end - rows.first, window, columns)
    }
}

#[cube]
impl Run {
    fn new(plan: &[u32], query: usize, start: usize, stop: usize, window: u32) -> Run {
        let start = min(start + hidden(plan, query, start, window), stop);
        Run { start, stop, distance: plan[query] as i32 - plan[start] as i32 }
    }
}

/// Which of a tile's columns the rows of a plane attend to.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Seen {
    /// Distance of a tile's first row from its first column.
    distance: i32,
    window: i32,
    /// Number of columns that exist.
    count: i32,
    pub(super) none: bool,
    pub(super) all: bool,
}

#[cube]
impl Seen {
    fn new(distance: i32, count: usize, window: u32, #[comptime] columns: usize) -> Seen {
        let window = signed(window);
        let count = min(count, columns) as i32;
        let upper = distance + (UNIT_POS as usize / 32 * OWN) as i32;
        let lower = upper + comptime!(OWN as i32 - 1);
        let last = comptime!(columns as i32 - 1);
        let none = lower < 0 || upper - count + 1 >= window;
        let all = upper >= last && lower < window && count > last;
        Seen { distance, window, count, none, all }
    }

    /// Replaces with [`UNSEEN`] the scores of columns that a row doesn't attend to.
    pub(super) fn mask(&self, scores: &mut Sums, #[comptime] columns: usize) {
        #[unroll]
        for half in 0..2usize {
            let nearest = self.distance + own_row(half) as i32;
            let farthest = nearest - self.window;
            let end = min(nearest + 1, self.count);

            #[unroll]
            for at in 0..comptime!(columns / 8) {
                let matrix = scores.matrices.index_mut(at);
                let mut pair = matrix[half];
                #[unroll]
                for side in 0..2usize {
                    let column = (own_column(at) + side) as i32;
                    let seen = column > farthest && column < end;
                    pair.insert(side, select(seen, pair.extract(side), f32::new(UNSEEN)));
                }
                matrix[half] = pair;
            }
        }
    }
}

/// Converts a window to a distance, which may be negative.
#[cube]
pub(super) fn signed(window: u32) -> i32 {
    min(window, 1u32 << 30) as i32
}
