//! `TokenStats`: what an update saw of each token.

use burn::tensor::Tensor;
use firebrick_core::Trained;

use crate::{error::TrainError, learner::optim::read, sample::Sample};

/// Log-probability and entropy of each token that the policy wrote, before an update. They stay on the device
/// until they are read.
#[derive(Default)]
pub struct TokenStats {
    /// Indices of a micro-batch's samples, with its log-probabilities and its entropies.
    pub(super) parts: Vec<(Vec<usize>, [Tensor<1>; 2])>,
}

impl TokenStats {
    /// Reads the log-probabilities of each sample's tokens, as [`Updater::logprobs`](super::Updater::logprobs) does.
    pub(crate) fn logprobs(&self, samples: &[Sample]) -> Result<Vec<Vec<f32>>, TrainError> {
        let mut by_sample = vec![Vec::new(); samples.len()];
        if self.parts.is_empty() {
            return Ok(by_sample);
        }

        let all = self.parts.iter().map(|(_, [logprobs, _])| logprobs.clone()).collect();
        let mut logprobs = read(Tensor::cat(all, 0))?.into_iter();

        for &index in self.parts.iter().flat_map(|(indices, _)| indices) {
            by_sample[index] = vec![0.0; samples[index].completion.len()];
            for (token, logprob) in samples[index].policy_tokens().zip(&mut logprobs) {
                by_sample[index][token] = logprob;
            }
        }

        Ok(by_sample)
    }

    /// Reads per-token ratios and entropies of each sample, in the order of `samples`. A ratio is that of the
    /// policy before the update to the policy that sampled the token. A sample that does not count has
    /// neither.
    ///
    /// # Errors
    /// When the device fails.
    pub fn read(self, samples: &[Sample]) -> Result<Vec<Trained>, TrainError> {
        let mut trained: Vec<Trained> = samples.iter().map(Sample::trained).collect();
        if self.parts.is_empty() {
            return Ok(trained);
        }

        let tensors = |which: usize| {
            Tensor::cat(self.parts.iter().map(|(_, stats)| stats[which].clone()).collect(), 0)
        };
        // One read-back for all numbers.
        let numbers = read(Tensor::cat(vec![tensors(0), tensors(1)], 0))?;
        let (logprobs, entropies) = numbers.split_at(numbers.len() / 2);

        let mut stats = logprobs.iter().zip(entropies);
        for &index in self.parts.iter().flat_map(|(indices, _)| indices) {
            let sample = &samples[index];
            let trained = &mut trained[index];
            trained.ratios = vec![0.0; sample.completion.len()];
            trained.entropies = trained.ratios.clone();
            for (token, (logprob, entropy)) in sample.policy_tokens().zip(&mut stats) {
                trained.ratios[token] = (logprob - sample.rollout_logprobs[token]).exp();
                trained.entropies[token] = *entropy;
            }
        }

        Ok(trained)
    }
}
