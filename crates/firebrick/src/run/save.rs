//! Files that a run writes besides its record: checkpoints, the policies that others begin with, and batches that
//! could not be learnt from.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use firebrick_core::Step;
use firebrick_runs::{publish_folder, write_atomically, write_sums};
use firebrick_train::TrainError;

use super::{PROGRESS, Run};
use crate::{
    build::{BuiltRun, RunLearner},
    card::{CARD, Card},
    error::Error,
    layout::{TRAINER, WEIGHTS},
    watch::Stage,
};

impl<L: RunLearner> Run<L> {
    /// Keeps batches whose gradient was not finite, for a user who wants to know why.
    pub(super) fn save_skipped(
        &mut self,
        step: Step,
        skipped: &[Vec<firebrick_train::Sample>],
    ) -> Result<(), Error> {
        for (index, samples) in skipped.iter().enumerate() {
            let path = self.folder.skipped(step, index);
            let bytes = serde_json::to_vec(samples).unwrap_or_default();
            write_atomically(&path, &bytes)?;

            let text = format!(
                "step {step}: a gradient was not finite, and its update was skipped; firebrick replay {} shows \
                 which completions are to blame",
                firebrick_runs::path_word(&path)
            );
            self.note(&text);
        }
        Ok(())
    }

    /// Keeps the frozen policy of a KL penalty, which is the policy that the first step starts from. It is in the run
    /// folder, because a resumed run's policy differs from it.
    pub(super) fn keep_reference(&mut self) -> Result<(), Error> {
        let BuiltRun { trainer, files, .. } = &mut self.built;
        if !trainer.learner.updater().objective.needs_reference() {
            return Ok(());
        }

        let path = self.folder.path().join("reference");
        let is_kept = path.is_dir();
        let learner = &mut trainer.learner;
        let reference = if trainer.state.step > 0 {
            if !is_kept {
                return Err(TrainError::NoReference.into());
            }
            files.read(learner.frozen_policy(), &path)?
        } else {
            // A run that starts over may begin with another policy.
            if is_kept {
                fs::remove_dir_all(&path)
                    .map_err(|source| Error::File { path: path.clone(), source })?;
            }
            let temporary = self.folder.path().join(".tmp-reference");
            fs::create_dir_all(&temporary)
                .map_err(|source| Error::File { path: temporary.clone(), source })?;
            files.write_trained(learner.policy(), &temporary)?;
            publish_folder(&temporary, &path)?;
            files.frozen(learner.frozen_policy(), &path)?
        };
        learner.set_reference(reference);
        Ok(())
    }

    /// Writes a checkpoint, and removes old ones.
    pub(super) fn checkpoint(&mut self) -> Result<(), Error> {
        self.read_clock();
        let began = Instant::now();
        self.watcher.begin(Stage::Save, 0);
        let step = self.built.trainer.state.step;

        // A broken policy must not replace an intact one.
        self.built.trainer.learner.check()?;

        self.folder.check()?;
        let temporary = self.folder.begin_checkpoint(step)?;
        self.write_checkpoint(&temporary)?;
        write_sums(&temporary)?;
        // The record up to a checkpoint is never made again, so it is written before the checkpoint.
        self.settle_record();
        publish_folder(&temporary, &self.folder.checkpoint(step))?;

        if self.recipe.checkpoint.keep > 0 {
            let best = self.progress.best.map(|(step, _)| step);
            let best = best.filter(|_| self.recipe.checkpoint.best);
            self.folder.prune(self.recipe.checkpoint.keep, best)?;
        }

        self.tidy(step);
        self.watcher.end();
        self.progress.seconds.checkpoint += began.elapsed().as_secs_f64();
        Ok(())
    }

    /// Keeps the state after SFT in the folder where other runs look for it.
    pub(super) fn keep_sft(&self) -> Result<(), Error> {
        let Some(folder) = &self.sft else { return Ok(()) };
        let temporary = folder.with_extension("tmp");
        let file = |source| Error::File { path: temporary.clone(), source };
        if temporary.exists() {
            fs::remove_dir_all(&temporary).map_err(file)?;
        }
        fs::create_dir_all(&temporary).map_err(file)?;
        self.write_checkpoint(&temporary)?;
        Ok(publish_folder(&temporary, folder)?)
    }

    /// Writes the policy in the format in which others open it, with the state for a resumed run in `trainer/`.
    fn write_checkpoint(&self, folder: &Path) -> Result<(), Error> {
        let BuiltRun { trainer, files, tokenizer, .. } = &self.built;
        files.write(trainer.learner.policy(), folder)?;
        tokenizer.save(folder)?;
        self.write_card(folder)?;

        let inner = make_folder(folder.join(TRAINER))?;
        if files.rounds() {
            files.write_trained(trainer.learner.policy(), &make_folder(inner.join(WEIGHTS))?)?;
        }
        trainer.learner.save(&inner, &trainer.state)?;

        let bytes = serde_json::to_vec_pretty(&self.progress).unwrap_or_default();
        Ok(write_atomically(&inner.join(PROGRESS), &bytes)?)
    }

    fn write_card(&self, folder: &Path) -> Result<(), Error> {
        let BuiltRun { trainer, files, heldout, replaced, .. } = &self.built;
        let name = self.folder.path().file_name().unwrap_or_default().to_string_lossy();
        let card = Card {
            name: &name,
            recipe: &self.recipe,
            format: files.format(),
            replaced,
            state: &trainer.state,
            sft_steps: self.progress.sft_steps,
            prompts: heldout.len(),
            heldout: &self.progress.heldout,
        };
        Ok(write_atomically(&folder.join(CARD), card.to_string().as_bytes())?)
    }
}

fn make_folder(path: PathBuf) -> Result<PathBuf, Error> {
    match fs::create_dir(&path) {
        Ok(()) => Ok(path),
        Err(source) => Err(Error::File { path, source }),
    }
}
