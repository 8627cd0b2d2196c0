use burn::{
    module::{Module, Param},
    tensor::{DType, Device, Tensor, TensorData},
};
use firebrick_models::PolicyModel;

/// A number for each hidden state: what the rewards from there on are expected to be.
#[derive(Module, Debug)]
pub struct ValueHead {
    /// `[hidden, 1]`.
    pub weight: Param<Tensor<2>>,
    /// `[1]`.
    pub bias: Param<Tensor<1>>,
}

impl ValueHead {
    /// A head that says 0 of everything. The first advantages are then the rewards themselves, where a
    /// random head would add noise to them.
    pub fn new(hidden: usize, device: &Device) -> Self {
        ValueHead {
            weight: Param::from_data(TensorData::zeros::<f32, _>([hidden, 1]), device),
            bias: Param::from_data(TensorData::zeros::<f32, _>([1]), device),
        }
    }

    /// `[tokens, hidden]` to `[tokens]`; in f32, whatever format the hidden states have.
    pub fn values(&self, hidden: Tensor<2>) -> Tensor<1> {
        // Not a product of matrices: under fusion burn 0.22 gives wrong numbers for one whose result has
        // a single column (issue 5122).
        let weight = self.weight.val().transpose();
        (hidden.cast(DType::F32) * weight).sum_dim(1).squeeze_dim::<1>(1) + self.bias.val()
    }
}

/// A value head, and the decoder that it reads where that is not the policy.
#[derive(Module, Debug)]
pub struct ValueModel<M: Module> {
    /// Gives the hidden states; the policy does where there is none.
    pub trunk: Option<M>,
    /// Gives the values.
    pub head: ValueHead,
}

impl<M: PolicyModel> ValueModel<M> {
    /// A new head on the hidden states of `policy`, gradients to follow.
    pub fn on(policy: &M) -> Self {
        let [_, hidden] = policy.head().dims();
        ValueModel { trunk: None, head: ValueHead::new(hidden, &policy.device()) }
    }

    /// A new head on a model of its own, which begins with the weights of `trunk`. They take no memory
    /// until one of the two is moved.
    pub fn beside(trunk: M) -> Self {
        let ValueModel { head, .. } = ValueModel::on(&trunk);
        // Leaves of its own: the gradients of two losses meet at shared ones.
        let device = trunk.device();
        ValueModel { trunk: Some(trunk.fork(&device)), head }
    }
}
