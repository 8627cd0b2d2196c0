//! `AdamW`, the optimizer of most runs.

use std::path::Path;

use burn::{
    module::Module,
    optim::GradientsParams,
    tensor::{Device, Tensor},
};
use firebrick_kernels::{AdamWStep, adamw};

use firebrick_core::config::Moments;

use super::{NamedState, Optimizer, ParameterStep, Part, StepOutcome, clipped_step};
use crate::error::TrainError;

/// AdamW's settings (Loshchilov and Hutter 2019).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimConfig {
    /// The decay of the first moment.
    pub beta1: f64,
    /// The decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Weight decay: each step subtracts this, times the learning rate, times the weight.
    pub weight_decay: f64,
    /// True if vectors (norms, biases) decay as well as matrices.
    pub decay_vectors: bool,
    /// Largest global norm of the gradients, which are scaled down to it; infinity leaves them as they are.
    pub max_grad_norm: f64,
    /// The format of the moments.
    pub moments: Moments,
}

impl Default for OptimConfig {
    fn default() -> Self {
        OptimConfig {
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.1,
            decay_vectors: false,
            max_grad_norm: 1.0,
            moments: Moments::F32,
        }
    }
}

/// AdamW over a module, with its state by parameter path: `moment_1`, `moment_2` and `time`, the number of
/// steps.
///
/// burn's module optimizer keys its state by parameter ids that are new in every process, while a resumed run
/// needs names.
#[derive(Clone)]
pub struct AdamW {
    max_grad_norm: f64,
    moments: Moments,
    rules: Rules,
    state: NamedState,
}

impl AdamW {
    /// Makes an optimizer that has taken no step.
    pub fn new(config: OptimConfig) -> Self {
        AdamW {
            max_grad_norm: config.max_grad_norm,
            rules: Rules::new(config),
            moments: config.moments,
            state: NamedState::new(config.moments),
        }
    }
}

impl<M: Module> Optimizer<M> for AdamW {
    fn step(
        &mut self,
        module: M,
        gradients: GradientsParams,
        lr: f64,
    ) -> Result<(M, StepOutcome), TrainError> {
        clipped_step(module, gradients, self.max_grad_norm, |parameter| {
            self.rules.apply(&mut self.state, parameter, lr)
        })
    }

    fn save(&self, path: &Path) -> Result<(), TrainError> {
        self.state.save(path)
    }

    fn load(&mut self, module: &M, path: &Path, device: &Device) -> Result<(), TrainError> {
        self.state =
            NamedState::load(module, path, device, |_| Rules::PARTS)?.with_moments(self.moments);
        Ok(())
    }

    fn reset(&mut self) {
        self.state = NamedState::new(self.moments);
    }
}

/// AdamW's step of one parameter.
#[derive(Clone)]
pub(super) struct Rules(OptimConfig);

impl Rules {
    /// What is kept of a parameter.
    pub(super) const PARTS: &[Part] =
        &[Part::Values(MOMENT_1), Part::Values(MOMENT_2), Part::Count(TIME)];

    pub(super) fn new(config: OptimConfig) -> Self {
        Rules(config)
    }

    pub(super) fn apply(
        &self,
        state: &mut NamedState,
        parameter: ParameterStep<'_>,
        lr: f64,
    ) -> Tensor<1> {
        let ParameterStep { path, shape, values, gradient } = parameter;

        // Vectors are norms and biases, which do not decay by default.
        let decays = shape.len() >= 2 || self.0.decay_vectors;
        let moments = state.take(path, MOMENT_1).zip(state.take(path, MOMENT_2));
        let time = state.count(path, TIME) + 1;
        let step = AdamWStep {
            betas: [self.0.beta1, self.0.beta2],
            epsilon: self.0.epsilon,
            weight_decay: if decays { self.0.weight_decay } else { 0.0 },
            lr,
            time,
        };

        let [values, moment_1, moment_2] =
            adamw(values, gradient, moments.map(<[_; 2]>::from), step);

        state.put(path, MOMENT_1, moment_1);
        state.put_squares(path, MOMENT_2, moment_2);
        state.set_count(path, TIME, time);
        values
    }
}

const MOMENT_1: &str = "moment_1";
const MOMENT_2: &str = "moment_2";
const TIME: &str = "time";
