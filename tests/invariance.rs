//! The loss, gradient and metrics of an update do not depend on how its samples are cut, ordered and padded.

#![allow(clippy::unwrap_used)]

use std::{cell::RefCell, collections::BTreeMap};

use burn::{
    module::{Module, ModuleMapper, ModuleVisitor, Param},
    optim::GradientsParams,
    tensor::{Device, Tensor, TensorData, activation::log_softmax},
};
use firebrick_core::{Completion, FinishReason, Seed, config::DistillationLoss};
use firebrick_models::{
    ChunkSizes, Decoder, DecoderConfig, Family, FrozenFormat, LayerKind, Lora, PerLayerSizes,
    PolicyModel, SaveOptions, Sizes, WeightDtype, load_noting, parameters, random, save,
};
use firebrick_train::{
    Sample, TokenValues,
    algorithm::{
        Aggregation, Cispo, ClipRange, ConstantLr, Dapo, Distillation, Divergence, Divisors, Dppo,
        Gae, Gspo, Kl, KlEstimator, LossInput, Objective, PolicyLoss, Sapo, ValueLoss,
    },
    learner::{
        AdamW, AuxModels, Critic, CriticConfig, Layout, LocalTeacher, MicroBatch, MicroBatching,
        OptimConfig, Replicas, SharePrompts, TeacherDistributions, TeacherModel, Teachers,
        UpdateReport, UpdateTarget, Updater, ValueHead, ValueModel, micro_batches,
    },
};
use proptest::{
    collection::vec,
    option,
    prelude::*,
    test_runner::{Config, RngSeed, TestRunner},
};

const VOCAB: u32 = 23;
const WHOLE: MicroBatching = MicroBatching {
    micro_batch_tokens: usize::MAX,
    max_logits: usize::MAX,
    max_saved_logits: usize::MAX,
    layers_without_recompute: usize::MAX,
    offload: false,
    share_prompts: SharePrompts::Never,
};
/// Cuts the fixed samples into more than one micro-batch, and into no whole number of blocks of the vocabulary.
const SMALL: MicroBatching = MicroBatching {
    micro_batch_tokens: 40,
    max_logits: 200,
    max_saved_logits: 0,
    layers_without_recompute: 1,
    offload: false,
    share_prompts: SharePrompts::Auto,
};

/// Tokens of the longest completion.
const LONGEST: usize = 12;

/// Returns the absolute error that an update may have. Losses, metrics and gradients are means of terms around 1
/// that may cancel, and f32 does not keep so many digits of such a mean. Sums over a completion's tokens have
/// terms that are larger by the number of tokens.
fn rounding(aggregation: Aggregation) -> f32 {
    match aggregation {
        Aggregation::SequenceSum => 1e-6 * LONGEST as f32,
        _ => 1e-6,
    }
}

const AGGREGATIONS: [Aggregation; 5] = [
    Aggregation::TokenMean,
    Aggregation::PromptMean,
    Aggregation::SequenceMean,
    Aggregation::SequenceSum,
    Aggregation::Constant,
];

#[test]
fn dapo_does_not_depend_on_the_cut() {
    any_cut_gives_the_same(|| Box::new(dapo()), None);
}

#[test]
fn gspo_does_not_depend_on_the_cut() {
    let clip = ClipRange { low: 0.05, high: 0.08 };
    any_cut_gives_the_same(move || Box::new(Gspo { clip, max_log_ratio: 10.0 }), None);
}

#[test]
fn cispo_does_not_depend_on_the_cut() {
    let clip = ClipRange { low: 1.0, high: 0.28 };
    any_cut_gives_the_same(move || Box::new(Cispo { clip }), None);
}

#[test]
fn dppo_does_not_depend_on_the_cut() {
    for divergence in [Divergence::Tv, Divergence::Kl] {
        let loss = Dppo { divergence, delta_low: 0.02, delta_high: 0.03, ratio_cap: 20.0 };
        any_cut_gives_the_same(move || Box::new(loss), None);
    }
}

#[test]
fn sapo_does_not_depend_on_the_cut() {
    any_cut_gives_the_same(|| Box::new(Sapo { tau_pos: 1.0, tau_neg: 1.05 }), None);
}

#[test]
fn a_critic_does_not_depend_on_the_cut() {
    for kind in KINDS {
        any_cut_gives_the_same(|| Box::new(dapo()), Some(kind));
    }
}

#[test]
fn a_divergence_from_teachers_does_not_depend_on_the_cut() {
    // Without a weight for the task there is no policy loss.
    for (loss, task_weight) in
        [(DistillationLoss::ForwardKl, 1.0), (DistillationLoss::ReverseKl, 0.0)]
    {
        let teacher = TeacherModel::Other(Box::new(LocalTeacher(seeded(5, true).valid())));
        let teachers = Teachers {
            distillation: Distillation { loss, weight: 0.7, task_weight, max_log_ratio: None },
            models: vec![teacher, TeacherModel::Policy],
            own: [("other".to_owned(), 1)].into(),
        };
        any_cut_with_teachers_gives_the_same(|| Box::new(dapo()), None, Some(&teachers));
    }
}

/// Without a weight for the task there are no advantages, and the policy loss is not computed. It would add nothing.
#[test]
fn teachers_alone_need_no_policy_loss() {
    let policy = decoder(false);
    let mut samples = fixed_samples(&policy);
    samples.iter_mut().for_each(|sample| sample.advantages.fill(0.0));
    let updater = updater(Box::new(dapo()), Aggregation::TokenMean, false, SMALL);
    let gradients = |task_weight| {
        let loss = DistillationLoss::ReverseKl;
        let teacher = TeacherModel::Other(Box::new(LocalTeacher(seeded(5, true).valid())));
        let teachers = Teachers {
            distillation: Distillation { loss, weight: 0.7, task_weight, max_log_ratio: None },
            models: vec![teacher],
            own: BTreeMap::new(),
        };
        let teachers = teachers.distributions(policy.valid());
        let teachers = teachers.as_ref().map(|it| it as &dyn TeacherDistributions);
        let aux = AuxModels { critic: None, teachers };
        updater.gradients_with(&policy, aux, UpdateTarget::Policy, &samples).unwrap()
    };

    let [alone, beside] = [gradients(0.0), gradients(1.0)];
    assert!(by_path(&policy, &alone.gradients) == by_path(&policy, &beside.gradients));
    assert_eq!(alone.metrics, beside.metrics);
}

/// The backward pass of an update is cut in three, and its middle is written by hand. The reference leaves all
/// of it to autodiff.
#[test]
fn the_backward_pass_is_that_of_autodiff() {
    for tied in [false, true] {
        let policy = decoder(tied);
        let samples = fixed_samples(&policy);
        for aggregation in AGGREGATIONS {
            let updater = updater(Box::new(dapo()), aggregation, true, SMALL);
            let got = updater.gradients(&policy, &samples).unwrap();
            let (loss, gradients) = by_autodiff(&updater, &policy, &samples);

            assert!(
                micro_batches(&samples, updater.micro_batching.micro_batch_tokens, Layout::Packed)
                    .len()
                    > 1
            );

            assert_close("loss", &[got.loss as f32], &[loss], rounding(aggregation)).unwrap();
            assert_same_arrays(
                &by_path(&policy, &got.gradients),
                &by_path(&policy, &gradients),
                rounding(aggregation),
            )
            .unwrap();
        }
    }
}

/// With the upper half of the entropies, the policy loss of the lower half is 0. It is still divided by all tokens, and
/// the bonus and the penalty see all of them. The threshold is that of the update, and not of a micro-batch.
#[test]
fn the_tokens_of_the_top_entropies_do_not_depend_on_the_cut() {
    let policy = decoder(false);
    let mut samples = fixed_samples(&policy);
    // The policy did not write this token, so it does not count among the entropies.
    samples[1].mask[1] = false;
    let mut updater = updater(Box::new(dapo()), Aggregation::TokenMean, true, WHOLE);

    let all = updater.gradients(&policy, &samples).unwrap();
    let entropies: Vec<Vec<f32>> =
        all.token_stats.read(&samples).unwrap().into_iter().map(|it| it.entropies).collect();
    let counted = |(sample, entropies): (&Sample, &Vec<f32>)| -> Vec<f32> {
        sample.policy_tokens().filter(|_| sample.in_loss).map(|at| entropies[at]).collect()
    };
    let mut sorted: Vec<f32> = samples.iter().zip(&entropies).flat_map(counted).collect();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let least = sorted[sorted.len().div_ceil(2) - 1];

    let mut halved = samples.clone();
    for (sample, entropies) in halved.iter_mut().zip(&entropies) {
        sample.importance =
            entropies.iter().map(|&entropy| if entropy < least { 0.0 } else { 1.0 }).collect();
    }
    let expected = updater.gradients(&policy, &halved).unwrap();
    assert!((expected.loss - all.loss).abs() > 1e-3, "{} {}", expected.loss, all.loss);

    updater.top_entropy_quantile = 0.5;
    for micro_batching in [WHOLE, SMALL] {
        updater.micro_batching = micro_batching;
        let got = updater.gradients(&policy, &samples).unwrap();
        assert_close("loss", &[got.loss as f32], &[expected.loss as f32], 1e-6).unwrap();
        assert_same_arrays(
            &by_path(&policy, &got.gradients),
            &by_path(&policy, &expected.gradients),
            1e-6,
        )
        .unwrap();
    }
}

/// Any model may be drawn, and any way to cut, pack and recompute its update.
#[test]
fn any_model_and_any_cut_give_what_autodiff_gives() {
    let mut shared = 0;
    run(60, &(drawn(), update()), |(drawn, update)| {
        let policy = drawn.policy();
        let samples = update.samples(&policy);
        for aggregation in [Aggregation::TokenMean, Aggregation::PromptMean] {
            let of = |micro_batching| {
                updater(Box::new(dapo()), aggregation, update.extras, micro_batching)
            };

            let rounding = rounding(aggregation);
            let chunk_sizes = ChunkSizes { tokens: 1 << 20, scores: 1 << 20 };
            let plain = policy.clone().with_chunk_sizes(chunk_sizes);
            let (loss, gradients) = by_autodiff(&of(WHOLE), &plain, &samples);
            let whole = of(WHOLE).gradients(&plain, &samples).unwrap();
            let cut = policy.clone().with_chunk_sizes(drawn.chunk_sizes);

            let got = of(update.micro_batching).gradients(&cut, &samples).unwrap();
            shared += usize::from(got.prompt_sharing > 0.0);

            // Padding goes to experts as well. An expert of nothing else has a gradient of 0, or none at all.
            let touched = |gradients: &GradientsParams| {
                let mut gradients = by_path(&policy, gradients);
                gradients.retain(|path, values| {
                    !path.contains(".each.") || values.iter().any(|value| *value != 0.0)
                });
                gradients
            };
            let gradients = touched(&gradients);
            assert_close("loss", &[got.loss as f32], &[loss], rounding)
                .and_then(|()| assert_same_arrays(&touched(&got.gradients), &gradients, rounding))
                .and_then(|()| assert_same_arrays(&metrics(&got), &metrics(&whole), rounding))
                .map_err(TestCaseError::fail)?;
        }
        Ok(())
    });

    assert!(shared > 20, "{shared} updates that share prompts");
}

/// A critic adds its gradient of hidden states between two of the stages.
#[test]
fn the_backward_pass_with_a_critic_is_that_of_autodiff() {
    for kind in KINDS {
        let policy = decoder(false);
        let critic = critic(kind, &policy);
        let samples = appraised(fixed_samples(&policy), &policy, &critic);
        let updater = updater(Box::new(dapo()), Aggregation::TokenMean, true, SMALL);
        let aux = AuxModels { critic: Some(&critic), teachers: None };
        let got = updater.gradients_with(&policy, aux, UpdateTarget::Policy, &samples).unwrap();
        let (of_policy, of_critic) = with_critic_by_autodiff(&updater, &policy, &critic, &samples);

        let rounding = rounding(Aggregation::TokenMean);
        assert_same_arrays(
            &by_path(&policy, &got.gradients),
            &by_path(&policy, &of_policy),
            rounding,
        )
        .unwrap();

        let expected = by_path(&critic.model, &of_critic);
        let trunk = expected.keys().filter(|name| name.starts_with("trunk")).count();
        assert_eq!(trunk > 0, kind == Kind::Separate, "{kind:?}");
        let clipped = got.metrics.get("critic/clip_fraction").unwrap();
        assert!(0.0 < clipped && clipped < 1.0, "{clipped}");

        let got_critic = by_path(&critic.model, &got.critic_gradients.unwrap());
        assert_same_arrays(&got_critic, &expected, rounding).unwrap();

        // While the critic alone learns, its gradient and all numbers stay the same, and the policy has none.
        let alone = updater.gradients_with(&policy, aux, UpdateTarget::Critic, &samples).unwrap();
        assert!(by_path(&critic.model, &alone.critic_gradients.unwrap()) == got_critic);
        assert_eq!(alone.metrics, got.metrics);
        assert!(alone.gradients.is_empty());

        // Without the critic the policy has a different gradient, unless the critic's is kept out of it.
        let alone = updater.gradients(&policy, &samples).unwrap();
        let alone = by_path(&policy, &alone.gradients);
        let same = assert_same_arrays(&alone, &by_path(&policy, &of_policy), rounding).is_ok();
        assert_eq!(same, kind != Kind::Head, "{kind:?}");
    }
}

#[test]
fn a_fully_masked_update_is_nothing() {
    let policy = decoder(false);
    let mut samples = fixed_samples(&policy);
    for sample in &mut samples {
        sample.in_loss = false;
    }

    for aggregation in AGGREGATIONS {
        let report = updater(Box::new(dapo()), aggregation, true, SMALL)
            .gradients(&policy, &samples)
            .unwrap();
        assert_eq!((report.loss, report.tokens), (0.0, 0));
        assert!(report.gradients.is_empty());
        assert!(report.metrics.0.values().all(|value| *value == 0.0));
    }
}

fn any_cut_gives_the_same(policy_loss: impl Fn() -> Box<dyn PolicyLoss>, kind: Option<Kind>) {
    any_cut_with_teachers_gives_the_same(policy_loss, kind, None);
}

fn any_cut_with_teachers_gives_the_same(
    policy_loss: impl Fn() -> Box<dyn PolicyLoss>,
    kind: Option<Kind>,
    teachers: Option<&Teachers>,
) {
    let policies = [decoder(false), decoder(true)];
    let critics = [0, 1].map(|index| kind.map(|kind| critic(kind, &policies[index])));
    for aggregation in AGGREGATIONS {
        run(40, &update(), |update| {
            let policy = &policies[usize::from(update.tied)];
            let critic = critics[usize::from(update.tied)].as_ref();

            let gradients_on = |samples: &[Sample], micro_batching, devices| {
                let mut updater =
                    updater(policy_loss(), aggregation, update.extras, micro_batching);
                updater.replicas = replicas(devices);
                let teachers = teachers.and_then(|it| it.distributions(policy.valid()));
                let teachers = teachers.as_ref().map(|it| it as &dyn TeacherDistributions);
                let aux = AuxModels { critic, teachers };
                updater.gradients_with(policy, aux, UpdateTarget::Policy, samples).unwrap()
            };
            let gradients =
                |samples: &[Sample], micro_batching| gradients_on(samples, micro_batching, 1);

            let mut samples = match critic {
                Some(critic) => appraised(update.samples(policy), policy, critic),
                None => update.samples(policy),
            };
            // A teacher is chosen by the data set. The policy learns nothing from itself without a hint.
            for sample in samples.iter_mut().skip(1).step_by(2) {
                sample.data_source = "other".into();
                sample.teacher_prompt = [&sample.prompt[..], &[1, 2, 3]].concat();
            }
            // Neither the order nor the cut may matter.
            let shuffled: Vec<Sample> =
                update.order.iter().map(|&index| samples[index].clone()).collect();

            let whole = gradients(&samples, WHOLE);
            let row_by_row = MicroBatching { micro_batch_tokens: 1, ..WHOLE };
            let logit_by_logit = MicroBatching { max_logits: 1, max_saved_logits: 0, ..WHOLE };
            for micro_batching in [row_by_row, logit_by_logit, update.micro_batching] {
                assert_same(
                    policy,
                    critic,
                    &gradients(&shuffled, micro_batching),
                    &whole,
                    rounding(aggregation),
                )
                .map_err(|why| {
                    TestCaseError::fail(format!("{aggregation:?}, {micro_batching:?}: {why}"))
                })?;
            }

            // Half of the cases are enough. A device may have nothing to do.
            if update.extras {
                let devices = 2 + samples.len() % 3;
                let spread = gradients_on(&samples, update.micro_batching, devices);
                assert_same(policy, critic, &spread, &whole, rounding(aggregation))
                    .map_err(|why| TestCaseError::fail(format!("on {devices} devices: {why}")))?;

                let seen = |report: UpdateReport| report.token_stats.read(&samples).unwrap();
                for (here, there) in seen(whole).iter().zip(seen(spread)) {
                    assert_close("ratios", &there.ratios, &here.ratios, 1e-5)
                        .map_err(TestCaseError::fail)?;
                }
            }

            Ok(())
        });
    }
}

/// Runs a test on `cases` cases, or as many as PROPTEST_CASES says. The seed is fixed, so that a test that passes
/// here passes everywhere.
fn run<S: Strategy>(
    cases: u32,
    strategy: &S,
    mut test: impl FnMut(S::Value) -> Result<(), TestCaseError>,
) {
    let default = Config::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { cases };
    let seed = default.rng_seed;
    let rng_seed = if seed == RngSeed::Random { RngSeed::Fixed(17) } else { seed };
    let config = Config { cases, rng_seed, failure_persistence: None, ..default };

    let test = RefCell::new(&mut test);
    if let Err(error) = TestRunner::new(config).run(strategy, |value| test.borrow_mut()(value)) {
        panic!("{error}");
    }
}

/// A model that proptest draws.
#[derive(Clone, Debug)]
struct Drawn {
    config: DecoderConfig,
    lora: Option<Lora>,
    /// Format of the frozen base weights under adapters.
    base: FrozenFormat,
    chunk_sizes: ChunkSizes,
    seed: u64,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let family = prop::sample::select(&Family::ALL[..]);
    let sizes = (1..4usize, 1..3usize, 1..3usize, 1..3usize, 1..4usize, 1..4usize, any::<bool>());

    let config = (family, sizes, vec(option::of(1..16usize), 3)).prop_map(
        |(family, (layers, group, kv_heads, head, hidden, inner, tied), windows)| {
            let mut config = DecoderConfig::new(
                family,
                Sizes {
                    vocab_size: VOCAB as usize,
                    hidden_size: 8 * hidden,
                    layers,
                    heads: group * kv_heads,
                    kv_heads,
                    head_dim: 4 * head,
                    intermediate_size: 8 * inner,
                    max_position_embeddings: 64,
                    rope_theta: 10_000.0,
                    tied: tied || family == Family::Gemma,
                },
            );

            // The class of OLMoE has heads that share the width of the residual stream.
            if family == Family::Olmoe {
                config.hidden_size = config.heads * config.head_dim;
            }
            // Only Mistral uses the drawn windows: the first one, in all layers.
            if family == Family::Mistral {
                config.kinds.fill(LayerKind { window: windows[0], ..LayerKind::default() });
            }
            if family == Family::Gemma4 && tied {
                config.per_layer = Some(PerLayerSizes { vocab_size: VOCAB as usize, width: 3 });
                config.double_wide_mlp = true;
                // The last layer sees everything, and takes the keys and values of the first.
                config.kinds[0] = config.kinds[layers - 1];
                config.share_kv(usize::from(layers > 1));
            }
            // What a recurrence reads may be all but 0. Its norm then divides by next to nothing, and f32 keeps few digits
            // of the gradient, whoever computes it. A larger epsilon bounds the quotient.
            if config.is_recurrent() {
                config.norm_epsilon = 1e-2;
            }
            config
        },
    );

    let targets = prop::sample::subsequence(Lora::PROJECTIONS.map(str::to_owned).to_vec(), 1..8);
    // An alpha of twice the rank is a scale of 2 for every rank.
    let lora = (1..4usize, targets).prop_map(|(rank, targets)| Lora {
        rank,
        alpha: 2.0 * rank as f64,
        targets,
        rslora: false,
        ..Lora::default()
    });

    let base = prop::sample::select(
        &[FrozenFormat::F32, FrozenFormat::Bf16, FrozenFormat::Int8, FrozenFormat::Int4][..],
    );
    let chunk_sizes =
        (1..40usize, 1..900usize).prop_map(|(tokens, scores)| ChunkSizes { tokens, scores });

    (config, option::of(lora), base, chunk_sizes, any::<u64>()).prop_map(
        |(config, lora, base, chunk_sizes, seed)| Drawn { config, lora, base, chunk_sizes, seed },
    )
}

impl Drawn {
    fn policy(&self) -> Decoder {
        let seed = Seed::run(self.seed);
        let device = Device::flex().autodiff();
        let policy = random(&self.config, seed, &device).unwrap();
        let Some(lora) = &self.lora else { return policy };

        // Weights are packed when they are read from a folder.
        let folder = tempfile::tempdir().unwrap();
        let options = SaveOptions { dtype: WeightDtype::F32, ..SaveOptions::default() };
        save(&policy, &self.config.to_json(None, 0), folder.path(), &options).unwrap();
        let loaded = load_noting(folder.path(), self.base, &device).unwrap();
        let policy = loaded.decoder.with_lora(lora.clone(), seed);

        // The adapters are moved as by some steps, because at first one side of each is 0 and it adds nothing.
        policy.map(&mut Nudge(Seed::run(self.seed).derive("nudge", &[])))
    }
}

/// Adds a little to every parameter that is trained.
struct Nudge(Seed);

impl ModuleMapper for Nudge {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if !param.is_require_grad() {
            return param;
        }

        self.0 = self.0.derive("next", &[]);
        let mut stream = self.0.stream();
        param.map(|values| {
            let shape = values.shape();
            let device = values.device();
            let more: Vec<f32> = (0..shape.num_elements() as u64)
                .map(|at| 0.4 * stream.uniform_at(at) as f32 - 0.2)
                .collect();
            let more = Tensor::from_data(TensorData::new(more, shape), &device.inner());
            Tensor::from_inner(values.inner() + more).require_grad()
        })
    }
}

/// An update that proptest draws, and a way to cut it.
#[derive(Clone, Debug)]
struct Update {
    drafts: Vec<Draft>,
    order: Vec<usize>,
    micro_batching: MicroBatching,
    tied: bool,
    extras: bool,
}

/// A sample whose old log-probabilities the policy has yet to compute.
#[derive(Clone, Debug)]
struct Draft {
    prompt: Vec<u32>,
    /// Each token, with the distances of its old and its reference log-probability from the policy's.
    completion: Vec<(u32, f32, f32)>,
    advantage: f32,
    in_loss: bool,
    group: u64,
}

fn update() -> impl Strategy<Value = Update> {
    let token = (0..VOCAB, -0.6..0.6f32, -0.6..0.6f32);
    let draft = (vec(token, 1..=LONGEST), -2.0..2.0f32, 0..5u8, 0..3u64);

    let drafts = (vec(vec(0..VOCAB, 1..9), 3), vec(draft, 2..9)).prop_map(|(prompts, drafts)| {
        let of = |(completion, advantage, in_loss, group)| Draft {
            prompt: prompts[group as usize].clone(),
            completion,
            advantage,
            in_loss: in_loss > 0,
            group,
        };
        drafts.into_iter().map(of).collect::<Vec<Draft>>()
    });

    let sizes = (1..80usize, 1..900usize, 0..2000usize, 0..4usize);
    let sharing =
        prop::sample::select(vec![SharePrompts::Auto, SharePrompts::Always, SharePrompts::Never]);
    let micro_batching = (sizes, any::<bool>(), sharing).prop_map(
        |(
            (micro_batch_tokens, max_logits, max_saved_logits, layers_without_recompute),
            offload,
            share_prompts,
        )| {
            MicroBatching {
                micro_batch_tokens,
                max_logits,
                max_saved_logits,
                layers_without_recompute,
                offload,
                share_prompts,
            }
        },
    );

    // The order is drawn last, because it needs the number of samples.
    let update = (drafts, micro_batching, any::<bool>(), any::<bool>());
    update.prop_flat_map(|(drafts, micro_batching, tied, extras)| {
        let order: Vec<usize> = (0..drafts.len()).collect();
        Just(order).prop_shuffle().prop_map(move |order| Update {
            drafts: drafts.clone(),
            order,
            micro_batching,
            tied,
            extras,
        })
    })
}

impl Update {
    fn samples(&self, policy: &Decoder) -> Vec<Sample> {
        finish(&self.drafts, policy, self.extras)
    }
}

fn finish(drafts: &[Draft], policy: &Decoder, with_reference: bool) -> Vec<Sample> {
    let mut samples: Vec<Sample> = drafts
        .iter()
        .map(|draft| {
            let tokens: Vec<u32> = draft.completion.iter().map(|token| token.0).collect();
            let logprobs = vec![0.0; tokens.len()];
            let completion = Completion::written(tokens, logprobs, FinishReason::Stop);
            // The sample is in the loss at first, because only samples that count get log-probabilities.
            Sample::new(&draft.prompt, &completion, draft.group).with_advantage(draft.advantage)
        })
        .collect();

    let updater = updater(Box::new(dapo()), Aggregation::TokenMean, false, WHOLE);
    let logprobs = updater.logprobs(policy, &samples).unwrap();

    for ((sample, draft), now) in samples.iter_mut().zip(drafts).zip(logprobs) {
        sample.in_loss = draft.in_loss;
        let tokens = || now.iter().zip(&draft.completion);
        sample.old_logprobs = tokens().map(|(now, token)| now + token.1).collect();
        if with_reference {
            sample.ref_logprobs = tokens().map(|(now, token)| now + token.2).collect();
        }
    }

    samples
}

/// Makes seven samples of three groups. One of them is not in the loss.
fn fixed_samples(policy: &Decoder) -> Vec<Sample> {
    let stream = Seed::run(5).stream();
    let drafts: Vec<Draft> = (0..7u64)
        .map(|index| {
            let mut stream = stream.clone();
            let mut uniform = |position: u64| stream.uniform_at(1000 * index + position);

            let prompt =
                (0..2 + index % 4).map(|at| (uniform(at) * f64::from(VOCAB)) as u32).collect();
            let completion = (0..1 + 3 * index % 10)
                .map(|at| {
                    let token = (uniform(100 + at) * f64::from(VOCAB)) as u32;
                    let old = uniform(200 + at) - 0.5;
                    let reference = uniform(300 + at) - 0.5;
                    (token, old as f32, reference as f32)
                })
                .collect();

            let advantage = (4.0 * uniform(400) - 2.0) as f32;
            Draft { prompt, completion, advantage, in_loss: index != 3, group: index % 3 }
        })
        .collect();

    finish(&drafts, policy, true)
}

fn decoder(tied: bool) -> Decoder {
    seeded(3, tied)
}

fn seeded(seed: u64, tied: bool) -> Decoder {
    let config = DecoderConfig::new(
        Family::Qwen2,
        Sizes {
            vocab_size: VOCAB as usize,
            hidden_size: 16,
            layers: 2,
            heads: 4,
            kv_heads: 2,
            head_dim: 4,
            intermediate_size: 24,
            max_position_embeddings: 64,
            rope_theta: 10_000.0,
            tied,
        },
    );

    random(&config, Seed::run(seed), &Device::flex().autodiff()).unwrap()
}

fn dapo() -> Dapo {
    Dapo { clip: ClipRange { low: 0.2, high: 0.28 }, dual_clip: Some(1.5) }
}

/// Makes an updater. `extras` are an entropy bonus and a KL penalty.
fn updater(
    policy: Box<dyn PolicyLoss>,
    aggregation: Aggregation,
    extras: bool,
    micro_batching: MicroBatching,
) -> Updater {
    let mut objective = Objective::new(policy);
    if extras {
        objective.entropy_coef = 0.02;
        objective.kl = Some(Kl { estimator: KlEstimator::K3, gradient_of_k2: false, coef: 0.1 });
    }

    let mut updater = Updater::new(objective);
    updater.aggregation = aggregation;
    updater.constant_length = LONGEST;
    updater.temperature = 0.9;
    updater.micro_batching = micro_batching;
    updater
}

/// Makes replicas on this many devices. All of them are the CPU, with a thread each.
fn replicas(devices: usize) -> Replicas {
    Replicas::new(vec![Device::flex(); devices - 1])
}

/// Model that the values are read from, and how far their gradient reaches.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Head,
    Detached,
    Separate,
}

const KINDS: [Kind; 3] = [Kind::Head, Kind::Detached, Kind::Separate];

const CLIP: f64 = 0.2;
const COEF: f64 = 0.7;

/// Makes a critic whose values differ.
fn critic(kind: Kind, policy: &Decoder) -> Critic<Decoder> {
    let stream = Seed::run(11).stream();
    let device = policy.device();
    let weight = (0..16).map(|at| (2.0 * stream.clone().uniform_at(at) - 1.0) as f32).collect();

    let head = ValueHead {
        weight: Param::from_data(TensorData::new::<f32, _>(weight, [16, 1]), &device),
        bias: Param::from_data(TensorData::from([0.3f32]), &device),
    };

    let trunk = match kind {
        Kind::Separate => ValueModel::beside(decoder(false).trunk()).trunk,
        Kind::Head | Kind::Detached => None,
    };

    Critic {
        model: ValueModel { trunk, head },
        optimizer: Box::new(AdamW::new(OptimConfig::default())),
        schedule: Box::new(ConstantLr { lr: 1e-3 }),
        config: CriticConfig {
            gae: Gae { gamma: 1.0, lambda: 1.0, normalise: true },
            loss: ValueLoss { clip: Some(CLIP) },
            coef: COEF,
            warmup_steps: 0,
            detach: kind == Kind::Detached,
        },
    }
}

/// Fills the samples with old values within and beyond the clip, and with returns and advantages of all signs.
fn appraised(mut samples: Vec<Sample>, policy: &Decoder, critic: &Critic<Decoder>) -> Vec<Sample> {
    let updater = updater(Box::new(dapo()), Aggregation::TokenMean, false, WHOLE);
    let values = updater.values(policy, &critic.model, &samples).unwrap();
    for (index, (sample, values)) in samples.iter_mut().zip(values).enumerate() {
        // A sample that does not count has no values. It needs some only to stand in a batch of all samples.
        let values = if values.is_empty() { vec![0.0; sample.completion.len()] } else { values };
        let stream = Seed::run(index as u64).stream();

        let around = |values: &[f32], offset: u64, width: f64| -> Vec<f32> {
            let at = |at: u64| width * (stream.clone().uniform_at(offset + at) - 0.5);
            values.iter().zip(0..).map(|(value, index)| value + at(index) as f32).collect()
        };

        let nothing = vec![0.0; values.len()];
        sample.advantages = around(&nothing, 0, 4.0);
        sample.token_values = Some(TokenValues {
            returns: around(&nothing, 100, 4.0),
            values: around(&values, 200, 4.0 * CLIP),
        });
    }

    samples
}

/// Computes the gradients of policy and critic from one loss.
fn with_critic_by_autodiff(
    updater: &Updater,
    policy: &Decoder,
    critic: &Critic<Decoder>,
    samples: &[Sample],
) -> (GradientsParams, GradientsParams) {
    let (policy_loss, batch) = loss_by_autodiff(updater, policy, samples);

    let trunk = critic.model.trunk.as_ref().unwrap_or(policy);
    let hidden = trunk.hidden(&batch.tokens);
    let [rows, length, width] = hidden.dims();
    let hidden = hidden.reshape([rows * length, width]).select(0, batch.predictors.clone());
    let hidden = if critic.config.detach { hidden.detach() } else { hidden };

    let row = critic.model.head.weight.val().reshape([1, width]);
    let values = (hidden * row).sum_dim(1).squeeze_dim::<1>(1) + critic.model.head.bias.val();
    let values = batch.by_row(values);

    // PPO's value loss: half of the larger squared error, of the value and of the value within the clip.
    let targets = batch.targets.unwrap();
    let bounded = values.clone().max_pair(targets.old_values.clone() - CLIP);
    let bounded = bounded.min_pair(targets.old_values + CLIP);
    let squared = |values: Tensor<2>| (values - targets.returns.clone()).square();
    let value_loss = squared(values).max_pair(squared(bounded)) * batch.loss_weights * 0.5;

    let mut gradients = (policy_loss + value_loss.sum() * COEF).backward();
    let of_policy = GradientsParams::from_module(&mut gradients, policy);
    (of_policy, GradientsParams::from_module(&mut gradients, &critic.model))
}

/// Computes loss and gradient of the samples as one batch, from whole logits, without any hand-written step.
fn by_autodiff(updater: &Updater, policy: &Decoder, samples: &[Sample]) -> (f32, GradientsParams) {
    let (loss, _) = loss_by_autodiff(updater, policy, samples);
    let value = loss.clone().into_scalar::<f32>();
    (value, GradientsParams::from_grads(loss.backward(), policy))
}

fn loss_by_autodiff(
    updater: &Updater,
    policy: &Decoder,
    samples: &[Sample],
) -> (Tensor<1>, MicroBatch) {
    let mut divisors =
        Divisors::count(samples.iter().map(|sample| (sample.group, sample.loss_tokens())));
    // A constant divisor counts completions that are out of the loss as well.
    divisors.constant = samples.len() as f64 * updater.constant_length as f64;

    let samples: Vec<&Sample> = samples.iter().collect();
    let batch =
        MicroBatch::new(&samples, Layout::Padded, updater.aggregation, &divisors, &policy.device());

    let logits = policy.logits(&batch.tokens);
    let [rows, length, vocab] = logits.dims();
    let logits = logits.reshape([rows * length, vocab]).select(0, batch.predictors.clone());
    let log_p = log_softmax(logits.div_scalar(updater.temperature), 1);
    let chosen = log_p.clone().gather(1, batch.labels.clone().unsqueeze_dim(1)).squeeze_dim(1);
    let chosen = batch.by_row(chosen);

    let MicroBatch { old_logprobs, advantages, mask, .. } = batch.clone();
    let mut input = LossInput::new(chosen, old_logprobs, advantages, mask);

    let entropy = (log_p.clone().exp() * log_p).sum_dim(1).neg().squeeze_dim(1);
    input.entropy = batch.by_row(entropy);
    input.ref_logprobs = batch.ref_logprobs.clone();
    input.tis_weights = batch.tis_weights.clone();
    (input.loss_weights, input.metric_weights) =
        (batch.loss_weights.clone(), batch.metric_weights.clone());

    (updater.objective.evaluate(&input).loss, batch)
}

fn assert_same(
    policy: &Decoder,
    critic: Option<&Critic<Decoder>>,
    got: &UpdateReport,
    want: &UpdateReport,
    atol: f32,
) -> Result<(), String> {
    if got.tokens != want.tokens {
        return Err(format!("{} tokens, expected {}", got.tokens, want.tokens));
    }

    assert_close("loss", &[got.loss as f32], &[want.loss as f32], atol)?;
    assert_same_arrays(&metrics(got), &metrics(want), atol)?;
    let gradients = |report: &UpdateReport| by_path(policy, &report.gradients);
    assert_same_arrays(&gradients(got), &gradients(want), atol)?;

    let of_critic = |report: &UpdateReport| match (critic, &report.critic_gradients) {
        (Some(critic), Some(gradients)) => by_path(&critic.model, gradients),
        _ => BTreeMap::new(),
    };
    assert_same_arrays(&of_critic(got), &of_critic(want), atol)
}

fn metrics(report: &UpdateReport) -> BTreeMap<String, Vec<f32>> {
    report.metrics.0.iter().map(|(name, &value)| (name.clone(), vec![value as f32])).collect()
}

fn assert_same_arrays(
    got: &BTreeMap<String, Vec<f32>>,
    want: &BTreeMap<String, Vec<f32>>,
    atol: f32,
) -> Result<(), String> {
    let names = |arrays: &BTreeMap<String, Vec<f32>>| arrays.keys().cloned().collect::<Vec<_>>();
    if names(got) != names(want) {
        return Err(format!("{:?}, expected {:?}", names(got), names(want)));
    }
    got.iter().try_for_each(|(name, got)| assert_close(name, got, &want[name], atol))
}

/// Checks that every entry is off by at most 1e-5 of the array's largest, plus `atol`.
fn assert_close(name: &str, got: &[f32], want: &[f32], atol: f32) -> Result<(), String> {
    let largest = want.iter().fold(0.0f32, |largest, want| largest.max(want.abs()));
    let allowed = atol + 1e-5 * largest;

    for (index, (got, want)) in got.iter().zip(want).enumerate() {
        // A NaN is not close.
        let close = (got - want).abs() <= allowed;
        if !close {
            return Err(format!("{name}[{index}] is {got:e}, expected {want:e} ± {allowed:.1e}"));
        }
    }
    if got.len() == want.len() { Ok(()) } else { Err(format!("{name} has {} entries", got.len())) }
}

fn by_path<M: Module>(module: &M, gradients: &GradientsParams) -> BTreeMap<String, Vec<f32>> {
    struct Collect<'a> {
        gradients: &'a GradientsParams,
        found: Vec<Option<Vec<f32>>>,
    }
    impl ModuleVisitor for Collect<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let gradient = self.gradients.get::<D>(param.id);
            self.found.push(gradient.map(|gradient| gradient.try_into_vec_as::<f32>().unwrap()));
        }
    }

    let mut collect = Collect { gradients, found: Vec::new() };
    module.visit(&mut collect);
    let paths = parameters(module).into_iter().map(|parameter| parameter.path);
    paths.zip(collect.found).filter_map(|(path, gradient)| Some((path, gradient?))).collect()
}

/// A layer that runs once more rounds in the same way.
#[test]
fn recomputing_gives_the_same_bits() {
    for tied in [false, true] {
        let policy = decoder(tied);
        let samples = fixed_samples(&policy);
        let update = |layers_without_recompute| {
            let micro_batching = MicroBatching { layers_without_recompute, ..SMALL };
            let updater = updater(Box::new(dapo()), Aggregation::TokenMean, true, micro_batching);
            updater.gradients(&policy, &samples).unwrap()
        };

        let none = update(0);
        let all = update(2);
        assert_eq!((none.loss, none.metrics), (all.loss, all.metrics));
        let none = by_path(&policy, &none.gradients);
        let all = by_path(&policy, &all.gradients);
        let differ = |name: &&String| none[*name] != all[*name];
        assert_eq!(all.keys().filter(differ).collect::<Vec<_>>(), Vec::<&String>::new());
    }
}
