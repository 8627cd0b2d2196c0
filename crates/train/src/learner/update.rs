//! One update: the gradient of all samples, computed in pieces, and the optimizer's step.

use std::collections::BTreeMap;

use burn::{
    module::Module,
    optim::GradientsParams,
    tensor::{DType, Device, Tensor},
};
use firebrick_core::{Metrics, config::Aggregation};
use firebrick_kernels::{run_on_compute_thread, sum_all};
use firebrick_models::{
    GradientSum, Loads, PolicyModel, head_backward, head_logprobs, head_logprobs_saving,
};

use crate::{
    algorithm::{
        aggregation::Divisors,
        loss::{ENTROPY, LOGPROB_CHANGE, LossInput, Objective, ObjectiveOutput, TOTAL_LOSS},
    },
    error::TrainError,
    interruption::Interruption,
    learner::{
        LogprobChange,
        checkpointed_forward::{CheckpointedForward, final_norm, gather_tokens, hidden_at},
        critic::{Critic, MetricSums, ValueModel},
        divergence::{DivergenceSettings, TeacherDistributions, TeacherStates},
        micro_batch::{Layout, MicroBatch, MicroBatching, micro_batches, prompt_sharing_saving},
        optim::{Optimizer, StepOutcome, read},
        replicas::Replicas,
        token_stats::TokenStats,
    },
    sample::Sample,
};

/// Turns samples into one optimizer step.
#[non_exhaustive]
pub struct Updater {
    /// The loss to minimise.
    pub objective: Objective,
    /// Weight of the load-balancing loss of experts ([`Loads::load_balancing_loss`]); 0 means no such loss.
    /// Loads are counted over all tokens of the update, in one more forward pass through the policy. No
    /// prompt is shared then: each of its completions counts it, however the update is split.
    pub router_aux_loss_coef: f64,
    /// Share of the tokens that have a policy loss, in (0, 1]: those of the largest entropy (Wang et al. 2025, arXiv
    /// 2506.01939). Below 1 the entropies of all tokens of the update are computed first, in one more forward pass
    /// through the policy, so that the choice does not depend on how the update is split.
    pub top_entropy_quantile: f64,
    /// Set from outside on interruption. The computation then ends with an error before its next micro-batch,
    /// unless all of the step's updates are made within a second.
    pub interrupted: Interruption,
    /// How token losses become one number.
    pub aggregation: Aggregation,
    /// Divisor of one completion for [`Aggregation::Constant`], in tokens.
    pub constant_length: usize,
    /// Factor of the loss in the backward pass, by which its gradient is divided at the end, so that small
    /// gradients do not underflow in a number format with a narrow exponent range (float16). A power of two,
    /// or 1.
    pub loss_scale: f64,
    /// Temperature that the samples were drawn at.
    pub temperature: f64,
    /// How the work is split into micro-batches, and what is recomputed.
    pub micro_batching: MicroBatching,
    /// Devices that compute the update besides the policy's.
    pub replicas: Replicas,
}

/// What an update with a critic trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateTarget {
    /// The policy, and the critic with it.
    Policy,
    /// The critic alone. The policy then has no gradient, because there is no backward pass through it. A
    /// step of its optimizer would be noise, which its moments would carry for many steps.
    Critic,
}

/// Models that an update needs besides the policy.
pub struct AuxModels<'a, M: PolicyModel> {
    /// The critic, if there is one.
    pub critic: Option<&'a Critic<M>>,
    /// The teachers that the policy diverges from, if that is a loss.
    pub teachers: Option<&'a dyn TeacherDistributions>,
}

impl<M: PolicyModel> Default for AuxModels<'_, M> {
    fn default() -> Self {
        AuxModels { critic: None, teachers: None }
    }
}

impl<M: PolicyModel> Clone for AuxModels<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: PolicyModel> Copy for AuxModels<'_, M> {}

/// Gradients and metrics of an update, neither of which shows how the update was split.
pub struct UpdateReport {
    /// The policy's gradients by parameter; empty if the policy is not trained.
    pub gradients: GradientsParams,
    /// The critic's gradients, if there is a critic.
    pub critic_gradients: Option<GradientsParams>,
    /// The loss.
    pub loss: f64,
    /// `loss/…` and `critic/…` means over the update's tokens.
    pub metrics: Metrics,
    /// How far the policy is from the old policy.
    pub logprob_change: LogprobChange,
    /// Mean entropy of the policy over the tokens that count, in nats.
    pub entropy: f64,
    /// Tokens that counted.
    pub tokens: usize,
    /// Fraction of the tokens of prompts and completions that were not computed, because a prompt was shared.
    pub prompt_sharing: f64,
    /// Log-probability and entropy of each token.
    pub token_stats: TokenStats,
}

/// Metric of [`Loads::load_balancing_loss`], before its weight.
pub const ROUTER_AUX_LOSS: &str = "loss/router_aux";

/// Metric of [`Loads::max_load`].
pub const EXPERT_LOAD_MAX: &str = "experts/load_max";

impl Updater {
    /// Makes an updater that computes an update in one piece on the policy's device, as a mean over tokens that were
    /// drawn at temperature 1.
    pub fn new(objective: Objective) -> Self {
        Updater {
            objective,
            router_aux_loss_coef: 0.0,
            top_entropy_quantile: 1.0,
            interrupted: Interruption::default(),
            aggregation: Aggregation::TokenMean,
            constant_length: 1,
            loss_scale: 1.0,
            temperature: 1.0,
            micro_batching: MicroBatching::default(),
            replicas: Replicas::default(),
        }
    }

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
        let (policy, outcome) =
            run_on_compute_thread(&device, || optimizer.step(policy, gradients, lr))?;
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
        self.gradients_with(policy, AuxModels::default(), UpdateTarget::Policy, samples)
    }

    /// Computes the same as [`Updater::gradients`], for a policy with a critic or teachers. The gradient of a head on
    /// the policy is added to the policy's gradient, and so is that of a divergence from teachers. The critic's loss,
    /// weighted like the policy's, is a separate metric.
    ///
    /// # Errors
    /// When the device fails, or a teacher does not know what the loss asks for.
    ///
    /// # Panics
    /// When a sample that counts has no token values for the critic.
    pub fn gradients_with<M: PolicyModel>(
        &self,
        policy: &M,
        aux: AuxModels<'_, M>,
        target: UpdateTarget,
        samples: &[Sample],
    ) -> Result<UpdateReport, TrainError> {
        let divisors = self.divisors(samples);
        let chosen = match target {
            UpdateTarget::Policy if self.top_entropy_quantile < 1.0 => {
                Some(self.keep_top_entropy(policy, samples, self.top_entropy_quantile)?)
            }
            UpdateTarget::Policy | UpdateTarget::Critic => None,
        };
        let samples = chosen.as_deref().unwrap_or(samples);

        let has_aux_loss = target == UpdateTarget::Policy && self.router_aux_loss_coef != 0.0;
        let layout = match self.micro_batching.layout(samples, policy.packs()) {
            Layout::Shared if has_aux_loss => Layout::Packed,
            layout => layout,
        };
        let prompt_sharing = match layout {
            Layout::Shared => {
                prompt_sharing_saving(samples, self.micro_batching.micro_batch_tokens)
            }
            Layout::Padded | Layout::Packed => 0.0,
        };

        let loads = has_aux_loss.then(|| self.loads(policy, samples, layout));
        let policy_with_aux = loads.as_ref().map(|loads| {
            let weight = self.router_aux_loss_coef * self.loss_scale;
            policy.clone().with_load_balancing(loads, weight)
        });
        let policy = policy_with_aux.as_ref().unwrap_or(policy);

        // The loads of experts, a critic, and teachers are on the policy's device alone.
        let single_device = aux.critic.is_some() || aux.teachers.is_some() || has_aux_loss;
        let context = UpdateContext { samples, layout, divisors: &divisors, target };
        let result = self.compute(policy, aux, &context, single_device)?;

        let (mut metrics, logprob_change) = result.metrics.read()?;
        let entropy = metrics.get(ENTROPY).unwrap_or(f64::NAN);
        if let Some(loads) = loads {
            self.record_aux_loss(&loads, &mut metrics);
        }

        let DeviceResult { gradients, token_stats, .. } = result;
        Ok(UpdateReport {
            gradients: match self.loss_scale {
                1.0 => gradients.policy.finish(),
                scale => gradients.policy.finish_over(policy, scale),
            },
            critic_gradients: aux.critic.map(|_| gradients.critic.finish()),
            loss: metrics.get(TOTAL_LOSS).unwrap_or(0.0),
            metrics,
            logprob_change,
            entropy,
            tokens: divisors.tokens as usize,
            prompt_sharing,
            token_stats,
        })
    }

    /// Counts the divisors of an update.
    pub(super) fn divisors(&self, samples: &[Sample]) -> Divisors {
        let mut divisors =
            Divisors::count(samples.iter().map(|sample| (sample.group, sample.loss_tokens())));
        // The constant counts all completions, also those that are out of the loss (Liu et al. 2025): a
        // completion that is filtered must not make the tokens of the others weigh more.
        divisors.constant = samples.len() as f64 * self.constant_length as f64;
        divisors
    }

    /// Adds the load-balancing loss to the metrics, and to the total loss with its weight.
    fn record_aux_loss(&self, loads: &Loads, metrics: &mut Metrics) {
        let aux_loss = loads.load_balancing_loss();
        let total = metrics.get(TOTAL_LOSS).unwrap_or(0.0);
        metrics.set(TOTAL_LOSS, total + self.router_aux_loss_coef * aux_loss);
        metrics.set(ROUTER_AUX_LOSS, aux_loss);
        metrics.set(EXPERT_LOAD_MAX, loads.max_load());
    }

    /// Computes an update on the policy's device, or on all devices, whose results are merged.
    fn compute<M: PolicyModel>(
        &self,
        policy: &M,
        aux: AuxModels<'_, M>,
        context: &UpdateContext<'_>,
        single_device: bool,
    ) -> Result<DeviceResult, TrainError> {
        let batches = self.micro_batches(context.samples, context.layout, single_device);
        if single_device {
            return self.compute_on_device(policy, aux, context, batches);
        }

        let work = |policy: &M, batches| {
            self.compute_on_device(policy, AuxModels::default(), context, batches)
        };
        let mut results =
            self.replicas.map_devices(policy, context.samples, batches, work)?.into_iter();
        let first = results.next().unwrap_or_default();
        Ok(first.merged(policy, results.collect()))
    }

    /// Computes the part of an update that consists of these micro-batches, on the device of `policy`.
    fn compute_on_device<M: PolicyModel>(
        &self,
        policy: &M,
        aux: AuxModels<'_, M>,
        context: &UpdateContext<'_>,
        batches: Vec<Vec<usize>>,
    ) -> Result<DeviceResult, TrainError> {
        let device = policy.device();
        let policy = &run_on_compute_thread(&device, || policy.prepared());
        let policy_no_grad = &policy.valid();
        let models = Models { policy, policy_no_grad, aux };
        let mut result = DeviceResult::default();

        for indices in batches {
            self.check_interrupted()?;
            let UpdateContext { samples, layout, divisors, target } = *context;
            let batch = self.batch(samples, &indices, layout, divisors, &device);
            let samples: Vec<&Sample> = indices.iter().map(|&index| &samples[index]).collect();

            let DeviceResult { gradients, metrics, .. } = &mut result;
            let batch_result = run_on_compute_thread(&device, || {
                // The critic's pass comes first, so that its activations are freed before the policy's are
                // allocated.
                if let Some(critic) = aux.critic {
                    let micro_batching = &self.micro_batching;
                    add(
                        &mut metrics.sums,
                        critic.on_own_trunk(&batch, micro_batching, &mut gradients.critic),
                    );
                }
                // So do the teachers' passes, of which only the last hidden states are kept.
                let taught = match (aux.teachers, target) {
                    (Some(teachers), UpdateTarget::Policy) => {
                        teachers.states(&self.micro_batching, &samples)?
                    }
                    _ => Vec::new(),
                };
                Ok::<_, TrainError>(self.micro_batch(&models, target, &batch, taught, gradients))
            })?;

            result.add_micro_batch(indices, batch_result);
        }

        Ok(result)
    }

    /// Computes the log-probabilities of the samples' completion tokens under `policy`, one list per sample.
    /// The number is 0 for a token that the policy did not write. The list is empty for a sample that does
    /// not count.
    ///
    /// # Errors
    /// When the device fails.
    pub fn logprobs<M: PolicyModel>(
        &self,
        policy: &M,
        samples: &[Sample],
    ) -> Result<Vec<Vec<f32>>, TrainError> {
        let logprobs = |policy: &M, hidden: Tensor<2>, batch: &MicroBatch| {
            let head = policy.lm_head();
            let max_logits = self.micro_batching.max_logits;
            head_logprobs(&hidden, &head, &batch.labels, self.temperature, max_logits).logprobs
        };
        self.per_token(&policy.valid(), samples, false, logprobs)
    }

    /// Computes the values of the samples' completion tokens, one list per sample. A value is the reward that
    /// is expected before the token is written. Numbers of 0 and empty lists are as for
    /// [`Updater::logprobs`].
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

    /// Fails on interruption.
    pub(super) fn check_interrupted(&self) -> Result<(), TrainError> {
        if self.interrupted.stops_an_update() { Err(TrainError::Interrupted) } else { Ok(()) }
    }

    /// Counts the loads of the policy's experts over the update's tokens.
    fn loads<M: PolicyModel>(&self, policy: &M, samples: &[Sample], layout: Layout) -> Loads {
        let policy_no_grad = policy.valid();
        let device = policy.device();
        let divisors = Divisors::default();
        let mut loads = Loads::default();

        for indices in self.micro_batches(samples, layout, true) {
            let batch = self.batch(samples, &indices, layout, &divisors, &device);
            run_on_compute_thread(&device, || {
                policy_no_grad.count_loads(&batch.tokens, &mut loads);
            });
        }
        loads
    }

    /// Returns the indices of the samples of each micro-batch. Each of several devices gets at least one
    /// micro-batch, if there are as many samples.
    pub(super) fn micro_batches(
        &self,
        samples: &[Sample],
        layout: Layout,
        single_device: bool,
    ) -> Vec<Vec<usize>> {
        let devices = if single_device { 1 } else { self.replicas.count() };
        let all: usize = samples.iter().map(Sample::length).sum();
        let tokens = match devices {
            1 => self.micro_batching.micro_batch_tokens,
            count => self.micro_batching.micro_batch_tokens.min(all.div_ceil(count)),
        };
        micro_batches(samples, tokens, layout)
    }

    pub(super) fn batch(
        &self,
        samples: &[Sample],
        indices: &[usize],
        layout: Layout,
        divisors: &Divisors,
        device: &Device,
    ) -> MicroBatch {
        let selected: Vec<&Sample> = indices.iter().map(|&index| &samples[index]).collect();
        MicroBatch::new(&selected, layout, self.aggregation, divisors, device)
    }

    /// Tells whether the policy loss has no gradient, because the teachers leave no advantages and the objective has no
    /// other part.
    fn learns_from_teachers_alone(&self, taught: &[TeacherStates]) -> bool {
        let Objective { policy, entropy_coef, .. } = &self.objective;
        let has_penalty = self.objective.needs_reference() || *entropy_coef != 0.0;
        let alone = !taught.is_empty() && taught.iter().all(|teacher| teacher.alone);
        alone && policy.needs_advantages() && !has_penalty
    }

    fn divergence_settings(&self) -> DivergenceSettings {
        DivergenceSettings {
            temperature: self.temperature,
            loss_scale: self.loss_scale,
            max_logits: self.micro_batching.max_logits,
        }
    }

    fn scaled<const D: usize>(&self, gradient: Tensor<D>) -> Tensor<D> {
        if self.loss_scale == 1.0 { gradient } else { gradient.mul_scalar(self.loss_scale) }
    }

    /// Computes a number for each completion token, from the hidden state of `policy` that predicts it.
    pub(super) fn per_token<M: PolicyModel>(
        &self,
        policy: &M,
        samples: &[Sample],
        single_device: bool,
        number: impl Fn(&M, Tensor<2>, &MicroBatch) -> Tensor<1> + Sync,
    ) -> Result<Vec<Vec<f32>>, TrainError> {
        let divisors = Divisors::default();
        let layout = self.micro_batching.layout(samples, policy.packs());
        let work = |policy: &M, batches: Vec<Vec<usize>>| {
            let device = policy.device();
            let policy = &run_on_compute_thread(&device, || policy.prepared());
            let mut by_batch = Vec::new();

            for indices in batches {
                self.check_interrupted()?;
                let batch = self.batch(samples, &indices, layout, &divisors, &device);
                let numbers = run_on_compute_thread(&device, || {
                    let hidden = hidden_at(policy, &batch.tokens, &batch.predictors);
                    number(policy, hidden, &batch)
                });

                by_batch.push((indices, read(numbers)?));
            }
            Ok(by_batch)
        };

        let batches = self.micro_batches(samples, layout, single_device);
        let by_device = if single_device {
            vec![work(policy, batches)?]
        } else {
            self.replicas.map_devices(policy, samples, batches, work)?
        };

        // Micro-batches are ordered by length; the result has the order of the samples.
        let mut by_sample = vec![Vec::new(); samples.len()];
        for (indices, values) in by_device.into_iter().flatten() {
            let mut values = values.into_iter();
            for index in indices {
                let sample = &samples[index];
                by_sample[index] = vec![0.0; sample.completion.len()];
                for (token, value) in sample.policy_tokens().zip(&mut values) {
                    by_sample[index][token] = value;
                }
            }
        }

        Ok(by_sample)
    }

    /// Adds the gradient of a micro-batch to `gradients`, and returns its metrics and token statistics.
    ///
    /// The backward pass has three stages, so that logits need not exist for more than a block of the
    /// vocabulary at a time: from loss to log-probabilities by autodiff on `[rows, tokens]`
    /// ([`Updater::loss_gradients`]); from log-probabilities to hidden states and head by hand
    /// ([`head_backward`]); from hidden states to weights layer by layer ([`TrunkPass::backward`]). A value
    /// head on the policy adds its gradient at the hidden states, so that one pass through the trunk is
    /// enough.
    fn micro_batch<M: PolicyModel>(
        &self,
        models: &Models<'_, M>,
        target: UpdateTarget,
        batch: &MicroBatch,
        taught: Vec<TeacherStates>,
        gradients: &mut UpdateGradients,
    ) -> MicroBatchResult {
        let Models { policy, policy_no_grad, aux: AuxModels { critic, .. } } = *models;

        // If the policy is not trained, nothing is kept for the backward pass.
        let context = policy.context(&batch.tokens);
        let trunk = match target {
            UpdateTarget::Policy => {
                Some(TrunkPass::forward(models, batch, &context, &self.micro_batching))
            }
            UpdateTarget::Critic => None,
        };
        let hidden = match &trunk {
            Some(trunk) => trunk.hidden.clone(),
            None => hidden_at(policy_no_grad, &batch.tokens, &batch.predictors),
        };
        let hidden_detached = hidden.inner();

        let (critic_d_hidden, critic_sums) = critic
            .and_then(|critic| critic.on_policy(&hidden_detached, batch, &mut gradients.critic))
            .unwrap_or_default();

        let alone = self.learns_from_teachers_alone(&taught);
        let head = policy_no_grad.lm_head();
        let max_saved = match target {
            UpdateTarget::Policy if !alone => self.micro_batching.max_saved_logits,
            // Nothing goes back through them.
            UpdateTarget::Policy | UpdateTarget::Critic => 0,
        };
        let logit_limits = [self.micro_batching.max_logits, max_saved];
        let head_output = head_logprobs_saving(
            &hidden_detached,
            &head,
            &batch.labels,
            self.temperature,
            logit_limits,
        );
        let token_stats = [head_output.logprobs.clone(), head_output.entropy.clone()];
        let loss = BatchLoss::new(&self.objective, batch, token_stats.clone());

        let mut sums = Vec::new();
        if let Some(trunk) = trunk {
            let mut d_hidden = if alone {
                Tensor::zeros(hidden_detached.dims(), (&hidden_detached.device(), DType::F32))
            } else {
                // First stage: from the loss to log-probabilities and entropies.
                let [d_logprobs, d_entropy] = loss.gradients(batch);
                let d_logprobs = d_logprobs.map(|gradient| self.scaled(gradient));
                let d_entropy = d_entropy
                    .filter(|_| self.objective.entropy_coef != 0.0)
                    .map(|gradient| self.scaled(gradient));
                let d_logprobs = d_logprobs.unwrap_or_else(|| head_output.logprobs.zeros_like());

                // Second stage: on to the hidden states and the head, which needs logits again.
                head_backward(
                    &hidden_detached,
                    policy.head(),
                    &batch.labels,
                    self.temperature,
                    self.micro_batching.max_logits,
                    head_output,
                    &d_logprobs,
                    d_entropy.as_ref(),
                    &mut gradients.policy,
                )
            };
            if let Some(critic_d_hidden) = critic_d_hidden {
                d_hidden = d_hidden + self.scaled(critic_d_hidden);
            }
            for teacher in taught {
                let settings = self.divergence_settings();
                let (hidden, sum) = (&hidden_detached, &mut gradients.policy);
                sums.extend(teacher.backward(&settings, policy, hidden, batch, &mut d_hidden, sum));
            }

            // Third stage: through the final norm and the layers. The hidden states are as wide as some
            // layers' inputs, so they are dropped first.
            drop(hidden_detached);
            trunk.backward(policy, batch, d_hidden, &mut gradients.policy);
        }

        let mut metrics = loss.into_metrics(batch);
        metrics.sums.extend(sums);
        metrics.sums.extend(critic_sums);
        MicroBatchResult { metrics, token_stats }
    }
}

/// Loss of a micro-batch, as a function of its log-probabilities and entropies.
pub(super) struct BatchLoss {
    /// Log-probabilities and entropies, `[rows, width]` each.
    leaves: [Tensor<2>; 2],
    output: ObjectiveOutput,
}

impl BatchLoss {
    /// Evaluates the loss at `[log-probabilities, entropies]`, `[count]` each.
    pub(super) fn new(
        objective: &Objective,
        batch: &MicroBatch,
        token_stats: [Tensor<1>; 2],
    ) -> Self {
        let leaves = token_stats.map(|stat| Tensor::from_inner(batch.by_row(stat)).require_grad());
        let output = objective.evaluate(&loss_input(batch, &leaves));
        BatchLoss { leaves, output }
    }

    /// Computes the gradients of the loss with respect to the log-probabilities and the entropies, `[count]` each;
    /// `None` if the loss does not depend on them.
    pub(super) fn gradients(&self, batch: &MicroBatch) -> [Option<Tensor<1>>; 2] {
        let gradients = self.output.loss.backward();
        self.leaves.each_ref().map(|leaf| Some(batch.by_token(leaf.grad(&gradients)?)))
    }

    /// Returns the micro-batch's parts of the update's metrics.
    pub(super) fn into_metrics(self, batch: &MicroBatch) -> BatchMetrics {
        let BatchLoss { leaves: [logprobs, _], output } = self;
        let change = (logprobs.inner() - batch.old_logprobs.clone()).abs() * batch.mask.clone();
        let mut sums = vec![
            (TOTAL_LOSS, output.loss.inner()),
            ("loss/policy", output.policy_loss.inner()),
            (LOGPROB_CHANGE, sum_all(change.clone() * batch.metric_weights.clone())),
        ];
        sums.extend(output.metrics.into_iter().map(|(name, part)| (name, part.inner())));
        BatchMetrics { sums, logprob_change_max: change.max() }
    }
}

/// Makes the loss's input from `[log-probabilities, entropies]`, `[rows, width]` each.
fn loss_input(batch: &MicroBatch, [logprobs, entropy]: &[Tensor<2>; 2]) -> LossInput {
    LossInput {
        logprobs: logprobs.clone(),
        entropy: entropy.clone(),
        old_logprobs: batch.old_logprobs.clone(),
        ref_logprobs: batch.ref_logprobs.clone(),
        advantages: batch.advantages.clone(),
        tis_weights: batch.tis_weights.clone(),
        mask: batch.mask.clone(),
        loss_weights: batch.loss_weights.clone(),
        metric_weights: batch.metric_weights.clone(),
    }
}

/// Shared context of an update.
struct UpdateContext<'a> {
    samples: &'a [Sample],
    layout: Layout,
    /// Divisors of the whole update.
    divisors: &'a Divisors,
    target: UpdateTarget,
}

/// Models of an update on one device.
struct Models<'a, M: PolicyModel> {
    policy: &'a M,
    /// The policy without autodiff.
    policy_no_grad: &'a M,
    aux: AuxModels<'a, M>,
}

/// Forward pass of a micro-batch through a policy that is trained, up to the head.
struct TrunkPass<'a, M: PolicyModel> {
    layers: CheckpointedForward<'a, M>,
    /// Leaf of the graph: the last layer's output at the predictors, `[count, hidden]`.
    last_hidden: Tensor<2>,
    /// The final norm's output, `[count, hidden]`.
    hidden: Tensor<2>,
}

impl<'a, M: PolicyModel> TrunkPass<'a, M> {
    fn forward(
        models: &Models<'a, M>,
        batch: &'a MicroBatch,
        context: &'a M::Context,
        micro_batching: &MicroBatching,
    ) -> Self {
        let Models { policy, policy_no_grad, .. } = *models;
        let layers = CheckpointedForward::forward(
            policy,
            policy_no_grad,
            &batch.tokens,
            context,
            micro_batching,
        );

        let last_hidden = gather_tokens(layers.output.clone(), &batch.predictors);
        let last_hidden = Tensor::from_inner(last_hidden).require_grad();
        let hidden = final_norm(policy, last_hidden.clone());
        TrunkPass { layers, last_hidden, hidden }
    }

    /// Computes the backward pass from `d_hidden`, the gradient of `hidden`, and adds the gradient of the
    /// parameters to `sum`.
    fn backward(self, policy: &M, batch: &MicroBatch, d_hidden: Tensor<2>, sum: &mut GradientSum) {
        let TrunkPass { layers, last_hidden, hidden } = self;

        // `hidden` is the final norm's output; this backpropagates through it (VJP).
        let vjp = hidden.cast(DType::F32) * Tensor::from_inner(d_hidden);
        let mut gradients = vjp.sum().backward();
        sum.take(policy, &mut gradients);
        let d_last_hidden =
            last_hidden.grad_remove(&mut gradients).expect("a leaf that was gone through");

        // These tensors are as wide as some layers' inputs, so they are dropped before the layers' pass.
        drop((last_hidden, gradients));
        layers.backward(batch.spread(d_last_hidden), sum);
    }
}

/// Gradients of an update so far.
#[derive(Default)]
struct UpdateGradients {
    policy: GradientSum,
    critic: GradientSum,
}

/// Metrics and token statistics of one micro-batch.
struct MicroBatchResult {
    metrics: BatchMetrics,
    /// Log-probabilities and entropies, `[count]` each.
    token_stats: [Tensor<1>; 2],
}

/// A micro-batch's parts of the update's metrics.
pub(super) struct BatchMetrics {
    sums: MetricSums,
    /// Largest change of a log-probability.
    logprob_change_max: Tensor<1>,
}

/// Metrics of an update so far.
#[derive(Default)]
pub(super) struct UpdateMetrics {
    sums: BTreeMap<&'static str, Tensor<1>>,
    /// Largest change of a log-probability; `None` before the first micro-batch.
    logprob_change_max: Option<Tensor<1>>,
}

impl UpdateMetrics {
    /// Adds the metrics of a micro-batch.
    pub(super) fn add(&mut self, BatchMetrics { sums, logprob_change_max }: BatchMetrics) {
        add(&mut self.sums, sums);
        self.logprob_change_max = Some(match self.logprob_change_max.take() {
            Some(largest) => largest.max_pair(logprob_change_max),
            None => logprob_change_max,
        });
    }

    /// Adds another device's metrics, and brings them `here`.
    fn with(mut self, other: UpdateMetrics, here: &Device) -> UpdateMetrics {
        let sums = other.sums.into_iter();
        add(&mut self.sums, sums.map(|(name, part)| (name, part.to_device(here))).collect());

        let largest = other.logprob_change_max.map(|largest| largest.to_device(here));
        self.logprob_change_max = match (self.logprob_change_max, largest) {
            (Some(a), Some(b)) => Some(a.max_pair(b)),
            (a, b) => a.or(b),
        };
        self
    }

    /// Reads the metrics, and how far the policy is from the old policy; none and 0 if nothing was computed.
    pub(super) fn read(&self) -> Result<(Metrics, LogprobChange), TrainError> {
        let mut metrics = Metrics::default();
        let mut max = 0.0;
        if let Some(largest) = &self.logprob_change_max {
            // One read-back for all numbers.
            let all = self.sums.values().chain([largest]).cloned().collect();
            let mut values = read(Tensor::cat(all, 0))?.into_iter();
            for (name, value) in self.sums.keys().zip(&mut values) {
                metrics.set(*name, value);
            }
            max = values.next().map_or(0.0, Into::into);
        }
        let mean = metrics.get(LOGPROB_CHANGE).unwrap_or(f64::NAN);
        Ok((metrics, LogprobChange { mean, max }))
    }
}

/// Part of an update that one device has computed.
#[derive(Default)]
struct DeviceResult {
    gradients: UpdateGradients,
    metrics: UpdateMetrics,
    token_stats: TokenStats,
}

impl DeviceResult {
    /// Adds the metrics and token statistics of a micro-batch, which consists of the samples of these indices.
    fn add_micro_batch(&mut self, indices: Vec<usize>, result: MicroBatchResult) {
        let MicroBatchResult { metrics, token_stats } = result;
        self.metrics.add(metrics);
        self.token_stats.parts.push((indices, token_stats));
    }

    /// Adds the results of other devices, and brings all of them to the policy's device.
    fn merged<M: PolicyModel>(mut self, policy: &M, mut others: Vec<DeviceResult>) -> DeviceResult {
        let gradients = others.iter_mut().map(|other| std::mem::take(&mut other.gradients.policy));
        self.gradients.policy = self.gradients.policy.merged(policy, gradients.collect());
        let here = policy.device().inner();
        others.into_iter().fold(self, |sum, other| sum.with_metrics(other, &here))
    }

    /// Adds another device's sums for metrics, and brings them `here`.
    fn with_metrics(mut self, other: DeviceResult, here: &Device) -> DeviceResult {
        self.metrics = self.metrics.with(other.metrics, here);
        let parts = other.token_stats.parts.into_iter();
        let moved = parts.map(|(indices, stats)| (indices, stats.map(|it| it.to_device(here))));
        self.token_stats.parts.extend(moved);
        self
    }
}

/// Adds `parts` to the sums of their names.
fn add(sums: &mut BTreeMap<&'static str, Tensor<1>>, parts: MetricSums) {
    for (name, part) in parts {
        let sum = match sums.remove(name) {
            Some(sum) => sum + part,
            None => part,
        };
        sums.insert(name, sum);
    }
}
