//! `Muon`, an optimizer for hidden matrices; AdamW moves the other parameters.

use std::path::Path;

use burn::{
    module::Module,
    optim::{
        AdjustLrFn, GradientsParams, Muon as Rule, MuonConfig as RuleConfig, Optimizer as _,
        decay::WeightDecayConfig, momentum::MomentumConfig,
    },
    tensor::{Device, Tensor},
};

use super::{
    NamedState, OptimConfig, Optimizer, ParameterStep, Part, StepOutcome, adamw::Rules,
    clipped_step,
};
use crate::error::TrainError;

/// Muon's settings (Jordan 2024; scaled as by Liu et al. 2025).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MuonConfig {
    /// μ, the decay of the sum of gradients.
    pub momentum: f64,
    /// Clipping and weight decay of all parameters, and the settings of AdamW for those that are not hidden
    /// matrices.
    pub adamw: OptimConfig,
}

impl Default for MuonConfig {
    fn default() -> Self {
        MuonConfig { momentum: 0.95, adamw: OptimConfig::default() }
    }
}

/// Muon for hidden matrices, AdamW for everything else.
///
/// With the clipped gradient G of a matrix W `[a, b]` a step is
///
/// ```text
/// V ← μ·V + G                       V is the gradient itself in the first step
/// W ← (1 − lr·decay)·W − lr·0.2·√max(a, b)·O(G + μ·V)
/// ```
///
/// O maps the singular values of a matrix to about 1 and keeps its singular vectors. It is five steps of a
/// Newton–Schulz iteration, which map all singular values of at least 1/500 of the norm to between 0.68 and
/// 1.21. So a matrix moves about equally far in all directions that its gradients have, even the rare ones.
///
/// The root makes entries move by 0.2·lr in the mean square, as they do under AdamW, so that one learning
/// rate and one weight decay serve both parts. burn's other scaling, √max(1, a/b), needs a learning rate
/// separate from AdamW's, and is meant for matrices `[outputs, inputs]`, while the decoder's are `[inputs,
/// outputs]`.
///
/// O, scaling and decay are burn's. The momentum is our own, because burn returns its sum only through the
/// host.
///
/// Projections that a module holds as one matrix (queries, keys and values of the decoder) are one matrix to
/// Muon, too.
///
/// For hidden matrices the state by parameter path is `velocity`, V; for everything else it is that of
/// [`AdamW`](super::AdamW).
pub struct Muon {
    config: MuonConfig,
    matrices: Rule,
    others: Rules,
    is_hidden: Box<Choice>,
    state: NamedState,
}

/// Decides whether Muon moves a parameter, by its path and its shape `[a, b]`.
type Choice = dyn Fn(&str, &[usize]) -> bool + Send + Sync;

impl Muon {
    /// Makes an optimizer that has taken no step, for the matrices that [`hidden_matrix`] names.
    pub fn new(config: MuonConfig) -> Self {
        Muon::with_matrices(config, hidden_matrix)
    }

    /// Makes an optimizer for the matrices that `is_hidden` names, by path and shape. It is only asked about
    /// parameters with two dimensions. A resumed run needs the same answers.
    pub fn with_matrices(
        config: MuonConfig,
        is_hidden: impl Fn(&str, &[usize]) -> bool + Send + Sync + 'static,
    ) -> Self {
        let decay = config.adamw.weight_decay as f32;
        // Without momentum the rule has no state.
        let momentum = MomentumConfig { momentum: 0.0, dampening: 0.0, nesterov: false };
        let matrices = RuleConfig::new()
            .with_weight_decay(Some(WeightDecayConfig::new(decay)))
            .with_momentum(momentum)
            .with_adjust_lr_fn(AdjustLrFn::MatchRmsAdamW)
            .build();

        Muon {
            config,
            matrices,
            others: Rules::new(config.adamw),
            is_hidden: Box::new(is_hidden),
            state: NamedState::new(config.adamw.moments),
        }
    }

    fn moves(&self, path: &str, shape: &[usize]) -> bool {
        shape.len() == 2 && (self.is_hidden)(path, shape)
    }

    fn apply(&mut self, parameter: ParameterStep<'_>, lr: f64) -> Tensor<1> {
        let ParameterStep { path, shape, values, gradient } = parameter;
        let velocity = match self.state.take(path, VELOCITY) {
            Some(velocity) => velocity.mul_scalar(self.config.momentum) + gradient.clone(),
            None => gradient.clone(),
        };

        // The direction is Nesterov's: one gradient further than the sum.
        let direction = velocity.clone().mul_scalar(self.config.momentum) + gradient;
        self.state.put(path, VELOCITY, velocity);

        let matrix = [shape[0], shape[1]];
        let (values, _) =
            self.matrices.step(lr, values.reshape(matrix), direction.reshape(matrix), None);
        values.reshape([shape[0] * shape[1]])
    }
}

impl<M: Module> Optimizer<M> for Muon {
    fn step(
        &mut self,
        module: M,
        gradients: GradientsParams,
        lr: f64,
    ) -> Result<(M, StepOutcome), TrainError> {
        clipped_step(module, gradients, self.config.adamw.max_grad_norm, |parameter| {
            if self.moves(parameter.path, parameter.shape) {
                self.apply(parameter, lr)
            } else {
                self.others.apply(&mut self.state, parameter, lr)
            }
        })
    }

    fn save(&self, path: &Path) -> Result<(), TrainError> {
        self.state.save(path)
    }

    fn load(&mut self, module: &M, path: &Path, device: &Device) -> Result<(), TrainError> {
        self.state = NamedState::load(module, path, device, |parameter| {
            if self.moves(&parameter.path, &parameter.shape) {
                &[Part::Values(VELOCITY)]
            } else {
                Rules::PARTS
            }
        })?
        .with_moments(self.config.adamw.moments);
        Ok(())
    }

    fn reset(&mut self) {
        self.state = NamedState::new(self.config.adamw.moments);
    }
}

/// Returns true for a matrix inside a model, as far as path and shape tell: it has two dimensions, neither of
/// them 1, and is in a list, as in `layers.0.attention.qkv.weight`.
///
/// Embedding, head and final norm are outside the list of layers, whatever their names, and whether or not
/// they are one matrix. Each of their rows represents a token and has its own gradient, which Muon would mix
/// with those of other rows. A model without a list of layers has no hidden matrix by this rule, and needs
/// another rule: [`Muon::with_matrices`].
pub fn hidden_matrix(path: &str, shape: &[usize]) -> bool {
    let in_list = path.split('.').any(|name| name.parse::<usize>().is_ok());
    shape.len() == 2 && shape.iter().all(|&size| size > 1) && in_list
}

const VELOCITY: &str = "velocity";
