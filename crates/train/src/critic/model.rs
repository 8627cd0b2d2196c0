//! The critic's model: a value head on the policy, or on a decoder of its own.

use burn::{
    module::{Module, Param},
    tensor::{DType, Device, Tensor, TensorData},
};
use firebrick_models::PolicyModel;

/// A head that gives one number for each hidden state: the expected rewards from there on.
#[derive(Module, Debug)]
pub struct ValueHead {
    /// The weight, `[hidden, 1]`.
    pub weight: Param<Tensor<2>>,
    /// The bias, `[1]`.
    pub bias: Param<Tensor<1>>,
}

impl ValueHead {
    /// Makes a head that gives 0 for everything. The first advantages are then the rewards themselves; a
    /// random head would add noise to them.
    pub fn new(hidden: usize, device: &Device) -> Self {
        ValueHead {
            weight: Param::from_data(TensorData::zeros::<f32, _>([hidden, 1]), device),
            bias: Param::from_data(TensorData::zeros::<f32, _>([1]), device),
        }
    }

    /// Gives the values, `[tokens, hidden]` to `[tokens]`; in f32, whatever format the hidden states have.
    pub fn values(&self, hidden: Tensor<2>) -> Tensor<1> {
        // This is not a product of matrices, because under fusion burn 0.22 gives wrong numbers for a product
        // with a single column (issue 5122).
        let weight = self.weight.val().transpose();
        (hidden.cast(DType::F32) * weight).sum_dim(1).squeeze_dim::<1>(1) + self.bias.val()
    }
}

/// A value head, and the decoder that it reads if that is not the policy.
#[derive(Module, Debug)]
pub struct ValueModel<M: Module> {
    /// The decoder that gives the hidden states; `None` if the policy gives them.
    pub trunk: Option<M>,
    /// The head that gives the values.
    pub head: ValueHead,
}

impl<M: PolicyModel> ValueModel<M> {
    /// Makes a new, trainable head on the hidden states of `policy`.
    pub fn on(policy: &M) -> Self {
        let [_, hidden] = policy.head().dims();
        ValueModel { trunk: None, head: ValueHead::new(hidden, &policy.device()) }
    }

    /// Makes a new head on a model of its own, which begins with the weights of `trunk`. The weights take no
    /// memory until one of the two models is moved.
    pub fn beside(trunk: M) -> Self {
        let ValueModel { head, .. } = ValueModel::on(&trunk);
        // The trunk gets leaves of its own, because the gradients of two losses would meet at shared leaves.
        let device = trunk.device();
        ValueModel { trunk: Some(trunk.fork(&device)), head }
    }
}
