use burn::tensor::{Bool, Tensor};

/// What a critic is trained with: half of the squared error, token by token, and of the larger of two
/// where its change is clipped (Schulman et al. 2017, as OpenAI's baselines have it).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueLoss {
    /// How far a value may move from the old one within a step before its gradient is cut.
    pub clip: Option<f64>,
}

/// What the loss sees of one micro-batch; tensors are `[rows, tokens]`.
///
/// What lies behind the mask may be anything, infinities included, and must not leak.
#[derive(Clone, Debug)]
pub struct ValueInput {
    /// The critic's values as it is; the one input that receives gradient.
    pub values: Tensor<2>,
    /// Its values before the step's first update.
    pub old_values: Tensor<2>,
    /// What it should say.
    pub returns: Tensor<2>,
    /// 1 on completion tokens that count, 0 elsewhere.
    pub mask: Tensor<2>,
    /// Weight of each token in the loss, from the whole update, as in the policy's.
    pub weights: Tensor<2>,
    /// Weight of each token in the metrics: mask / counted tokens of the whole update.
    pub shares: Tensor<2>,
}

/// One micro-batch's part of an update's value loss; scalars that add up over the parts.
#[derive(Clone, Debug)]
pub struct ValueOutput {
    /// To be differentiated.
    pub loss: Tensor<1>,
    /// Share of tokens whose gradient was cut; absent where nothing is clipped.
    pub clip_fraction: Option<Tensor<1>>,
}

impl ValueLoss {
    /// Evaluates the micro-batch: ½ max((v − R)², (clip(v, v_old ± ε) − R)²), or ½ (v − R)² without
    /// a clip.
    pub fn evaluate(&self, input: &ValueInput) -> ValueOutput {
        let hidden: Tensor<2, Bool> = input.mask.clone().equal_elem(0.0);
        let loss_of = |values: Tensor<2>| {
            let error = (values - input.returns.clone()).mask_fill(hidden.clone(), 0.0);
            error.square().mul_scalar(0.5)
        };
        let free = loss_of(input.values.clone());
        let Some(clip) = self.clip else {
            return ValueOutput { loss: (free * input.weights.clone()).sum(), clip_fraction: None };
        };
        let old = &input.old_values;
        let bounded = input.values.clone().detach();
        let bounded = bounded.max_pair(old.clone().sub_scalar(clip));
        let held = loss_of(bounded.min_pair(old.clone().add_scalar(clip)));
        let worse = held.clone().greater(free.clone().detach());
        let cut = worse.clone().float() * input.shares.clone();
        ValueOutput {
            loss: (free.mask_where(worse, held) * input.weights.clone()).sum(),
            clip_fraction: Some(cut.sum()),
        }
    }
}
