//! One mini-batch of a step, and the updates that it gets.

use firebrick_models::PolicyModel;

use crate::{
    Moves, Repeatable, Sample, Signals, TrainError, Trainer, UpdateReport,
    adaptive::{mean_advantage, mean_change, repeat},
    global_norm,
    report::Updated,
};

/// A mini-batch of a step, and the places for its numbers.
pub(crate) struct MiniBatch<'a, M: PolicyModel> {
    pub(crate) trainer: &'a mut Trainer<M>,
    /// The samples of the mini-batch; at least one of them counts.
    pub(crate) samples: Vec<Sample>,
    pub(crate) lr: f64,
    pub(crate) updated: &'a mut Updated,
}

impl<M: PolicyModel> MiniBatch<'_, M> {
    /// Makes the updates of the mini-batch: one, or as many as [`crate::AdaptiveUpdates`] gives it. A
    /// completion counts once among the trained ones, however many updates there are. It does not count while
    /// the critic alone learns.
    pub(crate) fn learn(mut self) -> Result<(), TrainError> {
        if self.trainer.warms_critic() {
            return self.warm_critic();
        }
        let before = self.updated.updates;
        match self.trainer.config.adaptive {
            Some(rule) => {
                if self.updated.trust.is_some() {
                    let logprobs = self.logprobs()?;
                    self.refuse(&logprobs);
                }
                if self.counts() {
                    let repeats = repeat(&mut self, &rule)?;
                    self.updated.repeats.push(repeats);
                }
            }
            None => {
                let (mut report, _) = self.pass()?;
                // The pass has the log-probabilities, and nothing has moved yet.
                if self.updated.trust.is_some()
                    && self.refuse(&report.seen.logprobs(&self.samples)?)
                {
                    self.updated.note_change(&report.metrics);
                    if self.counts() {
                        (report, _) = self.pass()?;
                    }
                }
                if self.counts() {
                    self.apply(report)?;
                }
            }
        }
        if !self.counts() {
            self.updated.empty += 1;
        }
        if self.updated.updates > before {
            let in_loss = self.samples.iter().filter(|sample| sample.in_loss).count();
            self.trainer.state.trained += in_loss as u64;
        }
        Ok(())
    }

    /// Takes completions out of the loss whose log-probabilities can't be those of the policy. Returns true if there
    /// are any. `logprobs` has the present ones of each sample.
    fn refuse(&mut self, logprobs: &[Vec<f32>]) -> bool {
        let Some(trust) = &self.updated.trust else { return false };
        let moved = self.updated.updates > 0;
        let refused = trust.refused(&self.samples, logprobs, moved);
        for &index in &refused {
            self.samples[index].in_loss = false;
        }
        self.updated.refused += refused.len();
        !refused.is_empty()
    }

    /// Tells whether anything counts in the loss.
    fn counts(&self) -> bool {
        self.samples.iter().any(|sample| sample.counted() > 0)
    }

    fn logprobs(&mut self) -> Result<Vec<Vec<f32>>, TrainError> {
        self.trainer.retry_on_oom(&self.samples, |trainer| {
            trainer.updater.logprobs(&trainer.policy, &self.samples)
        })
    }

    /// Makes one update of the critic, however many updates the policy would get. The policy's change ends
    /// such updates, and here the policy stands still.
    fn warm_critic(self) -> Result<(), TrainError> {
        let report = gradients(self.trainer, Moves::Critic, &self.samples)?;
        let trainer = self.trainer;
        let before = std::mem::replace(&mut trainer.mid_update, true);
        let moved = trainer.step_critic(report.of_critic, self.updated);
        // As with the policy, an update that fails or is skipped has moved nothing.
        if !matches!(moved, Ok(true)) {
            trainer.mid_update = before;
        }
        if moved? {
            self.updated.note(report.metrics, report.tokens);
        }
        Ok(())
    }
}

impl<M: PolicyModel> Repeatable for MiniBatch<'_, M> {
    type Pass = UpdateReport;

    fn pass(&mut self) -> Result<(UpdateReport, Signals), TrainError> {
        let report = gradients(self.trainer, Moves::Policy, &self.samples)?;
        let metric = |name| report.metrics.get(name).unwrap_or(f64::NAN);
        let signals = Signals {
            advantage: mean_advantage(&self.samples),
            change: metric("loss/logprob_change"),
            entropy: metric("loss/entropy"),
        };
        Ok((report, signals))
    }

    fn apply(&mut self, report: UpdateReport) -> Result<bool, TrainError> {
        // These numbers are read while nothing has moved.
        let trained = if self.updated.looks {
            report.seen.read(&self.samples)?
        } else {
            self.samples.iter().map(Sample::trained).collect()
        };
        let trainer = &mut *self.trainer;
        // ANCHOR: tour
        let before = std::mem::replace(&mut trainer.mid_update, true);
        let stepped = trainer.optimizer.step(trainer.policy.clone(), report.gradients, self.lr);
        // Only reading the gradients' norm can fail, and it comes before anything has moved.
        if stepped.as_ref().map_or(true, |(_, outcome)| outcome.skipped) {
            trainer.mid_update = before;
        }
        // ANCHOR_END: tour
        let (policy, outcome) = match stepped {
            // If a device could not compute a tensor, that comes to light when the tensor is read.
            Err(error) if error.is_out_of_memory() => {
                trainer.back_off(&self.samples, error)?;
                let (report, _) = self.pass()?;
                return self.apply(report);
            }
            stepped => stepped?,
        };
        trainer.policy = policy;
        if trainer.scale_again(&outcome) {
            let (report, _) = self.pass()?;
            return self.apply(report);
        }
        let in_a_row = &mut trainer.state.skipped_in_a_row;
        *in_a_row = if outcome.skipped { *in_a_row + 1 } else { 0 };
        if outcome.skipped {
            self.updated.skipped.push(self.samples.clone());
        } else {
            self.updated.shared += report.shared * report.tokens as f64;
            // Only the first of several updates is recorded, because the others begin where it ended.
            for (sample, trained) in
                self.samples.iter().zip(trained).filter(|(sample, _)| sample.in_loss)
            {
                self.updated.trained.entry((sample.group, sample.place)).or_insert(trained);
            }
            self.updated.add(report.metrics, report.tokens, outcome.grad_norm);
            trainer.step_critic(report.of_critic, self.updated)?;
        }
        Ok(!outcome.skipped)
    }

    fn change(&mut self) -> Result<f64, TrainError> {
        let logprobs = self.logprobs()?;
        Ok(mean_change(&self.samples, &logprobs))
    }
}

fn gradients<M: PolicyModel>(
    trainer: &mut Trainer<M>,
    moves: Moves,
    samples: &[Sample],
) -> Result<UpdateReport, TrainError> {
    trainer.updater.loss_scale = trainer.state.loss_scale.of(trainer.policy.compute());
    trainer.retry_on_oom(samples, |trainer| {
        let Trainer { updater, policy, critic, .. } = trainer;
        let report = updater.gradients_with(policy, critic.as_ref(), moves, samples)?;
        // The gradient is checked here. The critic is moved after the policy, when it is too late to make its
        // gradient again.
        if let Some((critic, of_critic)) = critic.as_ref().zip(report.of_critic.as_ref()) {
            global_norm(&critic.model, of_critic)?;
        }
        Ok(report)
    })
}
