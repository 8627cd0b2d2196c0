//! Metrics of a step, from its sampling and its updates.

use std::collections::BTreeMap;

use firebrick_core::{
    Completion, Ended, FinishReason, GroupStatus, Metrics, Outcome, Reward, RewardedGroup, Trained,
    Verdict,
};

use crate::{
    adaptive::{self, Repeats},
    algorithm::loss::LOGPROB_CHANGE_MAX,
    learner::{LogprobChange, Update, critic::CriticUpdates},
    logprob_check::LogprobCheck,
    sample::Sample,
    sampler::sampled::Sampled,
};

/// Outcome of sampling a step, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SamplingReport {
    /// Rounds of prompts.
    pub rounds: usize,
    /// Completions, kept or not.
    pub completions: u64,
    /// Tokens that the policy wrote in them.
    pub tokens: u64,
    /// Completions that were cut off.
    pub truncated: u64,
    /// Completions in which no answer could be read.
    pub unparsable: u64,
    /// Completions that could not be judged.
    pub errors: u64,
    /// Groups with only right completions.
    pub groups_all_right: usize,
    /// Groups without a right completion.
    pub groups_all_wrong: usize,
    /// Seconds spent on sampling.
    pub rollout_seconds: f64,
    /// Seconds spent on judging.
    pub reward_seconds: f64,
}

/// Outcome of a step's updates, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UpdateTotals {
    /// Optimizer steps of the policy.
    pub updates: usize,
    /// Tokens that counted. A repeated mini-batch counts every time.
    pub tokens: u64,
    /// Optimizer steps, of policy or critic, that were skipped because a gradient was not finite.
    pub skipped: usize,
    /// The policy's learning rate.
    pub lr: f64,
    /// Seconds spent on updating.
    pub seconds: f64,
}

impl Sampled {
    /// Records rewards, verdicts and lengths of everything that was sampled, so that they show the policy as it
    /// is, and not the part that the filter kept. There is no mean of nothing: a step that samples nothing,
    /// because the surplus fills it, has no lengths, and a step without verdicts has no rewards.
    pub(crate) fn record_metrics(&self, metrics: &mut Metrics) -> SamplingReport {
        let completions =
            || self.all.iter().flat_map(|group| group.group.completions.iter().zip(&group.rewards));

        for verdict in Verdict::ALL {
            let count = completions().filter(|(_, reward)| reward.score.verdict == verdict).count();
            metrics.set(format!("reward/{}", verdict.name()), count as f64);
        }

        // The reward of completions without a verdict is unknown.
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
            |metrics: &mut Metrics, name: &str, counts: &dyn Fn(&Completion, &Reward) -> bool| {
                let lengths: Vec<usize> = completions()
                    .filter(|(completion, reward)| counts(completion, reward))
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
            completions().filter_map(|(it, _)| Some((it, it.outcome.as_ref()?))).collect();
        if !outcomes.is_empty() {
            let mean = |value: &dyn Fn(&Completion, &Outcome) -> f64| {
                let all = outcomes.iter().map(|(completion, outcome)| value(completion, outcome));
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

        // A group counts by its judged completions; one without any is neither all right nor all wrong.
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
            curriculum.record_metrics(metrics);
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

    /// Records credit, kept groups and completions of each data set, because one that teaches nothing does not show in
    /// the numbers of all. Here too, there is no mean of nothing.
    pub(crate) fn record_data_sources(&self, names: &[String], metrics: &mut Metrics) {
        for name in names {
            let is_own = |group: &&RewardedGroup| group.group.prompt.data_source == *name;
            let groups: Vec<&RewardedGroup> = self.all.iter().filter(is_own).collect();
            let mut set = |what: &str, value: f64| {
                metrics.set(format!("data_source/{name}/{what}"), value);
            };

            let completions: usize = groups.iter().map(|group| group.rewards.len()).sum();
            set("completions", completions as f64);

            let rewards = groups.iter().flat_map(|group| &group.rewards);
            let credits: Vec<f64> = rewards
                .filter(|reward| reward.is_judged())
                .map(|reward| f64::from(reward.score.credit))
                .collect();
            if !credits.is_empty() {
                set("credit", credits.iter().sum::<f64>() / credits.len() as f64);
            }

            // A surplus group has something to teach, although this step needs no more groups.
            let kept = groups.iter().filter(|group| {
                let status = self.statuses.get(&group.group.draw);
                matches!(status, Some(GroupStatus::Kept | GroupStatus::Surplus))
            });
            let kept = kept.count();
            if !groups.is_empty() {
                set("kept", kept as f64 / groups.len() as f64);
            }
        }
    }
}

/// Result of a step's updates.
#[derive(Default)]
pub(crate) struct Updated {
    pub(crate) sums: Metrics,
    /// Change of log-probabilities before the first update: the difference between sampling and training on the same
    /// weights, plus the effect of old surplus groups.
    pub(crate) first_change: Option<LogprobChange>,
    /// Largest change of the whole step.
    pub(crate) change_max: f64,
    /// Mean change of a completion's log-probabilities by the step's single update, in nats.
    pub(crate) moved: Option<f64>,
    pub(crate) tokens: usize,
    /// [`UpdateReport::prompt_sharing`](crate::learner::update::UpdateReport::prompt_sharing) of each update, times its tokens
    /// that counted.
    pub(crate) prompt_sharing: f64,
    pub(crate) updates: usize,
    pub(crate) empty: usize,
    /// Check of an engine's log-probabilities, if they may be wrong.
    pub(crate) logprob_check: Option<LogprobCheck>,
    /// Completions that the check took out of the loss.
    pub(crate) refused: usize,
    /// Repeats of each mini-batch, if the number of updates is adaptive.
    pub(crate) repeats: Vec<Repeats>,
    pub(crate) grad_norm: f64,
    pub(crate) skipped: Vec<Vec<Sample>>,
    /// True if the update records each token's ratio and entropy.
    pub(crate) record_token_stats: bool,
    /// Completions that counted, by their group's index among the groups trained on, and their index in the
    /// group.
    pub(crate) trained: BTreeMap<(u64, usize), Trained>,
    pub(crate) critic: CriticUpdates,
    pub(crate) lr: f64,
    pub(crate) seconds: f64,
}

impl Updated {
    /// Records an update of the policy.
    pub(crate) fn add(&mut self, update: Update<()>, grad_norm: f64) {
        self.note(update);
        self.updates += 1;
        self.grad_norm += grad_norm;
    }

    /// Records how far the engine's log-probabilities are from the trainer's, if nothing was recorded before.
    pub(crate) fn note_change(&mut self, change: LogprobChange) {
        self.first_change.get_or_insert(change);
    }

    /// Records the metrics of a mini-batch from before an update of the policy, or of the critic alone.
    pub(crate) fn note(&mut self, update: Update<()>) {
        if let Some(change) = update.logprob_change {
            self.change_max = self.change_max.max(change.max);
            self.note_change(change);
        }

        for (name, value) in update.metrics.0 {
            *self.sums.0.entry(name).or_default() += value * update.tokens as f64;
        }
        self.tokens += update.tokens;
    }

    /// Records means over the step's tokens; an update without tokens has none.
    pub(crate) fn record_metrics(self, metrics: &mut Metrics) -> (UpdateTotals, Vec<Vec<Sample>>) {
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
        if let Some(LogprobChange { mean, max }) = self.first_change {
            metrics.set("rollout/logprob_diff_mean", mean);
            metrics.set("rollout/logprob_diff_max", max);
            metrics.set(LOGPROB_CHANGE_MAX, self.change_max);
        }

        // Not every learner is told the norm.
        if self.updates > 0 && !self.grad_norm.is_nan() {
            metrics.set("update/grad_norm", self.grad_norm / self.updates as f64);
        }
        if let Some(moved) = self.moved {
            metrics.set("update/logprob_moved", moved);
        }
        if self.logprob_check.is_some() {
            metrics.set("rollout/refused", self.refused as f64);
        }

        adaptive::record_metrics(&self.repeats, metrics);
        self.critic.record_metrics(metrics);

        metrics.set("update/count", self.updates as f64);
        metrics.set("update/empty", self.empty as f64);
        metrics.set("update/skipped", self.skipped.len() as f64);
        metrics.set("update/lr", self.lr);
        metrics.set("update/tokens", self.tokens as f64);
        metrics.set("update/tokens_shared", self.prompt_sharing / self.tokens.max(1) as f64);
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
    fn nothing_has_no_mean() {
        let lengths = ["rollout/length_mean", "rollout/length_max", "rollout/truncated"];
        let rewards = ["reward/credit", "reward/mean"];
        let measured = |all: Vec<RewardedGroup>| {
            let mut metrics = Metrics::default();
            Sampled { all, ..Sampled::default() }.record_metrics(&mut metrics);
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

        let unjudged = measured(vec![RewardedGroup { group: group.into(), rewards: rewards_of }]);
        assert_eq!(lengths.map(|name| unjudged.get(name)), [2.0, 2.0, 1.0].map(Some));
        assert!(rewards.iter().all(|name| unjudged.get(name).is_none()));
        assert_eq!(unjudged.get("reward/error"), Some(1.0));
    }

    #[test]
    fn each_data_set_has_its_own_numbers() {
        let scale = RewardScale { right: 1.0, wrong: -1.0 };
        let group = |source: &str, draw: u64, scores: [Score; 2]| {
            let prompt = Prompt { data_source: source.into(), ..Prompt::default() };
            let group = Group { prompt, completions: Vec::new(), step: 1, draw };
            let rewards = Vec::from(scores.map(|score| scale.reward(score)));
            RewardedGroup { group: group.into(), rewards }
        };
        let (right, wrong) = (Score::right("1"), Score::wrong("2"));
        let error = Score::none(Verdict::Error);

        let all = vec![
            group("easy", 0, [right.clone(), right.clone()]),
            group("hard", 1, [right.clone(), wrong.clone()]),
            group("hard", 2, [right.clone(), wrong.clone()]),
            group("hard", 3, [wrong, error]),
        ];
        let statuses = BTreeMap::from([
            (0, GroupStatus::Filtered),
            (1, GroupStatus::Kept),
            (2, GroupStatus::Surplus),
            (3, GroupStatus::Filtered),
        ]);

        let mut metrics = Metrics::default();
        let names = ["easy", "hard", "unseen"].map(String::from);
        Sampled { all, statuses, ..Sampled::default() }.record_data_sources(&names, &mut metrics);

        // Of the six completions of the second, five have a verdict, and two of those are right.
        let expected = [
            ("data_source/easy/completions", 2.0),
            ("data_source/easy/credit", 1.0),
            ("data_source/easy/kept", 0.0),
            ("data_source/hard/completions", 6.0),
            ("data_source/hard/credit", 2.0 / 5.0),
            ("data_source/hard/kept", 2.0 / 3.0),
            ("data_source/unseen/completions", 0.0),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value));
        assert_eq!(metrics.0, BTreeMap::from(expected));
    }
}
