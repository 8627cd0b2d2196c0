//! The divergence of a policy from its teachers as a loss: what an update asks of teachers, and what it makes of it.

use burn::tensor::{IndexingUpdateOp, Int, Tensor};
use firebrick_kernels::{HeadStates, KlDirection, head_kl, sum_all};
use firebrick_models::{GradientSum, LmHead, PolicyModel};

use crate::{
    algorithm::loss::{TEACHER_LOSS, TOTAL_LOSS},
    error::TrainError,
    learner::{
        critic::MetricSums,
        micro_batch::{MicroBatch, MicroBatching},
    },
    sample::Sample,
};

/// Metric of KL(policy ‖ teacher).
pub(super) const REVERSE_KL: &str = "teacher/reverse_kl";

/// Teachers whose whole distributions an update learns from.
pub trait TeacherDistributions: Sync {
    /// Computes what the teachers think of the tokens that the policy wrote in these samples.
    ///
    /// # Errors
    /// When a teacher fails.
    fn states(
        &self,
        micro_batching: &MicroBatching,
        samples: &[&Sample],
    ) -> Result<Vec<TeacherStates>, TrainError>;
}

/// What one teacher thinks of its tokens of a micro-batch.
pub struct TeacherStates {
    /// The divergence that is the loss.
    pub direction: KlDirection,
    /// Weight of the divergence.
    pub weight: f64,
    /// True if there are no advantages beside the divergence, so that the policy loss has no gradient.
    pub alone: bool,
    /// `[tokens]`: indices of these tokens among those that the policy wrote in the micro-batch; `None` if they are all.
    pub tokens: Option<Tensor<1, Int>>,
    /// The teacher's hidden states of these tokens.
    pub states: HeadStates,
}

/// Settings of an update that its divergences need.
pub(super) struct DivergenceSettings {
    pub(super) temperature: f64,
    pub(super) loss_scale: f64,
    pub(super) max_logits: usize,
}

impl TeacherStates {
    /// Adds the gradient of the divergence of `policy` to `sum` and to `d_hidden`, the gradient with respect to `hidden`,
    /// the policy's hidden states of a micro-batch, `[count, hidden]`. Returns parts of the update's metrics.
    pub(super) fn backward<M: PolicyModel>(
        self,
        settings: &DivergenceSettings,
        policy: &M,
        hidden: &Tensor<2>,
        batch: &MicroBatch,
        d_hidden: &mut Tensor<2>,
        sum: &mut GradientSum,
    ) -> MetricSums {
        let TeacherStates { direction, weight, tokens, states, .. } = self;
        let own = |numbers: Tensor<1>| match &tokens {
            Some(tokens) => numbers.select(0, tokens.clone()),
            None => numbers,
        };
        let weights = own(batch.by_token(batch.loss_weights.clone())).mul_scalar(weight);
        let shares = own(batch.by_token(batch.metric_weights.clone()));
        let hidden = match &tokens {
            Some(tokens) => hidden.clone().select(0, tokens.clone()),
            None => hidden.clone(),
        };

        let head = policy.head();
        let lm_head = LmHead { matrix: head.val().inner(), cap: policy.logit_cap() };
        let kl = head_kl(
            direction,
            &HeadStates { hidden, head: lm_head },
            &states,
            &weights.clone().mul_scalar(settings.loss_scale),
            settings.temperature,
            settings.max_logits,
            policy.compute(),
            head.is_require_grad(),
        );

        let d_all = d_hidden.clone();
        *d_hidden = match tokens {
            Some(tokens) => d_all.select_assign(0, tokens, kl.d_hidden, IndexingUpdateOp::Add),
            None => d_all + kl.d_hidden,
        };
        if let Some(d_head) = kl.d_head {
            sum.add(head.id, d_head);
        }

        let loss = match direction {
            KlDirection::Forward => kl.forward.clone(),
            KlDirection::Reverse => kl.reverse.clone(),
        };
        let loss = sum_all(loss * weights);
        vec![
            (TOTAL_LOSS, loss.clone()),
            (TEACHER_LOSS, loss),
            ("teacher/forward_kl", sum_all(kl.forward * shares.clone())),
            (REVERSE_KL, sum_all(kl.reverse * shares)),
        ]
    }
}
