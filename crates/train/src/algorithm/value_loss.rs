//! Loss of a critic, clipped or not.

use burn::tensor::{Bool, Tensor};
use firebrick_kernels::sum_all;

/// Half of the squared error of a critic, token by token. If the change of a value is clipped, the loss is
/// the larger of two such errors (Schulman et al. 2017, as in OpenAI's baselines).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueLoss {
    /// Distance from the old value, within a step, beyond which the gradient of a value is cut; `None` cuts
    /// nothing.
    pub clip: Option<f64>,
}

/// What the loss sees of one micro-batch; tensors are `[rows, tokens]`.
///
/// Where the mask is 0, numbers may have any value, infinities included, and must not leak.
#[derive(Clone, Debug)]
pub struct ValueInput {
    /// The critic's current values. Only they receive gradient.
    pub values: Tensor<2>,
    /// The critic's values before the step's first update.
    pub old_values: Tensor<2>,
    /// What the critic should predict.
    pub returns: Tensor<2>,
    /// 1 for completion tokens that count, 0 elsewhere.
    pub mask: Tensor<2>,
    /// The weight of each token in the loss, from the whole update, as in the policy's loss.
    pub loss_weights: Tensor<2>,
    /// The weight of each token in the metrics: mask / counted tokens of the whole update.
    pub metric_weights: Tensor<2>,
}

/// Part of an update's value loss from one micro-batch: scalars that add up over the parts.
#[derive(Clone, Debug)]
pub struct ValueOutput {
    /// The loss to differentiate.
    pub loss: Tensor<1>,
    /// The fraction of tokens whose gradient was cut; absent if nothing is clipped.
    pub clip_fraction: Option<Tensor<1>>,
}

impl ValueLoss {
    /// Evaluates the micro-batch: ½ max((v − R)², (clip(v, v_old ± ε) − R)²), or ½ (v − R)² without a clip.
    pub fn evaluate(&self, input: &ValueInput) -> ValueOutput {
        let hidden: Tensor<2, Bool> = input.mask.clone().equal_elem(0.0);
        let loss_of = |values: Tensor<2>| {
            let error = (values - input.returns.clone()).mask_fill(hidden.clone(), 0.0);
            error.square().mul_scalar(0.5)
        };

        let unclipped = loss_of(input.values.clone());
        let Some(clip) = self.clip else {
            return ValueOutput {
                loss: sum_all(unclipped * input.loss_weights.clone()),
                clip_fraction: None,
            };
        };

        // Detached, because where this branch is the larger one, the value is outside its bounds.
        let old = &input.old_values;
        let bounded = input.values.clone().detach();
        let bounded = bounded.max_pair(old.clone().sub_scalar(clip));
        let clipped = loss_of(bounded.min_pair(old.clone().add_scalar(clip)));

        let worse = clipped.clone().greater(unclipped.clone().detach());
        let cut = worse.clone().float() * input.metric_weights.clone();

        ValueOutput {
            loss: sum_all(unclipped.mask_where(worse, clipped) * input.loss_weights.clone()),
            clip_fraction: Some(sum_all(cut)),
        }
    }
}
