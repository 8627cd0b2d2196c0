//! Builds the parts of the algorithm from the recipe's tables.

use std::collections::BTreeMap;

use burn::module::Module;
use firebrick_core::{AdvantageEstimator, GroupFilter, RewardScale, Verifier};
use firebrick_data::Tokenizer;
use firebrick_device::Kind;
use firebrick_rollout::Sampling;
use firebrick_train::{
    SamplerConfig, TrainConfig,
    algorithm::{
        BatchNorm, Cispo, ClipRange, ConstantLr, CosineDecay, Dapo, Divergence, Dppo, Gdpo,
        GroupNorm, Gspo, Kl, KlEstimator, LeaveOneOut, LinearDecay, LrSchedule, LrWarmup, MeanOnly,
        Objective, PolicyLoss, ReinforceBaseline, Sapo,
    },
    learner::{AdamW, MicroBatching, Muon, MuonConfig, OptimConfig, Optimizer, Updater},
    sampler::{Curriculum, Dynamic, KeepAll, Spread, Task},
};

use super::reward;
use crate::{
    plan, recipe,
    recipe::{LossKind, Recipe},
};

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
        Dynamic::Off => Box::new(KeepAll),
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
    let rule = recipe.sampling.curriculum?;
    Some(Curriculum { rule, spread: spread(recipe) })
}

pub(super) fn updater(recipe: &Recipe, micro_batching: plan::MicroBatchPlan) -> Updater {
    let loss = &recipe.loss;
    let clip = |low, high| ClipRange { low, high };

    let policy: Box<dyn PolicyLoss> = match loss.kind {
        LossKind::Dapo { clip_ratio_low, clip_ratio_high, dual_clip } => {
            Box::new(Dapo { clip: clip(clip_ratio_low, clip_ratio_high), dual_clip })
        }
        LossKind::Gspo { clip_ratio_low, clip_ratio_high } => {
            Box::new(Gspo { clip: clip(clip_ratio_low, clip_ratio_high), max_log_ratio: 10.0 })
        }
        LossKind::Cispo { clip_ratio_low, clip_ratio_high } => {
            Box::new(Cispo { clip: clip(clip_ratio_low, clip_ratio_high) })
        }
        LossKind::DppoTv { delta_low, delta_high, ratio_cap } => {
            Box::new(Dppo { divergence: Divergence::Tv, delta_low, delta_high, ratio_cap })
        }
        LossKind::DppoKl { delta_low, delta_high, ratio_cap } => {
            Box::new(Dppo { divergence: Divergence::Kl, delta_low, delta_high, ratio_cap })
        }
        LossKind::Sapo { tau_pos, tau_neg } => Box::new(Sapo { tau_pos, tau_neg }),
    };

    let kl = loss.kl.as_ref().map(|kl| Kl {
        estimator: kl.kind,
        // The gradient of k1 is the gradient of log π alone, which does not depend on the reference.
        gradient_of_k2: kl.kind == KlEstimator::K1,
        coef: kl.coef,
    });

    let mut objective = Objective::new(policy);
    objective.entropy_coef = loss.entropy_coef;
    objective.kl = kl;

    let mut updater = Updater::new(objective);
    updater.router_aux_loss_coef = loss.router_aux_loss_coef;
    updater.top_entropy_quantile = loss.top_entropy_quantile;
    updater.aggregation = loss.aggregation;
    updater.constant_length = loss.constant_length.unwrap_or(recipe.rollout.max_completion_tokens);
    updater.temperature = recipe.rollout.temperature;
    updater.micro_batching = MicroBatching {
        micro_batch_tokens: recipe.train.micro_batch_tokens,
        max_logits: micro_batching.chunks.logits,
        max_saved_logits: micro_batching.chunks.waiting_logits,
        layers_without_recompute: micro_batching.whole_layers,
        offload: recipe.train.offload && recipe.device.kind != Kind::Cpu,
        share_prompts: recipe.train.share_prompts,
    };
    updater
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
        moments: optim.moments,
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
    let Recipe { rollout, sampling: choice, reward, .. } = recipe;

    let mut config = SamplerConfig::new(rollout.group_size, choice.prompts_per_step, sampling);
    config.dynamic = choice.dynamic;
    config.curriculum = curriculum(recipe);
    config.max_rounds = choice.max_rounds;
    config.on_cap = choice.on_cap;
    config.carry_over = choice.carry_over;
    config.max_carry_over_age = choice.max_carry_over_age;
    config.max_errors = reward.max_errors;

    // The numbers of a single data set are those of the step.
    let sources = recipe.train_sources();
    if sources.len() > 1 {
        config.data_sources = sources.iter().map(recipe::TrainSource::name).collect();
    }
    config
}

pub(super) fn train_config(recipe: &Recipe) -> TrainConfig {
    let Recipe { rollout, loss, train, record, .. } = recipe;

    let mut config = TrainConfig::default();
    config.max_staleness = rollout.max_staleness;
    config.last_step = train.steps;
    config.mini_batch = train.mini_batch;
    config.adaptive = train.adaptive;
    config.tis_cap = loss.tis_cap;
    config.tis_mask = loss.tis_mask;
    config.tis_gate = loss.tis_gate;
    config.old_logprobs = train.old_logprobs;
    config.token_stats_every = record.tokens_every;
    config
}
