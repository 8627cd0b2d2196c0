//! Cases of the suite: a model's forward pass, decoding, log-probabilities and gradients.

use burn::{
    module::{Module, ModuleVisitor, Param},
    optim::GradientsParams,
    tensor::{Device, Int, Tensor, TensorData},
};
use firebrick_core::{Completion, FinishReason, Seed, TokenId};
use firebrick_models::{
    Compute, DecodeCache, Decoder, DecoderConfig, Family, FrozenFormat, LayerKind, Lora, Padding,
    PerLayerSizes, PolicyModel, QueryGrowth, Rope, RopeKind, RopeScaling, Sizes, SwigluClamp,
    TokenBatch, Yarn, head_logprobs, parameters, random_in,
};
use firebrick_train::{
    Sample,
    algorithm::{ClipRange, Dapo, Kl, KlEstimator, Objective},
    learner::{MicroBatching, SharePrompts, UpdateReport, Updater},
};

use super::{
    Array, Case,
    tensors::{in_f32, values},
};
use crate::{Failure, Precision, Tolerance};

pub(super) fn cases() -> Vec<Case> {
    vec![
        in_f32("model/hidden", Tolerance::FORWARD, hidden),
        in_f32("model/positions", Tolerance::FORWARD, positions),
        in_f32("model/logprobs", Tolerance::FORWARD, logprobs),
        in_f32("model/decode", Tolerance::FORWARD, decode),
        in_f32("model/decode_is_forward", Tolerance::FORWARD, decode_is_forward),
        in_f32("model/gradients", Tolerance::BACKWARD, gradients),
        in_f32("model/gradients_cut", Tolerance::BACKWARD, gradients_cut),
        in_f32("model/base", Tolerance::BACKWARD, packed),
        in_f32("model/kinds", Tolerance::BACKWARD, kinds),
        in_bf16("model/hidden", Tolerance::FORWARD, hidden),
        in_bf16("model/decode", Tolerance::FORWARD, decode),
        in_bf16("model/gradients", Tolerance::BACKWARD, gradients),
    ]
}

/// Makes a case whose matmuls are in bf16.
pub(super) fn in_bf16(name: &'static str, tolerance: Tolerance, compute: super::Compute) -> Case {
    Case::new(name, Precision::Bf16, tolerance, compute)
}

/// Computes hidden states and logits of ragged rows, padded on either side. They have rotary positions, two query heads
/// per key head, the causal mask and the mask of the padding. On the left, a query of padding attends to no key.
fn hidden(device: &Device, precision: Precision) -> Result<Vec<Array>, Failure> {
    let policy = policy(device)?.with_compute(compute(precision));
    let rows: Vec<Vec<TokenId>> =
        [1, 5, 12, 16].into_iter().enumerate().map(|(id, length)| tokens(id, length)).collect();
    let rows: Vec<&[TokenId]> = rows.iter().map(Vec::as_slice).collect();

    let right = TokenBatch::new(&rows, Padding::Right, device);
    let left = TokenBatch::new(&rows, Padding::Left, device);

    Ok(vec![
        Array::new("padded on the right", values(policy.hidden(&right))?),
        Array::new("padded on the left", values(policy.hidden(&left))?),
        Array::new("logits", values(policy.logits(&right))?),
    ])
}

/// Computes a row long enough for positions to rotate many times.
fn positions(device: &Device, _: Precision) -> Result<Vec<Array>, Failure> {
    let row = tokens(0, 200);
    let batch = TokenBatch::new(&[&row], Padding::Right, device);
    Ok(vec![Array::new("hidden", values(policy(device)?.hidden(&batch))?)])
}

/// Compares log-probabilities in chunks of 4 tokens with those of all tokens at once.
fn logprobs(device: &Device, _: Precision) -> Result<Vec<Array>, Failure> {
    let policy = policy(device)?;
    let row = tokens(0, 15);
    let batch = TokenBatch::new(&[&row], Padding::Right, device);
    let hidden = policy.hidden(&batch).reshape([15, HIDDEN]);
    let labels = int_row(&tokens(1, 15), device);

    // The temperature makes the distribution sharper than the model's: likelihoods spread over some orders of
    // magnitude.
    let chunked = |chunk| head_logprobs(&hidden, &policy.lm_head(), &labels, 0.05, chunk);

    let whole = chunked(usize::MAX);
    let cut = chunked(4);

    let logprobs = values(whole.logprobs)?;
    let entropy = values(whole.entropy)?;
    Ok(vec![
        Array::with_expected("log-probs in chunks", values(cut.logprobs)?, logprobs.clone()),
        Array::with_expected("entropy in chunks", values(cut.entropy)?, entropy.clone()),
        Array::new("log-probs", logprobs),
        Array::new("entropy", entropy),
    ])
}

/// Computes hidden states by prefill and by decode steps over a cache.
fn decode(device: &Device, precision: Precision) -> Result<Vec<Array>, Failure> {
    let decoded = decoded(&policy(device)?.with_compute(compute(precision)).sampler())?;
    Ok(decoded.into_iter().map(|part| Array::new(part.name, part.hidden)).collect())
}

/// Compares prefill and decode steps with one pass over the finished rows, on the same device. The update must compute
/// the values that sampling computed.
fn decode_is_forward(device: &Device, _: Precision) -> Result<Vec<Array>, Failure> {
    let policy = policy(device)?;
    decoded(&policy)?
        .into_iter()
        .map(|part| {
            let rows: Vec<&[TokenId]> = part.rows.iter().map(Vec::as_slice).collect();
            let batch = TokenBatch::new(&rows, Padding::Right, device);
            let width = batch.tokens.dims()[1];

            let one_pass = values(policy.hidden(&batch))?;
            // One pass gives them row by row, but decoding step by step.
            let mut expected = Vec::with_capacity(part.hidden.len());
            for step in 0..part.steps {
                for (index, row) in rows.iter().enumerate() {
                    let at = (index * width + row.len() - part.steps + step) * HIDDEN;
                    expected.extend_from_slice(&one_pass[at..at + HIDDEN]);
                }
            }

            Ok(Array::with_expected(part.name, part.hidden, expected))
        })
        .collect()
}

/// Hidden states of the last `steps` tokens of `rows`, step by step.
struct DecodedStates {
    name: &'static str,
    rows: Vec<Vec<TokenId>>,
    steps: usize,
    hidden: Vec<f32>,
}

/// Prefills three prompts, the first for two rows, and decodes. Then two of the four rows end, and two rows of another
/// prompt join.
fn decoded<M: PolicyModel>(policy: &M) -> Result<Vec<DecodedStates>, Failure> {
    let prompts: Vec<Vec<TokenId>> =
        [3, 7, 5].into_iter().enumerate().map(|(id, length)| tokens(id, length)).collect();
    let (hidden, cache) = prefill(policy, &prompts);
    let prefilled =
        DecodedStates { name: "prefill", rows: prompts.clone(), steps: 1, hidden: values(hidden)? };

    let mut cache = cache.arrange(&[0, 0, 1, 2], None, 4);
    let mut rows: Vec<Vec<TokenId>> =
        [0, 0, 1, 2].into_iter().map(|prompt: usize| prompts[prompt].clone()).collect();
    let hidden = steps(policy, &mut cache, &mut rows, 4)?;
    let first = DecodedStates { name: "decode", rows: rows.clone(), steps: 4, hidden };

    // The cache is cut and filled up while its rows are of different lengths.
    let joining = tokens(3, 6);
    let (_, newcomers) = prefill(policy, std::slice::from_ref(&joining));
    let mut cache = cache.arrange(&[1, 3], Some((&newcomers, &[0, 0])), 3);
    let mut rows = vec![rows[1].clone(), rows[3].clone(), joining.clone(), joining];
    let hidden = steps(policy, &mut cache, &mut rows, 3)?;
    Ok(vec![prefilled, first, DecodedStates { name: "rearranged", rows, steps: 3, hidden }])
}

fn prefill<M: PolicyModel>(policy: &M, prompts: &[Vec<TokenId>]) -> (Tensor<2>, M::Cache) {
    let prompts: Vec<&[TokenId]> = prompts.iter().map(Vec::as_slice).collect();
    policy.prefill(&TokenBatch::new(&prompts, Padding::Left, &policy.device()))
}

/// Appends `count` tokens to each row, each row other ones.
fn steps<M: PolicyModel>(
    policy: &M,
    cache: &mut M::Cache,
    rows: &mut [Vec<TokenId>],
    count: usize,
) -> Result<Vec<f32>, Failure> {
    let mut hidden = Vec::new();
    for step in 0..count {
        let next: Vec<TokenId> = (0..rows.len())
            .map(|row| ((7 * step + 11 * row + 3) % VOCABULARY) as TokenId)
            .collect();

        for (row, &token) in rows.iter_mut().zip(&next) {
            row.push(token);
        }

        hidden.extend(values(policy.decode(int_row(&next, &policy.device()), cache))?);
    }
    Ok(hidden)
}

/// Computes the loss and the gradients of one update.
fn gradients(device: &Device, precision: Precision) -> Result<Vec<Array>, Failure> {
    let policy = policy(&device.clone().autodiff())?.with_compute(compute(precision));
    let report = updater(WHOLE).gradients(&policy, &samples()).map_err(failed)?;
    Ok(named(&policy, &report)?
        .into_iter()
        .map(|(name, values)| Array::new(name, values))
        .collect())
}

/// Computes the gradients in pieces: three micro-batches with shared prompts, few logits at a time, and one layer
/// computed twice with its input kept on the host. Splitting changes only the order of sums.
fn gradients_cut(device: &Device, _: Precision) -> Result<Vec<Array>, Failure> {
    let policy = policy(&device.clone().autodiff())?;
    let micro_batching = MicroBatching {
        micro_batch_tokens: 26,
        max_logits: 100,
        max_saved_logits: 0,
        layers_without_recompute: 1,
        offload: true,
        share_prompts: SharePrompts::Always,
    };

    let gradients = |micro_batching| {
        let report = updater(micro_batching).gradients(&policy, &samples()).map_err(failed)?;
        named(&policy, &report)
    };

    let expected = gradients(WHOLE)?;
    let arrays = gradients(micro_batching)?.into_iter().zip(expected);

    Ok(arrays
        .map(|((name, values), (_, expected))| Array::with_expected(name, values, expected))
        .collect())
}

/// Computes layers of newer families, decoded and in an update. They have a window with its own rope, a layer without
/// rotation, half of a head rotated and scaled up, and scaled queries. They have post-norm, alone and with pre-norm,
/// and norms of heads one by one and together, before and after RoPE. They also have a recurrence instead of attention
/// next to attention with gates, experts with and without one for all tokens, with biases and bounds, sinks, queries that
/// grow, an MLP without a gate, heads that are wider in some layers, values that are keys, embeddings per layer, and keys
/// and values of an earlier layer.
fn kinds(device: &Device, _: Precision) -> Result<Vec<Array>, Failure> {
    let mut arrays = Vec::new();
    let families = [
        Family::Gemma3,
        Family::Gemma4,
        Family::Olmo2,
        Family::Qwen35,
        Family::Qwen3Moe,
        Family::Qwen2Moe,
        Family::GptOss,
        Family::HunYuan,
    ];
    for family in families {
        let mut config = DecoderConfig::new(family, sizes());
        // Two unlike layers, so that each family shows what its layers can be.
        let windowed = LayerKind { window: Some(5), rope: RopeKind::Local, ..LayerKind::default() };
        let still = LayerKind { rope: RopeKind::None, ..LayerKind::default() };
        let [first, second] = match family {
            Family::Qwen35 => [LayerKind { recurrent: true, ..still }, windowed],
            Family::Qwen3Moe | Family::Qwen2Moe | Family::GptOss => {
                [LayerKind { sparse: true, ..windowed }, still]
            }
            Family::Gemma4 => [windowed, LayerKind { global: true, ..LayerKind::default() }],
            _ => [windowed, still],
        };

        config.kinds[..2].copy_from_slice(&[first, second]);
        config.local_rope = Some(half_scaled());
        config.query_scale = 1.5;
        match family {
            Family::Gemma4 => {
                config.per_layer = Some(PerLayerSizes { vocab_size: VOCABULARY, width: 6 });
                config.double_wide_mlp = true;
                // A third layer attends to the keys and values of the second.
                config.layers = 3;
                config.kinds.push(second);
                config.share_kv(1);
            }
            Family::Qwen2Moe => config.query_growth = Some(QueryGrowth { beta: 0.5, context: 3 }),
            Family::GptOss => {
                config.swiglu_clamp = Some(SwigluClamp { slope: 1.702, limit: 0.05 });
            }
            Family::HunYuan => {
                config.squared_relu = true;
                config.residual_scale = 0.5;
                config.logit_scale = 0.25;
                config.logit_cap = Some(0.02);
            }
            _ => {}
        }

        let policy =
            random_in(&config, FrozenFormat::F32, Seed::run(1), &device.clone().autodiff());
        let policy = policy.map_err(failed)?;

        for part in decoded(&policy.sampler())? {
            arrays.push(Array::new(format!("{family:?}, {}", part.name), part.hidden));
        }

        let report = updater(WHOLE).gradients(&policy, &samples()).map_err(failed)?;
        let named = named(&policy, &report)?.into_iter();
        arrays
            .extend(named.map(|(name, values)| Array::new(format!("{family:?}, {name}"), values)));
    }
    Ok(arrays)
}

/// Returns a rope that rotates half of a head, by frequencies that YaRN changed.
fn half_scaled() -> Rope {
    let scaling = RopeScaling::Yarn(Yarn {
        factor: 4.0,
        beta_fast: 8.0,
        beta_slow: 1.0,
        truncate: false,
        attention_factor: 1.1,
        original_max_position_embeddings: 64,
    });
    Rope { share: 0.5, scaling, ..Rope::new(100.0) }
}

/// Computes adapters next to weights in 16, 8 and 4 bits: hidden states, and the adapters' gradients.
fn packed(device: &Device, _: Precision) -> Result<Vec<Array>, Failure> {
    let mut arrays = Vec::new();
    for base in [FrozenFormat::Bf16, FrozenFormat::Int8, FrozenFormat::Int4] {
        let targets = Lora::PROJECTIONS.map(str::to_owned).to_vec();
        let lora = Lora { rank: 4, alpha: 8.0, targets, ..Lora::default() };
        let policy = policy_in(base, &device.clone().autodiff())?.with_lora(lora, Seed::run(3));

        let row = tokens(0, 12);
        let batch = TokenBatch::new(&[&row], Padding::Right, device);
        let hidden = policy.sampler().hidden(&batch);
        arrays.push(Array::new(format!("{base:?}"), values(hidden)?));

        let report = updater(WHOLE).gradients(&policy, &samples()).map_err(failed)?;
        // Only the adapters have gradients.
        for parameter in parameters(&policy) {
            if let Some(gradient) = report.gradients.get::<2>(parameter.id) {
                let count: usize = parameter.shape.iter().product();
                let gradient: Tensor<1> = gradient.reshape([count]);
                arrays.push(Array::new(format!("{base:?} {}", parameter.path), values(gradient)?));
            }
        }
    }
    Ok(arrays)
}

fn compute(precision: Precision) -> Compute {
    match precision {
        Precision::Bf16 => Compute::Bf16,
        Precision::F32 | Precision::F16 => Compute::F32,
    }
}

/// Returns the loss, and the gradient of each parameter that is trained by its path.
pub(super) fn named(
    policy: &Decoder,
    report: &UpdateReport,
) -> Result<Vec<(String, Vec<f32>)>, Failure> {
    struct Collect<'a> {
        gradients: &'a GradientsParams,
        found: Vec<Result<Vec<f32>, Failure>>,
    }

    impl ModuleVisitor for Collect<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if !param.is_require_grad() {
                return;
            }
            let gradient = self.gradients.get::<D>(param.id);
            self.found.push(match gradient {
                Some(gradient) => values(gradient),
                None => Err(Failure::new("a parameter has no gradient")),
            });
        }
    }

    // burn visits parameters in the order in which `parameters` lists them.
    let mut collect = Collect { gradients: &report.gradients, found: Vec::new() };
    policy.visit(&mut collect);

    let mut arrays = vec![("loss".to_owned(), vec![report.loss as f32])];
    let trained = parameters(policy).into_iter().filter(|parameter| parameter.trained);
    for (parameter, gradient) in trained.zip(collect.found) {
        arrays.push((parameter.path, gradient?));
    }
    Ok(arrays)
}

/// Vocabulary size of [`policy`].
pub(super) const VOCABULARY: usize = 61;

/// Width of [`policy`].
const HIDDEN: usize = 32;

/// Makes a model of two layers with four heads on two key-value heads. The widths of the MLP and of the vocabulary are
/// not powers of two.
pub(super) fn policy(device: &Device) -> Result<Decoder, Failure> {
    policy_in(FrozenFormat::F32, device)
}

/// Makes the model of [`policy`] with weights in another format.
fn policy_in(base: FrozenFormat, device: &Device) -> Result<Decoder, Failure> {
    let config = DecoderConfig::new(Family::Qwen2, sizes());
    random_in(&config, base, Seed::run(1), device).map_err(failed)
}

fn sizes() -> Sizes {
    Sizes {
        vocab_size: VOCABULARY,
        hidden_size: HIDDEN,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 8,
        intermediate_size: 48,
        max_position_embeddings: 512,
        rope_theta: 10_000.0,
        tied: false,
    }
}

/// Returns `length` tokens that follow from `id`.
pub(super) fn tokens(id: usize, length: usize) -> Vec<TokenId> {
    let mut stream = Seed::run(2).derive("tokens", &[id as u64]).stream();
    (0..length as u64)
        .map(|position| (stream.uniform_at(position) * VOCABULARY as f64) as TokenId)
        .collect()
}

/// Returns six samples of three groups, of different lengths. Their ratios are on both sides of either clip.
pub(super) fn samples() -> Vec<Sample> {
    (0..6)
        .map(|index| {
            let mut stream = Seed::run(3).derive("sample", &[index as u64]).stream();
            let completion = tokens(200 + index, 3 + 2 * index % 7);

            // Log-probabilities around that of one token among 61.
            let mut around = |first: u64| -> Vec<f32> {
                (0..completion.len() as u64)
                    .map(|at| (0.8 * stream.uniform_at(first + at) - 4.51) as f32)
                    .collect()
            };
            let old_logprobs = around(0);
            let ref_logprobs = around(100);

            let advantage = (4.0 * stream.uniform_at(200) - 2.0) as f32;
            let completion = Completion::written(completion, old_logprobs, FinishReason::Stop);
            let prompt = tokens(100 + index, 2 + index % 4);
            let mut sample = Sample::new(&prompt, &completion, index as u64 / 2);
            sample.ref_logprobs = ref_logprobs;
            sample.with_advantage(advantage)
        })
        .collect()
}

/// An update in one piece.
pub(super) const WHOLE: MicroBatching = MicroBatching {
    micro_batch_tokens: usize::MAX,
    max_logits: usize::MAX,
    max_saved_logits: usize::MAX,
    layers_without_recompute: usize::MAX,
    offload: false,
    share_prompts: SharePrompts::Auto,
};

/// Makes an updater of DAPO with all options: two clips, an entropy bonus and a KL penalty.
pub(super) fn updater(micro_batching: MicroBatching) -> Updater {
    let clip = ClipRange { low: 0.2, high: 0.28 };
    let mut objective = Objective::new(Box::new(Dapo { clip, dual_clip: Some(1.3) }));
    objective.entropy_coef = 0.01;
    objective.kl = Some(Kl { estimator: KlEstimator::K3, gradient_of_k2: false, coef: 0.1 });

    let mut updater = Updater::new(objective);
    updater.temperature = 0.9;
    updater.micro_batching = micro_batching;
    updater
}

pub(super) fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(error.to_string())
}

fn int_row(tokens: &[TokenId], device: &Device) -> Tensor<1, Int> {
    let tokens: Vec<i32> = tokens.iter().map(|&token| token as i32).collect();
    let count = tokens.len();
    Tensor::from_data(TensorData::new(tokens, [count]), device)
}
