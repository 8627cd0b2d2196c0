//! Keys and values in pages on GPUs: each row's newest token is written, and attends to those before it. Only the
//! device needs to know how long a row is, and where its pages are.

use super::{
    attention::window_of,
    block_table::{PAGES, Rows, TOKENS, is_visible, slot},
    flash_pages::{self, WIDTH},
    fragments::serve,
    *,
};
use crate::block::PAGE;

/// Upper bound on the query heads of one cube, and on those of heads that are wider than a cube has units. Their queries
/// are in shared memory.
const HEADS: usize = 8;
const WIDE_HEADS: usize = 4;

/// Units that each have a part of a key's dot product.
const PARTS: usize = UNITS as usize / PAGE;

/// Appends room for `pages` more pages to `x`, `[pages · PAGE, heads, width]`.
pub(crate) fn grown(x: Tensor<3>, pages: usize) -> Tensor<3> {
    let [slots, heads, width] = x.dims();
    let from = any(&x);
    let to = empty(&from, [slots + pages * PAGE, heads, width], from.dtype);
    rows::copy(from, &to);
    tensor(to)
}

/// Tells whether the functions here take pages with heads of this width.
pub(crate) fn fit(device: &Device, width: usize) -> bool {
    width <= 2 * UNITS as usize && is_gpu(device)
}

/// Keys and values of one layer.
pub(crate) type Store = [Tensor<3>; 2];

/// Writes keys and values of some tokens, `[tokens, heads, width]`. `moves` has the indices of all these tokens,
/// followed by the slot of each.
pub(crate) fn write(store: Store, moves: &Tensor<1, Int>, from: [&Tensor<3>; 2]) -> Store {
    let moves = whole(moves);
    let [keys, values] = from.map(any);
    let numbers = store[0].dims()[1] * store[0].dims()[2];
    let [to_keys, to_values] = store.map(own);

    write_slots::launch(
        &moves.client.clone(),
        units(count(&moves) / 2 * numbers),
        dim(),
        keys.clone().into_buffer_arg(),
        values.into_buffer_arg(),
        moves.into_buffer_arg(),
        to_keys.clone().into_buffer_arg(),
        to_values.clone().into_buffer_arg(),
        numbers,
        [format(&keys), format(&to_keys)],
    );
    [tensor(to_keys), tensor(to_values)]
}

/// Writes keys and values of each row's newest token, `[rows, heads, width]`.
pub(crate) fn write_newest(store: Store, rows: &Rows, from: [&Tensor<3>; 2]) -> Store {
    let newest = whole(&rows.newest);
    let [keys, values] = from.map(any);
    let numbers = store[0].dims()[1] * store[0].dims()[2];
    let [to_keys, to_values] = store.map(own);

    write_rows::launch(
        &newest.client.clone(),
        units(count(&keys)),
        dim(),
        keys.clone().into_buffer_arg(),
        values.into_buffer_arg(),
        rows.pages.clone().into_buffer_arg(),
        newest.into_buffer_arg(),
        to_keys.clone().into_buffer_arg(),
        to_values.clone().into_buffer_arg(),
        numbers,
        rows.across,
        [format(&keys), format(&to_keys)],
    );
    [tensor(to_keys), tensor(to_values)]
}

/// Copies pages from another store, or within this one. `moves` lists all pages that are read, and then all that are
/// written.
pub(crate) fn copy(store: Store, from: Option<&Store>, moves: &Tensor<1, Int>) -> Store {
    let moves = whole(moves);
    let numbers = store[0].dims()[1] * store[0].dims()[2] * PAGE;

    let [keys, values] = store.map(own);
    let client = moves.client.clone();
    let count = units(count(&moves) / 2 * numbers);
    let format = format(&keys);

    match from {
        Some([from_keys, from_values]) => copy_pages::launch(
            &client,
            count,
            dim(),
            any(from_keys).into_buffer_arg(),
            any(from_values).into_buffer_arg(),
            moves.into_buffer_arg(),
            keys.clone().into_buffer_arg(),
            values.clone().into_buffer_arg(),
            numbers,
            format,
        ),
        None => copy_within::launch(
            &client,
            count,
            dim(),
            moves.into_buffer_arg(),
            keys.clone().into_buffer_arg(),
            values.clone().into_buffer_arg(),
            numbers,
            format,
        ),
    }

    [tensor(keys), tensor(values)]
}

/// Computes the attention of each row's newest token, `[rows, heads · width]`, in the format of the pages. A cube
/// processes eight pages, whatever the length of a row, so that a row's bits do not depend on its neighbours.
pub(crate) fn attend(
    query: &Tensor<3>,
    store: &Store,
    rows: &Rows,
    window: Option<usize>,
    sinks: Option<&Tensor<1>>,
) -> Tensor<2> {
    let [count, heads, width] = query.dims();
    let query = any(query);
    let newest = whole(&rows.newest);
    let [keys, values] = store.each_ref().map(any);
    let kv_heads = store[0].dims()[1];
    let group = heads / kv_heads;

    let flash = query.dtype == keys.dtype && serve(&query) && [WIDTH, 2 * WIDTH].contains(&width);
    // Maximum number of heads that divides a group evenly: a cube reads keys once for all of its heads.
    let own = if width > UNITS as usize { WIDE_HEADS } else { HEADS };
    let most = if flash { flash_pages::HEADS } else { own };
    let of_cube =
        (1..=most.min(group)).rev().find(|&count| group.is_multiple_of(count)).unwrap_or(1);

    let chunks = rows.farthest / TOKENS + 1;
    let client = query.client.clone();
    let window = window_of(window);
    let formats = [format(&query), format(&keys)];
    let output = empty(&query, [count, heads * width], keys.dtype);

    // If no row has a second chunk, there is nothing to join, unless there are sinks.
    let alone = flash && chunks == 1 && sinks.is_none();
    let partial = if alone { 1 } else { count * heads * chunks };
    let parts = empty(&query, [partial, width + 2], DType::F32);

    if flash {
        flash_pages::attend_pages::launch(
            &client,
            cubes(count * heads / of_cube * chunks),
            flash_pages::dim(),
            query.into_buffer_arg(),
            keys.into_buffer_arg(),
            values.into_buffer_arg(),
            rows.pages.clone().into_buffer_arg(),
            newest.clone().into_buffer_arg(),
            parts.clone().into_buffer_arg(),
            output.clone().into_buffer_arg(),
            kv_heads,
            group / of_cube,
            rows.across,
            chunks,
            window,
            of_cube,
            width,
            alone,
            formats[1],
        );
    } else {
        attend_pages::launch(
            &client,
            cubes(count * heads / of_cube * chunks),
            dim(),
            query.into_buffer_arg(),
            keys.clone().into_buffer_arg(),
            values.into_buffer_arg(),
            rows.pages.clone().into_buffer_arg(),
            newest.clone().into_buffer_arg(),
            parts.clone().into_buffer_arg(),
            kv_heads,
            group / of_cube,
            rows.across,
            chunks,
            window,
            of_cube,
            width,
            formats,
        );
    }

    if alone {
        return tensor(output);
    }
    let with_sinks = sinks.is_some();
    let sinks = sinks.map_or_else(|| parts.clone(), any);
    join::launch(
        &client,
        cubes(count * heads),
        CubeDim::new_1d(64),
        parts.into_buffer_arg(),
        newest.into_buffer_arg(),
        sinks.into_buffer_arg(),
        output.clone().into_buffer_arg(),
        heads,
        chunks,
        window,
        width,
        with_sinks,
        formats[1],
    );

    tensor(output)
}

#[cube(launch)]
fn write_slots<X: Float, Y: Float>(
    keys: &[X],
    values: &[X],
    moves: &[i32],
    to_keys: &mut [Y],
    to_values: &mut [Y],
    numbers: usize,
    #[define(X, Y)] _formats: [ElemType; 2],
) {
    let (at, number) = (ABSOLUTE_POS / numbers, ABSOLUTE_POS % numbers);
    if at < moves.len() / 2 {
        let from = moves[at] as usize * numbers + number;
        let to = moves[moves.len() / 2 + at] as usize * numbers + number;
        to_keys[to] = Y::cast_from(keys[from]);
        to_values[to] = Y::cast_from(values[from]);
    }
}

#[cube(launch)]
fn write_rows<X: Float, Y: Float>(
    keys: &[X],
    values: &[X],
    pages: &[u32],
    newest: &[i32],
    to_keys: &mut [Y],
    to_values: &mut [Y],
    numbers: usize,
    across: usize,
    #[define(X, Y)] _formats: [ElemType; 2],
) {
    if ABSOLUTE_POS < keys.len() {
        let row = ABSOLUTE_POS / numbers;
        let slot = slot(pages, row * across, newest[row] as usize);
        let to = slot * numbers + ABSOLUTE_POS % numbers;
        to_keys[to] = Y::cast_from(keys[ABSOLUTE_POS]);
        to_values[to] = Y::cast_from(values[ABSOLUTE_POS]);
    }
}

#[cube(launch)]
fn copy_pages<X: Float>(
    from_keys: &[X],
    from_values: &[X],
    moves: &[i32],
    keys: &mut [X],
    values: &mut [X],
    numbers: usize,
    #[define(X)] _format: ElemType,
) {
    let (at, number) = (ABSOLUTE_POS / numbers, ABSOLUTE_POS % numbers);
    if at < moves.len() / 2 {
        let from = moves[at] as usize * numbers + number;
        let to = moves[moves.len() / 2 + at] as usize * numbers + number;
        keys[to] = from_keys[from];
        values[to] = from_values[from];
    }
}

#[cube(launch)]
fn copy_within<X: Float>(
    moves: &[i32],
    keys: &mut [X],
    values: &mut [X],
    numbers: usize,
    #[define(X)] _format: ElemType,
) {
    let (at, number) = (ABSOLUTE_POS / numbers, ABSOLUTE_POS % numbers);
    if at < moves.len() / 2 {
        let from = moves[at] as usize * numbers + number;
        let to = moves[moves.len() / 2 + at] as usize * numbers + number;
        keys[to] = keys[from];
        values[to] = values[from];
    }
}

/// Computes attention over some of a row's pages, for some heads of its query that share a head of keys. The results
/// for each head are its weighted sum of values, its largest score and its sum of weights. Eight units share a key;
/// later, a unit has one number of some tokens' values.
#[cube(launch)]
fn attend_pages<Q: Float, X: Float>(
    query: &[Q],
    keys: &[X],
    values: &[X],
    pages: &[u32],
    newest: &[i32],
    parts: &mut [f32],
    kv_heads: usize,
    groups: usize,
    across: usize,
    chunks: usize,
    window: u32,
    #[comptime] heads: usize,
    #[comptime] width: usize,
    #[define(Q, X)] _formats: [ElemType; 2],
) {
    let unit = UNIT_POS as usize;
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
            let mut queries = Shared::<[f32]>::new_slice(comptime!(heads * width));
            let mut scores = Shared::<[f32]>::new_slice(comptime!(heads * TOKENS));
            // First for parts of dot products, and later for sums.
            let mut shared = Shared::<[f32]>::new_slice(comptime!(heads * UNITS as usize));

            let scale = 1.0 / f32::cast_from(width as u32).sqrt();
            let from = (row * of_row + group) * heads * width;
            let mut at = unit;
            while at < heads * width {
                queries[at] = f32::cast_from(query[from + at]) * scale;
                at += UNITS as usize;
            }
            sync_cube();

            let (part, key) = (unit % PARTS, unit / PARTS);
            let mut products = Array::<f32>::new(heads);
            let mut page = 0usize;
            while page < PAGES && first + page * PAGE <= last {
                let token = first + page * PAGE + key;

                #[unroll]
                for head in 0..heads {
                    products[head] = 0.0;
                }

                if token <= last {
                    let from = (slot(pages, row * across, token) * kv_heads + kv_head) * width;
                    at = part;
                    while at < width {
                        let number = f32::cast_from(keys[from + at]);
                        #[unroll]
                        for head in 0..heads {
                            products[head] += queries[head * width + at] * number;
                        }
                        at += PARTS;
                    }
                }

                #[unroll]
                for head in 0..heads {
                    shared[head * UNITS as usize + unit] = products[head];
                }

                sync_cube();
                at = unit;
                while at < heads * PAGE {
                    let (head, key) = (at / PAGE, at % PAGE);
                    let mut score = f32::new(0.0);
                    for part in 0..PARTS {
                        score += shared[head * UNITS as usize + key * PARTS + part];
                    }
                    scores[head * TOKENS + page * PAGE + key] = score;
                    at += UNITS as usize;
                }
                sync_cube();
                page += 1;
            }

            // Weights replace scores. Each head has 32 units.
            let lane = unit % PAGE;
            let to = ((row * of_row + group) * heads * chunks + chunk) * (width + 2);
            let mut head = unit / PAGE;
            while head < heads {
                let mut largest = f32::new(-1e30);
                at = lane;
                while at < TOKENS {
                    if is_visible(first + at, last, window) {
                        largest = max(largest, scores[head * TOKENS + at]);
                    }
                    at += PAGE;
                }
                shared[head * PAGE + lane] = largest;
                head += UNITS as usize / PAGE;
            }

            sync_cube();
            head = unit / PAGE;
            while head < heads {
                let mut largest = f32::new(-1e30);
                for lane in 0..PAGE {
                    largest = max(largest, shared[head * PAGE + lane]);
                }

                let mut sum = f32::new(0.0);
                at = lane;
                while at < TOKENS {
                    let mut weight = f32::new(0.0);
                    if is_visible(first + at, last, window) {
                        weight = (scores[head * TOKENS + at] - largest).exp();
                    }
                    scores[head * TOKENS + at] = weight;
                    sum += weight;
                    at += PAGE;
                }

                shared[(heads + head) * PAGE + lane] = sum;
                if lane == 0 {
                    parts[to + head * chunks * (width + 2) + width] = largest;
                }
                head += UNITS as usize / PAGE;
            }

            sync_cube();
            if unit < heads {
                let mut sum = f32::new(0.0);
                for lane in 0..PAGE {
                    sum += shared[(heads + unit) * PAGE + lane];
                }
                parts[to + unit * chunks * (width + 2) + width + 1] = sum;
            }
            sync_cube();

            // A unit has one number of the values, of every `step`-th token, and then the next one if heads are wider
            // than a cube has units.
            let wide = comptime!(width.next_power_of_two().min(UNITS as usize));
            let step = comptime!(UNITS as usize / width.next_power_of_two().min(UNITS as usize));

            #[unroll]
            for block in 0..comptime!(width.div_ceil(UNITS as usize)) {
                let start = comptime!(block * UNITS as usize);
                let number = start + unit % wide;

                #[unroll]
                for head in 0..heads {
                    products[head] = 0.0;
                }

                if number < width {
                    at = unit / wide;
                    let count = min(TOKENS, last - first + 1);
                    while at < count {
                        let from =
                            (slot(pages, row * across, first + at) * kv_heads + kv_head) * width;
                        let value = f32::cast_from(values[from + number]);
                        #[unroll]
                        for head in 0..heads {
                            products[head] += scores[head * TOKENS + at] * value;
                        }
                        at += step;
                    }
                }

                #[unroll]
                for head in 0..heads {
                    shared[head * UNITS as usize + unit] = products[head];
                }

                sync_cube();
                at = unit;
                while at < heads * wide {
                    let (head, column) = (at / wide, at % wide);
                    if start + column < width {
                        let mut sum = f32::new(0.0);
                        for part in 0..step {
                            sum += shared[head * UNITS as usize + part * wide + column];
                        }
                        parts[to + head * chunks * (width + 2) + start + column] = sum;
                    }
                    at += UNITS as usize;
                }
                // The next block replaces what is shared.
                sync_cube();
            }
        }
    }
}

/// Joins the results of all chunks of a row, for a head of its query, and the weight of its sink, if there are sinks.
#[cube(launch)]
fn join<X: Float>(
    parts: &[f32],
    newest: &[i32],
    sinks: &[f32],
    output: &mut [X],
    heads: usize,
    chunks: usize,
    window: u32,
    width: usize,
    #[comptime] with_sinks: bool,
    #[define(X)] _format: ElemType,
) {
    let row = CUBE_POS / heads;
    if row < newest.len() {
        let last = newest[row] as usize;
        let stop = last / TOKENS + 1;

        // Chunks that a window hides were not written by any cube.
        let mut start = 0usize;
        if last >= window as usize {
            start = (last - window as usize + 1) / TOKENS;
        }

        let step = width + 2;
        let from = CUBE_POS * chunks * step;

        let mut largest = f32::new(-1e30);
        let mut chunk = start;
        while chunk < stop {
            largest = max(largest, parts[from + chunk * step + width]);
            chunk += 1;
        }

        let mut of_sink = f32::new(0.0);
        if with_sinks {
            let sink = sinks[CUBE_POS % heads];
            largest = max(largest, sink);
            of_sink = (sink - largest).exp();
        }

        let mut number = UNIT_POS as usize;
        while number < width {
            let mut sum = of_sink;
            let mut all = f32::new(0.0);

            chunk = start;
            while chunk < stop {
                let part = from + chunk * step;
                // Each chunk's sums are relative to its own largest score.
                let kept = (parts[part + width] - largest).exp();
                all += parts[part + number] * kept;
                sum += parts[part + width + 1] * kept;
                chunk += 1;
            }

            output[CUBE_POS * width + number] = X::cast_from(all / sum);
            number += CUBE_DIM as usize;
        }
    }
}
