//! Jobs that a run hands to the thread that writes its database.

use std::{sync::Mutex, time::Instant};

use firebrick_core::{Metrics, RewardedGroup, Step, Tracker as _};
use firebrick_runs::{HELDOUT, Outcome, RunError, Store, TRAIN};

use super::Run;
use crate::{
    build::RunLearner,
    diagnose::{self, ENDED},
    journal::{Journal, lock},
    recipe::Record,
};

impl<L: RunLearner> Run<L> {
    /// Records a step. A store or a tracker that fails must not end a run that works: the failure is only reported.
    pub(super) fn record(
        &mut self,
        step: Step,
        metrics: &Metrics,
        groups: Vec<RewardedGroup>,
        outcome: Outcome,
    ) {
        let Run { journal, trackers, watcher, .. } = self;
        for tracker in trackers {
            let logged =
                tracker.log(step, metrics).and_then(|()| tracker.log_groups(step, &groups));
            if let Err(error) = logged {
                watcher.note(&format!("a tracker has lost step {step}: {error}"));
            }
        }

        let metrics = metrics.clone();
        lock(journal).store.later(move |store| {
            // The numbers come last, because their write flushes everything before them to disk. They are written even
            // if the groups failed, because they are small and may fit where completions do not.
            let sampled =
                store.record(TRAIN, step, &groups, &outcome).err().map(|error| error.to_string());
            let numbers = store.log(step, &metrics).err().map(|error| error.to_string());
            Some(format!("step {step} is not in run.db: {}", sampled.or(numbers)?))
        });
    }

    /// Writes the groups that an evaluation has sampled, with their verdicts.
    pub(super) fn record_evaluation(
        &mut self,
        source: &str,
        step: Step,
        groups: Vec<RewardedGroup>,
    ) {
        let began = Instant::now();
        let source = source.to_owned();
        let mut journal = lock(&self.journal);
        journal.store.later(move |store| {
            let error = store.record(&source, step, &groups, &Outcome::default()).err()?;
            Some(format!("the evaluation of step {step} is not in run.db: {error}"))
        });
        journal.spend(began);
    }

    /// Passes a line to the watcher, and keeps it in the record.
    pub(super) fn note(&mut self, text: &str) {
        self.watcher.note(text);
        keep_event(&self.journal, self.built.trainer.state.step, text);
    }

    /// Reports which writes failed, and which completions were removed.
    pub(super) fn explain_record(&mut self) {
        let lines = lock(&self.journal).store.told();
        lines.iter().flat_map(|text| text.lines()).for_each(|line| self.note(line));
    }

    /// Waits until everything is written, and reports which writes failed.
    pub(super) fn settle_record(&mut self) {
        let settled = lock(&self.journal).store.settle();
        if let Err(error) = settled {
            self.watcher.note(&error.to_string());
        }
        self.explain_record();
    }

    /// Records why the run ended.
    pub(super) fn end_with(&self, reason: &str) {
        let reason = reason.to_owned();
        let note = move |store: &mut Store| {
            store.set_info(ENDED, &reason).err().map(|error| error.to_string())
        };
        lock(&self.journal).store.later(note);
    }

    /// Checks the record now and then for faults that grow slowly.
    pub(super) fn look_for_alarms(&self, step: Step) {
        if step.is_multiple_of(diagnose::EVERY) {
            let recipe = self.recipe.clone();
            lock(&self.journal).store.later(move |store| match diagnose::alarms(store, &recipe) {
                Ok(lines) => (!lines.is_empty()).then(|| lines.join("\n")),
                Err(error) => Some(format!("the run could not be checked for faults: {error}")),
            });
        }
    }

    /// Removes tokens and groups from the database that are not needed again, now that there is a checkpoint of `step`.
    pub(super) fn tidy(&self, step: Step) {
        let Record { tokens_every, max_megabytes } = self.recipe.record;

        // The evaluation after this step may not be over.
        let evaluated = self.progress.evaluated;
        let mut forgotten = vec![(TRAIN.to_owned(), step, tokens_every)];
        // At step 0 the evaluation after SFT may not be over.
        if evaluated > 0 {
            forgotten.push((HELDOUT.to_owned(), evaluated, tokens_every));
            for set in &self.built.sets {
                forgotten.push((set.name.clone(), evaluated, tokens_every));
                forgotten.push((format!("{} initial", set.name), 0, 0));
            }
        }
        if self.progress.sft_done {
            forgotten.push(("initial".to_owned(), 0, 0));
        }

        let tidy = move |store: &mut Store| {
            for (source, step, every) in forgotten {
                store.forget_tokens(&source, step, every)?;
            }
            if step > 0 {
                store.forget_unjudged(step.min(evaluated))?;
            }
            match max_megabytes {
                0 => Ok(None),
                most => store.limit(most << 20),
            }
        };

        lock(&self.journal).store.later(move |store| match tidy(store) {
            Ok(None) => None,
            Ok(Some(last)) => Some(format!(
                "run.db has more than {max_megabytes} MB (record.max_megabytes): completions up to step {last} were removed from it"
            )),
            Err::<_, RunError>(error) => {
                Some(format!("run.db grows, because old records could not be removed: {error}"))
            }
        });
    }
}

/// Keeps a line in the run's database.
pub(super) fn keep_event(journal: &Mutex<Journal>, step: Step, text: &str) {
    let text = text.to_owned();
    lock(journal).store.later(move |store| {
        // If the database can't be written, the error is reported where a step is lost.
        let _ = store.event(step, &text);
        None
    });
}
