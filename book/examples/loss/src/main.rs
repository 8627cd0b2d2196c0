//! A policy loss and an advantage of one's own: REINFORCE with a truncated importance weight.

use std::path::Path;

use firebrick::{
    AdvantageEstimator, Advantages, PolicyLoss, Recipe, Result, RewardedGroup, Session,
    burn::tensor::Tensor,
    train::algorithm::{LossInput, LossOutput},
};

// ANCHOR: loss
/// The loss of each token is −min(ρ, cap) · A · log π, where ρ = π / π_old is held constant. A token that has
/// become much likelier than it was when it was drawn counts no more than `cap` times.
struct Reinforce {
    cap: f64,
}

impl PolicyLoss for Reinforce {
    fn loss(&self, input: &LossInput) -> LossOutput {
        let hidden = input.mask.clone().equal_elem(0.0);
        // Numbers behind the mask may be anything, infinities included.
        let shown = |x: &Tensor<2>| x.clone().mask_fill(hidden.clone(), 0.0);
        let logprobs = shown(&input.logprobs);
        let ratio = (logprobs.clone() - shown(&input.old_logprobs)).detach().exp();
        let capped = ratio.clone().greater_elem(self.cap).float();
        let weight = ratio.clamp_max(self.cap) * shown(&input.advantages);
        LossOutput {
            token_loss: (weight * logprobs).neg(),
            metrics: vec![("loss/capped_fraction", (capped * input.metric_weights.clone()).sum())],
        }
    }
}
// ANCHOR_END: loss

// ANCHOR: baseline
/// The advantage is the reward less the mean of the step, whatever was asked.
struct Baseline;

impl AdvantageEstimator for Baseline {
    fn advantages(&self, groups: &[RewardedGroup]) -> Vec<Advantages> {
        let rewards: Vec<f32> = groups.iter().flat_map(RewardedGroup::shaped_rewards).collect();
        let mean = rewards.iter().sum::<f32>() / rewards.len().max(1) as f32;
        let of_group =
            |group: &RewardedGroup| group.shaped_rewards().map(|reward| reward - mean).collect();
        groups.iter().map(|group| Advantages::PerCompletion(of_group(group))).collect()
    }
}
// ANCHOR_END: baseline

// ANCHOR: main
fn session(runs: &Path) -> Result<Session> {
    let recipe = Recipe::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../addition.toml"))?;
    let session = Session::new(recipe).name("reinforce").runs(runs);
    Ok(session.loss(Reinforce { cap: 2.0 }).advantage(Baseline))
}

fn main() -> Result<()> {
    let heldout = session(Path::new("runs"))?.run()?.summary.heldout;
    println!("held-out accuracy after SFT {:?}", heldout.after_sft);
    println!("                  after REINFORCE   {:?}", heldout.r#final);
    Ok(())
}
// ANCHOR_END: main

#[cfg(test)]
mod tests {
    use super::*;
    use firebrick::{Completion, Group, Prompt, Reward, Score, burn::tensor::Device};

    #[test]
    fn an_advantage_is_the_reward_above_the_mean_of_the_step() {
        let group = |rewards: [f32; 2]| {
            let reward = |reward| Reward {
                score: Score::wrong(""),
                base_reward: reward,
                reward,
                in_loss: true,
            };
            let completions = vec![Completion::of_text(""); 2];
            let group = Group { prompt: Prompt::default(), completions, step: 0, draw: 0 };
            RewardedGroup { group: group.into(), rewards: rewards.map(reward).to_vec() }
        };
        let found = Baseline.advantages(&[group([1.0, 1.0]), group([1.0, -1.0])]);
        let expected = [[0.5, 0.5], [0.5, -1.5]];
        assert_eq!(found, expected.map(|of_group| Advantages::PerCompletion(of_group.to_vec())));
    }

    #[test]
    fn the_loss_and_its_gradient_are_those_of_the_formula() {
        let device = Device::flex().autodiff();
        let row = |values: [f32; 3]| Tensor::<2>::from_data([values], &device);
        let logprobs = row([-1.0, -1.0, f32::NEG_INFINITY]).require_grad();
        // ρ is e^0.5 = 1.6487, and e^2 = 7.389, which is capped.
        let old_logprobs = row([-1.5, -3.0, 0.0]);
        let (advantages, mask) = (row([1.0, -1.0, f32::NAN]), row([1.0, 1.0, 0.0]));
        let input = LossInput::new(logprobs.clone(), old_logprobs, advantages, mask);
        let output = Reinforce { cap: 2.0 }.loss(&input);
        let close = |found: Tensor<2>, expected: [f32; 3]| {
            let found = found.try_into_vec_as::<f32>().unwrap();
            let near = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-4;
            assert!(found.iter().zip(&expected).all(near), "{found:?}, expected {expected:?}");
        };
        close(output.token_loss.clone(), [1.6487, -2.0, 0.0]);
        // d/dlogπ of −w·A·logπ is −w·A.
        let gradients = output.token_loss.sum().backward();
        close(Tensor::from_inner(logprobs.grad(&gradients).unwrap()), [-1.6487, 2.0, 0.0]);
        let capped = output.metrics[0].1.clone().into_scalar::<f32>();
        assert_eq!((output.metrics[0].0, capped), ("loss/capped_fraction", 0.5));
    }
}
