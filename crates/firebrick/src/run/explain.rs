//! Explains to the user whatever in a run did not go as expected.

use firebrick_core::{Metrics, Step};
use firebrick_train::{SamplingReport, UpdateTotals, learner::OomBackoff};

use super::Run;
use crate::{
    build::RunLearner,
    journal::lock,
    recipe::{Recipe, UpdateEngine},
};

impl<L: RunLearner> Run<L> {
    /// Reports how many completions were not sampled again, and which writes failed.
    pub(super) fn explain_journal(&mut self, completions: u64) {
        let recalled = lock(&self.journal).take_recalled();
        if recalled > 0 {
            self.note(&format!(
                "{}: {recalled} of {completions} completions were in run.db and not sampled again",
                self.phase
            ));
        }
        self.explain_record();
    }

    /// Warns the user if `train.steps` ends the run before it has seen its prompts as often as it should.
    pub(super) fn compare_epochs(&mut self) {
        let Recipe { train, sampling, .. } = &self.recipe;
        let wanted = train.epochs.unwrap_or(0.0) * self.built.trainer.sampler.source.size() as f64;
        let drawn = train.steps as f64 * sampling.prompts_per_step as f64;
        if drawn < wanted {
            self.note(&format!(
                "train.epochs = {} takes {wanted:.0} prompts, but train.steps = {} draws only \
                 {drawn:.0} if no group is filtered: raise train.steps",
                train.epochs.unwrap_or(0.0),
                train.steps
            ));
        }
    }

    /// Reports how many completions could not be judged, and returns true if there were any.
    pub(super) fn explain_errors(
        &mut self,
        step: Step,
        metrics: &Metrics,
        completions: u64,
    ) -> bool {
        let errors = metrics.get("reward/error").unwrap_or(0.0);
        if errors > 0.0 {
            self.note(&format!(
                "step {step}: {errors} of {completions} completions could not be judged ({:.1} %) and are left out; \
                 the metric reward/error counts them at each step",
                100.0 * errors / completions.max(1) as f64
            ));
        }
        errors > 0.0
    }

    /// Reports how many completions were not trained on because of their log-probabilities, and returns true if there
    /// were any.
    pub(super) fn explain_refused(&mut self, step: Step, metrics: &Metrics) -> bool {
        let refused = metrics.get("rollout/refused").unwrap_or(0.0);
        if refused > 0.0 {
            let metric = |name: &str| metrics.get(name).unwrap_or(f64::NAN);
            let (key, tolerance, advice) = match &self.recipe.engine {
                UpdateEngine::Local => (
                    "rollout.engine.tolerance",
                    self.recipe.rollout.engine.tolerance,
                    "A server samples with other numbers than it showed when it got its weights: look at its log, and \
                     restart it",
                ),
                UpdateEngine::Tinker(server) => (
                    "engine.tolerance",
                    server.tolerance,
                    "The server's sampler and its passes disagree, as they do in bfloat16: raise the tolerance if the \
                     distance stays the same from step to step",
                ),
            };
            self.note(&format!(
                "step {step}: {refused} completions were not trained on: the servers' log-probabilities are {:.2e} nats \
                 from the trainer's in the mean, and up to {:.2e}, but {key} = {tolerance}. \
                 {advice}",
                metric("rollout/logprob_diff_mean"),
                metric("rollout/logprob_diff_max"),
            ));
        }
        refused > 0.0
    }

    /// Explains to the user that the device did not have the memory for an update as it was split.
    pub(super) fn explain_oom_backoff(&mut self, before: OomBackoff) {
        let learner = &self.built.trainer.learner;
        let backoff = learner.limits();
        let micro_batching = learner.updater().micro_batching;
        if backoff == before {
            return;
        }

        let mut reductions = Vec::new();
        if backoff.micro_batch_tokens != before.micro_batch_tokens {
            reductions
                .push(format!("micro-batches of {} tokens", micro_batching.micro_batch_tokens));
        }
        if backoff.whole_layers != before.whole_layers {
            reductions.push(
                "every layer recomputed in the backward pass (train.recompute = \"layers\")".into(),
            );
        }
        if (backoff.logits, backoff.halvings) != (before.logits, before.halvings) {
            reductions.push("smaller pieces of attention and head".into());
        }

        self.note(&format!(
            "{}: the device had no memory for an update, which was cut smaller and repeated, \
             with the same result up to rounding; from here on with {}",
            self.phase,
            reductions.join(", ")
        ));
    }

    /// Describes a step with nothing to learn from. The counters are in the metrics.
    pub(super) fn explain_empty(&mut self, sampling: &SamplingReport, update: &UpdateTotals) {
        // The number of updates is not enough: while a critic is warmed up the policy has none.
        if update.tokens == 0 && update.skipped == 0 {
            let text = format!(
                "         no group to train on after {} of at most {} rounds: \
                 {} groups all wrong, {} all right; {} of {} completions unparsable, {} cut off. \
                 No update.",
                sampling.rounds,
                self.built.trainer.sampler.config.rounds(),
                sampling.groups_all_wrong,
                sampling.groups_all_right,
                sampling.unparsable,
                sampling.completions,
                sampling.truncated,
            );

            self.note(&text);
        }
    }

    /// Passes on the notes of data, model and verifier.
    pub(super) fn pass_on_notes(&mut self) {
        let notes: Vec<String> = self.built.notes.try_iter().collect();
        for note in notes {
            self.note(&note);
        }
    }
}
