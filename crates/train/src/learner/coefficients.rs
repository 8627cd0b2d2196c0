//! A loss without a model: from the log-probabilities of tokens to the weight of each token's gradient.

use burn::tensor::{Device, Tensor, TensorData};
use firebrick_core::Metrics;

use crate::{
    algorithm::loss::ENTROPY,
    error::TrainError,
    learner::{
        LogprobChange,
        micro_batch::Layout,
        optim::read,
        update::{BatchLoss, UpdateMetrics, Updater},
    },
    sample::Sample,
};

/// What the loss of an update says of each token.
///
/// A loss L of log-probabilities alone has the gradient Σ ∂L/∂log pₜ · ∇log pₜ. So whoever computes log-probabilities
/// and their gradients can make the update without knowing the loss: a step uphill along Σ cₜ · ∇log pₜ, with cₜ =
/// −∂L/∂log pₜ.
#[derive(Clone, Debug, Default)]
pub struct Coefficients {
    /// The log-probabilities that the loss was evaluated at, one list per sample. The number is 0 for a token that the
    /// policy did not write, and the list empty for a sample that does not count.
    pub logprobs: Vec<Vec<f32>>,
    /// cₜ of each completion token, in lists as those of `logprobs`.
    pub of_tokens: Vec<Vec<f32>>,
    /// `loss/…` means over the update's tokens. The entropy is not among them, because log-probabilities of the tokens
    /// that were drawn do not tell it.
    pub metrics: Metrics,
    /// How far the policy is from the old policy.
    pub logprob_change: LogprobChange,
    /// Tokens that counted.
    pub tokens: usize,
}

impl Coefficients {
    /// Returns true if every number is finite.
    pub(crate) fn are_finite(&self) -> bool {
        self.of_tokens.iter().flatten().all(|number| number.is_finite())
    }
}

impl Updater {
    /// Evaluates the loss of `samples` as one update, from the log-probabilities of their completion tokens, which
    /// [`Updater::logprobs`] describes. It is computed on `device`. Parts of a loss that need more than
    /// log-probabilities are left out: the entropy bonus, the load-balancing loss, the choice of tokens by entropy.
    ///
    /// # Errors
    /// When the device fails.
    ///
    /// # Panics
    /// If a list of log-probabilities is shorter than its completion, and the sample counts.
    pub fn coefficients(
        &self,
        samples: &[Sample],
        logprobs: Vec<Vec<f32>>,
        device: &Device,
    ) -> Result<Coefficients, TrainError> {
        let divisors = self.divisors(samples);
        let mut of_tokens = vec![Vec::new(); samples.len()];
        let mut metrics = UpdateMetrics::default();

        for indices in self.micro_batches(samples, Layout::Packed, true) {
            self.check_interrupted()?;
            let batch = self.batch(samples, &indices, Layout::Packed, &divisors, device);
            let written = indices
                .iter()
                .flat_map(|&index| samples[index].policy_tokens().map(move |token| (index, token)));
            let values: Vec<f32> = written.map(|(index, token)| logprobs[index][token]).collect();
            let count = values.len();
            let values =
                Tensor::from_data(TensorData::new(values, [count]), &device.clone().inner());

            let unknown = values.zeros_like();
            let loss = BatchLoss::new(&self.objective, &batch, [values.clone(), unknown]);
            let [d_logprobs, _] = loss.gradients(&batch);
            let uphill = d_logprobs.unwrap_or_else(|| values.zeros_like()).neg();
            metrics.add(loss.into_metrics(&batch));

            let mut uphill = read(uphill)?.into_iter();
            for index in indices {
                let sample = &samples[index];
                let mut numbers = vec![0.0; sample.completion.len()];
                for (token, number) in sample.policy_tokens().zip(&mut uphill) {
                    numbers[token] = number;
                }
                of_tokens[index] = numbers;
            }
        }

        let (mut metrics, logprob_change) = metrics.read()?;
        metrics.0.remove(ENTROPY);
        let tokens = divisors.tokens as usize;
        Ok(Coefficients { logprobs, of_tokens, metrics, logprob_change, tokens })
    }
}
