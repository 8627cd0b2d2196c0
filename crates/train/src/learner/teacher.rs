//! Teachers: models that say how likely the policy's tokens would have been under them.

use std::collections::BTreeMap;

use firebrick_core::Metrics;
use firebrick_models::PolicyModel;

use crate::{
    algorithm::distillation::Distillation,
    error::TrainError,
    learner::{checked_logprobs, update::Updater},
    sample::Sample,
};

/// The policy's teachers, and what follows from their opinions.
pub struct Teachers {
    /// How opinions become advantages.
    pub distillation: Distillation,
    /// The teachers. The first teaches on the prompts of all data sets that have no other.
    pub models: Vec<Box<dyn Teacher>>,
    /// Index of a data set's own teacher, by the data set's name ([`Sample::data_source`]).
    pub own: BTreeMap<String, usize>,
}

/// A model that says of each token of a completion how likely it would have been there.
pub trait Teacher: Send {
    /// Computes the log-probabilities of the samples' completion tokens, one list per sample, as
    /// [`Updater::logprobs`] does: at the updater's temperature, and with any number for a token that the policy did not
    /// write.
    ///
    /// # Errors
    /// When a device or a server fails.
    fn logprobs(&self, updater: &Updater, samples: &[Sample]) -> Result<Vec<Vec<f32>>, TrainError>;

    /// Halves the chunks that it computes in, if it has any, because its device has no memory left.
    fn halve_chunks(&mut self) {}
}

/// A teacher in this process, on a device without autodiff.
pub struct LocalTeacher<M>(pub M);

impl<M: PolicyModel> Teacher for LocalTeacher<M> {
    fn logprobs(&self, updater: &Updater, samples: &[Sample]) -> Result<Vec<Vec<f32>>, TrainError> {
        updater.logprobs(&self.0, samples)
    }

    fn halve_chunks(&mut self) {
        self.0.halve_chunks();
    }
}

impl Teachers {
    /// Asks the teacher of each sample for its log-probabilities.
    pub(super) fn logprobs(
        &self,
        updater: &Updater,
        samples: &[Sample],
    ) -> Result<Vec<Vec<f32>>, TrainError> {
        if let [one] = &self.models[..] {
            return checked_logprobs(one.logprobs(updater, samples)?, samples);
        }

        let mut logprobs = vec![Vec::new(); samples.len()];
        for (index, teacher) in self.models.iter().enumerate() {
            let is_own =
                |&at: &usize| self.own.get(&samples[at].data_source).copied().unwrap_or(0) == index;
            let own: Vec<usize> = (0..samples.len()).filter(is_own).collect();

            if own.is_empty() {
                continue;
            }
            let asked: Vec<Sample> = own.iter().map(|&at| samples[at].clone()).collect();
            let answers = checked_logprobs(teacher.logprobs(updater, &asked)?, &asked)?;
            own.into_iter().zip(answers).for_each(|(at, answer)| logprobs[at] = answer);
        }
        Ok(logprobs)
    }

    pub(super) fn halve_chunks(&mut self) {
        self.models.iter_mut().for_each(|teacher| teacher.halve_chunks());
    }

    /// Adds what the teachers say to the samples' advantages, and measures how far the policy is from them.
    pub(super) fn teach(&self, samples: &mut [Sample], logprobs: &[Vec<f32>]) -> Metrics {
        let (mut count, mut reverse_kl) = (0.0, 0.0);
        for (sample, teacher) in samples.iter_mut().zip(logprobs) {
            if sample.loss_tokens() == 0 {
                continue;
            }
            for token in sample.policy_tokens().collect::<Vec<_>>() {
                let (policy, teacher) = (sample.old_logprobs[token], teacher[token]);
                let advantage = &mut sample.advantages[token];
                *advantage = self.distillation.advantage(*advantage, policy, teacher);
                count += 1.0;
                reverse_kl += f64::from(policy) - f64::from(teacher);
            }
        }

        let mut metrics = Metrics::default();
        if count > 0.0 {
            metrics.set("teacher/reverse_kl", reverse_kl / count);
        }
        metrics
    }
}
