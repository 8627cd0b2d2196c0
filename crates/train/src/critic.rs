//! The critic of actor-critic training: its judgement of a step, its gradient, and its own optimizer.

mod file;
mod model;

use burn::{
    module::Module,
    optim::GradientsParams,
    tensor::{DType, Gradients, Tensor},
};
use firebrick_core::Metrics;
use firebrick_models::{GradientSum, PolicyModel};

use crate::{
    Gae, LrSchedule, MicroBatch, MicroBatching, Optimizer, Sample, StepOutcome, TrainError,
    Trainer, ValueInput, ValueLoss,
    checkpointed_forward::{CheckpointedForward, at, finished},
    report::Updated,
    schedule::rate,
    update::Parts,
};

pub use model::{ValueHead, ValueModel};

/// Predicts the rewards to come, token by token, and learns from the rewards that came.
pub struct Critic<M: Module> {
    /// The critic.
    pub model: ValueModel<M>,
    /// The optimizer that moves the critic, apart from the policy's: it has moments and a gradient norm of
    /// its own.
    pub optimizer: Box<dyn Optimizer<ValueModel<M>>>,
    /// The critic's learning rate. It counts from the first step on, so it covers the critic's own warm-up.
    pub schedule: Box<dyn LrSchedule>,
    /// The way in which the critic is used and trained.
    pub config: CriticConfig,
}

/// The way in which a critic is used and trained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CriticConfig {
    /// The way from values to advantages.
    pub gae: Gae,
    /// The loss that the critic is trained with.
    pub loss: ValueLoss,
    /// The weight of that loss. For a head on the policy it sets how much of the trunk's gradient is the
    /// critic's. The steps of AdamW on weights of the critic's own hardly depend on it.
    pub coef: f64,
    /// The number of steps at the beginning in which the policy stands still and the critic alone learns,
    /// once from each mini-batch. The policy's moments stay as they are, and its schedule begins after these
    /// steps.
    pub warmup_steps: u64,
    /// True if the gradient of a head on the policy ends at the head.
    pub detach: bool,
}

impl<M: PolicyModel> Critic<M> {
    /// Adds the gradient of a critic with a trunk of its own to `sum`. Gives the critic's parts of the
    /// update's metrics, or no parts if the critic is a head on the policy.
    pub(crate) fn on_own_trunk(
        &self,
        batch: &MicroBatch,
        micro_batching: &MicroBatching,
        sum: &mut GradientSum,
    ) -> Parts {
        let Some(trunk) = &self.model.trunk else { return Vec::new() };
        let (plain, context) = (trunk.valid(), trunk.context(&batch.tokens));
        let pass =
            CheckpointedForward::forward(trunk, &plain, &batch.tokens, &context, micro_batching);
        let last = at(pass.output.clone(), &batch.predictors);
        let last = Tensor::from_inner(last).require_grad();
        let (mut gradients, parts) = self.judge(finished(trunk, last.clone()), batch, sum);
        if let Some(d_last) = last.grad_remove(&mut gradients) {
            pass.backward(batch.spread(d_last), sum);
        }
        parts
    }

    /// Adds the gradient of a head on the policy to `sum`. The policy's hidden states are `[count, hidden]`
    /// and without autodiff. Gives the gradient of the hidden states, if it continues, and parts of the
    /// update's metrics. `None` if the critic has a trunk of its own.
    pub(crate) fn on_policy(
        &self,
        hidden: &Tensor<2>,
        batch: &MicroBatch,
        sum: &mut GradientSum,
    ) -> Option<(Option<Tensor<2>>, Parts)> {
        if self.model.trunk.is_some() {
            return None;
        }
        let hidden = Tensor::from_inner(hidden.clone().cast(DType::F32));
        let hidden = if self.config.detach { hidden } else { hidden.require_grad() };
        let (mut gradients, parts) = self.judge(hidden.clone(), batch, sum);
        Some((hidden.grad_remove(&mut gradients), parts))
    }

    fn judge(
        &self,
        hidden: Tensor<2>,
        batch: &MicroBatch,
        sum: &mut GradientSum,
    ) -> (Gradients, Parts) {
        let targets = batch.targets.clone().expect("what counts was appraised before the update");
        let output = self.config.loss.evaluate(&ValueInput {
            values: batch.by_row(self.model.head.values(hidden)),
            old_values: targets.old_values,
            returns: targets.returns,
            mask: batch.mask.clone(),
            weights: batch.weights.clone(),
            shares: batch.shares.clone(),
        });
        let mut gradients = output.loss.clone().mul_scalar(self.config.coef).backward();
        sum.take(&self.model, &mut gradients);
        let mut parts = vec![("critic/loss", output.loss.inner())];
        parts.extend(output.clip_fraction.map(|part| ("critic/clip_fraction", part.inner())));
        (gradients, parts)
    }
}

impl<M: PolicyModel> Trainer<M> {
    /// Gives each token of a step's samples an advantage, if there is a critic. Returns the metrics of the
    /// critic's values.
    pub(crate) fn appraise(&mut self, samples: &mut [Sample]) -> Result<Metrics, TrainError> {
        let values =
            self.retry_on_oom(samples, |Trainer { critic, updater, policy, .. }| {
                let critic = critic.as_ref();
                critic.map(|critic| updater.values(policy, &critic.model, samples)).transpose()
            })?;
        let Some((critic, values)) = self.critic.as_ref().zip(values) else {
            return Ok(Metrics::default());
        };
        critic.config.gae.appraise(samples, values);
        Ok(measure(samples))
    }

    /// Moves the critic after the policy was moved. Gives false if there is no critic, or its gradient was
    /// not finite.
    pub(crate) fn step_critic(
        &mut self,
        gradients: Option<GradientsParams>,
        updated: &mut Updated,
    ) -> Result<bool, TrainError> {
        let Some((critic, gradients)) = self.critic.as_mut().zip(gradients) else {
            return Ok(false);
        };
        let done = self.state.step;
        let lr = rate(&*critic.schedule, done, done + 1)?;
        let (model, outcome) = critic.optimizer.step(critic.model.clone(), gradients, lr)?;
        critic.model = model;
        updated.critic.add(outcome, lr);
        Ok(!outcome.skipped)
    }

    /// Gives the learning rate of the policy in the present step. The policy's schedule begins where the
    /// critic's warm-up ends. If it were counted from the first step, it could be over before the policy
    /// takes its first step.
    pub(crate) fn policy_lr(&self) -> Result<f64, TrainError> {
        if self.warms_critic() {
            return Ok(0.0);
        }
        let still = self.critic.as_ref().map_or(0, |critic| critic.config.warmup_steps);
        let done = self.state.step;
        rate(&*self.schedule, done - still, done + 1)
    }

    /// Tells whether only the critic learns in the present step.
    pub(crate) fn warms_critic(&self) -> bool {
        self.critic.as_ref().is_some_and(|critic| self.state.step < critic.config.warmup_steps)
    }
}

/// The effect of a step's updates on the critic.
#[derive(Default)]
pub(crate) struct CriticUpdates {
    updates: usize,
    pub(crate) skipped: usize,
    grad_norm: f64,
    lr: f64,
}

impl CriticUpdates {
    fn add(&mut self, outcome: StepOutcome, lr: f64) {
        self.lr = lr;
        if outcome.skipped {
            self.skipped += 1;
        } else {
            self.updates += 1;
            self.grad_norm += outcome.grad_norm;
        }
    }

    /// Sets the critic's metrics; nothing without a critic.
    pub(crate) fn measure(&self, metrics: &mut Metrics) {
        if self.updates + self.skipped > 0 {
            metrics.set("critic/grad_norm", self.grad_norm / self.updates.max(1) as f64);
            metrics.set("critic/skipped", self.skipped as f64);
            metrics.set("critic/lr", self.lr);
        }
    }
}

/// Measures the critic's values for a step before it learns from the step. All are means over the tokens that
/// count, and each token weighs the same.
fn measure(samples: &[Sample]) -> Metrics {
    let judged = samples.iter().filter_map(|sample| Some((sample, sample.token_values.as_ref()?)));
    let (values, returns): (Vec<f64>, Vec<f64>) = judged
        .flat_map(|(sample, tokens)| {
            let of = |place| (f64::from(tokens.values[place]), f64::from(tokens.returns[place]));
            sample.own().map(of)
        })
        .unzip();
    let errors: Vec<f64> = values.iter().zip(&returns).map(|(value, came)| came - value).collect();
    let mut metrics = Metrics::default();
    if !values.is_empty() {
        metrics.set("critic/value_mean", mean(&values));
        metrics.set("critic/return_mean", mean(&returns));
        let spread = variance(&returns);
        // If all returns are nearly the same, there is next to nothing to explain. Rounding and old values
        // then give −100 and less, and beside such numbers nothing else can be seen in a curve.
        let explained = if spread > 0.0 { 1.0 - variance(&errors) / spread } else { 0.0 };
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
