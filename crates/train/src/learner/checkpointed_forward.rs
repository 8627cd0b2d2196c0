//! Forward and backward pass through a policy with gradient checkpointing, a layer at a time.

use burn::tensor::{DType, Int, Tensor, TensorData};
use firebrick_models::{GradientSum, PolicyModel, SavedActivations, TokenBatch};

use crate::learner::micro_batch::MicroBatching;

/// Forward pass with gradient checkpointing, and what its backward pass needs.
///
/// Autodiff would keep many times as much of a layer as its input. So only the inputs are kept, and the
/// backward pass recomputes each layer when it comes to it. The activations of the last few layers, which it
/// reaches first, may be kept.
pub(crate) struct CheckpointedForward<'a, M: PolicyModel> {
    policy: &'a M,
    context: &'a M::Context,
    batch: &'a TokenBatch,
    kept: Vec<Kept<'a>>,
    /// The last layer's output, `[rows, tokens, hidden]`.
    pub(crate) output: Tensor<3>,
    /// Approximate limit on the temporary memory of the embedding's gradient, in f32 values.
    max_logits: usize,
}

/// What is kept of a layer.
enum Kept<'a> {
    Activations(SavedActivations<'a>),
    Input(Box<Tensor<3>>),
    /// The input, offloaded to host memory.
    Offloaded(TensorData),
}

impl<'a, M: PolicyModel> CheckpointedForward<'a, M> {
    /// Runs the forward pass. `policy_no_grad` is the policy without autodiff, and `context` belongs to the
    /// batch.
    pub(crate) fn forward(
        policy: &'a M,
        policy_no_grad: &M,
        batch: &'a TokenBatch,
        context: &'a M::Context,
        micro_batching: &MicroBatching,
    ) -> Self {
        let format = policy_no_grad.compute().dtype();
        let layers = policy_no_grad.layers();
        let recomputed = layers.saturating_sub(micro_batching.layers_without_recompute);

        let mut x = policy_no_grad.embed(batch);
        let mut kept = Vec::with_capacity(layers);
        for index in 0..layers {
            if index < recomputed {
                let input = x.clone().cast(format);
                kept.push(if micro_batching.offload {
                    Kept::Offloaded(input.into_data())
                } else {
                    Kept::Input(Box::new(input))
                });
                x = policy_no_grad.layer(index, x, context);
            } else {
                let (y, saved) = policy.forward_saving(index, x, context);
                kept.push(Kept::Activations(saved));
                x = y;
            }
        }

        CheckpointedForward {
            policy,
            context,
            batch,
            kept,
            output: x,
            max_logits: micro_batching.max_logits,
        }
    }

    /// Computes the backward pass from the gradient of the last layer's output, and adds the gradient of the
    /// parameters to `sum`.
    pub(crate) fn backward(self, gradient: Tensor<3>, sum: &mut GradientSum) {
        let CheckpointedForward { policy, context, batch, kept, output, max_logits } = self;
        drop(output);

        // From the last layer to the first. What a layer kept is dropped once its gradient is computed.
        let device = gradient.device();
        let mut gradient = gradient;
        for (index, kept) in kept.into_iter().enumerate().rev() {
            let input = match kept {
                Kept::Activations(saved) => {
                    gradient = saved.backward(gradient, sum);
                    continue;
                }
                Kept::Input(input) => *input,
                Kept::Offloaded(input) => {
                    Tensor::from_data(input, (&device, DType::from(policy.compute().dtype())))
                }
            };

            gradient =
                policy.backward_recompute(index, input.cast(DType::F32), gradient, context, sum);
        }

        // The embedding comes last. A lookup adds its rows by hand; anything else goes through autodiff.
        match policy.lookup() {
            Some(lookup) if lookup.table.is_require_grad() => {
                let [rows, tokens, width] = gradient.dims();
                let gradient = gradient.reshape([rows * tokens, width]).mul_scalar(lookup.scale);
                sum.add_rows(lookup.table, batch.ids(), gradient, max_logits);
            }
            Some(_) => {}
            None => {
                let embedded = policy.embed(batch);
                if embedded.is_tracked() {
                    let vjp = embedded * Tensor::from_inner(gradient);
                    sum.take(policy, &mut vjp.sum().backward());
                }
            }
        }
    }
}

/// Computes the hidden states at `indices`, `[tokens, hidden]`, of a policy without autodiff.
pub(crate) fn hidden_at<M: PolicyModel>(
    policy_no_grad: &M,
    batch: &TokenBatch,
    indices: &Tensor<1, Int>,
) -> Tensor<2> {
    let context = policy_no_grad.context(batch);
    let output = (0..policy_no_grad.layers())
        .fold(policy_no_grad.embed(batch), |x, index| policy_no_grad.layer(index, x, &context));
    final_norm(policy_no_grad, gather_tokens(output, indices))
}

/// Applies the policy's final norm to `[tokens, hidden]`.
pub(crate) fn final_norm<M: PolicyModel>(policy: &M, x: Tensor<2>) -> Tensor<2> {
    let [tokens, width] = x.dims();
    policy.finish(x.reshape([1, tokens, width])).reshape([tokens, width])
}

/// Gathers the tokens at `indices` from `[rows, tokens, hidden]`.
pub(crate) fn gather_tokens(x: Tensor<3>, indices: &Tensor<1, Int>) -> Tensor<2> {
    let [rows, tokens, width] = x.dims();
    x.reshape([rows * tokens, width]).select(0, indices.clone())
}
