//! DAPO in plain numbers: the formulas of the chapter, compared with the program's own.

#![allow(clippy::print_stdout, reason = "an example talks")]

// ANCHOR: reward
/// Computes the base reward of a credit between 0 and 1: -1 for wrong, 1 for right.
fn base_reward(credit: f64) -> f64 {
    let (wrong, right) = (-1.0, 1.0);
    wrong + (right - wrong) * credit
}
// ANCHOR_END: reward

// ANCHOR: overlong
/// Computes the soft overlong punishment: 0 up to `limit - buffer` tokens, then a straight line to -1 at
/// `limit`.
fn overlong(length: usize, limit: usize, buffer: usize) -> f64 {
    let excess = length as f64 - (limit - buffer) as f64;
    -(excess / buffer as f64).clamp(0.0, 1.0)
}
// ANCHOR_END: overlong

// ANCHOR: keep
/// Tells whether a group has something to teach: its rewards are not all the same.
fn has_spread(rewards: &[f64]) -> bool {
    let most = rewards.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let least = rewards.iter().copied().fold(f64::INFINITY, f64::min);
    most - least > 1e-6
}
// ANCHOR_END: keep

// ANCHOR: advantage
/// Computes how much better than its group each completion did, in standard deviations.
fn advantages(rewards: &[f64]) -> Vec<f64> {
    if !has_spread(rewards) {
        return vec![0.0; rewards.len()];
    }
    let count = rewards.len() as f64;
    let mean = rewards.iter().sum::<f64>() / count;
    let squares: f64 = rewards.iter().map(|reward| (reward - mean).powi(2)).sum();
    let deviation = (squares / (count - 1.0)).sqrt();
    rewards.iter().map(|reward| (reward - mean) / (deviation + 1e-6)).collect()
}
// ANCHOR_END: advantage

// ANCHOR: token
/// Computes the loss of one token, from its log-probability now and when it was sampled.
fn token_loss(now: f64, then: f64, advantage: f64) -> f64 {
    let (clip_low, clip_high) = (0.2, 0.28);
    let ratio = (now - then).clamp(-20.0, 20.0).exp();
    let clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high);
    -(ratio * advantage).min(clipped * advantage)
}
// ANCHOR_END: token

// ANCHOR: update
/// One completion of an update.
struct Completion {
    /// One log-probability per token, under the policy as it is now.
    now: Vec<f64>,
    /// One log-probability per token, under the policy that sampled it.
    then: Vec<f64>,
    advantage: f64,
}

/// Computes the loss of an optimizer update: the mean over the tokens of all completions.
fn update_loss(completions: &[Completion]) -> f64 {
    let tokens: usize = completions.iter().map(|completion| completion.now.len()).sum();
    let losses = completions.iter().flat_map(|Completion { now, then, advantage }| {
        now.iter().zip(then).map(|(&now, &then)| token_loss(now, then, *advantage))
    });
    losses.sum::<f64>() / tokens as f64
}
// ANCHOR_END: update

fn main() {
    // Four answers to one question: one right, and one right but nearly too long.
    let base = [1.0, 1.0, 0.0, 0.0].map(base_reward);
    let lengths = [12, 30, 9, 14];
    println!("keep the group: {}", has_spread(&base));

    let rewards: Vec<f64> =
        base.iter().zip(lengths).map(|(reward, length)| reward + overlong(length, 32, 8)).collect();
    let advantages = advantages(&rewards);
    println!("rewards         {rewards:.3?}");
    println!("advantages      {advantages:.3?}");

    // Before the first update of a step the policy is the one that sampled: every ratio is 1.
    let completions: Vec<Completion> = advantages
        .iter()
        .zip(lengths)
        .map(|(&advantage, length)| Completion {
            now: vec![-0.5; length],
            then: vec![-0.5; length],
            advantage,
        })
        .collect();
    println!("loss            {:.4}", update_loss(&completions));
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Tensor, TensorData};
    use firebrick_core::{RewardScale, Score, Verdict};
    use firebrick_reward::soft_overlong_penalty;
    use firebrick_train::algorithm::{
        Aggregation, ClipRange, Dapo, Divisors, GroupNorm, LossInput, PolicyLoss as _,
    };

    use super::*;

    fn close(came: f64, expected: f64) {
        assert!((came - expected).abs() < 1e-5, "{came} is not {expected}");
    }

    #[test]
    fn the_base_reward_is_the_programs() {
        let scale = RewardScale { right: 1.0, wrong: -1.0 };
        for credit in [0.0, 0.25, 1.0] {
            let score = Score::partial(Verdict::Wrong, credit, "");
            close(base_reward(credit.into()), scale.reward(score).base_reward.into());
        }
    }

    #[test]
    fn overlong_is_the_programs() {
        for length in 0..100 {
            close(overlong(length, 64, 16), soft_overlong_penalty(length, 64, 16, 1.0));
        }
    }

    #[test]
    fn advantages_are_the_programs() {
        for rewards in [[1.0, -1.0, -1.0, -1.0], [0.3, 0.3, 0.3, 0.3], [1.0, 0.5, 0.25, -1.0]] {
            let theirs = GroupNorm::default().of_group(&rewards.map(|reward| reward as f32));
            for (ours, theirs) in advantages(&rewards).into_iter().zip(theirs) {
                close(ours, theirs.into());
            }
        }
    }

    #[test]
    fn the_loss_is_the_programs() {
        let completion = |shift: f64, advantage, length: usize| {
            let then: Vec<f64> = (0..length).map(|token| -0.1 * token as f64 - 0.2).collect();
            let now = then.iter().map(|then| then + shift * (then + 0.4)).collect();
            Completion { now, then, advantage }
        };

        let completions =
            [completion(0.9, 1.2, 5), completion(-2.0, -0.7, 3), completion(1.5, -1.1, 5)];
        let divisors =
            Divisors::count(completions.iter().map(|completion| (0, completion.now.len())));

        // Three rows of up to five tokens, padded with 0.
        let tensor = |value: &dyn Fn(&Completion, usize) -> f64| {
            let cell = |completion: &Completion, token| {
                if token < completion.now.len() { value(completion, token) as f32 } else { 0.0 }
            };
            let values: Vec<f32> = completions
                .iter()
                .flat_map(|row| (0..5).map(move |token| cell(row, token)))
                .collect();
            Tensor::<2>::from_data(TensorData::new(values, [3, 5]), &Device::flex())
        };

        let weights = tensor(&|completion, _| {
            divisors.token_weight(Aggregation::TokenMean, 0, completion.now.len())
        });
        let input = LossInput::new(
            tensor(&|completion, token| completion.now[token]),
            tensor(&|completion, token| completion.then[token]),
            tensor(&|completion, _| completion.advantage),
            tensor(&|_, _| 1.0),
        );

        let dapo = Dapo { clip: ClipRange { low: 0.2, high: 0.28 }, dual_clip: None };
        let loss = (dapo.loss(&input).token_loss * weights).sum().into_scalar::<f32>();
        close(update_loss(&completions), loss.into());
    }
}
