//! Gradients of `attention` on GPUs, in `fragments`. For the gradient of queries, rows are queries that iterate over
//! the keys they attend to. For the gradients of keys and values, rows are keys that iterate over the queries that
//! attend to them.

use super::{
    attention::window_of,
    flash::{FASTER, KeyTiles, signed},
    fragments::{Factors, Fragments, Line, OWN, Pair, Stage, Sums, fetch, own_column, own_row},
    plan::{ITEM, Plan},
    tiles::Rows,
    *,
};
use crate::{AttentionOptions, launch_ranges::launch_ranges};

/// Keys in a tile.
const KEYS: usize = 16;

/// Returns the number of queries in a tile: as many as fit in the registers next to the sums for keys and those for
/// values.
fn queries(width: usize) -> usize {
    if width <= 64 { 32 } else { 16 }
}

/// Inputs of the gradients.
pub(super) struct Inputs<'a> {
    pub(super) qkv: &'a [Buffer; 3],
    /// Gradient of the output, in the format of `qkv`.
    pub(super) d_output: Buffer,
    /// Two numbers of each query and head, computed by `attention_backward`.
    pub(super) pairs: &'a Buffer,
    pub(super) plan: &'a Plan,
    pub(super) options: AttentionOptions,
}

/// Computes the gradients of queries, keys and values. The last two have separate rows for some queries.
pub(super) fn backward(inputs: Inputs, [keys, queries]: [Fragments; 2]) -> [Buffer; 3] {
    let Inputs { qkv: [query, key, value], d_output, pairs, plan, options } = inputs;
    let [tokens, heads, width] = query.meta.shape().dims();
    let kv_heads = key.meta.shape()[1];
    let client = query.client.clone();

    let d_query = plan.room(query, [tokens, heads, width]);
    // Scores, the gradients of weights, and that of queries.
    let cost = 3 * keys.down() * heads * width;
    for items in launch_ranges(&plan.queries, |keys| keys * cost / FASTER) {
        attend_backward_dq::launch(
            &client,
            cubes(items.len() * heads),
            keys.dim(),
            query.clone().into_buffer_arg(),
            key.clone().into_buffer_arg(),
            value.clone().into_buffer_arg(),
            d_output.clone().into_buffer_arg(),
            pairs.clone().into_buffer_arg(),
            plan.numbers.clone().into_buffer_arg(),
            d_query.clone().into_buffer_arg(),
            tokens + items.start * ITEM,
            items.len(),
            heads,
            kv_heads,
            window_of(options.window),
            keys,
            format(query),
        );
    }

    let [d_key, d_value] = [0; 2].map(|_| plan.room(query, [plan.rows, kv_heads, width]));
    // The same, and the gradient of values.
    let cost = 4 * queries.down() * heads * width;
    let first = tokens + plan.queries.len() * ITEM;
    for items in launch_ranges(&plan.keys, |queries| queries * cost / FASTER) {
        attend_backward_dkv::launch(
            &client,
            cubes(items.len() * kv_heads),
            queries.dim(),
            query.clone().into_buffer_arg(),
            key.clone().into_buffer_arg(),
            value.clone().into_buffer_arg(),
            d_output.clone().into_buffer_arg(),
            pairs.clone().into_buffer_arg(),
            plan.numbers.clone().into_buffer_arg(),
            d_key.clone().into_buffer_arg(),
            d_value.clone().into_buffer_arg(),
            first + items.start * ITEM,
            items.len(),
            heads,
            kv_heads,
            window_of(options.window),
            queries,
            format(query),
        );
    }

    [d_query, d_key, d_value]
}

/// Returns the shapes of the tiles of keys and of queries, if the device has such matrix instructions for the format.
pub(super) fn shapes(query: &Buffer, plan: &Plan) -> Option<[Fragments; 2]> {
    let width = query.meta.shape()[2];
    let [keys, queries] =
        [KEYS, queries(width)].map(|columns| Fragments::new(query, plan.each, columns, width));
    Some([keys?, queries?])
}

/// Computes the gradient of queries, with a cube for each item of queries and each head.
#[cube(launch)]
fn attend_backward_dq<X: Float>(
    query: &[Vector<X, Line>],
    key: &[Vector<X, Line>],
    value: &[Vector<X, Line>],
    d_output: &[Vector<X, Line>],
    pairs: &[Vector<f32, Pair>],
    plan: &[u32],
    d_query: &mut [Vector<f32, Pair>],
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
        let item = items + (count - 1 - CUBE_POS / heads) * ITEM;
        let tiles = KeyTiles::new(plan, item, window, shape.columns);
        let queries = Rows { first: tiles.first, end: tiles.end, heads, head };
        let scale = 1.0 / f32::cast_from(comptime!(shape.width as u32)).sqrt();

        let left = Factors::<X>::read(query, &queries, shape);
        let d_left = Factors::<X>::read(d_output, &queries, shape);
        let mut sums = Sums::zeros(shape.width);

        let mut logs = Array::<f32>::new(2usize);
        let mut means = Array::<f32>::new(2usize);

        #[unroll]
        for half in 0..2usize {
            let token = queries.first + own_row(half);
            let mut pair = Vector::<f32, Pair>::new(0.0);
            if token < queries.end {
                pair = pairs[token * heads + head];
            }
            logs[half] = pair.extract(0usize);
            means[half] = pair.extract(1usize);
        }

        let mut key_stage = Stage::<X>::new(shape);
        let mut value_stage = Stage::<X>::new(shape);
        let mut keys = Array::<Vector<X, Line>>::new(shape.fetched());
        let mut values = Array::<Vector<X, Line>>::new(shape.fetched());

        let rows = tiles.rows(0, kv_heads, kv_head);
        fetch::<X>(key, &rows, &mut keys, shape);
        fetch::<X>(value, &rows, &mut values, shape);

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
                let d_weights = d_left.scores(&value_stage, tile, shape);
                if !seen.all {
                    seen.mask(&mut scores, shape.columns);
                }

                #[unroll]
                for at in 0..comptime!(shape.columns / 8) {
                    let d_weights = d_weights.matrices.index(at);
                    let scores = scores.matrices.index_mut(at);
                    #[unroll]
                    for half in 0..2usize {
                        let mut d = scores[half];
                        #[unroll]
                        for side in 0..2usize {
                            let weight = (d.extract(side) * scale - logs[half]).exp();
                            d.insert(side, weight * (d_weights[half].extract(side) - means[half]));
                        }
                        scores[half] = d;
                    }
                }

                let d_scores = Factors::<X>::round(&scores, shape.columns);
                d_scores.add_weighted(&key_stage, tile, &mut sums, shape);
            }
            tile += 1;
        }

        sums.scale(scale, 0usize, shape.width);
        sums.scale(scale, 1usize, shape.width);
        sums.write(d_query, queries.first, &queries, shape);
    }
}

/// Computes the gradients of keys and values, with a cube for each item of keys and each head of keys. A cube iterates
/// over that head's query heads.
#[cube(launch)]
fn attend_backward_dkv<X: Float>(
    query: &[Vector<X, Line>],
    key: &[Vector<X, Line>],
    value: &[Vector<X, Line>],
    d_output: &[Vector<X, Line>],
    pairs: &[Vector<f32, Pair>],
    plan: &[u32],
    d_key: &mut [Vector<f32, Pair>],
    d_value: &mut [Vector<f32, Pair>],
    items: usize,
    count: usize,
    heads: usize,
    kv_heads: usize,
    window: u32,
    #[comptime] shape: Fragments,
    #[define(X)] _format: ElemType,
) {
    if CUBE_POS < count * kv_heads {
        let kv_head = CUBE_POS % kv_heads;
        let item = items + CUBE_POS / kv_heads * ITEM;
        let first = plan[item] as usize;
        let end = plan[item + 1] as usize;
        let keys = Rows { first, end, heads: kv_heads, head: kv_head };
        let tiles = QueryTiles::new(plan, item, window, heads, kv_heads, kv_head, shape.columns);
        let scale = 1.0 / f32::cast_from(comptime!(shape.width as u32)).sqrt();

        let left = Factors::<X>::read(key, &keys, shape);
        let d_left = Factors::<X>::read(value, &keys, shape);
        let mut of_keys = Sums::zeros(shape.width);
        let mut of_values = Sums::zeros(shape.width);

        let mut query_stage = Stage::<X>::new(shape);
        let mut d_stage = Stage::<X>::new(shape);
        let mut column_stage = ColumnStage::new(shape.columns);
        let mut queries = Array::<Vector<X, Line>>::new(shape.fetched());
        let mut ds = Array::<Vector<X, Line>>::new(shape.fetched());

        let rows = tiles.rows(0);
        fetch::<X>(query, &rows, &mut queries, shape);
        fetch::<X>(d_output, &rows, &mut ds, shape);
        let (mut pair, mut position) = of_query(plan, pairs, &rows, shape.columns);

        let mut tile = 0usize;
        while tile < tiles.count {
            query_stage.put(&queries, tile, shape);
            d_stage.put(&ds, tile, shape);
            column_stage.put(pair, position, tile, shape.columns);
            sync_cube();

            let rows = tiles.rows(tile + 1);
            fetch::<X>(query, &rows, &mut queries, shape);
            fetch::<X>(d_output, &rows, &mut ds, shape);
            let (next_pair, next_position) = of_query(plan, pairs, &rows, shape.columns);
            pair = next_pair;
            position = next_position;

            let seen = column_stage.seen(tile, tiles.key, window, shape.columns);
            if !seen.none {
                // One kind of sums after the other, because the registers are full.
                let mut weights = left.scores(&query_stage, tile, shape);
                #[unroll]
                for at in 0..comptime!(shape.columns / 8) {
                    let weights = weights.matrices.index_mut(at);
                    #[unroll]
                    for side in 0..2usize {
                        let column = tile % 2 * shape.columns + own_column(at) + side;
                        let log = column_stage.pairs[column].extract(0usize);
                        let position = column_stage.positions[column];
                        #[unroll]
                        for half in 0..2usize {
                            let mut pair = weights[half];
                            let mut weight = (pair.extract(side) * scale - log).exp();
                            if !seen.all {
                                let distance = position - tiles.key - own_row(half) as i32;
                                let is_visible = distance >= 0 && distance < signed(window);
                                weight = select(is_visible, weight, 0.0);
                            }
                            pair.insert(side, weight);
                            weights[half] = pair;
                        }
                    }
                }

                let rounded = Factors::<X>::round(&weights, shape.columns);
                rounded.add_weighted(&d_stage, tile, &mut of_values, shape);

                let mut d_weights = d_left.scores(&d_stage, tile, shape);
                #[unroll]
                for at in 0..comptime!(shape.columns / 8) {
                    let weights = weights.matrices.index(at);
                    let d_weights = d_weights.matrices.index_mut(at);
                    #[unroll]
                    for side in 0..2usize {
                        let column = tile % 2 * shape.columns + own_column(at) + side;
                        let mean = column_stage.pairs[column].extract(1usize);
                        #[unroll]
                        for half in 0..2usize {
                            let mut d = d_weights[half];
                            let weight = weights[half].extract(side);
                            d.insert(side, weight * (d.extract(side) - mean));
                            d_weights[half] = d;
                        }
                    }
                }

                let d_scores = Factors::<X>::round(&d_weights, shape.columns);
                d_scores.add_weighted(&query_stage, tile, &mut of_keys, shape);
            }
            tile += 1;
        }

        let row = plan[item + 4] as usize;
        of_keys.scale(scale, 0usize, shape.width);
        of_keys.scale(scale, 1usize, shape.width);
        of_keys.write(d_key, row, &keys, shape);
        of_values.write(d_value, row, &keys, shape);
    }
}

/// Tiles of queries that attend to an item's keys, for each head that shares the keys' head.
#[derive(CubeType)]
struct QueryTiles {
    start: usize,
    stop: usize,
    heads: usize,
    /// First of the heads.
    head: usize,
    /// Number of tiles for each head, and number of all tiles.
    each: usize,
    count: usize,
    /// Position of the item's first key.
    key: i32,
    #[cube(comptime)]
    columns: usize,
}

#[cube]
impl QueryTiles {
    fn new(
        plan: &[u32],
        item: usize,
        window: u32,
        heads: usize,
        kv_heads: usize,
        kv_head: usize,
        #[comptime] columns: usize,
    ) -> Self {
        let first = plan[item] as usize;
        let last = plan[item + 1] as usize - 1;
        let start = plan[item + 2] as usize;
        let mut stop = plan[item + 3] as usize;

        // Positions start over if a text begins among the queries. Otherwise, those that are too far after the last key
        // are skipped.
        if plan[stop - 1] - plan[start] == (stop - 1 - start) as u32 {
            let near = plan[last] as i32 + signed(window) - plan[start] as i32;
            stop = start + min(max(near, 0i32) as usize, stop - start);
        }

        let group = heads / kv_heads;
        let each = (stop - start).div_ceil(columns);
        let key = plan[first] as i32;

        QueryTiles {
            start,
            stop,
            heads,
            head: kv_head * group,
            each,
            count: group * each,
            key,
            columns,
        }
    }

    /// Returns a tile's queries.
    fn rows(&self, tile: usize) -> Rows {
        let each = max(self.each, 1usize);
        let first = self.start + tile % each * self.columns;
        // After the last tile there are queries of another head, which are not used.
        let head = min(self.head + tile / each, self.heads - 1);
        Rows { first, end: self.stop, heads: self.heads, head }
    }
}

/// Reads what a unit loads for a query: its two numbers, and its position.
#[cube]
fn of_query(
    plan: &[u32],
    pairs: &[Vector<f32, Pair>],
    rows: &Rows,
    #[comptime] columns: usize,
) -> (Vector<f32, Pair>, i32) {
    let token = rows.first + UNIT_POS as usize;
    let mut pair = Vector::<f32, Pair>::new(0.0);
    // A missing query is before all keys.
    let mut position = (-(1i32 << 30)).runtime();
    if (UNIT_POS as usize) < columns && token < rows.end {
        pair = pairs[token * rows.heads + rows.head];
        position = plan[token] as i32;
    }
    (pair, position)
}

/// Queries' numbers in shared memory, as in [`Stage`].
#[derive(CubeType)]
struct ColumnStage {
    pairs: Shared<[Vector<f32, Pair>]>,
    positions: Shared<[i32]>,
}

/// Tells whether the rows of a plane attend to none, or all, of a tile's columns.
#[derive(CubeType, Clone, Copy)]
struct Sees {
    none: bool,
    all: bool,
}

#[cube]
impl ColumnStage {
    fn new(#[comptime] columns: usize) -> Self {
        ColumnStage {
            pairs: Shared::<[Vector<f32, Pair>]>::new_aligned_slice(comptime!(2 * columns), 8usize),
            positions: Shared::<[i32]>::new_slice(comptime!(2 * columns)),
        }
    }

    fn put(
        &mut self,
        pair: Vector<f32, Pair>,
        position: i32,
        tile: usize,
        #[comptime] columns: usize,
    ) {
        if (UNIT_POS as usize) < columns {
            let at = tile % 2 * columns + UNIT_POS as usize;
            self.pairs[at] = pair;
            self.positions[at] = position;
        }
    }

    fn seen(&self, tile: usize, key: i32, window: u32, #[comptime] columns: usize) -> Sees {
        let early = self.positions[tile % 2 * columns];
        let late = self.positions[tile % 2 * columns + comptime!(columns - 1)];
        let in_order = late - early == comptime!(columns as i32 - 1);

        let upper = key + (UNIT_POS as usize / 32 * OWN) as i32;
        let lower = upper + comptime!(OWN as i32 - 1);
        let window = signed(window);

        Sees {
            none: in_order && (late < upper || early - lower >= window),
            all: in_order && early >= lower && late - upper < window,
        }
    }
}
