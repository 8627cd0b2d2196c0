//! Evaluations of the held-out prompts, of further sets, and of the progress of SFT. `Steps::between` says when.

use std::time::Instant;

use firebrick_core::{Metrics, Prompt, RewardedGroup, Seed, Step};
use firebrick_runs::{HELDOUT, Outcome};
use firebrick_train::eval::EvalReport;

use super::{Progress, Run, record::keep_event};
use crate::{
    Error,
    build::{BuiltRun, EvalSet, RunLearner, first_of_each},
    journal::lock,
    recipe::{Sft, Train},
    watch::{Phases, examples},
};

/// Limit of the difficulties that have a metric: a column with a different word for each question is not a column of
/// difficulties.
const DIFFICULTIES: usize = 20;

impl<L: RunLearner> Run<L> {
    /// Reports the progress of SFT, and returns true if it has reached its goal.
    pub(super) fn measure_sft(&mut self, step: Step) -> Result<bool, Error> {
        let Sft { samples, stop_at, .. } = self.recipe.sft;
        let mut metrics = Metrics::default();
        metrics.set("sft/loss", self.progress.sft_loss.unwrap_or(f64::NAN));

        let prompts = first_of_each(&self.built.heldout, samples, |prompt| &prompt.data_source);
        let measured = self.measure(&prompts, self.recipe.eval.samples.max(1), None)?;

        // If nothing could be judged, nothing was measured.
        let accuracy = measured.map(|(report, _)| report.accuracy).filter(|it| it.is_finite());
        if let Some(accuracy) = accuracy {
            metrics.set("sft/accuracy", accuracy);
        }

        self.watcher.metrics(step, &metrics);
        self.progress.sft_measured = step;
        Ok(accuracy.zip(stop_at).is_some_and(|(accuracy, stop_at)| accuracy >= stop_at))
    }

    /// Evaluates the policy after a step.
    pub(super) fn measure_step(&mut self, step: Step) -> Result<(), Error> {
        // If this evaluation fails, a resumed run must not take the one before for it.
        self.progress.heldout.r#final = None;
        let measured = self.evaluate(HELDOUT)?;
        self.progress.evaluated = step;
        let Some(report) = measured else { return Ok(()) };

        self.show_accuracy(step, &report);
        let EvalReport { accuracy, credit, by_difficulty, by_data_source, .. } = report;
        let mut measured = heldout_metrics(accuracy, credit);
        for (difficulty, (_, accuracy)) in by_difficulty.into_iter().take(DIFFICULTIES) {
            measured.set(format!("eval/difficulty/{difficulty}"), accuracy);
        }
        for (name, (_, accuracy)) in by_data_source {
            measured.set(format!("eval/data_source/{name}"), accuracy);
        }
        self.record(step, &measured, Vec::new(), Outcome::default());

        self.progress.heldout.r#final = Some(accuracy);
        self.progress.heldout.final_credit = Some(credit);

        // A judge that gives partial credit may find no answer right for long, while the answers get better.
        let Progress { best, best_credit, .. } = &self.progress;
        let is_best = best.is_none_or(|(_, best)| {
            accuracy > best || (accuracy == best && best_credit.is_some_and(|best| credit > best))
        });
        if is_best {
            self.progress.best = Some((step, accuracy));
            self.progress.best_credit = Some(credit);
            self.progress.since_best = 0;
        } else {
            self.progress.since_best += 1;
        }
        Ok(())
    }

    /// Returns the key of the recipe by which the run ends after its last evaluation, if there is one.
    pub(super) fn reached(&self) -> Option<&'static str> {
        let Train { stop_at, patience, .. } = self.recipe.train;
        let Progress { heldout, since_best, .. } = &self.progress;
        let accuracy = heldout.r#final?;

        if stop_at.is_some_and(|stop_at| accuracy >= stop_at) {
            Some("stop_at")
        } else {
            patience.filter(|patience| since_best >= patience).map(|_| "patience")
        }
    }

    /// Measures how well the current policy answers the held-out prompts, sampled for `source`. Returns `None` without
    /// such prompts. The further sets are measured too.
    pub(super) fn evaluate(&mut self, source: &'static str) -> Result<Option<EvalReport>, Error> {
        let step = self.built.trainer.state.step;
        let samples = self.recipe.eval.samples.max(1);
        let heldout = self.built.heldout.clone();
        let measured = self.measure(&heldout, samples, Some((source, step)))?;

        let report = measured.and_then(|(report, groups)| {
            let seed = Seed::run(self.recipe.seed).derive("example", &[step]);
            for example in examples(&groups, seed) {
                self.watcher.example(&example);
            }
            self.record_evaluation(source, step, groups);
            // If nothing could be judged, nothing was measured.
            Some(report).filter(|report| report.accuracy.is_finite())
        });

        for set in self.built.sets.clone() {
            self.measure_set(&set, source, step)?;
        }
        Ok(report)
    }

    /// Measures a further set of the recipe, when the held-out prompts are evaluated on for `source`.
    fn measure_set(&mut self, set: &EvalSet, source: &str, step: Step) -> Result<(), Error> {
        let EvalSet { name, prompts, samples } = set;
        // The evaluations before and after SFT both have step 0, so the name tells them apart.
        let own = if source == HELDOUT { name.clone() } else { format!("{name} {source}") };
        let Some((report, groups)) = self.measure(prompts, *samples, Some((&own, step)))? else {
            return Ok(());
        };

        self.record_evaluation(&own, step, groups);
        if report.judged() == 0 {
            self.note(&format!("{name}: no completion could be judged, so nothing was measured"));
            return Ok(());
        }

        let mut metrics = Metrics::default();
        metrics.set(format!("eval/{name}/accuracy"), report.accuracy);
        metrics.set(format!("eval/{name}/majority"), report.majority);
        let (k, pass) = report.pass_at.last().copied().unwrap_or((1, report.accuracy));
        metrics.set(format!("eval/{name}/pass_at_{k}"), pass);
        let (low, high) = report.interval;
        self.note(&format!(
            "{name}: accuracy {:.3} ({low:.3} to {high:.3}), pass@{k} {pass:.3}, maj@{} {:.3}",
            report.accuracy, report.samples, report.majority
        ));

        if step > 0 {
            self.record(step, &metrics, Vec::new(), Outcome::default());
        }
        self.progress.sets.insert(name.clone(), report.accuracy);
        Ok(())
    }

    /// Samples and judges completions of `prompts`, which the journal keeps at `position`.
    fn measure(
        &mut self,
        prompts: &[Prompt],
        samples: usize,
        position: Option<(&str, Step)>,
    ) -> Result<Option<(EvalReport, Vec<RewardedGroup>)>, Error> {
        let began = Instant::now();
        if prompts.is_empty() {
            return Ok(None);
        }

        let BuiltRun { trainer, eval_sampling, notes, .. } = &mut self.built;
        let phase = std::mem::take(&mut self.phase);
        self.phase = if phase.is_empty() {
            "the evaluation before training".into()
        } else {
            format!("the evaluation after {phase}")
        };

        lock(&self.journal).turn_to(position);
        let journal = &self.journal;
        let step = trainer.state.step;
        let keep = |text: &str| keep_event(journal, step, text);
        let watcher = self.watcher.as_mut();
        let phases = &mut Phases { watcher, notes, keep: &keep };
        let measured = trainer.evaluate(prompts, samples, eval_sampling, phases)?;

        self.progress.seconds.eval += began.elapsed().as_secs_f64();
        self.explain_journal((prompts.len() * samples) as u64);
        self.phase = phase;
        self.pass_on_notes();
        Ok(Some(measured))
    }

    /// Shows an evaluation on the held-out prompts. Step 0 means before the first step.
    pub(super) fn show_accuracy(&mut self, step: Step, report: &EvalReport) {
        self.watcher.metrics(step, &heldout_metrics(report.accuracy, report.credit));
    }
}

fn heldout_metrics(accuracy: f64, credit: f64) -> Metrics {
    let mut metrics = Metrics::default();
    metrics.set("eval/heldout_accuracy", accuracy);
    metrics.set("eval/heldout_credit", credit);
    metrics
}
