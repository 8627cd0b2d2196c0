//! Generalised advantage estimation from a critic's values, and whitening of advantages.

use crate::sample::{Sample, TokenValues};

/// Generalised advantage estimation (Schulman et al. 2016): from a critic's values to one advantage
/// per token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gae {
    /// γ, in [0, 1]: what a reward is worth one token earlier.
    pub gamma: f64,
    /// λ, in [0, 1]. At 1 an advantage is the actual rewards minus the expected rewards. At 0 it considers one
    /// token ahead and relies on the critic after it.
    pub lambda: f64,
    /// True if the advantages of a step are shifted and scaled to mean 0 and variance 1.
    pub normalise: bool,
}

impl Gae {
    /// Computes the advantages, not normalised, and the returns of one completion. `rewards` and `values`
    /// have one number for each of its tokens.
    ///
    /// δ_t = r_t + γ V_{t+1} − V_t, A_t = δ_t + γλ A_{t+1}, R_t = A_t + V_t. After the last token, value and
    /// advantage are 0, even if the limit cut the completion off.
    pub fn estimate(&self, rewards: &[f32], values: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let mut advantages = vec![0.0; values.len()];
        let mut returns = vec![0.0; values.len()];
        let mut next_value = 0.0;
        let mut next_advantage = 0.0;

        for token in (0..values.len()).rev() {
            let value = f64::from(values[token]);
            let error = f64::from(rewards[token]) + self.gamma * next_value - value;
            next_advantage = error + self.gamma * self.lambda * next_advantage;
            next_value = value;
            advantages[token] = next_advantage as f32;
            returns[token] = (next_advantage + value) as f32;
        }

        (advantages, returns)
    }

    /// Estimates the advantages of a step's samples, from the critic's values of their tokens. The reward is
    /// paid for the last token that the policy wrote. Tokens that the policy did not write take no step in
    /// time. A completion that does not count has no values, and is not part of the normalisation.
    pub(crate) fn estimate_advantages(&self, samples: &mut [Sample], values: Vec<Vec<f32>>) {
        for (sample, values) in samples.iter_mut().zip(values) {
            if sample.loss_tokens() == 0 {
                continue;
            }

            let indices: Vec<usize> = sample.policy_tokens().collect();
            let policy_values: Vec<f32> = indices.iter().map(|&index| values[index]).collect();
            let mut rewards = vec![0.0; indices.len()];
            if let Some(last) = rewards.last_mut() {
                *last = sample.reward;
            }

            let (advantages, policy_returns) = self.estimate(&rewards, &policy_values);
            let mut returns = vec![0.0; values.len()];
            let estimates = advantages.into_iter().zip(policy_returns);
            for (&index, (advantage, value)) in indices.iter().zip(estimates) {
                (sample.advantages[index], returns[index]) = (advantage, value);
            }

            sample.token_values = Some(TokenValues { values, returns });
        }

        if self.normalise {
            let counted = samples.iter_mut().filter(|sample| sample.token_values.is_some());
            whiten(counted.flat_map(|sample| {
                let tokens = sample.advantages.iter_mut().zip(&sample.mask);
                tokens.filter(|(_, by_policy)| **by_policy).map(|(advantage, _)| advantage)
            }));
        }
    }
}

/// Turns every advantage A into (A − mean) / √(variance + 1e-8) over all tokens, with the unbiased variance.
/// A lone token becomes 0.
pub fn whiten<'a>(tokens: impl Iterator<Item = &'a mut f32>) {
    let tokens: Vec<&mut f32> = tokens.collect();
    let count = tokens.len() as f64;
    let mean = tokens.iter().map(|token| f64::from(**token)).sum::<f64>() / count;
    let squares: f64 = tokens.iter().map(|token| (f64::from(**token) - mean).powi(2)).sum();
    let variance = squares / (count - 1.0).max(1.0);
    let scale = 1.0 / (variance + 1e-8).sqrt();

    for token in tokens {
        *token = ((f64::from(*token) - mean) * scale) as f32;
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::{Completion, FinishReason};

    use super::*;

    fn sample(tokens: usize, reward: f32, in_loss: bool) -> Sample {
        let completion =
            Completion::written(vec![0; tokens], vec![0.0; tokens], FinishReason::Stop);
        let mut sample = Sample::new(&[0], &completion, 0);
        (sample.reward, sample.in_loss) = (reward, in_loss);
        sample
    }

    #[test]
    fn the_reward_is_paid_at_the_end_and_only_for_what_counts() {
        let gae = Gae { gamma: 0.5, lambda: 1.0, normalise: false };
        let mut samples = [sample(3, 2.0, true), sample(2, 9.0, false)];
        gae.estimate_advantages(&mut samples, vec![vec![0.25, 0.0, 1.0], Vec::new()]);

        // λ is 1, so a return is the discounted reward, and each value changes the advantage of its own token
        // alone.
        assert_eq!(samples[0].token_values.as_ref().unwrap().returns, [0.5, 1.0, 2.0]);
        assert_eq!(samples[0].advantages, [0.25, 1.0, 1.0]);
        assert_eq!(samples[1].token_values, None);
    }

    #[test]
    fn tokens_that_the_policy_did_not_write_take_no_time() {
        let gae = Gae { gamma: 0.5, lambda: 1.0, normalise: false };
        let mut turns = Completion::written(vec![1, 2], vec![0.0; 2], FinishReason::Stop);
        turns.observe(&[8, 9]);
        turns.write(&[3], &[0.0]);
        let mut samples = [Sample::new(&[0], &turns, 0)];
        samples[0].reward = 2.0;

        // The policy did not write the third and the fourth token, so their values are never read.
        gae.estimate_advantages(&mut samples, vec![vec![0.25, 0.0, 50.0, 50.0, 1.0]]);
        assert_eq!(samples[0].advantages, [0.25, 1.0, 0.0, 0.0, 1.0]);
        assert_eq!(samples[0].token_values.as_ref().unwrap().returns, [0.5, 1.0, 0.0, 0.0, 2.0]);
    }

    #[test]
    fn normalising_takes_the_step_as_one_and_a_lone_token_is_nothing() {
        let gae = Gae { gamma: 1.0, lambda: 1.0, normalise: true };
        let mut samples = [sample(1, 3.0, true), sample(2, -1.0, true), sample(1, 7.0, false)];
        gae.estimate_advantages(&mut samples, vec![vec![0.0], vec![0.0, 0.0], Vec::new()]);
        let all: Vec<f32> =
            samples.iter().flat_map(|sample| sample.advantages.clone()).take(3).collect();

        let expected = [2.0 / 3.0f32.sqrt(), -1.0 / 3.0f32.sqrt(), -1.0 / 3.0f32.sqrt()];
        assert!(all.iter().zip(expected).all(|(all, want)| (all - want).abs() < 1e-6), "{all:?}");
        let mut alone = [sample(1, 3.0, true)];
        gae.estimate_advantages(&mut alone, vec![vec![0.5]]);
        assert_eq!(alone[0].advantages, [0.0]);
    }
}
