//! Attention on GPUs, over only a segment's tokens: by `flash` where a device has such matrix instructions, and in
//! `tiles` elsewhere. Rows are queries that iterate over the keys they attend to.

use super::{
    plan::{ITEM, Plan},
    tiles::{Bench, How, Rows, STRIP, products, weighted, write},
    *,
};
use crate::{AttentionOptions, AttentionOutput, PackedMask, launch_ranges::launch_ranges};

impl PackedMask {
    pub(super) fn plan(&self, x: &Buffer) -> &Plan {
        self.on_gpu.get_or_init(|| Plan::new(self.segments(), self.tokens(), x))
    }
}

/// Returns the numbers of queries, keys and values, if they are in one format.
pub(super) fn qkv_of(qkv: [&Tensor<3>; 3]) -> Option<[Buffer; 3]> {
    let formats = qkv.map(Tensor::dtype);
    let [Some(query), Some(key), Some(value)] = qkv.map(buffer) else { return None };
    (formats[0] == formats[1] && formats[0] == formats[2]).then_some([query, key, value])
}

/// Converts a window to what kernels count with.
pub(super) fn window_of(window: Option<usize>) -> u32 {
    u32::try_from(window.unwrap_or(usize::MAX)).unwrap_or(u32::MAX)
}

/// See [`crate::attention()`].
pub(crate) fn forward(
    qkv: [&Tensor<3>; 3],
    mask: &PackedMask,
    options: AttentionOptions,
) -> Option<AttentionOutput> {
    let qkv = qkv_of(qkv)?;
    let plan = mask.plan(&qkv[0]);
    if let Some(shape) = flash::shape(&qkv[0], plan) {
        return Some(flash::forward(&qkv, plan, options, shape));
    }
    let how = How::new(&qkv[0], plan.each, qkv[0].meta.shape()[2]);
    Some(in_tiles(&qkv, plan, options, how))
}

/// Computes attention in [`tiles`](super::tiles).
fn in_tiles(
    [query, key, value]: &[Buffer; 3],
    plan: &Plan,
    options: AttentionOptions,
    how: How,
) -> AttentionOutput {
    let [tokens, heads, width] = query.meta.shape().dims();
    let kv_heads = key.meta.shape()[1];

    let output = plan.room(query, [tokens, heads, width]);
    let lse = plan.room(query, [tokens, heads, 1]);
    // Scores, and the weighted sum of values.
    let cost = 2 * how.tile() * heads * width;
    for items in launch_ranges(&plan.queries, |keys| keys * cost) {
        attend::launch(
            &query.client.clone(),
            cubes(items.len() * heads),
            dim(),
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
            how,
            [format(query), how.staged(query)],
        );
    }

    AttentionOutput { output: tensor(output), lse: tensor(lse) }
}

/// Computes attention with one cube for each item of queries and each head. A query's largest score is carried along
/// with its sum of weights and its weighted sum of values.
#[cube(launch)]
fn attend<X: Float, S: Float>(
    query: &[X],
    key: &[X],
    value: &[X],
    plan: &[u32],
    output: &mut [f32],
    lse: &mut [f32],
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
        let mut sums = Array::<f32>::new(comptime!(how.sums()));
        let mut largest = Array::<f32>::new(each);
        let mut weights = Array::<f32>::new(each);

        #[unroll]
        for at in 0..comptime!(how.sums()) {
            sums[at] = 0.0;
        }

        #[unroll]
        for row in 0..each {
            largest[row] = f32::new(-1e30);
            weights[row] = 0.0;
        }

        // Keys before the segment come first, then the segment's own.
        let mut part = 0u32;
        while part < 2 {
            let mut start = plan[item + 2] as usize;
            let mut stop = plan[item + 3] as usize;
            if part == 1 {
                start = plan[item + 4] as usize;
                stop = end;
            }

            // A window may hide the first keys from all queries of the item.
            start = min(start + hidden(plan, first, start, window), stop);
            while start < stop {
                let queries = Rows { first, end, heads, head };
                let keys = Rows { first: start, end: stop, heads: kv_heads, head: kv_head };
                products::<X, X, S>(query, &queries, key, &keys, &mut bench, &mut scores, how);

                #[unroll]
                for row in 0..each {
                    let mut own = f32::new(-1e30);
                    #[unroll]
                    for column in 0..each {
                        let query = first + down + STRIP * row;
                        let key = start + across + STRIP * column;
                        let mut score = f32::new(-1e30);
                        if is_visible(plan, query, end, key, stop, window) {
                            score = scores[row * each + column] * scale;
                        }
                        scores[row * each + column] = score;
                        own = max(own, score);
                    }
                    bench.found[(down + STRIP * row) * comptime!(how.found()) + across] = own;
                }

                sync_cube();
                #[unroll]
                for row in 0..each {
                    let at = down + STRIP * row;
                    let mut most = largest[row];
                    for column in 0..STRIP {
                        most = max(most, bench.found[at * comptime!(how.found()) + column]);
                    }

                    let kept = (largest[row] - most).exp();
                    largest[row] = most;
                    let mut sum = weights[row] * kept;
                    #[unroll]
                    for column in 0..each {
                        let score = scores[row * each + column];
                        // While all keys so far are masked, all scores are equal and would have weight.
                        let weight = select(score > f32::new(-1e29), (score - most).exp(), 0.0);
                        sum += weight;
                        bench.weights[at * comptime!(how.across()) + across + STRIP * column] =
                            S::cast_from(weight);
                    }

                    weights[row] = sum;
                    #[unroll]
                    for block in 0..comptime!(how.blocks()) {
                        #[unroll]
                        for column in 0..each {
                            sums[(block * each + row) * each + column] *= kept;
                        }
                    }
                }

                sync_cube();
                weighted::<X, S>(value, &keys, &mut bench, &mut sums, how);
                start += comptime!(how.tile());
            }
            part += 1;
        }

        // Sums over all units of a row.
        #[unroll]
        for row in 0..each {
            bench.found[(down + STRIP * row) * comptime!(how.found()) + across] = weights[row];
        }

        sync_cube();
        #[unroll]
        for row in 0..each {
            let token = first + down + STRIP * row;
            let mut sum = f32::new(0.0);
            for column in 0..STRIP {
                sum += bench.found[(down + STRIP * row) * comptime!(how.found()) + column];
            }
            // A window may hide everything.
            let share = select(sum > 0.0, 1.0 / sum, 0.0);

            #[unroll]
            for block in 0..comptime!(how.blocks()) {
                #[unroll]
                for column in 0..each {
                    sums[(block * each + row) * each + column] *= share;
                }
            }

            if token < end && across == 0 {
                lse[token * heads + head] =
                    select(sum > 0.0, largest[row] + sum.ln(), f32::new(-1e30));
            }
        }
        write(&sums, output, first, &Rows { first, end, heads, head }, 1.0, how);
    }
}

/// Counts the keys starting at `start` that neither a query nor any query after it attends to.
#[cube]
pub(super) fn hidden(plan: &[u32], query: usize, start: usize, window: u32) -> usize {
    let distance = plan[query] - plan[start];
    select(distance >= window, distance - window + 1, 0) as usize
}

/// Tells whether a query attends to a key. False if either is at or beyond its end, `queries` and `keys`.
#[cube]
pub(super) fn is_visible(
    plan: &[u32],
    query: usize,
    queries: usize,
    key: usize,
    keys: usize,
    window: u32,
) -> bool {
    let mut seen = false;
    if query < queries && key < keys {
        seen = plan[query] >= plan[key] && plan[query] - plan[key] < window;
    }
    seen
}
