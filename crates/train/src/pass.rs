//! A forward pass through a policy and the way back, a layer at a time.

use burn::tensor::{DType, Int, Tensor, TensorData};
use firebrick_models::{GradientSum, PolicyModel, Tape, TokenBatch};

use crate::Cut;

/// A forward pass that remembers the way back.
///
/// Autodiff would keep many times as much of a layer as its input. So only the inputs are kept, and the
/// backward pass goes through each layer once more when it comes to it. The last few layers, which it comes
/// to first, may be kept whole.
pub(crate) struct Pass<'a, M: PolicyModel> {
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
    Whole(Tape<'a>),
    Input(Box<Tensor<3>>),
    /// The input, moved to the machine's memory.
    Waiting(TensorData),
}

impl<'a, M: PolicyModel> Pass<'a, M> {
    /// Goes forward. `plain` is the policy without autodiff, and `context` belongs to the batch.
    pub(crate) fn forward(
        policy: &'a M,
        plain: &M,
        batch: &'a TokenBatch,
        context: &'a M::Context,
        cut: &Cut,
    ) -> Self {
        let format = plain.compute().dtype();
        let layers = plain.layers();
        let first_whole = layers.saturating_sub(cut.whole_layers);
        let mut x = plain.embed(batch);
        let mut kept = Vec::with_capacity(layers);
        for index in 0..layers {
            if index < first_whole {
                let input = x.clone().cast(format);
                kept.push(match cut.offload {
                    true => Kept::Waiting(input.into_data()),
                    false => Kept::Input(Box::new(input)),
                });
                x = plain.layer(index, x, context);
            } else {
                let (y, tape) = policy.record(index, x, context);
                kept.push(Kept::Whole(tape));
                x = y;
            }
        }
        Pass { policy, context, batch, kept, output: x, numbers: cut.logits }
    }

    /// Goes back, from the gradient of the last layer's output, and adds the gradient of the parameters to
    /// `sum`.
    pub(crate) fn back(self, gradient: Tensor<3>, sum: &mut GradientSum) {
        let Pass { policy, context, batch, kept, output, numbers } = self;
        drop(output);
        let device = gradient.device();
        let mut gradient = gradient;
        for (index, kept) in kept.into_iter().enumerate().rev() {
            let input = match kept {
                Kept::Whole(tape) => {
                    gradient = tape.back(gradient, sum);
                    continue;
                }
                Kept::Input(input) => *input,
                Kept::Waiting(input) => {
                    Tensor::from_data(input, (&device, DType::from(policy.compute().dtype())))
                }
            };
            gradient = policy.replay(index, input.cast(DType::F32), gradient, context, sum);
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

/// Gives the hidden states at `places`, `[places, hidden]`, of a policy without autodiff.
pub(crate) fn hidden_at<M: PolicyModel>(
    plain: &M,
    batch: &TokenBatch,
    places: &Tensor<1, Int>,
) -> Tensor<2> {
    let context = plain.context(batch);
    let layers = 0..plain.layers();
    let output = layers.fold(plain.embed(batch), |x, index| plain.layer(index, x, &context));
    finished(plain, at(output, places))
}

/// Applies the policy's last norm to `[places, hidden]`.
pub(crate) fn finished<M: PolicyModel>(policy: &M, x: Tensor<2>) -> Tensor<2> {
    let [places, width] = x.dims();
    policy.finish(x.reshape([1, places, width])).reshape([places, width])
}

/// Takes some places of `[rows, tokens, hidden]`.
pub(crate) fn at(x: Tensor<3>, places: &Tensor<1, Int>) -> Tensor<2> {
    let [rows, tokens, width] = x.dims();
    x.reshape([rows * tokens, width]).select(0, places.clone())
}
