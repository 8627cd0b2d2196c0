//! Supervised fine-tuning (SFT), which prepares a policy for reinforcement learning.

use burn::tensor::Tensor;
use firebrick_core::{Completion, FinishReason, SftExample};
use firebrick_models::PolicyModel;

use crate::{
    algorithm::loss::{LossInput, LossOutput, Objective, PolicyLoss},
    error::TrainError,
    learner::{
        local::LocalLearner,
        micro_batch::MicroBatching,
        optim::{Optimizer, StepOutcome},
        update::Updater,
    },
    sample::Sample,
};

/// Makes one supervised step: cross-entropy of the completions, averaged over their tokens.
///
/// This is the cold start: a policy that never answers right has no group with spread, and nothing to learn
/// from. The step is the same update as DAPO's, with another loss.
///
/// # Errors
/// When the device fails.
pub fn sft_step<M: PolicyModel>(
    policy: M,
    optimizer: &mut dyn Optimizer<M>,
    examples: &[SftExample],
    lr: f64,
    micro_batching: MicroBatching,
) -> Result<(M, f64, StepOutcome), TrainError> {
    let (policy, report, outcome) =
        updater(micro_batching).step(policy, optimizer, &samples(examples), lr)?;
    Ok((policy, report.loss, outcome))
}

impl<M: PolicyModel> LocalLearner<M> {
    /// Makes one [`sft_step`] of the policy, and returns its loss. If the device has no memory for the step,
    /// it is split smaller, like an update.
    ///
    /// # Errors
    /// When the device fails, or the step is interrupted before anything was moved.
    pub fn sft_step(
        &mut self,
        examples: &[SftExample],
        lr: f64,
    ) -> Result<(f64, StepOutcome), TrainError> {
        let samples = samples(examples);
        loop {
            let report = self.retry_on_oom(&samples, |learner| {
                let mut updater = updater(learner.updater.micro_batching);
                updater.interrupted = learner.updater.interrupted.clone();
                updater.loss_scale = learner.loss_scale();
                updater.gradients(&learner.policy, &samples)
            })?;

            match self.optimizer.step(self.policy.clone(), report.gradients, lr) {
                Err(error) if error.is_out_of_memory() => self.back_off(&samples, error)?,
                stepped => {
                    let (policy, outcome) = stepped?;
                    self.policy = policy;

                    if self.retry_with_smaller_scale(&outcome) {
                        continue;
                    }
                    return Ok((report.loss, outcome));
                }
            }
        }
    }
}

pub(super) fn updater(micro_batching: MicroBatching) -> Updater {
    Updater { micro_batching, ..Updater::new(Objective::new(Box::new(CrossEntropy))) }
}

pub(super) fn samples(examples: &[SftExample]) -> Vec<Sample> {
    let sample = |example: &SftExample| {
        let tokens = example.completion.clone();
        let logprobs = vec![0.0; tokens.len()];
        let mut completion = Completion::written(tokens, logprobs, FinishReason::Stop);
        completion.mask.clone_from(&example.mask);
        Sample::new(&example.prompt, &completion, 0).with_advantage(1.0)
    };
    examples.iter().map(sample).collect()
}

/// Loss −log p of each token: supervised learning as a policy loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrossEntropy;

impl PolicyLoss for CrossEntropy {
    fn loss(&self, input: &LossInput) -> LossOutput {
        let token_loss: Tensor<2> = input.logprobs.clone().neg() * input.mask.clone();
        LossOutput { token_loss, metrics: Vec::new() }
    }
}
