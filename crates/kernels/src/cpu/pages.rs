use rayon::prelude::*;

use super::{
    lanes::{exp, fold, largest},
    simd,
};
use crate::{Heads, PAGE, Span};

/// Numbers of a value that are carried together.
const NUMBERS: usize = 32;

/// Writes keys and values of one token, `[heads, width]`, to a place of a page.
pub(crate) fn write(
    keys: &mut [f32],
    values: &mut [f32],
    (page, place): (usize, usize),
    width: usize,
    key: &[f32],
    value: &[f32],
) {
    let first = page * key.len() * PAGE;
    for (number, &key) in key.iter().enumerate() {
        keys[first + number * PAGE + place] = key;
    }
    for (head, value) in value.chunks_exact(width).enumerate() {
        let at = first + (head * PAGE + place) * width;
        values[at..at + width].copy_from_slice(value);
    }
}

/// The newest token's attention of each row, `[rows, heads, width]`, over the last `window` tokens of the row.
pub(crate) fn attend(
    query: &[f32],
    blocks: &[[&[f32]; 2]],
    rows: &[Vec<Span>],
    heads: Heads,
    window: usize,
) -> Vec<f32> {
    let Heads { query: all, key: kv_heads, width } = heads;
    let group = all / kv_heads;
    let mut output = vec![0.0; query.len()];
    let work = output.par_chunks_mut(group * width).zip(query.par_chunks(group * width));
    work.enumerate().for_each_init(Vec::new, |scores, (index, (output, query))| {
        let (row, head) = (&rows[index / kv_heads], index % kv_heads);
        let pages = || {
            row.iter().map(|span| {
                let first = (span.page * kv_heads + head) * PAGE * width;
                let [keys, values] = blocks[span.block];
                (
                    span.tokens,
                    &keys[first..first + PAGE * width],
                    &values[first..first + PAGE * width],
                )
            })
        };
        simd(|| {
            for (output, query) in output.chunks_exact_mut(width).zip(query.chunks_exact(width)) {
                scores.clear();
                for (tokens, keys, _) in pages() {
                    scores.extend_from_slice(&scored(query, keys)[..tokens]);
                }
                let hidden = scores.len().saturating_sub(window);
                weigh(&mut scores[hidden..], 1.0 / (width as f32).sqrt());
                let mut first = 0;
                for (tokens, _, values) in pages() {
                    let begin = hidden.saturating_sub(first).min(tokens);
                    let weights = &scores[first + begin..first + tokens];
                    add(output, weights, &values[begin * width..]);
                    first += tokens;
                }
            }
        });
    });
    output
}

/// The products of a query with all keys of a page, `[width, PAGE]`.
#[inline(always)]
fn scored(query: &[f32], keys: &[f32]) -> [f32; PAGE] {
    let mut sums = [0f32; PAGE];
    for (query, keys) in query.iter().zip(keys.as_chunks::<PAGE>().0) {
        for (sum, key) in sums.iter_mut().zip(keys) {
            *sum += query * key;
        }
    }
    sums
}

/// Scores to weights that sum to 1.
#[inline(always)]
fn weigh(scores: &mut [f32], scale: f32) {
    let top = largest(scores);
    scores.iter_mut().for_each(|score| *score = exp((*score - top) * scale));
    let share = 1.0 / fold([scores], 0.0, |sum, [x]| sum + x, |x, y| x + y);
    scores.iter_mut().for_each(|score| *score *= share);
}

/// Adds values times their weights.
#[inline(always)]
fn add(output: &mut [f32], weights: &[f32], values: &[f32]) {
    let width = output.len();
    let (chunks, rest) = output.as_chunks_mut::<NUMBERS>();
    let whole = chunks.len() * NUMBERS;
    for (at, chunk) in chunks.iter_mut().enumerate() {
        let mut sums = *chunk;
        for (weight, value) in weights.iter().zip(values.chunks_exact(width)) {
            let value = &value[at * NUMBERS..(at + 1) * NUMBERS];
            for (sum, value) in sums.iter_mut().zip(value) {
                *sum += weight * value;
            }
        }
        *chunk = sums;
    }
    for (weight, value) in weights.iter().zip(values.chunks_exact(width)) {
        for (sum, value) in rest.iter_mut().zip(&value[whole..]) {
            *sum += weight * value;
        }
    }
}
