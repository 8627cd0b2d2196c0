//! Gradients of `attention` on GPUs: by `flash_backward` where a device has such matrix instructions, and in `tiles`
//! elsewhere. For the gradient of queries, rows are queries that iterate over the keys they attend to. For the
//! gradients of keys and values, rows are keys that iterate over the queries that attend to them.

use super::{
    attention::{hidden, is_visible, qkv_of, window_of},
    plan::{ITEM, Plan},
    shared::sum_of_lanes,
    tiles::{Bench, How, Rows, STRIP, products, weighted, write},
    *,
};
use crate::{AttentionOptions, AttentionOutput, PackedMask, launch_ranges::launch_ranges};

/// Units that compute the two numbers of a query and head in [`means`]: a power of two.
const LANES: usize = 32;

/// See [`crate::attention_backward`].
pub(crate) fn backward(
    qkv: [&Tensor<3>; 3],
    out: &AttentionOutput,
    d_output: &Tensor<3>,
    mask: &PackedMask,
    options: AttentionOptions,
) -> Option<[Tensor<3>; 3]> {
    let [tokens, _, width] = qkv[0].dims();
    let kv_heads = qkv[1].dims()[1];
    let [query, key, value] = qkv_of(qkv)?;
    let d_output = wide(d_output)?;

    let plan = mask.plan(&query);
    let how = How::new(&query, plan.each, width);
    let client = query.client.clone();

    let shapes = flash_backward::shapes(&query, plan);
    let multiplied = if shapes.is_some() { format(&query) } else { how.staged(&query) };
    let pairs = pairs(out, &d_output, multiplied)?;

    let qkv = [query, key, value];
    let first = tokens + plan.queries.len() * ITEM;
    let [d_query, d_key, d_value] = match shapes {
        Some(shapes) => {
            let d_output = tensor::<3>(d_output).cast(qkv[0].dtype);
            let d_output = buffer(&d_output)?;
            let inputs =
                flash_backward::Inputs { qkv: &qkv, d_output, pairs: &pairs, plan, options };
            flash_backward::backward(inputs, shapes)
        }
        None => in_tiles(&qkv, &d_output, &pairs, plan, options, how),
    };

    if plan.more > 0 {
        add_more::launch(
            &client,
            units(plan.more * how.tile() * kv_heads * width),
            dim(),
            plan.numbers.clone().into_buffer_arg(),
            d_key.clone().into_buffer_arg(),
            d_value.clone().into_buffer_arg(),
            first + plan.keys.len() * ITEM,
            plan.more,
            kv_heads * width,
            how.tile(),
        );
    }

    let of_tokens = |x: Buffer| match plan.more {
        0 => tensor::<3>(x),
        _ => tensor::<3>(x).slice_dim(0, 0..tokens),
    };
    Some([tensor(d_query), of_tokens(d_key), of_tokens(d_value)])
}

/// Computes two numbers for each query and head, rounded as matmuls in a format need them.
fn pairs(out: &AttentionOutput, d_output: &Buffer, staged: ElemType) -> Option<Buffer> {
    let [tokens, heads, width] = out.output.dims();
    let pairs = empty(d_output, [tokens * heads, 2], DType::F32);
    means::launch(
        &d_output.client.clone(),
        units(tokens * heads * LANES),
        dim(),
        wide(&out.output)?.into_buffer_arg(),
        d_output.clone().into_buffer_arg(),
        wide(&out.lse)?.into_buffer_arg(),
        pairs.clone().into_buffer_arg(),
        width,
        staged,
    );
    Some(pairs)
}

/// Computes the gradients in [`tiles`](super::tiles).
fn in_tiles(
    [query, key, value]: &[Buffer; 3],
    d_output: &Buffer,
    pairs: &Buffer,
    plan: &Plan,
    options: AttentionOptions,
    how: How,
) -> [Buffer; 3] {
    let [tokens, heads, width] = query.meta.shape().dims();
    let kv_heads = key.meta.shape()[1];
    let client = query.client.clone();

    let d_query = plan.room(query, [tokens, heads, width]);
    // Scores, the gradients of weights, and that of queries.
    let cost = 3 * how.tile() * heads * width;
    for items in launch_ranges(&plan.queries, |keys| keys * cost) {
        attend_backward_dq::launch(
            &client,
            cubes(items.len() * heads),
            dim(),
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
            how,
            [format(query), how.staged(query)],
        );
    }

    let [d_key, d_value] = [0; 2].map(|_| plan.room(query, [plan.rows, kv_heads, width]));
    // The same, and the gradient of values.
    let cost = 4 * how.tile() * heads * width;
    let first = tokens + plan.queries.len() * ITEM;
    for items in launch_ranges(&plan.keys, |queries| queries * cost) {
        attend_backward_dkv::launch(
            &client,
            cubes(items.len() * kv_heads),
            dim(),
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
            how,
            [format(query), how.staged(query)],
        );
    }

    [d_query, d_key, d_value]
}

/// Computes two numbers for each query and head: the logarithm of its sum of weights, and the mean of its values'
/// gradients, which is the output's gradient times the output. That gradient is rounded as in matmuls of tiles, because
/// only the difference between those and the mean matters. A query and head have [`LANES`] units of a cube.
#[cube(launch)]
fn means<S: Float>(
    output: &[f32],
    d_output: &[f32],
    lse: &[f32],
    pairs: &mut [f32],
    width: usize,
    #[define(S)] _staged: ElemType,
) {
    let (index, lane) = (ABSOLUTE_POS / LANES, ABSOLUTE_POS % LANES);
    let exists = index < lse.len();
    let mut sum = f32::new(0.0);
    if exists {
        let mut at = ABSOLUTE_POS % LANES;
        while at < width {
            let d = S::cast_from(d_output[index * width + at]);
            sum += output[index * width + at] * f32::cast_from(d);
            at += LANES;
        }
    }

    // Every unit takes part, because the units of a cube wait for each other.
    let sum = sum_of_lanes(sum, comptime!(LANES as u32));
    if exists && lane == 0 {
        pairs[2 * index] = lse[index];
        pairs[2 * index + 1] = sum;
    }
}

/// Computes the gradient of queries, with a cube for each item of queries and each head.
#[cube(launch)]
fn attend_backward_dq<X: Float, S: Float>(
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
    #[comptime] how: How,
    #[define(X, S)] _formats: [ElemType; 2],
) {
    if CUBE_POS < count * heads {
        let each = comptime!(how.each);
        let head = CUBE_POS % heads;
        let kv_head = head / (heads / kv_heads);
        let item = items + CUBE_POS / heads * ITEM;
        let first = plan[item] as usize;
        let end = plan[item + 1] as usize;
        let down = UNIT_POS as usize / STRIP;
        let across = UNIT_POS as usize % STRIP;
        let scale = 1.0 / f32::cast_from(comptime!(how.width as u32)).sqrt();

        let mut bench = Bench::<S>::new(how);
        let mut scores = Array::<f32>::new(comptime!(how.numbers()));
        let mut d_weights = Array::<f32>::new(comptime!(how.numbers()));
        let mut sums = Array::<f32>::new(comptime!(how.sums()));

        #[unroll]
        for at in 0..comptime!(how.sums()) {
            sums[at] = 0.0;
        }

        let queries = Rows { first, end, heads, head };
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
                let keys = Rows { first: start, end: stop, heads: kv_heads, head: kv_head };
                products::<X, X, S>(query, &queries, key, &keys, &mut bench, &mut scores, how);
                products::<f32, X, S>(
                    d_output,
                    &queries,
                    value,
                    &keys,
                    &mut bench,
                    &mut d_weights,
                    how,
                );

                #[unroll]
                for row in 0..each {
                    let at = down + STRIP * row;
                    #[unroll]
                    for column in 0..each {
                        let mut d = f32::new(0.0);
                        let key = start + across + STRIP * column;
                        if is_visible(plan, first + at, end, key, stop, window) {
                            let pair = 2 * ((first + at) * heads + head);
                            let weight = (scores[row * each + column] * scale - pairs[pair]).exp();
                            d = weight * (d_weights[row * each + column] - pairs[pair + 1]);
                        }
                        bench.weights[at * comptime!(how.across()) + across + STRIP * column] =
                            S::cast_from(d);
                    }
                }

                sync_cube();
                weighted::<X, S>(key, &keys, &mut bench, &mut sums, how);
                start += comptime!(how.tile());
            }
            part += 1;
        }

        write(&sums, d_query, first, &queries, scale, how);
    }
}

/// Computes the gradients of keys and values, with a cube for each item of keys and each head of keys. A cube iterates
/// over that head's query heads.
#[cube(launch)]
fn attend_backward_dkv<X: Float, S: Float>(
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
    #[comptime] how: How,
    #[define(X, S)] _formats: [ElemType; 2],
) {
    if CUBE_POS < count * kv_heads {
        let each = comptime!(how.each);
        let kv_head = CUBE_POS % kv_heads;
        let group = heads / kv_heads;
        let item = items + CUBE_POS / kv_heads * ITEM;
        let first = plan[item] as usize;
        let end = plan[item + 1] as usize;
        let stop = plan[item + 3] as usize;
        let down = UNIT_POS as usize / STRIP;
        let across = UNIT_POS as usize % STRIP;
        let scale = 1.0 / f32::cast_from(comptime!(how.width as u32)).sqrt();

        let mut bench = Bench::<S>::new(how);
        let mut scores = Array::<f32>::new(comptime!(how.numbers()));
        let mut d_weights = Array::<f32>::new(comptime!(how.numbers()));
        let mut of_keys = Array::<f32>::new(comptime!(how.sums()));
        let mut of_values = Array::<f32>::new(comptime!(how.sums()));

        #[unroll]
        for at in 0..comptime!(how.sums()) {
            of_keys[at] = 0.0;
            of_values[at] = 0.0;
        }

        let keys = Rows { first, end, heads: kv_heads, head: kv_head };
        let mut head = kv_head * group;
        while head < (kv_head + 1) * group {
            let mut start = plan[item + 2] as usize;

            while start < stop {
                let tile_end = min(start + comptime!(how.tile()), stop);
                if !left_behind(plan, start, tile_end, end - 1, window) {
                    let queries = Rows { first: start, end: stop, heads, head };
                    products::<X, X, S>(key, &keys, query, &queries, &mut bench, &mut scores, how);
                    products::<X, f32, S>(
                        value,
                        &keys,
                        d_output,
                        &queries,
                        &mut bench,
                        &mut d_weights,
                        how,
                    );

                    #[unroll]
                    for row in 0..each {
                        let at = down + STRIP * row;
                        #[unroll]
                        for column in 0..each {
                            let query = start + across + STRIP * column;
                            let mut weight = f32::new(0.0);
                            let mut d = f32::new(0.0);
                            if is_visible(plan, query, stop, first + at, end, window) {
                                let pair = 2 * (query * heads + head);
                                weight = (scores[row * each + column] * scale - pairs[pair]).exp();
                                d = weight * (d_weights[row * each + column] - pairs[pair + 1]);
                            }
                            bench.weights[at * comptime!(how.across()) + across + STRIP * column] =
                                S::cast_from(weight);
                            scores[row * each + column] = d;
                        }
                    }

                    sync_cube();
                    // The room for weights is used twice: first for those of values, then for those of keys.
                    weighted::<f32, S>(d_output, &queries, &mut bench, &mut of_values, how);
                    #[unroll]
                    for row in 0..each {
                        let at = down + STRIP * row;
                        #[unroll]
                        for column in 0..each {
                            bench.weights[at * comptime!(how.across()) + across + STRIP * column] =
                                S::cast_from(scores[row * each + column]);
                        }
                    }

                    sync_cube();
                    weighted::<X, S>(query, &queries, &mut bench, &mut of_keys, how);
                }
                start += comptime!(how.tile());
            }
            head += 1;
        }

        let row = plan[item + 4] as usize;
        write(&of_keys, d_key, row, &keys, scale, how);
        write(&of_values, d_value, row, &keys, 1.0, how);
    }
}

/// Tells whether all queries from `start` to `end` are so far after a key that none of them attends to it or any key
/// before it.
#[cube]
fn left_behind(plan: &[u32], start: usize, end: usize, key: usize, window: u32) -> bool {
    // Positions start over if a text begins among the queries.
    let in_order = plan[end - 1] - plan[start] == (end - 1 - start) as u32;
    let mut behind = false;
    if in_order && plan[end - 1] >= plan[start] && plan[start] >= plan[key] {
        behind = plan[start] - plan[key] >= window;
    }
    behind
}

/// Adds the gradients in separate rows to those of their tokens, one block after the other.
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
        let token = plan[item] as usize + at;

        if token < plan[item + 1] as usize {
            let mut row = plan[item + 2] as usize + at;
            while row < plan[item + 3] as usize {
                d_key[token * numbers + number] += d_key[row * numbers + number];
                d_value[token * numbers + number] += d_value[row * numbers + number];
                row += tile;
            }
        }
    }
}
