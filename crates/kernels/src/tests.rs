//! Tests of each device's code against plain tensor code: values, gradients and odd shapes.

use burn::tensor::{DType, Device, FloatDType, Int, Tensor, TensorData, activation::log_softmax};

use crate::{
    Activation, AdamWStep, AttentionOptions, AttentionOutput, Block, BlockTable, Compute,
    HeadStates, Heads, KlDirection, LmHead, Norm, PAGE, PackedMask, Pages, QuantLayout,
    QuantisedMatrix, RopeFrequencies, RopeTable, Segment, SlotMapping, Weight,
    adamw::adamw,
    attention::{self, attention, attention_backward},
    flex,
    gated::{self, gated, gated_backward},
    head::{self, head_backward, head_logits, head_logprobs, head_logprobs_saving},
    head_kl::head_kl,
    linear::{self, linear, linear_beside},
    pages::{self, paged_attention},
    qkv_rope::{self, qkv_rope, qkv_rope_backward},
    rows, weight,
};

/// Returns numbers between -1 and 1 that look like noise.
fn noise<const D: usize>(shape: [usize; D], salt: u64) -> Tensor<D> {
    let mut state = salt.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let values: Vec<f32> = (0..shape.iter().product())
        .map(|_| {
            // A xorshift generator (Marsaglia 2003).
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect();
    Tensor::from_data(TensorData::new(values, shape), &Device::flex())
}

fn values<const D: usize>(x: Tensor<D>) -> Vec<f32> {
    x.into_data().try_into_vec().expect("they are f32")
}

/// Fails if two tensors differ by more than rounding.
#[track_caller]
fn alike<const D: usize>(fast: Tensor<D>, reference: Tensor<D>) {
    assert_eq!(fast.dims(), reference.dims());
    let fast = values(fast);
    let reference = values(reference);

    // Numbers that are all small are differences of larger numbers: a query that attends to one key, for example, has
    // no gradient.
    let size = reference.iter().fold(0.2f32, |size, x| size.max(x.abs()));

    for (at, (x, y)) in fast.iter().zip(&reference).enumerate() {
        assert!((x - y).abs() <= 2e-5 * size, "at {at}: {x}, and the reference has {y}");
    }
}

const RULES: [Norm; 2] = [Norm { epsilon: 1e-6, offset: 0.0 }, Norm { epsilon: 1e-5, offset: 1.0 }];

#[test]
fn norms() {
    for (rows, width) in [(1, 1), (3, 7), (65, 16), (130, 129), (2, 4097)] {
        for rule in RULES {
            let x = noise([rows, width], 1);
            let weight = noise([width], 2);
            let d_y = noise([rows, width], 3);
            let other = noise([rows, width], 4);

            alike(
                rule.apply(x.clone(), weight.clone(), Compute::F32),
                rule.plain(x.clone(), weight.clone()),
            );

            let [sum, y] = rule.of_sum(x.clone(), other.clone(), weight.clone(), Compute::F32);
            let [plain_sum, plain_y] = rule.plain_of_sum(x.clone(), other.clone(), weight.clone());
            alike(sum, plain_sum);
            alike(y, plain_y);

            for other in [None, Some(other)] {
                let (d_x, d_w) =
                    rule.backward(x.clone(), weight.clone(), d_y.clone(), other.clone());
                let (plain_x, plain_w) =
                    rule.plain_backward(x.clone(), weight.clone(), d_y.clone(), other);

                alike(d_x, plain_x);
                alike(d_w, plain_w);
            }
        }
    }
}

#[test]
fn activations() {
    for (rows, width) in [(1, 1), (5, 3), (200, 70)] {
        for activation in [Activation::Silu, Activation::GeluTanh] {
            let both = noise([rows, 2 * width], 1).mul_scalar(6.0);
            let d = noise([rows, width], 2);

            alike(
                gated(both.clone(), activation, Compute::F32),
                gated::plain(both.clone(), activation),
            );

            let fast = gated_backward(both.clone(), d.clone(), activation, Compute::F32);
            for (fast, plain) in fast.into_iter().zip(gated::plain_backward(both, d, activation)) {
                alike(fast, plain);
            }
        }
    }
}

/// Returns a matrix in codes, and its numbers.
fn quantised(inputs: usize, outputs: usize, layout: QuantLayout) -> (QuantisedMatrix, Tensor<2>) {
    let shape = [inputs / layout.per_word(), outputs];
    let words = values(noise(shape, 7)).into_iter().map(|word| (word * 2e9) as i32);
    let words = TensorData::new(words.collect(), shape);
    let words = Tensor::<2, Int>::from_data(words, (&Device::flex(), DType::I32));
    let scales = noise([inputs / layout.group_size * outputs], 8).cast(FloatDType::BF16);
    let wide = weight::plain(words.clone(), scales.clone(), layout);
    (QuantisedMatrix::new(words, scales, layout), wide)
}

#[test]
fn a_head_in_fewer_bits_gives_the_bits_of_a_wide_one() {
    let narrow = noise([1030, 48], 3).cast(FloatDType::BF16);
    let wide = narrow.clone().cast(FloatDType::F32);
    for rows in [1, 5, 40] {
        let hidden = noise([rows, 48], 4);
        let labels = Tensor::<1, Int>::from_data(
            TensorData::new((0..rows as i32).map(|row| row * 25).collect(), [rows]),
            (&Device::flex(), DType::I32),
        );
        let of = |head: &Tensor<2>| {
            let lm_head = LmHead::from(head.clone());
            let found = head_logprobs(&hidden, &lm_head, &labels, 0.7, 1 << 20);
            let slope = noise([rows], 5);
            let now = found.clone();
            let (d, _) =
                head_backward(&hidden, head, &labels, 0.7, 1 << 20, now, &slope, None, None);
            let logits = head_logits(hidden.clone(), &lm_head);
            [values(logits), values(found.logprobs), values(found.entropy), values(d)]
        };
        assert_eq!(of(&narrow), of(&wide), "{rows} rows");
    }
}

#[test]
fn weights_in_fewer_bits_give_the_bits_of_wide_ones() {
    for (inputs, outputs) in [(64, 48), (1056, 161), (96, 5), (36, 67), (132, 16)] {
        let narrow = noise([inputs, outputs], 6).cast(FloatDType::BF16);
        let mut all = vec![(Weight::Float(narrow.clone()), narrow.cast(FloatDType::F32))];
        for (bits, group_size) in [(4, 32), (4, 8), (4, 24), (8, 32), (8, 12)] {
            if inputs % group_size == 0 {
                let (matrix, wide) = quantised(inputs, outputs, QuantLayout { bits, group_size });
                assert_eq!(values(matrix.dequantise(FloatDType::F32)), values(wide.clone()));
                let stored = matrix.clone().with_wide_scales();
                all.push((Weight::Quantised(stored), wide.clone()));
                all.push((Weight::Quantised(matrix), wide));
            }
        }

        for (weight, wide) in all {
            for rows in [1, 3, 12, 13, 70] {
                for (weight, wide) in [
                    (weight.clone(), wide.clone()),
                    (weight.clone().transpose(), wide.clone().transpose()),
                ] {
                    let x = noise([rows, wide.dims()[0]], 1);
                    let bias = Some(noise([wide.dims()[1]], 2));
                    let product = |weight: Weight| {
                        linear_beside(x.clone(), weight, None, bias.clone(), None, Compute::F32)
                    };
                    let name = format!("{rows} rows, {weight:?}");
                    assert_eq!(values(product(weight)), values(product(wide.into())), "{name}");
                }
            }
        }
    }
}

#[test]
fn products() {
    for (rows, inner, columns) in
        [(1, 1, 1), (1, 5, 300), (2, 3, 4), (3, 600, 21), (70, 33, 65), (600, 40, 2100)]
    {
        let x = noise([rows, inner], 1);
        let y = noise([inner, columns], 2);
        let bias = noise([columns], 3);
        let onto = noise([rows, columns], 4);
        let across = noise([columns, inner], 5).transpose();

        let none = || (None, None);
        for y in [y.clone(), across] {
            for (bias, onto) in [
                none(),
                (Some(bias.clone()), None),
                (None, Some(onto.clone())),
                (Some(bias.clone()), Some(onto.clone())),
            ] {
                alike(
                    linear(x.clone(), y.clone(), bias.clone(), onto.clone(), Compute::F32),
                    linear::plain(x.clone(), y.clone(), None, bias, onto, Compute::F32),
                );
            }
        }

        alike(
            crate::add_product(Some(onto.clone()), x.clone(), y.clone(), Compute::F32),
            onto.clone() + x.matmul(y),
        );

        alike(crate::column_sums(onto.clone()), onto.sum_dim(0).squeeze_dim(0));
    }
}

#[test]
fn queries_keys_and_values() {
    for (heads, pairs) in [
        (Heads { query: 1, key: 1, width: 2 }, 1),
        (Heads { query: 6, key: 2, width: 10 }, 5),
        (Heads { query: 6, key: 2, width: 10 }, 2),
        (Heads { query: 4, key: 4, width: 64 }, 32),
        (Heads { query: 4, key: 4, width: 64 }, 24),
    ] {
        let tokens = 37;
        let positions: Vec<i32> = (0..tokens as i32).map(|token| token * token % 23).collect();
        let positions = TensorData::new(positions, [1, tokens]);
        let positions = Tensor::<2, Int>::from_data(positions, &Device::flex());

        let frequencies: Vec<f32> = (0..pairs).map(|at| 0.7f32.powi(at)).collect();
        let scale = if pairs % 2 == 0 { 1.3 } else { 1.0 };
        let frequencies = RopeFrequencies::new(frequencies).scaled(scale);

        let fast = RopeTable::new(&positions, &frequencies);
        let plain = RopeTable::plain(&positions, &frequencies);

        let projected = noise([tokens, (heads.query + 2 * heads.key) * heads.width], 1);
        let gradients = [heads.query, heads.key, heads.key]
            .map(|count| noise([tokens, count, heads.width], 3 + count as u64));

        for norms in [None, Some((RULES[1], [6, 7].map(|salt| noise([heads.width], salt))))] {
            // An update splits the tokens into such parts.
            for part in [0..tokens, 5..30] {
                let of = |x: &Tensor<3>| x.clone().slice_dim(0, part.clone());
                let projected = projected.clone().slice_dim(0, part.clone());
                let (fast, plain) = (fast.slice(part.clone()), plain.slice(part.clone()));

                let of_fast =
                    qkv_rope(projected.clone(), heads, norms.clone(), &fast, Compute::F32);
                let of_plain = qkv_rope::plain(projected.clone(), heads, norms.clone(), &plain);
                for (fast, plain) in of_fast.into_iter().zip(of_plain) {
                    alike(fast, plain);
                }

                let gradients = gradients.each_ref().map(of);
                let norms = norms.clone().map(|norms| (norms, projected));

                let (d_fast, weights_fast) =
                    qkv_rope_backward(heads, norms.clone(), true, &fast, gradients.clone());
                let (d_plain, weights_plain) =
                    qkv_rope::plain_backward(heads, norms, &plain, gradients);

                alike(d_fast, d_plain);
                let weights = weights_fast.into_iter().flatten();
                for (fast, plain) in weights.zip(weights_plain.into_iter().flatten()) {
                    alike(fast, plain);
                }
            }
        }
    }
}

#[test]
fn attentions() {
    let texts = |lengths: &[usize], gap: usize| {
        let mut start = gap;
        let segments = lengths.iter().map(|&length| {
            let range = start..start + length;
            start = range.end + gap;
            Segment { range, prefix: None }
        });
        segments.collect::<Vec<_>>()
    };

    // Three texts continue the first, and one continues the fifth.
    let mut shared = texts(&[70, 5, 3, 66, 90, 2], 0);
    for (index, before) in [(1, 0), (2, 0), (3, 0), (5, 4)] {
        shared[index].prefix = Some(before);
    }
    let batches = [texts(&[1], 0), texts(&[3, 64, 65, 1], 2), texts(&[1100], 0), shared];

    for heads in [Heads { query: 1, key: 1, width: 3 }, Heads { query: 6, key: 2, width: 8 }] {
        for segments in &batches {
            let tokens = segments.iter().map(|it| it.range.end).max().unwrap() + 1;
            let mask = PackedMask::new(segments, tokens, &Device::flex());
            let [query, key, value] = [(heads.query, 1), (heads.key, 2), (heads.key, 3)]
                .map(|(count, salt)| noise([tokens, count, heads.width], salt).mul_scalar(3.0));

            let d_output = noise([tokens, heads.query, heads.width], 4);
            for window in [None, Some(1), Some(40), Some(600), Some(1 << 32)] {
                let options = AttentionOptions { window, scores: 1 << 14 };
                let fast = attention(&query, &key, &value, &mask, options);
                let plain = attention::plain([&query, &key, &value], &mask, options);

                let AttentionOutput { output, lse } = fast.clone();
                alike(output, plain.output.clone());
                alike(lse, plain.lse.clone());

                let qkv = [&query, &key, &value];
                let fast = attention_backward(qkv, &fast, &d_output, &mask, options);
                let plain = attention::plain_backward(qkv, &plain, &d_output, &mask, options);
                for (fast, plain) in fast.into_iter().zip(plain) {
                    alike(fast, plain);
                }
            }
        }
    }
}

#[test]
fn paged_attentions() {
    for heads in [Heads { query: 2, key: 1, width: 3 }, Heads { query: 6, key: 2, width: 40 }] {
        let kv = [heads.key, heads.width];

        let mut pools = [3, 4].map(|pages| Pages::new(pages, kv, Compute::F32, &Device::flex()));
        for (pool, salt) in pools.iter_mut().zip([1, 2]) {
            // The last page stays empty, and the tokens are in reverse order.
            let slots: Vec<usize> = (0..2 * PAGE).rev().collect();
            let mapping = SlotMapping::new((0..2 * PAGE).collect(), slots);
            let [keys, values] = [3, 4].map(|more| noise([2 * PAGE, kv[0], kv[1]], salt + more));
            pool.write(&mapping, &keys, &values);
        }

        let block = |pool, page, tokens| Block { pool, page, tokens };
        let mut table = BlockTable::new(vec![
            vec![block(0, 0, PAGE), block(0, 1, 5), block(1, 0, 3)],
            vec![block(0, 0, PAGE), block(0, 1, 5), block(1, 1, PAGE)],
            vec![block(1, 0, 1)],
        ]);

        let query = noise([3, heads.query, heads.width], 9).mul_scalar(3.0);
        let pools = [&pools[0], &pools[1]];

        let sinks = noise([heads.query], 8).mul_scalar(5.0);
        for window in [None, Some(1), Some(6), Some(500), Some(1 << 32)] {
            for sinks in [None, Some(&sinks)] {
                alike(
                    paged_attention(query.clone(), &pools, &mut table, window, sinks),
                    pages::plain(query.clone(), &pools, &mut table, window, sinks),
                );
            }
        }
    }
}

#[test]
fn a_sink_is_a_key_with_a_score_of_its_own_and_no_value() {
    let (tokens, heads, width) = (37, 3, 8);
    let shape = [tokens, heads, width];
    let [query, key, value, d_output] = [1, 2, 3, 4].map(|salt| noise(shape, salt));
    let sinks = noise([heads], 5).mul_scalar(4.0);

    let mask =
        PackedMask::new(&[Segment { range: 0..tokens, prefix: None }], tokens, &Device::flex());
    let options = AttentionOptions { window: None, scores: 1 << 20 };
    let qkv = [&query, &key, &value];
    let out = attention(&query, &key, &value, &mask, options).with_sinks(&sinks);
    let gradients = attention_backward(qkv, &out, &d_output, &mask, options);
    let d_sinks = out.d_sinks(&sinks, &d_output);

    // The same by its definition, and by autodiff.
    let device = Device::flex().autodiff();
    let tracked = |x: &Tensor<3>| Tensor::from_data(x.to_data(), &device).require_grad();
    let [query, key, value] = qkv.map(tracked);
    let sinks = Tensor::<1>::from_data(sinks.to_data(), &device).require_grad();
    let [q, k, v] = [&query, &key, &value].map(|x| x.clone().swap_dims(0, 1));
    let later = Tensor::<2, Int>::ones([tokens, tokens], &device).triu(1).bool();
    let scores = q.matmul(k.swap_dims(1, 2)).div_scalar((width as f64).sqrt());
    let scores = scores.mask_fill(later.unsqueeze(), -1e30);
    let of_sinks = sinks.clone().reshape([heads, 1, 1]).repeat_dim(1, tokens);
    let weights = burn::tensor::activation::softmax(Tensor::cat(vec![scores, of_sinks], 2), 2);
    let expected = weights.narrow(2, 0, tokens).matmul(v).swap_dims(0, 1);

    alike(out.output, expected.clone().inner());
    let d_output = Tensor::from_data(d_output.to_data(), &device);
    let found = (expected * d_output).sum().backward();
    for (gradient, x) in gradients.into_iter().zip([&query, &key, &value]) {
        alike(gradient, x.grad(&found).unwrap());
    }
    alike(d_sinks, sinks.grad(&found).unwrap());
}

#[test]
fn heads() {
    // In the last case, the vocabulary has blocks of 512 with a last block of 1, and sums are longer than those of
    // `gemm`.
    for (tokens, vocab, width) in [(1, 2, 3), (9, 70, 5), (150, 2500, 24), (2100, 1025, 600)] {
        let hidden = noise([tokens, width], 1).mul_scalar(3.0);
        let weights = noise([vocab, width], 2).mul_scalar(2.0);
        let labels: Vec<i32> = (0..tokens).map(|at| (at * 1_000_003 % vocab) as i32).collect();
        let labels =
            Tensor::<1, Int>::from_data(TensorData::new(labels, [tokens]), &Device::flex());
        let d_logprobs = noise([tokens], 3);
        let d_entropy = noise([tokens], 4);

        for (temperature, logits, cap) in
            [(1.0, 1 << 16, None), (0.6, 1 << 22, None), (0.6, 1 << 16, Some(5.0))]
        {
            let lm_head = LmHead { matrix: weights.clone(), cap };
            let at_once = [logits, 1 << 22];
            let judged = || head_logprobs_saving(&hidden, &lm_head, &labels, temperature, at_once);
            let plain = || head::plain(&hidden, &lm_head, &labels, temperature, at_once);

            alike(judged().logprobs, plain().logprobs);
            alike(judged().entropy, plain().entropy);

            for (d_entropy, d_head) in [
                (None, None),
                (Some(&d_entropy), None),
                (Some(&d_entropy), Some(noise([vocab, width], 5))),
            ] {
                let back = |now| {
                    let d_logprobs = &d_logprobs;
                    let d_head = d_head.clone();
                    head_backward(
                        &hidden,
                        &weights,
                        &labels,
                        temperature,
                        logits,
                        now,
                        d_logprobs,
                        d_entropy,
                        d_head,
                    )
                };

                let (d_fast, head_fast) = back(judged());
                let (d_plain, head_plain) = head::plain_backward(
                    &hidden,
                    &weights,
                    &labels,
                    temperature,
                    logits,
                    plain(),
                    &d_logprobs,
                    d_entropy,
                    d_head.clone(),
                );

                // Logits that are computed again have the same bits as logits that were kept.
                let again = head_logprobs(&hidden, &lm_head, &labels, temperature, logits);
                let (d_again, head_again) = back(again);
                assert_eq!(values(d_again), values(d_fast.clone()));
                assert_eq!(head_again.map(values), head_fast.clone().map(values));

                alike(d_fast, d_plain);
                assert_eq!(head_fast.is_some(), head_plain.is_some());
                head_fast.into_iter().zip(head_plain).for_each(|(fast, plain)| alike(fast, plain));
            }
        }
    }
}

/// Hidden states and a head as leaves of autodiff.
struct Leaves {
    hidden: Tensor<2>,
    head: Tensor<2>,
}

impl Leaves {
    fn new(hidden: &Tensor<2>, head: &LmHead) -> Self {
        let [hidden, head] =
            [hidden, &head.matrix].map(|values| Tensor::from_inner(values.clone()).require_grad());
        Leaves { hidden, head }
    }

    /// Computes the logarithms of all probabilities as a formula says it, `[tokens, vocab]`.
    fn logs(&self, cap: f64, temperature: f64) -> Tensor<2> {
        let logits = self.hidden.clone().matmul(self.head.clone().transpose());
        let capped = logits.div_scalar(cap).tanh().mul_scalar(cap);
        log_softmax(capped.div_scalar(temperature), 1)
    }

    /// Differentiates `Σ weights · y`, with `y`, `[tokens]`.
    fn gradients(&self, weighted: &[(&Tensor<1>, &Tensor<1>)]) -> [Tensor<2>; 2] {
        let parts = weighted
            .iter()
            .map(|&(weights, y)| (Tensor::from_inner(weights.clone()) * y.clone()).sum());
        let sum = parts.reduce(|sum, part| sum + part).expect("there is something to sum");
        let gradients = sum.backward();
        [&self.hidden, &self.head].map(|leaf| leaf.grad(&gradients).expect("it is a leaf"))
    }
}

const CAP: f64 = 5.0;

#[test]
fn capped_logits_have_the_gradients_of_autodiff() {
    const TEMPERATURE: f64 = 0.7;
    // Logits are up to four times the cap.
    for (tokens, vocab, width) in [(1, 2, 3), (9, 71, 5), (37, 1025, 17)] {
        let hidden = noise([tokens, width], 1).mul_scalar(3.0);
        let head = LmHead { matrix: noise([vocab, width], 2).mul_scalar(2.0), cap: Some(CAP) };
        let labels: Vec<usize> = (0..tokens).map(|at| at * 1_000_003 % vocab).collect();
        let d_logprobs = noise([tokens], 3);
        let d_entropy = noise([tokens], 4);

        // One in each row, where the label is.
        let mut chosen = vec![0.0f32; tokens * vocab];
        labels.iter().enumerate().for_each(|(row, label)| chosen[row * vocab + label] = 1.0);
        let chosen =
            Tensor::<2>::from_data(TensorData::new(chosen, [tokens, vocab]), &Device::flex());

        let leaves = Leaves::new(&hidden, &head);
        let logs = leaves.logs(CAP, TEMPERATURE);
        let logprobs: Tensor<1> =
            (logs.clone() * Tensor::from_inner(chosen)).sum_dim(1).squeeze_dim(1);
        let entropy: Tensor<1> = (logs.clone().exp() * logs).sum_dim(1).neg().squeeze_dim(1);
        let [d_hidden, d_head] =
            leaves.gradients(&[(&d_logprobs, &logprobs), (&d_entropy, &entropy)]);

        let labels: Vec<i32> = labels.into_iter().map(|label| label as i32).collect();
        let labels =
            Tensor::<1, Int>::from_data(TensorData::new(labels, [tokens]), &Device::flex());

        // Logits that are kept for the backward pass, and logits that are computed again.
        for kept in [1 << 20, 0] {
            let limits = [1 << 20, kept];
            let fast = head_logprobs_saving(&hidden, &head, &labels, TEMPERATURE, limits);
            alike(fast.logprobs.clone(), logprobs.clone().inner());
            alike(fast.entropy.clone(), entropy.clone().inner());

            let (fast_hidden, fast_head) = head_backward(
                &hidden,
                &head.matrix,
                &labels,
                TEMPERATURE,
                1 << 20,
                fast,
                &d_logprobs,
                Some(&d_entropy),
                Some(head.matrix.zeros_like()),
            );
            alike(fast_hidden, d_hidden.clone());
            alike(fast_head.expect("the head trains"), d_head.clone());
        }

        // Those of a sampler are not over the temperature.
        let logits = head_logits(hidden.clone(), &head);
        assert!(values(logits.clone()).iter().all(|logit| f64::from(logit.abs()) <= CAP));
        alike(
            log_softmax(logits.div_scalar(TEMPERATURE), 1),
            leaves.logs(CAP, TEMPERATURE).inner(),
        );
    }
}

#[test]
fn divergences_of_capped_logits_have_the_gradients_of_autodiff() {
    const TEMPERATURE: f64 = 0.7;
    let (tokens, vocab) = (9, 71);
    let states = |width: usize, rows: usize, salt: u64, cap: f64| {
        let head = LmHead { matrix: noise([rows, width], salt).mul_scalar(2.0), cap: Some(cap) };
        HeadStates { hidden: noise([tokens, width], salt + 1).mul_scalar(3.0), head }
    };
    // The teacher has a cap of its own, and more tokens, which are left out.
    let policy = states(5, vocab, 1, CAP);
    let teacher = states(7, vocab + 3, 3, 2.0 * CAP);
    let weights = noise([tokens], 5);

    let leaves = Leaves::new(&policy.hidden, &policy.head);
    let of_teacher = Leaves::new(&teacher.hidden, &teacher.head.rows(&(0..vocab)));
    let log_p = of_teacher.logs(2.0 * CAP, TEMPERATURE).inner();
    // A backward pass uses a graph up, so there is one for each direction.
    let divergences = || {
        let (log_q, log_p) = (leaves.logs(CAP, TEMPERATURE), Tensor::from_inner(log_p.clone()));
        let sum = |x: Tensor<2>| -> Tensor<1> { x.sum_dim(1).squeeze_dim(1) };
        let reverse = sum(log_q.clone().exp() * (log_q.clone() - log_p.clone()));
        [sum(log_p.clone().exp() * (log_p - log_q)), reverse]
    };

    for direction in [KlDirection::Forward, KlDirection::Reverse] {
        let [forward, reverse] = divergences();
        let own = match direction {
            KlDirection::Forward => &forward,
            KlDirection::Reverse => &reverse,
        };
        let [d_hidden, d_head] = leaves.gradients(&[(&weights, own)]);
        // The vocabulary at once, and in odd blocks.
        for logits in [1 << 20, 6 * 9 * 13] {
            let compute = Compute::F32;
            let found =
                head_kl(direction, &policy, &teacher, &weights, TEMPERATURE, logits, compute, true);
            alike(found.forward, forward.clone().inner());
            alike(found.reverse, reverse.clone().inner());
            alike(found.d_hidden, d_hidden.clone());
            alike(found.d_head.expect("the head trains"), d_head.clone());
        }
    }
}

#[test]
fn gradients_of_lookups() {
    for (vocab, tokens, width) in [(1, 1, 1), (200, 90, 7), (30, 300, 16)] {
        let named: Vec<u32> = (0..tokens).map(|at| (at * at * 31 % vocab) as u32).collect();
        let table = noise([vocab, width], 1);
        let gradient = noise([tokens, width], 2);
        alike(
            crate::add_rows(table.clone(), &named, gradient.clone(), 1 << 10),
            rows::plain(table, &named, gradient, 1 << 10),
        );
    }
}

#[test]
fn steps_of_adamw() {
    let count = 40_003;
    // The first step has no moments.
    let [mut fast, mut plain] = [(); 2].map(|()| (noise([count], 1), None));

    for time in 1..4 {
        let step =
            AdamWStep { betas: [0.9, 0.999], epsilon: 1e-8, weight_decay: 0.1, lr: 0.01, time };

        let gradient = noise([count], 1 + time);
        let [values, first, second] = adamw(fast.0, gradient.clone(), fast.1, step);
        fast = (values, Some([first, second]));
        let [values, first, second] = crate::adamw::plain(plain.0, gradient, plain.1, step);
        plain = (values, Some([first, second]));
    }

    alike(fast.0, plain.0);
    for (fast, plain) in fast.1.into_iter().flatten().zip(plain.1.into_iter().flatten()) {
        alike(fast, plain);
    }

    // The squares of the first overflow f32.
    let tensors = [noise([1000], 9).mul_scalar(1e20), noise([1], 10), noise([77], 11)];
    let pairs = values(crate::scaled_squares(tensors.to_vec()));
    assert_eq!(pairs.len(), 2 * tensors.len());

    for (x, pair) in tensors.into_iter().zip(pairs.chunks(2)) {
        let norm = f64::from(pair[0]) * f64::from(pair[1]).sqrt();
        let expected = values(x).iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
        assert!((norm / expected - 1.0).abs() < 1e-6, "{norm} and {expected}");
    }
}

/// The bits are the same for any number of threads.
#[test]
fn threads_change_nothing() {
    let all = || {
        let heads = Heads { query: 4, key: 2, width: 16 };
        let lengths = [130, 1, 700];

        let mut segments = Vec::new();
        for length in lengths {
            let start = segments.last().map_or(0, |it: &Segment| it.range.end);
            segments.push(Segment { range: start..start + length, prefix: None });
        }

        let tokens = 831;
        let mask = PackedMask::new(&segments, tokens, &Device::flex());
        let options = AttentionOptions { window: None, scores: 1 << 16 };

        let [query, key, value] =
            [(4, 1), (2, 2), (2, 3)].map(|(count, salt)| noise([tokens, count, heads.width], salt));
        let out = attention(&query, &key, &value, &mask, options);
        let d = noise([tokens, 4, 16], 4);
        let gradients = attention_backward([&query, &key, &value], &out, &d, &mask, options);

        let x = noise([tokens, 64], 5);
        let (d_x, d_weight) = RULES[0].backward(
            x.clone(),
            noise([64], 6),
            out.output.clone().reshape([tokens, 64]),
            None,
        );

        let d_w = crate::product(x.clone().transpose(), d_x.clone(), Compute::F32);
        // An adapter has such shapes: many rows, few columns, and sums that are longer than a block.
        let narrow = crate::product(noise([1024, 896], 8), noise([896, 32], 9), Compute::F32);

        let hidden = noise([831, 64], 10);
        let head = noise([1025, 64], 11);
        let labels = Tensor::<1, Int>::arange(0..831, &Device::flex());
        let lm_head = LmHead { matrix: head.clone(), cap: Some(3.0) };
        let now = head_logprobs_saving(&hidden, &lm_head, &labels, 0.7, [1 << 21; 2]);
        let d_logprobs = now.logprobs.clone();
        let d_head = Some(Tensor::zeros_like(&head));

        let (d_hidden, d_head) =
            head_backward(&hidden, &head, &labels, 0.7, 1 << 21, now, &d_logprobs, None, d_head);

        let mut bits = values(d_weight);
        bits.extend(values(d_hidden));
        bits.extend(d_head.into_iter().flat_map(values));

        for part in [out.output, gradients[0].clone(), gradients[1].clone(), gradients[2].clone()] {
            bits.extend(values(part));
        }

        bits.extend(values(d_x));
        bits.extend(values(d_w));
        bits.extend(values(narrow));
        bits.extend(values(crate::column_sums(x)));

        bits
    };

    let with = |threads: usize| {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(all)
    };

    let one = with(1);
    assert!(with(2) == one && with(5) == one);

    // And they are those of the CPU implementations, not of the reference.
    assert!(flex::numbers(&noise([2, 2], 1)).is_some());
}
