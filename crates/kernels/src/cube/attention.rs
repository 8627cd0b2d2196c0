//! Attention in tiles of up to 64 rows by 64 columns, of which a unit has up to four by four numbers, and over the tokens of
//! a segment alone: rows are queries that go through the keys they see or, for the gradients of keys and values, keys that go
//! through the queries that see them.

use super::*;
use crate::{Attended, Look, Segment, Sight};

/// Units along a tile's rows, and along its columns; numbers of a row that its products go through at a time, and rows that
/// its weighted sums do.
const STRIP: usize = 16;

/// A row of [`STRIP`] numbers in shared memory, and one more, so that neighbours lie in different banks.
const PITCH: usize = STRIP + 1;

/// Rows and columns of a tile that one unit has, at most.
const EACH: usize = 4;

/// Queries that one cube goes through for some keys, at most: many completions may see the same prompt.
const QUERIES: usize = 1024;

/// Numbers of an item of a [`Plan`].
const ITEM: usize = 5;

/// Who sees whom, on the device.
#[derive(Clone)]
pub(crate) struct Plan {
    /// The position of each place in its text, and then items.
    numbers: Buffer,
    /// Items of queries: their places, those of the keys before their segment, and where that begins.
    queries: usize,
    /// Items of keys: their places, those of some queries, and the row that the gradients go to.
    keys: usize,
    /// Items of gradients in more rows than there are places: the first place that they belong to and the next, and the
    /// first of those rows and the next.
    more: usize,
    rows: usize,
    /// Rows and columns of a tile that one unit has: fewer where all segments are short.
    each: usize,
    /// Whether each place is in a segment.
    full: bool,
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} blocks of queries, {} of keys", self.queries, self.keys)
    }
}

impl Plan {
    fn new(segments: &[Segment], places: usize, x: &Buffer) -> Self {
        let longest = segments.iter().map(|segment| segment.places.len()).max().unwrap_or(0);
        let each = longest.div_ceil(STRIP).next_power_of_two().min(EACH);
        let tile = STRIP * each;
        let mut numbers = vec![0u32; places];
        let [mut queries, mut keys, mut more]: [Vec<[usize; ITEM]>; 3] = Default::default();
        let mut rows = places;
        for (index, segment) in segments.iter().enumerate() {
            let own = &segment.places;
            let before = segment.after.map_or(0..0, |before| segments[before].places.clone());
            for place in own.clone() {
                numbers[place] = (before.len() + place - own.start) as u32;
            }
            let after = segments.iter().filter(|other| other.after == Some(index));
            let mut seen_by: Vec<std::ops::Range<usize>> = Vec::new();
            for other in after.map(|other| &other.places) {
                match seen_by.last_mut() {
                    Some(last) if last.end == other.start => last.end = other.end,
                    _ => seen_by.push(other.clone()),
                }
            }
            for first in own.clone().step_by(tile) {
                let end = own.end.min(first + tile);
                queries.push([first, end, before.start, before.end, own.start]);
                let more_from = rows;
                let mut row = first;
                for seen_by in std::iter::once(&(first..own.end)).chain(&seen_by) {
                    for start in seen_by.clone().step_by(QUERIES) {
                        keys.push([first, end, start, seen_by.end.min(start + QUERIES), row]);
                        row = rows;
                        rows += tile;
                    }
                }
                // What a next one would have begun with.
                rows -= tile;
                if rows > more_from {
                    more.push([first, end, more_from, rows, 0]);
                }
            }
        }
        let items = queries.iter().chain(&keys).chain(&more).flatten();
        numbers.extend(items.map(|&number| number as u32));
        let covered: usize = segments.iter().map(|segment| segment.places.len()).sum();
        Plan {
            numbers: uploaded(numbers, x),
            queries: queries.len(),
            keys: keys.len(),
            more: more.len(),
            rows,
            each,
            full: covered == places,
        }
    }

    /// Room for what the queries find; zeros where some places are of no segment.
    fn room<const D: usize>(&self, x: &Buffer, shape: [usize; D]) -> Buffer {
        match self.full {
            true => empty(x, shape, DType::F32),
            false => own(tensor::<D>(empty(x, shape, DType::F32)).zeros_like()),
        }
    }
}

impl Sight {
    fn plan(&self, x: &Buffer) -> &Plan {
        self.on_gpu.get_or_init(|| Plan::new(self.segments(), self.places(), x))
    }
}

/// The numbers of queries, keys and values, if they are in one format.
fn looks_of(looks: [&Tensor<3>; 3]) -> Option<[Buffer; 3]> {
    let formats = looks.map(Tensor::dtype);
    let [Some(query), Some(key), Some(value)] = looks.map(buffer) else { return None };
    (formats[0] == formats[1] && formats[0] == formats[2]).then_some([query, key, value])
}

fn window_of(look: Look) -> u32 {
    look.window.map_or(u32::MAX, |window| window as u32)
}

/// See [`crate::attention()`].
pub(crate) fn forward(looks: [&Tensor<3>; 3], sight: &Sight, look: Look) -> Option<Attended> {
    let [places, heads, width] = looks[0].dims();
    let kv_heads = looks[1].dims()[1];
    let [query, key, value] = looks_of(looks)?;
    let plan = sight.plan(&query);
    let output = plan.room(&query, [places, heads, width]);
    let logsum = plan.room(&query, [places, heads, 1]);
    attend::launch(
        &query.client.clone(),
        cubes(plan.queries * heads),
        dim(),
        query.clone().into_buffer_arg(),
        key.into_buffer_arg(),
        value.into_buffer_arg(),
        plan.numbers.clone().into_buffer_arg(),
        output.clone().into_buffer_arg(),
        logsum.clone().into_buffer_arg(),
        places,
        plan.queries,
        heads,
        kv_heads,
        window_of(look),
        width,
        plan.each,
        format(&query),
    );
    Some(Attended { output: tensor(output), logsum: tensor(logsum) })
}

/// See [`crate::attention_backward`].
pub(crate) fn back(
    looks: [&Tensor<3>; 3],
    attended: &Attended,
    d_output: &Tensor<3>,
    sight: &Sight,
    look: Look,
) -> Option<[Tensor<3>; 3]> {
    let [places, heads, width] = looks[0].dims();
    let kv_heads = looks[1].dims()[1];
    let [query, key, value] = looks_of(looks)?;
    let (d_output, output) = (wide(d_output)?, wide(&attended.output)?);
    let plan = sight.plan(&query);
    let client = query.client.clone();
    let pairs = empty(&query, [places * heads, 2], DType::F32);
    means::launch(
        &client,
        cubes(places * heads),
        CubeDim::new_1d(32),
        output.into_buffer_arg(),
        d_output.clone().into_buffer_arg(),
        wide(&attended.logsum)?.into_buffer_arg(),
        pairs.clone().into_buffer_arg(),
        width,
    );
    let d_query = plan.room(&query, [places, heads, width]);
    attend_back::launch(
        &client,
        cubes(plan.queries * heads),
        dim(),
        query.clone().into_buffer_arg(),
        key.clone().into_buffer_arg(),
        value.clone().into_buffer_arg(),
        d_output.clone().into_buffer_arg(),
        pairs.clone().into_buffer_arg(),
        plan.numbers.clone().into_buffer_arg(),
        d_query.clone().into_buffer_arg(),
        places,
        plan.queries,
        heads,
        kv_heads,
        window_of(look),
        width,
        plan.each,
        format(&query),
    );
    let [d_key, d_value] = [0; 2].map(|_| plan.room(&query, [plan.rows, kv_heads, width]));
    attended_back::launch(
        &client,
        cubes(plan.keys * kv_heads),
        dim(),
        query.clone().into_buffer_arg(),
        key.into_buffer_arg(),
        value.into_buffer_arg(),
        d_output.into_buffer_arg(),
        pairs.into_buffer_arg(),
        plan.numbers.clone().into_buffer_arg(),
        d_key.clone().into_buffer_arg(),
        d_value.clone().into_buffer_arg(),
        places + plan.queries * ITEM,
        plan.keys,
        heads,
        kv_heads,
        window_of(look),
        width,
        plan.each,
        format(&query),
    );
    if plan.more > 0 {
        add_more::launch(
            &client,
            units(plan.more * STRIP * plan.each * kv_heads * width),
            dim(),
            plan.numbers.clone().into_buffer_arg(),
            d_key.clone().into_buffer_arg(),
            d_value.clone().into_buffer_arg(),
            places + (plan.queries + plan.keys) * ITEM,
            plan.more,
            kv_heads * width,
            STRIP * plan.each,
        );
    }
    let of_places = |x: Buffer| match plan.more {
        0 => tensor::<3>(x),
        _ => tensor::<3>(x).slice_dim(0, 0..places),
    };
    Some([tensor(d_query), of_places(d_key), of_places(d_value)])
}

/// One cube for each item of queries and each head. A query's largest score is carried along with its sum of weights and
/// its weighted sum of values.
#[cube(launch)]
fn attend<X: Float>(
    query: &[X],
    key: &[X],
    value: &[X],
    plan: &[u32],
    output: &mut [f32],
    logsum: &mut [f32],
    items: usize,
    count: usize,
    heads: usize,
    kv_heads: usize,
    window: u32,
    #[comptime] width: usize,
    #[comptime] each: usize,
    #[define(X)] _format: ElemType,
) {
    if CUBE_POS < count * heads {
        let head = CUBE_POS % heads;
        let kv_head = head / (heads / kv_heads);
        let item = items + CUBE_POS / heads * ITEM;
        let first = plan[item] as usize;
        let end = plan[item + 1] as usize;
        let down = UNIT_POS as usize / STRIP;
        let across = UNIT_POS as usize % STRIP;
        let scale = 1.0 / f32::cast_from(width as u32).sqrt();

        let mut left = Shared::<[f32]>::new_slice(comptime!(STRIP * each * PITCH));
        let mut right = Shared::<[f32]>::new_slice(comptime!(STRIP * each * PITCH));
        let mut tile = Shared::<[f32]>::new_slice(comptime!(STRIP * each * (STRIP * each + 1)));
        let mut strip = Shared::<[f32]>::new_slice(comptime!(STRIP * each * STRIP));
        let mut scores = Array::<f32>::new(comptime!(each * each));
        let mut sums = Array::<f32>::new(comptime!(each * each * width.div_ceil(STRIP * each)));
        let mut largest = Array::<f32>::new(each);
        let mut weights = Array::<f32>::new(each);
        #[unroll]
        for at in 0..comptime!(each * each * width.div_ceil(STRIP * each)) {
            sums[at] = 0.0;
        }
        #[unroll]
        for row in 0..each {
            largest[row] = f32::new(-1e30);
            weights[row] = 0.0;
        }

        // First the keys before the segment, then its own.
        let mut part = 0u32;
        while part < 2 {
            let mut start = plan[item + 2] as usize;
            let mut stop = plan[item + 3] as usize;
            if part == 1 {
                start = plan[item + 4] as usize;
                stop = end;
            }
            start = min(start + hidden(plan, first, start, window), stop);
            while start < stop {
                products::<X, X>(
                    query,
                    first,
                    end,
                    heads,
                    head,
                    key,
                    start,
                    stop,
                    kv_heads,
                    kv_head,
                    &mut left,
                    &mut right,
                    &mut scores,
                    width,
                    each,
                );
                #[unroll]
                for row in 0..each {
                    let mut own = f32::new(-1e30);
                    #[unroll]
                    for column in 0..each {
                        let query = first + down + STRIP * row;
                        let key = start + across + STRIP * column;
                        let mut score = f32::new(-1e30);
                        if sees(plan, query, end, key, stop, window) {
                            score = scores[row * each + column] * scale;
                        }
                        scores[row * each + column] = score;
                        own = max(own, score);
                    }
                    left[(down + STRIP * row) * PITCH + across] = own;
                }
                sync_cube();
                #[unroll]
                for row in 0..each {
                    let mut most = largest[row];
                    for column in 0..STRIP {
                        most = max(most, left[(down + STRIP * row) * PITCH + column]);
                    }
                    let kept = (largest[row] - most).exp();
                    largest[row] = most;
                    let mut sum = weights[row] * kept;
                    #[unroll]
                    for column in 0..each {
                        let score = scores[row * each + column];
                        // Where nothing is seen yet, all scores are alike.
                        let weight = select(score > f32::new(-1e29), (score - most).exp(), 0.0);
                        sum += weight;
                        tile[(down + STRIP * row) * comptime!(STRIP * each + 1)
                            + across
                            + STRIP * column] = weight;
                    }
                    weights[row] = sum;
                    #[unroll]
                    for block in 0..comptime!(width.div_ceil(STRIP * each)) {
                        #[unroll]
                        for column in 0..each {
                            sums[(block * each + row) * each + column] *= kept;
                        }
                    }
                }
                sync_cube();
                weighted::<X>(
                    &tile, value, start, stop, kv_heads, kv_head, &mut strip, &mut sums, width,
                    each,
                );
                start += STRIP * each;
            }
            part += 1;
        }

        // The sums of all units of a row.
        #[unroll]
        for row in 0..each {
            left[(down + STRIP * row) * PITCH + across] = weights[row];
        }
        sync_cube();
        #[unroll]
        for row in 0..each {
            let place = first + down + STRIP * row;
            let mut sum = f32::new(0.0);
            for column in 0..STRIP {
                sum += left[(down + STRIP * row) * PITCH + column];
            }
            if place < end {
                // Behind a window there may be nothing to see.
                let share = select(sum > 0.0, 1.0 / sum, 0.0);
                if across == 0 {
                    logsum[place * heads + head] =
                        select(sum > 0.0, largest[row] + sum.ln(), f32::new(-1e30));
                }
                #[unroll]
                for block in 0..comptime!(width.div_ceil(STRIP * each)) {
                    #[unroll]
                    for column in 0..each {
                        let to = block * (STRIP * each) + across + STRIP * column;
                        if to < width {
                            output[(place * heads + head) * width + to] =
                                sums[(block * each + row) * each + column] * share;
                        }
                    }
                }
            }
        }
    }
}

/// For each query and head the logarithm of its sum of weights, and the mean of its values' gradients, which is that of
/// the output times the output.
#[cube(launch)]
fn means(output: &[f32], d_output: &[f32], logsum: &[f32], pairs: &mut [f32], width: usize) {
    if CUBE_POS < logsum.len() {
        let mut sum = f32::new(0.0);
        let mut at = UNIT_POS as usize;
        while at < width {
            sum += output[CUBE_POS * width + at] * d_output[CUBE_POS * width + at];
            at += CUBE_DIM as usize;
        }
        sum = sum_of_cube(sum);
        if UNIT_POS == 0 {
            pairs[2 * CUBE_POS] = logsum[CUBE_POS];
            pairs[2 * CUBE_POS + 1] = sum;
        }
    }
}

/// The gradient of queries: a cube for each item of them and each head.
#[cube(launch)]
fn attend_back<X: Float>(
    query: &[X],
    key: &[X],
    value: &[X],
    d_output: &[f32],
    pairs: &[f32],
    plan: &[u32],
    d_query: &mut [f32],
    items: usize,
    count: usize,
    heads: usize,
    kv_heads: usize,
    window: u32,
    #[comptime] width: usize,
    #[comptime] each: usize,
    #[define(X)] _format: ElemType,
) {
    if CUBE_POS < count * heads {
        let head = CUBE_POS % heads;
        let kv_head = head / (heads / kv_heads);
        let item = items + CUBE_POS / heads * ITEM;
        let first = plan[item] as usize;
        let end = plan[item + 1] as usize;
        let down = UNIT_POS as usize / STRIP;
        let across = UNIT_POS as usize % STRIP;
        let scale = 1.0 / f32::cast_from(width as u32).sqrt();

        let mut left = Shared::<[f32]>::new_slice(comptime!(STRIP * each * PITCH));
        let mut right = Shared::<[f32]>::new_slice(comptime!(STRIP * each * PITCH));
        let mut tile = Shared::<[f32]>::new_slice(comptime!(STRIP * each * (STRIP * each + 1)));
        let mut strip = Shared::<[f32]>::new_slice(comptime!(STRIP * each * STRIP));
        let mut scores = Array::<f32>::new(comptime!(each * each));
        let mut d_weights = Array::<f32>::new(comptime!(each * each));
        let mut sums = Array::<f32>::new(comptime!(each * each * width.div_ceil(STRIP * each)));
        #[unroll]
        for at in 0..comptime!(each * each * width.div_ceil(STRIP * each)) {
            sums[at] = 0.0;
        }
        let mut part = 0u32;
        while part < 2 {
            let mut start = plan[item + 2] as usize;
            let mut stop = plan[item + 3] as usize;
            if part == 1 {
                start = plan[item + 4] as usize;
                stop = end;
            }
            start = min(start + hidden(plan, first, start, window), stop);
            while start < stop {
                products::<X, X>(
                    query,
                    first,
                    end,
                    heads,
                    head,
                    key,
                    start,
                    stop,
                    kv_heads,
                    kv_head,
                    &mut left,
                    &mut right,
                    &mut scores,
                    width,
                    each,
                );
                products::<f32, X>(
                    d_output,
                    first,
                    end,
                    heads,
                    head,
                    value,
                    start,
                    stop,
                    kv_heads,
                    kv_head,
                    &mut left,
                    &mut right,
                    &mut d_weights,
                    width,
                    each,
                );
                #[unroll]
                for row in 0..each {
                    let query = first + down + STRIP * row;
                    #[unroll]
                    for column in 0..each {
                        let at = row * each + column;
                        let mut d = f32::new(0.0);
                        if sees(plan, query, end, start + across + STRIP * column, stop, window) {
                            let pair = 2 * (query * heads + head);
                            let weight = (scores[at] * scale - pairs[pair]).exp();
                            d = weight * (d_weights[at] - pairs[pair + 1]);
                        }
                        tile[(down + STRIP * row) * comptime!(STRIP * each + 1)
                            + across
                            + STRIP * column] = d;
                    }
                }
                sync_cube();
                weighted::<X>(
                    &tile, key, start, stop, kv_heads, kv_head, &mut strip, &mut sums, width, each,
                );
                start += STRIP * each;
            }
            part += 1;
        }
        write(&sums, d_query, first, first, end, heads, head, scale, width, each);
    }
}

/// The gradients of keys and values: a cube for each item of them and each head of theirs, whose heads of queries it goes
/// through one after the other.
#[cube(launch)]
fn attended_back<X: Float>(
    query: &[X],
    key: &[X],
    value: &[X],
    d_output: &[f32],
    pairs: &[f32],
    plan: &[u32],
    d_key: &mut [f32],
    d_value: &mut [f32],
    items: usize,
    count: usize,
    heads: usize,
    kv_heads: usize,
    window: u32,
    #[comptime] width: usize,
    #[comptime] each: usize,
    #[define(X)] _format: ElemType,
) {
    if CUBE_POS < count * kv_heads {
        let kv_head = CUBE_POS % kv_heads;
        let group = heads / kv_heads;
        let item = items + CUBE_POS / kv_heads * ITEM;
        let first = plan[item] as usize;
        let end = plan[item + 1] as usize;
        let stop = plan[item + 3] as usize;
        let down = UNIT_POS as usize / STRIP;
        let across = UNIT_POS as usize % STRIP;
        let scale = 1.0 / f32::cast_from(width as u32).sqrt();

        let mut left = Shared::<[f32]>::new_slice(comptime!(STRIP * each * PITCH));
        let mut right = Shared::<[f32]>::new_slice(comptime!(STRIP * each * PITCH));
        let mut tile = Shared::<[f32]>::new_slice(comptime!(STRIP * each * (STRIP * each + 1)));
        let mut strip = Shared::<[f32]>::new_slice(comptime!(STRIP * each * STRIP));
        let mut scores = Array::<f32>::new(comptime!(each * each));
        let mut d_weights = Array::<f32>::new(comptime!(each * each));
        let mut of_keys = Array::<f32>::new(comptime!(each * each * width.div_ceil(STRIP * each)));
        let mut of_values =
            Array::<f32>::new(comptime!(each * each * width.div_ceil(STRIP * each)));
        #[unroll]
        for at in 0..comptime!(each * each * width.div_ceil(STRIP * each)) {
            of_keys[at] = 0.0;
            of_values[at] = 0.0;
        }
        let mut head = kv_head * group;
        while head < (kv_head + 1) * group {
            let mut start = plan[item + 2] as usize;
            while start < stop {
                products::<X, X>(
                    key,
                    first,
                    end,
                    kv_heads,
                    kv_head,
                    query,
                    start,
                    stop,
                    heads,
                    head,
                    &mut left,
                    &mut right,
                    &mut scores,
                    width,
                    each,
                );
                products::<X, f32>(
                    value,
                    first,
                    end,
                    kv_heads,
                    kv_head,
                    d_output,
                    start,
                    stop,
                    heads,
                    head,
                    &mut left,
                    &mut right,
                    &mut d_weights,
                    width,
                    each,
                );
                #[unroll]
                for row in 0..each {
                    #[unroll]
                    for column in 0..each {
                        let at = row * each + column;
                        let query = start + across + STRIP * column;
                        let mut weight = f32::new(0.0);
                        let mut d = f32::new(0.0);
                        if sees(plan, query, stop, first + down + STRIP * row, end, window) {
                            let pair = 2 * (query * heads + head);
                            weight = (scores[at] * scale - pairs[pair]).exp();
                            d = weight * (d_weights[at] - pairs[pair + 1]);
                        }
                        tile[(down + STRIP * row) * comptime!(STRIP * each + 1)
                            + across
                            + STRIP * column] = weight;
                        scores[at] = d;
                    }
                }
                sync_cube();
                weighted::<f32>(
                    &tile,
                    d_output,
                    start,
                    stop,
                    heads,
                    head,
                    &mut strip,
                    &mut of_values,
                    width,
                    each,
                );
                #[unroll]
                for row in 0..each {
                    #[unroll]
                    for column in 0..each {
                        tile[(down + STRIP * row) * comptime!(STRIP * each + 1)
                            + across
                            + STRIP * column] = scores[row * each + column];
                    }
                }
                sync_cube();
                weighted::<X>(
                    &tile,
                    query,
                    start,
                    stop,
                    heads,
                    head,
                    &mut strip,
                    &mut of_keys,
                    width,
                    each,
                );
                start += STRIP * each;
            }
            head += 1;
        }
        let row = plan[item + 4] as usize;
        write(&of_keys, d_key, row, first, end, kv_heads, kv_head, scale, width, each);
        write(&of_values, d_value, row, first, end, kv_heads, kv_head, 1.0, width, each);
    }
}

/// How many keys from `start` on a query and all behind it don't see.
#[cube]
fn hidden(plan: &[u32], query: usize, start: usize, window: u32) -> usize {
    let distance = plan[query] - plan[start];
    select(distance >= window, distance - window + 1, 0) as usize
}

/// Whether a query, of those before `queries`, sees a key, of those before `keys`.
#[cube]
fn sees(plan: &[u32], query: usize, queries: usize, key: usize, keys: usize, window: u32) -> bool {
    let mut seen = false;
    if query < queries && key < keys {
        seen = plan[query] >= plan[key] && plan[query] - plan[key] < window;
    }
    seen
}

/// A tile of products of rows: those of `x` from `x_first` on with those of `y` from `y_first` on, both `[places, heads,
/// width]`.
#[cube]
fn products<X: Float, Y: Float>(
    x: &[X],
    x_first: usize,
    x_end: usize,
    x_heads: usize,
    x_head: usize,
    y: &[Y],
    y_first: usize,
    y_end: usize,
    y_heads: usize,
    y_head: usize,
    left: &mut Shared<[f32]>,
    right: &mut Shared<[f32]>,
    products: &mut Array<f32>,
    #[comptime] width: usize,
    #[comptime] each: usize,
) {
    let down = UNIT_POS as usize / STRIP;
    let across = UNIT_POS as usize % STRIP;
    #[unroll]
    for at in 0..comptime!(each * each) {
        products[at] = 0.0;
    }
    let mut column = 0usize;
    while column < width {
        sync_cube();
        #[unroll]
        for row in 0..each {
            let mut number = f32::new(0.0);
            let place = x_first + down + STRIP * row;
            if place < x_end && column + across < width {
                number = f32::cast_from(x[(place * x_heads + x_head) * width + column + across]);
            }
            left[(down + STRIP * row) * PITCH + across] = number;
            let mut number = f32::new(0.0);
            let place = y_first + down + STRIP * row;
            if place < y_end && column + across < width {
                number = f32::cast_from(y[(place * y_heads + y_head) * width + column + across]);
            }
            right[(down + STRIP * row) * PITCH + across] = number;
        }
        sync_cube();
        for at in 0..STRIP {
            #[unroll]
            for row in 0..each {
                let x = left[(down + STRIP * row) * PITCH + at];
                #[unroll]
                for other in 0..each {
                    products[row * each + other] +=
                        x * right[(across + STRIP * other) * PITCH + at];
                }
            }
        }
        column += STRIP;
    }
    sync_cube();
}

/// Adds to `sums` the rows of `x` from `first` on, `[places, heads, width]`, times their weights in a tile's columns.
#[cube]
fn weighted<X: Float>(
    tile: &Shared<[f32]>,
    x: &[X],
    first: usize,
    end: usize,
    heads: usize,
    head: usize,
    strip: &mut Shared<[f32]>,
    sums: &mut Array<f32>,
    #[comptime] width: usize,
    #[comptime] each: usize,
) {
    let down = UNIT_POS as usize / STRIP;
    let across = UNIT_POS as usize % STRIP;
    #[unroll]
    for block in 0..comptime!(width.div_ceil(STRIP * each)) {
        let mut start = 0usize;
        while start < STRIP * each {
            #[unroll]
            for part in 0..each {
                let number = UNIT_POS as usize + UNITS as usize * part;
                let (row, column) =
                    (number / (STRIP * each), block * (STRIP * each) + number % (STRIP * each));
                let place = first + start + row;
                let mut value = f32::new(0.0);
                if place < end && column < width {
                    value = f32::cast_from(x[(place * heads + head) * width + column]);
                }
                strip[number] = value;
            }
            sync_cube();
            for at in 0..STRIP {
                #[unroll]
                for row in 0..each {
                    let weight =
                        tile[(down + STRIP * row) * comptime!(STRIP * each + 1) + start + at];
                    #[unroll]
                    for column in 0..each {
                        sums[(block * each + row) * each + column] +=
                            weight * strip[at * (STRIP * each) + across + STRIP * column];
                    }
                }
            }
            sync_cube();
            start += STRIP;
        }
    }
}

/// Writes what [`weighted`] has added up for the places from `first` on, times `scale`, to the rows from `to` on.
#[cube]
fn write(
    sums: &Array<f32>,
    y: &mut [f32],
    to: usize,
    first: usize,
    end: usize,
    heads: usize,
    head: usize,
    scale: f32,
    #[comptime] width: usize,
    #[comptime] each: usize,
) {
    let down = UNIT_POS as usize / STRIP;
    let across = UNIT_POS as usize % STRIP;
    #[unroll]
    for row in 0..each {
        let at = down + STRIP * row;
        if first + at < end {
            #[unroll]
            for block in 0..comptime!(width.div_ceil(STRIP * each)) {
                #[unroll]
                for column in 0..each {
                    let number = block * (STRIP * each) + across + STRIP * column;
                    if number < width {
                        y[((to + at) * heads + head) * width + number] =
                            sums[(block * each + row) * each + column] * scale;
                    }
                }
            }
        }
    }
}

/// Adds gradients in rows of their own to those of their places, one block after the other.
#[cube(launch)]
fn add_more(
    plan: &[u32],
    d_key: &mut [f32],
    d_value: &mut [f32],
    items: usize,
    count: usize,
    numbers: usize,
    tile: usize,
) {
    let of_block = tile * numbers;
    if ABSOLUTE_POS < count * of_block {
        let item = items + ABSOLUTE_POS / of_block * ITEM;
        let (at, number) = (ABSOLUTE_POS % of_block / numbers, ABSOLUTE_POS % numbers);
        let place = plan[item] as usize + at;
        if place < plan[item + 1] as usize {
            let mut row = plan[item + 2] as usize + at;
            while row < plan[item + 3] as usize {
                d_key[place * numbers + number] += d_key[row * numbers + number];
                d_value[place * numbers + number] += d_value[row * numbers + number];
                row += tile;
            }
        }
    }
}
