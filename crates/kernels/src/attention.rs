//! Attention whose memory grows linearly with the tokens instead of quadratically, forward and backward.
//!
//! Scores exist for a block of queries and a block of keys at a time. While a query iterates over the keys, its largest
//! score, its sum of exponentials and its weighted sum of values are carried along, and rescaled whenever the largest
//! score changes (Milakov and Gimelshein 2018; Rabe and Staats 2021). Besides its inputs, the backward pass needs one
//! number for each query and head, the logarithm of that sum. With it, a block's weights are recomputed as exp(score −
//! logarithm). The gradient of a score is its weight times the amount by which its value's gradient exceeds the mean
//! (Dao et al. 2022).
//!
//! Everything but the inputs is f32, so a score is never rounded to 16 bits; the inputs may be rounded.

use burn::tensor::{Device, FloatDType, Int, Tensor};

use crate::{
    MASKED, cpu,
    flex::{numbers, tensor},
    heads::Heads as Counts,
    joined,
    mask::{PackedMask, SharedPrefix, Tile, Tiled},
};

/// Upper bound on a block's queries.
const QUERIES: usize = 128;

/// Lower bound on a block's keys, however many heads there are.
const KEYS: usize = 64;

/// Options of an attention. Only `window` changes the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionOptions {
    /// Number of positions that a token attends to, its own included. `None` means all positions before it.
    pub window: Option<usize>,
    /// Approximate number of scores that are in memory at the same time. The CPU's implementation ignores this and
    /// keeps a block of scores for each core.
    pub scores: usize,
}

/// What an attention returns: its output, and the log-sum-exp of its scores.
#[derive(Clone, Debug)]
pub struct AttentionOutput {
    /// Output, `[tokens, heads, head_dim]`.
    pub output: Tensor<3>,
    /// Log-sum-exp of each query's scores, `[tokens, heads, 1]`.
    pub lse: Tensor<3>,
}

/// Computes `softmax(q·kᵀ / sqrt(head_dim)) · v` over the tokens that `mask` lets a token attend to. Several query
/// heads may share a key head.
///
/// `query` is `[tokens, heads, head_dim]`, `key` and `value` are `[tokens, kv_heads, head_dim]`; the result is f32. It
/// can be differentiated, but then every score is kept: an update calls [`attention_backward`].
pub fn attention(
    query: &Tensor<3>,
    key: &Tensor<3>,
    value: &Tensor<3>,
    mask: &PackedMask,
    options: AttentionOptions,
) -> AttentionOutput {
    let qkv = [query, key, value];
    on_gpu!(attention::forward(qkv, mask, options));

    let [Some(of_query), Some(of_key), Some(of_value)] = qkv.map(numbers) else {
        return plain(qkv, mask, options);
    };

    let [tokens, heads, width] = query.dims();
    let [output, lse] = cpu::attention::forward(cpu::attention::Qkv {
        query: &of_query,
        key: &of_key,
        value: &of_value,
        heads: Counts { query: heads, key: key.dims()[1], width },
        segments: mask.segments(),
        window: options.window.unwrap_or(usize::MAX),
    });

    AttentionOutput {
        output: tensor(output, [tokens, heads, width]),
        lse: tensor(lse, [tokens, heads, 1]),
    }
}

/// Computes the gradients of `query`, `key` and `value`, given that of the output, `[tokens, heads, head_dim]`. All
/// gradients are f32.
pub fn attention_backward(
    qkv: [&Tensor<3>; 3],
    out: &AttentionOutput,
    d_output: &Tensor<3>,
    mask: &PackedMask,
    options: AttentionOptions,
) -> [Tensor<3>; 3] {
    on_gpu!(attention_backward::backward(qkv, out, d_output, mask, options));

    let all = (qkv.map(numbers), numbers(&out.output), numbers(&out.lse), numbers(d_output));
    let ([Some(query), Some(key), Some(value)], Some(output), Some(lse), Some(of_d)) = all else {
        return plain_backward(qkv, out, d_output, mask, options);
    };

    let shapes = qkv.map(|x| x.dims());
    let [_, heads, width] = shapes[0];
    let numbers = cpu::attention::Qkv {
        query: &query,
        key: &key,
        value: &value,
        heads: Counts { query: heads, key: shapes[1][1], width },
        segments: mask.segments(),
        window: options.window.unwrap_or(usize::MAX),
    };

    let [d_query, d_key, d_value] = cpu::attention::backward(numbers, &output, &lse, &of_d);
    [tensor(d_query, shapes[0]), tensor(d_key, shapes[1]), tensor(d_value, shapes[2])]
}

pub(crate) fn plain(
    qkv: [&Tensor<3>; 3],
    mask: &PackedMask,
    options: AttentionOptions,
) -> AttentionOutput {
    let [query, key, value] = qkv;
    let mask = mask.tiled();

    // First every segment attends to itself, a rectangle of segments at a time.
    let mut parts = Vec::with_capacity(mask.tiles.len());
    for tile in &mask.tiles {
        let [query, key, value] = [query, key, value].map(|x| tile.take(x));
        parts.extend(tile.rows_at_once(query.dims()[1], options).map(|(rows, range)| {
            let part = |x: &Tensor<3>| x.clone().slice_dim(0, range.clone());
            let heads = Heads::new(part(&query), part(&key), part(&value), rows);
            heads.attend(&Distances::within(tile.width), options)
        }));
    }

    let (outputs, lses) = parts.into_iter().map(|part| (part.output, part.lse)).unzip();
    let mut out = AttentionOutput { output: ordered(outputs, mask), lse: ordered(lses, mask) };

    // Then those with a prefix attend to it, and the two results are joined.
    for shared in &mask.shared_prefixes {
        let (queries, keys) = (shared.queries.clone(), shared.keys.clone());
        let of = |x: &Tensor<3>, range| x.clone().slice_dim(0, range);
        let heads =
            Heads::new(of(query, queries.clone()), of(key, keys.clone()), of(value, keys), 1);
        out = out.joined(queries, heads.attend(&Distances::of(shared), options));
    }

    out
}

pub(crate) fn plain_backward(
    [query, key, value]: [&Tensor<3>; 3],
    out: &AttentionOutput,
    d_output: &Tensor<3>,
    mask: &PackedMask,
    options: AttentionOptions,
) -> [Tensor<3>; 3] {
    let mask = mask.tiled();
    // Σ weight · ∂weight over a query's keys is d_output · output, so no key is needed for it.
    let mean = (d_output.clone() * out.output.clone()).sum_dim(2);

    let mut parts: [Vec<Tensor<3>>; 3] = Default::default();
    for tile in &mask.tiles {
        let [query, key, value, mut d_output, mut mean, lse] =
            [query, key, value, d_output, &mean, &out.lse].map(|x| tile.take(x));
        if let Some(present) = &tile.present {
            // A row is padded with copies of its last token, which must have no gradient.
            d_output = d_output * present.clone();
            mean = mean * present.clone();
        }

        for (rows, range) in tile.rows_at_once(query.dims()[1], options) {
            let part = |x: &Tensor<3>| x.clone().slice_dim(0, range.clone());
            let heads = Heads::new(part(&query), part(&key), part(&value), rows);
            let gradients = heads.backward(
                [part(&d_output), part(&mean), part(&lse)],
                &Distances::within(tile.width),
                options,
            );

            for (parts, gradient) in parts.iter_mut().zip(gradients) {
                parts.push(gradient);
            }
        }
    }

    let mut gradients = parts.map(|parts| ordered(parts, mask));
    for shared in &mask.shared_prefixes {
        let (queries, keys) = (shared.queries.clone(), shared.keys.clone());
        let of =
            |x: &Tensor<3>, range: &std::ops::Range<usize>| x.clone().slice_dim(0, range.clone());
        let heads = Heads::new(of(query, &queries), of(key, &keys), of(value, &keys), 1);

        let [d_output, mean, lse] = [d_output, &mean, &out.lse].map(|x| of(x, &queries));
        let more = heads.backward([d_output, mean, lse], &Distances::of(shared), options);

        // A prefix's own queries attend to its keys too, so the gradients are added.
        for ((gradient, more), range) in
            gradients.iter_mut().zip(more).zip([&queries, &keys, &keys])
        {
            let sum = of(gradient, range) + more;
            gradient.inplace(|gradient| replaced(gradient, range.clone(), sum));
        }
    }

    gradients
}

impl AttentionOutput {
    /// Lets each head also attend to its sink, which has a score of its own, `[heads]`, and no value (Agarwal et al.
    /// 2025, gpt-oss). So what a query attends to may weigh less than 1 altogether.
    ///
    /// The result is that of an attention with one more key. [`attention_backward`] returns the right gradients for it,
    /// and [`AttentionOutput::d_sinks`] those of the sinks.
    pub fn with_sinks(self, sinks: &Tensor<1>) -> AttentionOutput {
        let sinks = of_heads(sinks);
        let largest = self.lse.clone().max_pair(sinks.clone());
        let others = (self.lse - largest.clone()).exp();
        let sum = others.clone() + (sinks - largest.clone()).exp();
        AttentionOutput { output: self.output * (others / sum.clone()), lse: sum.log() + largest }
    }

    /// Computes the gradient of the sinks, `[heads]`, given that of the output of [`AttentionOutput::with_sinks`].
    pub fn d_sinks(&self, sinks: &Tensor<1>, d_output: &Tensor<3>) -> Tensor<1> {
        let weights = (of_heads(sinks) - self.lse.clone()).exp();
        // A score's gradient is its weight times how far its value's gradient is above the mean. A sink's is 0.
        let mean = (d_output.clone() * self.output.clone()).sum_dim(2);
        let heads = sinks.dims()[0];
        (weights * mean).sum_dim(0).neg().reshape([heads])
    }

    /// Merges another result of the queries of `range`, over other keys.
    fn joined(self, range: std::ops::Range<usize>, other: AttentionOutput) -> AttentionOutput {
        let own = |x: &Tensor<3>| x.clone().slice_dim(0, range.clone());
        let (first, second) = (own(&self.lse), other.lse);
        // The larger logarithm is subtracted from both, so that no exponential overflows.
        let largest = first.clone().max_pair(second.clone());
        let (first, second) = ((first - largest.clone()).exp(), (second - largest.clone()).exp());

        let sum = first.clone() + second.clone();
        let output = (own(&self.output) * first + other.output * second) / sum.clone();

        AttentionOutput {
            output: replaced(self.output, range.clone(), output),
            lse: replaced(self.lse, range, sum.log() + largest),
        }
    }
}

/// Shapes a number for each head, `[heads]`, for the heads of all tokens, `[tokens, heads, 1]`.
fn of_heads(x: &Tensor<1>) -> Tensor<3> {
    let heads = x.dims()[0];
    x.clone().reshape([1, heads, 1])
}

fn replaced(x: Tensor<3>, range: std::ops::Range<usize>, part: Tensor<3>) -> Tensor<3> {
    let [_, heads, width] = x.dims();
    x.slice_assign([range, 0..heads, 0..width], part)
}

/// Puts the tiles' rows into the order of the batch; padding becomes zeros.
fn ordered(mut parts: Vec<Tensor<3>>, mask: &Tiled) -> Tensor<3> {
    let Some(order) = &mask.order else { return joined(parts, 0) };
    let [_, heads, width] = parts[0].dims();
    parts.push(Tensor::zeros([1, heads, width], &parts[0].device()));
    joined(parts, 0).select(0, order.clone())
}

impl Tile {
    /// Splits the tile's rows into chunks whose scores are few enough. Returns the number of rows in each chunk, and
    /// their range in the tile.
    fn rows_at_once(
        &self,
        heads: usize,
        options: AttentionOptions,
    ) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> + use<> {
        let (all, width) = (self.rows, self.width);
        let (queries, keys) = block(heads, width, width, options);
        let chunk = (options.scores / (heads * queries * keys)).clamp(1, all);
        (0..all).step_by(chunk).map(move |first| {
            let rows = chunk.min(all - first);
            (rows, first * width..(first + rows) * width)
        })
    }
}

/// Returns how many queries and keys a block has.
fn block(heads: usize, queries: usize, keys: usize, options: AttentionOptions) -> (usize, usize) {
    let queries = QUERIES.min(queries);
    (queries, (options.scores / (heads * queries)).max(KEYS).min(keys))
}

/// Distances of queries and keys from a common beginning.
struct Distances {
    queries: Vec<usize>,
}

/// Which part of a block of keys a block of queries attends to.
enum Visible {
    Nothing,
    All,
    /// Some of them: these numbers are added to the scores, `[1, 1, queries, keys]`.
    Part(Box<Tensor<4>>),
}

impl Distances {
    fn within(width: usize) -> Self {
        Distances { queries: (0..width).collect() }
    }

    fn of(shared: &SharedPrefix) -> Self {
        Distances { queries: shared.positions.clone() }
    }

    fn visible(
        &self,
        queries: std::ops::Range<usize>,
        keys: std::ops::Range<usize>,
        window: Option<usize>,
        device: &Device,
    ) -> Visible {
        let queries = &self.queries[queries];
        let (first, last) = queries
            .iter()
            .fold((usize::MAX, 0), |(first, last), &at| (first.min(at), last.max(at)));

        let window = window.unwrap_or(usize::MAX);
        let (nearest, farthest) = (keys.end - 1, keys.start);

        if last < farthest || first.saturating_sub(nearest) >= window {
            return Visible::Nothing;
        }
        if first >= nearest && last - farthest < window {
            return Visible::All;
        }

        let queries: Vec<i32> = queries.iter().map(|&at| at as i32).collect();
        let queries = Tensor::<1, Int>::from_ints(queries.as_slice(), device).unsqueeze_dim::<2>(1);
        let keys = Tensor::<1, Int>::arange(keys.start as i64..keys.end as i64, device);
        let distance = queries - keys.unsqueeze_dim::<2>(0);
        let mut hidden = distance.clone().lower_elem(0);
        // A window wider than any distance of positions hides nothing.
        if i32::try_from(window).is_ok() {
            hidden = hidden.bool_or(distance.greater_equal_elem(window as i64));
        }

        Visible::Part(Box::new(hidden.float().mul_scalar(MASKED).unsqueeze::<4>()))
    }
}

/// Queries, keys and values by row and head, f32. The query heads of one key head are adjacent, so that keys need not
/// be repeated.
struct Heads {
    query: Tensor<5>, // [rows, kv_heads, group, queries, head_dim], scaled
    key: Tensor<4>,   // [rows, kv_heads, keys, head_dim]
    value: Tensor<4>,
}

impl Heads {
    /// Splits queries, `[rows · queries, heads, head_dim]`, and keys and values,
    /// `[rows · keys, kv_heads, head_dim]`, by row and head.
    fn new(query: Tensor<3>, key: Tensor<3>, value: Tensor<3>, rows: usize) -> Self {
        let [tokens, kv_heads, _] = key.dims();
        let scale = 1.0 / (query.dims()[2] as f64).sqrt();

        let by_head = |x: Tensor<3>| {
            let width = x.dims()[2];
            x.cast(FloatDType::F32).reshape([rows, tokens / rows, kv_heads, width]).swap_dims(1, 2)
        };

        Heads {
            query: folded(query.cast(FloatDType::F32).mul_scalar(scale), rows, kv_heads),
            key: by_head(key),
            value: by_head(value),
        }
    }

    fn blocks(
        &self,
        options: AttentionOptions,
    ) -> (Vec<std::ops::Range<usize>>, Vec<std::ops::Range<usize>>) {
        let [_, kv_heads, group, queries, _] = self.query.dims();
        let keys = self.key.dims()[2];
        let (of_queries, of_keys) = block(kv_heads * group, queries, keys, options);
        let cut = |all: usize, step: usize| {
            (0..all).step_by(step).map(|start| start..(start + step).min(all)).collect()
        };
        (cut(queries, of_queries), cut(keys, of_keys))
    }

    /// Computes the scores of a block, `[rows, heads, queries, keys]`.
    fn scores(&self, query: Tensor<4>, keys: std::ops::Range<usize>, queries: usize) -> Tensor<4> {
        let [rows, kv_heads, group, ..] = self.query.dims();
        let count = keys.len();
        let key = self.key.clone().slice_dim(2, keys);
        query.matmul(key.swap_dims(2, 3)).reshape([rows, kv_heads * group, queries, count])
    }

    fn attend(&self, distances: &Distances, options: AttentionOptions) -> AttentionOutput {
        let [rows, kv_heads, group, all, width] = self.query.dims();
        let device = self.query.device();

        let (blocks, of_keys) = self.blocks(options);
        let mut outputs = Vec::new();
        let mut lses = Vec::new();

        for queries in blocks {
            let count = queries.len();
            let heads = [rows, kv_heads * group, count, 1];
            let by_key_head = [rows, kv_heads, group * count];

            let query = block_of(&self.query, queries.clone());
            let mut carried: Option<[Tensor<4>; 3]> = None;

            for keys in &of_keys {
                let visible =
                    distances.visible(queries.clone(), keys.clone(), options.window, &device);
                let mut scores = match visible {
                    Visible::Nothing => continue,
                    _ => self.scores(query.clone(), keys.clone(), count),
                };
                if let Visible::Part(bias) = visible {
                    scores = scores + *bias;
                }

                // The largest score so far is subtracted, so that no exponential overflows.
                let mut largest = scores.clone().max_dim(3);
                if let Some([before, ..]) = &carried {
                    largest = largest.max_pair(before.clone());
                }

                let weights = (scores - largest.clone()).exp();
                let mut sum = weights.clone().sum_dim(3);

                let [first, second, third] = by_key_head;
                // The query heads of a key head are rows of one matmul.
                let mut output = weights
                    .reshape([first, second, third, keys.len()])
                    .matmul(self.value.clone().slice_dim(2, keys.clone()))
                    .reshape([rows, kv_heads * group, count, width]);

                // The carried sums are relative to another largest score: rescale them.
                if let Some([before, sum_before, output_before]) = carried {
                    let kept = (before - largest.clone()).exp();
                    sum = sum + sum_before * kept.clone();
                    output = output + output_before * kept;
                }

                carried = Some([largest, sum, output]);
            }
            // Usually, a token attends to itself or the last token of its prefix. But a window may hide all of these.
            let [largest, sum, output] = carried.unwrap_or_else(|| {
                let [first, second, third, _] = heads;
                let zeros = Tensor::zeros([first, second, third, width], &device);
                [Tensor::full(heads, MASKED, &device), Tensor::ones(heads, &device), zeros]
            });
            outputs.push(output / sum.clone());
            lses.push(sum.log() + largest);
        }

        let flat = |parts: Vec<Tensor<4>>| {
            let width = parts[0].dims()[3];
            let heads = joined(parts, 2);
            heads.swap_dims(1, 2).reshape([rows * all, kv_heads * group, width])
        };

        AttentionOutput { output: flat(outputs), lse: flat(lses) }
    }

    /// Computes the gradients of the inputs of [`Heads::new`], given those of the output, their means over the
    /// weights, and the logarithms, each `[rows · queries, heads, …]`.
    fn backward(
        &self,
        [d_output, mean, lse]: [Tensor<3>; 3],
        distances: &Distances,
        options: AttentionOptions,
    ) -> [Tensor<3>; 3] {
        let [rows, kv_heads, group, all, width] = self.query.dims();
        let device = self.query.device();
        let [d_output, mean, lse] = [d_output, mean, lse].map(|x| folded(x, rows, kv_heads));

        let (blocks, of_keys) = self.blocks(options);
        let mut d_query: Vec<Option<Tensor<4>>> = vec![None; blocks.len()];
        let mut d_key = Vec::new();
        let mut d_value = Vec::new();

        for keys in of_keys {
            let key = self.key.clone().slice_dim(2, keys.clone());
            let value = self.value.clone().slice_dim(2, keys.clone());
            let nothing = || Tensor::<4>::zeros(key.dims(), &device);
            let (mut of_key, mut of_value) = (None, None);

            for (queries, d_query) in blocks.iter().zip(&mut d_query) {
                let count = queries.len();
                let visible =
                    distances.visible(queries.clone(), keys.clone(), options.window, &device);
                if matches!(visible, Visible::Nothing) {
                    continue;
                }

                let query = block_of(&self.query, queries.clone());
                let mut scores = self.scores(query.clone(), keys.clone(), count);
                if let Visible::Part(bias) = visible {
                    scores = scores + *bias;
                }
                let scores = scores.reshape([rows, kv_heads, group * count, keys.len()]);

                let [d_output, mean, lse] =
                    [&d_output, &mean, &lse].map(|x| block_of(x, queries.clone()));
                // The logarithm includes the largest score, so this is the normalised weight.
                let weights = (scores - lse).exp();

                add(&mut of_value, weights.clone().swap_dims(2, 3).matmul(d_output.clone()));
                let d_weights = d_output.matmul(value.clone().swap_dims(2, 3));
                // Subtracting the mean removes the effect of changing all scores together: weights sum to 1.
                let d_scores = weights * (d_weights - mean);
                add(&mut of_key, d_scores.clone().swap_dims(2, 3).matmul(query));
                add(d_query, d_scores.matmul(key.clone()));
            }
            d_key.push(of_key.unwrap_or_else(nothing));
            d_value.push(of_value.unwrap_or_else(nothing));
        }

        let blocks = blocks.iter().zip(d_query).map(|(queries, d_query)| {
            let shape = [rows, kv_heads, group, queries.len(), width];
            d_query.map_or_else(|| Tensor::zeros(shape, &device), |d_query| d_query.reshape(shape))
        });
        // Back to the order of the tokens, with the heads of a token adjacent.
        let d_query = joined(blocks.collect(), 3).permute([0, 3, 1, 2, 4]);

        let scale = 1.0 / (width as f64).sqrt();
        let by_token = |parts: Vec<Tensor<4>>| {
            let all = joined(parts, 2).swap_dims(1, 2);
            let [rows, keys, kv_heads, width] = all.dims();
            all.reshape([rows * keys, kv_heads, width])
        };

        [
            d_query.reshape([rows * all, kv_heads * group, width]).mul_scalar(scale),
            by_token(d_key),
            by_token(d_value),
        ]
    }
}

/// Splits `[rows · queries, heads, width]` into `[rows, kv_heads, group, queries, width]`.
fn folded(x: Tensor<3>, rows: usize, kv_heads: usize) -> Tensor<5> {
    let [tokens, heads, width] = x.dims();
    x.reshape([rows, tokens / rows, kv_heads, heads / kv_heads, width]).permute([0, 2, 3, 1, 4])
}

/// Takes some queries of all heads, `[rows, kv_heads, group · queries, width]`.
fn block_of(x: &Tensor<5>, queries: std::ops::Range<usize>) -> Tensor<4> {
    let [rows, kv_heads, group, _, width] = x.dims();
    let count = queries.len();
    x.clone().slice_dim(3, queries).reshape([rows, kv_heads, group * count, width])
}

fn add(sum: &mut Option<Tensor<4>>, part: Tensor<4>) {
    *sum = Some(match sum.take() {
        Some(sum) => sum + part,
        None => part,
    });
}
