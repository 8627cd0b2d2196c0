//! The sum of an update's gradients, over layers, pieces and micro-batches.

use std::{collections::HashMap, ops::Range};

use burn::{
    module::{Module, ModuleVisitor, Param, ParamId},
    optim::GradientsParams,
    tensor::{DType, Gradients, Int, Tensor, distributed::ReduceOperation},
};
use firebrick_core::TokenId;
use firebrick_kernels::{Compute, TokenLogProbs};

/// Sums the gradients of an update over layers, pieces and micro-batches, in f32.
#[derive(Default)]
pub struct GradientSum {
    sum: GradientsParams,
    /// Sums that have parameters' gradients as pieces, by the first of the parameters.
    joined: HashMap<ParamId, (Tensor<2>, Vec<Piece>)>,
}

/// One parameter's gradient as a part of a joined sum.
pub(crate) struct Piece {
    pub(crate) parameter: ParamId,
    /// Rows and columns of the part.
    pub(crate) slice: [Range<usize>; 2],
    /// Factor that makes the gradient from the part.
    pub(crate) scale: f64,
}

impl GradientSum {
    /// Moves the gradients of the module's parameters from a backward pass into the sum.
    pub fn take<M: Module>(&mut self, module: &M, gradients: &mut Gradients) {
        module.visit(&mut Take { sum: self, gradients });
    }

    /// Adds to the gradient of a parameter.
    pub fn add<const D: usize>(&mut self, parameter: ParamId, gradient: Tensor<D>) {
        let sum = match self.sum.remove::<D>(parameter) {
            Some(sum) => sum + gradient,
            None => gradient,
        };
        self.sum.register(parameter, sum);
    }

    /// Adds `x · y` to the gradient of a matrix.
    pub fn add_product(
        &mut self,
        matrix: &Param<Tensor<2>>,
        x: Tensor<2>,
        y: Tensor<2>,
        compute: Compute,
    ) {
        let sum = self.sum.remove::<2>(matrix.id);
        self.sum.register(matrix.id, firebrick_kernels::add_product(sum, x, y, compute));
    }

    /// Adds `x · y` to a sum that has a piece for each of at least one parameter.
    pub(crate) fn add_joined(
        &mut self,
        pieces: Vec<Piece>,
        x: Tensor<2>,
        y: Tensor<2>,
        compute: Compute,
    ) {
        let first = pieces[0].parameter;
        let sum = self.joined.remove(&first).map(|(sum, _)| sum);
        let sum = firebrick_kernels::add_product(sum, x, y, compute);
        self.joined.insert(first, (sum, pieces));
    }

    /// Splits the joined sums into the pieces of their parameters.
    fn split(mut self) -> GradientsParams {
        for (sum, pieces) in std::mem::take(&mut self.joined).into_values() {
            for Piece { parameter, slice, scale } in pieces {
                let [rows, columns] = slice.each_ref().map(Range::len);
                let piece = sum.clone().slice(slice);

                // A view would keep the whole sum, and be copied by each reader.
                let piece = if scale == 1.0 {
                    piece.reshape([rows * columns]).reshape([rows, columns])
                } else {
                    piece.mul_scalar(scale)
                };
                self.add(parameter, piece);
            }
        }
        self.sum
    }

    /// Adds the gradient of a lookup: `gradient`, `[tokens, width]`, is added to the rows of the table that `tokens`
    /// name. It takes memory for about `numbers` more numbers.
    pub fn add_rows(
        &mut self,
        table: &Param<Tensor<2>>,
        tokens: &[TokenId],
        gradient: Tensor<2>,
        numbers: usize,
    ) {
        let sum = firebrick_kernels::add_rows(self.matrix(table), tokens, gradient, numbers);
        self.sum.register(table.id, sum);
    }

    /// Takes the gradient of a matrix out of the sum; zeros if there is none yet.
    fn matrix(&mut self, matrix: &Param<Tensor<2>>) -> Tensor<2> {
        self.sum.remove::<2>(matrix.id).unwrap_or_else(|| {
            let device = matrix.val().device().inner();
            Tensor::zeros(matrix.dims(), (&device, DType::F32))
        })
    }

    /// Adds the sums of copies of the module, each of which is on another device, or on this one.
    ///
    /// This is burn's collective operation: NCCL between NVIDIA's cards, and copies to the first device elsewhere.
    #[must_use]
    pub fn merged<M: Module>(self, module: &M, others: Vec<GradientSum>) -> GradientSum {
        struct Merge(Vec<GradientsParams>);
        impl GradientMap for Merge {
            fn map<const D: usize>(
                &mut self,
                parameter: &Param<Tensor<D>>,
                sum: Option<Tensor<D>>,
            ) -> Option<Tensor<D>> {
                // Taken out of the others here, so that no sum is in memory twice.
                let others = self.0.iter_mut().filter_map(|other| other.remove(parameter.id));
                let mut parts: Vec<Tensor<D>> = sum.into_iter().chain(others).collect();

                // A device without a part of the update has no gradients to add.
                if parts.len() > 1 {
                    parts = Tensor::all_reduce(parts, ReduceOperation::Sum);
                }

                let here = parameter.val().device().inner();
                parts.into_iter().next().map(|sum| sum.to_device(&here))
            }
        }

        let others = others.into_iter().map(GradientSum::split).collect();
        self.mapped(module, &mut Merge(others))
    }

    /// Replaces each parameter's sum by the result of `map`.
    #[must_use]
    pub fn mapped<M: Module>(self, module: &M, map: &mut impl GradientMap) -> GradientSum {
        let mut mapping = Mapping { sum: self.split(), map };
        module.visit(&mut mapping);
        GradientSum { sum: mapping.sum, joined: HashMap::new() }
    }

    /// Returns the sum.
    pub fn finish(self) -> GradientsParams {
        self.split()
    }

    /// Returns the sum for a module's parameters, divided by `divisor`.
    pub fn finish_over<M: Module>(self, module: &M, divisor: f64) -> GradientsParams {
        struct Over(f64);
        impl GradientMap for Over {
            fn map<const D: usize>(
                &mut self,
                _: &Param<Tensor<D>>,
                sum: Option<Tensor<D>>,
            ) -> Option<Tensor<D>> {
                sum.map(|sum| sum.div_scalar(self.0))
            }
        }
        self.mapped(module, &mut Over(divisor)).finish()
    }
}

/// A map of gradients, parameter by parameter.
pub trait GradientMap {
    /// Makes the gradient of `parameter` from `sum`. Either is `None` if there is no gradient.
    fn map<const D: usize>(
        &mut self,
        parameter: &Param<Tensor<D>>,
        sum: Option<Tensor<D>>,
    ) -> Option<Tensor<D>>;
}

struct Mapping<'a, T> {
    sum: GradientsParams,
    map: &'a mut T,
}

impl<T: GradientMap> ModuleVisitor for Mapping<'_, T> {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        let sum = self.sum.remove::<D>(parameter.id);
        if let Some(sum) = self.map.map(parameter, sum) {
            self.sum.register(parameter.id, sum);
        }
    }
}

/// Runs [`firebrick_kernels::head_backward`] for a head that is a parameter. Returns the gradient of `hidden`, and
/// adds the gradient of the head to `sum`, unless the head is frozen.
#[allow(clippy::too_many_arguments, reason = "the inputs of the forward pass and their gradients")]
pub fn head_backward(
    hidden: &Tensor<2>,
    head: &Param<Tensor<2>>,
    labels: &Tensor<1, Int>,
    temperature: f64,
    logits: usize,
    now: TokenLogProbs,
    d_logprobs: &Tensor<1>,
    d_entropy: Option<&Tensor<1>>,
    sum: &mut GradientSum,
) -> Tensor<2> {
    let (d_hidden, d_head) = firebrick_kernels::head_backward(
        hidden,
        &head.val().inner(),
        labels,
        temperature,
        logits,
        now,
        d_logprobs,
        d_entropy,
        head.is_require_grad().then(|| sum.matrix(head)),
    );

    if let Some(d_head) = d_head {
        sum.sum.register(head.id, d_head);
    }
    d_hidden
}

struct Take<'a> {
    sum: &'a mut GradientSum,
    gradients: &'a mut Gradients,
}

impl ModuleVisitor for Take<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        // A parameter that is not trained may be without autodiff, and burn would panic.
        if param.is_require_grad()
            && let Some(gradient) = param.val().grad_remove(self.gradients)
        {
            // The gradient of a rounded parameter is as narrow as the parameter.
            self.sum.add(param.id, gradient.cast(DType::F32));
        }
    }
}

/// Activations that a part of a forward pass saved for its backward pass, and that backward pass as a function.
pub struct SavedActivations<'a>(Box<Backward<'a>>);

/// Maps the gradient of the output to that of the input, and adds the parameters' gradients to the sum.
type Backward<'a> = dyn FnOnce(Tensor<3>, &mut GradientSum) -> Tensor<3> + 'a;

impl<'a> SavedActivations<'a> {
    /// Makes them from a function that computes the backward pass.
    pub fn new(backward: impl FnOnce(Tensor<3>, &mut GradientSum) -> Tensor<3> + 'a) -> Self {
        SavedActivations(Box::new(backward))
    }

    /// Computes the gradient of the input, given `gradient`, that of the output. Tensors are without autodiff.
    pub fn backward(self, gradient: Tensor<3>, sum: &mut GradientSum) -> Tensor<3> {
        (self.0)(gradient, sum)
    }
}
