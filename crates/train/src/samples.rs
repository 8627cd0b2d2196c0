//! Turns the groups that a step trains on into samples.

use std::borrow::Cow;

use firebrick_core::{AdvantageEstimator, Advantages, Metrics, Reward, RewardedGroup};

use crate::{Sample, TrainError};

/// Makes one sample per completion. Without an estimator the advantages are 0 until a critic gives them.
pub(crate) fn samples_of(
    groups: &[RewardedGroup],
    estimator: Option<&dyn AdvantageEstimator>,
) -> Result<Vec<Sample>, TrainError> {
    let mut samples = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        // The group's number is its place and not its draw, because the copy of a group is a group of its
        // own.
        let sample = |completion| Sample::new(&group.group.prompt.tokens, completion, index as u64);
        let completions = group.group.completions.iter().map(sample).zip(&group.rewards);
        samples.extend(completions.enumerate().map(|(place, (mut sample, reward))| {
            (sample.place, sample.reward, sample.in_loss) = (place, reward.reward, reward.in_loss);
            sample
        }));
    }
    let Some(estimator) = estimator else { return Ok(samples) };
    // A completion without a verdict has no reward that the others could be compared with.
    let whole = groups.iter().flat_map(|group| &group.rewards).all(Reward::is_judged);
    let judged: Cow<'_, [RewardedGroup]> = match whole {
        true => groups.into(),
        false => groups.iter().map(RewardedGroup::judged).collect::<Vec<_>>().into(),
    };
    let given = estimator.advantages(&judged);
    expect("groups", groups.len(), given.len())?;
    let verdicts = groups.iter().flat_map(|group| &group.rewards).map(Reward::is_judged);
    let mut left =
        samples.iter_mut().zip(verdicts).filter(|(_, judged)| *judged).map(|pair| pair.0);
    for (advantages, group) in given.into_iter().zip(&*judged) {
        let own = left.by_ref().take(group.rewards.len());
        match advantages {
            Advantages::PerCompletion(numbers) => {
                expect("completions of a group", group.rewards.len(), numbers.len())?;
                for (sample, number) in own.zip(numbers) {
                    sample.advantages.fill(number);
                }
            }
            Advantages::PerToken(lists) => {
                expect("lists of tokens of a group", group.rewards.len(), lists.len())?;
                for (sample, numbers) in own.zip(lists) {
                    expect("tokens of a completion", sample.completion.len(), numbers.len())?;
                    sample.advantages = numbers;
                }
            }
        }
    }
    Ok(samples)
}

fn expect(what: &'static str, expected: usize, came: usize) -> Result<(), TrainError> {
    if came == expected { Ok(()) } else { Err(TrainError::Advantages { what, expected, came }) }
}

/// Measures how far the old policy is from the policy that sampled, by means over the tokens that count.
pub(crate) fn measure_importance(samples: &[Sample], cap: f64, metrics: &mut Metrics) {
    // The cap is rounded as the weights are; otherwise a capped weight could be below its cap.
    let cap = f64::from(cap as f32);
    let weights = samples.iter().filter(|sample| sample.in_loss);
    let weights = weights.flat_map(|sample| sample.own().map(|place| sample.importance[place]));
    let (count, sum, cut) = weights.fold((0.0, 0.0, 0.0), |(count, sum, cut), weight| {
        let weight = f64::from(weight);
        (count + 1.0, sum + weight, cut + f64::from(u8::from(weight >= cap)))
    });
    if count > 0.0 {
        metrics.set("rollout/tis_weight_mean", sum / count);
        metrics.set("rollout/tis_truncated", cut / count);
    }
}

/// Leaves out samples whose ratio between the two policies is outside `[low, high]`, as the geometric mean
/// over their tokens. A weight bounds the effect of one token. It does not bound that of a completion that
/// one of the two policies would never have written. Gives the share of counted samples that were left out.
pub(crate) fn leave_out(samples: &mut [Sample], [low, high]: [f64; 2]) -> f64 {
    let (mut counted, mut left) = (0.0, 0.0);
    for sample in samples.iter_mut().filter(|sample| sample.in_loss) {
        let change = |place: usize| {
            f64::from(sample.old_logprobs[place]) - f64::from(sample.rollout_logprobs[place])
        };
        let (count, sum) =
            sample.own().fold((0.0, 0.0), |(count, sum), place| (count + 1.0, sum + change(place)));
        let ratio = (sum / f64::max(count, 1.0)).exp();
        counted += 1.0;
        if !(low..=high).contains(&ratio) {
            sample.in_loss = false;
            left += 1.0;
        }
    }
    left / f64::max(counted, 1.0)
}

/// Measures how far the log-probabilities of the two policies differ. It takes the host's numbers, because an
/// update only sees the change since its own start.
pub(crate) fn measure_change(samples: &[Sample], metrics: &mut Metrics) {
    let changes = samples.iter().filter(|sample| sample.in_loss).flat_map(|sample| {
        let change = |place| sample.old_logprobs[place] - sample.rollout_logprobs[place];
        sample.own().map(move |place| f64::from(change(place).abs()))
    });
    let (count, change, largest) = changes
        .fold((0.0, 0.0, 0.0f64), |(count, sum, largest), change| {
            (count + 1.0, sum + change, largest.max(change))
        });
    if count > 0.0 {
        metrics.set("rollout/logprob_diff_mean", change / count);
        metrics.set("rollout/logprob_diff_max", largest);
    }
}
