//! Attention of new tokens over pages of keys and values, on the CPU.

use rayon::prelude::*;

use super::{
    lanes::{exp, fold, largest},
    simd,
};
use crate::{
    block::{Block, PAGE},
    heads::Heads,
};

/// How many numbers of a value are accumulated together.
const NUMBERS: usize = 32;

/// Writes one token's keys and values, `[heads, width]`, to an offset in a page.
pub(crate) fn write(
    keys: &mut [f32],
    values: &mut [f32],
    (page, offset): (usize, usize),
    width: usize,
    key: &[f32],
    value: &[f32],
) {
    let first = page * key.len() * PAGE;
    // Keys are stored by number, values by token.
    for (number, &key) in key.iter().enumerate() {
        keys[first + number * PAGE + offset] = key;
    }
    for (head, value) in value.chunks_exact(width).enumerate() {
        let at = first + (head * PAGE + offset) * width;
        values[at..at + width].copy_from_slice(value);
    }
}

/// Computes the attention of each row's newest token, `[rows, heads, width]`, over the last `window` tokens of the
/// row, and over its heads' `sinks`, if there are any.
pub(crate) fn attend(
    query: &[f32],
    pools: &[[&[f32]; 2]],
    rows: &[Vec<Block>],
    heads: Heads,
    window: usize,
    sinks: Option<&[f32]>,
) -> Vec<f32> {
    let Heads { query: all, key: kv_heads, width } = heads;
    let group = all / kv_heads;

    let mut output = vec![0.0; query.len()];
    let work = output.par_chunks_mut(group * width).zip(query.par_chunks(group * width));

    let scores = <[Vec<f32>; 3]>::default;
    work.enumerate().for_each_init(scores, |scores, (index, (output, query))| {
        let row = &rows[index / kv_heads];
        let head = index % kv_heads;
        let pages = || {
            row.iter().map(|block| {
                let first = (block.page * kv_heads + head) * PAGE * width;
                let [keys, values] = pools[block.pool];
                (
                    block.tokens,
                    &keys[first..first + PAGE * width],
                    &values[first..first + PAGE * width],
                )
            })
        };

        simd!({
            let mut done = 0;
            while done < group {
                let (query, output) = (&query[done * width..], &mut output[done * width..]);
                let sinks = sinks.map(|sinks| &sinks[head * group + done..]);
                done += match group - done {
                    1 => few::<1, _>(query, output, pages, scores, width, window, sinks),
                    3 => few::<3, _>(query, output, pages, scores, width, window, sinks),
                    _ => few::<2, _>(query, output, pages, scores, width, window, sinks),
                };
            }
        });
    });

    output
}

/// Computes the attention of the first `N` queries, which have the same keys and values. These are read once for all of
/// them, and independent sums keep a core's units busy. Returns `N`.
#[inline(always)]
fn few<'a, const N: usize, I: Iterator<Item = (usize, &'a [f32], &'a [f32])>>(
    query: &[f32],
    output: &mut [f32],
    pages: impl Fn() -> I,
    scores: &mut [Vec<f32>; 3],
    width: usize,
    window: usize,
    sinks: Option<&[f32]>,
) -> usize {
    scores.iter_mut().for_each(Vec::clear);

    for (tokens, keys, _) in pages() {
        for (scores, page) in scores.iter_mut().zip(scored::<N>(query, keys, width)) {
            scores.extend_from_slice(&page[..tokens]);
        }
    }

    // A window hides the row's first tokens.
    let hidden = scores[0].len().saturating_sub(window);
    for (query, scores) in scores[..N].iter_mut().enumerate() {
        let sink = sinks.map_or(f32::NEG_INFINITY, |sinks| sinks[query]);
        weigh(&mut scores[hidden..], 1.0 / (width as f32).sqrt(), sink);
    }

    let mut first = 0;
    for (tokens, _, values) in pages() {
        let begin = hidden.saturating_sub(first).min(tokens);
        let weights = std::array::from_fn(|query| &scores[query][first + begin..first + tokens]);
        add::<N>(output, weights, &values[begin * width..], width);
        first += tokens;
    }
    N
}

/// Computes the dot products of `N` queries with all keys of a page, `[width, PAGE]`.
#[inline(always)]
fn scored<const N: usize>(query: &[f32], keys: &[f32], width: usize) -> [[f32; PAGE]; N] {
    let mut sums = [[0.0; PAGE]; N];
    for (at, keys) in keys.as_chunks().0[..width].iter().enumerate() {
        accumulate(&mut sums, std::array::from_fn(|index| query[index * width + at]), keys);
    }
    sums
}

/// Turns scores into weights that sum to 1 with that of a sink, whose score comes scaled.
#[inline(always)]
fn weigh(scores: &mut [f32], scale: f32, sink: f32) {
    let top = largest(scores);
    for score in &mut *scores {
        *score = exp((*score - top) * scale);
    }
    // A sink far above all scores is infinite here, and leaves them no weight.
    let share =
        1.0 / (fold([scores], 0.0, |sum, [x]| sum + x, |x, y| x + y) + exp(sink - top * scale));
    for score in scores {
        *score *= share;
    }
}

/// Adds values times the weights of `N` queries.
#[inline(always)]
fn add<const N: usize>(output: &mut [f32], weights: [&[f32]; N], values: &[f32], width: usize) {
    let tokens = weights[0].len();
    let weights = weights.map(|weights| &weights[..tokens]);
    let values = values[..tokens * width].chunks_exact(width);

    let whole = width / NUMBERS * NUMBERS;
    for at in (0..whole).step_by(NUMBERS) {
        // The sums continue from page to page as if all were one, so that the bits do not depend on where a row's
        // tokens are stored.
        let mut sums = [[0.0; NUMBERS]; N];
        for (query, sums) in sums.iter_mut().enumerate() {
            for (sum, output) in sums.iter_mut().zip(&output[query * width + at..]) {
                *sum = *output;
            }
        }

        for (token, value) in values.clone().enumerate() {
            let value = value[at..].first_chunk().expect("a whole chunk");
            accumulate(&mut sums, std::array::from_fn(|query| weights[query][token]), value);
        }

        for (query, sums) in sums.iter().enumerate() {
            let output = &mut output[query * width + at..][..NUMBERS];
            for (output, sum) in output.iter_mut().zip(sums) {
                *output = *sum;
            }
        }
    }

    if whole == width {
        return;
    }

    for (query, weights) in weights.into_iter().enumerate() {
        let rest = &mut output[query * width + whole..(query + 1) * width];
        for (weight, value) in weights.iter().zip(values.clone()) {
            for (sum, value) in rest.iter_mut().zip(&value[whole..]) {
                *sum = weight.mul_add(*value, *sum);
            }
        }
    }
}

/// Adds `x` times a separate number to each of the sums. Product and sum are rounded once, on every processor. Where a
/// processor has no instruction for it (x86-64 before AVX2), a function of the C library does the same, slowly.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "in this form sums stay in registers")]
fn accumulate<const N: usize, const L: usize>(
    sums: &mut [[f32; L]; N],
    numbers: [f32; N],
    x: &[f32; L],
) {
    for lane in 0..L {
        for index in 0..N {
            sums[index][lane] = numbers[index].mul_add(x[lane], sums[index][lane]);
        }
    }
}
