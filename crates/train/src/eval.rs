use std::collections::BTreeMap;

use firebrick_core::{FinishReason, Prompt, RewardScale, RewardedGroup, Seed, Verdict, Verifier};
use firebrick_rollout::{GroupRequest, RolloutEngine, Sampling, generate};

use crate::{TrainError, reward};

/// How well a policy answers a set of prompts.
#[derive(Clone, Debug, PartialEq)]
pub struct EvalReport {
    /// Number of prompts. The shares below are of the completions that could be judged, and of the prompts that have such.
    pub prompts: usize,
    /// Completions per prompt: the k of avg@k and maj@k.
    pub samples: usize,
    /// Share of right completions: avg@k, and the unbiased estimate of pass@1.
    pub accuracy: f64,
    /// Standard error of `accuracy` over prompts.
    pub standard_error: f64,
    /// pass@k for k = 1, 2, 4, … up to `samples`: the chance that one of k is right.
    pub pass_at: Vec<(usize, f64)>,
    /// Share of prompts whose most frequent answer is right; a tie counts by its share.
    pub majority: f64,
    /// Completions by verdict, in the order of [`Verdict::ALL`].
    pub verdicts: [usize; 5],
    /// Mean completion length in tokens.
    pub length: f64,
    /// Share of completions that were cut off.
    pub truncated: f64,
}

/// Samples `samples` completions of each prompt and scores them. The groups come back as well, for
/// whoever wants to look.
///
/// # Errors
/// When the engine fails, or the verifier can judge no more.
pub fn evaluate<M>(
    engine: &mut dyn RolloutEngine<M>,
    verifier: &dyn Verifier,
    prompts: &[Prompt],
    samples: usize,
    sampling: &Sampling,
    seed: Seed,
    finished: &mut dyn FnMut(usize),
) -> Result<(EvalReport, Vec<RewardedGroup>), TrainError> {
    let prompts = prompts.iter().map(|prompt| (0, prompt.clone()));
    let requests = GroupRequest::of_prompts(prompts, samples, sampling, seed);
    let groups = generate(engine, requests, finished)?;
    let groups = reward(groups, verifier, RewardScale { right: 1.0, wrong: 0.0 }, &[], 0)?;
    Ok((EvalReport::new(&groups, samples), groups))
}

impl EvalReport {
    fn new(groups: &[RewardedGroup], samples: usize) -> Self {
        // Nobody knows what a completion without a verdict is worth.
        let judged: Vec<RewardedGroup> = groups.iter().map(RewardedGroup::judged).collect();
        let judged: Vec<&RewardedGroup> =
            judged.iter().filter(|group| !group.rewards.is_empty()).collect();
        // None makes every share no number.
        let count = judged.len() as f64;
        let rights: Vec<(usize, usize)> =
            judged.iter().map(|group| (right(group), group.rewards.len())).collect();
        let shares: Vec<f64> = rights.iter().map(|&(right, of)| right as f64 / of as f64).collect();
        let accuracy = shares.iter().sum::<f64>() / count;
        let variance = shares.iter().map(|share| (share - accuracy).powi(2)).sum::<f64>()
            / (count - 1.0).max(1.0);
        let pass_at = std::iter::successors(Some(1), |k| Some(k * 2))
            .take_while(|&k| k <= samples)
            .map(|k| {
                let chances = rights.iter().map(|&(right, of)| pass_at_k(of, right, k.min(of)));
                (k, chances.sum::<f64>() / count)
            })
            .collect();
        let mut verdicts = [0; 5];
        let (mut tokens, mut truncated, mut completions) = (0, 0, 0);
        for group in groups {
            for (completion, reward) in group.group.completions.iter().zip(&group.rewards) {
                verdicts[reward.score.verdict as usize] += 1;
                tokens += completion.count();
                truncated += usize::from(completion.finish == FinishReason::Length);
                completions += 1;
            }
        }
        EvalReport {
            prompts: groups.len(),
            samples,
            accuracy,
            standard_error: (variance / count).sqrt(),
            pass_at,
            majority: judged.into_iter().map(majority).sum::<f64>() / count,
            verdicts,
            length: tokens as f64 / completions.max(1) as f64,
            truncated: truncated as f64 / completions.max(1) as f64,
        }
    }
}

/// Chance that at least one of `k` completions is right, when `right` of `samples` were: 1 −
/// C(samples − right, k) / C(samples, k) (Chen et al. 2021), as a product that cannot overflow.
pub fn pass_at_k(samples: usize, right: usize, k: usize) -> f64 {
    if samples - right < k {
        return 1.0;
    }
    1.0 - (samples - right + 1..=samples).map(|n| 1.0 - k as f64 / n as f64).product::<f64>()
}

fn right(group: &RewardedGroup) -> usize {
    group.rewards.iter().filter(|reward| reward.score.verdict == Verdict::Right).count()
}

/// 1 when the answer given most often is right, 0 when it is not; completions without an answer do
/// not vote.
fn majority(group: &RewardedGroup) -> f64 {
    let mut votes: BTreeMap<&str, (usize, bool)> = BTreeMap::new();
    for reward in group.rewards.iter().filter(|reward| !reward.score.extracted.is_empty()) {
        let vote = votes.entry(reward.score.extracted.trim()).or_default();
        vote.0 += 1;
        vote.1 |= reward.score.verdict == Verdict::Right;
    }
    let most = votes.values().map(|vote| vote.0).max().unwrap_or(0);
    let winners: Vec<bool> =
        votes.values().filter(|vote| vote.0 == most).map(|vote| vote.1).collect();
    winners.iter().filter(|&&right| right).count() as f64 / winners.len().max(1) as f64
}
