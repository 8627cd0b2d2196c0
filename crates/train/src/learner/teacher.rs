//! Teachers: models that say how likely the policy's tokens would have been under them, or all tokens in their place.

use std::collections::BTreeMap;

use burn::tensor::{IndexingUpdateOp, Int, Tensor, TensorData};
use firebrick_core::{Metrics, config::Aggregation};
use firebrick_kernels::{HeadStates, KlDirection, head_kl};
use firebrick_models::{GradientSum, PolicyModel};

use crate::{
    algorithm::{aggregation::Divisors, distillation::Distillation},
    error::TrainError,
    learner::{
        checked_logprobs,
        checkpointed_forward::hidden_at,
        critic::MetricSums,
        micro_batch::MicroBatch,
        update::{TOTAL_LOSS, Updater},
    },
    sample::Sample,
};

const REVERSE_KL: &str = "teacher/reverse_kl";

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
    fn states(&self, updater: &Updater, samples: &[Sample]) -> Result<HeadStates, TrainError> {
        let _ = (updater, samples);
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

    fn states(&self, updater: &Updater, samples: &[Sample]) -> Result<HeadStates, TrainError> {
        Ok(states_of(&self.0, updater, samples))
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

    /// Asks the teachers for all that they think of the tokens of a micro-batch of these samples, if a divergence from
    /// them is a loss. `policy` is without autodiff.
    ///
    /// # Errors
    /// When a teacher fails.
    pub(super) fn states<M: PolicyModel>(
        &self,
        updater: &Updater,
        policy: &M,
        samples: &[&Sample],
    ) -> Result<Vec<TeacherStates>, TrainError> {
        let Some(direction) = self.distillation.direction() else { return Ok(Vec::new()) };

        let mut all = Vec::new();
        for (index, model) in self.models.iter().enumerate() {
            // The policy's tokens of a teacher's samples, as indices into those of the micro-batch.
            let mut tokens = Vec::new();
            let mut read = Vec::new();
            let mut count = 0;
            for sample in samples {
                let next = count + sample.policy_tokens().count() as i32;
                if self.teacher_of(sample) == index {
                    tokens.extend(count..next);
                    read.push(as_teacher_reads(sample));
                }
                count = next;
            }
            if read.is_empty() {
                continue;
            }

            let states = match model {
                TeacherModel::Policy => states_of(policy, updater, &read),
                TeacherModel::Other(teacher) => teacher.states(updater, &read)?,
            };
            let device = policy.device();
            let shape = [tokens.len()];
            let tokens = (read.len() < samples.len())
                .then(|| Tensor::from_data(TensorData::new(tokens, shape), &device));
            all.push(TeacherStates { direction, tokens, states });
        }
        Ok(all)
    }

    /// Adds the gradient of the divergence of `policy` from one teacher to `sum` and to `d_hidden`, the gradient with
    /// respect to `hidden`, the policy's hidden states of a micro-batch, `[count, hidden]`. Returns parts of the update's
    /// metrics.
    #[allow(clippy::too_many_arguments, reason = "two models, and where the gradient goes")]
    pub(super) fn divergence<M: PolicyModel>(
        &self,
        updater: &Updater,
        policy: &M,
        hidden: &Tensor<2>,
        batch: &MicroBatch,
        teacher: TeacherStates,
        d_hidden: &mut Tensor<2>,
        sum: &mut GradientSum,
    ) -> MetricSums {
        let TeacherStates { direction, tokens, states } = teacher;
        let own = |numbers: Tensor<1>| match &tokens {
            Some(tokens) => numbers.select(0, tokens.clone()),
            None => numbers,
        };
        let weights = own(batch.by_token(batch.loss_weights.clone()));
        let weights = weights.mul_scalar(self.distillation.weight);
        let shares = own(batch.by_token(batch.metric_weights.clone()));
        let hidden = match &tokens {
            Some(tokens) => hidden.clone().select(0, tokens.clone()),
            None => hidden.clone(),
        };

        let head = policy.head();
        let kl = head_kl(
            direction,
            &HeadStates { hidden, head: head.val().inner() },
            &states,
            &weights.clone().mul_scalar(updater.loss_scale),
            updater.temperature,
            updater.micro_batching.max_logits,
            policy.compute(),
            head.is_require_grad(),
        );

        let d_own = kl.d_hidden;
        let d_all = d_hidden.clone();
        *d_hidden = match tokens {
            Some(tokens) => d_all.select_assign(0, tokens, d_own, IndexingUpdateOp::Add),
            None => d_all + d_own,
        };
        if let Some(d_head) = kl.d_head {
            sum.add(head.id, d_head);
        }

        let loss = match direction {
            KlDirection::Forward => kl.forward.clone(),
            KlDirection::Reverse => kl.reverse.clone(),
        };
        let loss = (loss * weights).sum();
        vec![
            (TOTAL_LOSS, loss.clone()),
            ("loss/teacher", loss),
            ("teacher/forward_kl", (kl.forward * shares.clone()).sum()),
            (REVERSE_KL, (kl.reverse * shares).sum()),
        ]
    }
}

/// What one teacher thinks of its tokens of a micro-batch.
pub(super) struct TeacherStates {
    direction: KlDirection,
    /// Indices of these tokens among the policy's; `None` if they are all.
    tokens: Option<Tensor<1, Int>>,
    states: HeadStates,
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
fn states_of<M: PolicyModel>(model: &M, updater: &Updater, samples: &[Sample]) -> HeadStates {
    let layout = updater.micro_batching.layout(samples, model.packs());
    let samples: Vec<&Sample> = samples.iter().collect();
    let divisors = Divisors::default();
    let batch =
        MicroBatch::new(&samples, layout, Aggregation::TokenMean, &divisors, &model.device());
    let hidden = hidden_at(model, &batch.tokens, &batch.predictors);
    HeadStates { hidden, head: model.head().val() }
}
