//! What recurrent layers have in common: they go through a text token by token, and remember a state of one size,
//! however long the text is.

use burn::{
    module::Module,
    tensor::{DType, Tensor},
};

use crate::{gradient::GradientSum, policy::arrange_rows, projection::Projection};

/// The part of a layer that is there instead of attention.
pub(crate) trait Recurrence {
    /// Returns the first projection.
    fn input(&self) -> &Projection;

    /// Returns the last projection.
    fn output(&self) -> &Projection;

    /// Runs over `rows` texts of equal length, which continue `before`. Takes the outputs of the first projection,
    /// `[tokens, outputs]`. Returns the inputs of the last one, and the state after the texts.
    fn forward(
        &self,
        projected: Tensor<2>,
        rows: usize,
        before: Option<RecurrentState>,
    ) -> (Tensor<2>, RecurrentState);

    /// Computes the gradient of `projected`, given that of the output of [`Recurrence::forward`] from an empty state.
    /// The gradients of the parameters between the projections are added to `sum`.
    fn backward(
        &self,
        projected: Tensor<2>,
        rows: usize,
        d_output: Tensor<2>,
        sum: &mut GradientSum,
    ) -> Tensor<2>;
}

/// A layer's state of the rows that are being decoded.
#[derive(Clone, Debug)]
pub(crate) struct RecurrentState {
    /// What a convolution read of the newest tokens and still needs, `[rows, kernel - 1, channels]`.
    pub(crate) recent: Tensor<3>,
    /// A GatedDeltaNet's matrix for each head, `[rows, value_heads, key_dim, value_dim]`.
    pub(crate) memory: Option<Tensor<4>>,
}

impl RecurrentState {
    /// Runs [`DecodeCache::arrange`](crate::DecodeCache::arrange) for this state.
    pub(crate) fn arrange(self, keep: &[usize], newcomers: Option<(&Self, &[usize])>) -> Self {
        let recent = newcomers.map(|(state, join)| (state.recent.clone(), join));
        let memory = self.memory.map(|memory| {
            let newcomers = newcomers.and_then(|(state, join)| Some((state.memory.clone()?, join)));
            arrange_rows(memory, keep, newcomers)
        });
        RecurrentState { recent: arrange_rows(self.recent, keep, recent), memory }
    }
}

/// Runs [`Recurrence::backward`] by autodiff, which keeps every value of the forward pass until it is done.
pub(crate) fn backward_by_autodiff<M: Module + Recurrence>(
    module: &M,
    projected: Tensor<2>,
    rows: usize,
    d_output: Tensor<2>,
    sum: &mut GradientSum,
) -> Tensor<2> {
    let projected = Tensor::from_inner(projected.cast(DType::F32)).require_grad();
    let (output, _) = module.forward(projected.clone(), rows, None);
    let mut gradients = (output * Tensor::from_inner(d_output)).sum().backward();
    sum.take(module, &mut gradients);
    projected.grad_remove(&mut gradients).unwrap_or_else(|| projected.inner().zeros_like())
}

/// Convolves each channel of `x`, `[rows, tokens, channels]`, causally, with `weights`, `[channels, 1, kernel]`. The
/// texts continue `recent`. Also returns the inputs that the next token still needs.
pub(crate) fn convolved(
    x: Tensor<3>,
    weights: Tensor<3>,
    recent: Option<Tensor<3>>,
) -> (Tensor<3>, Tensor<3>) {
    let [rows, tokens, channels] = x.dims();
    let kernel = weights.dims()[2];
    let recent = recent
        .unwrap_or_else(|| Tensor::zeros([rows, kernel - 1, channels], (&x.device(), DType::F32)));

    let all = Tensor::cat(vec![recent, x], 1);
    let weights = weights.cast(DType::F32);
    let of = |offset: usize| {
        let weight = weights.clone().narrow(2, offset, 1).reshape([1, 1, channels]);
        all.clone().narrow(1, offset, tokens) * weight
    };

    let sum = (1..kernel).map(of).fold(of(0), |sum, more| sum + more);
    (sum, all.narrow(1, tokens, kernel - 1))
}
