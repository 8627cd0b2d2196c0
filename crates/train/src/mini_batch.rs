//! One mini-batch of a step, and the updates that it gets.

use firebrick_models::PolicyModel;

use crate::{
    Repeatable, Sample, Signals, TrainError, Trainer, UpdateReport, UpdateTarget,
    adaptive::{mean_advantage, mean_change, repeat},
    global_norm,
    report::Updated,
};

/// One mini-batch of a step, and where its results are recorded.
pub(crate) struct MiniBatch<'a, M: PolicyModel> {
    pub(crate) trainer: &'a mut Trainer<M>,
    /// The samples of the mini-batch; at least one of them counts.
    pub(crate) samples: Vec<Sample>,
    pub(crate) lr: f64,
    pub(crate) updated: &'a mut Updated,
}

impl<M: PolicyModel> MiniBatch<'_, M> {
    /// Makes the updates of the mini-batch: one, or as many as [`crate::AdaptiveUpdates`] plans. A completion
    /// counts once among the trained ones, however many updates there are. It does not count while only the
    /// critic is trained.
    pub(crate) fn run(mut self) -> Result<(), TrainError> {
        if self.trainer.warms_critic() {
            return self.warm_critic();
        }

        let updates_before = self.updated.updates;
        match self.trainer.config.adaptive {
            Some(rule) => {
                if self.updated.logprob_check.is_some() {
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
                if self.updated.logprob_check.is_some()
                    && self.refuse(&report.token_stats.logprobs(&self.samples)?)
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

        if self.updated.updates > updates_before {
            let in_loss = self.samples.iter().filter(|sample| sample.in_loss).count();
            self.trainer.state.trained += in_loss as u64;
        }
        Ok(())
    }

    /// Takes completions out of the loss whose log-probabilities can't be those of the policy. Returns true
    /// if there are any. `logprobs` has each sample's log-probabilities under the current policy.
    fn refuse(&mut self, logprobs: &[Vec<f32>]) -> bool {
        let Some(check) = &self.updated.logprob_check else { return false };
        let moved = self.updated.updates > 0;
        let refused = check.refused(&self.samples, logprobs, moved);

        for &index in &refused {
            self.samples[index].in_loss = false;
        }
        self.updated.refused += refused.len();
        !refused.is_empty()
    }

    /// Returns true if anything counts in the loss.
    fn counts(&self) -> bool {
        self.samples.iter().any(|sample| sample.loss_tokens() > 0)
    }

    fn logprobs(&mut self) -> Result<Vec<Vec<f32>>, TrainError> {
        self.trainer.retry_on_oom(&self.samples, |trainer| {
            trainer.updater.logprobs(&trainer.policy, &self.samples)
        })
    }

    /// Makes one update of the critic, however many updates the policy would get: such updates end by the
    /// policy's change, and here the policy is not trained.
    fn warm_critic(self) -> Result<(), TrainError> {
        let report = gradients(self.trainer, UpdateTarget::Critic, &self.samples)?;

        let trainer = self.trainer;
        let mid_update = std::mem::replace(&mut trainer.mid_update, true);
        let moved = trainer.step_critic(report.critic_gradients, self.updated);
        // As with the policy, an update that fails or is skipped has moved nothing.
        if !matches!(moved, Ok(true)) {
            trainer.mid_update = mid_update;
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
        let report = gradients(self.trainer, UpdateTarget::Policy, &self.samples)?;
        let metric = |name| report.metrics.get(name).unwrap_or(f64::NAN);
        let signals = Signals {
            advantage: mean_advantage(&self.samples),
            change: metric("loss/logprob_change"),
            entropy: metric("loss/entropy"),
        };
        Ok((report, signals))
    }

    fn apply(&mut self, report: UpdateReport) -> Result<bool, TrainError> {
        // The token statistics are read before anything moves.
        let trained = if self.updated.record_token_stats {
            report.token_stats.read(&self.samples)?
        } else {
            self.samples.iter().map(Sample::trained).collect()
        };

        let trainer = &mut *self.trainer;
        // ANCHOR: tour
        let mid_update = std::mem::replace(&mut trainer.mid_update, true);
        let stepped = trainer.optimizer.step(trainer.policy.clone(), report.gradients, self.lr);
        // Only reading the gradients' norm can fail, and it comes before anything has moved.
        if stepped.as_ref().map_or(true, |(_, outcome)| outcome.skipped) {
            trainer.mid_update = mid_update;
        }
        // ANCHOR_END: tour
        let (policy, outcome) = match stepped {
            // If a device could not compute a tensor, that shows when the tensor is read.
            Err(error) if error.is_out_of_memory() => {
                trainer.back_off(&self.samples, error)?;
                let (report, _) = self.pass()?;
                return self.apply(report);
            }
            stepped => stepped?,
        };

        trainer.policy = policy;

        // With a smaller loss scale the same mini-batch is tried again.
        if trainer.retry_with_smaller_scale(&outcome) {
            let (report, _) = self.pass()?;
            return self.apply(report);
        }

        let in_a_row = &mut trainer.state.skipped_in_a_row;
        *in_a_row = if outcome.skipped { *in_a_row + 1 } else { 0 };

        if outcome.skipped {
            self.updated.skipped.push(self.samples.clone());
        } else {
            self.updated.prompt_sharing += report.prompt_sharing * report.tokens as f64;
            // Only the first of several updates is recorded, because the others begin where it ended.
            for (sample, trained) in
                self.samples.iter().zip(trained).filter(|(sample, _)| sample.in_loss)
            {
                self.updated.trained.entry((sample.group, sample.place)).or_insert(trained);
            }
            self.updated.add(report.metrics, report.tokens, outcome.grad_norm);
            trainer.step_critic(report.critic_gradients, self.updated)?;
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
    target: UpdateTarget,
    samples: &[Sample],
) -> Result<UpdateReport, TrainError> {
    trainer.updater.loss_scale = trainer.state.loss_scale.of(trainer.policy.compute());
    trainer.retry_on_oom(samples, |trainer| {
        let Trainer { updater, policy, critic, .. } = trainer;
        let report = updater.gradients_with(policy, critic.as_ref(), target, samples)?;
        // The gradient is checked here, because the critic is moved after the policy, when it is too late to
        // compute its gradient again.
        if let Some((critic, gradients)) = critic.as_ref().zip(report.critic_gradients.as_ref()) {
            global_norm(&critic.model, gradients)?;
        }
        Ok(report)
    })
}
