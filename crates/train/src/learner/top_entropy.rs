//! The tokens of the largest entropy, which alone have a policy loss if a recipe says so.

use burn::tensor::Tensor;
use firebrick_models::{PolicyModel, head_logprobs};

use crate::{
    error::TrainError,
    learner::{micro_batch::MicroBatch, update::Updater},
    sample::Sample,
};

impl Updater {
    /// Returns the samples with weights of 0 for all tokens that have no policy loss, because their entropy is not in the
    /// largest `share` ([`Updater::top_entropy_quantile`]).
    ///
    /// # Errors
    /// When the device fails.
    pub fn keep_top_entropy<M: PolicyModel>(
        &self,
        policy: &M,
        samples: &[Sample],
        share: f64,
    ) -> Result<Vec<Sample>, TrainError> {
        let entropy = |policy: &M, hidden: Tensor<2>, batch: &MicroBatch| {
            let head = policy.lm_head();
            let max_logits = self.micro_batching.max_logits;
            head_logprobs(&hidden, &head, &batch.labels, self.temperature, max_logits).entropy
        };
        let entropies = self.per_token(&policy.valid(), samples, false, entropy)?;

        let in_loss = samples.iter().zip(&entropies).filter(|(sample, _)| sample.in_loss);
        let of_tokens = in_loss
            .flat_map(|(sample, entropies)| sample.policy_tokens().map(|token| entropies[token]));
        let threshold = quantile(of_tokens.collect(), 1.0 - share);

        let mut chosen = samples.to_vec();
        for (sample, entropies) in chosen.iter_mut().zip(entropies) {
            if sample.importance.is_empty() {
                sample.importance = vec![1.0; sample.completion.len()];
            }
            for (weight, entropy) in sample.importance.iter_mut().zip(entropies) {
                if entropy < threshold {
                    *weight = 0.0;
                }
            }
        }
        Ok(chosen)
    }
}

/// Returns the number below which the share `q` of `values` lies, with a straight line between two neighbours (R's
/// type 7, the default of NumPy and PyTorch); −∞ without values.
fn quantile(mut values: Vec<f32>, q: f64) -> f32 {
    values.sort_by(f32::total_cmp);
    let position = q * values.len().saturating_sub(1) as f64;
    let below = position.floor() as usize;

    match (values.get(below), values.get(below + 1)) {
        (Some(&low), Some(&high)) => low + (position - below as f64) as f32 * (high - low),
        (Some(&last), None) => last,
        (None, _) => f32::NEG_INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_lies_on_the_line_between_its_neighbours() {
        // The upper 40 % begin at 0.6 · 4 = 2.4, four tenths of the way from 0.3 to 0.4.
        let values = || vec![0.5, 0.1, 0.3, 0.2, 0.4];
        assert!((quantile(values(), 0.6) - 0.34).abs() < 1e-6);
        assert_eq!([0.0, 0.5, 1.0].map(|q| quantile(values(), q)), [0.1, 0.3, 0.5]);
        assert_eq!(quantile(Vec::new(), 0.6), f32::NEG_INFINITY);
    }
}
