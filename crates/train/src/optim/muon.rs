//! The optimizer `Muon`, for hidden matrices; AdamW moves the other parameters.

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
use crate::TrainError;

/// Muon's settings (Jordan 2024; scaled as by Liu et al. 2025).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MuonConfig {
    /// μ, the decay of the sum of gradients.
    pub momentum: f64,
    /// The clipping and weight decay of all parameters, and the settings of AdamW for those that are no
    /// hidden matrix.
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
/// O takes the singular values of a matrix to about 1 and leaves its singular vectors. It is five steps of a
/// Newton–Schulz iteration, which take all singular values of at least 1/500 of the norm to between 0.68 and
/// 1.21. So a matrix moves about equally far in all directions that its gradients have, the rare ones among
/// them.
///
/// The root makes entries move by 0.2·lr in the mean square, as they do under AdamW, so that one learning
/// rate and one weight decay serve both parts. burn's other scaling, √max(1, a/b), needs a learning rate
/// apart from AdamW's. It also means a matrix `[outputs, inputs]`, and the decoder's are `[inputs, outputs]`.
///
/// O, scaling and decay are burn's. The momentum is our own, because burn gives its sum back only through the
/// host.
///
/// Projections that a module holds as one matrix (queries, keys and values of the decoder) are one matrix to
/// Muon, too.
///
/// The state by parameter path is `velocity`, V, for hidden matrices, and the state of
/// [`AdamW`](super::AdamW) for everything else.
pub struct Muon {
    config: MuonConfig,
    matrices: Rule,
    others: Rules,
    is_hidden: Box<Choice>,
    state: NamedState,
}

/// A test that tells whether Muon moves a parameter, by its path and its shape `[a, b]`.
type Choice = dyn Fn(&str, &[usize]) -> bool + Send + Sync;

impl Muon {
    /// Makes an optimizer that has taken no step, for the matrices that [`hidden_matrix`] names.
    pub fn new(config: MuonConfig) -> Self {
        Muon::with_matrices(config, hidden_matrix)
    }

    /// Makes an optimizer for the matrices that `is_hidden` names, by path and shape. `is_hidden` is only
    /// asked about parameters with two dimensions. A resumed run needs the same answers.
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
            match self.moves(parameter.path, parameter.shape) {
                true => self.apply(parameter, lr),
                false => self.others.apply(&mut self.state, parameter, lr),
            }
        })
    }

    fn save(&self, path: &Path) -> Result<(), TrainError> {
        self.state.save(path)
    }

    fn load(&mut self, module: &M, path: &Path, device: &Device) -> Result<(), TrainError> {
        self.state = NamedState::load(module, path, device, |parameter| {
            match self.moves(&parameter.path, &parameter.shape) {
                true => &[Part::Values(VELOCITY)],
                false => Rules::PARTS,
            }
        })?
        .with_moments(self.config.adamw.moments);
        Ok(())
    }

    fn reset(&mut self) {
        self.state = NamedState::new(self.config.adamw.moments);
    }
}

/// Tells whether a parameter is a matrix inside a model, as far as its path and shape tell. Such a parameter
/// has two dimensions, neither of them 1, and is in a list, as in `layers.0.attention.qkv.weight`.
///
/// Embedding, head and final norm are outside the list of layers, whatever their names, and whether or not
/// they are one matrix. Each of their rows stands for a token and has a gradient of its own, which Muon would
/// mix with the gradients of other rows. A model without a list of layers has no hidden matrix by this rule,
/// and needs a rule of its own: [`Muon::with_matrices`].
pub fn hidden_matrix(path: &str, shape: &[usize]) -> bool {
    let in_list = path.split('.').any(|name| name.parse::<usize>().is_ok());
    shape.len() == 2 && shape.iter().all(|&size| size > 1) && in_list
}

const VELOCITY: &str = "velocity";
