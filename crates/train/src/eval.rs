use std::{cmp::Ordering, collections::BTreeMap};

use firebrick_core::{FinishReason, Prompt, RewardScale, RewardedGroup, Seed, Verdict, Verifier};
use firebrick_rollout::{GroupRequest, RolloutEngine, Sampling, generate};
use rand::RngExt as _;
use rayon::prelude::*;

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
    /// Where `accuracy` lies with a probability of 95 %: by the bootstrap over prompts (Efron 1979), 2,000 times.
    pub interval: (f64, f64),
    /// Prompts by how hard they are for this policy: never answered right, sometimes, always.
    pub solved: [usize; 3],
    /// Accuracy by the prompts' difficulties, where the data says how hard they are, and of how many prompts each is.
    pub by_difficulty: BTreeMap<String, (usize, f64)>,
    /// pass@k for k = 1, 2, 4, … up to `samples`, and to the verdicts of the prompt that has the fewest: the chance that one
    /// of k is right.
    pub pass_at: Vec<(usize, f64)>,
    /// Share of prompts whose most frequent answer is right; a tie counts by its share. Answers that the verifier takes for
    /// the same ([`Verifier::same`]) vote together, and so do all right ones.
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
    Ok((EvalReport::new(&groups, samples, verifier), groups))
}

impl EvalReport {
    fn new(groups: &[RewardedGroup], samples: usize, verifier: &dyn Verifier) -> Self {
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
        // A prompt with fewer verdicts says nothing at a larger k.
        let fewest = rights.iter().map(|&(_, of)| of).min().unwrap_or(1);
        let pass_at = std::iter::successors(Some(1), |k| Some(k * 2))
            .take_while(|&k| k <= samples.min(fewest))
            .map(|k| {
                let chances = rights.iter().map(|&(right, of)| pass_at_k(of, right, k));
                (k, chances.sum::<f64>() / count)
            })
            .collect();
        // Added up in one order, whatever thread has which prompt.
        let majorities: Vec<f64> =
            judged.par_iter().map(|group| majority(group, verifier)).collect();
        let mut solved = [0; 3];
        for &(right, of) in &rights {
            solved[usize::from(right > 0) + usize::from(right == of)] += 1;
        }
        let mut by_difficulty: BTreeMap<String, (usize, f64)> = BTreeMap::new();
        for (group, share) in judged.iter().zip(&shares) {
            let difficulty = &group.group.prompt.difficulty;
            if !difficulty.is_empty() {
                let (prompts, sum) = by_difficulty.entry(difficulty.clone()).or_default();
                (*prompts, *sum) = (*prompts + 1, *sum + share);
            }
        }
        for (prompts, accuracy) in by_difficulty.values_mut() {
            *accuracy /= *prompts as f64;
        }
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
            interval: interval(&shares),
            solved,
            by_difficulty,
            pass_at,
            majority: majorities.iter().sum::<f64>() / count,
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
fn majority(group: &RewardedGroup, verifier: &dyn Verifier) -> f64 {
    let mut right = 0;
    // Those that are not right, by their text.
    let mut others: BTreeMap<&str, usize> = BTreeMap::new();
    for reward in group.rewards.iter().filter(|reward| !reward.score.extracted.is_empty()) {
        match reward.score.verdict {
            Verdict::Right => right += 1,
            _ => *others.entry(reward.score.extracted.trim()).or_default() += 1,
        }
    }
    // Comparing answers by value is dear, and most often makes no difference.
    let against: usize = others.values().sum();
    if right == 0 || right > against {
        return f64::from(u8::from(right > 0));
    }
    let mut answers: Vec<(&str, usize)> = Vec::new();
    for (text, votes) in others {
        match answers.iter_mut().find(|(other, _)| verifier.same(other, text)) {
            Some((_, all)) => *all += votes,
            None => answers.push((text, votes)),
        }
    }
    let most = answers.iter().map(|answer| answer.1).max().unwrap_or(0);
    match right.cmp(&most) {
        Ordering::Less => 0.0,
        Ordering::Greater => 1.0,
        Ordering::Equal => {
            1.0 / (1 + answers.iter().filter(|answer| answer.1 == most).count()) as f64
        }
    }
}

/// The 95 % confidence interval of the mean of these shares, one a prompt: the 2.5th and the 97.5th percentile of the
/// means of prompts drawn anew, 2,000 times (Efron 1979); NaN without a prompt. The same shares give the same bounds.
pub fn interval(shares: &[f64]) -> (f64, f64) {
    const TIMES: usize = 2000;
    if shares.is_empty() {
        return (f64::NAN, f64::NAN);
    }
    // Its own seed: the interval of an evaluation is no part of a run's luck.
    let mut rng = Seed::run(0).derive("bootstrap", &[]).rng();
    let mut mean = || {
        let drawn = (0..shares.len()).map(|_| shares[rng.random_range(0..shares.len())]);
        drawn.sum::<f64>() / shares.len() as f64
    };
    let mut means: Vec<f64> = (0..TIMES).map(|_| mean()).collect();
    means.sort_by(f64::total_cmp);
    (means[TIMES / 40], means[TIMES - 1 - TIMES / 40])
}

#[cfg(test)]
mod tests {
    use firebrick_core::{Completion, Group, Score};

    use super::*;

    /// Takes numbers for the same that are equal.
    struct Numbers;

    impl Verifier for Numbers {
        fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
            match completion.text.as_str() {
                "crash" => Score::none(Verdict::Error),
                text if self.same(text, &prompt.reference) => Score::right(text),
                text => Score::wrong(text),
            }
        }

        fn same(&self, one: &str, other: &str) -> bool {
            one.parse::<f64>().ok() == other.parse().ok()
        }
    }

    fn report(answers: &[&[&str]]) -> EvalReport {
        let groups = answers.iter().map(|texts| {
            let completions = texts.iter().map(|text| Completion::of_text(*text)).collect();
            let prompt = Prompt { reference: "2".into(), ..Prompt::default() };
            Group { prompt, completions, step: 0, draw: 0 }
        });
        let scale = RewardScale { right: 1.0, wrong: 0.0 };
        let groups = reward(groups.collect(), &Numbers, scale, &[], 0).unwrap();
        EvalReport::new(&groups, answers[0].len(), &Numbers)
    }

    #[test]
    fn answers_that_are_the_same_vote_together() {
        // By their texts the wrong 3 would have the most votes.
        assert_eq!(report(&[&["2", "2.0", "02", "3", "3"]]).majority, 1.0);
        assert_eq!(report(&[&["2", "2.0", "3", "3.0", "03"]]).majority, 0.0);
        assert_eq!(report(&[&["2", "3"]]).majority, 0.5);
    }

    #[test]
    fn what_has_no_verdict_is_in_no_share() {
        let whole = report(&[&["2", "3"], &["2", "2"], &["3", "3"]]);
        assert_eq!((whole.accuracy, whole.solved), (0.5, [1, 1, 1]));
        let broken = report(&[&["2", "crash"], &["crash", "crash"], &["3", "3"]]);
        assert_eq!((broken.accuracy, broken.solved), (0.5, [1, 0, 1]));
        // The first prompt says nothing at 2.
        assert_eq!(broken.pass_at, [(1, 0.5)]);
        assert_eq!(broken.verdicts[Verdict::Error as usize], 3);
        assert!(report(&[&["crash"]]).accuracy.is_nan());
    }

    #[test]
    fn the_interval_is_that_of_a_binomial() {
        let answers: Vec<&[&str]> =
            (0..400).map(|n| if n % 4 == 0 { &["2"][..] } else { &["3"] }).collect();
        let EvalReport { interval: (low, high), standard_error, .. } = report(&answers);
        let wide = 1.96 * standard_error;
        assert!(
            (low - (0.25 - wide)).abs() < 0.01 && (high - (0.25 + wide)).abs() < 0.01,
            "{low} {high}"
        );
    }
}
