//! Gradients, as they are made and added up.

use std::{collections::BTreeMap, ops::Range};

use burn::{
    module::{Module, ModuleVisitor, Param, ParamId},
    optim::GradientsParams,
    tensor::{DType, Gradients, IndexingUpdateOp, Int, Tensor, TensorData},
};
use firebrick_core::TokenId;

/// The gradient of an update's parameters, added up over layers, pieces and micro-batches. Sums are f32.
#[derive(Default)]
pub struct GradientSum(GradientsParams);

impl GradientSum {
    /// Takes the gradients of the module's parameters out of those of a backward pass.
    pub fn take<M: Module>(&mut self, module: &M, gradients: &mut Gradients) {
        module.visit(&mut Take { sum: self, gradients });
    }

    /// Adds to the gradient of a parameter.
    pub fn add<const D: usize>(&mut self, parameter: ParamId, gradient: Tensor<D>) {
        let sum = match self.0.remove::<D>(parameter) {
            Some(sum) => sum + gradient,
            None => gradient,
        };
        self.0.register(parameter, sum);
    }

    /// Adds the gradient of a lookup: `gradient`, `[tokens, width]`, to those rows of the table that the
    /// tokens name.
    ///
    /// Equal tokens are summed by a product with a matrix of zeros and ones, so that no device goes through
    /// the tokens one by one and none adds in an order of its own.
    pub fn add_rows(
        &mut self,
        table: &Param<Tensor<2>>,
        tokens: &[TokenId],
        gradient: Tensor<2>,
        numbers: usize,
    ) {
        let device = gradient.device();
        let mut rows: BTreeMap<TokenId, i32> = tokens.iter().map(|&token| (token, 0)).collect();
        for (row, index) in rows.values_mut().zip(0..) {
            *row = index;
        }
        let ints = |values: Vec<i32>| {
            let count = values.len();
            Tensor::<1, Int>::from_data(TensorData::new(values, [count]), &device)
        };
        let all = ints((0..rows.len() as i32).collect()).unsqueeze_dim::<2>(1);
        let at_once = (numbers / rows.len()).max(1);
        let mut sum: Option<Tensor<2>> = None;
        for (tokens, start) in tokens.chunks(at_once).zip((0..).step_by(at_once)) {
            let of_tokens = ints(tokens.iter().map(|token| rows[token]).collect());
            let chosen = all.clone().equal(of_tokens.unsqueeze_dim::<2>(0)).float();
            let part = gradient.clone().slice_dim(0, start..start + tokens.len());
            let part = chosen.matmul(part);
            sum = Some(match sum {
                Some(sum) => sum + part,
                None => part,
            });
        }
        let Some(sum) = sum else { return };
        let places = ints(rows.keys().map(|&token| token as i32).collect());
        let whole = self.matrix(table);
        self.0.register(table.id, whole.select_assign(0, places, sum, IndexingUpdateOp::Add));
    }

    /// Adds to some rows of a matrix's gradient.
    pub fn add_slice(
        &mut self,
        matrix: &Param<Tensor<2>>,
        rows: Range<usize>,
        gradient: Tensor<2>,
    ) {
        let whole = self.matrix(matrix);
        let columns = 0..whole.dims()[1];
        let sum = whole.clone().slice_dim(0, rows.clone()) + gradient;
        self.0.register(matrix.id, whole.slice_assign([rows, columns], sum));
    }

    /// Takes the gradient of a matrix out; zeros where there is none yet.
    fn matrix(&mut self, matrix: &Param<Tensor<2>>) -> Tensor<2> {
        self.0.remove::<2>(matrix.id).unwrap_or_else(|| {
            let device = matrix.val().device().inner();
            Tensor::zeros(matrix.dims(), (&device, DType::F32))
        })
    }

    /// The sum.
    pub fn finish(self) -> GradientsParams {
        self.0
    }
}

struct Take<'a> {
    sum: &'a mut GradientSum,
    gradients: &'a mut Gradients,
}

impl ModuleVisitor for Take<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        // One that is not trained may be without autodiff, of which burn makes a panic.
        if param.is_require_grad()
            && let Some(gradient) = param.val().grad_remove(self.gradients)
        {
            self.sum.add(param.id, gradient);
        }
    }
}

/// How to go back through a part of a forward pass, with all that it kept for that.
pub struct Tape<'a>(Box<Back<'a>>);

/// From the gradient of what came out to that of what went in; the parameters' is added to the sum.
type Back<'a> = dyn FnOnce(Tensor<3>, &mut GradientSum) -> Tensor<3> + 'a;

impl<'a> Tape<'a> {
    /// One that goes back as `back` does.
    pub fn new(back: impl FnOnce(Tensor<3>, &mut GradientSum) -> Tensor<3> + 'a) -> Self {
        Tape(Box::new(back))
    }

    /// From `gradient`, of what came out, to the gradient of what went in. Tensors are without autodiff.
    pub fn back(self, gradient: Tensor<3>, sum: &mut GradientSum) -> Tensor<3> {
        (self.0)(gradient, sum)
    }
}
