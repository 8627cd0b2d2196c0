//! `RunLearner`: what a run asks of its learner besides steps. A policy of this process has one, and a policy on a
//! server another.

use std::path::Path;

use burn::tensor::Device;
use firebrick_core::SftExample;
use firebrick_models::PolicyModel;
use firebrick_train::{
    Learner, LocalLearner, TrainError, TrainerState,
    checkpoint::{save_state, save_trainer},
    learner::{
        OomBackoff, RemoteLearner, RemotePolicy, StepOutcome, Updater, check_finite, fingerprint,
    },
};

use super::critic::CriticPlan;

/// A learner that a run can prepare, teach by examples, and keep in checkpoints.
pub trait RunLearner: Learner<Policy: 'static> + Sized {
    /// Returns a number that different weights have not in common; `None` if there is none. It is the same in another
    /// process of the run.
    fn fingerprint(policy: &Self::Policy) -> Option<[u8; 32]>;

    /// Returns the policy, as the last update left it.
    fn into_policy(self) -> Self::Policy;

    /// Returns the loss of its updates.
    fn updater(&self) -> &Updater;

    /// Returns the loss of its updates, to change it.
    fn updater_mut(&mut self) -> &mut Updater;

    /// Returns the device that computes.
    fn device(&self) -> Device;

    /// Returns the policy without what only training needs.
    fn frozen_policy(&self) -> Self::Policy;

    /// Sets the policy of a KL penalty.
    fn set_reference(&mut self, reference: Self::Policy);

    /// Begins with a critic, if there is to be one and there is none yet.
    fn begin_critic(&mut self, plan: Option<&CriticPlan>) {
        let _ = plan;
    }

    /// Makes one supervised step, and returns its loss.
    ///
    /// # Errors
    /// When the device fails, or the step is interrupted before anything was moved.
    fn sft_step(
        &mut self,
        examples: &[SftExample],
        lr: f64,
    ) -> Result<(f64, StepOutcome), TrainError>;

    /// Forgets what the optimizer has learnt from supervised steps, as far as that can be done.
    fn end_sft(&mut self) {}

    /// Fails if the weights are not finite numbers.
    ///
    /// # Errors
    /// If they are not, or can't be read.
    fn check(&self) -> Result<(), TrainError> {
        Ok(())
    }

    /// Writes the trainer's state and the learner's into `folder`.
    ///
    /// # Errors
    /// When a file can't be written.
    fn save(&self, folder: &Path, state: &TrainerState) -> Result<(), TrainError>;

    /// Returns the limits that the device's memory has set so far.
    fn limits(&self) -> OomBackoff {
        OomBackoff::default()
    }

    /// Continues with the limits of an earlier process, or forgets them.
    fn restore_limits(&mut self, forget: bool) {
        let _ = forget;
    }
}

impl<M: PolicyModel> RunLearner for LocalLearner<M> {
    fn fingerprint(policy: &M) -> Option<[u8; 32]> {
        fingerprint(policy).ok()
    }

    fn into_policy(self) -> M {
        self.policy
    }

    fn updater(&self) -> &Updater {
        &self.updater
    }

    fn updater_mut(&mut self) -> &mut Updater {
        &mut self.updater
    }

    fn device(&self) -> Device {
        self.policy.device()
    }

    fn frozen_policy(&self) -> M {
        self.policy.valid()
    }

    fn set_reference(&mut self, reference: M) {
        self.reference = Some(reference);
    }

    fn begin_critic(&mut self, plan: Option<&CriticPlan>) {
        if let (None, Some(plan)) = (&self.critic, plan) {
            self.critic = Some(plan.new_critic(&self.policy));
        }
    }

    fn sft_step(
        &mut self,
        examples: &[SftExample],
        lr: f64,
    ) -> Result<(f64, StepOutcome), TrainError> {
        LocalLearner::sft_step(self, examples, lr)
    }

    fn end_sft(&mut self) {
        // Adam's moments of supervised gradients do not tell the scale of policy gradients.
        self.optimizer.reset();
    }

    fn check(&self) -> Result<(), TrainError> {
        check_finite(&self.policy)?;
        self.critic.as_ref().map_or(Ok(()), |critic| check_finite(&critic.model))
    }

    fn save(&self, folder: &Path, state: &TrainerState) -> Result<(), TrainError> {
        save_state(folder, state, &self.state, self.optimizer.as_ref())?;
        self.critic.as_ref().map_or(Ok(()), |critic| critic.save(folder))
    }

    fn limits(&self) -> OomBackoff {
        self.state.oom_backoff
    }

    fn restore_limits(&mut self, forget: bool) {
        if forget {
            self.state.oom_backoff = OomBackoff::default();
        }
        self.restore_oom_backoff();
    }
}

impl<P: RemotePolicy + Clone + 'static> RunLearner for RemoteLearner<P> {
    fn fingerprint(policy: &P) -> Option<[u8; 32]> {
        policy.fingerprint()
    }

    fn into_policy(self) -> P {
        self.policy
    }

    fn updater(&self) -> &Updater {
        &self.updater
    }

    fn updater_mut(&mut self) -> &mut Updater {
        &mut self.updater
    }

    fn device(&self) -> Device {
        self.loss_device().clone()
    }

    fn frozen_policy(&self) -> P {
        self.policy.clone()
    }

    fn set_reference(&mut self, reference: P) {
        self.reference = Some(reference);
    }

    fn sft_step(
        &mut self,
        examples: &[SftExample],
        lr: f64,
    ) -> Result<(f64, StepOutcome), TrainError> {
        RemoteLearner::sft_step(self, examples, lr)
    }

    fn save(&self, folder: &Path, state: &TrainerState) -> Result<(), TrainError> {
        save_trainer(folder, state, &())
    }
}
