//! The loss of a critic, clipped or not.

use burn::tensor::{Bool, Tensor};
use firebrick_kernels::sum_all;

/// The loss of a critic: half of the squared error, token by token. If the change of a value is clipped, it
/// is the larger of two such errors (Schulman et al. 2017, as in OpenAI's baselines).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueLoss {
    /// The distance from the old value, within a step, beyond which the gradient of a value is cut; `None`
    /// cuts nothing.
    pub clip: Option<f64>,
}

/// The numbers of one micro-batch that the loss sees; tensors are `[rows, tokens]`.
///
/// Any numbers may stand behind the mask, infinities included, and must not leak.
#[derive(Clone, Debug)]
pub struct ValueInput {
    /// The critic's present values. Only this input receives gradient.
    pub values: Tensor<2>,
    /// The critic's values before the step's first update.
    pub old_values: Tensor<2>,
    /// The values that the critic should give.
    pub returns: Tensor<2>,
    /// 1 for completion tokens that count, 0 elsewhere.
    pub mask: Tensor<2>,
    /// The weight of each token in the loss, from the whole update, as in the policy's loss.
    pub weights: Tensor<2>,
    /// The weight of each token in the metrics: mask / counted tokens of the whole update.
    pub shares: Tensor<2>,
}

/// One micro-batch's part of an update's value loss: scalars that add up over the parts.
#[derive(Clone, Debug)]
pub struct ValueOutput {
    /// The loss to differentiate.
    pub loss: Tensor<1>,
    /// The share of tokens whose gradient was cut; absent if nothing is clipped.
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
        let free = loss_of(input.values.clone());
        let Some(clip) = self.clip else {
            return ValueOutput {
                loss: sum_all(free * input.weights.clone()),
                clip_fraction: None,
            };
        };
        let old = &input.old_values;
        let bounded = input.values.clone().detach();
        let bounded = bounded.max_pair(old.clone().sub_scalar(clip));
        let held = loss_of(bounded.min_pair(old.clone().add_scalar(clip)));
        let worse = held.clone().greater(free.clone().detach());
        let cut = worse.clone().float() * input.shares.clone();
        ValueOutput {
            loss: sum_all(free.mask_where(worse, held) * input.weights.clone()),
            clip_fraction: Some(sum_all(cut)),
        }
    }
}
