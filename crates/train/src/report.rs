//! The numbers of a step, from its sampling and its updates.

use std::collections::BTreeMap;

use firebrick_core::{
    Completion, Ended, FinishReason, GroupStatus, Metrics, Outcome, Reward, RewardedGroup, Trained,
    Verdict,
};

use serde::{Deserialize, Serialize};

use crate::{
    LARGEST_CHANGE, PromptRecord, Repeats, Sample, adaptive, critic::CriticUpdates,
    curriculum::CurriculumStats, trust::Trust,
};

/// The outcome of sampling a step, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SamplingReport {
    /// The number of rounds of prompts.
    pub rounds: usize,
    /// The number of completions, kept or not.
    pub completions: u64,
    /// The number of tokens that the policy wrote in them.
    pub tokens: u64,
    /// The number of completions that were cut off.
    pub truncated: u64,
    /// The number of completions in which no answer could be read.
    pub unparsable: u64,
    /// The number of completions that could not be judged.
    pub errors: u64,
    /// The number of groups with only right completions.
    pub groups_all_right: usize,
    /// The number of groups without a right completion.
    pub groups_all_wrong: usize,
    /// The seconds spent on sampling.
    pub rollout_seconds: f64,
    /// The seconds spent on judging.
    pub reward_seconds: f64,
}

/// The outcome of a step's updates, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UpdateTotals {
    /// The number of optimizer steps of the policy.
    pub updates: usize,
    /// The number of tokens that counted. A repeated mini-batch counts every time.
    pub tokens: u64,
    /// The number of optimizer steps, of policy or critic, that were left out because a gradient was not
    /// finite.
    pub skipped: usize,
    /// The policy's learning rate.
    pub lr: f64,
    /// The seconds spent on updating.
    pub seconds: f64,
}

/// The result of sampling a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sampled {
    pub(crate) kept: Vec<RewardedGroup>,
    pub(crate) all: Vec<RewardedGroup>,
    /// The status of each group by its draw; a surplus group of an earlier step may be among them.
    pub(crate) statuses: BTreeMap<u64, GroupStatus>,
    /// The groups for the next step.
    pub(crate) carried_over: Vec<RewardedGroup>,
    pub(crate) rounds: usize,
    pub(crate) filtered: usize,
    pub(crate) carried: usize,
    pub(crate) stale: usize,
    pub(crate) surplus: usize,
    /// The number of kept groups that are copies of others.
    pub(crate) copied: usize,
    /// The numbers of the curriculum, and the new records for it; nothing without a curriculum.
    pub(crate) curriculum: Option<CurriculumStats>,
    pub(crate) records: BTreeMap<u64, PromptRecord>,
    pub(crate) rollout_seconds: f64,
    pub(crate) reward_seconds: f64,
    /// The seconds in which nothing was sampled because a verdict was waited for.
    pub(crate) waited_seconds: f64,
    pub(crate) stop: Option<String>,
}

impl Sampled {
    pub(crate) fn completions(&self) -> u64 {
        self.all.iter().map(|group| group.rewards.len() as u64).sum()
    }

    /// Counts the completions without a verdict.
    pub(crate) fn errors(&self) -> u64 {
        let rewards = self.all.iter().flat_map(|group| &group.rewards);
        rewards.filter(|reward| !reward.is_judged()).count() as u64
    }

    /// Measures rewards, verdicts and lengths of everything that was sampled. So they show the policy as it
    /// is, and not the part that the filter left. Nothing has no mean: a step that samples nothing,
    /// because the surplus fills it, has no lengths, and a step without verdicts has no rewards.
    pub(crate) fn measure(&self, metrics: &mut Metrics) -> SamplingReport {
        let completions =
            || self.all.iter().flat_map(|group| group.group.completions.iter().zip(&group.rewards));
        for verdict in Verdict::ALL {
            let of_verdict =
                completions().filter(|(_, reward)| reward.score.verdict == verdict).count();
            metrics.set(format!("reward/{}", verdict.name()), of_verdict as f64);
        }
        // The worth of completions without a verdict is unknown.
        let judged = || completions().map(|(_, reward)| reward).filter(|reward| reward.is_judged());
        let count_judged = judged().count();
        let mean = |total: f64| total / count_judged as f64;
        if count_judged > 0 {
            let credits = judged().map(|reward| f64::from(reward.score.credit));
            metrics.set("reward/credit", mean(credits.sum()));
            metrics.set("reward/mean", mean(judged().map(|reward| f64::from(reward.reward)).sum()));
        }
        let mut parts: BTreeMap<&str, f64> = BTreeMap::new();
        for (name, credit) in judged().flat_map(|reward| &reward.score.parts) {
            *parts.entry(name).or_default() += f64::from(*credit);
        }
        for (name, credit) in parts {
            metrics.set(format!("reward/part/{name}"), mean(credit));
        }
        let filtered = judged().filter(|reward| !reward.in_loss).count();
        metrics.set("reward/overlong_filtered", filtered as f64);

        let lengths = || completions().map(|(completion, _)| completion.count());
        let cut_off = |completion: &Completion| completion.finish == FinishReason::Length;
        let truncated = completions().filter(|(completion, _)| cut_off(completion)).count();
        let tokens: usize = lengths().sum();
        if let Some(longest) = lengths().max() {
            let share = |total: usize| total as f64 / self.completions() as f64;
            metrics.set("rollout/length_mean", share(tokens));
            metrics.set("rollout/length_max", longest as f64);
            metrics.set("rollout/truncated", share(truncated));
            let seconds = self.rollout_seconds.max(1e-9);
            metrics.set("rollout/tokens_per_second", tokens as f64 / seconds);
        }
        let mean_length =
            |metrics: &mut Metrics, name: &str, of: &dyn Fn(&Completion, &Reward) -> bool| {
                let lengths: Vec<usize> = completions()
                    .filter(|(completion, reward)| of(completion, reward))
                    .map(|(completion, _)| completion.count())
                    .collect();
                // The mean of an empty list would look like a fall to nothing.
                if !lengths.is_empty() {
                    let mean = lengths.iter().sum::<usize>() as f64 / lengths.len() as f64;
                    metrics.set(format!("rollout/length_{name}"), mean);
                }
            };
        let right = |reward: &Reward| reward.score.verdict == Verdict::Right;
        mean_length(metrics, "right", &|_, reward| right(reward));
        mean_length(metrics, "wrong", &|_, reward| reward.is_judged() && !right(reward));
        mean_length(metrics, "stopped", &|completion, _| completion.finish == FinishReason::Stop);
        metrics.set("rollout/tokens", tokens as f64);

        let outcomes: Vec<_> =
            completions().filter_map(|(of, _)| Some((of, of.outcome.as_ref()?))).collect();
        if !outcomes.is_empty() {
            let mean = |of: &dyn Fn(&Completion, &Outcome) -> f64| {
                let all = outcomes.iter().map(|(completion, outcome)| of(completion, outcome));
                all.sum::<f64>() / outcomes.len() as f64
            };
            metrics.set("environment/turns_mean", mean(&|_, outcome| outcome.turns as f64));
            for (name, ended) in [
                ("over", Ended::Over),
                ("out_of_turns", Ended::Turns),
                ("out_of_tokens", Ended::Tokens),
                ("out_of_observation_tokens", Ended::Observation),
            ] {
                let share = mean(&|_, outcome| f64::from(u8::from(outcome.ended == ended)));
                metrics.set(format!("environment/{name}"), share);
            }
            let observed = |completion: &Completion| completion.tokens.len() - completion.count();
            metrics.set(
                "environment/observation_tokens_mean",
                mean(&|completion, _| observed(completion) as f64),
            );
        }

        let uniform = |verdict_right: bool| {
            let all = |group: &&RewardedGroup| {
                let mut judged =
                    group.rewards.iter().filter(|reward| reward.is_judged()).peekable();
                judged.peek().is_some()
                    && judged
                        .all(|reward| (reward.score.verdict == Verdict::Right) == verdict_right)
            };
            self.all.iter().filter(all).count() as f64
        };
        metrics.set("sampling/completions", self.completions() as f64);
        metrics.set("sampling/groups_sampled", self.all.len() as f64);
        metrics.set("sampling/groups_kept", (self.kept.len() - self.copied) as f64);
        metrics.set("sampling/groups_copied", self.copied as f64);
        metrics.set("sampling/groups_filtered", self.filtered as f64);
        metrics.set("sampling/groups_all_right", uniform(true));
        metrics.set("sampling/groups_all_wrong", uniform(false));
        metrics.set("sampling/groups_carried_over", self.carried as f64);
        metrics.set("sampling/groups_stale", self.stale as f64);
        metrics.set("sampling/groups_surplus", self.surplus as f64);
        metrics.set("sampling/rounds", self.rounds as f64);
        if let Some(curriculum) = &self.curriculum {
            curriculum.measure(metrics);
        }
        metrics.set("time/rollout", self.rollout_seconds);
        metrics.set("time/reward", self.reward_seconds);
        metrics.set("time/reward_wait", self.waited_seconds);
        let unparsable =
            completions().filter(|(_, reward)| reward.score.verdict == Verdict::Unparsable);
        SamplingReport {
            rounds: self.rounds,
            completions: self.completions(),
            tokens: tokens as u64,
            truncated: truncated as u64,
            unparsable: unparsable.count() as u64,
            errors: self.errors(),
            groups_all_right: uniform(true) as usize,
            groups_all_wrong: uniform(false) as usize,
            rollout_seconds: self.rollout_seconds,
            reward_seconds: self.reward_seconds,
        }
    }
}

/// The result of a step's updates.
#[derive(Default)]
pub(crate) struct Updated {
    pub(crate) sums: Metrics,
    /// The mean change of log-probabilities before the first update. It is the difference between sampling
    /// and training on the same weights, plus the effect of old surplus groups.
    pub(crate) first_change: Option<f64>,
    /// The largest change before the first update, and the largest of the whole step.
    pub(crate) first_largest: Option<f64>,
    pub(crate) largest: f64,
    pub(crate) tokens: usize,
    /// The share of tokens that were not computed, times the tokens that counted.
    pub(crate) shared: f64,
    pub(crate) updates: usize,
    pub(crate) empty: usize,
    /// The rule for completions of an engine that may give wrong numbers, if it may.
    pub(crate) trust: Option<Trust>,
    /// The number of completions that were left out by that rule.
    pub(crate) refused: usize,
    /// The repeats of each mini-batch, if the number of updates is adaptive.
    pub(crate) repeats: Vec<Repeats>,
    pub(crate) grad_norm: f64,
    pub(crate) skipped: Vec<Vec<Sample>>,
    /// True if the update looks at each token.
    pub(crate) looks: bool,
    /// The completions that counted, by their group's place among the groups trained on, and their place in
    /// the group.
    pub(crate) trained: BTreeMap<(u64, usize), Trained>,
    pub(crate) critic: CriticUpdates,
    pub(crate) lr: f64,
    pub(crate) seconds: f64,
}

impl Updated {
    /// Notes an update of the policy.
    pub(crate) fn add(&mut self, metrics: Metrics, tokens: usize, grad_norm: f64) {
        self.note(metrics, tokens);
        self.updates += 1;
        self.grad_norm += grad_norm;
    }

    /// Notes how far the engine's log-probabilities are from the trainer's, if nothing was noted before.
    pub(crate) fn note_change(&mut self, metrics: &Metrics) {
        self.first_change = self.first_change.or(metrics.get("loss/logprob_change"));
        self.first_largest = self.first_largest.or(metrics.get(LARGEST_CHANGE));
    }

    /// Notes the numbers of a mini-batch from before an update of the policy, or of the critic alone.
    pub(crate) fn note(&mut self, mut metrics: Metrics, tokens: usize) {
        let largest = metrics.0.remove(LARGEST_CHANGE).unwrap_or(0.0);
        self.largest = self.largest.max(largest);
        self.first_largest = self.first_largest.or(Some(largest));
        self.first_change = self.first_change.or(metrics.get("loss/logprob_change"));
        for (name, value) in metrics.0 {
            *self.sums.0.entry(name).or_default() += value * tokens as f64;
        }
        self.tokens += tokens;
    }

    /// Sets means over the step's tokens; an update without tokens has none.
    pub(crate) fn measure(self, metrics: &mut Metrics) -> (UpdateTotals, Vec<Vec<Sample>>) {
        let totals = UpdateTotals {
            updates: self.updates,
            tokens: self.tokens as u64,
            skipped: self.skipped.len() + self.critic.skipped,
            lr: self.lr,
            seconds: self.seconds,
        };
        for (name, sum) in self.sums.0 {
            metrics.set(name, sum / self.tokens.max(1) as f64);
        }
        if let Some(change) = self.first_change {
            metrics.set("rollout/logprob_diff_mean", change);
        }
        if let Some(largest) = self.first_largest {
            metrics.set("rollout/logprob_diff_max", largest);
            metrics.set(LARGEST_CHANGE, self.largest);
        }
        if self.updates > 0 {
            metrics.set("update/grad_norm", self.grad_norm / self.updates as f64);
        }
        if self.trust.is_some() {
            metrics.set("rollout/refused", self.refused as f64);
        }
        adaptive::measure(&self.repeats, metrics);
        self.critic.measure(metrics);
        metrics.set("update/count", self.updates as f64);
        metrics.set("update/empty", self.empty as f64);
        metrics.set("update/skipped", self.skipped.len() as f64);
        metrics.set("update/lr", self.lr);
        metrics.set("update/tokens", self.tokens as f64);
        metrics.set("update/tokens_shared", self.shared / self.tokens.max(1) as f64);
        metrics.set("update/tokens_per_second", self.tokens as f64 / self.seconds.max(1e-9));
        metrics.set("time/update", self.seconds);
        (totals, self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::{Group, Prompt, RewardScale, Score};

    use super::*;

    #[test]
    fn of_nothing_there_is_no_mean() {
        let lengths = ["rollout/length_mean", "rollout/length_max", "rollout/truncated"];
        let rewards = ["reward/credit", "reward/mean"];
        let measured = |all: Vec<RewardedGroup>| {
            let mut metrics = Metrics::default();
            Sampled { all, ..Sampled::default() }.measure(&mut metrics);
            assert!(metrics.0.values().all(|value| value.is_finite()), "{metrics:?}");
            metrics
        };
        // The surplus of an earlier step fills this one.
        let nothing = measured(Vec::new());
        assert!(lengths.iter().chain(&rewards).all(|name| nothing.get(name).is_none()));
        assert_eq!(nothing.get("sampling/completions"), Some(0.0));

        // A completion of two tokens was cut off, and nobody could judge it.
        let completion = Completion::written(vec![7, 8], vec![-1.0; 2], FinishReason::Length);
        let completions = vec![completion];
        let group = Group { prompt: Prompt::default(), completions, step: 1, draw: 0 };
        let scale = RewardScale { right: 1.0, wrong: -1.0 };
        let rewards_of = vec![scale.reward(Score::none(Verdict::Error))];
        let unjudged = measured(vec![RewardedGroup { group, rewards: rewards_of }]);
        assert_eq!(lengths.map(|name| unjudged.get(name)), [2.0, 2.0, 1.0].map(Some));
        assert!(rewards.iter().all(|name| unjudged.get(name).is_none()));
        assert_eq!(unjudged.get("reward/error"), Some(1.0));
    }
}
