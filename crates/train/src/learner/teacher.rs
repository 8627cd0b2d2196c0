//! Teachers: models that say how likely the policy's tokens would have been under them, or all tokens in their place.

use std::collections::BTreeMap;

use burn::tensor::{DType, Tensor, TensorData};
use firebrick_core::{Metrics, config::DistillationLoss};
use firebrick_models::{GradientSum, PolicyModel};

use crate::{
    algorithm::distillation::Distillation,
    error::TrainError,
    learner::{
        checked_logprobs,
        checkpointed_forward::hidden_at,
        critic::MetricSums,
        micro_batch::MicroBatch,
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
    pub models: Vec<Box<dyn Teacher>>,
    /// Index of a data set's own teacher, by the data set's name ([`Sample::data_source`]).
    pub own: BTreeMap<String, usize>,
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
        let hidden = hidden_at(&self.0, &batch.tokens, &batch.predictors);
        Ok([hidden, self.0.head().val()])
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
    pub(super) fn opinions(
        &self,
        updater: &Updater,
        samples: &[Sample],
    ) -> Result<Option<Vec<Vec<f32>>>, TrainError> {
        match self.distillation.loss {
            DistillationLoss::PolicyGradient => self.logprobs(updater, samples).map(Some),
            DistillationLoss::ForwardKl | DistillationLoss::ReverseKl => Ok(None),
        }
    }

    fn logprobs(&self, updater: &Updater, samples: &[Sample]) -> Result<Vec<Vec<f32>>, TrainError> {
        if let [one] = &self.models[..] {
            return checked_logprobs(one.logprobs(updater, samples)?, samples);
        }

        let mut logprobs = vec![Vec::new(); samples.len()];
        for (index, teacher) in self.models.iter().enumerate() {
            let is_own = |&at: &usize| self.teacher_of(&samples[at]) == index;
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

    /// Adds the gradient of the divergence of `policy` from its teachers to `sum`, if this divergence is a loss. Returns
    /// the gradient with respect to `hidden`, the policy's hidden states of a micro-batch, and parts of the update's
    /// metrics. The micro-batch has these samples.
    ///
    /// # Errors
    /// [`TrainError::NoDistribution`].
    pub(super) fn divergence<M: PolicyModel>(
        &self,
        updater: &Updater,
        policy: &M,
        hidden: &Tensor<2>,
        samples: &[&Sample],
        batch: &MicroBatch,
        sum: &mut GradientSum,
    ) -> Result<Option<(Tensor<2>, MetricSums)>, TrainError> {
        let direction = match self.distillation.loss {
            DistillationLoss::PolicyGradient => return Ok(None),
            DistillationLoss::ForwardKl => Direction::Forward,
            DistillationLoss::ReverseKl => Direction::Reverse,
        };

        let mut d_hidden = Tensor::zeros_like(&hidden.clone().cast(DType::F32));
        let mut sums = Vec::new();
        for (index, teacher) in self.models.iter().enumerate() {
            let is_own = |sample: &&Sample| f32::from(u8::from(self.teacher_of(sample) == index));
            let own: Vec<f32> = samples.iter().map(is_own).collect();
            if own.iter().all(|&own| own == 0.0) {
                continue;
            }

            // A token of another teacher's sample is computed too, with a weight of 0.
            let rows = own.len();
            let own = Tensor::<2>::from_data(TensorData::new(own, [rows, 1]), &hidden.device());
            let of_own = |weights: &Tensor<2>| batch.by_token(weights.clone() * own.clone());
            let weights = of_own(&batch.loss_weights).mul_scalar(self.distillation.weight);

            let [taught, head] = teacher.hidden(batch)?;
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
        Ok(Some((d_hidden, sums)))
    }
}
