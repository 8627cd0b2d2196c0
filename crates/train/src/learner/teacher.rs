//! Teachers: models that say how likely the policy's tokens would have been under them, or all tokens in their place.

use std::collections::BTreeMap;

use burn::tensor::{Tensor, TensorData};
use firebrick_core::{Metrics, config::Aggregation};
use firebrick_kernels::{HeadStates, KlDirection};
use firebrick_models::PolicyModel;

use crate::{
    algorithm::{aggregation::Divisors, distillation::Distillation},
    error::TrainError,
    learner::{
        checked_logprobs,
        checkpointed_forward::hidden_at,
        divergence::{REVERSE_KL, TeacherDistributions, TeacherStates},
        micro_batch::{MicroBatch, MicroBatching},
        update::Updater,
    },
    sample::Sample,
};

/// The policy's teachers, and what follows from what they say.
pub struct Teachers {
    /// How the policy learns from them.
    pub distillation: Distillation,
    /// The teachers. The first teaches on the prompts of all data sets that have no other.
    pub models: Vec<TeacherModel>,
    /// Index of a data set's own teacher, by the data set's name ([`Sample::data_source`]).
    pub own: BTreeMap<String, usize>,
}

/// Who teaches.
pub enum TeacherModel {
    /// The policy itself, as it is now. It learns from what it would write with a hint ([`Sample::teacher_prompt`]).
    Policy,
    /// Another model.
    Other(Box<dyn Teacher>),
}

/// A model that says of each token of a completion how likely it would have been there.
pub trait Teacher: Send + Sync {
    /// Computes the log-probabilities of the samples' completion tokens, one list per sample, as
    /// [`Updater::logprobs`] does: at the updater's temperature, and with any number for a token that the policy did not
    /// write.
    ///
    /// # Errors
    /// When a device or a server fails.
    fn logprobs(&self, updater: &Updater, samples: &[Sample]) -> Result<Vec<Vec<f32>>, TrainError>;

    /// Computes the hidden states that predict the tokens that the policy wrote in these samples, one sample after the
    /// other, and returns them with the head that makes logits of them. It has at least the rows of the policy's head, and
    /// is on the same device.
    ///
    /// # Errors
    /// When the device fails. Unless this is overridden, for a teacher that knows only how likely given tokens are.
    fn states(
        &self,
        micro_batching: &MicroBatching,
        samples: &[Sample],
    ) -> Result<HeadStates, TrainError> {
        let _ = (micro_batching, samples);
        Err(TrainError::NoDistribution)
    }

    /// Halves the chunks that it computes in, if it has any, because its device has no memory left.
    fn halve_chunks(&mut self) {}
}

/// A teacher in this process, on a device without autodiff.
pub struct LocalTeacher<M>(pub M);

impl<M: PolicyModel> Teacher for LocalTeacher<M> {
    fn logprobs(&self, updater: &Updater, samples: &[Sample]) -> Result<Vec<Vec<f32>>, TrainError> {
        updater.logprobs(&self.0, samples)
    }

    fn states(
        &self,
        micro_batching: &MicroBatching,
        samples: &[Sample],
    ) -> Result<HeadStates, TrainError> {
        Ok(states_of(&self.0, micro_batching, samples))
    }

    fn halve_chunks(&mut self) {
        self.0.halve_chunks();
    }
}

impl Teachers {
    /// Asks the teacher of each sample for its log-probabilities; `None` if the update asks for more than these.
    ///
    /// # Errors
    /// When a teacher fails.
    pub(super) fn teacher_logprobs<M: PolicyModel>(
        &self,
        updater: &Updater,
        policy: &M,
        samples: &[Sample],
    ) -> Result<Option<Vec<Vec<f32>>>, TrainError> {
        if self.distillation.direction().is_some() {
            return Ok(None);
        }

        let mut teacher_logprobs = vec![Vec::new(); samples.len()];
        for (index, model) in self.models.iter().enumerate() {
            let is_own = |&at: &usize| self.teacher_of(&samples[at]) == index;
            let own: Vec<usize> = (0..samples.len()).filter(is_own).collect();
            if own.is_empty() {
                continue;
            }

            let asked: Vec<Sample> = own.iter().map(|&at| as_teacher_reads(&samples[at])).collect();
            let answers = match model {
                TeacherModel::Policy => updater.logprobs(policy, &asked)?,
                TeacherModel::Other(teacher) => teacher.logprobs(updater, &asked)?,
            };
            let answers = checked_logprobs(answers, &asked)?;
            own.into_iter().zip(answers).for_each(|(at, answer)| teacher_logprobs[at] = answer);
        }
        Ok(Some(teacher_logprobs))
    }

    pub(super) fn halve_chunks(&mut self) {
        for model in &mut self.models {
            // The policy's chunks are halved for itself.
            if let TeacherModel::Other(teacher) = model {
                teacher.halve_chunks();
            }
        }
    }

    /// Returns the index of the teacher of a sample.
    fn teacher_of(&self, sample: &Sample) -> usize {
        self.own.get(&sample.data_source).copied().unwrap_or(0)
    }

    /// Weighs the samples' advantages, adds what the teachers say to them, and measures how far the policy is from its
    /// teachers. Without `teacher_logprobs` an advantage has the task's part alone.
    pub(super) fn teach(
        &self,
        samples: &mut [Sample],
        teacher_logprobs: Option<&[Vec<f32>]>,
    ) -> Metrics {
        let (mut count, mut reverse_kl) = (0.0, 0.0);
        for (index, sample) in samples.iter_mut().enumerate() {
            if sample.loss_tokens() == 0 {
                continue;
            }
            for token in sample.policy_tokens().collect::<Vec<_>>() {
                let policy = sample.old_logprobs[token];
                let teacher = teacher_logprobs.map_or(policy, |logprobs| logprobs[index][token]);
                let advantage = &mut sample.advantages[token];
                *advantage = self.distillation.advantage(*advantage, policy, teacher);
                count += 1.0;
                reverse_kl += f64::from(policy) - f64::from(teacher);
            }
        }

        let mut metrics = Metrics::default();
        if teacher_logprobs.is_some() && count > 0.0 {
            metrics.set(REVERSE_KL, reverse_kl / count);
        }
        metrics
    }

    /// Returns the teachers as an update asks for them, if a divergence from them is a loss. `policy` is without autodiff,
    /// and may be a teacher too.
    pub fn distributions<M: PolicyModel>(&self, policy: M) -> Option<Distributions<'_, M>> {
        let direction = self.distillation.direction()?;
        Some(Distributions { teachers: self, direction, policy })
    }
}

/// Teachers whose distributions are asked for, next to the policy.
pub struct Distributions<'a, M> {
    teachers: &'a Teachers,
    direction: KlDirection,
    policy: M,
}

impl<M: PolicyModel> TeacherDistributions for Distributions<'_, M> {
    fn states(
        &self,
        micro_batching: &MicroBatching,
        samples: &[&Sample],
    ) -> Result<Vec<TeacherStates>, TrainError> {
        let Distributions { teachers, direction, policy } = self;

        let mut all = Vec::new();
        for (index, model) in teachers.models.iter().enumerate() {
            // The policy's tokens of a teacher's samples, as indices into those of the micro-batch.
            let mut tokens = Vec::new();
            let mut read = Vec::new();
            let mut count = 0;
            for sample in samples {
                let next = count + sample.policy_tokens().count() as i32;
                if teachers.teacher_of(sample) == index {
                    tokens.extend(count..next);
                    read.push(as_teacher_reads(sample));
                }
                count = next;
            }
            if read.is_empty() {
                continue;
            }

            let states = match model {
                TeacherModel::Policy => states_of(policy, micro_batching, &read),
                TeacherModel::Other(teacher) => teacher.states(micro_batching, &read)?,
            };
            let shape = [tokens.len()];
            let tokens = (read.len() < samples.len())
                .then(|| Tensor::from_data(TensorData::new(tokens, shape), &policy.device()));
            let Distillation { weight, task_weight, .. } = teachers.distillation;
            let alone = task_weight == 0.0;
            all.push(TeacherStates { direction: *direction, weight, alone, tokens, states });
        }
        Ok(all)
    }
}

/// Returns the sample as a teacher reads it.
fn as_teacher_reads(sample: &Sample) -> Sample {
    let mut sample = sample.clone();
    if !sample.teacher_prompt.is_empty() {
        sample.prompt = std::mem::take(&mut sample.teacher_prompt);
    }
    sample
}

/// Does what [`Teacher::states`] promises, with a model without autodiff.
fn states_of<M: PolicyModel>(
    model: &M,
    micro_batching: &MicroBatching,
    samples: &[Sample],
) -> HeadStates {
    let layout = micro_batching.layout(samples, model.packs());
    let samples: Vec<&Sample> = samples.iter().collect();
    let divisors = Divisors::default();
    let batch =
        MicroBatch::new(&samples, layout, Aggregation::TokenMean, &divisors, &model.device());
    let hidden = hidden_at(model, &batch.tokens, &batch.predictors);
    HeadStates { hidden, head: model.lm_head() }
}
