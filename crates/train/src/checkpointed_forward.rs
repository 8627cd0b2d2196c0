//! The forward and backward pass through a policy with activation checkpointing, a layer at a time.

use burn::tensor::{DType, Int, Tensor, TensorData};
use firebrick_models::{GradientSum, PolicyModel, SavedActivations, TokenBatch};

use crate::MicroBatching;

/// A forward pass with activation checkpointing, and what its backward pass needs.
///
/// Autodiff would keep many times as much of a layer as its input. So only the inputs are kept, and the backward pass
/// recomputes each layer when it comes to it. The last few layers, which it comes to first, may be kept whole.
pub(crate) struct CheckpointedForward<'a, M: PolicyModel> {
    policy: &'a M,
    context: &'a M::Context,
    batch: &'a TokenBatch,
    kept: Vec<Kept<'a>>,
    /// The last layer's output, `[rows, tokens, hidden]`.
    pub(crate) output: Tensor<3>,
    numbers: usize,
}

/// The part of a layer that is kept.
enum Kept<'a> {
    Whole(SavedActivations<'a>),
    Input(Box<Tensor<3>>),
    /// The input, moved to the machine's memory.
    Waiting(TensorData),
}

impl<'a, M: PolicyModel> CheckpointedForward<'a, M> {
    /// Goes forward. `plain` is the policy without autodiff, and `context` belongs to the batch.
    pub(crate) fn forward(
        policy: &'a M,
        plain: &M,
        batch: &'a TokenBatch,
        context: &'a M::Context,
        micro_batching: &MicroBatching,
    ) -> Self {
        let format = plain.compute().dtype();
        let layers = plain.layers();
        let first_whole = layers.saturating_sub(micro_batching.whole_layers);
        let mut x = plain.embed(batch);
        let mut kept = Vec::with_capacity(layers);
        for index in 0..layers {
            if index < first_whole {
                let input = x.clone().cast(format);
                kept.push(match micro_batching.offload {
                    true => Kept::Waiting(input.into_data()),
                    false => Kept::Input(Box::new(input)),
                });
                x = plain.layer(index, x, context);
            } else {
                let (y, saved) = policy.forward_saving(index, x, context);
                kept.push(Kept::Whole(saved));
                x = y;
            }
        }
        CheckpointedForward {
            policy,
            context,
            batch,
            kept,
            output: x,
            numbers: micro_batching.logits,
        }
    }

    /// Computes the backward pass, from the gradient of the last layer's output, and adds the gradient of the
    /// parameters to `sum`.
    pub(crate) fn backward(self, gradient: Tensor<3>, sum: &mut GradientSum) {
        let CheckpointedForward { policy, context, batch, kept, output, numbers } = self;
        drop(output);
        let device = gradient.device();
        let mut gradient = gradient;
        for (index, kept) in kept.into_iter().enumerate().rev() {
            let input = match kept {
                Kept::Whole(saved) => {
                    gradient = saved.backward(gradient, sum);
                    continue;
                }
                Kept::Input(input) => *input,
                Kept::Waiting(input) => {
                    Tensor::from_data(input, (&device, DType::from(policy.compute().dtype())))
                }
            };
            gradient =
                policy.backward_recompute(index, input.cast(DType::F32), gradient, context, sum);
        }
        match policy.lookup() {
            Some(lookup) if lookup.table.is_require_grad() => {
                let [rows, tokens, width] = gradient.dims();
                let gradient = gradient.reshape([rows * tokens, width]).mul_scalar(lookup.scale);
                sum.add_rows(lookup.table, batch.ids(), gradient, numbers);
            }
            Some(_) => {}
            None => {
                let embedded = policy.embed(batch);
                if embedded.is_tracked() {
                    let mut all = (embedded * Tensor::from_inner(gradient)).sum().backward();
                    sum.take(policy, &mut all);
                }
            }
        }
    }
}

/// Gives the hidden states at `indices`, `[tokens, hidden]`, of a policy without autodiff.
pub(crate) fn hidden_at<M: PolicyModel>(
    plain: &M,
    batch: &TokenBatch,
    indices: &Tensor<1, Int>,
) -> Tensor<2> {
    let context = plain.context(batch);
    let layers = 0..plain.layers();
    let output = layers.fold(plain.embed(batch), |x, index| plain.layer(index, x, &context));
    finished(plain, at(output, indices))
}

/// Applies the policy's last norm to `[tokens, hidden]`.
pub(crate) fn finished<M: PolicyModel>(policy: &M, x: Tensor<2>) -> Tensor<2> {
    let [tokens, width] = x.dims();
    policy.finish(x.reshape([1, tokens, width])).reshape([tokens, width])
}

/// Takes some tokens of `[rows, tokens, hidden]`.
pub(crate) fn at(x: Tensor<3>, indices: &Tensor<1, Int>) -> Tensor<2> {
    let [rows, tokens, width] = x.dims();
    x.reshape([rows * tokens, width]).select(0, indices.clone())
}
