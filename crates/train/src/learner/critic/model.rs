//! Model of a critic: a value head on the policy, or on a separate decoder.

use burn::{
    module::{Module, Param},
    tensor::{DType, Device, Tensor, TensorData},
};
use firebrick_models::PolicyModel;

/// Predicts one number for each hidden state: the expected rewards after it.
#[derive(Module, Debug)]
pub struct ValueHead {
    /// Weight, `[hidden, 1]`.
    pub weight: Param<Tensor<2>>,
    /// Bias, `[1]`.
    pub bias: Param<Tensor<1>>,
}

impl ValueHead {
    /// Makes a head that returns 0 for everything, so that the first advantages are the rewards themselves; a
    /// random head would add noise to them.
    pub fn new(hidden: usize, device: &Device) -> Self {
        ValueHead {
            weight: Param::from_data(TensorData::zeros::<f32, _>([hidden, 1]), device),
            bias: Param::from_data(TensorData::zeros::<f32, _>([1]), device),
        }
    }

    /// Computes the values, `[tokens, hidden]` to `[tokens]`; in f32, whatever format the hidden states have.
    pub fn values(&self, hidden: Tensor<2>) -> Tensor<1> {
        // Not a matmul: under fusion, burn 0.22 returns wrong numbers for a matmul with a single column (issue
        // 5122).
        let weight = self.weight.val().transpose();
        (hidden.cast(DType::F32) * weight).sum_dim(1).squeeze_dim::<1>(1) + self.bias.val()
    }
}

/// A value head, and the decoder that it reads if that is not the policy.
#[derive(Module, Debug)]
pub struct ValueModel<M: Module> {
    /// Decoder that computes the hidden states; `None` if the policy does.
    pub trunk: Option<M>,
    /// Head that computes the values.
    pub head: ValueHead,
}

impl<M: PolicyModel> ValueModel<M> {
    /// Makes a new, trainable head on the hidden states of `policy`.
    pub fn on(policy: &M) -> Self {
        let [_, hidden] = policy.head().dims();
        ValueModel { trunk: None, head: ValueHead::new(hidden, &policy.device()) }
    }

    /// Makes a new head on a separate model, which begins with the weights of `trunk`. They take no memory
    /// until one of the two models is trained.
    pub fn beside(trunk: M) -> Self {
        let ValueModel { head, .. } = ValueModel::on(&trunk);
        // The trunk gets its own leaves, because the gradients of two losses would meet at shared leaves.
        let device = trunk.device();
        ValueModel { trunk: Some(trunk.fork(&device)), head }
    }
}
