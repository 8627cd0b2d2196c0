//! Follows a run in another process, and reports its progress to a watcher as if the run were here.

use std::collections::{BTreeMap, BTreeSet};

use firebrick_core::{Completion, Metrics, Prompt, Score, Step, Verdict};
use firebrick_runs::{HELDOUT, Judged, PromptFrame, RunError, Store, TRAIN};

use crate::{
    diagnose::ENDED,
    watch::{Example, Stage, Watcher},
};

/// A reader of a run's record. Each call reports to a watcher what is new: lines, numbers, and completions of each step
/// and evaluation. Seconds and sampled groups are the record's. It does not call the watcher's `finished`, because the
/// summary is the run's own.
pub struct Follow {
    /// Last step that was reported; `reported` holds the names of those of its numbers that were.
    step: Step,
    reported: BTreeSet<String>,
    /// Number of lines that were reported.
    lines: usize,
    /// Number of groups that the current step has so far, once there are some.
    under_way: Option<u64>,
    /// What the run's prompts have in common; `None` before the first example.
    frame: Option<PromptFrame>,
    /// How often the run had gone back to an earlier step; `None` before the first read.
    cuts: Option<u64>,
}

impl Follow {
    /// Starts at the run's beginning.
    pub fn new() -> Self {
        let reported = BTreeSet::new();
        Follow { step: 0, reported, lines: 0, under_way: None, frame: None, cuts: None }
    }

    /// Reports what is new. Returns the reason why the run's last process ended, if it ended and could say why.
    ///
    /// # Errors
    /// When the record can't be read.
    pub fn catch_up(
        &mut self,
        store: &Store,
        watcher: &mut dyn Watcher,
    ) -> Result<Option<String>, RunError> {
        // Read first: whatever the process wrote before it ended is then surely read below.
        let end_reason = store.info(ENDED)?.filter(|why| !why.is_empty());
        let last_step = store.last_step()?;

        // Steps are repeated, starting at the one that the run went back to: its numbers were reported before.
        if self.has_gone_back(store)? {
            let (_, step) = store.cuts()?;
            let known = store.all_series(&(step..=step))?;
            self.step = step;
            self.reported = known.into_keys().collect();
        }
        self.cuts = Some(store.cuts()?.0);

        let lines = store.told(self.lines)?;
        self.lines += lines.len();
        let mut lines = lines.into_iter().peekable();

        // Few steps are read at a time, so that a long run takes little memory.
        let mut from = self.step;
        loop {
            let steps = store.steps(from, AT_ONCE)?;
            let (Some(&first), Some(&last_step)) = (steps.first(), steps.last()) else { break };
            for (step, mut metrics) in by_step(store, first, last_step)? {
                while let Some(line) = lines.next_if(|line| line.step < step) {
                    watcher.note(&line.text);
                }

                if step == self.step {
                    metrics.0.retain(|name, _| !self.reported.contains(name));
                } else {
                    self.step = step;
                    self.reported = BTreeSet::new();
                }
                self.reported.extend(metrics.0.keys().cloned());
                if !metrics.0.is_empty() {
                    self.step(store, step, &metrics, watcher)?;
                }
            }

            if steps.len() < AT_ONCE {
                break;
            }
            from = last_step + 1;
        }

        lines.for_each(|line| watcher.note(&line.text));
        self.progress(store, last_step + 1, watcher)?;
        Ok(end_reason)
    }

    /// Tells whether the run has gone back to before the last reported step, so that steps are repeated.
    ///
    /// # Errors
    /// When the record can't be read.
    pub fn has_gone_back(&self, store: &Store) -> Result<bool, RunError> {
        let (cuts, step) = store.cuts()?;
        Ok(self.cuts.is_some_and(|known| known != cuts) && step < self.step)
    }

    fn step(
        &mut self,
        store: &Store,
        step: Step,
        metrics: &Metrics,
        watcher: &mut dyn Watcher,
    ) -> Result<(), RunError> {
        if self.under_way.take().is_some() {
            watcher.end();
        }

        if metrics.get("eval/heldout_accuracy").is_some() {
            for judged in store.examples(HELDOUT, step)? {
                show(judged, self.frame(store)?, |example| watcher.example(example));
            }
        }

        watcher.metrics(step, metrics);
        if metrics.get("sampling/groups_kept").is_some() {
            for judged in store.examples(TRAIN, step)? {
                show(judged, self.frame(store)?, |example| watcher.sampled(step, example));
            }
        }
        Ok(())
    }

    fn frame(&mut self, store: &Store) -> Result<&PromptFrame, RunError> {
        // The first example comes after the prompts of an evaluation or a step, which are enough to compare.
        let frame = match self.frame.take() {
            Some(frame) => frame,
            None => store.prompt_frame()?,
        };
        Ok(self.frame.insert(frame))
    }

    /// Reports the number of groups that the current step has so far.
    fn progress(
        &mut self,
        store: &Store,
        step: Step,
        watcher: &mut dyn Watcher,
    ) -> Result<(), RunError> {
        let sampled = store.sampled(TRAIN, step)?;
        let known = match self.under_way {
            Some(known) => known,
            None if sampled == 0 => return Ok(()),
            None => {
                watcher.begin(Stage::Rollout, 0);
                0
            }
        };

        watcher.advance(sampled.saturating_sub(known));
        self.under_way = Some(sampled);
        Ok(())
    }
}

impl Default for Follow {
    fn default() -> Self {
        Follow::new()
    }
}

/// Number of steps that are read at a time.
const AT_ONCE: usize = 500;

/// Reads the numbers of these steps, step by step.
fn by_step(store: &Store, first: Step, last: Step) -> Result<Vec<(Step, Metrics)>, RunError> {
    let mut steps = BTreeMap::<Step, Metrics>::new();
    for (name, points) in store.all_series(&(first..=last))? {
        for (step, value) in points {
            steps.entry(step).or_default().set(&name, value);
        }
    }
    Ok(steps.into_iter().collect())
}

/// Shows a completion of the record. The record has no tokens of it.
fn show(judged: Judged, frame: &PromptFrame, show: impl FnOnce(&Example)) {
    let Judged { prompt, reference, text, verdict, extracted, .. } = judged;
    let known = Verdict::ALL.into_iter().find(|known| known.name() == verdict);
    let verdict = known.unwrap_or(Verdict::Error);
    let credit = if verdict == Verdict::Right { 1.0 } else { 0.0 };
    let score = Score { verdict, credit, extracted, parts: Vec::new() };
    let question = frame.question(&prompt).to_owned();
    let prompt = Prompt { text: prompt, question, reference, ..Prompt::default() };
    let completion = Completion::of_text(text);
    show(&Example { prompt: &prompt, completion: &completion, score: &score });
}
