//! Turns the groups that a step trains on into samples.

use std::borrow::Cow;

use firebrick_core::{
    AdvantageEstimator, Advantages, Metrics, Reward, RewardedGroup,
    config::{GateLevel, TisGate, TokenDivergence},
};

use crate::{error::TrainError, sample::Sample};

/// Makes one sample per completion. Without an estimator the advantages are 0 until a critic estimates them.
pub(crate) fn samples_of(
    groups: &[RewardedGroup],
    estimator: Option<&dyn AdvantageEstimator>,
) -> Result<Vec<Sample>, TrainError> {
    let mut samples = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        // A group's number is its index and not its draw, because the copy of a group is a separate group.
        let sample = |completion| Sample::new(&group.group.prompt.tokens, completion, index as u64);
        let completions = group.group.completions.iter().map(sample).zip(&group.rewards);
        samples.extend(completions.enumerate().map(|(index, (mut sample, reward))| {
            (sample.place, sample.reward, sample.in_loss) = (index, reward.reward, reward.in_loss);
            sample.data_source.clone_from(&group.group.prompt.data_source);
            sample.teacher_prompt.clone_from(&group.group.prompt.teacher_prompt);
            sample
        }));
    }

    let Some(estimator) = estimator else { return Ok(samples) };
    // A completion without a verdict has no reward that the others could be compared with.
    let all_judged = groups.iter().flat_map(|group| &group.rewards).all(Reward::is_judged);
    let judged: Cow<'_, [RewardedGroup]> = if all_judged {
        groups.into()
    } else {
        groups.iter().map(RewardedGroup::judged).collect::<Vec<_>>().into()
    };

    let estimates = estimator.advantages(&judged);
    expect("groups", groups.len(), estimates.len())?;

    // The advantages of a group belong, in order, to its completions that have a verdict.
    let verdicts = groups.iter().flat_map(|group| &group.rewards).map(Reward::is_judged);
    let mut judged_samples =
        samples.iter_mut().zip(verdicts).filter(|(_, judged)| *judged).map(|pair| pair.0);

    for (advantages, group) in estimates.into_iter().zip(&*judged) {
        let of_group = judged_samples.by_ref().take(group.rewards.len());
        match advantages {
            Advantages::PerCompletion(numbers) => {
                expect("completions of a group", group.rewards.len(), numbers.len())?;
                for (sample, number) in of_group.zip(numbers) {
                    sample.advantages.fill(number);
                }
            }
            Advantages::PerToken(lists) => {
                expect("lists of tokens of a group", group.rewards.len(), lists.len())?;
                for (sample, numbers) in of_group.zip(lists) {
                    expect("tokens of a completion", sample.completion.len(), numbers.len())?;
                    sample.advantages = numbers;
                }
            }
        }
    }

    Ok(samples)
}

fn expect(what: &'static str, expected: usize, actual: usize) -> Result<(), TrainError> {
    if actual == expected { Ok(()) } else { Err(TrainError::Advantages { what, expected, actual }) }
}

/// Measures the weights of truncated importance sampling (TIS): their mean over the tokens that count, and
/// the fraction of them that the cap truncates.
pub(crate) fn measure_tis_weights(samples: &[Sample], cap: f64, metrics: &mut Metrics) {
    // The cap is rounded as the weights are; otherwise a capped weight could be below its cap.
    let cap = f64::from(cap as f32);
    let weights = samples.iter().filter(|sample| sample.in_loss);
    let weights =
        weights.flat_map(|sample| sample.policy_tokens().map(|index| sample.importance[index]));

    let (count, sum, truncated) =
        weights.fold((0.0, 0.0, 0.0), |(count, sum, truncated), weight| {
            let weight = f64::from(weight);
            (count + 1.0, sum + weight, truncated + f64::from(u8::from(weight >= cap)))
        });

    if count > 0.0 {
        metrics.set("rollout/tis_weight_mean", sum / count);
        metrics.set("rollout/tis_truncated", truncated / count);
    }
}

/// Applies the TIS mask: takes samples out of the loss whose ratio π_old / π_rollout, as the geometric mean
/// over their tokens, is outside `[low, high]`. Truncated importance sampling (TIS) bounds the effect of one
/// token, but not that of a completion that one of the two policies would never have written. Returns the
/// fraction of the samples in the loss that were masked.
pub(crate) fn mask_by_tis_ratio(samples: &mut [Sample], [low, high]: [f64; 2]) -> f64 {
    let mut in_loss = 0.0;
    let mut masked = 0.0;

    for sample in samples.iter_mut().filter(|sample| sample.in_loss) {
        let log_ratio = |index: usize| {
            f64::from(sample.old_logprobs[index]) - f64::from(sample.rollout_logprobs[index])
        };
        let (count, sum) = sample
            .policy_tokens()
            .fold((0.0, 0.0), |(count, sum), index| (count + 1.0, sum + log_ratio(index)));
        let ratio = (sum / f64::max(count, 1.0)).exp();

        in_loss += 1.0;
        if !(low..=high).contains(&ratio) {
            sample.in_loss = false;
            masked += 1.0;
        }
    }

    masked / f64::max(in_loss, 1.0)
}

/// Takes the weight from tokens whose two probabilities, by old policy and behaviour policy, are further apart than `gate`
/// allows, or from completions whose tokens are on average (OpenRLHF's `is_correction_gating`). The weights are set
/// already. Returns the share of the tokens, or of the completions, that lost it.
pub(crate) fn gate_by_divergence(samples: &mut [Sample], gate: TisGate) -> f64 {
    let (mut units, mut gated) = (0.0, 0.0);
    for sample in samples.iter_mut().filter(|sample| sample.in_loss) {
        let tokens: Vec<usize> = sample.policy_tokens().collect();
        let divergence = |index: &usize| {
            let (old, rollout) = (sample.old_logprobs[*index], sample.rollout_logprobs[*index]);
            divergence(gate.divergence, rollout.into(), old.into())
        };
        let divergences: Vec<f64> = tokens.iter().map(divergence).collect();

        let beyond: Vec<usize> = match gate.level {
            GateLevel::Token => {
                units += tokens.len() as f64;
                let far = tokens.iter().zip(divergences).filter(|(_, size)| *size > gate.max);
                let far: Vec<usize> = far.map(|(index, _)| *index).collect();
                gated += far.len() as f64;
                far
            }
            GateLevel::Sequence => {
                let mean = divergences.iter().sum::<f64>() / f64::max(tokens.len() as f64, 1.0);
                units += 1.0;
                gated += f64::from(u8::from(mean > gate.max));
                if mean > gate.max { tokens } else { Vec::new() }
            }
        };
        for index in beyond {
            sample.importance[index] = 0.0;
        }
    }

    gated / f64::max(units, 1.0)
}

/// Computes the divergence of two policies at a token, from its log-probabilities.
fn divergence(kind: TokenDivergence, rollout: f64, old: f64) -> f64 {
    // So that every logarithm is finite.
    let [p, q] = [rollout, old].map(|logprob| logprob.exp().clamp(1e-6, 1.0 - 1e-6));
    match kind {
        TokenDivergence::Tv => (p - q).abs(),
        TokenDivergence::BinaryKl => p * (p / q).ln() + (1.0 - p) * ((1.0 - p) / (1.0 - q)).ln(),
    }
}

/// Measures how far the log-probabilities of old policy and behaviour policy differ. It takes the host's
/// numbers, because an update only sees the change since its own start. Returns the mean.
pub(crate) fn measure_logprob_diff(samples: &[Sample], metrics: &mut Metrics) -> Option<f64> {
    let diffs = samples.iter().filter(|sample| sample.in_loss).flat_map(|sample| {
        let diff = |index| sample.old_logprobs[index] - sample.rollout_logprobs[index];
        sample.policy_tokens().map(move |index| f64::from(diff(index).abs()))
    });
    let (count, sum, largest) = diffs.fold((0.0, 0.0, 0.0f64), |(count, sum, largest), diff| {
        (count + 1.0, sum + diff, largest.max(diff))
    });

    (count > 0.0).then(|| {
        metrics.set("rollout/logprob_diff_mean", sum / count);
        metrics.set("rollout/logprob_diff_max", largest);
        sum / count
    })
}

#[cfg(test)]
mod tests {
    use firebrick_core::{Completion, FinishReason};
    use serde_json::Value;

    use super::*;

    #[test]
    fn gates_are_those_of_openrlhf() {
        let text = include_str!("../../../tests/golden/k_tis_gate.json");
        let golden: Value = serde_json::from_str(text).unwrap();
        let rows =
            |value: &Value| -> Vec<Vec<f32>> { serde_json::from_value(value.clone()).unwrap() };
        let (old, rollout, mask) =
            (rows(&golden["old"]), rows(&golden["rollout"]), rows(&golden["mask"]));

        for case in golden["cases"].as_array().unwrap() {
            let divergence = match case["gating"].as_str() {
                Some("tv") => TokenDivergence::Tv,
                _ => TokenDivergence::BinaryKl,
            };
            let by_sequence = case["level"] == "seq";
            let level = if by_sequence { GateLevel::Sequence } else { GateLevel::Token };
            let gate = TisGate { divergence, level, max: case["max"].as_f64().unwrap() };

            let mut samples: Vec<Sample> = Vec::new();
            for ((old, rollout), mask) in old.iter().zip(&rollout).zip(&mask) {
                let tokens = vec![0; old.len()];
                let written = Completion::written(tokens, rollout.clone(), FinishReason::Stop);
                let mut sample = Sample::new(&[0], &written, 0);
                sample.old_logprobs.clone_from(old);
                sample.mask = mask.iter().map(|mask| *mask == 1.0).collect();
                sample.set_tis_weights(f64::INFINITY);
                samples.push(sample);
            }
            let share = gate_by_divergence(&mut samples, gate);

            assert!((share - case["filtered"].as_f64().unwrap()).abs() < 1e-9, "{case}: {share}");
            for (sample, weights) in samples.iter().zip(rows(&case["weights"])) {
                for index in sample.policy_tokens() {
                    let (weight, golden) = (sample.importance[index], weights[index]);
                    let error = (weight - golden).abs() / golden.abs().max(1.0);
                    assert!(error < 1e-5, "{gate:?}: {weight}, expected {golden}");
                }
            }
        }
    }
}
