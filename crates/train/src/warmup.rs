use burn::tensor::Tensor;
use firebrick_core::{Completion, FinishReason, WorkedExample};
use firebrick_models::PolicyModel;

use crate::{
    Aggregation, Cut, LossInput, LossOutput, Objective, Optimizer, PolicyLoss, Sample, StepOutcome,
    TrainError, Updater,
};

/// One supervised step: cross-entropy of the completions, averaged over their tokens.
///
/// Cold start: a policy that never answers right has no group with spread, and nothing to learn
/// from. The step runs through the same update as DAPO's; only the loss is another.
///
/// # Errors
/// When the device fails.
pub fn warmup_step<M: PolicyModel>(
    policy: M,
    optimizer: &mut dyn Optimizer<M>,
    examples: &[WorkedExample],
    lr: f64,
    cut: Cut,
) -> Result<(M, f64, StepOutcome), TrainError> {
    let samples: Vec<Sample> = examples
        .iter()
        .map(|example| {
            let tokens = example.completion.clone();
            let logprobs = vec![0.0; tokens.len()];
            let completion = Completion::written(tokens, logprobs, FinishReason::Stop);
            Sample::new(&example.prompt, &completion, 0).with_advantage(1.0)
        })
        .collect();
    let updater = Updater {
        objective: Objective { policy: Box::new(CrossEntropy), entropy_coef: 0.0, kl: None },
        aggregation: Aggregation::TokenMean,
        constant_length: 1,
        temperature: 1.0,
        cut,
    };
    let (policy, report, outcome) = updater.step(policy, optimizer, &samples, lr)?;
    Ok((policy, report.loss, outcome))
}

/// −log p of each token: supervised learning as a policy loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrossEntropy;

impl PolicyLoss for CrossEntropy {
    fn loss(&self, input: &LossInput) -> LossOutput {
        let token_loss: Tensor<2> = input.logprobs.clone().neg() * input.mask.clone();
        LossOutput { token_loss, metrics: Vec::new() }
    }
}
