//! Optimizers: the trait that turns gradients into new weights, and the code that its implementations share.

mod adamw;
mod clip;
mod muon;
mod narrow;
mod state;
#[cfg(test)]
mod tests;

use std::path::Path;

use burn::{
    module::Module,
    optim::GradientsParams,
    tensor::{Device, Tensor},
};

use crate::error::TrainError;

pub use adamw::{AdamW, OptimConfig};
pub use clip::{ParameterStep, StepOutcome, check_finite, clipped_step, fingerprint, global_norm};
pub use muon::{Muon, MuonConfig, hidden_matrix};
pub use state::{NamedState, Part};

/// Turns the gradients of a module into its next weights.
///
/// An optimizer keeps its state by the paths of parameters: burn's parameter ids are new in every process,
/// while a resumed run continues in another process.
///
/// To write your own optimizer, write a rule for one tensor. [`clipped_step`] calls it for every parameter
/// that has a gradient, and [`NamedState`] keeps the rule's state of each parameter, at run time and in a
/// checkpoint:
///
/// ```
/// use std::path::Path;
///
/// use burn::{module::Module, optim::GradientsParams, tensor::Device};
/// use firebrick_train::{
///     TrainError,
///     learner::{NamedState, Optimizer, Part, StepOutcome, clipped_step},
/// };
///
/// /// Gradient descent with momentum.
/// struct Sgd {
///     momentum: f64,
///     state: NamedState,
/// }
///
/// impl<M: Module> Optimizer<M> for Sgd {
///     fn step(
///         &mut self,
///         module: M,
///         gradients: GradientsParams,
///         lr: f64,
///     ) -> Result<(M, StepOutcome), TrainError> {
///         clipped_step(module, gradients, 1.0, |parameter| {
///             let velocity = match self.state.take(parameter.path, "velocity") {
///                 Some(velocity) => velocity.mul_scalar(self.momentum) + parameter.gradient,
///                 None => parameter.gradient,
///             };
///             self.state.put(parameter.path, "velocity", velocity.clone());
///             parameter.values - velocity.mul_scalar(lr)
///         })
///     }
///
///     fn save(&self, path: &Path) -> Result<(), TrainError> {
///         self.state.save(path)
///     }
///
///     fn load(&mut self, module: &M, path: &Path, device: &Device) -> Result<(), TrainError> {
///         self.state = NamedState::load(module, path, device, |_| &[Part::Values("velocity")])?;
///         Ok(())
///     }
///
///     fn reset(&mut self) {
///         self.state = NamedState::default();
///     }
/// }
/// # use burn::{module::Param, tensor::Tensor};
/// # let device = Device::flex();
/// # let mut sgd = Sgd { momentum: 0.5, state: NamedState::default() };
/// # let mut module = vec![Param::<Tensor<1>>::from_data([1.0f32, 2.0], &device.clone().autodiff())];
/// # // The norm is 5, so a fifth of it: 0.6 and 0.8; in the second step 1.5 times that.
/// # for expected in [[0.94f32, 1.92], [0.85, 1.8]] {
/// #     let mut gradients = GradientsParams::new();
/// #     gradients.register(module[0].id, Tensor::<1>::from_data([3.0f32, 4.0], &device));
/// #     let (moved, outcome) = sgd.step(module, gradients, 0.1)?;
/// #     assert_eq!(outcome.grad_norm, 5.0);
/// #     let values = moved[0].val().inner().try_into_vec_as::<f32>().unwrap();
/// #     assert!(values.iter().zip(expected).all(|(value, want)| (value - want).abs() < 1e-5));
/// #     module = moved;
/// # }
/// # Ok::<(), TrainError>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an optimizer of `{M}`",
    label = "the trait `firebrick_train::learner::Optimizer` is missing",
    note = "burn's optimizers do not implement the trait; `clipped_step` and `NamedState` turn a rule for \
            one tensor into an optimizer, see the trait's documentation"
)]
pub trait Optimizer<M: Module>: Send + Sync {
    /// Takes one step of `module`, at the learning rate `lr`. A parameter without a gradient stays as it is.
    ///
    /// If gradients are not finite, weights and state stay as they were, and the outcome is `skipped`.
    ///
    /// # Errors
    /// When the device fails. The optimizer's state is then unchanged.
    fn step(
        &mut self,
        module: M,
        gradients: GradientsParams,
        lr: f64,
    ) -> Result<(M, StepOutcome), TrainError>;

    /// Writes the state to the file `path`, so that a later process can [`load`](Self::load) it and continue
    /// with the same bits.
    ///
    /// # Errors
    /// When the device or the file system fails.
    fn save(&self, path: &Path) -> Result<(), TrainError>;

    /// Replaces the state by the one in the file `path`, for the parameters of `module`. `device` is that of
    /// the parameters, without autodiff.
    ///
    /// # Errors
    /// When the file is missing or damaged, or belongs to another model or another optimizer.
    fn load(&mut self, module: &M, path: &Path, device: &Device) -> Result<(), TrainError>;

    /// Forgets everything, as if no step had been taken.
    fn reset(&mut self);
}

impl<M: Module, O: Optimizer<M> + ?Sized> Optimizer<M> for Box<O> {
    fn step(
        &mut self,
        module: M,
        gradients: GradientsParams,
        lr: f64,
    ) -> Result<(M, StepOutcome), TrainError> {
        (**self).step(module, gradients, lr)
    }

    fn save(&self, path: &Path) -> Result<(), TrainError> {
        (**self).save(path)
    }

    fn load(&mut self, module: &M, path: &Path, device: &Device) -> Result<(), TrainError> {
        (**self).load(module, path, device)
    }

    fn reset(&mut self) {
        (**self).reset();
    }
}

/// Copies a tensor's values to the host.
pub(crate) fn read(tensor: Tensor<1>) -> Result<Vec<f32>, TrainError> {
    tensor.try_into_vec_as::<f32>().map_err(|error| TrainError::Device(format!("{error:?}")))
}
