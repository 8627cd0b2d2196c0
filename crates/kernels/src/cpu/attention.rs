//! Attention on the CPU, forward and backward, by segments, heads and blocks of queries.

use std::ops::Range;

use rayon::prelude::*;

use super::{
    lanes::{dot, exp, fold, largest},
    matrix::Matrix,
    product::multiply,
    simd,
};
use crate::{MASKED, heads::Heads, segment::Segment};

/// Upper bound on a block's queries. `KEYS` is that of keys.
const QUERIES: usize = 64;
const KEYS: usize = 512;

/// Lower bound on the queries in a task of the backward pass. Each task has sums of the gradients of all keys that its
/// queries attend to. So a long text is split into at most eight tasks: their sums together are four and a half times
/// as long as the text.
const SPAN: usize = 1024;

/// Queries, keys and values, `[tokens, heads, width]`.
#[derive(Clone, Copy)]
pub(crate) struct Qkv<'a> {
    pub(crate) query: &'a [f32],
    pub(crate) key: &'a [f32],
    pub(crate) value: &'a [f32],
    pub(crate) heads: Heads,
    pub(crate) segments: &'a [Segment],
    pub(crate) window: usize,
}

/// Computes the output, `[tokens, heads, width]`, and the log-sum-exps, `[tokens, heads]`; 0 in padding.
pub(crate) fn forward(qkv: Qkv<'_>) -> [Vec<f32>; 2] {
    let Heads { query: heads, width, .. } = qkv.heads;
    let tokens = qkv.query.len() / (heads * width);
    let mut output = vec![0.0; tokens * heads * width];
    let mut lse = vec![0.0; tokens * heads];

    let tasks = qkv.tasks(QUERIES);
    let outputs = carved(&mut output, heads * width, tasks.iter().map(|task| task.range()));
    let lses = carved(&mut lse, heads, tasks.iter().map(|task| task.range()));
    let parts = tasks.into_iter().zip(outputs).zip(lses).collect::<Vec<_>>();

    parts.into_par_iter().for_each_init(Scratch::default, |scratch, ((task, output), lse)| {
        for head in 0..heads {
            qkv.attend(&task, head, output, lse, scratch);
        }
    });
    [output, lse]
}

/// Computes the gradients of queries, keys and values, given that of the output.
pub(crate) fn backward(
    qkv: Qkv<'_>,
    output: &[f32],
    lse: &[f32],
    d_output: &[f32],
) -> [Vec<f32>; 3] {
    let Heads { query: heads, key: kv_heads, width } = qkv.heads;
    let tokens = qkv.query.len() / (heads * width);
    let group = heads / kv_heads;

    // At most eight tasks for the longest text, however long it is: see `SPAN`.
    let longest = qkv.segments.iter().map(|it| it.range.len()).max().unwrap_or(0);
    let work: Vec<(Task<'_>, usize)> = qkv
        .tasks(SPAN.max(longest.div_ceil(8)))
        .into_iter()
        .flat_map(|task| (0..kv_heads).map(move |head| (task.clone(), head)))
        .collect();

    let parts: Vec<Part> = work
        .par_iter()
        .map_init(Scratch::default, |scratch, (task, head)| {
            qkv.backward(task, *head, [output, lse, d_output], scratch)
        })
        .collect();

    let mut gradients = [heads, kv_heads, kv_heads].map(|heads| vec![0.0; tokens * heads * width]);
    let [d_query, d_key, d_value] = &mut gradients;
    // Segments have disjoint ranges, so each can add to its own rows in parallel. A task's heads are consecutive.
    let mut of_segment: Vec<Vec<(&Task<'_>, &[Part])>> = vec![Vec::new(); qkv.segments.len()];
    for (task, parts) in
        work.iter().step_by(kv_heads).map(|(task, _)| task).zip(parts.chunks(kv_heads))
    {
        of_segment[task.index].push((task, parts));
    }

    let mut order: Vec<usize> = (0..qkv.segments.len()).collect();
    order.sort_by_key(|&index| qkv.segments[index].range.start);
    let ranges = || order.iter().map(|&index| qkv.segments[index].range.clone());

    let d_queries = carved(d_query, heads * width, ranges());
    let d_keys = carved(d_key, kv_heads * width, ranges());
    let d_values = carved(d_value, kv_heads * width, ranges());
    let targets = order.iter().zip(d_queries).zip(d_keys).zip(d_values).collect::<Vec<_>>();

    targets.into_par_iter().for_each(|(((&index, d_query), d_key), d_value)| {
        for (task, parts) in &of_segment[index] {
            for (head, part) in parts.iter().enumerate() {
                let rows = task.queries.clone();
                for member in 0..group {
                    let from = &part.d_query[member * rows.len() * width..][..rows.len() * width];
                    put(d_query, heads, head * group + member, rows.start, from, width);
                }
                let own = task.prefix.len() * width;
                put(d_key, kv_heads, head, 0, &part.d_key[own..], width);
                put(d_value, kv_heads, head, 0, &part.d_value[own..], width);
            }
        }
    });

    // Several segments may share a prefix, so their gradients are added here, in the order of those segments.
    for (task, parts) in of_segment.iter().flatten() {
        for (head, part) in parts.iter().enumerate() {
            let start = task.prefix.start;
            let own = task.prefix.len() * width;
            put(d_key, kv_heads, head, start, &part.d_key[..own], width);
            put(d_value, kv_heads, head, start, &part.d_value[..own], width);
        }
    }

    gradients
}

/// Adds rows of one head to those of `[tokens, heads, width]`, starting at row `first`.
fn put(target: &mut [f32], heads: usize, head: usize, first: usize, rows: &[f32], width: usize) {
    for (row, values) in (first..).zip(rows.chunks_exact(width)) {
        let at = (row * heads + head) * width;
        target[at..at + width].iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
}

/// Splits off the rows at `ranges`, which ascend and are disjoint.
fn carved(
    mut rest: &mut [f32],
    width: usize,
    ranges: impl Iterator<Item = Range<usize>>,
) -> Vec<&mut [f32]> {
    let mut at = 0;
    ranges
        .map(|range| {
            let (_, behind) = std::mem::take(&mut rest).split_at_mut((range.start - at) * width);
            let (these, behind) = behind.split_at_mut(range.len() * width);
            (rest, at) = (behind, range.end);
            these
        })
        .collect()
}

/// Queries of a segment whose attention is computed together.
#[derive(Clone)]
struct Task<'a> {
    segment: &'a Segment,
    index: usize,
    /// Range of the segment's prefix; empty if there is none.
    prefix: Range<usize>,
    /// Queries, by their index in the segment.
    queries: Range<usize>,
}

impl Task<'_> {
    fn range(&self) -> Range<usize> {
        let first = self.segment.range.start;
        first + self.queries.start..first + self.queries.end
    }
}

/// Gradients of one key head from some queries: those of these queries, by heads of the group, and those of keys and
/// values from the beginning to the last that the queries attend to.
struct Part {
    d_query: Vec<f32>,
    d_key: Vec<f32>,
    d_value: Vec<f32>,
}

#[derive(Default)]
struct Scratch {
    scores: Vec<f32>,
    d_scores: Vec<f32>,
    output: Vec<f32>,
    carried: Vec<[f32; 2]>,
}

/// Some of the keys that a task attends to. `first` is the index of the first among all of them.
struct Keys {
    range: Range<usize>,
    first: usize,
}

impl<'a> Qkv<'a> {
    /// Splits the segments' queries into chunks, in ascending order.
    fn tasks(&self, chunk: usize) -> Vec<Task<'a>> {
        let of_segment = |(index, segment): (usize, &'a Segment)| {
            let prefix = segment.prefix.map_or(0..0, |prefix| self.segments[prefix].range.clone());
            let count = segment.range.len();
            (0..count).step_by(chunk).map(move |start| Task {
                segment,
                index,
                prefix: prefix.clone(),
                queries: start..(start + chunk).min(count),
            })
        };

        let mut tasks: Vec<Task<'a>> =
            self.segments.iter().enumerate().flat_map(of_segment).collect();
        tasks.sort_by_key(|task| task.range().start);
        tasks
    }

    /// Lists blocks of the keys that some of these queries attend to, the nearest last.
    fn keys(&self, task: &Task<'_>, queries: &Range<usize>) -> Vec<Keys> {
        let prefix = task.prefix.len();
        // The first key that the first query attends to.
        let hidden = (prefix + queries.start + 1).saturating_sub(self.window);
        let own = task.segment.range.start..task.segment.range.start + queries.end;

        [(task.prefix.clone(), 0), (own, prefix)]
            .into_iter()
            .flat_map(|(range, first)| {
                let skipped = hidden.saturating_sub(first).min(range.len());
                let starts = (range.start + skipped..range.end).step_by(KEYS);
                starts.map(move |start| Keys {
                    range: start..(start + KEYS).min(range.end),
                    first: first + start - range.start,
                })
            })
            .collect()
    }

    /// Takes one of `heads` heads of `x`, `[tokens, heads, width]`, at some tokens.
    fn head(&self, x: &'a [f32], heads: usize, head: usize, range: Range<usize>) -> Matrix<'a> {
        let width = self.heads.width;
        let first = (range.start * heads + head) * width;
        Matrix::new(&x[first..], [range.len(), width], [heads * width, 1])
    }

    fn scale(&self) -> f32 {
        1.0 / (self.heads.width as f32).sqrt()
    }

    /// Returns the keys of a block that query `query` of a task attends to, by their index in the block.
    fn visible(&self, task: &Task<'_>, query: usize, keys: &Keys) -> Range<usize> {
        let position = task.prefix.len() + query;
        let end = (position + 1).saturating_sub(keys.first).min(keys.range.len());
        (position + 1).saturating_sub(self.window).saturating_sub(keys.first).min(end)..end
    }

    /// Computes the attention of one head's queries of a task. `output` and `lse` are those of the task.
    fn attend(
        &self,
        task: &Task<'_>,
        head: usize,
        output: &mut [f32],
        lse: &mut [f32],
        scratch: &mut Scratch,
    ) {
        let Heads { query: heads, key: kv_heads, width } = self.heads;
        let kv_head = head / (heads / kv_heads);
        let count = task.queries.len();
        let queries = self.head(self.query, heads, head, task.range());

        let Scratch { scores, output: sums, carried, .. } = scratch;
        carried.clear();
        carried.resize(count, [f32::NEG_INFINITY, 0.0]);
        sums.clear();
        sums.resize(count * width, 0.0);

        for keys in self.keys(task, &task.queries) {
            let number = keys.range.len();
            scores.resize(count * number, 0.0);
            let key = self.head(self.key, kv_heads, kv_head, keys.range.clone());
            multiply(scores, number, queries, key.transposed(), self.scale(), false);

            simd!({
                let rows = scores.chunks_exact_mut(number).zip(sums.chunks_exact_mut(width));
                for ((query, (scores, sums)), carried) in
                    task.queries.clone().zip(rows).zip(&mut *carried)
                {
                    let seen = self.visible(task, query, &keys);
                    scores[..seen.start].fill(0.0);
                    scores[seen.end..].fill(0.0);
                    if seen.is_empty() {
                        continue;
                    }

                    let scores = &mut scores[seen];
                    let [before, sum] = *carried;
                    let top = before.max(largest(scores));
                    for score in &mut *scores {
                        *score = exp(*score - top);
                    }

                    // The carried sums are relative to another largest score: rescale them.
                    let more = fold([scores], 0.0, |sum, [x]| sum + x, |x, y| x + y);
                    let kept = exp(before - top);
                    if kept != 1.0 {
                        for sum in sums.iter_mut() {
                            *sum *= kept;
                        }
                    }

                    *carried = [top, sum * kept + more];
                }
            });

            let value = self.head(self.value, kv_heads, kv_head, keys.range.clone());
            multiply(
                sums,
                width,
                Matrix::new(scores, [count, number], [number, 1]),
                value,
                1.0,
                true,
            );
        }

        for (row, (&[top, sum], sums)) in carried.iter().zip(sums.chunks_exact(width)).enumerate() {
            // A query attends at least to itself, even if its window hides all of its prefix.
            let (share, log) = if sum > 0.0 { (1.0 / sum, sum.ln() + top) } else { (0.0, MASKED) };

            let output = &mut output[(row * heads + head) * width..][..width];
            output.iter_mut().zip(sums).for_each(|(output, sum)| *output = sum * share);
            lse[row * heads + head] = log;
        }
    }

    /// Computes the gradients of a task's queries and of the keys and values that they attend to, for one key head.
    fn backward(
        &self,
        task: &Task<'_>,
        kv_head: usize,
        [output, lse, d_output]: [&'a [f32]; 3],
        scratch: &mut Scratch,
    ) -> Part {
        let Heads { query: heads, key: kv_heads, width } = self.heads;
        let group = heads / kv_heads;
        let seen = task.prefix.len() + task.queries.end;

        let mut part = Part {
            d_query: vec![0.0; task.queries.len() * group * width],
            d_key: vec![0.0; seen * width],
            d_value: vec![0.0; seen * width],
        };

        let blocks = || task.queries.clone().step_by(QUERIES);
        for (head, d_query) in
            (kv_head * group..).zip(part.d_query.chunks_exact_mut(task.queries.len() * width))
        {
            for (start, d_query) in blocks().zip(d_query.chunks_mut(QUERIES * width)) {
                let queries = start..(start + QUERIES).min(task.queries.end);
                let first = task.segment.range.start;
                let range = first + queries.start..first + queries.end;
                let query = self.head(self.query, heads, head, range.clone());
                let d_out = self.head(d_output, heads, head, range.clone());

                for keys in self.keys(task, &queries) {
                    let count = queries.len();
                    let number = keys.range.len();
                    let Scratch { scores, d_scores, .. } = &mut *scratch;
                    scores.resize(count * number, 0.0);
                    d_scores.resize(count * number, 0.0);

                    let key = self.head(self.key, kv_heads, kv_head, keys.range.clone());
                    let value = self.head(self.value, kv_heads, kv_head, keys.range.clone());

                    // Scores, and the gradients of weights.
                    multiply(scores, number, query, key.transposed(), self.scale(), false);
                    multiply(d_scores, number, d_out, value.transposed(), 1.0, false);

                    simd!({
                        let rows =
                            scores.chunks_exact_mut(number).zip(d_scores.chunks_exact_mut(number));
                        for ((query, token), (weights, d_scores)) in
                            queries.clone().zip(range.clone()).zip(rows)
                        {
                            let seen = self.visible(task, query, &keys);
                            let of = (token * heads + head) * width;
                            let mean = dot(&output[of..of + width], &d_output[of..of + width]);
                            let log = lse[token * heads + head];

                            // The matmuls below use all keys of the block, so those that are masked must be 0.
                            for row in [&mut *weights, &mut *d_scores] {
                                row[..seen.start].fill(0.0);
                                row[seen.end..].fill(0.0);
                            }

                            let both = weights[seen.clone()].iter_mut().zip(&mut d_scores[seen]);
                            for (weight, d_score) in both {
                                *weight = exp(*weight - log);
                                *d_score = *weight * (*d_score - mean) * self.scale();
                            }
                        }
                    });

                    let weights = Matrix::new(scores, [count, number], [number, 1]);
                    let d_scores = Matrix::new(d_scores, [count, number], [number, 1]);
                    let these = keys.first * width..(keys.first + number) * width;

                    multiply(
                        &mut part.d_value[these.clone()],
                        width,
                        weights.transposed(),
                        d_out,
                        1.0,
                        true,
                    );
                    multiply(d_query, width, d_scores, key, 1.0, true);
                    multiply(
                        &mut part.d_key[these],
                        width,
                        d_scores.transposed(),
                        query,
                        1.0,
                        true,
                    );
                }
            }
        }

        part
    }
}
