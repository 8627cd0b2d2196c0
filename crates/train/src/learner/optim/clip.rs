//! What optimizers share: the step with clipped gradients, and checks and fingerprints of all weights.

use burn::{
    module::{Module, ModuleMapper, ModuleVisitor, Param},
    optim::GradientsParams,
    tensor::{DType, Tensor},
};

use firebrick_core::Seed;

use super::read;
use crate::error::TrainError;

/// The outcome of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepOutcome {
    /// The global norm before clipping; NaN if it is not known, and not finite if the step was skipped.
    pub grad_norm: f64,
    /// The factor that the gradients were multiplied by; 0 if the step was skipped.
    pub grad_scale: f64,
    /// True if a gradient was infinite or not a number; weights and state are then as before.
    pub skipped: bool,
}

/// One parameter of a step, without autodiff.
#[derive(Debug)]
#[non_exhaustive]
pub struct ParameterStep<'a> {
    /// The parameter's path in the module, such as `layers.0.attention.qkv.weight`.
    pub path: &'a str,
    /// The parameter's shape.
    pub shape: &'a [usize],
    /// The parameter's values, flat.
    pub values: Tensor<1>,
    /// The parameter's gradient, flat and clipped.
    pub gradient: Tensor<1>,
}

/// Scales the gradients to a global norm of at most `max_grad_norm` (infinity leaves them as they are). Then
/// replaces each parameter that has a gradient by the values that `rule` returns, in the order of the
/// module's fields. If gradients are not finite, the whole step is skipped, and `rule` is not called.
///
/// # Errors
/// When the device does not return the norm; `rule` has not been called then.
///
/// # Panics
/// When `rule` does not return as many values as the parameter has.
pub fn clipped_step<M: Module>(
    module: M,
    gradients: GradientsParams,
    max_grad_norm: f64,
    rule: impl FnMut(ParameterStep<'_>) -> Tensor<1>,
) -> Result<(M, StepOutcome), TrainError> {
    let grad_norm = global_norm(&module, &gradients)?;
    if !grad_norm.is_finite() {
        return Ok((module, StepOutcome { grad_norm, grad_scale: 0.0, skipped: true }));
    }

    // The norm may be 0, and a factor never makes gradients larger.
    let grad_scale = (max_grad_norm / (grad_norm + 1e-6)).min(1.0);
    let module = module.map(&mut Walk { rule, gradients, grad_scale, path: Vec::new() });
    Ok((module, StepOutcome { grad_norm, grad_scale, skipped: false }))
}

/// Computes √(Σ g²) over all parameters together. Each tensor is scaled by its largest entry first: the
/// square of a gradient of 1e20 is beyond f32, and would skip a step that clipping can save.
///
/// # Errors
/// When the device does not return the norm.
pub fn global_norm<M: Module>(module: &M, gradients: &GradientsParams) -> Result<f64, TrainError> {
    struct Flat<'a> {
        gradients: &'a GradientsParams,
        flat: Vec<Tensor<1>>,
    }
    impl ModuleVisitor for Flat<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(gradient) = self.gradients.get::<D>(param.id) {
                let count = gradient.shape().num_elements();
                self.flat.push(gradient.reshape([count]));
            }
        }
    }

    let mut all = Flat { gradients, flat: Vec::new() };
    module.visit(&mut all);
    if all.flat.is_empty() {
        return Ok(0.0);
    }

    // One read for all tensors, because each read waits for the device.
    let values = read(firebrick_kernels::scaled_squares(all.flat))?;
    let squares = values.as_chunks::<2>().0.iter().map(|&[scale, sum]| {
        let scale = f64::from(scale);
        scale * scale * f64::from(sum)
    });
    Ok(squares.sum::<f64>().sqrt())
}

/// Fails if a value of a module is infinite or not a number, and names the first parameter that has one. A
/// frozen base is checked as well.
///
/// # Errors
/// When there is such a value, and when the device does not return its sums.
pub fn check_finite<M: Module>(module: &M) -> Result<(), TrainError> {
    #[derive(Default)]
    struct Sums {
        path: Vec<String>,
        sums: Vec<(String, Tensor<1>)>,
    }
    impl ModuleVisitor for Sums {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            // 0 times a finite number is 0; 0 times any other number is NaN.
            let sum = param.val().detach().mul_scalar(0.0).sum().cast(DType::F32);
            self.sums.push((self.path.join("."), sum));
        }

        fn enter_module(&mut self, name: &str, _: &str) {
            self.path.push(name.to_owned());
        }

        fn exit_module(&mut self, _: &str, _: &str) {
            self.path.pop();
        }
    }

    let mut all = Sums::default();
    module.visit(&mut all);
    let (names, sums): (Vec<String>, Vec<Tensor<1>>) = all.sums.into_iter().unzip();
    if sums.is_empty() {
        return Ok(());
    }

    let values = read(Tensor::cat(sums, 0))?;
    match names.into_iter().zip(values).find(|(_, value)| !value.is_finite()) {
        Some((parameter, _)) => Err(TrainError::NotFinite { parameter }),
        None => Ok(()),
    }
}

/// Makes a number from the trained weights of a module, or from all weights if none is trained. Two modules
/// with the same number almost certainly have the same weights, because it is made from the sum of each row
/// of each matrix. A row is always added up in one order, although a whole tensor may be added up in another
/// order the next time.
///
/// # Errors
/// When the device does not return its sums.
pub fn fingerprint<M: Module>(module: &M) -> Result<[u8; 32], TrainError> {
    struct Sums {
        trained: bool,
        sums: Vec<Tensor<1>>,
    }
    impl ModuleVisitor for Sums {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let values = param.val();
            if values.is_require_grad() || !self.trained {
                let rows = values.detach().cast(DType::F32).sum_dim(D - 1);
                self.sums.push(rows.flatten::<1>(0, D - 1));
            }
        }
    }

    let mut sums = Sums { trained: true, sums: Vec::new() };
    module.visit(&mut sums);
    if sums.sums.is_empty() {
        sums.trained = false;
        module.visit(&mut sums);
    }

    let values = if sums.sums.is_empty() { Vec::new() } else { read(Tensor::cat(sums.sums, 0))? };
    let bits: Vec<u64> = values.into_iter().map(|value| value.to_bits().into()).collect();
    Ok(Seed::run(0).derive("weights", &bits).bytes())
}

struct Walk<F> {
    rule: F,
    gradients: GradientsParams,
    grad_scale: f64,
    path: Vec<String>,
}

impl<F: FnMut(ParameterStep<'_>) -> Tensor<1>> ModuleMapper for Walk<F> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(gradient) = self.gradients.remove::<D>(param.id) else { return param };

        let path = self.path.join(".");
        param.map(|tensor| {
            let tracked = tensor.is_autodiff();
            let values = if tracked { tensor.inner() } else { tensor };
            let shape = values.dims();
            let flat = [shape.iter().product::<usize>()];
            let gradient = gradient.reshape(flat);
            // A factor of 1 changes no bit.
            let gradient = if self.grad_scale == 1.0 {
                gradient
            } else {
                gradient.mul_scalar(self.grad_scale)
            };

            let values = (self.rule)(ParameterStep {
                path: &path,
                shape: &shape,
                values: values.reshape(flat),
                gradient,
            });

            let values: Tensor<D> = values.reshape(shape);
            // `require_grad` makes the new values a leaf of the graph, as a trained parameter has to be.
            if tracked { Tensor::from_inner(values).require_grad() } else { values }
        })
    }

    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }
}
