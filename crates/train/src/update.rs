use std::collections::BTreeMap;

use burn::{
    module::Module,
    optim::{GradientsAccumulator, GradientsParams},
    tensor::{Int, Tensor},
};
use firebrick_core::Metrics;
use firebrick_models::{PolicyModel, head_backward, head_logprobs};

use crate::{
    Aggregation, Critic, Divisors, LossInput, MicroBatch, Objective, Optimizer, Sample,
    StepOutcome, TrainError, ValueModel, critic::Judged, micro_batches, optim::read,
};

/// Turns samples into one optimizer step.
pub struct Updater {
    /// What is minimised.
    pub objective: Objective,
    /// How token losses become one number.
    pub aggregation: Aggregation,
    /// Divisor of one completion for [`Aggregation::Constant`], in tokens.
    pub constant_length: usize,
    /// The temperature that the samples were drawn at.
    pub temperature: f64,
    /// How the work is cut.
    pub cut: Cut,
}

/// How an update is cut into pieces: changes memory and speed, never the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Padded tokens per micro-batch: bounds activations.
    pub micro_batch_tokens: usize,
    /// Tokens per chunk of logits: bounds the widest tensor.
    pub logits_chunk: usize,
}

/// What an update with a critic moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moves {
    /// The policy, and the critic with it.
    Policy,
    /// The critic alone. The policy then has no gradient: there is no backward pass through it, and
    /// a step of its optimizer would be one of noise, which stays in the moments for long.
    Critic,
}

/// The gradient of an update and its numbers, both whole: no trace of how it was cut.
pub struct UpdateReport {
    /// By parameter; none where the policy is not moved.
    pub gradients: GradientsParams,
    /// Those of the critic, if there is one.
    pub of_critic: Option<GradientsParams>,
    /// The loss.
    pub loss: f64,
    /// `loss/…` and `critic/…` means over the update's tokens, but for [`LARGEST_CHANGE`].
    pub metrics: Metrics,
    /// Tokens that counted.
    pub tokens: usize,
}

/// The metric that is a maximum over the update's tokens: how far the log-probability of a token has
/// moved since it was sampled.
pub const LARGEST_CHANGE: &str = "loss/logprob_change_max";

impl Updater {
    /// One optimizer step over `samples`.
    ///
    /// # Errors
    /// When the device fails.
    pub fn step<M: PolicyModel>(
        &self,
        policy: M,
        optimizer: &mut dyn Optimizer<M>,
        samples: &[Sample],
        lr: f64,
    ) -> Result<(M, UpdateReport, StepOutcome), TrainError> {
        let mut report = self.gradients(&policy, samples)?;
        let gradients = std::mem::take(&mut report.gradients);
        let (policy, outcome) = optimizer.step(policy, gradients, lr)?;
        Ok((policy, report, outcome))
    }

    /// Loss, gradient and metrics of `samples` as one update.
    ///
    /// # Errors
    /// When the device fails.
    pub fn gradients<M: PolicyModel>(
        &self,
        policy: &M,
        samples: &[Sample],
    ) -> Result<UpdateReport, TrainError> {
        self.gradients_with(policy, None, Moves::Policy, samples)
    }

    /// The same for a policy with a critic. The gradient of a head on the policy goes into the policy's;
    /// its loss, weighted as the policy's is, is a metric of its own.
    ///
    /// # Errors
    /// When the device fails.
    ///
    /// # Panics
    /// When a sample that counts has no values of tokens for the critic.
    pub fn gradients_with<M: PolicyModel>(
        &self,
        policy: &M,
        critic: Option<&Critic<M>>,
        moves: Moves,
        samples: &[Sample],
    ) -> Result<UpdateReport, TrainError> {
        let mut divisors =
            Divisors::count(samples.iter().map(|sample| (sample.group, sample.counted())));
        // Of all completions, also those that are out of the loss (Liu et al. 2025): a completion that is
        // filtered must not make the others' tokens weigh more.
        divisors.constant = samples.len() as f64 * self.constant_length as f64;
        let mut accumulator = GradientsAccumulator::new();
        let mut of_critic = GradientsAccumulator::new();
        let mut sums: BTreeMap<&'static str, Tensor<1>> = BTreeMap::new();
        let mut largest: Option<Tensor<1>> = None;
        for indices in micro_batches(samples, self.cut.micro_batch_tokens) {
            let part: Vec<&Sample> = indices.iter().map(|&index| &samples[index]).collect();
            let batch = MicroBatch::new(&part, self.aggregation, &divisors, &policy.device());
            // Added up before the policy's pass: neither its activations nor a second gradient of it are
            // there when the policy's come.
            let own = critic.and_then(|critic| critic.on_own_trunk(&batch));
            if let Some((critic, own)) = critic.zip(own) {
                of_critic.accumulate(&critic.model, own.gradients);
                add(&mut sums, own.parts);
            }
            let Part { gradients, of_head, parts, change } =
                self.micro_batch(policy, critic, moves, batch);
            if let Some((critic, gradients)) = critic.zip(of_head) {
                of_critic.accumulate(&critic.model, gradients);
            }
            largest = Some(match largest {
                Some(largest) => largest.max_pair(change),
                None => change,
            });
            accumulator.accumulate(policy, gradients);
            add(&mut sums, parts);
        }
        let mut metrics = Metrics::default();
        if let Some(largest) = largest {
            // One read-back for all of them.
            let all = sums.values().cloned().chain([largest]).collect();
            let values = read(Tensor::cat(all, 0))?;
            for (name, value) in sums.keys().copied().chain([LARGEST_CHANGE]).zip(values) {
                metrics.set(name, value);
            }
        }
        Ok(UpdateReport {
            gradients: accumulator.grads(),
            of_critic: critic.map(|_| of_critic.grads()),
            loss: metrics.get("loss/total").unwrap_or(0.0),
            metrics,
            tokens: divisors.tokens as usize,
        })
    }

    /// Log-probabilities of the samples' completion tokens under `policy`, one list per sample; 0 where
    /// the policy did not write the token, and an empty list for a sample that does not count.
    ///
    /// # Errors
    /// When the device fails.
    pub fn logprobs<M: PolicyModel>(
        &self,
        policy: &M,
        samples: &[Sample],
    ) -> Result<Vec<Vec<f32>>, TrainError> {
        let policy = policy.valid();
        let head = policy.head().val();
        self.per_token(&policy, samples, |hidden, batch| {
            let (temperature, chunk) = (self.temperature, self.cut.logits_chunk);
            head_logprobs(&hidden, &head, &batch.labels, temperature, chunk).logprobs
        })
    }

    /// Values of the samples' completion tokens, one list per sample: of each what is expected before
    /// it is written. 0 and empty as for [`Updater::logprobs`].
    ///
    /// # Errors
    /// When the device fails.
    pub fn values<M: PolicyModel>(
        &self,
        policy: &M,
        critic: &ValueModel<M>,
        samples: &[Sample],
    ) -> Result<Vec<Vec<f32>>, TrainError> {
        let trunk = critic.trunk.as_ref().unwrap_or(policy).valid();
        let head = critic.head.valid();
        self.per_token(&trunk, samples, |hidden, _| head.values(hidden))
    }

    /// A number for each completion token, from the hidden state of `policy` that predicts it.
    fn per_token<M: PolicyModel>(
        &self,
        policy: &M,
        samples: &[Sample],
        number: impl Fn(Tensor<2>, &MicroBatch) -> Tensor<1>,
    ) -> Result<Vec<Vec<f32>>, TrainError> {
        let divisors = Divisors::default();
        let mut result = vec![Vec::new(); samples.len()];
        for indices in micro_batches(samples, self.cut.micro_batch_tokens) {
            let part: Vec<&Sample> = indices.iter().map(|&index| &samples[index]).collect();
            let batch = MicroBatch::new(&part, self.aggregation, &divisors, &policy.device());
            let hidden = select_predictors(policy.hidden(&batch.tokens), &batch);
            let values = read(number(hidden, &batch))?;
            for (row, index) in values.chunks(batch.width).zip(indices) {
                let sample = &samples[index];
                result[index] = vec![0.0; sample.completion.len()];
                for (place, &value) in sample.own().zip(row) {
                    result[index][place] = value;
                }
            }
        }
        Ok(result)
    }

    /// What one micro-batch gives to an update.
    ///
    /// The backward pass has three stages, so that logits exist for one chunk of tokens at a time:
    /// loss to log-probabilities by autodiff on `[rows, tokens]`; log-probabilities to hidden
    /// states and head by hand; hidden states to weights by autodiff through the trunk.
    /// A value head on the policy adds its part at the hidden states, so that the trunk is gone through
    /// once.
    fn micro_batch<M: PolicyModel>(
        &self,
        policy: &M,
        critic: Option<&Critic<M>>,
        moves: Moves,
        batch: MicroBatch,
    ) -> Part {
        let hidden = select_predictors(policy.hidden(&batch.tokens), &batch);
        let values = hidden.clone().inner();
        let judged = critic.and_then(|critic| critic.on_policy(&values, &batch));
        let head = policy.head().val().inner();
        let labels = batch.labels.clone().inner();
        let now = head_logprobs(&values, &head, &labels, self.temperature, self.cut.logits_chunk);

        let shape = [batch.rows, batch.width];
        let leaf = |flat: Tensor<1>| Tensor::<2>::from_inner(flat.reshape(shape)).require_grad();
        let (logprobs, entropy) = (leaf(now.logprobs.clone()), leaf(now.entropy));
        let difference = (now.logprobs.reshape(shape) - batch.old_logprobs.clone().inner()).abs()
            * batch.mask.clone().inner();
        let output = self.objective.evaluate(&LossInput {
            logprobs: logprobs.clone(),
            entropy: entropy.clone(),
            old_logprobs: batch.old_logprobs,
            ref_logprobs: batch.ref_logprobs,
            advantages: batch.advantages,
            importance: batch.importance,
            mask: batch.mask,
            weights: batch.weights,
            shares: batch.shares.clone(),
        });
        let (of_head, judged_hidden, judged) = match judged {
            None => (None, None, Vec::new()),
            Some(Judged { gradients, d_hidden, parts }) => (Some(gradients), d_hidden, parts),
        };
        let gradients = match moves {
            Moves::Critic => GradientsParams::new(),
            Moves::Policy => {
                let gradients = output.loss.backward();
                let of =
                    |leaf: Tensor<2>| Some(leaf.grad(&gradients)?.reshape([shape[0] * shape[1]]));
                let d_logprobs = of(logprobs)
                    .unwrap_or_else(|| Tensor::zeros([shape[0] * shape[1]], &values.device()));
                let d_entropy = if self.objective.entropy_coef == 0.0 { None } else { of(entropy) };
                let d = (d_logprobs, d_entropy, judged_hidden);
                self.backward(policy, hidden, &labels, d)
            }
        };

        let mut parts = vec![
            ("loss/total", output.loss.inner()),
            ("loss/policy", output.policy_loss.inner()),
            ("loss/logprob_change", (difference.clone() * batch.shares.inner()).sum()),
        ];
        parts.extend(output.metrics.into_iter().map(|(name, part)| (name, part.inner())));
        parts.extend(judged);
        Part { gradients, of_head, parts, change: difference.max() }
    }

    /// The last two stages: from the gradients of log-probabilities, of entropy, and of hidden states
    /// where a value head gives one, to those of the weights.
    fn backward<M: PolicyModel>(
        &self,
        policy: &M,
        hidden: Tensor<2>,
        labels: &Tensor<1, Int>,
        (d_logprobs, d_entropy, of_values): (Tensor<1>, Option<Tensor<1>>, Option<Tensor<2>>),
    ) -> GradientsParams {
        let head = policy.head();
        let (d_hidden, d_head) = head_backward(
            &hidden.clone().inner(),
            &head.val().inner(),
            labels,
            self.temperature,
            self.cut.logits_chunk,
            &d_logprobs,
            d_entropy.as_ref(),
            !head.val().is_require_grad(),
        );
        let d_hidden = match of_values {
            Some(more) => d_hidden + more,
            None => d_hidden,
        };
        let trunk = (hidden * Tensor::from_inner(d_hidden)).sum().backward();
        let mut gradients = GradientsParams::from_grads(trunk, policy);
        if let Some(d_head) = d_head {
            // Tied weights have a gradient as embedding already.
            let d_head = match gradients.remove::<2>(head.id) {
                Some(as_embedding) => as_embedding + d_head,
                None => d_head,
            };
            gradients.register(head.id, d_head);
        }
        gradients
    }
}

/// What one micro-batch gives to an update.
struct Part {
    gradients: GradientsParams,
    /// Gradients of a value head on the policy.
    of_head: Option<GradientsParams>,
    /// Parts of sums over the update.
    parts: Vec<(&'static str, Tensor<1>)>,
    /// The largest of a log-probability.
    change: Tensor<1>,
}

/// Adds parts to the sums of their names.
fn add(sums: &mut BTreeMap<&'static str, Tensor<1>>, parts: Vec<(&'static str, Tensor<1>)>) {
    for (name, part) in parts {
        let sum = match sums.remove(name) {
            Some(sum) => sum + part,
            None => part,
        };
        sums.insert(name, sum);
    }
}

/// `[rows, tokens, hidden]` to the hidden states that predict completion tokens,
/// `[rows · width, hidden]`.
pub(crate) fn select_predictors(hidden: Tensor<3>, batch: &MicroBatch) -> Tensor<2> {
    let [rows, tokens, width] = hidden.dims();
    hidden.reshape([rows * tokens, width]).select(0, batch.predictors.clone())
}
