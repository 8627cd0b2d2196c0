//! The learner that computes in this process.

use std::mem;

use burn::{module::Module, optim::GradientsParams};
use firebrick_core::{Failure, Metrics, Step, config::Aggregation, guard_memory};
use firebrick_models::{Compute, PolicyModel, parameters};
use serde::{Deserialize, Serialize};

use crate::{
    algorithm::schedule::{LrSchedule, rate},
    error::TrainError,
    learner::{
        Applied, Learner, Update,
        critic::{Critic, value_metrics},
        divergence::TeacherDistributions,
        loss_scale::LossScale,
        oom::OomBackoff,
        optim::{Optimizer, StepOutcome, global_norm, read},
        teacher::Teachers,
        token_stats::TokenStats,
        update::{AuxModels, UpdateTarget, Updater},
    },
    sample::Sample,
};

/// Updates a policy in this process.
pub struct LocalLearner<M: Module> {
    /// Policy in training.
    pub policy: M,
    /// Frozen policy of the KL penalty; `None` unless the objective asks for one.
    pub reference: Option<M>,
    /// Estimates advantages token by token. Without a critic the task's estimator does so.
    pub critic: Option<Critic<M>>,
    /// Models that the policy learns from on its own texts, if any.
    pub teachers: Option<Teachers>,
    /// Turns samples into gradients.
    pub updater: Updater,
    /// Turns gradients into weights.
    pub optimizer: Box<dyn Optimizer<M>>,
    /// Schedule of the policy's learning rate; its first step is the first that moves the policy.
    pub schedule: Box<dyn LrSchedule>,
    /// What a resumed run needs, besides weights and optimizer.
    pub state: LearnerState,
    /// The current step.
    step: Step,
    /// The policy's learning rate in this step.
    lr: f64,
    /// [`LearnerState::loss_scale`] at the step's beginning.
    loss_scale_before: LossScale,
    mid_step: bool,
}

/// What a [`LocalLearner`] has found out about the device and the number format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LearnerState {
    /// Limits that the device's memory has set so far.
    #[serde(default)]
    pub oom_backoff: OomBackoff,
    /// Scale of the loss for matmuls in f16.
    #[serde(default)]
    pub loss_scale: LossScale,
}

impl<M: PolicyModel> LocalLearner<M> {
    /// Makes a learner without reference and critic. Its first step begins with [`Learner::begin_step`], which sets the
    /// learning rate.
    pub fn new(
        policy: M,
        updater: Updater,
        optimizer: Box<dyn Optimizer<M>>,
        schedule: Box<dyn LrSchedule>,
    ) -> Self {
        LocalLearner {
            policy,
            reference: None,
            critic: None,
            teachers: None,
            updater,
            optimizer,
            schedule,
            state: LearnerState::default(),
            step: 0,
            lr: 0.0,
            loss_scale_before: LossScale::default(),
            mid_step: false,
        }
    }

    /// Returns the loss scale for the policy's matmul precision.
    pub fn loss_scale(&self) -> f64 {
        self.state.loss_scale.of(self.policy.compute())
    }

    /// Returns true if a gradient that was not finite is to be computed again with a smaller loss scale.
    pub(crate) fn retry_with_smaller_scale(&mut self, outcome: &StepOutcome) -> bool {
        let scale = &mut self.state.loss_scale;
        if self.policy.compute() != Compute::F16 {
            return false;
        }

        if !outcome.skipped {
            scale.record_finite();
        }
        outcome.skipped && scale.record_overflow()
    }

    /// Returns the policy's learning rate in the current step. The policy's schedule begins where the
    /// critic's warm-up ends: counted from the first step, it could be over before the policy takes its first
    /// step.
    fn policy_lr(&self) -> Result<f64, TrainError> {
        if !self.trains_policy() {
            return Ok(0.0);
        }
        let warmup_steps = self.critic.as_ref().map_or(0, |critic| critic.config.warmup_steps);
        rate(&*self.schedule, self.step - 1 - warmup_steps, self.step)
    }

    /// Moves the critic after the policy was moved. Returns `None` if there is no critic.
    fn step_critic(
        &mut self,
        gradients: Option<GradientsParams>,
    ) -> Result<Option<(StepOutcome, f64)>, TrainError> {
        let Some((critic, gradients)) = self.critic.as_mut().zip(gradients) else {
            return Ok(None);
        };

        let lr = rate(&*critic.schedule, self.step - 1, self.step)?;
        let (model, outcome) = critic.optimizer.step(critic.model.clone(), gradients, lr)?;
        critic.model = model;
        Ok(Some((outcome, lr)))
    }

    /// Makes one update of the critic alone.
    fn warm_critic(&mut self, update: Update<LocalGradient>) -> Result<Applied, TrainError> {
        let (update, gradient) = update.take_gradient();
        let mid_step = mem::replace(&mut self.mid_step, true);
        let critic = self.step_critic(gradient.critic);

        // As with the policy, an update that fails or is skipped has moved nothing.
        if !matches!(&critic, Ok(Some((outcome, _))) if !outcome.skipped) {
            self.mid_step = mid_step;
        }

        let critic = critic?;
        let outcome = critic.map(|(outcome, _)| outcome).unwrap_or_default();
        let trained = Vec::new();
        Ok(Applied { update, outcome, critic, trained })
    }
}

impl<M: PolicyModel> LocalLearner<M> {
    /// Continues with the limits that an earlier process of the run has found.
    pub fn restore_oom_backoff(&mut self) {
        self.updater.micro_batching = self.state.oom_backoff.limit(self.updater.micro_batching);
        (0..self.state.oom_backoff.halvings).for_each(|_| _ = self.halve_chunks());
    }

    /// Halves the chunks of every model that samples pass through. Returns false if the policy has none to
    /// halve.
    fn halve_chunks(&mut self) -> bool {
        let LocalLearner { policy, reference, critic, teachers, .. } = self;
        let trunk = critic.as_mut().and_then(|critic| critic.model.trunk.as_mut());
        for model in [reference.as_mut(), trunk].into_iter().flatten() {
            model.halve_chunks();
        }
        if let Some(teachers) = teachers {
            teachers.halve_chunks();
        }

        policy.halve_chunks()
    }

    /// Does work that leaves the learner as it was. If the device has no memory for it, this and all later
    /// updates are split smaller, and the work is retried, with the same result.
    pub(crate) fn retry_on_oom<T>(
        &mut self,
        samples: &[Sample],
        work: impl Fn(&Self) -> Result<T, TrainError>,
    ) -> Result<T, TrainError> {
        loop {
            let error = match guard_memory(|| work(self)) {
                Ok(Err(error)) if error.is_out_of_memory() => error,
                Ok(result) => return result,
                Err(Failure { message, .. }) => TrainError::Device(message),
            };

            self.back_off(samples, error)?;
        }
    }

    /// Splits updates smaller, because an update of these samples failed with `error`.
    ///
    /// # Errors
    /// Returns `error` if nothing is left to cut.
    pub(crate) fn back_off(
        &mut self,
        samples: &[Sample],
        error: TrainError,
    ) -> Result<(), TrainError> {
        // Weights that the optimizer had no memory for can't be read either, however an update is split.
        for parameter in parameters(&self.policy) {
            read(parameter.values.sum())?;
        }

        let micro_batching = self.updater.micro_batching;
        let vocab = self.policy.head().dims()[0];
        let mut backoff = self.state.oom_backoff;
        if !backoff.back_off(micro_batching, samples, vocab, || self.halve_chunks()) {
            return Err(error);
        }

        self.state.oom_backoff = backoff;
        self.updater.micro_batching = backoff.limit(micro_batching);
        // Dropped tensors leave blocks of the old sizes, which are returned to the device.
        self.policy.device().memory_cleanup();
        Ok(())
    }
}

impl<M: PolicyModel> Learner for LocalLearner<M> {
    type Policy = M;
    type Gradient = LocalGradient;

    fn policy(&self) -> &M {
        &self.policy
    }

    fn vocab(&self) -> usize {
        self.policy.head().dims()[0]
    }

    fn begin_step(&mut self, step: Step) -> Result<f64, TrainError> {
        if self.updater.objective.needs_reference() && self.reference.is_none() {
            return Err(TrainError::NoReference);
        }

        self.step = step;
        self.loss_scale_before = self.state.loss_scale;
        self.lr = self.policy_lr()?;
        Ok(self.lr)
    }

    fn logprobs(&mut self, samples: &[Sample]) -> Result<Vec<Vec<f32>>, TrainError> {
        self.retry_on_oom(samples, |learner| learner.updater.logprobs(&learner.policy, samples))
    }

    fn logprobs_of(
        &mut self,
        update: &Update<LocalGradient>,
        samples: &[Sample],
    ) -> Result<Vec<Vec<f32>>, TrainError> {
        update.gradient.token_stats.logprobs(samples)
    }

    fn appraise(&mut self, samples: &mut [Sample]) -> Result<Metrics, TrainError> {
        let logprobs = self.retry_on_oom(samples, |learner| {
            let reference = learner.reference.as_ref();
            reference.map(|reference| learner.updater.logprobs(reference, samples)).transpose()
        })?;
        for (sample, logprobs) in samples.iter_mut().zip(logprobs.into_iter().flatten()) {
            sample.ref_logprobs = logprobs;
        }

        let values =
            self.retry_on_oom(samples, |LocalLearner { critic, updater, policy, .. }| {
                let critic = critic.as_ref();
                critic.map(|critic| updater.values(policy, &critic.model, samples)).transpose()
            })?;
        let mut metrics = Metrics::default();
        if let Some((critic, values)) = self.critic.as_ref().zip(values) {
            critic.config.gae.estimate_advantages(samples, values);
            metrics = value_metrics(samples);
        }

        let teacher_logprobs =
            self.retry_on_oom(samples, |LocalLearner { teachers, updater, policy, .. }| {
                let teachers = teachers.as_ref();
                teachers
                    .map(|teachers| teachers.teacher_logprobs(updater, policy, samples))
                    .transpose()
            })?;
        if let Some((teachers, teacher_logprobs)) = self.teachers.as_ref().zip(teacher_logprobs) {
            metrics.extend(teachers.teach(samples, teacher_logprobs.as_deref()));
        }
        Ok(metrics)
    }

    fn gradient(&mut self, samples: &[Sample]) -> Result<Update<LocalGradient>, TrainError> {
        let target = if self.trains_policy() { UpdateTarget::Policy } else { UpdateTarget::Critic };
        self.updater.loss_scale = self.loss_scale();

        let report = self.retry_on_oom(samples, |learner| {
            let LocalLearner { updater, policy, critic, teachers, .. } = learner;
            let teachers = teachers.as_ref().and_then(|it| it.distributions(policy.valid()));
            let teachers = teachers.as_ref().map(|it| it as &dyn TeacherDistributions);
            let aux = AuxModels { critic: critic.as_ref(), teachers };
            let report = updater.gradients_with(policy, aux, target, samples)?;
            // The gradient is checked here, because the critic is moved after the policy, when it is too late to
            // compute its gradient again.
            if let Some((critic, gradients)) = critic.as_ref().zip(report.critic_gradients.as_ref())
            {
                global_norm(&critic.model, gradients)?;
            }
            Ok(report)
        })?;

        Ok(Update {
            metrics: report.metrics,
            tokens: report.tokens,
            logprob_change: Some(report.logprob_change),
            entropy: Some(report.entropy),
            prompt_sharing: report.prompt_sharing,
            gradient: LocalGradient {
                policy: report.gradients,
                critic: report.critic_gradients,
                token_stats: report.token_stats,
            },
        })
    }

    fn apply(
        &mut self,
        update: Update<LocalGradient>,
        samples: &[Sample],
        token_stats: bool,
    ) -> Result<Applied, TrainError> {
        if !self.trains_policy() {
            return self.warm_critic(update);
        }

        let (update, gradient) = update.take_gradient();
        // The token statistics are read before anything moves.
        let trained = if token_stats {
            gradient.token_stats.read(samples)?
        } else {
            samples.iter().map(Sample::trained).collect()
        };

        // ANCHOR: tour
        let mid_step = mem::replace(&mut self.mid_step, true);
        let stepped = self.optimizer.step(self.policy.clone(), gradient.policy, self.lr);
        // Only reading the gradients' norm can fail, and it comes before anything has moved.
        if stepped.as_ref().map_or(true, |(_, outcome)| outcome.skipped) {
            self.mid_step = mid_step;
        }
        let (policy, outcome) = match stepped {
            // If a device could not compute a tensor, that shows when the tensor is read.
            Err(error) if error.is_out_of_memory() => {
                self.back_off(samples, error)?;
                let update = self.gradient(samples)?;
                return self.apply(update, samples, token_stats);
            }
            stepped => stepped?,
        };

        self.policy = policy;
        // ANCHOR_END: tour

        // With a smaller loss scale the same mini-batch is tried again.
        if self.retry_with_smaller_scale(&outcome) {
            let update = self.gradient(samples)?;
            return self.apply(update, samples, token_stats);
        }

        let critic = if outcome.skipped { None } else { self.step_critic(gradient.critic)? };
        Ok(Applied { update, outcome, critic, trained })
    }

    fn end_step(&mut self, done: bool) {
        if done {
            self.mid_step = false;
        } else if !self.mid_step {
            // The step is retried, so its counters are reset.
            self.state.loss_scale = self.loss_scale_before;
        }
    }

    fn is_mid_step(&self) -> bool {
        self.mid_step
    }

    fn is_interrupted(&self) -> bool {
        self.updater.interrupted.is_set()
    }

    fn estimates_advantages(&self) -> bool {
        self.critic.is_some()
    }

    fn trains_policy(&self) -> bool {
        // A step is counted from 1.
        self.critic.as_ref().is_none_or(|critic| self.step > critic.config.warmup_steps)
    }

    fn needs_whole_groups(&self) -> bool {
        self.updater.aggregation == Aggregation::PromptMean
    }

    fn has_low_precision(&self) -> bool {
        self.policy.compute() != Compute::F32
    }

    fn record_metrics(&self, metrics: &mut Metrics) {
        let layers = self.updater.micro_batching.layers_without_recompute.min(self.policy.layers());
        metrics.set("update/whole_layers", layers as f64);
    }
}

/// Gradients of a [`LocalLearner`]'s update.
#[derive(Default)]
pub struct LocalGradient {
    policy: GradientsParams,
    critic: Option<GradientsParams>,
    token_stats: TokenStats,
}
