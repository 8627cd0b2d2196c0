//! Evaluation on held-out prompts: avg@k, pass@k and maj@k, with confidence intervals.

use std::{cmp::Ordering, collections::BTreeMap};

use firebrick_core::{FinishReason, Prompt, RewardScale, RewardedGroup, Seed, Verdict, Verifier};
use firebrick_rollout::{GroupRequest, RolloutEngine, Sampling, generate};
use rand::RngExt as _;
use rayon::prelude::*;

use crate::{error::TrainError, sampler::reward::reward};

/// Measures of how well a policy answers a set of prompts.
#[derive(Clone, Debug, PartialEq)]
pub struct EvalReport {
    /// Prompts in the set. The shares below count only the completions that could be judged, and the prompts
    /// that have such completions.
    pub prompts: usize,
    /// Completions per prompt: the k of avg@k and maj@k.
    pub samples: usize,
    /// Share of right completions: avg@k, and the unbiased estimate of pass@1.
    pub accuracy: f64,
    /// Mean credit of a completion, which is `accuracy` unless the verifier gives partial credit.
    pub credit: f64,
    /// Standard error of `accuracy` over prompts.
    pub standard_error: f64,
    /// Range that holds `accuracy` with a probability of 95 %, by the bootstrap over prompts (Efron 1979),
    /// 2,000 times.
    pub interval: (f64, f64),
    /// Prompts by how hard they are for this policy: never answered right, sometimes, always.
    pub solved: [usize; 3],
    /// Prompts of each difficulty, and the accuracy on them, if the data says how hard its prompts are.
    pub by_difficulty: BTreeMap<String, (usize, f64)>,
    /// Prompts of each data set, and the accuracy on them, if there are several ([`Prompt::data_source`]).
    pub by_data_source: BTreeMap<String, (usize, f64)>,
    /// pass@k, the chance that at least one of k completions is right, for k = 1, 2, 4, … up to `samples`,
    /// and up to the number of verdicts of the prompt that has the fewest.
    pub pass_at: Vec<(usize, f64)>,
    /// Share of prompts whose most frequent answer is right; a tie counts by its share. Answers that are the
    /// same to the verifier ([`Verifier::same`]) vote together, and so do all right answers.
    pub majority: f64,
    /// Completions by verdict, in the order of [`Verdict::ALL`].
    pub verdicts: [usize; 5],
    /// Mean completion length in tokens.
    pub length: f64,
    /// Share of completions that were cut off.
    pub truncated: f64,
}

/// Samples `completions_per_prompt` completions of each prompt and scores them. Returns the report and the
/// groups.
///
/// Completions without a verdict are left out of every share, so a caller asks [`EvalReport::check_errors`]
/// whether there are too many of them.
///
/// # Errors
/// When the engine fails, or the verifier can no longer judge.
pub fn evaluate<M>(
    engine: &mut dyn RolloutEngine<M>,
    verifier: &dyn Verifier,
    prompts: &[Prompt],
    completions_per_prompt: usize,
    sampling: &Sampling,
    seed: Seed,
    on_finished: &mut dyn FnMut(usize),
) -> Result<(EvalReport, Vec<RewardedGroup>), TrainError> {
    let prompts = prompts.iter().map(|prompt| (0, prompt.clone()));
    let requests = GroupRequest::of_prompts(prompts, completions_per_prompt, sampling, seed);
    let groups = generate(engine, requests, on_finished)?;
    let groups = reward(groups, verifier, RewardScale { right: 1.0, wrong: 0.0 }, &[], 0)?;
    Ok((EvalReport::new(&groups, completions_per_prompt, verifier), groups))
}

impl EvalReport {
    /// Counts the completions that have a verdict; without any, every share of the report is NaN.
    pub fn judged(&self) -> usize {
        self.verdicts.iter().sum::<usize>() - self.verdicts[Verdict::Error as usize]
    }

    /// Fails if a larger share than `max_share` of the completions has no verdict (`reward.max_errors`).
    ///
    /// # Errors
    /// Then, with [`TrainError::Unjudged`].
    pub fn check_errors(&self, max_share: f64) -> Result<(), TrainError> {
        let completions = self.verdicts.iter().sum::<usize>();
        check_error_rate((completions - self.judged()) as u64, completions as u64, max_share)
    }

    fn new(
        groups: &[RewardedGroup],
        completions_per_prompt: usize,
        verifier: &dyn Verifier,
    ) -> Self {
        // The reward of a completion without a verdict is unknown.
        let judged: Vec<RewardedGroup> = groups.iter().map(RewardedGroup::judged).collect();
        let judged: Vec<&RewardedGroup> =
            judged.iter().filter(|group| !group.rewards.is_empty()).collect();

        // If no group is left, every share is NaN.
        let count = judged.len() as f64;
        let rights: Vec<(usize, usize)> =
            judged.iter().map(|group| (right(group), group.rewards.len())).collect();
        let shares: Vec<f64> =
            rights.iter().map(|&(right, count)| right as f64 / count as f64).collect();
        let accuracy = shares.iter().sum::<f64>() / count;
        let credit = judged.iter().map(|group| credit(group)).sum::<f64>() / count;
        let variance = shares.iter().map(|share| (share - accuracy).powi(2)).sum::<f64>()
            / (count - 1.0).max(1.0);

        // A prompt with fewer than k verdicts says nothing about pass@k.
        let fewest = rights.iter().map(|&(_, count)| count).min().unwrap_or(1);
        let pass_at = std::iter::successors(Some(1), |k| Some(k * 2))
            .take_while(|&k| k <= completions_per_prompt.min(fewest))
            .map(|k| {
                let chances = rights.iter().map(|&(right, count)| pass_at_k(count, right, k));
                (k, chances.sum::<f64>() / count)
            })
            .collect();

        // The sum is taken in one order, whatever thread has which prompt.
        let majorities: Vec<f64> =
            judged.par_iter().map(|group| majority(group, verifier)).collect();

        let mut solved = [0; 3];
        for &(right, count) in &rights {
            solved[usize::from(right > 0) + usize::from(right == count)] += 1;
        }

        let by_difficulty = accuracies(&judged, &shares, |prompt| &prompt.difficulty);
        let by_data_source = accuracies(&judged, &shares, |prompt| &prompt.data_source);

        let mut verdicts = [0; 5];
        let mut tokens = 0;
        let mut truncated = 0;
        let mut completions = 0;
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
            samples: completions_per_prompt,
            accuracy,
            credit,
            standard_error: (variance / count).sqrt(),
            interval: interval(&shares),
            solved,
            by_difficulty,
            by_data_source,
            pass_at,
            majority: majorities.iter().sum::<f64>() / count,
            verdicts,
            length: tokens as f64 / completions.max(1) as f64,
            truncated: truncated as f64 / completions.max(1) as f64,
        }
    }
}

/// Returns the number of prompts under each name that `name` gives them, and the mean of their shares. A prompt without
/// a name is left out.
fn accuracies(
    groups: &[&RewardedGroup],
    shares: &[f64],
    name: impl Fn(&Prompt) -> &String,
) -> BTreeMap<String, (usize, f64)> {
    let mut accuracies: BTreeMap<String, (usize, f64)> = BTreeMap::new();
    for (group, share) in groups.iter().zip(shares) {
        let name = name(&group.group.prompt);
        if !name.is_empty() {
            let (prompts, sum) = accuracies.entry(name.clone()).or_default();
            (*prompts, *sum) = (*prompts + 1, *sum + share);
        }
    }

    for (prompts, accuracy) in accuracies.values_mut() {
        *accuracy /= *prompts as f64;
    }
    accuracies
}

/// Fails if a larger share than `max_share` of some completions has no verdict, because the rest says little.
pub(crate) fn check_error_rate(
    errors: u64,
    completions: u64,
    max_share: f64,
) -> Result<(), TrainError> {
    if errors as f64 > max_share * completions as f64 {
        return Err(TrainError::Unjudged { errors, completions, max_share });
    }
    Ok(())
}

/// Computes the chance that at least one of `k` completions is right, if `right` of `samples` were: 1 −
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

/// Returns the mean credit of a group's completions.
fn credit(group: &RewardedGroup) -> f64 {
    let credits = group.rewards.iter().map(|reward| f64::from(reward.score.credit));
    credits.sum::<f64>() / group.rewards.len() as f64
}

/// Returns 1 if the most frequent answer is right, 0 if it is wrong, and the right answer's share in a tie.
/// Completions without an answer do not vote.
fn majority(group: &RewardedGroup, verifier: &dyn Verifier) -> f64 {
    let mut right = 0;
    // The answers that are not right, with their votes, by their text.
    let mut others: BTreeMap<&str, usize> = BTreeMap::new();
    for reward in group.rewards.iter().filter(|reward| !reward.score.extracted.is_empty()) {
        match reward.score.verdict {
            Verdict::Right => right += 1,
            _ => *others.entry(reward.score.extracted.trim()).or_default() += 1,
        }
    }

    // Comparing answers by value is costly, and rarely makes a difference.
    let other_votes: usize = others.values().sum();
    if right == 0 || right > other_votes {
        return f64::from(u8::from(right > 0));
    }

    let mut answers: Vec<(&str, usize)> = Vec::new();
    for (text, votes) in others {
        match answers.iter_mut().find(|(other, _)| verifier.same(&group.group.prompt, other, text))
        {
            Some((_, all)) => *all += votes,
            None => answers.push((text, votes)),
        }
    }

    let max_votes = answers.iter().map(|answer| answer.1).max().unwrap_or(0);
    match right.cmp(&max_votes) {
        Ordering::Less => 0.0,
        Ordering::Greater => 1.0,
        Ordering::Equal => {
            1.0 / (1 + answers.iter().filter(|answer| answer.1 == max_votes).count()) as f64
        }
    }
}

/// Computes the 95 % confidence interval of the mean of these shares, one share per prompt: the 2.5th and the
/// 97.5th percentile of the means of resampled prompts, 2,000 times (Efron 1979). It is NaN without a prompt.
/// Equal shares always have the same bounds. If no answer is right, or every one, drawing among the prompts would show no
/// doubt, so the bound is that of Clopper and Pearson (1934) for as many prompts.
pub fn interval(shares: &[f64]) -> (f64, f64) {
    const TIMES: usize = 2000;
    if shares.is_empty() {
        return (f64::NAN, f64::NAN);
    }

    let bound = 1.0 - 0.025_f64.powf(1.0 / shares.len() as f64);
    if shares.iter().all(|share| *share == 0.0) {
        return (0.0, bound);
    }
    if shares.iter().all(|share| *share == 1.0) {
        return (1.0 - bound, 1.0);
    }

    // A fixed seed, because the interval of an evaluation does not depend on the run's seed.
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

    /// A verifier to which two answers are the same if their numbers are equal.
    struct Numbers;

    impl Verifier for Numbers {
        fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
            match completion.text.as_str() {
                "crash" => Score::none(Verdict::Error),
                text if self.same(prompt, text, &prompt.reference) => Score::right(text),
                text => Score::wrong(text),
            }
        }

        fn same(&self, _: &Prompt, one: &str, other: &str) -> bool {
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
        // If texts were compared, the wrong 3 would have the most votes.
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
        // The first prompt has one verdict, so it says nothing about pass@2.
        assert_eq!(broken.pass_at, [(1, 0.5)]);
        assert_eq!(broken.verdicts[Verdict::Error as usize], 3);

        let nothing = report(&[&["crash"]]);
        assert!(nothing.accuracy.is_nan());
        assert_eq!((nothing.judged(), broken.judged()), (0, 3));
    }

    #[test]
    fn too_many_errors_are_no_evaluation() {
        let report = report(&[&["2", "crash"], &["2", "3"]]);
        assert!(report.check_errors(0.25).is_ok());
        let problem = report.check_errors(0.1).unwrap_err().to_string();
        assert!(problem.starts_with("1 of 4 completions could not be judged"), "{problem}");
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
