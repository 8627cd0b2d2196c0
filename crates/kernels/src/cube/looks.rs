//! Queries, keys and values on GPUs: split, normed, turned and written to pages, and the way back.

use super::{
    pages::{Rows, Store, place},
    rows::sums,
    *,
};
use crate::{Compute, Heads, Norm};

/// The norms of the heads of queries and of keys, with their weights.
type Norms = (Norm, [Tensor<1>; 2]);

/// The largest number of parts into which a norm's backward pass cuts the places, with a cube for each part and
/// head.
const PARTS: usize = 128;

/// Splits `projected` into queries, keys and values in the format of products, `[places, heads, width]`.
pub(crate) fn apply(
    projected: &Tensor<2>,
    heads: Heads,
    norms: Option<&Norms>,
    angles: &Tensor<3>,
    compute: Compute,
) -> Option<[Tensor<3>; 3]> {
    let (places, pairs) = (projected.dims()[0], angles.dims()[1]);
    let (projected, angles) = (wide(projected)?, wide(angles)?);
    let of = |count| empty(&angles, [places, count, heads.width], products(compute));
    let [query, key, value] = [of(heads.query), of(heads.key), of(heads.key)];
    let client = angles.client.clone();
    let Given { epsilon, offset, of_queries, of_keys } = Given::new(norms, &angles)?;
    turned::launch(
        &client,
        cubes(places * (heads.query + 2 * heads.key)),
        across(heads.width / 2),
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
        norms.is_some(),
        format(&query),
    );
    Some([tensor(query), tensor(key), tensor(value)])
}

/// Does [`apply`] for the newest token of each row, and writes its keys and values to pages. Returns its query, in
/// the pages' format.
pub(crate) fn into_pages(
    projected: &Tensor<2>,
    heads: Heads,
    norms: Option<&Norms>,
    angles: &Tensor<3>,
    store: Store,
    rows: &Rows,
) -> (Tensor<3>, Store) {
    let (count, pairs) = (projected.dims()[0], angles.dims()[1]);
    let (projected, angles) = (any(projected), any(angles));
    let [keys, values] = store.map(own);
    let query = empty(&angles, [count, heads.query, heads.width], keys.dtype);
    let given = Given::new(norms, &angles).expect("weights of norms are f32");
    turned_into_pages::launch(
        &angles.client.clone(),
        cubes(count * (heads.query + 2 * heads.key)),
        across(heads.width / 2),
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
        norms.is_some(),
        format(&query),
    );
    (tensor(query), [tensor(keys), tensor(values)])
}

/// The arguments of a kernel for norms, or substitutes if there are no norms.
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

/// Computes the gradient of the input of [`apply`], and those of the norms' weights. The input of the norms stands
/// beside them.
pub(crate) fn back(
    heads: Heads,
    norms: Option<&(Norms, Tensor<2>)>,
    angles: &Tensor<3>,
    [d_query, d_key, d_value]: [&Tensor<3>; 3],
) -> Option<(Tensor<2>, Option<[Tensor<1>; 2]>)> {
    let (places, pairs) = (d_query.dims()[0], angles.dims()[1]);
    let (d_query, d_key, d_value) = (wide(d_query)?, wide(d_key)?, wide(d_value)?);
    let angles = wide(angles)?;
    let (width, all) = (heads.width, heads.query + 2 * heads.key);
    let d = empty(&angles, [places, all * width], DType::F32);
    let client = angles.client.clone();
    turned_back::launch(
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
    let of_cube = places.div_ceil(PARTS);
    let parts = places.div_ceil(of_cube);
    let [d_of_queries, d_of_keys] =
        [heads.query, heads.key].map(|heads| empty(&d, [parts * heads, width], DType::F32));
    normed_back::launch(
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
        places,
    );
    let d_weights = [d_of_queries, d_of_keys].map(|d_weight| sums(d_weight, width));
    Some((tensor(d), Some(d_weights)))
}

/// Goes through each head of each place with a cube of its own.
#[cube(launch)]
fn turned<Y: Float>(
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
    #[comptime] normed: bool,
    #[define(Y)] _format: ElemType,
) {
    let place = CUBE_POS / (queries + 2 * keys);
    turned_to(
        projected, angles, of_queries, of_keys, place, query, key, value, epsilon, offset, queries,
        keys, width, pairs, normed,
    );
}

#[cube(launch)]
fn turned_into_pages<Y: Float>(
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
    #[comptime] normed: bool,
    #[define(Y)] _format: ElemType,
) {
    let row = CUBE_POS / (queries + 2 * keys);
    if row < newest.len() {
        let place = place(pages, row * across, newest[row] as usize);
        turned_to(
            projected, angles, of_queries, of_keys, place, query, to_keys, to_values, epsilon,
            offset, queries, keys, width, pairs, normed,
        );
    }
}

/// Goes through a head of one place. Queries stay at their place, and keys and values go to `to`.
#[cube]
fn turned_to<Y: Float>(
    projected: &[f32],
    angles: &[f32],
    of_queries: &[f32],
    of_keys: &[f32],
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
    #[comptime] normed: bool,
) {
    let (half, all) = (width / 2, queries + 2 * keys);
    let (head, place) = (CUBE_POS % all, CUBE_POS / all);
    if CUBE_POS * width < projected.len() {
        let mut scale = f32::new(1.0);
        if normed && head < queries + keys {
            scale = norm::scale(&projected[CUBE_POS * width..(CUBE_POS + 1) * width], epsilon);
        }
        let mut pair = UNIT_POS as usize;
        while pair < half {
            let (first, second) = sides(pair, pairs, half);
            let at = CUBE_POS * width;
            let (x, y) = (projected[at + first] * scale, projected[at + second] * scale);
            let (at_angle, turns) = (place * pairs + pair, pair < pairs);
            if head < queries {
                let to = (place * queries + head) * width;
                let (x, y) =
                    look(x, y, angles, at_angle, turns, of_queries, offset, first, second, normed);
                query[to + first] = Y::cast_from(x);
                query[to + second] = Y::cast_from(y);
            } else if head < queries + keys {
                let to = (to * keys + head - queries) * width;
                let (x, y) =
                    look(x, y, angles, at_angle, turns, of_keys, offset, first, second, normed);
                key[to + first] = Y::cast_from(x);
                key[to + second] = Y::cast_from(y);
            } else {
                let to = (to * keys + head - queries - keys) * width;
                value[to + first] = Y::cast_from(x);
                value[to + second] = Y::cast_from(y);
            }
            pair += CUBE_DIM as usize;
        }
    }
}

/// Returns the two numbers of a head that a unit has: a pair that is turned, or two numbers that are not.
#[cube]
fn sides(pair: usize, pairs: usize, half: usize) -> (usize, usize) {
    let turned = pair < pairs;
    (select(turned, pair, pair + pairs), select(turned, pair + pairs, pair + half))
}

/// Multiplies two numbers by the norm's weights, if there is a norm, and turns them if they are a pair.
#[cube]
fn look(
    x: f32,
    y: f32,
    angles: &[f32],
    pair: usize,
    turns: bool,
    weight: &[f32],
    offset: f32,
    first: usize,
    second: usize,
    #[comptime] normed: bool,
) -> (f32, f32) {
    let mut cos = f32::new(1.0);
    let mut sin = f32::new(0.0);
    if turns {
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

/// Turns gradients back.
#[cube(launch)]
fn turned_back(
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
    let place = ABSOLUTE_POS / half / all;
    let to = (place * all + head) * 2 * half;
    if to < d.len() {
        let (first, second) = sides(pair, pairs, half);
        let mut cos = f32::new(1.0);
        let mut sin = f32::new(0.0);
        if pair < pairs {
            cos = angles[2 * (place * pairs + pair)];
            sin = angles[2 * (place * pairs + pair) + 1];
        }
        if head < queries {
            let at = (place * queries + head) * 2 * half;
            d[to + first] = d_query[at + first] * cos + d_query[at + second] * sin;
            d[to + second] = d_query[at + second] * cos - d_query[at + first] * sin;
        } else if head < queries + keys {
            let at = (place * keys + head - queries) * 2 * half;
            d[to + first] = d_key[at + first] * cos + d_key[at + second] * sin;
            d[to + second] = d_key[at + second] * cos - d_key[at + first] * sin;
        } else {
            let at = (place * keys + head - queries - keys) * 2 * half;
            d[to + first] = d_value[at + first];
            d[to + second] = d_value[at + second];
        }
    }
}

/// Makes gradients behind the norms of queries and keys into those before them, in place. A cube goes through some
/// places of one head, and adds up their part in the weight's gradient.
#[cube(launch)]
fn normed_back(
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
    places: usize,
) {
    let (head, part) = (CUBE_POS % (queries + keys), CUBE_POS / (queries + keys));
    if part * of_cube < places {
        let end = min((part + 1) * of_cube, places);
        if head < queries {
            let row = (part * queries + head) * of_queries.len();
            let d_weight = &mut d_of_queries[row..row + of_queries.len()];
            head_back(
                projected,
                of_queries,
                d,
                d_weight,
                epsilon,
                offset,
                head,
                queries + 2 * keys,
                part * of_cube,
                end,
            );
        } else {
            let row = (part * keys + head - queries) * of_keys.len();
            let d_weight = &mut d_of_keys[row..row + of_keys.len()];
            head_back(
                projected,
                of_keys,
                d,
                d_weight,
                epsilon,
                offset,
                head,
                queries + 2 * keys,
                part * of_cube,
                end,
            );
        }
    }
}

#[cube]
fn head_back(
    projected: &[f32],
    weight: &[f32],
    d: &mut [f32],
    d_weight: &mut [f32],
    epsilon: f32,
    offset: f32,
    head: usize,
    heads: usize,
    start: usize,
    end: usize,
) {
    let width = weight.len();
    let mut at = UNIT_POS as usize;
    while at < width {
        d_weight[at] = 0.0;
        at += CUBE_DIM as usize;
    }
    let mut place = start;
    while place < end {
        let first = (place * heads + head) * width;
        let scale = norm::scale(&projected[first..first + width], epsilon);
        let mut along = f32::new(0.0);
        at = UNIT_POS as usize;
        while at < width {
            let x = projected[first + at];
            along += d[first + at] * (weight[at] + offset) * x;
            d_weight[at] += d[first + at] * (x * scale);
            at += CUBE_DIM as usize;
        }
        let mean = sum_of_cube(along) * scale / f32::cast_from(width as u32);
        at = UNIT_POS as usize;
        while at < width {
            let g = d[first + at] * (weight[at] + offset);
            d[first + at] = (g - projected[first + at] * scale * mean) * scale;
            at += CUBE_DIM as usize;
        }
        place += 1;
    }
}
