//! Queries, keys and values on GPUs: split, QK-norm and RoPE, also into pages of the KV cache; forward and backward.

use super::{
    block_table::{Rows, slot},
    pages::Store,
    rows::sums,
    shared::sum_of_lanes,
    *,
};
use crate::{compute::Compute, heads::Heads, norm::Norm};

/// Norms of the query heads and of the key heads, with their weights.
type Norms = (Norm, [Tensor<1>; 2]);

/// Upper bound on the parts into which a norm's backward pass splits the tokens, with a cube for each part and head.
const PARTS: usize = 128;

/// Splits `projected` into queries, keys and values in the matmul precision, `[tokens, heads, width]`.
pub(crate) fn apply(
    projected: &Tensor<2>,
    heads: Heads,
    norms: Option<&Norms>,
    angles: &Tensor<3>,
    compute: Compute,
) -> Option<[Tensor<3>; 3]> {
    let tokens = projected.dims()[0];
    let pairs = angles.dims()[1];
    let projected = wide(projected)?;
    let angles = wide(angles)?;

    let of = |count| empty(&angles, [tokens, count, heads.width], products(compute));
    let [query, key, value] = [of(heads.query), of(heads.key), of(heads.key)];
    let client = angles.client.clone();
    let Given { epsilon, offset, of_queries, of_keys } = Given::new(norms, &angles)?;

    let lanes = lanes(heads);
    qkv_rope::launch(
        &client,
        units(tokens * (heads.query + 2 * heads.key) * lanes),
        dim(),
        projected.into_buffer_arg(),
        angles.into_buffer_arg(),
        of_queries.into_buffer_arg(),
        of_keys.into_buffer_arg(),
        query.clone().into_buffer_arg(),
        key.clone().into_buffer_arg(),
        value.clone().into_buffer_arg(),
        epsilon,
        offset,
        heads.query,
        heads.key,
        heads.width,
        pairs,
        lanes,
        norms.is_some(),
        format(&query),
    );

    Some([tensor(query), tensor(key), tensor(value)])
}

/// Does [`apply`] for the newest token of each row, and writes its keys and values to pages. Returns its query, in the
/// pages' format.
pub(crate) fn into_pages(
    projected: &Tensor<2>,
    heads: Heads,
    norms: Option<&Norms>,
    angles: &Tensor<3>,
    store: Store,
    rows: &Rows,
) -> (Tensor<3>, Store) {
    let count = projected.dims()[0];
    let pairs = angles.dims()[1];
    let projected = any(projected);
    let angles = any(angles);

    let [keys, values] = store.map(own);
    let query = empty(&angles, [count, heads.query, heads.width], keys.dtype);

    let given = Given::new(norms, &angles).expect("weights of norms are f32");
    let lanes = lanes(heads);
    qkv_rope_into_pages::launch(
        &angles.client.clone(),
        units(count * (heads.query + 2 * heads.key) * lanes),
        dim(),
        projected.into_buffer_arg(),
        angles.into_buffer_arg(),
        given.of_queries.into_buffer_arg(),
        given.of_keys.into_buffer_arg(),
        rows.pages.clone().into_buffer_arg(),
        whole(&rows.newest).into_buffer_arg(),
        query.clone().into_buffer_arg(),
        keys.clone().into_buffer_arg(),
        values.clone().into_buffer_arg(),
        given.epsilon,
        given.offset,
        rows.across,
        heads.query,
        heads.key,
        heads.width,
        pairs,
        lanes,
        norms.is_some(),
        format(&query),
    );

    (tensor(query), [tensor(keys), tensor(values)])
}

/// Returns the units that process a head together: at least one for each pair of numbers, if a cube has that many.
fn lanes(heads: Heads) -> usize {
    (heads.width / 2).next_power_of_two().clamp(1, UNITS as usize)
}

/// Arguments of a kernel for norms, or substitutes if there are no norms.
struct Given {
    epsilon: f32,
    offset: f32,
    of_queries: Buffer,
    of_keys: Buffer,
}

impl Given {
    fn new(norms: Option<&Norms>, other: &Buffer) -> Option<Self> {
        Some(match norms {
            Some((rule, [of_queries, of_keys])) => Given {
                epsilon: rule.epsilon as f32,
                offset: rule.offset as f32,
                of_queries: wide(of_queries)?,
                of_keys: wide(of_keys)?,
            },
            None => Given {
                epsilon: 0.0,
                offset: 0.0,
                of_queries: other.clone(),
                of_keys: other.clone(),
            },
        })
    }
}

/// Computes the gradient of the input of [`apply`], and those of the norms' weights if these are `trained`. `norms` also
/// holds their input.
pub(crate) fn backward(
    heads: Heads,
    norms: Option<&(Norms, Tensor<2>)>,
    trained: bool,
    angles: &Tensor<3>,
    [d_query, d_key, d_value]: [&Tensor<3>; 3],
) -> Option<(Tensor<2>, Option<[Tensor<1>; 2]>)> {
    let tokens = d_query.dims()[0];
    let pairs = angles.dims()[1];
    let d_query = wide(d_query)?;
    let d_key = wide(d_key)?;
    let d_value = wide(d_value)?;
    let angles = wide(angles)?;

    let width = heads.width;
    let all = heads.query + 2 * heads.key;
    let d = empty(&angles, [tokens, all * width], DType::F32);

    let client = angles.client.clone();
    qkv_rope_backward::launch(
        &client,
        units(count(&d) / 2),
        dim(),
        d_query.into_buffer_arg(),
        d_key.into_buffer_arg(),
        d_value.into_buffer_arg(),
        angles.into_buffer_arg(),
        d.clone().into_buffer_arg(),
        heads.query,
        heads.key,
        width / 2,
        pairs,
    );

    let Some(((rule, [of_queries, of_keys]), projected)) = norms else {
        return Some((tensor(d), None));
    };

    let of_cube = tokens.div_ceil(PARTS);
    let parts = tokens.div_ceil(of_cube);
    // Missing ones are replaced by some that are not written.
    let [d_of_queries, d_of_keys] = [heads.query, heads.key]
        .map(|heads| empty(&d, if trained { [parts * heads, width] } else { [1, 1] }, DType::F32));

    // The gradients before the norm replace those after it, in place.
    qk_norm_backward::launch(
        &client,
        cubes(parts * (heads.query + heads.key)),
        across(width),
        wide(projected)?.into_buffer_arg(),
        wide(of_queries)?.into_buffer_arg(),
        wide(of_keys)?.into_buffer_arg(),
        d.clone().into_buffer_arg(),
        d_of_queries.clone().into_buffer_arg(),
        d_of_keys.clone().into_buffer_arg(),
        rule.epsilon as f32,
        rule.offset as f32,
        heads.query,
        heads.key,
        of_cube,
        tokens,
        trained,
    );

    let d_weights = [d_of_queries, d_of_keys];
    let d_weights = trained.then(|| d_weights.map(|d_weight| sums(d_weight, width)));
    Some((tensor(d), d_weights))
}

/// Processes each head of each token with `lanes` units.
#[cube(launch)]
fn qkv_rope<Y: Float>(
    projected: &[f32],
    angles: &[f32],
    of_queries: &[f32],
    of_keys: &[f32],
    query: &mut [Y],
    key: &mut [Y],
    value: &mut [Y],
    epsilon: f32,
    offset: f32,
    queries: usize,
    keys: usize,
    width: usize,
    pairs: usize,
    #[comptime] lanes: usize,
    #[comptime] normed: bool,
    #[define(Y)] _format: ElemType,
) {
    let token = ABSOLUTE_POS / lanes / (queries + 2 * keys);
    let exists = ABSOLUTE_POS / lanes * width < projected.len();
    qkv_rope_to(
        projected, angles, of_queries, of_keys, exists, token, query, key, value, epsilon, offset,
        queries, keys, width, pairs, lanes, normed,
    );
}

#[cube(launch)]
fn qkv_rope_into_pages<Y: Float>(
    projected: &[f32],
    angles: &[f32],
    of_queries: &[f32],
    of_keys: &[f32],
    pages: &[u32],
    newest: &[i32],
    query: &mut [Y],
    to_keys: &mut [Y],
    to_values: &mut [Y],
    epsilon: f32,
    offset: f32,
    across: usize,
    queries: usize,
    keys: usize,
    width: usize,
    pairs: usize,
    #[comptime] lanes: usize,
    #[comptime] normed: bool,
    #[define(Y)] _format: ElemType,
) {
    let row = ABSOLUTE_POS / lanes / (queries + 2 * keys);
    let exists = row < newest.len() && ABSOLUTE_POS / lanes * width < projected.len();
    let mut to = 0usize;
    if exists {
        to = slot(pages, row * across, newest[row] as usize);
    }
    qkv_rope_to(
        projected, angles, of_queries, of_keys, exists, to, query, to_keys, to_values, epsilon,
        offset, queries, keys, width, pairs, lanes, normed,
    );
}

/// Processes a head of one token, if the token `exists`. Its query is written to its own row, and its key and value to
/// row `to`.
#[cube]
fn qkv_rope_to<Y: Float>(
    projected: &[f32],
    angles: &[f32],
    of_queries: &[f32],
    of_keys: &[f32],
    exists: bool,
    to: usize,
    query: &mut [Y],
    key: &mut [Y],
    value: &mut [Y],
    epsilon: f32,
    offset: f32,
    queries: usize,
    keys: usize,
    width: usize,
    pairs: usize,
    #[comptime] lanes: usize,
    #[comptime] normed: bool,
) {
    let (half, all) = (width / 2, queries + 2 * keys);
    let index = ABSOLUTE_POS / lanes;
    let (head, token) = (index % all, index / all);
    let at = index * width;
    let mut scale = f32::new(1.0);
    if normed {
        // Every unit takes part, because the units of a cube wait for each other.
        let mut squares = f32::new(0.0);
        if exists && head < queries + keys {
            let mut number = ABSOLUTE_POS % lanes;
            while number < width {
                squares += projected[at + number] * projected[at + number];
                number += lanes;
            }
        }
        let squares = sum_of_lanes(squares, comptime!(lanes as u32));
        if head < queries + keys {
            scale = norm::root(squares, width, epsilon);
        }
    }

    if exists {
        let mut pair = ABSOLUTE_POS % lanes;
        while pair < half {
            let (first, second) = sides(pair, pairs, half);
            let (x, y) = (projected[at + first] * scale, projected[at + second] * scale);
            let (at_angle, rotates) = (token * pairs + pair, pair < pairs);

            if head < queries {
                let to = (token * queries + head) * width;
                let (x, y) = norm_and_rotate(
                    x, y, angles, at_angle, rotates, of_queries, offset, first, second, normed,
                );
                query[to + first] = Y::cast_from(x);
                query[to + second] = Y::cast_from(y);
            } else if head < queries + keys {
                let to = (to * keys + head - queries) * width;
                let (x, y) = norm_and_rotate(
                    x, y, angles, at_angle, rotates, of_keys, offset, first, second, normed,
                );
                key[to + first] = Y::cast_from(x);
                key[to + second] = Y::cast_from(y);
            } else {
                let to = (to * keys + head - queries - keys) * width;
                value[to + first] = Y::cast_from(x);
                value[to + second] = Y::cast_from(y);
            }

            pair += lanes;
        }
    }
}

/// Returns the two numbers of a head that a unit has: a pair that is rotated, or two numbers that are not.
#[cube]
fn sides(pair: usize, pairs: usize, half: usize) -> (usize, usize) {
    let rotated = pair < pairs;
    (select(rotated, pair, pair + pairs), select(rotated, pair + pairs, pair + half))
}

/// Multiplies two numbers by the norm's weights, if there is a norm, and rotates them if they are a pair.
#[cube]
fn norm_and_rotate(
    x: f32,
    y: f32,
    angles: &[f32],
    pair: usize,
    rotates: bool,
    weight: &[f32],
    offset: f32,
    first: usize,
    second: usize,
    #[comptime] normed: bool,
) -> (f32, f32) {
    let mut cos = f32::new(1.0);
    let mut sin = f32::new(0.0);
    if rotates {
        cos = angles[2 * pair];
        sin = angles[2 * pair + 1];
    }

    if normed {
        let x = x * (weight[first] + offset);
        let y = y * (weight[second] + offset);
        (x * cos - y * sin, y * cos + x * sin)
    } else {
        (x * cos - y * sin, y * cos + x * sin)
    }
}

/// Rotates gradients back.
#[cube(launch)]
fn qkv_rope_backward(
    d_query: &[f32],
    d_key: &[f32],
    d_value: &[f32],
    angles: &[f32],
    d: &mut [f32],
    queries: usize,
    keys: usize,
    half: usize,
    pairs: usize,
) {
    let all = queries + 2 * keys;
    let (pair, head) = (ABSOLUTE_POS % half, ABSOLUTE_POS / half % all);
    let token = ABSOLUTE_POS / half / all;
    let to = (token * all + head) * 2 * half;

    if to < d.len() {
        let (first, second) = sides(pair, pairs, half);
        let mut cos = f32::new(1.0);
        let mut sin = f32::new(0.0);
        if pair < pairs {
            cos = angles[2 * (token * pairs + pair)];
            sin = angles[2 * (token * pairs + pair) + 1];
        }

        if head < queries {
            let at = (token * queries + head) * 2 * half;
            d[to + first] = d_query[at + first] * cos + d_query[at + second] * sin;
            d[to + second] = d_query[at + second] * cos - d_query[at + first] * sin;
        } else if head < queries + keys {
            let at = (token * keys + head - queries) * 2 * half;
            d[to + first] = d_key[at + first] * cos + d_key[at + second] * sin;
            d[to + second] = d_key[at + second] * cos - d_key[at + first] * sin;
        } else {
            let at = (token * keys + head - queries - keys) * 2 * half;
            d[to + first] = d_value[at + first];
            d[to + second] = d_value[at + second];
        }
    }
}

/// Replaces the gradients after QK-norm with those before it, in place. A cube processes some tokens of one head, and
/// sums their part of the weight's gradient if the weights are `trained`.
#[cube(launch)]
fn qk_norm_backward(
    projected: &[f32],
    of_queries: &[f32],
    of_keys: &[f32],
    d: &mut [f32],
    d_of_queries: &mut [f32],
    d_of_keys: &mut [f32],
    epsilon: f32,
    offset: f32,
    queries: usize,
    keys: usize,
    of_cube: usize,
    tokens: usize,
    #[comptime] trained: bool,
) {
    let (head, part) = (CUBE_POS % (queries + keys), CUBE_POS / (queries + keys));
    if part * of_cube < tokens {
        // Queries and keys have separate weights, whose gradients are in separate buffers.
        let end = min((part + 1) * of_cube, tokens);
        if head < queries {
            let row = (part * queries + head) * of_queries.len();
            head_norm_backward(
                projected,
                of_queries,
                d,
                d_of_queries,
                row,
                epsilon,
                offset,
                head,
                queries + 2 * keys,
                part * of_cube,
                end,
                trained,
            );
        } else {
            let row = (part * keys + head - queries) * of_keys.len();
            head_norm_backward(
                projected,
                of_keys,
                d,
                d_of_keys,
                row,
                epsilon,
                offset,
                head,
                queries + 2 * keys,
                part * of_cube,
                end,
                trained,
            );
        }
    }
}

/// Does this for one head. Its part of the weight's gradient begins at `row` in `d_weights`.
#[cube]
fn head_norm_backward(
    projected: &[f32],
    weight: &[f32],
    d: &mut [f32],
    d_weights: &mut [f32],
    row: usize,
    epsilon: f32,
    offset: f32,
    head: usize,
    heads: usize,
    start: usize,
    end: usize,
    #[comptime] trained: bool,
) {
    let width = weight.len();
    let mut at = UNIT_POS as usize;
    if trained {
        while at < width {
            d_weights[row + at] = 0.0;
            at += CUBE_DIM as usize;
        }
    }

    let mut token = start;
    while token < end {
        let first = (token * heads + head) * width;
        let scale = norm::scale(&projected[first..first + width], epsilon);

        let mut along = f32::new(0.0);
        at = UNIT_POS as usize;
        while at < width {
            let x = projected[first + at];
            along += d[first + at] * (weight[at] + offset) * x;
            if trained {
                d_weights[row + at] += d[first + at] * (x * scale);
            }
            at += CUBE_DIM as usize;
        }

        let mean = sum_of_cube(along) * scale / f32::cast_from(width as u32);
        at = UNIT_POS as usize;
        while at < width {
            let g = d[first + at] * (weight[at] + offset);
            d[first + at] = (g - projected[first + at] * scale * mean) * scale;
            at += CUBE_DIM as usize;
        }

        token += 1;
    }
}
