//! Policy losses, per token: DAPO's clipped surrogate and its relatives, KL and entropy.

use burn::tensor::{Bool, Tensor, activation::sigmoid};
use firebrick_core::config::KlEstimator;
use firebrick_kernels::sum_all;

/// Log-ratios are clamped to ±20 before `exp`. e²⁰ is 5·10⁸: a policy beyond that has come apart, and its
/// ratio is not usable for training.
const MAX_LOG_RATIO: f64 = 20.0;

/// What a loss sees of one micro-batch. Tensors are `[rows, tokens]`, log-probabilities are in nats.
///
/// Where the mask is 0, numbers may have any value, infinities included, and must not leak.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LossInput {
    /// Log-probabilities under the policy in training. Only they and `entropy` receive gradient.
    pub logprobs: Tensor<2>,
    /// Entropy of the policy's distribution at each token.
    pub entropy: Tensor<2>,
    /// Log-probabilities under the old policy, which the update starts from.
    pub old_logprobs: Tensor<2>,
    /// Log-probabilities under the reference policy, if a KL penalty asks for them.
    pub ref_logprobs: Option<Tensor<2>>,
    /// Advantages, one per token.
    pub advantages: Tensor<2>,
    /// Weights of tokens in the policy loss, if tokens are weighted: those of truncated importance sampling (TIS, see
    /// [`Sample::set_tis_weights`](crate::sample::Sample::set_tis_weights)), and 0 for a token without a policy loss.
    /// [`Objective`] applies them.
    pub tis_weights: Option<Tensor<2>>,
    /// 1 for completion tokens that count, 0 elsewhere.
    pub mask: Tensor<2>,
    /// Weight of each token in the loss, from the whole update; 0 where the mask is 0.
    pub loss_weights: Tensor<2>,
    /// Weight of each token in the metrics: mask / counted tokens of the whole update.
    pub metric_weights: Tensor<2>,
}

impl LossInput {
    /// Makes the input of a micro-batch that is a whole update, in which each token weighs the same. It has
    /// no entropy, reference or TIS weights; set the field of the one that you need.
    pub fn new(
        logprobs: Tensor<2>,
        old_logprobs: Tensor<2>,
        advantages: Tensor<2>,
        mask: Tensor<2>,
    ) -> Self {
        let token_weights = mask.clone() / mask.clone().sum().clamp_min(1.0).unsqueeze();
        LossInput {
            entropy: logprobs.zeros_like(),
            logprobs,
            old_logprobs,
            ref_logprobs: None,
            advantages,
            tis_weights: None,
            mask,
            loss_weights: token_weights.clone(),
            metric_weights: token_weights,
        }
    }
}

/// A policy's loss per token, before aggregation.
#[derive(Clone, Debug)]
pub struct LossOutput {
    /// Loss per token, `[rows, tokens]`; 0 where the mask is 0.
    pub token_loss: Tensor<2>,
    /// Named parts of means over the update's tokens, one number each: they add up over micro-batches. The
    /// update computes some metrics itself: `loss/total`, `loss/policy`, `loss/teacher`, `loss/entropy`, `loss/kl`,
    /// `loss/logprob_change` and `loss/logprob_change_max`. It ignores parts of those names.
    pub metrics: Vec<(&'static str, Tensor<1>)>,
}

/// Metric of the loss that is minimised.
pub(crate) const TOTAL_LOSS: &str = "loss/total";

/// Metric of a divergence from teachers, a part of it.
pub(crate) const TEACHER_LOSS: &str = "loss/teacher";

/// Metric of the policy's mean entropy over the tokens that count, in nats.
pub(crate) const ENTROPY: &str = "loss/entropy";

/// Metrics of the mean and the largest change of the log-probabilities since the old policy, in nats.
pub(crate) const LOGPROB_CHANGE: &str = "loss/logprob_change";
pub(crate) const LOGPROB_CHANGE_MAX: &str = "loss/logprob_change_max";

/// Names of the metrics that an update computes itself.
const UPDATE_METRICS: [&str; 7] = [
    TOTAL_LOSS,
    "loss/policy",
    TEACHER_LOSS,
    ENTROPY,
    "loss/kl",
    LOGPROB_CHANGE,
    LOGPROB_CHANGE_MAX,
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

    /// Returns true if the loss has no gradient where all advantages are 0, so that nobody has to compute it there.
    fn needs_advantages(&self) -> bool {
        false
    }
}

impl<T: PolicyLoss + ?Sized> PolicyLoss for Box<T> {
    fn loss(&self, input: &LossInput) -> LossOutput {
        (**self).loss(input)
    }

    fn needs_advantages(&self) -> bool {
        (**self).needs_advantages()
    }
}

/// Range in which the ratio may move before its gradient is cut: `[1 − low, 1 + high]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClipRange {
    /// ε_low, 0.2 in the paper.
    pub low: f64,
    /// ε_high, 0.28 in the paper: higher than `low`, so that unlikely tokens can grow.
    pub high: f64,
}

/// Token-level surrogate with Clip-Higher (Yu et al. 2025, Eq. 8): ℓ = −min(ρA, clip(ρ, 1 − ε_low, 1 +
/// ε_high) A).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dapo {
    /// ε_low and ε_high.
    pub clip: ClipRange,
    /// c: if A < 0, the loss is at most −cA. Published recipes use 10, or no bound.
    pub dual_clip: Option<f64>,
}

impl PolicyLoss for Dapo {
    fn needs_advantages(&self) -> bool {
        true
    }

    fn loss(&self, input: &LossInput) -> LossOutput {
        let delta = masked(input.logprobs.clone() - input.old_logprobs.clone(), input)
            .clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO);
        let surrogate = Surrogate::new(delta.clone().exp(), input, self.clip);
        let mut metrics = surrogate.clip_metrics(input);
        metrics.push(("loss/approx_kl", mean(delta.neg(), input)));

        let mut token_loss = surrogate.clipped();
        let mut bounded = Tensor::zeros_like(&input.mask);
        if let Some(c) = self.dual_clip {
            let cap = surrogate.advantages.clone().mul_scalar(-c);
            let negative = surrogate.advantages.clone().lower_elem(0.0);
            let above = negative.bool_and(token_loss.clone().detach().greater(cap.clone()));
            token_loss = token_loss.mask_where(above.clone(), cap);
            bounded = above.float();
        }

        metrics.push(("loss/dual_clip_fraction", mean(bounded, input)));
        LossOutput { token_loss: masked(token_loss, input), metrics }
    }
}

/// Surrogate with one ratio per completion, the geometric mean of the ratios of its tokens (GSPO, Zheng et
/// al. 2025).
///
/// It is straight-through: each token's ratio is the completion's ratio, detached, times the token's new
/// probability over its new probability detached. So advantages may differ within a completion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gspo {
    /// ε_low and ε_high of the completion's ratio; around 3e-4 in the paper.
    pub clip: ClipRange,
    /// Largest log-ratio of a completion; 10 in verl. There is no lower bound.
    pub max_log_ratio: f64,
}

impl PolicyLoss for Gspo {
    fn needs_advantages(&self) -> bool {
        true
    }

    fn loss(&self, input: &LossInput) -> LossOutput {
        let delta = masked(input.logprobs.clone() - input.old_logprobs.clone(), input);
        let tokens = input.mask.clone().sum_dim(1).clamp_min(1.0);
        let row = (delta.clone().detach().sum_dim(1) / tokens).expand(delta.shape());

        // `logprobs − logprobs.detach()` is 0: it adds nothing to the ratio but each token's gradient.
        let logprobs = masked(input.logprobs.clone(), input);
        let log_ratio = (logprobs.clone() - logprobs.detach() + row).clamp_max(self.max_log_ratio);
        let surrogate = Surrogate::new(log_ratio.exp(), input, self.clip);

        let mut metrics = surrogate.clip_metrics(input);
        metrics.push(("loss/approx_kl", mean(delta.neg(), input)));
        LossOutput { token_loss: masked(surrogate.clipped(), input), metrics }
    }
}

/// Surrogate that takes the clipped ratio as a detached factor of the log-probability (CISPO, MiniMax 2025),
/// so that clipped tokens keep a gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cispo {
    /// ε_low and ε_high; a `low` of 1 means no lower bound.
    pub clip: ClipRange,
}

impl PolicyLoss for Cispo {
    fn needs_advantages(&self) -> bool {
        true
    }

    fn loss(&self, input: &LossInput) -> LossOutput {
        let delta = masked(input.logprobs.clone() - input.old_logprobs.clone(), input)
            .detach()
            .clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO);
        let ratio = delta.clone().exp();

        let low = 1.0 - self.clip.low;
        let high = 1.0 + self.clip.high;
        let below = ratio.clone().lower_elem(low);
        let above = ratio.clone().greater_elem(high);

        let clipped = ratio.clamp(low, high);
        let advantages = masked(input.advantages.clone(), input);
        let token_loss = (clipped * advantages * masked(input.logprobs.clone(), input)).neg();

        let metrics = vec![
            ("loss/clip_fraction_low", mean(below.float(), input)),
            ("loss/clip_fraction_high", mean(above.float(), input)),
            ("loss/approx_kl", mean(delta.neg(), input)),
        ];
        LossOutput { token_loss, metrics }
    }
}

/// Surrogate whose trust region bounds probabilities instead of their ratio (DPPO, Qi et al. 2026): a token that has
/// moved too far from the old policy, and would be pushed further, has no gradient.
///
/// A ratio says little of a rare token, which may grow a hundredfold and still hardly be sampled, and says too little of
/// a frequent one. The divergences here take the token against all others together, so they need no other token's
/// probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dppo {
    /// How far two policies are apart at a token.
    pub divergence: Divergence,
    /// Largest divergence at which a token may still become less likely, if A ≤ 0.
    pub delta_low: f64,
    /// Largest divergence at which a token may still become more likely, if A > 0.
    pub delta_high: f64,
    /// Largest ratio that a token's gradient is multiplied by; 20 in the paper.
    pub ratio_cap: f64,
}

/// A divergence of two policies, p new and q old, of which each knows a token and everything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Divergence {
    /// Total variation: |p − q|.
    Tv,
    /// KL divergence: q log(q / p) + (1 − q) log((1 − q) / (1 − p)).
    Kl,
}

impl PolicyLoss for Dppo {
    fn needs_advantages(&self) -> bool {
        true
    }

    fn loss(&self, input: &LossInput) -> LossOutput {
        let logprobs = masked(input.logprobs.clone(), input);
        let advantages = masked(input.advantages.clone(), input);
        let [new, old] = [logprobs.clone().detach(), masked(input.old_logprobs.clone(), input)];
        let delta = (new.clone() - old.clone()).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO);
        let [p, q] = [new.clone().exp(), old.clone().exp()];
        let grown = p.clone() - q.clone();

        // The divergence with the sign of the probability's change.
        let moved = match self.divergence {
            Divergence::Tv => grown,
            Divergence::Kl => {
                let of_token = q.clone() * (old - new);
                // Without the small number, two certain policies would differ by 0 · log(0 / 0).
                let [p_others, q_others] = [p, q].map(|p| p.neg().add_scalar(1.0).add_scalar(1e-8));
                of_token.add(q_others.clone() * (q_others / p_others).log()) * grown.sign()
            }
        };

        let positive = advantages.clone().greater_elem(0.0);
        let above = moved.clone().greater_elem(self.delta_high).bool_and(positive.clone());
        let below = moved.lower_elem(-self.delta_low).bool_and(positive.bool_not());
        let ratio = delta.clone().exp().clamp_max(self.ratio_cap);
        let token_loss = (ratio * advantages.clone() * logprobs)
            .neg()
            .mask_fill(above.clone().bool_or(below.clone()), 0.0);

        let below = below.bool_and(advantages.lower_elem(0.0));
        let metrics = vec![
            ("loss/clip_fraction_low", mean(below.float(), input)),
            ("loss/clip_fraction_high", mean(above.float(), input)),
            ("loss/approx_kl", mean(delta.neg(), input)),
        ];
        LossOutput { token_loss: masked(token_loss, input), metrics }
    }
}

/// Surrogate with a soft gate in place of a clip (SAPO, 2025): ℓ = −A · 4σ(τ(ρ − 1)) / τ. Its gradient is that of DAPO
/// at ρ = 1, and fades on both sides, the faster the larger τ is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sapo {
    /// τ where the advantage is positive; 1 in the paper.
    pub tau_pos: f64,
    /// τ elsewhere; 1.05 in the paper, because pushing a token down raises many others.
    pub tau_neg: f64,
}

impl PolicyLoss for Sapo {
    fn needs_advantages(&self) -> bool {
        true
    }

    fn loss(&self, input: &LossInput) -> LossOutput {
        let delta = masked(input.logprobs.clone() - input.old_logprobs.clone(), input)
            .clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO);
        let advantages = masked(input.advantages.clone(), input);
        let tau = advantages
            .ones_like()
            .mul_scalar(self.tau_neg)
            .mask_fill(advantages.clone().greater_elem(0.0), self.tau_pos);
        let gate = sigmoid((delta.clone().exp() - 1.0) * tau.clone()) * 4.0 / tau;

        let metrics = vec![("loss/approx_kl", mean(delta.neg(), input))];
        LossOutput { token_loss: masked((gate * advantages).neg(), input), metrics }
    }
}

/// Ratio and advantage of each token, for losses that clip as PPO does.
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
    /// Computes −min(ρA, clip(ρ)A). A token whose clipped branch applies has no gradient.
    fn clipped(&self) -> Tensor<2> {
        let unclipped = (self.advantages.clone() * self.ratio.clone()).neg();
        let bounded = self.ratio.clone().detach().clamp(1.0 - self.clip.low, 1.0 + self.clip.high);
        let clipped = (self.advantages.clone() * bounded).neg();
        let worse = clipped.clone().greater(unclipped.clone().detach());
        unclipped.mask_where(worse, clipped)
    }
    // ANCHOR_END: tour

    /// Returns the fractions of tokens whose gradient was cut: below the lower bound with a negative advantage,
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

/// A penalty for leaving the reference policy, estimated from one sample, with d = log π − log π_ref (Schulman 2020).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kl {
    /// How the penalty is estimated.
    pub estimator: KlEstimator,
    /// True if the gradient is that of k2, whatever estimate sets the value.
    pub gradient_of_k2: bool,
    /// Factor of the penalty in the loss.
    pub coef: f64,
}

impl Kl {
    /// Estimates the penalty of each token, without `coef`; `reference` has the shape of `logprobs`. k1 is d, k2 is
    /// d² / 2, and k3 is e^(−d) + d − 1, with d within ±20 and the result at most 10.
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

        // `k2 − k2.detach()` is 0: the value stays, and the gradient is that of k2.
        if self.gradient_of_k2 {
            let k2 = k2(d);
            value.detach() + k2.clone() - k2.detach()
        } else {
            value
        }
    }
}

/// The whole loss of an update: the policy's loss, minus the entropy bonus, plus the KL penalty.
#[non_exhaustive]
pub struct Objective {
    /// Surrogate that improves the policy.
    pub policy: Box<dyn PolicyLoss>,
    /// Factor of the entropy bonus; 0 switches it off.
    pub entropy_coef: f64,
    /// Penalty for leaving the reference policy, if any.
    pub kl: Option<Kl>,
}

/// Part of an update's loss from one micro-batch. Every tensor is a scalar that adds up over the parts.
#[derive(Clone, Debug)]
pub struct ObjectiveOutput {
    /// The loss to differentiate.
    pub loss: Tensor<1>,
    /// Policy term of the loss.
    pub policy_loss: Tensor<1>,
    /// Entropy, weighted like the loss.
    pub entropy: Tensor<1>,
    /// KL estimate, weighted like the loss; absent without a penalty.
    pub kl: Option<Tensor<1>>,
    /// Parts of means over the update's tokens.
    pub metrics: Vec<(&'static str, Tensor<1>)>,
}

impl Objective {
    /// Makes a loss without entropy bonus and KL penalty.
    pub fn new(policy: Box<dyn PolicyLoss>) -> Self {
        Objective { policy, entropy_coef: 0.0, kl: None }
    }

    /// Returns true if the loss needs [`LossInput::ref_logprobs`].
    pub fn needs_reference(&self) -> bool {
        self.kl.is_some()
    }

    /// Evaluates the micro-batch.
    pub fn evaluate(&self, input: &LossInput) -> ObjectiveOutput {
        let weighted = |x: Tensor<2>| sum_all(x * input.loss_weights.clone());
        let LossOutput { token_loss, mut metrics } = self.policy.loss(input);
        // A custom loss must not overwrite them.
        metrics.retain(|(name, _)| !UPDATE_METRICS.contains(name));

        let token_loss = match input.tis_weights.clone() {
            // A token without weight has no loss, even if its own is not finite.
            Some(tis_weights) => {
                let left_out = tis_weights.clone().equal_elem(0.0);
                (token_loss * masked(tis_weights, input)).mask_fill(left_out, 0.0)
            }
            None => token_loss,
        };
        let policy_loss = weighted(token_loss);

        let entropy_of_tokens = masked(input.entropy.clone(), input);
        metrics.push((ENTROPY, mean(entropy_of_tokens.clone(), input)));
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

/// Sets numbers to 0 where the mask is 0.
fn masked(x: Tensor<2>, input: &LossInput) -> Tensor<2> {
    let hidden: Tensor<2, Bool> = input.mask.clone().equal_elem(0.0);
    x.mask_fill(hidden, 0.0)
}

/// Computes this micro-batch's part of the mean of `x` over the update's tokens.
fn mean(x: Tensor<2>, input: &LossInput) -> Tensor<1> {
    sum_all(x.detach() * input.metric_weights.clone())
}
