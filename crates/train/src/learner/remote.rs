//! The learner of a policy that is computed elsewhere, by a program that knows nothing of the loss.

use std::mem;

use burn::tensor::Device;
use firebrick_core::{Metrics, SftExample, Step, Trained, config::Aggregation};

use crate::{
    algorithm::schedule::{LrSchedule, rate},
    error::TrainError,
    learner::{
        Applied, Learner, Update, checked_logprobs, coefficients::Coefficients, optim::StepOutcome,
        sft, update::Updater,
    },
    sample::Sample,
};

/// A policy that other programs compute.
///
/// It gives log-probabilities, and moves along a weighted sum of their gradients. No loss has to be known there: see
/// [`Coefficients`].
pub trait RemotePolicy {
    /// Returns the number of tokens that the policy knows: those below this number.
    fn vocab(&self) -> usize;

    /// Returns a number that follows from the weights, the same in every process; `None` if nobody knows one. Other
    /// weights have another number.
    fn fingerprint(&self) -> Option<[u8; 32]> {
        None
    }

    /// Computes the log-probabilities of the samples' completion tokens at temperature 1, one list per sample. The
    /// numbers of tokens that the policy did not write do not matter.
    ///
    /// # Errors
    /// If the answer is lost for good. Nothing has moved.
    fn logprobs(&mut self, samples: &[&Sample]) -> Result<Vec<Vec<f32>>, TrainError>;

    /// Takes one step of the optimizer uphill along Σ cₜ · ∇log pₜ, the sum over the samples' completion tokens.
    ///
    /// # Errors
    /// If the answer is lost for good. Then nobody knows whether the policy has moved.
    fn ascend(&mut self, uphill: &[Uphill<'_>], lr: f64) -> Result<StepOutcome, TrainError>;
}

/// A sample's part of a step: lists have a number for each token of its completion.
#[derive(Clone, Copy, Debug)]
pub struct Uphill<'a> {
    /// The sample.
    pub sample: &'a Sample,
    /// log pₜ, as they are now.
    pub logprobs: &'a [f32],
    /// cₜ, which is 0 where the policy did not write the token.
    pub coefficients: &'a [f32],
}

/// Updates a policy that is computed elsewhere. The loss is computed here: clipping, masks, KL and aggregation are
/// those of [`LocalLearner`](super::LocalLearner).
///
/// An update costs a pass forward more, because the loss needs the log-probabilities before it can say what the gradient
/// is: 4/3 of an ordinary update. One more pass over the shortest sample shows whether the policy is still one.
pub struct RemoteLearner<P> {
    /// Policy in training.
    pub policy: P,
    /// Frozen policy of the KL penalty; `None` unless the objective asks for one.
    pub reference: Option<P>,
    /// Loss of the samples. Its temperature has to be 1.
    pub updater: Updater,
    /// Schedule of the learning rate.
    pub schedule: Box<dyn LrSchedule>,
    /// Where the loss is computed.
    device: Device,
    step: Step,
    /// The learning rate in this step.
    lr: f64,
    mid_step: bool,
}

impl<P: RemotePolicy> RemoteLearner<P> {
    /// Makes a learner without reference, which computes its loss on `device`. Its first step begins with
    /// [`Learner::begin_step`].
    pub fn new(policy: P, updater: Updater, schedule: Box<dyn LrSchedule>, device: Device) -> Self {
        RemoteLearner {
            policy,
            reference: None,
            updater,
            schedule,
            device,
            step: 0,
            lr: 0.0,
            mid_step: false,
        }
    }

    /// Returns the device that the loss is computed on.
    pub fn loss_device(&self) -> &Device {
        &self.device
    }

    /// Makes one supervised step, as [`sft_step`](super::sft_step) does, and returns its loss.
    ///
    /// # Errors
    /// When the policy can't be reached, or the step is interrupted before anything was moved.
    pub fn sft_step(
        &mut self,
        examples: &[SftExample],
        lr: f64,
    ) -> Result<(f64, StepOutcome), TrainError> {
        let samples = sft::samples(examples);
        let mut updater = sft::updater(self.updater.micro_batching);
        updater.interrupted = self.updater.interrupted.clone();

        let logprobs = logprobs(&mut self.policy, &samples)?;
        let coefficients = updater.coefficients(&samples, logprobs, &self.device)?;
        let loss = coefficients.metrics.get("loss/total").unwrap_or(0.0);
        // If the answer is lost, the policy may have moved.
        self.mid_step = true;
        let outcome = self.ascend(&samples, &coefficients, lr)?;
        self.mid_step = false;
        Ok((loss, outcome))
    }

    /// Moves the policy, unless a coefficient is not finite.
    fn ascend(
        &mut self,
        samples: &[Sample],
        coefficients: &Coefficients,
        lr: f64,
    ) -> Result<StepOutcome, TrainError> {
        if !coefficients.are_finite() {
            return Ok(StepOutcome { grad_norm: f64::NAN, grad_scale: 0.0, skipped: true });
        }

        // A token without gradient costs as much as another, but a sample without any is left out.
        let lists = coefficients.logprobs.iter().zip(&coefficients.of_tokens);
        let uphill = samples.iter().zip(lists).map(|(sample, (logprobs, coefficients))| Uphill {
            sample,
            logprobs,
            coefficients,
        });
        let moves = |it: &Uphill<'_>| it.coefficients.iter().any(|&number| number != 0.0);
        let uphill: Vec<Uphill<'_>> = uphill.filter(moves).collect();
        let outcome = self.policy.ascend(&uphill, lr)?;

        // A policy that has become nothing has no log-probabilities, which must show before it is saved.
        let samples = uphill.iter().map(|it| it.sample);
        if let Some(shortest) = samples.min_by_key(|sample| sample.length()) {
            self.policy.logprobs(&[shortest])?;
        }
        Ok(outcome)
    }
}

/// Asks for the log-probabilities of the samples that count; the others have empty lists.
fn logprobs<P: RemotePolicy>(
    policy: &mut P,
    samples: &[Sample],
) -> Result<Vec<Vec<f32>>, TrainError> {
    let counts = |sample: &&Sample| sample.loss_tokens() > 0;
    let asked: Vec<&Sample> = samples.iter().filter(counts).collect();
    let mut answers = policy.logprobs(&asked)?.into_iter();
    let list = |sample: &Sample| {
        let mut list = if counts(&sample) { answers.next()? } else { Vec::new() };
        for (number, by_policy) in list.iter_mut().zip(&sample.mask) {
            if !by_policy {
                *number = 0.0;
            }
        }
        Some(list)
    };
    checked_logprobs(samples.iter().map_while(list).collect(), samples)
}

impl<P: RemotePolicy> Learner for RemoteLearner<P> {
    type Policy = P;
    type Gradient = Coefficients;

    fn policy(&self) -> &P {
        &self.policy
    }

    fn vocab(&self) -> usize {
        self.policy.vocab()
    }

    fn begin_step(&mut self, step: Step) -> Result<f64, TrainError> {
        if self.updater.objective.needs_reference() && self.reference.is_none() {
            return Err(TrainError::NoReference);
        }
        self.step = step;
        self.lr = rate(&*self.schedule, step - 1, step)?;
        Ok(self.lr)
    }

    fn logprobs(&mut self, samples: &[Sample]) -> Result<Vec<Vec<f32>>, TrainError> {
        logprobs(&mut self.policy, samples)
    }

    fn logprobs_of(
        &mut self,
        update: &Update<Coefficients>,
        _: &[Sample],
    ) -> Result<Vec<Vec<f32>>, TrainError> {
        Ok(update.gradient.logprobs.clone())
    }

    fn appraise(&mut self, samples: &mut [Sample]) -> Result<Metrics, TrainError> {
        if let Some(reference) = &mut self.reference {
            let logprobs = logprobs(reference, samples)?;
            for (sample, logprobs) in samples.iter_mut().zip(logprobs) {
                sample.ref_logprobs = logprobs;
            }
        }
        Ok(Metrics::default())
    }

    fn gradient(&mut self, samples: &[Sample]) -> Result<Update<Coefficients>, TrainError> {
        let logprobs = logprobs(&mut self.policy, samples)?;
        let mut gradient = self.updater.coefficients(samples, logprobs, &self.device)?;
        Ok(Update {
            metrics: mem::take(&mut gradient.metrics),
            tokens: gradient.tokens,
            logprob_change: Some(gradient.logprob_change),
            entropy: None,
            prompt_sharing: 0.0,
            gradient,
        })
    }

    fn apply(
        &mut self,
        update: Update<Coefficients>,
        samples: &[Sample],
        token_stats: bool,
    ) -> Result<Applied, TrainError> {
        let (update, gradient) = update.take_gradient();
        let trained = samples.iter().zip(&gradient.logprobs);
        let trained = trained.map(|(sample, logprobs)| match token_stats {
            true => Trained { ratios: ratios(sample, logprobs), ..sample.trained() },
            false => sample.trained(),
        });
        let trained = trained.collect();

        // If the answer is lost, the policy may have moved.
        let mid_step = mem::replace(&mut self.mid_step, true);
        let outcome = self.ascend(samples, &gradient, self.lr)?;
        if outcome.skipped {
            self.mid_step = mid_step;
        }
        Ok(Applied { update, outcome, critic: None, trained })
    }

    fn end_step(&mut self, done: bool) {
        if done {
            self.mid_step = false;
        }
    }

    fn is_mid_step(&self) -> bool {
        self.mid_step
    }

    fn is_interrupted(&self) -> bool {
        self.updater.interrupted.is_set()
    }

    fn needs_whole_groups(&self) -> bool {
        self.updater.aggregation == Aggregation::PromptMean
    }

    fn has_low_precision(&self) -> bool {
        // Nobody knows, and the first update measures it.
        true
    }
}

/// Returns the ratios of a sample's tokens, for its record.
fn ratios(sample: &Sample, logprobs: &[f32]) -> Vec<f32> {
    let mut ratios = vec![0.0; logprobs.len()];
    if !logprobs.is_empty() {
        for token in sample.policy_tokens() {
            ratios[token] = (logprobs[token] - sample.rollout_logprobs[token]).exp();
        }
    }
    ratios
}
