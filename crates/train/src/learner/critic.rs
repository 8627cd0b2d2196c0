//! Critic of actor-critic training: its values for a step, its gradient, and its own optimizer.

mod file;
mod model;

use burn::{
    module::Module,
    tensor::{DType, Gradients, Tensor},
};
use firebrick_core::Metrics;
use firebrick_models::{GradientSum, PolicyModel};

use crate::{
    algorithm::{
        gae::Gae,
        schedule::LrSchedule,
        value_loss::{ValueInput, ValueLoss},
    },
    learner::{
        checkpointed_forward::{CheckpointedForward, final_norm, gather_tokens},
        micro_batch::{MicroBatch, MicroBatching},
        optim::{Optimizer, StepOutcome},
    },
    sample::Sample,
};

pub use model::{ValueHead, ValueModel};

/// Predicts the rewards to come, token by token, and is trained on the rewards that followed.
pub struct Critic<M: Module> {
    /// The critic.
    pub model: ValueModel<M>,
    /// Optimizer of the critic, separate from the policy's: it has its own moments and gradient norm.
    pub optimizer: Box<dyn Optimizer<ValueModel<M>>>,
    /// The critic's learning rate. It counts from the first step, so it covers the critic's warm-up.
    pub schedule: Box<dyn LrSchedule>,
    /// How the critic is used and trained.
    pub config: CriticConfig,
}

/// How a critic is used and trained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CriticConfig {
    /// Estimator that turns values into advantages.
    pub gae: Gae,
    /// The loss that the critic is trained with.
    pub loss: ValueLoss,
    /// Weight of that loss. For a head on the policy it sets how much of the trunk's gradient is the
    /// critic's, while AdamW's steps on the critic's own weights hardly depend on it.
    pub coef: f64,
    /// Steps at the beginning in which the policy is not trained and only the critic is, once on each
    /// mini-batch. The policy's moments stay as they are, and its schedule begins after these steps.
    pub warmup_steps: u64,
    /// True if the gradient of a head on the policy ends at the head.
    pub detach: bool,
}

/// A micro-batch's parts of sums over the update, by the names of the update's metrics.
pub(crate) type MetricSums = Vec<(&'static str, Tensor<1>)>;

impl<M: PolicyModel> Critic<M> {
    /// Adds the gradient of a critic with its own trunk to `sum`. Returns the critic's parts of the update's
    /// metrics, or none if the critic is a head on the policy.
    pub(crate) fn on_own_trunk(
        &self,
        batch: &MicroBatch,
        micro_batching: &MicroBatching,
        sum: &mut GradientSum,
    ) -> MetricSums {
        let Some(trunk) = &self.model.trunk else { return Vec::new() };
        let trunk_no_grad = trunk.valid();
        let context = trunk.context(&batch.tokens);
        let layers = CheckpointedForward::forward(
            trunk,
            &trunk_no_grad,
            &batch.tokens,
            &context,
            micro_batching,
        );

        let last_hidden = gather_tokens(layers.output.clone(), &batch.predictors);
        let last_hidden = Tensor::from_inner(last_hidden).require_grad();

        let hidden = final_norm(trunk, last_hidden.clone());
        let (mut gradients, sums) = self.backward_head(hidden, batch, sum);
        if let Some(d_last_hidden) = last_hidden.grad_remove(&mut gradients) {
            layers.backward(batch.spread(d_last_hidden), sum);
        }
        sums
    }

    /// Adds the gradient of a head on the policy to `sum`. The policy's hidden states are `[count, hidden]`
    /// and without autodiff. Returns the gradient of the hidden states, unless it is detached, and parts of the
    /// update's metrics; `None` if the critic has its own trunk.
    pub(crate) fn on_policy(
        &self,
        hidden: &Tensor<2>,
        batch: &MicroBatch,
        sum: &mut GradientSum,
    ) -> Option<(Option<Tensor<2>>, MetricSums)> {
        if self.model.trunk.is_some() {
            return None;
        }

        let hidden = Tensor::from_inner(hidden.clone().cast(DType::F32));
        let hidden = if self.config.detach { hidden } else { hidden.require_grad() };
        let (mut gradients, sums) = self.backward_head(hidden.clone(), batch, sum);
        Some((hidden.grad_remove(&mut gradients), sums))
    }

    /// Computes values and loss from hidden states, and the backward pass as far as the hidden states. Adds the
    /// gradient of the value head to `sum`.
    fn backward_head(
        &self,
        hidden: Tensor<2>,
        batch: &MicroBatch,
        sum: &mut GradientSum,
    ) -> (Gradients, MetricSums) {
        let targets = batch.targets.clone().expect("what counts was appraised before the update");

        let output = self.config.loss.evaluate(&ValueInput {
            values: batch.by_row(self.model.head.values(hidden)),
            old_values: targets.old_values,
            returns: targets.returns,
            mask: batch.mask.clone(),
            loss_weights: batch.loss_weights.clone(),
            metric_weights: batch.metric_weights.clone(),
        });

        let mut gradients = output.loss.clone().mul_scalar(self.config.coef).backward();
        sum.take(&self.model, &mut gradients);
        let mut sums = vec![("critic/loss", output.loss.inner())];
        sums.extend(output.clip_fraction.map(|part| ("critic/clip_fraction", part.inner())));
        (gradients, sums)
    }
}

/// Effect of a step's updates on the critic.
#[derive(Default)]
pub(crate) struct CriticUpdates {
    updates: usize,
    pub(crate) skipped: usize,
    grad_norm: f64,
    lr: f64,
}

impl CriticUpdates {
    pub(crate) fn add(&mut self, outcome: StepOutcome, lr: f64) {
        self.lr = lr;
        if outcome.skipped {
            self.skipped += 1;
        } else {
            self.updates += 1;
            self.grad_norm += outcome.grad_norm;
        }
    }

    /// Records the critic's metrics; nothing without a critic.
    pub(crate) fn record_metrics(&self, metrics: &mut Metrics) {
        if self.updates + self.skipped > 0 {
            metrics.set("critic/grad_norm", self.grad_norm / self.updates.max(1) as f64);
            metrics.set("critic/skipped", self.skipped as f64);
            metrics.set("critic/lr", self.lr);
        }
    }
}

/// Measures the critic's values for a step before it is trained on the step: means over the tokens that count,
/// each with the same weight.
pub(crate) fn value_metrics(samples: &[Sample]) -> Metrics {
    let with_values =
        samples.iter().filter_map(|sample| Some((sample, sample.token_values.as_ref()?)));
    let (values, returns): (Vec<f64>, Vec<f64>) = with_values
        .flat_map(|(sample, tokens)| {
            let pair = |index| (f64::from(tokens.values[index]), f64::from(tokens.returns[index]));
            sample.policy_tokens().map(pair)
        })
        .unzip();

    let errors: Vec<f64> =
        values.iter().zip(&returns).map(|(value, actual)| actual - value).collect();

    let mut metrics = Metrics::default();
    if !values.is_empty() {
        metrics.set("critic/value_mean", mean(&values));
        metrics.set("critic/return_mean", mean(&returns));
        let total = variance(&returns);
        // If all returns are nearly the same, there is next to nothing to explain. Rounding and old values
        // then give −100 and less, which would hide everything else in a curve.
        let explained = if total > 0.0 { 1.0 - variance(&errors) / total } else { 0.0 };
        let explained = explained.max(-1.0);
        metrics.set("critic/explained_variance", explained);
    }

    metrics
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

fn variance(numbers: &[f64]) -> f64 {
    let mean = mean(numbers);
    numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / numbers.len() as f64
}
