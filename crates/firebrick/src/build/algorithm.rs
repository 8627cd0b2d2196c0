//! Builds the parts of the algorithm from the recipe's tables.

use std::collections::BTreeMap;

use burn::module::Module;
use firebrick_core::{AdvantageEstimator, GroupFilter, RewardScale, Verifier};
use firebrick_data::Tokenizer;
use firebrick_device::Kind;
use firebrick_rollout::Sampling;
use firebrick_train::{
    AdamW, AdaptiveUpdates, BatchNorm, Cispo, ClipRange, ConstantLr, CosineDecay, Curriculum,
    CurriculumRule, Dapo, Dynamic, Gdpo, GroupNorm, Gspo, KeepAll, Kl, KlEstimator, LeaveOneOut,
    LinearDecay, LrSchedule, LrWarmup, MeanOnly, MicroBatching, Moments, Muon, MuonConfig,
    Objective, OldLogprobs, OptimConfig, Optimizer, PolicyLoss, PosteriorRule, ReinforceBaseline,
    SamplerConfig, Spread, Task, TrainConfig, Updater, VarianceRule,
};

use super::reward;
use crate::{plan, recipe, recipe::Recipe};

pub(super) fn train_sampling(recipe: &Recipe, tokenizer: &Tokenizer) -> Sampling {
    Sampling {
        temperature: recipe.rollout.temperature,
        top_k: recipe.rollout.top_k,
        top_p: recipe.rollout.top_p,
        max_completion_tokens: recipe.rollout.max_completion_tokens,
        stop: tokenizer.stop_tokens().to_vec(),
    }
}

pub(super) fn eval_sampling(recipe: &Recipe, tokenizer: &Tokenizer) -> Sampling {
    let temperature = recipe.eval.temperature;
    let top_p = recipe.eval.top_p;
    Sampling { temperature, top_k: 0, top_p, ..train_sampling(recipe, tokenizer) }
}

pub(super) fn task(recipe: &Recipe, verifier: Box<dyn Verifier>) -> Task {
    let recipe::Reward { right, wrong, .. } = recipe.reward;
    let scale = RewardScale { right: right as f32, wrong: wrong as f32 };

    let filter: Box<dyn GroupFilter> = match recipe.sampling.dynamic {
        recipe::Dynamic::Off => Box::new(KeepAll),
        _ => Box::new(spread(recipe)),
    };
    let spare_cores = if recipe.device.kind == Kind::Cpu { 0 } else { 2 };

    Task {
        verifier,
        scale,
        shapers: reward::shapers(recipe),
        filter,
        advantage: advantage(recipe),
        spare_cores,
    }
}

/// Returns the estimator of the advantages. `None` if a critic computes them.
fn advantage(recipe: &Recipe) -> Option<Box<dyn AdvantageEstimator>> {
    Some(match recipe.advantage {
        recipe::Advantage::GroupNorm { epsilon } => Box::new(GroupNorm { epsilon, unbiased: true }),
        recipe::Advantage::MeanOnly => Box::new(MeanOnly),
        recipe::Advantage::LeaveOneOut => Box::new(LeaveOneOut),
        recipe::Advantage::BatchNorm { epsilon } => Box::new(BatchNorm { epsilon }),
        recipe::Advantage::ReinforceBaseline => Box::new(ReinforceBaseline),
        recipe::Advantage::Gdpo { epsilon } => {
            Box::new(Gdpo { weights: part_weights(recipe), epsilon })
        }
        recipe::Advantage::Gae { .. } => return None,
    })
}

/// Returns the weights of a weighted reward's parts, as shares of 1. So all of them together weigh as much as the
/// single credit of another verifier, and as much as the part of the penalties, `shaping`.
fn part_weights(recipe: &Recipe) -> BTreeMap<String, f32> {
    let recipe::RewardKind::Weighted { parts } = recipe.reward_kind() else {
        return BTreeMap::new();
    };
    let sum: f64 = parts.iter().map(|part| part.weight).sum();
    parts.into_iter().map(|part| (part.name, (part.weight / sum) as f32)).collect()
}

fn spread(recipe: &Recipe) -> Spread {
    Spread::new(recipe.sampling.tolerance as f32)
}

fn curriculum(recipe: &Recipe) -> Option<Curriculum> {
    let rule = match *recipe.sampling.curriculum.as_ref()? {
        recipe::Curriculum::Variance {
            min_variance,
            skip_fraction_trigger,
            refill_fraction,
            expire,
        } => CurriculumRule::Variance(VarianceRule {
            min_variance,
            skip_fraction_trigger,
            refill_fraction,
            expire,
        }),
        recipe::Curriculum::Posterior { min_spread_probability, half_life, explore } => {
            CurriculumRule::Posterior(PosteriorRule { min_spread_probability, half_life, explore })
        }
    };

    Some(Curriculum { rule, spread: spread(recipe) })
}

pub(super) fn updater(recipe: &Recipe, micro_batching: plan::MicroBatchPlan) -> Updater {
    let loss = &recipe.loss;
    let (low, high) = loss.kind.clip_ratios();
    let clip = ClipRange { low, high };

    let policy: Box<dyn PolicyLoss> = match loss.kind {
        recipe::LossKind::Dapo { dual_clip, .. } => Box::new(Dapo { clip, dual_clip }),
        recipe::LossKind::Gspo { .. } => Box::new(Gspo { clip, max_log_ratio: 10.0 }),
        recipe::LossKind::Cispo { .. } => Box::new(Cispo { clip }),
    };

    let kl = loss.kl.as_ref().map(|kl| Kl {
        estimator: match kl.kind {
            recipe::KlKind::K1 => KlEstimator::K1,
            recipe::KlKind::K2 => KlEstimator::K2,
            recipe::KlKind::K3 => KlEstimator::K3,
        },
        // The gradient of k1 is the gradient of log π alone, which does not depend on the reference.
        gradient_of_k2: kl.kind == recipe::KlKind::K1,
        coef: kl.coef,
    });

    Updater {
        replicas: Default::default(),
        loss_scale: 1.0,
        router_aux_loss_coef: loss.router_aux_loss_coef,
        interrupted: Default::default(),
        objective: Objective { policy, entropy_coef: loss.entropy_coef, kl },
        aggregation: match loss.aggregation {
            recipe::Aggregation::TokenMean => firebrick_train::Aggregation::TokenMean,
            recipe::Aggregation::PromptMean => firebrick_train::Aggregation::PromptMean,
            recipe::Aggregation::SequenceMean => firebrick_train::Aggregation::SequenceMean,
            recipe::Aggregation::SequenceSum => firebrick_train::Aggregation::SequenceSum,
            recipe::Aggregation::Constant => firebrick_train::Aggregation::Constant,
        },
        constant_length: loss.constant_length.unwrap_or(recipe.rollout.max_completion_tokens),
        temperature: recipe.rollout.temperature,
        micro_batching: MicroBatching {
            micro_batch_tokens: recipe.train.micro_batch_tokens,
            max_logits: micro_batching.chunks.logits,
            max_saved_logits: micro_batching.chunks.waiting_logits,
            layers_without_recompute: micro_batching.whole_layers,
            offload: recipe.train.offload && recipe.device.kind != Kind::Cpu,
            share_prompts: match recipe.train.share_prompts {
                recipe::SharePrompts::Auto => None,
                recipe::SharePrompts::Always => Some(true),
                recipe::SharePrompts::Never => Some(false),
            },
        },
    }
}

/// Builds the optimizer of a policy or a critic.
pub(super) fn optimizer<M: Module>(optim: &recipe::Optim) -> Box<dyn Optimizer<M>> {
    let adamw = |beta1, beta2, epsilon| OptimConfig {
        beta1,
        beta2,
        epsilon,
        weight_decay: optim.weight_decay,
        decay_vectors: false,
        max_grad_norm: optim.max_grad_norm,
        moments: match optim.moments {
            recipe::MomentType::Float32 => Moments::F32,
            recipe::MomentType::Int8 => Moments::Int8,
        },
    };

    match optim.kind {
        recipe::OptimKind::AdamW { beta1, beta2, epsilon } => {
            Box::new(AdamW::new(adamw(beta1, beta2, epsilon)))
        }
        recipe::OptimKind::Muon { momentum, beta1, beta2, epsilon } => {
            Box::new(Muon::new(MuonConfig { momentum, adamw: adamw(beta1, beta2, epsilon) }))
        }
    }
}

/// Builds the learning rate over `steps` of a policy or a critic. It is `lr` after its warm-up.
pub(super) fn schedule(optim: &recipe::Optim, lr: f64, steps: u64) -> Box<dyn LrSchedule> {
    let warmup = optim.warmup_steps;
    // The decay begins when the warm-up is over.
    let steps = steps.saturating_sub(warmup);
    let then: Box<dyn LrSchedule> = match optim.schedule {
        recipe::Schedule::Constant => Box::new(ConstantLr { lr }),
        recipe::Schedule::Linear { end_ratio } => {
            Box::new(LinearDecay { from: lr, to: end_ratio * lr, steps })
        }
        recipe::Schedule::Cosine { end_ratio } => {
            Box::new(CosineDecay { from: lr, to: end_ratio * lr, steps })
        }
    };

    Box::new(LrWarmup { steps: warmup, from_zero: optim.warmup_from_zero, then })
}

pub(super) fn sampler_config(recipe: &Recipe, sampling: Sampling) -> SamplerConfig {
    SamplerConfig {
        group_size: recipe.rollout.group_size,
        prompts_per_step: recipe.sampling.prompts_per_step,
        dynamic: match recipe.sampling.dynamic {
            recipe::Dynamic::Filter => Dynamic::Filter,
            recipe::Dynamic::Replace { min_ratio } => Dynamic::Replace { min_ratio },
            recipe::Dynamic::Drop => Dynamic::Drop,
            recipe::Dynamic::Off => Dynamic::Off,
        },
        curriculum: curriculum(recipe),
        max_rounds: recipe.sampling.max_rounds,
        on_cap: match recipe.sampling.on_cap {
            recipe::OnCap::TrainSmaller => firebrick_train::OnCap::TrainSmaller,
            recipe::OnCap::Stop => firebrick_train::OnCap::Stop,
            recipe::OnCap::Error => firebrick_train::OnCap::Error,
        },
        carry_over: recipe.sampling.carry_over,
        max_carry_over_age: recipe.sampling.max_carry_over_age,
        sampling,
        max_errors: recipe.reward.max_errors,
    }
}

pub(super) fn train_config(recipe: &Recipe) -> TrainConfig {
    TrainConfig {
        max_staleness: recipe.rollout.max_staleness,
        last_step: recipe.train.steps,
        mini_batch: recipe.train.mini_batch,
        adaptive: recipe.train.adaptive.as_ref().map(adaptive),
        tis_cap: recipe.loss.tis_cap,
        tis_mask: recipe.loss.tis_mask,
        old_logprobs: match recipe.train.old_logprobs {
            recipe::OldLogprobs::Auto => OldLogprobs::Auto,
            recipe::OldLogprobs::Sampled => OldLogprobs::Sampled,
            recipe::OldLogprobs::Recomputed => OldLogprobs::Recomputed,
        },
        token_stats_every: recipe.record.tokens_every,
    }
}

fn adaptive(adaptive: &recipe::Adaptive) -> AdaptiveUpdates {
    let recipe::Adaptive { weight_advantage, weight_change, weight_entropy, .. } = *adaptive;
    let recipe::Adaptive { n_base, n_min, n_max, kl_stop, .. } = *adaptive;

    // A recipe writes 0 for no limit.
    let max_entropy_term = match adaptive.max_entropy_term {
        0.0 => f64::INFINITY,
        most => most,
    };

    AdaptiveUpdates {
        weight_advantage,
        weight_change,
        weight_entropy,
        max_entropy_term,
        n_base,
        n_min,
        n_max,
        kl_stop,
    }
}
