//! Attention in blocks, forward and backward, equals a softmax over a dense matrix of scores.

#![allow(clippy::unwrap_used)]

use std::cell::Cell;

use burn::tensor::{Device, Int, Tensor, TensorData, activation};
use firebrick_core::{Seed, TokenId};
use firebrick_models::{AttentionOptions, Padding, TokenBatch, attention, attention_backward};
use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{Config, RngSeed, TestRunner},
};

const HEAD_DIM: usize = 4;

/// Length of each text, and true if it continues the last text before it that continues none.
type Texts = Vec<(usize, bool)>;

#[derive(Clone, Debug)]
struct Case {
    texts: Texts,
    padding: Padding,
    kv_heads: usize,
    group: usize,
    options: AttentionOptions,
    seed: u64,
}

fn case() -> impl Strategy<Value = Case> {
    let long = prop_oneof![4 => 1..20usize, 1 => 100..300usize];
    let padding = prop_oneof![Just(Padding::None), Just(Padding::Left), Just(Padding::Right)];
    let window = prop_oneof![8 => 1..40usize, 1 => Just(1 << 32)];
    let options = (proptest::option::weighted(0.4, window), 1..40_000usize);
    let texts = vec((long, any::<bool>()), 1..6);
    (texts, padding, 1..4usize, 1..4usize, options, any::<u64>()).prop_map(
        |(texts, padding, kv_heads, group, (window, scores), seed)| {
            let options = AttentionOptions { window, scores };
            Case { texts, padding, kv_heads, group, options, seed }
        },
    )
}

#[test]
fn blocks_of_attention_are_a_dense_softmax() {
    let config = Config { cases: 150, rng_seed: RngSeed::Fixed(15), ..Config::default() };
    let shared = Cell::new(0);
    TestRunner::new(config)
        .run(&case(), |case| {
            let batch = batch(&case);
            let on = batch.segments().iter().filter(|segment| segment.prefix.is_some()).count();
            shared.set(shared.get() + on);

            let tokens = batch.tokens.shape().num_elements();
            let random = |name: &str, heads: usize| {
                let mut stream = Seed::run(case.seed).derive(name, &[]).stream();
                let number = |at| (6.0 * stream.uniform_at(at) - 3.0) as f32;
                let shape = [tokens, heads, HEAD_DIM];
                let numbers: Vec<f32> =
                    (0..shape.iter().product::<usize>() as u64).map(number).collect();
                let data = TensorData::new(numbers, shape);
                Tensor::<3>::from_data(data, &Device::flex().autodiff()).require_grad()
            };

            let heads = case.kv_heads * case.group;
            let query = random("query", heads);
            let key = random("key", case.kv_heads);
            let value = random("value", case.kv_heads);

            let d_output = random("gradient", heads).inner() * present(&batch);
            let dense =
                dense(&case, &batch, [&query, &key, &value]) * Tensor::from_inner(present(&batch));
            let gradients = (dense.clone() * Tensor::from_inner(d_output.clone())).sum().backward();
            let expected = [&query, &key, &value].map(|x| x.grad(&gradients).unwrap());

            let mask = batch.mask();
            let options = case.options;
            let [query, key, value] = [query, key, value].map(Tensor::inner);
            let out = attention(&query, &key, &value, &mask, options);
            close("output", out.output.clone(), dense.inner())?;

            let got = attention_backward([&query, &key, &value], &out, &d_output, &mask, options);
            for ((name, got), expected) in ["query", "key", "value"].iter().zip(got).zip(expected) {
                close(name, got, expected)?;
            }
            Ok(())
        })
        .unwrap();

    let shared = shared.get();
    assert!(shared > 30, "{shared} texts that continue from another");
}

fn batch(case: &Case) -> TokenBatch {
    let device = Device::flex();
    let tokens: Vec<Vec<TokenId>> = case.texts.iter().map(|&(length, _)| vec![1; length]).collect();
    if case.padding != Padding::None {
        let rows: Vec<&[TokenId]> = tokens.iter().map(Vec::as_slice).collect();
        return TokenBatch::new(&rows, case.padding, &device);
    }

    // A text continues from the last one that continues none.
    let mut first = None;
    let texts: Vec<(&[TokenId], Option<usize>)> = tokens
        .iter()
        .zip(&case.texts)
        .enumerate()
        .map(|(index, (text, &(_, continues)))| {
            let prefix = first.filter(|_| continues);
            if prefix.is_none() {
                first = Some(index);
            }
            (text.as_slice(), prefix)
        })
        .collect();
    TokenBatch::packed(&texts, &device)
}

fn present(batch: &TokenBatch) -> Tensor<3> {
    let tokens = batch.tokens.shape().num_elements();
    batch.token_mask().reshape([tokens, 1, 1])
}

/// Computes attention by its definition, from the distance between two tokens of one text. Everything else is
/// hidden.
fn dense(case: &Case, batch: &TokenBatch, [query, key, value]: [&Tensor<3>; 3]) -> Tensor<3> {
    let tokens = query.dims()[0];
    let segments = batch.segments();
    let positions: Vec<i64> = batch.positions.clone().into_data().iter::<i64>().collect();
    let mut of = vec![None; tokens];
    for (index, segment) in segments.iter().enumerate() {
        of[segment.range.clone()].fill(Some(index));
    }

    // A token sees its own text and the one that it continues, as far back as the window reaches.
    let window = case.options.window.map_or(i64::MAX, |window| window as i64);
    let visible = |q: usize, k: usize| {
        let (Some(a), Some(b)) = (of[q], of[k]) else { return false };
        let distance = positions[q] - positions[k];
        (a == b || segments[a].prefix == Some(b)) && (0..window).contains(&distance)
    };

    let hidden: Vec<f32> = (0..tokens * tokens)
        .map(|at| if visible(at / tokens, at % tokens) { 0.0 } else { -1e30 })
        .collect();
    let device = query.device();
    let bias = Tensor::<2>::from_data(TensorData::new(hidden, [tokens, tokens]), &device);

    // Each head of keys and values serves a group of query heads.
    let owners: Vec<i32> =
        (0..case.kv_heads * case.group).map(|head| (head / case.group) as i32).collect();
    let owners = Tensor::<1, Int>::from_ints(owners.as_slice(), &device);
    let repeated = |x: &Tensor<3>| x.clone().select(1, owners.clone()).swap_dims(0, 1);

    let query = query.clone().swap_dims(0, 1).div_scalar((HEAD_DIM as f64).sqrt());
    let scores = query.matmul(repeated(key).swap_dims(1, 2)) + bias.unsqueeze::<3>();
    activation::softmax(scores, 2).matmul(repeated(value)).swap_dims(0, 1)
}

fn close(name: &str, got: Tensor<3>, expected: Tensor<3>) -> Result<(), TestCaseError> {
    let largest = expected.clone().abs().max().into_scalar::<f32>().max(1.0);
    let off = (got - expected).abs().max().into_scalar::<f32>();
    prop_assert!(off <= 1e-5 * largest, "{name}: off by {off}, the largest is {largest}");
    Ok(())
}
