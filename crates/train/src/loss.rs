//! The policy losses, per token: DAPO's clipped surrogate and its relatives, KL and entropy.

use burn::tensor::{Bool, Tensor};
use firebrick_kernels::sum_all;

/// Log-ratios are clamped to ±20 before `exp`. e²⁰ is 5·10⁸: a policy beyond that has come apart, and its
/// ratio is not a number to train on.
const MAX_LOG_RATIO: f64 = 20.0;

/// The numbers of one micro-batch that a loss sees. Tensors are `[rows, tokens]`, log-probabilities are in
/// nats.
///
/// Any numbers may stand behind the mask, infinities included, and must not leak.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LossInput {
    /// The log-probabilities under the policy in training. Only this input and `entropy` receive gradient.
    pub logprobs: Tensor<2>,
    /// The entropy of the policy's distribution at each token.
    pub entropy: Tensor<2>,
    /// The log-probabilities under the old policy, which the update starts from.
    pub old_logprobs: Tensor<2>,
    /// The log-probabilities under the reference policy, if a KL penalty asks for them.
    pub ref_logprobs: Option<Tensor<2>>,
    /// The advantages, one per token.
    pub advantages: Tensor<2>,
    /// The truncated importance weights, if tokens are weighted; see [`Sample::weigh`](crate::Sample::weigh).
    /// [`Objective`] applies them.
    pub importance: Option<Tensor<2>>,
    /// 1 for completion tokens that count, 0 elsewhere.
    pub mask: Tensor<2>,
    /// The weight of each token in the loss, from the whole update; 0 where the mask is 0.
    pub weights: Tensor<2>,
    /// The weight of each token in the metrics: mask / counted tokens of the whole update.
    pub shares: Tensor<2>,
}

impl LossInput {
    /// Makes the input of a micro-batch that is a whole update, in which each token weighs the same. It has
    /// no entropy, reference or importance; set the field of the one that you need.
    pub fn new(
        logprobs: Tensor<2>,
        old_logprobs: Tensor<2>,
        advantages: Tensor<2>,
        mask: Tensor<2>,
    ) -> Self {
        let shares = mask.clone() / mask.clone().sum().clamp_min(1.0).unsqueeze();
        LossInput {
            entropy: logprobs.zeros_like(),
            logprobs,
            old_logprobs,
            ref_logprobs: None,
            advantages,
            importance: None,
            mask,
            weights: shares.clone(),
            shares,
        }
    }
}

/// A policy's loss per token, before aggregation.
#[derive(Clone, Debug)]
pub struct LossOutput {
    /// The loss per token, `[rows, tokens]`; 0 behind the mask.
    pub token_loss: Tensor<2>,
    /// Named parts of means over the update's tokens, one number each: they add up over micro-batches. The
    /// update gives some metrics itself: `loss/total`, `loss/policy`, `loss/entropy`, `loss/kl`,
    /// `loss/logprob_change` and `loss/logprob_change_max`. It ignores parts of those names.
    pub metrics: Vec<(&'static str, Tensor<1>)>,
}

/// The names of the metrics that an update gives itself.
const OWN: [&str; 6] = [
    "loss/total",
    "loss/policy",
    "loss/entropy",
    "loss/kl",
    "loss/logprob_change",
    crate::LARGEST_CHANGE,
];

/// A surrogate whose gradient improves the policy. It is plain tensor code: autodiff does the rest, and only
/// ever sees `[rows, tokens]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a policy loss",
    label = "needs `fn loss(&self, input: &LossInput) -> LossOutput`"
)]
pub trait PolicyLoss: Send + Sync {
    /// Computes the loss of every token.
    fn loss(&self, input: &LossInput) -> LossOutput;
}

impl<T: PolicyLoss + ?Sized> PolicyLoss for Box<T> {
    fn loss(&self, input: &LossInput) -> LossOutput {
        (**self).loss(input)
    }
}

/// The range in which the ratio may move before its gradient is cut: `[1 − low, 1 + high]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClipRange {
    /// ε_low, 0.2 in the paper.
    pub low: f64,
    /// ε_high, 0.28 in the paper: higher than `low`, so that unlikely tokens can grow.
    pub high: f64,
}

/// The token-level surrogate with Clip-Higher (Yu et al. 2025, Eq. 8):
/// ℓ = −min(ρA, clip(ρ, 1 − ε_low, 1 + ε_high) A).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dapo {
    /// ε_low and ε_high.
    pub clip: ClipRange,
    /// c: if A < 0, the loss is at most −cA. Published recipes use 10, or no bound.
    pub dual_clip: Option<f64>,
}

impl PolicyLoss for Dapo {
    fn loss(&self, input: &LossInput) -> LossOutput {
        let delta = masked(input.logprobs.clone() - input.old_logprobs.clone(), input)
            .clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO);
        let surrogate = Surrogate::new(delta.clone().exp(), input, self.clip);
        let mut metrics = surrogate.clip_metrics(input);
        metrics.push(("loss/approx_kl", mean(delta.neg(), input)));
        let mut token_loss = surrogate.clipped();
        let mut held = Tensor::zeros_like(&input.mask);
        if let Some(c) = self.dual_clip {
            let cap = surrogate.advantages.clone().mul_scalar(-c);
            let negative = surrogate.advantages.clone().lower_elem(0.0);
            let above = negative.bool_and(token_loss.clone().detach().greater(cap.clone()));
            token_loss = token_loss.mask_where(above.clone(), cap);
            held = above.float();
        }
        metrics.push(("loss/dual_clip_fraction", mean(held, input)));
        LossOutput { token_loss: masked(token_loss, input), metrics }
    }
}

/// The surrogate with one ratio per completion, the geometric mean of the ratios of its tokens (GSPO, Zheng
/// et al. 2025).
///
/// It is straight-through: each token's ratio is the completion's ratio, held, times the token's new
/// probability over its new probability held. So advantages may differ within a completion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gspo {
    /// ε_low and ε_high of the completion's ratio; around 3e-4 in the paper.
    pub clip: ClipRange,
    /// The largest log-ratio of a completion; 10 in verl. There is no lower bound.
    pub max_log_ratio: f64,
}

impl PolicyLoss for Gspo {
    fn loss(&self, input: &LossInput) -> LossOutput {
        let delta = masked(input.logprobs.clone() - input.old_logprobs.clone(), input);
        let tokens = input.mask.clone().sum_dim(1).clamp_min(1.0);
        let row = (delta.clone().detach().sum_dim(1) / tokens).expand(delta.shape());
        let own = masked(input.logprobs.clone(), input);
        let log_ratio = (own.clone() - own.detach() + row).clamp_max(self.max_log_ratio);
        let surrogate = Surrogate::new(log_ratio.exp(), input, self.clip);
        let mut metrics = surrogate.clip_metrics(input);
        metrics.push(("loss/approx_kl", mean(delta.neg(), input)));
        LossOutput { token_loss: masked(surrogate.clipped(), input), metrics }
    }
}

/// The surrogate that takes the clipped ratio as a held factor of the log-probability (CISPO, MiniMax 2025),
/// so clipped tokens keep a gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cispo {
    /// ε_low and ε_high; a `low` of 1 means no lower bound.
    pub clip: ClipRange,
}

impl PolicyLoss for Cispo {
    fn loss(&self, input: &LossInput) -> LossOutput {
        let delta = masked(input.logprobs.clone() - input.old_logprobs.clone(), input)
            .detach()
            .clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO);
        let ratio = delta.clone().exp();
        let (low, high) = (1.0 - self.clip.low, 1.0 + self.clip.high);
        let below = ratio.clone().lower_elem(low);
        let above = ratio.clone().greater_elem(high);
        let held = ratio.clamp(low, high);
        let advantages = masked(input.advantages.clone(), input);
        let token_loss = (held * advantages * masked(input.logprobs.clone(), input)).neg();
        let metrics = vec![
            ("loss/clip_fraction_low", mean(below.float(), input)),
            ("loss/clip_fraction_high", mean(above.float(), input)),
            ("loss/approx_kl", mean(delta.neg(), input)),
        ];
        LossOutput { token_loss, metrics }
    }
}

/// The ratio and the advantage of each token, for losses that clip as PPO does.
struct Surrogate {
    ratio: Tensor<2>,
    advantages: Tensor<2>,
    clip: ClipRange,
}

impl Surrogate {
    fn new(ratio: Tensor<2>, input: &LossInput, clip: ClipRange) -> Self {
        Surrogate { ratio, advantages: masked(input.advantages.clone(), input), clip }
    }

    // ANCHOR: tour
    /// Gives −min(ρA, clip(ρ)A). A token whose clipped branch holds has no gradient.
    fn clipped(&self) -> Tensor<2> {
        let free = (self.advantages.clone() * self.ratio.clone()).neg();
        let bounded = self.ratio.clone().detach().clamp(1.0 - self.clip.low, 1.0 + self.clip.high);
        let held = (self.advantages.clone() * bounded).neg();
        let worse = held.clone().greater(free.clone().detach());
        free.mask_where(worse, held)
    }
    // ANCHOR_END: tour

    /// Gives the shares of tokens whose gradient was cut: below the lower bound with a negative advantage,
    /// above the upper bound with a positive advantage.
    fn clip_metrics(&self, input: &LossInput) -> Vec<(&'static str, Tensor<1>)> {
        let ratio = self.ratio.clone().detach();
        let low = ratio.clone().lower_elem(1.0 - self.clip.low);
        let high = ratio.greater_elem(1.0 + self.clip.high);
        let low = low.bool_and(self.advantages.clone().lower_elem(0.0));
        let high = high.bool_and(self.advantages.clone().greater_elem(0.0));
        vec![
            ("loss/clip_fraction_low", mean(low.float(), input)),
            ("loss/clip_fraction_high", mean(high.float(), input)),
        ]
    }
}

/// A penalty for leaving the reference policy, with d = log π − log π_ref (Schulman 2020).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kl {
    /// The estimate.
    pub estimator: KlEstimator,
    /// True if the gradient is that of k2, whatever estimate gives the value.
    pub gradient_of_k2: bool,
    /// The factor of the penalty in the loss.
    pub coef: f64,
}

/// Estimates of KL(π ‖ π_ref) from one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KlEstimator {
    /// d: unbiased, and often negative.
    K1,
    /// d² / 2: its gradient is that of the true KL.
    K2,
    /// e^(−d) + d − 1, with d within ±20 and the result at most 10: unbiased and never negative.
    K3,
    /// |d|.
    Abs,
}

impl Kl {
    /// Gives the penalty of each token, without `coef`; `reference` has the shape of `logprobs`.
    pub fn estimate(&self, logprobs: Tensor<2>, reference: Tensor<2>) -> Tensor<2> {
        let d = logprobs - reference;
        let k2 = |d: Tensor<2>| d.square().mul_scalar(0.5);
        let value = match self.estimator {
            KlEstimator::K1 => d.clone(),
            KlEstimator::K2 => k2(d.clone()),
            KlEstimator::K3 => {
                let d = d.clone().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO);
                (d.clone().neg().exp() + d - 1.0).clamp(-10.0, 10.0)
            }
            KlEstimator::Abs => d.clone().abs(),
        };
        if self.gradient_of_k2 {
            let k2 = k2(d);
            value.detach() + k2.clone() - k2.detach()
        } else {
            value
        }
    }
}

/// The whole loss of an update: the policy's loss, minus the entropy bonus, plus the KL penalty.
pub struct Objective {
    /// The surrogate.
    pub policy: Box<dyn PolicyLoss>,
    /// The factor of the entropy bonus; 0 switches it off.
    pub entropy_coef: f64,
    /// The penalty, if any.
    pub kl: Option<Kl>,
}

/// One micro-batch's part of an update's loss. Every tensor is a scalar that adds up over the parts.
#[derive(Clone, Debug)]
pub struct ObjectiveOutput {
    /// The loss to differentiate.
    pub loss: Tensor<1>,
    /// The policy term of the loss.
    pub policy_loss: Tensor<1>,
    /// The entropy, weighted like the loss.
    pub entropy: Tensor<1>,
    /// The KL estimate, weighted like the loss; absent without a penalty.
    pub kl: Option<Tensor<1>>,
    /// Parts of means over the update's tokens.
    pub metrics: Vec<(&'static str, Tensor<1>)>,
}

impl Objective {
    /// Tells whether the loss needs [`LossInput::ref_logprobs`].
    pub fn needs_reference(&self) -> bool {
        self.kl.is_some()
    }

    /// Evaluates the micro-batch.
    pub fn evaluate(&self, input: &LossInput) -> ObjectiveOutput {
        let weighted = |x: Tensor<2>| sum_all(x * input.weights.clone());
        let LossOutput { token_loss, mut metrics } = self.policy.loss(input);
        metrics.retain(|(name, _)| !OWN.contains(name));
        let token_loss = match input.importance.clone() {
            Some(importance) => token_loss * masked(importance, input),
            None => token_loss,
        };
        let policy_loss = weighted(token_loss);
        let entropy_of_tokens = masked(input.entropy.clone(), input);
        metrics.push(("loss/entropy", mean(entropy_of_tokens.clone(), input)));
        let entropy = weighted(entropy_of_tokens);
        let mut loss = policy_loss.clone();
        if self.entropy_coef != 0.0 {
            loss = loss - entropy.clone().mul_scalar(self.entropy_coef);
        }
        let kl = self.kl.zip(input.ref_logprobs.clone()).map(|(kl, reference)| {
            let estimate =
                kl.estimate(masked(input.logprobs.clone(), input), masked(reference, input));
            metrics.push(("loss/kl", mean(estimate.clone(), input)));
            (weighted(estimate), kl.coef)
        });
        if let Some((kl, coef)) = &kl {
            loss = loss + kl.clone().mul_scalar(*coef);
        }
        ObjectiveOutput { loss, policy_loss, entropy, kl: kl.map(|(kl, _)| kl), metrics }
    }
}

/// Gives `x` with 0 behind the mask, whatever stood there.
fn masked(x: Tensor<2>, input: &LossInput) -> Tensor<2> {
    let hidden: Tensor<2, Bool> = input.mask.clone().equal_elem(0.0);
    x.mask_fill(hidden, 0.0)
}

/// Gives this micro-batch's part of the mean of `x` over the update's tokens.
fn mean(x: Tensor<2>, input: &LossInput) -> Tensor<1> {
    sum_all(x.detach() * input.shares.clone())
}
