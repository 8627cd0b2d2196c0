//! RMSNorm, alone or of a sum, forward and backward.

use burn::tensor::Tensor;

use crate::{
    Compute, cpu,
    flex::{numbers, tensor},
};

/// How an RMSNorm computes, apart from its weight: `x / sqrt(mean(x²) + epsilon) · (weight + offset)` over the last
/// dimension.
#[derive(Clone, Copy, Debug)]
pub struct Norm {
    /// Added to the mean square.
    pub epsilon: f64,
    /// Added to the weight.
    pub offset: f64,
}

impl Norm {
    /// Computes the norm of `x`, `[…, width]`, rounded to the matmul precision.
    pub fn apply<const D: usize>(
        self,
        x: Tensor<D>,
        weight: Tensor<1>,
        compute: Compute,
    ) -> Tensor<D> {
        on_gpu!(norm::apply(&x, &weight, self, compute));
        let (Some(numbers_of_x), Some(numbers_of_weight)) = (numbers(&x), numbers(&weight)) else {
            return self.plain(x, weight).cast(compute.dtype());
        };
        let y = cpu::norm::apply(&numbers_of_x, &numbers_of_weight, self.rule());
        tensor(y, x.dims()).cast(compute.dtype())
    }

    /// Adds a branch to a residual stream. Returns the sum and its norm, which is rounded to the matmul precision.
    pub fn of_sum<const D: usize>(
        self,
        x: Tensor<D>,
        branch: Tensor<D>,
        weight: Tensor<1>,
        compute: Compute,
    ) -> [Tensor<D>; 2] {
        on_gpu!(norm::of_sum([&x, &branch], &weight, self, compute));

        let all = (numbers(&x), numbers(&branch), numbers(&weight));
        let [sum, y] = match all {
            (Some(of_x), Some(of_branch), Some(of_weight)) => {
                cpu::norm::of_sum(&of_x, &of_branch, &of_weight, self.rule())
                    .map(|numbers| tensor(numbers, x.dims()))
            }
            _ => self.plain_of_sum(x, branch, weight),
        };
        [sum, y.cast(compute.dtype())]
    }

    /// Computes the gradients of `x` and of the weight, given that of the result. `d_residual`, the gradient that
    /// reaches `x` by another path, is added to the first. With r = 1 / sqrt(mean(x²) + ε) and
    /// g = d_y · (weight + offset), ∂x = r · (g − x · r² · mean(g · x)).
    pub fn backward<const D: usize>(
        self,
        x: Tensor<D>,
        weight: Tensor<1>,
        d_y: Tensor<D>,
        d_residual: Option<Tensor<D>>,
    ) -> (Tensor<D>, Tensor<1>) {
        on_gpu!(norm::backward([&x, &d_y], &weight, self, d_residual.as_ref()));

        let all = (numbers(&x), numbers(&weight), numbers(&d_y));
        let (Some(numbers_of_x), Some(numbers_of_weight), Some(numbers_of_d)) = all else {
            return self.plain_backward(x, weight, d_y, d_residual);
        };
        let d_residual =
            d_residual.map(|d_residual| numbers(&d_residual).expect("all are on one device"));

        let (d_x, d_weight) = cpu::norm::backward(
            &numbers_of_x,
            &numbers_of_weight,
            self.rule(),
            &numbers_of_d,
            d_residual.as_deref(),
        );
        (tensor(d_x, x.dims()), tensor(d_weight, weight.dims()))
    }

    /// Computes the first result of [`Norm::backward`] alone, for a weight that is not trained.
    pub fn backward_input<const D: usize>(
        self,
        x: Tensor<D>,
        weight: Tensor<1>,
        d_y: Tensor<D>,
        d_residual: Option<Tensor<D>>,
    ) -> Tensor<D> {
        on_gpu!(norm::backward_input([&x, &d_y], &weight, self, d_residual.as_ref()));
        self.backward(x, weight, d_y, d_residual).0
    }

    pub(crate) fn plain<const D: usize>(self, x: Tensor<D>, weight: Tensor<1>) -> Tensor<D> {
        let scale = self.scale(&x);
        x * scale * self.factor(weight).unsqueeze()
    }

    pub(crate) fn plain_of_sum<const D: usize>(
        self,
        x: Tensor<D>,
        branch: Tensor<D>,
        weight: Tensor<1>,
    ) -> [Tensor<D>; 2] {
        let sum = x + branch;
        [sum.clone(), self.plain(sum, weight)]
    }

    pub(crate) fn plain_backward<const D: usize>(
        self,
        x: Tensor<D>,
        weight: Tensor<1>,
        d_y: Tensor<D>,
        d_residual: Option<Tensor<D>>,
    ) -> (Tensor<D>, Tensor<1>) {
        let scale = self.scale(&x);
        let scaled = x * scale.clone();

        let width = scaled.dims()[D - 1];
        let rows = scaled.shape().num_elements() / width;
        let d_weight = (d_y.clone() * scaled.clone()).reshape([rows, width]).sum_dim(0);

        let d_scaled = d_y * self.factor(weight).unsqueeze();
        // With x·r = `scaled`, the formula of `backward` is r · (g − scaled · mean(g · scaled)).
        let mean = (d_scaled.clone() * scaled.clone()).mean_dim(D - 1);
        let d_x = (d_scaled - scaled * mean) * scale;
        let d_x = match d_residual {
            Some(d_residual) => d_x + d_residual,
            None => d_x,
        };
        (d_x, d_weight.reshape([width]))
    }

    /// Computes 1 / sqrt(mean(x²) + ε), `[…, 1]`.
    fn scale<const D: usize>(self, x: &Tensor<D>) -> Tensor<D> {
        x.clone().square().mean_dim(D - 1).add_scalar(self.epsilon).sqrt().recip()
    }

    fn factor(self, weight: Tensor<1>) -> Tensor<1> {
        if self.offset == 0.0 { weight } else { weight.add_scalar(self.offset) }
    }

    pub(crate) fn rule(self) -> cpu::norm::Rule {
        [self.epsilon as f32, self.offset as f32]
    }
}
