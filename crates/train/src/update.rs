//! One update: the gradient of all samples, made in pieces, and the optimizer's step.

use std::collections::BTreeMap;

use burn::{
    module::Module,
    optim::GradientsParams,
    tensor::{DType, Device, Tensor},
};
use firebrick_core::{Metrics, Trained};
use firebrick_kernels::{sum_all, together};
use firebrick_models::{
    GradientSum, Loads, PolicyModel, head_backward, head_logprobs, head_logprobs_saving,
};

use crate::{
    Aggregation, Critic, Divisors, Interruption, Layout, LossInput, MicroBatch, Objective,
    Optimizer, Replicas, Sample, StepOutcome, TrainError, ValueModel,
    batch::share_saved,
    checkpointed_forward::{CheckpointedForward, at, finished, hidden_at},
    micro_batches,
    optim::read,
};

/// Turns samples into one optimizer step.
pub struct Updater {
    /// The loss to minimise.
    pub objective: Objective,
    /// The weight of the load-balancing loss of experts ([`Loads::load_balancing_loss`]); 0 means no such loss. The
    /// loads are counted over all tokens of the update, in one more forward pass through the policy. No prompt is
    /// shared then: each of its completions counts it, however the update is cut.
    pub router_aux_loss_coef: f64,
    /// A flag that is set from outside if the run is to end. The computation then ends with an error, before
    /// its next micro-batch, unless all of the step's updates are made within a second.
    pub interrupted: Interruption,
    /// The way in which token losses become one number.
    pub aggregation: Aggregation,
    /// The divisor of one completion for [`Aggregation::Constant`], in tokens.
    pub constant_length: usize,
    /// The factor of the loss in the backward pass; its gradient is divided by it at the end. So small parts of the
    /// gradient are not lost in a format of few exponents. A power of two, or 1.
    pub loss_scale: f64,
    /// The temperature that the samples were drawn at.
    pub temperature: f64,
    /// How the work is split into micro-batches, and what is recomputed.
    pub micro_batching: MicroBatching,
    /// The devices that compute the update beside the policy's.
    pub replicas: Replicas,
}

/// How an update is split into micro-batches, and what its backward pass recomputes. It changes memory and speed, and
/// the result by rounding at most. If matrices are multiplied in bfloat16, that is the rounding of bfloat16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MicroBatching {
    /// The number of tokens per micro-batch, padding included if the policy does not pack: bounds
    /// activations.
    pub micro_batch_tokens: usize,
    /// The number of logits that are there at once, roughly: bounds the widest tensor.
    pub logits: usize,
    /// The most logits of a micro-batch that wait for its backward pass. If there are more, they are made
    /// twice.
    pub waiting_logits: usize,
    /// The number of layers, from the last, that keep everything that their backward pass needs. The other
    /// layers keep their input, and are gone through once more.
    pub whole_layers: usize,
    /// True if those inputs wait in the machine's memory.
    pub offload: bool,
    /// True if completions of one prompt share it; `None` decides by the number of tokens that sharing saves.
    pub share_prompts: Option<bool>,
}

impl Default for MicroBatching {
    /// Splits nothing, and keeps every layer whole.
    fn default() -> Self {
        MicroBatching {
            micro_batch_tokens: usize::MAX,
            logits: 1 << 24,
            waiting_logits: 1 << 24,
            whole_layers: usize::MAX,
            offload: false,
            share_prompts: None,
        }
    }
}

impl MicroBatching {
    /// Gives the layout of the micro-batches of these samples.
    fn layout(&self, samples: &[Sample], packs: bool) -> Layout {
        let pays = || share_saved(samples, self.micro_batch_tokens) >= SHARING_PAYS;
        match packs {
            false => Layout::Padded,
            true if self.share_prompts.unwrap_or_else(pays) => Layout::Shared,
            true => Layout::Packed,
        }
    }
}

/// The share of an update's tokens that sharing has to save before prompts are computed once. It is a guess:
/// sharing costs a second look of every completion, and nobody has measured from where on it pays.
const SHARING_PAYS: f64 = 0.05;

/// The parts that an update with a critic moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moves {
    /// The policy, and the critic with it.
    Policy,
    /// The critic alone. The policy then has no gradient: there is no backward pass through it. A step of its
    /// optimizer would be one of noise, which stays in the moments for long.
    Critic,
}

/// The gradient of an update and its numbers, both whole: they show no trace of the cut.
pub struct UpdateReport {
    /// The policy's gradients by parameter; empty if the policy is not moved.
    pub gradients: GradientsParams,
    /// The critic's gradients, if there is a critic.
    pub of_critic: Option<GradientsParams>,
    /// The loss.
    pub loss: f64,
    /// `loss/…` and `critic/…` means over the update's tokens; [`LARGEST_CHANGE`] is a maximum.
    pub metrics: Metrics,
    /// The number of tokens that counted.
    pub tokens: usize,
    /// The share of the tokens of prompts and completions that were not computed, because a prompt was
    /// shared.
    pub shared: f64,
    /// The numbers of each token.
    pub seen: Seen,
}

/// The log-probability and the entropy of each token that the policy wrote, before an update. They stay on
/// the device until they are read.
#[derive(Default)]
pub struct Seen {
    /// The indices of a micro-batch's samples, with its log-probabilities and its entropies.
    parts: Vec<(Vec<usize>, [Tensor<1>; 2])>,
}

impl Seen {
    /// Gives the log-probabilities of each sample's tokens, as [`Updater::logprobs`] does.
    pub(crate) fn logprobs(&self, samples: &[Sample]) -> Result<Vec<Vec<f32>>, TrainError> {
        let mut found = vec![Vec::new(); samples.len()];
        if self.parts.is_empty() {
            return Ok(found);
        }
        let all = self.parts.iter().map(|(_, [logprobs, _])| logprobs.clone()).collect();
        let mut logprobs = read(Tensor::cat(all, 0))?.into_iter();
        for &index in self.parts.iter().flat_map(|(indices, _)| indices) {
            found[index] = vec![0.0; samples[index].completion.len()];
            for (place, logprob) in samples[index].own().zip(&mut logprobs) {
                found[index][place] = logprob;
            }
        }
        Ok(found)
    }

    /// Gives the part of each sample in the update, in their order: its ratios to the policy that sampled it,
    /// and its entropies. A sample that does not count has neither.
    ///
    /// # Errors
    /// When the device fails.
    pub fn read(self, samples: &[Sample]) -> Result<Vec<Trained>, TrainError> {
        let mut trained: Vec<Trained> = samples.iter().map(Sample::trained).collect();
        if self.parts.is_empty() {
            return Ok(trained);
        }
        let tensors = |which: usize| {
            Tensor::cat(self.parts.iter().map(|(_, numbers)| numbers[which].clone()).collect(), 0)
        };
        // All numbers come in one read-back.
        let numbers = read(Tensor::cat(vec![tensors(0), tensors(1)], 0))?;
        let (logprobs, entropies) = numbers.split_at(numbers.len() / 2);
        let mut numbers = logprobs.iter().zip(entropies);
        for &index in self.parts.iter().flat_map(|(indices, _)| indices) {
            let (sample, trained) = (&samples[index], &mut trained[index]);
            trained.ratios = vec![0.0; sample.completion.len()];
            trained.entropies = trained.ratios.clone();
            for (place, (logprob, entropy)) in sample.own().zip(&mut numbers) {
                trained.ratios[place] = (logprob - sample.rollout_logprobs[place]).exp();
                trained.entropies[place] = *entropy;
            }
        }
        Ok(trained)
    }
}

/// The metric that is a maximum over the update's tokens: the largest distance between a token's
/// log-probability and that of the old policy.
pub const LARGEST_CHANGE: &str = "loss/logprob_change_max";

const TOTAL_LOSS: &str = "loss/total";

/// The metric of [`Loads::load_balancing_loss`], before its weight.
pub const ROUTER_AUX_LOSS: &str = "loss/router_aux";

/// The metric of [`Loads::max_load`].
pub const EXPERT_LOAD_MAX: &str = "experts/load_max";

impl Updater {
    /// Makes one optimizer step over `samples`.
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
        let device = policy.device();
        let (policy, outcome) = together(&device, || optimizer.step(policy, gradients, lr))?;
        Ok((policy, report, outcome))
    }

    /// Computes loss, gradient and metrics of `samples` as one update.
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

    /// Does the work of [`Updater::gradients`] for a policy with a critic. The gradient of a head on the
    /// policy goes into the policy's gradient. The critic's loss, weighted like the policy's, is a metric of
    /// its own.
    ///
    /// # Errors
    /// When the device fails.
    ///
    /// # Panics
    /// When a sample that counts has no token values for the critic.
    pub fn gradients_with<M: PolicyModel>(
        &self,
        policy: &M,
        critic: Option<&Critic<M>>,
        moves: Moves,
        samples: &[Sample],
    ) -> Result<UpdateReport, TrainError> {
        let mut divisors =
            Divisors::count(samples.iter().map(|sample| (sample.group, sample.counted())));
        // The constant counts all completions, also those that are out of the loss (Liu et al. 2025): a
        // completion that is filtered must not make the tokens of the others weigh more.
        divisors.constant = samples.len() as f64 * self.constant_length as f64;
        let balances = moves == Moves::Policy && self.router_aux_loss_coef != 0.0;
        let layout = match self.micro_batching.layout(samples, policy.packs()) {
            Layout::Shared if balances => Layout::Packed,
            layout => layout,
        };
        let loads = balances.then(|| self.loads(policy, samples, layout));
        let balanced = loads.as_ref().map(|loads| {
            let weight = self.router_aux_loss_coef * self.loss_scale;
            policy.clone().with_load_balancing(loads, weight)
        });
        let policy = balanced.as_ref().unwrap_or(policy);
        let shared = match layout {
            Layout::Shared => share_saved(samples, self.micro_batching.micro_batch_tokens),
            Layout::Padded | Layout::Packed => 0.0,
        };
        // The loads of experts, and a critic, are on the policy's device alone.
        let alone = critic.is_some() || balances;
        let batches = self.micro_batches(samples, layout, alone);
        let task = Micro { samples, layout, divisors: &divisors, moves };
        let share = match alone {
            true => self.share(policy, critic, &task, batches)?,
            false => {
                let work = |policy: &M, batches| self.share(policy, None, &task, batches);
                let mut shares = self.replicas.each(policy, samples, batches, work)?.into_iter();
                let own = shares.next().unwrap_or_default();
                own.merged(policy, shares.collect())
            }
        };
        let Share { gradients, of_critic, sums, largest, seen } = share;
        let mut metrics = Metrics::default();
        if let Some(largest) = largest {
            // All numbers come in one read-back.
            let all = sums.values().cloned().chain([largest]).collect();
            let values = read(Tensor::cat(all, 0))?;
            for (name, value) in sums.keys().copied().chain([LARGEST_CHANGE]).zip(values) {
                metrics.set(name, value);
            }
        }
        if let Some(loads) = loads {
            let total = metrics.get(TOTAL_LOSS).unwrap_or(0.0);
            metrics
                .set(TOTAL_LOSS, total + self.router_aux_loss_coef * loads.load_balancing_loss());
            metrics.set(ROUTER_AUX_LOSS, loads.load_balancing_loss());
            metrics.set(EXPERT_LOAD_MAX, loads.max_load());
        }
        Ok(UpdateReport {
            gradients: match self.loss_scale {
                1.0 => gradients.finish(),
                scale => gradients.finish_over(policy, scale),
            },
            of_critic: critic.map(|_| of_critic.finish()),
            loss: metrics.get(TOTAL_LOSS).unwrap_or(0.0),
            metrics,
            tokens: divisors.tokens as usize,
            shared,
            seen,
        })
    }

    /// Computes the part of an update that consists of these micro-batches, on the device of `policy`.
    fn share<M: PolicyModel>(
        &self,
        policy: &M,
        critic: Option<&Critic<M>>,
        task: &Micro<'_>,
        batches: Vec<Vec<usize>>,
    ) -> Result<Share, TrainError> {
        let device = policy.device();
        let policy = &together(&device, || policy.prepared());
        let plain = policy.valid();
        let mut share = Share::default();
        for indices in batches {
            self.check_interrupted()?;
            let batch = self.batch(task.samples, &indices, task.layout, task.divisors, &device);
            let Share { gradients, of_critic, sums, .. } = &mut share;
            let (parts, change, numbers) = together(&device, || {
                // The critic comes before the policy's pass, so that its activations are gone when the
                // policy's come.
                if let Some(critic) = critic {
                    add(sums, critic.on_own_trunk(&batch, &self.micro_batching, of_critic));
                }
                self.micro_batch(policy, &plain, critic, task.moves, &batch, (gradients, of_critic))
            });
            share.largest = Some(match share.largest {
                Some(largest) => largest.max_pair(change),
                None => change,
            });
            add(&mut share.sums, parts);
            share.seen.parts.push((indices, numbers));
        }
        Ok(share)
    }

    /// Gives the log-probabilities of the samples' completion tokens under `policy`, one list per sample. The
    /// number is 0 for a token that the policy did not write. The list is empty for a sample that does not
    /// count.
    ///
    /// # Errors
    /// When the device fails.
    pub fn logprobs<M: PolicyModel>(
        &self,
        policy: &M,
        samples: &[Sample],
    ) -> Result<Vec<Vec<f32>>, TrainError> {
        let logprobs = |policy: &M, hidden: Tensor<2>, batch: &MicroBatch| {
            let (head, temperature, logits) =
                (policy.head().val(), self.temperature, self.micro_batching.logits);
            head_logprobs(&hidden, &head, &batch.labels, temperature, logits).logprobs
        };
        self.per_token(&policy.valid(), samples, false, logprobs)
    }

    /// Gives the values of the samples' completion tokens, one list per sample. A value is the reward that is
    /// expected before the token is written. Numbers of 0 and empty lists are as for [`Updater::logprobs`].
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
        self.per_token(&trunk, samples, true, |_, hidden, _| head.values(hidden))
    }

    /// Fails if the run is to end.
    fn check_interrupted(&self) -> Result<(), TrainError> {
        match self.interrupted.stops_an_update() {
            true => Err(TrainError::Interrupted),
            false => Ok(()),
        }
    }

    /// Counts the loads of the policy's experts over the update's tokens.
    fn loads<M: PolicyModel>(&self, policy: &M, samples: &[Sample], layout: Layout) -> Loads {
        let (plain, device) = (policy.valid(), policy.device());
        let (mut loads, divisors) = (Loads::default(), Divisors::default());
        for indices in self.micro_batches(samples, layout, true) {
            let batch = self.batch(samples, &indices, layout, &divisors, &device);
            together(&device, || plain.count_loads(&batch.tokens, &mut loads));
        }
        loads
    }

    /// Gives the indices of the samples of each micro-batch. Each of several devices gets at least one
    /// micro-batch, if there are as many samples.
    fn micro_batches(&self, samples: &[Sample], layout: Layout, alone: bool) -> Vec<Vec<usize>> {
        let devices = if alone { 1 } else { self.replicas.count() };
        let all: usize = samples.iter().map(Sample::length).sum();
        let tokens = match devices {
            1 => self.micro_batching.micro_batch_tokens,
            count => self.micro_batching.micro_batch_tokens.min(all.div_ceil(count)),
        };
        micro_batches(samples, tokens, layout)
    }

    fn batch(
        &self,
        samples: &[Sample],
        indices: &[usize],
        layout: Layout,
        divisors: &Divisors,
        device: &Device,
    ) -> MicroBatch {
        let part: Vec<&Sample> = indices.iter().map(|&index| &samples[index]).collect();
        MicroBatch::new(&part, layout, self.aggregation, divisors, device)
    }

    fn scaled<const D: usize>(&self, gradient: Tensor<D>) -> Tensor<D> {
        if self.loss_scale == 1.0 { gradient } else { gradient.mul_scalar(self.loss_scale) }
    }

    /// Gives a number for each completion token, from the hidden state of `policy` that predicts it.
    fn per_token<M: PolicyModel>(
        &self,
        policy: &M,
        samples: &[Sample],
        alone: bool,
        number: impl Fn(&M, Tensor<2>, &MicroBatch) -> Tensor<1> + Sync,
    ) -> Result<Vec<Vec<f32>>, TrainError> {
        let divisors = Divisors::default();
        let layout = self.micro_batching.layout(samples, policy.packs());
        let work = |policy: &M, batches: Vec<Vec<usize>>| {
            let device = policy.device();
            let policy = &together(&device, || policy.prepared());
            let mut found = Vec::new();
            for indices in batches {
                self.check_interrupted()?;
                let batch = self.batch(samples, &indices, layout, &divisors, &device);
                let numbers = together(&device, || {
                    let hidden = hidden_at(policy, &batch.tokens, &batch.predictors);
                    number(policy, hidden, &batch)
                });
                found.push((indices, read(numbers)?));
            }
            Ok(found)
        };
        let batches = self.micro_batches(samples, layout, alone);
        let found = match alone {
            true => vec![work(policy, batches)?],
            false => self.replicas.each(policy, samples, batches, work)?,
        };
        let mut result = vec![Vec::new(); samples.len()];
        for (indices, values) in found.into_iter().flatten() {
            let mut values = values.into_iter();
            for index in indices {
                let sample = &samples[index];
                result[index] = vec![0.0; sample.completion.len()];
                for (place, value) in sample.own().zip(&mut values) {
                    result[index][place] = value;
                }
            }
        }
        Ok(result)
    }

    /// Adds the gradient of a micro-batch to those of the policy and of the critic. Gives the micro-batch's
    /// parts of sums over the update, the largest change of a log-probability, and the log-probabilities and
    /// entropies themselves.
    ///
    /// The backward pass has three stages, so that logits need not exist for more than a block of the
    /// vocabulary at a time: from loss to log-probabilities by autodiff on `[rows, tokens]`; from
    /// log-probabilities to hidden states and head by hand; from hidden states to weights layer by layer. A
    /// value head on the policy adds its part at the hidden states, so that the trunk is gone through once.
    fn micro_batch<M: PolicyModel>(
        &self,
        policy: &M,
        plain: &M,
        critic: Option<&Critic<M>>,
        moves: Moves,
        batch: &MicroBatch,
        (sum, of_critic): (&mut GradientSum, &mut GradientSum),
    ) -> (Parts, Tensor<1>, [Tensor<1>; 2]) {
        let context = policy.context(&batch.tokens);
        // If the policy stands still, nothing is kept for the backward pass.
        let pass = match moves {
            Moves::Policy => Some(CheckpointedForward::forward(
                policy,
                plain,
                &batch.tokens,
                &context,
                &self.micro_batching,
            )),
            Moves::Critic => None,
        };
        let (hidden, last) = match &pass {
            Some(pass) => {
                let last = at(pass.output.clone(), &batch.predictors);
                let last = Tensor::from_inner(last).require_grad();
                (finished(policy, last.clone()), Some(last))
            }
            None => (hidden_at(plain, &batch.tokens, &batch.predictors), None),
        };
        let values = hidden.clone().inner();
        let judged = critic.and_then(|critic| critic.on_policy(&values, batch, of_critic));
        let head = plain.head().val();
        let (temperature, logits) = (self.temperature, self.micro_batching.logits);
        let waiting = match moves {
            Moves::Policy => self.micro_batching.waiting_logits,
            Moves::Critic => 0,
        };
        let at_once = [logits, waiting];
        let now = head_logprobs_saving(&values, &head, &batch.labels, temperature, at_once);

        let numbers = [now.logprobs.clone(), now.entropy.clone()];
        let leaf =
            |numbers: &Tensor<1>| Tensor::from_inner(batch.by_row(numbers.clone())).require_grad();
        let (logprobs, entropy) = (leaf(&now.logprobs), leaf(&now.entropy));
        let difference =
            (logprobs.clone().inner() - batch.old_logprobs.clone()).abs() * batch.mask.clone();
        let output = self.objective.evaluate(&LossInput {
            logprobs: logprobs.clone(),
            entropy: entropy.clone(),
            old_logprobs: batch.old_logprobs.clone(),
            ref_logprobs: batch.ref_logprobs.clone(),
            advantages: batch.advantages.clone(),
            importance: batch.importance.clone(),
            mask: batch.mask.clone(),
            weights: batch.weights.clone(),
            shares: batch.shares.clone(),
        });
        let (judged_hidden, judged) = judged.unwrap_or_default();
        if let Some((pass, last)) = pass.zip(last) {
            let gradients = output.loss.backward();
            let of = |leaf: Tensor<2>| Some(self.scaled(batch.by_token(leaf.grad(&gradients)?)));
            let d_logprobs = of(logprobs).unwrap_or_else(|| now.logprobs.zeros_like());
            let d_entropy = if self.objective.entropy_coef == 0.0 { None } else { of(entropy) };
            let mut d_hidden = head_backward(
                &values,
                policy.head(),
                &batch.labels,
                temperature,
                logits,
                now,
                &d_logprobs,
                d_entropy.as_ref(),
                sum,
            );
            if let Some(more) = judged_hidden {
                d_hidden = d_hidden + self.scaled(more);
            }
            let finish = hidden.cast(DType::F32) * Tensor::from_inner(d_hidden);
            let mut gradients = finish.sum().backward();
            sum.take(policy, &mut gradients);
            let d_last = last.grad_remove(&mut gradients).expect("a leaf that was gone through");
            // The head leaves tensors as wide as some layers' inputs, which are dropped before the backward pass.
            drop((last, values, gradients));
            pass.backward(batch.spread(d_last), sum);
        }

        let mut parts = vec![
            (TOTAL_LOSS, output.loss.inner()),
            ("loss/policy", output.policy_loss.inner()),
            ("loss/logprob_change", sum_all(difference.clone() * batch.shares.clone())),
        ];
        parts.extend(output.metrics.into_iter().map(|(name, part)| (name, part.inner())));
        parts.extend(judged);
        (parts, difference.max(), numbers)
    }
}

/// The facts of an update that the computation of a part needs.
struct Micro<'a> {
    samples: &'a [Sample],
    layout: Layout,
    /// The divisors of the whole update.
    divisors: &'a Divisors,
    moves: Moves,
}

/// The part of an update that one device has computed.
#[derive(Default)]
struct Share {
    gradients: GradientSum,
    of_critic: GradientSum,
    sums: BTreeMap<&'static str, Tensor<1>>,
    /// The largest change of a log-probability.
    largest: Option<Tensor<1>>,
    seen: Seen,
}

impl Share {
    /// Adds the shares of other devices, and brings all of them to the policy's device.
    fn merged<M: PolicyModel>(mut self, policy: &M, mut others: Vec<Share>) -> Share {
        let gradients = others.iter_mut().map(|other| std::mem::take(&mut other.gradients));
        self.gradients = self.gradients.merged(policy, gradients.collect());

        let here = policy.device().inner();
        others.into_iter().fold(self, |sum, other| sum.with_metrics(other, &here))
    }

    /// Adds the sums for metrics of another device, and brings them `here`.
    fn with_metrics(mut self, other: Share, here: &Device) -> Share {
        let sums = other.sums.into_iter();
        add(&mut self.sums, sums.map(|(name, part)| (name, part.to_device(here))).collect());
        let largest = other.largest.map(|largest| largest.to_device(here));
        self.largest = match (self.largest, largest) {
            (Some(a), Some(b)) => Some(a.max_pair(b)),
            (a, b) => a.or(b),
        };
        let parts = other.seen.parts.into_iter();
        let moved = parts.map(|(indices, numbers)| (indices, numbers.map(|it| it.to_device(here))));
        self.seen.parts.extend(moved);
        self
    }
}

/// The parts of sums over an update, by the names of the update's metrics.
pub(crate) type Parts = Vec<(&'static str, Tensor<1>)>;

/// Adds `parts` to the sums of their names.
fn add(sums: &mut BTreeMap<&'static str, Tensor<1>>, parts: Parts) {
    for (name, part) in parts {
        let sum = match sums.remove(name) {
            Some(sum) => sum + part,
            None => part,
        };
        sums.insert(name, sum);
    }
}
