//! Teachers: models that say how likely the policy's tokens would have been under them, or all tokens in their place.

use std::collections::BTreeMap;

use burn::tensor::{DType, Device, Tensor, TensorData};
use firebrick_core::{
    Metrics,
    config::{Aggregation, DistillationLoss},
};
use firebrick_models::{GradientSum, PolicyModel};

use crate::{
    algorithm::{aggregation::Divisors, distillation::Distillation},
    error::TrainError,
    learner::{
        checked_logprobs,
        checkpointed_forward::hidden_at,
        critic::MetricSums,
        micro_batch::{Layout, MicroBatch},
        token_kl::{Direction, TokenKl},
        update::{TOTAL_LOSS, Updater},
    },
    sample::Sample,
};

const REVERSE_KL: &str = "teacher/reverse_kl";

/// The policy's teachers, and what follows from their opinions.
pub struct Teachers {
    /// How opinions become advantages.
    pub distillation: Distillation,
    /// The teachers. The first teaches on the prompts of all data sets that have no other.
    pub models: Vec<TeacherModel>,
    /// Index of a data set's own teacher, by the data set's name ([`Sample::data_source`]).
    pub own: BTreeMap<String, usize>,
}

/// Who teaches.
pub enum TeacherModel {
    /// The policy itself, as it is now. It learns from what it would write with a hint ([`Sample::hinted`]).
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

    /// Computes the hidden states that predict the labels of a micro-batch, `[count, hidden]`, and returns them with the
    /// head that makes logits of them, `[vocab, hidden]`. The device is the policy's.
    ///
    /// # Errors
    /// Unless this is overridden, for a teacher that knows only how likely given tokens are.
    fn hidden(&self, batch: &MicroBatch) -> Result<[Tensor<2>; 2], TrainError> {
        let _ = batch;
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

    fn hidden(&self, batch: &MicroBatch) -> Result<[Tensor<2>; 2], TrainError> {
        Ok(hidden_and_head(&self.0, batch))
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
    pub(super) fn opinions<M: PolicyModel>(
        &self,
        updater: &Updater,
        policy: &M,
        samples: &[Sample],
    ) -> Result<Option<Vec<Vec<f32>>>, TrainError> {
        if self.distillation.loss != DistillationLoss::PolicyGradient {
            return Ok(None);
        }

        let mut opinions = vec![Vec::new(); samples.len()];
        for (index, model) in self.models.iter().enumerate() {
            let is_own = |&at: &usize| self.teacher_of(&samples[at]) == index;
            let own: Vec<usize> = (0..samples.len()).filter(is_own).collect();
            if own.is_empty() {
                continue;
            }

            let asked: Vec<Sample> = own.iter().map(|&at| with_hint(&samples[at])).collect();
            let answers = match model {
                TeacherModel::Policy => updater.logprobs(policy, &asked)?,
                TeacherModel::Other(teacher) => teacher.logprobs(updater, &asked)?,
            };
            let answers = checked_logprobs(answers, &asked)?;
            own.into_iter().zip(answers).for_each(|(at, answer)| opinions[at] = answer);
        }
        Ok(Some(opinions))
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
    /// teachers. Without `opinions` an advantage has the task's part alone.
    pub(super) fn teach(&self, samples: &mut [Sample], opinions: Option<&[Vec<f32>]>) -> Metrics {
        let (mut count, mut reverse_kl) = (0.0, 0.0);
        for (index, sample) in samples.iter_mut().enumerate() {
            if sample.loss_tokens() == 0 {
                continue;
            }
            for token in sample.policy_tokens().collect::<Vec<_>>() {
                let policy = sample.old_logprobs[token];
                let teacher = opinions.map_or(policy, |logprobs| logprobs[index][token]);
                let advantage = &mut sample.advantages[token];
                *advantage = self.distillation.advantage(*advantage, policy, teacher);
                count += 1.0;
                reverse_kl += f64::from(policy) - f64::from(teacher);
            }
        }

        let mut metrics = Metrics::default();
        if opinions.is_some() && count > 0.0 {
            metrics.set(REVERSE_KL, reverse_kl / count);
        }
        metrics
    }

    /// Returns what the teachers are to read of a micro-batch of these samples, if a divergence from them is a loss.
    pub(super) fn lesson(
        &self,
        samples: &[&Sample],
        layout: Layout,
        device: &Device,
    ) -> Option<Lesson> {
        if self.distillation.loss == DistillationLoss::PolicyGradient {
            return None;
        }
        let teachers = samples.iter().map(|sample| self.teacher_of(sample)).collect();
        let hinted = samples.iter().any(|sample| !sample.hinted.is_empty()).then(|| {
            let hinted: Vec<Sample> = samples.iter().map(|sample| with_hint(sample)).collect();
            let hinted: Vec<&Sample> = hinted.iter().collect();
            MicroBatch::new(&hinted, layout, Aggregation::TokenMean, &Divisors::default(), device)
        });
        Some(Lesson { teachers, hinted })
    }

    /// Adds the gradient of the divergence of `policy` from its teachers to `sum`. Returns the gradient with respect to
    /// `hidden`, the policy's hidden states of a micro-batch, and parts of the update's metrics.
    ///
    /// # Errors
    /// [`TrainError::NoDistribution`].
    pub(super) fn divergence<M: PolicyModel>(
        &self,
        updater: &Updater,
        policy: &M,
        hidden: &Tensor<2>,
        batch: &MicroBatch,
        lesson: &Lesson,
        sum: &mut GradientSum,
    ) -> Result<(Tensor<2>, MetricSums), TrainError> {
        let direction = match self.distillation.loss {
            DistillationLoss::ForwardKl => Direction::Forward,
            DistillationLoss::PolicyGradient | DistillationLoss::ReverseKl => Direction::Reverse,
        };
        let read = lesson.hinted.as_ref().unwrap_or(batch);

        let mut d_hidden = Tensor::zeros_like(&hidden.clone().cast(DType::F32));
        let mut sums = Vec::new();
        for (index, model) in self.models.iter().enumerate() {
            let is_own = |teacher: &usize| f32::from(u8::from(*teacher == index));
            let own: Vec<f32> = lesson.teachers.iter().map(is_own).collect();
            if own.iter().all(|&own| own == 0.0) {
                continue;
            }

            // A token of another teacher's sample is computed too, with a weight of 0.
            let rows = own.len();
            let own = Tensor::<2>::from_data(TensorData::new(own, [rows, 1]), &hidden.device());
            let of_own = |weights: &Tensor<2>| batch.by_token(weights.clone() * own.clone());
            let weights = of_own(&batch.loss_weights).mul_scalar(self.distillation.weight);

            let [taught, head] = match model {
                TeacherModel::Policy => hidden_and_head(&policy.valid(), read),
                TeacherModel::Other(teacher) => teacher.hidden(read)?,
            };
            let kl = TokenKl::backward(
                direction,
                [hidden, &taught],
                policy.head(),
                &head,
                &weights.clone().mul_scalar(updater.loss_scale),
                updater.temperature,
                updater.micro_batching.max_logits,
                policy.compute(),
                sum,
            );
            d_hidden = d_hidden + kl.d_hidden;

            let loss = match direction {
                Direction::Forward => kl.forward.clone(),
                Direction::Reverse => kl.reverse.clone(),
            };
            let loss = (loss * weights).sum();
            let shares = of_own(&batch.metric_weights);
            sums.extend([
                (TOTAL_LOSS, loss.clone()),
                ("loss/teacher", loss),
                ("teacher/forward_kl", (kl.forward * shares.clone()).sum()),
                (REVERSE_KL, (kl.reverse * shares).sum()),
            ]);
        }
        Ok((d_hidden, sums))
    }
}

/// What the teachers are to read of a micro-batch.
pub(super) struct Lesson {
    /// Index of the teacher of each sample.
    teachers: Vec<usize>,
    /// The samples as teachers read them, if there are hints. Its tokens are in the order of the micro-batch.
    hinted: Option<MicroBatch>,
}

/// Returns the sample as a teacher reads it.
fn with_hint(sample: &Sample) -> Sample {
    let mut sample = sample.clone();
    if !sample.hinted.is_empty() {
        sample.prompt = std::mem::take(&mut sample.hinted);
    }
    sample
}

/// Returns what [`Teacher::hidden`] does, of a model without autodiff.
fn hidden_and_head<M: PolicyModel>(model: &M, batch: &MicroBatch) -> [Tensor<2>; 2] {
    [hidden_at(model, &batch.tokens, &batch.predictors), model.head().val()]
}
