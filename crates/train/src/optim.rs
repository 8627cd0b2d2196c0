use std::{collections::BTreeMap, path::Path};

use burn::{
    module::{Module, ModuleMapper, Param},
    optim::{
        AdamW as Rule, AdamWConfig, AdamWState, AdaptiveMomentumState, GradientsParams,
        Optimizer as _,
    },
    tensor::{Device, Tensor, TensorData},
};
use firebrick_models::parameters;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use crate::TrainError;

/// AdamW's settings (Loshchilov and Hutter 2019).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimConfig {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Share of a weight, times the learning rate, taken away each step.
    pub weight_decay: f64,
    /// Decay vectors (norms, biases) as well as matrices.
    pub decay_vectors: bool,
    /// Gradients are scaled to at most this global norm; infinity leaves them as they are.
    pub max_grad_norm: f64,
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
        }
    }
}

/// AdamW over a module, with its state by parameter path.
///
/// The arithmetic is burn's; its module optimizer keys its state by identities that are new in
/// every process, where a resumed run needs names.
pub struct AdamW {
    config: OptimConfig,
    matrices: Rule,
    vectors: Rule,
    state: BTreeMap<String, AdamWState<1>>,
}

/// What a step did to the gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepOutcome {
    /// Global norm before clipping; not finite when the step was skipped.
    pub grad_norm: f64,
    /// Factor that the gradients were multiplied by; 0 when the step was skipped.
    pub grad_scale: f64,
    /// A gradient was infinite or not a number: weights and state are as before.
    pub skipped: bool,
}

impl AdamW {
    /// An optimizer that has taken no step.
    pub fn new(config: OptimConfig) -> Self {
        let rule = |weight_decay: f64| {
            AdamWConfig::new()
                .with_beta_1(config.beta1 as f32)
                .with_beta_2(config.beta2 as f32)
                .with_epsilon(config.epsilon as f32)
                .with_weight_decay(weight_decay as f32)
                .build()
        };
        let of_vectors = if config.decay_vectors { config.weight_decay } else { 0.0 };
        AdamW {
            config,
            matrices: rule(config.weight_decay),
            vectors: rule(of_vectors),
            state: BTreeMap::new(),
        }
    }

    /// Clips `gradients` by their global norm and moves the weights; gradients that are not finite
    /// skip the step whole.
    ///
    /// # Errors
    /// When the device cannot give the norm back.
    pub fn step<M: Module>(
        &mut self,
        module: M,
        gradients: GradientsParams,
        lr: f64,
    ) -> Result<(M, StepOutcome), TrainError> {
        let grad_norm = global_norm(&module, &gradients)?;
        if !grad_norm.is_finite() {
            return Ok((module, StepOutcome { grad_norm, grad_scale: 0.0, skipped: true }));
        }
        let grad_scale = (self.config.max_grad_norm / (grad_norm + 1e-6)).min(1.0);
        let mut mapper = Mapper { optimizer: self, gradients, lr, grad_scale, path: Vec::new() };
        let module = module.map(&mut mapper);
        Ok((module, StepOutcome { grad_norm, grad_scale, skipped: false }))
    }

    /// Writes the state as safetensors: `<path>.moment_1`, `<path>.moment_2`, `<path>.time`.
    ///
    /// # Errors
    /// When the device or the file system fails.
    pub fn save(&self, path: &Path) -> Result<(), TrainError> {
        let mut tensors: BTreeMap<String, (Dtype, Vec<u8>)> = BTreeMap::new();
        for (name, state) in &self.state {
            let momentum = &state.momentum;
            for (moment, values) in
                [("moment_1", &momentum.moment_1), ("moment_2", &momentum.moment_2)]
            {
                let bytes =
                    read(values.clone())?.iter().flat_map(|value| value.to_le_bytes()).collect();
                tensors.insert(format!("{name}.{moment}"), (Dtype::F32, bytes));
            }
            let time = (momentum.time as u64).to_le_bytes().to_vec();
            tensors.insert(format!("{name}.time"), (Dtype::U64, time));
        }
        let views = tensors.iter().map(|(name, (dtype, bytes))| {
            let count = bytes.len() / (dtype.bitsize() / 8);
            (
                name,
                TensorView::new(*dtype, vec![count], bytes).expect("a flat tensor of whole values"),
            )
        });
        safetensors::serialize_to_file(views, None, path)
            .map_err(|error| TrainError::checkpoint(path, format!("cannot be written: {error}")))
    }

    /// Reads what [`AdamW::save`] wrote, for the parameters of `module`.
    ///
    /// # Errors
    /// When the file is damaged or belongs to another model.
    pub fn load<M: Module>(
        &mut self,
        module: &M,
        path: &Path,
        device: &Device,
    ) -> Result<(), TrainError> {
        let bytes = std::fs::read(path)
            .map_err(|error| TrainError::checkpoint(path, format!("cannot be read: {error}")))?;
        let file = SafeTensors::deserialize(&bytes).map_err(|error| {
            TrainError::checkpoint(path, format!("is not a whole safetensors file: {error}"))
        })?;
        self.state.clear();
        let all = parameters(module);
        let known = |name: &str| {
            name.rsplit_once('.')
                .is_some_and(|(path, _)| all.iter().any(|known| known.path == path))
        };
        if let Some(name) = file.names().into_iter().find(|name| !known(name)) {
            let problem = format!("has \"{name}\", which the model lacks: it is another model's");
            return Err(TrainError::checkpoint(path, problem));
        }
        for parameter in all.iter().cloned() {
            let count: usize = parameter.shape.iter().product();
            let tensor = |part: &str, size: usize| {
                let name = format!("{}.{part}", parameter.path);
                match file.tensor(&name) {
                    Ok(view) if view.data().len() == size => Ok(Some(view.data().to_vec())),
                    Ok(view) => Err(TrainError::checkpoint(
                        path,
                        format!(
                            "has {} bytes for \"{name}\", but the model needs {size}",
                            view.data().len()
                        ),
                    )),
                    Err(_) => Ok(None),
                }
            };
            // A parameter that never had a gradient has no state.
            let Some(time) = tensor("time", 8)? else { continue };
            let moment = |part: &str| {
                let bytes = tensor(part, 4 * count)?.ok_or_else(|| {
                    TrainError::checkpoint(path, format!("has no \"{}.{part}\"", parameter.path))
                })?;
                let values: Vec<f32> = bytes
                    .as_chunks::<4>()
                    .0
                    .iter()
                    .map(|bytes| f32::from_le_bytes(*bytes))
                    .collect();
                Ok::<_, TrainError>(Tensor::from_data(TensorData::new(values, [count]), device))
            };
            let time =
                u64::from_le_bytes(time.try_into().expect("the length was checked")) as usize;
            let momentum = AdaptiveMomentumState {
                time,
                moment_1: moment("moment_1")?,
                moment_2: moment("moment_2")?,
                max_moment_2: None,
            };
            self.state.insert(parameter.path, AdamWState { momentum });
        }
        Ok(())
    }
}

/// The learning rate of schedule step `step`, counted from 0: a straight line from 0 to `lr` over
/// `warmup_steps`, then constant. A schedule step is a rollout step, however many updates it makes.
pub fn constant_with_warmup(lr: f64, warmup_steps: u64, step: u64) -> f64 {
    if step < warmup_steps { lr * step as f64 / warmup_steps as f64 } else { lr }
}

/// √(Σ g²) over all parameters together. Each tensor is scaled by its largest entry first: the
/// square of a gradient of 1e20 is beyond f32, and would skip a step that clipping can save.
pub fn global_norm<M: Module>(module: &M, gradients: &GradientsParams) -> Result<f64, TrainError> {
    struct Parts<'a> {
        gradients: &'a GradientsParams,
        parts: Vec<Tensor<1>>,
    }
    impl burn::module::ModuleVisitor for Parts<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(gradient) = self.gradients.get::<D>(param.id) {
                let largest = gradient.clone().abs().max();
                // The upper end keeps the norm of an infinite gradient infinite: ∞ / ∞ is NaN.
                let scale = largest.clone().clamp(1e-30, f32::MAX);
                let sum = (gradient / scale.clone().unsqueeze()).square().sum();
                self.parts.push(Tensor::cat(vec![scale, sum], 0));
            }
        }
    }
    let mut parts = Parts { gradients, parts: Vec::new() };
    module.visit(&mut parts);
    if parts.parts.is_empty() {
        return Ok(0.0);
    }
    let values = read(Tensor::cat(parts.parts, 0))?;
    let squares = values.as_chunks::<2>().0.iter().map(|&[scale, sum]| {
        let scale = f64::from(scale);
        scale * scale * f64::from(sum)
    });
    Ok(squares.sum::<f64>().sqrt())
}

struct Mapper<'a> {
    optimizer: &'a mut AdamW,
    gradients: GradientsParams,
    lr: f64,
    grad_scale: f64,
    path: Vec<String>,
}

impl ModuleMapper for Mapper<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(gradient) = self.gradients.remove::<D>(param.id) else { return param };
        let name = self.path.join(".");
        param.map(|tensor| {
            let tracked = tensor.is_autodiff();
            let values = if tracked { tensor.inner() } else { tensor };
            let shape = values.shape();
            let flat = [shape.num_elements()];
            let gradient = gradient.reshape(flat).mul_scalar(self.grad_scale);
            let rule = if D >= 2 { &self.optimizer.matrices } else { &self.optimizer.vectors };
            let state = self.optimizer.state.remove(&name);
            let (values, state) = rule.step(self.lr, values.reshape(flat), gradient, state);
            self.optimizer.state.extend(state.map(|state| (name, state)));
            let values: Tensor<D> = values.reshape(shape);
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

/// A tensor's values on the host.
pub(crate) fn read(tensor: Tensor<1>) -> Result<Vec<f32>, TrainError> {
    tensor.try_into_vec_as::<f32>().map_err(|error| TrainError::Device(format!("{error:?}")))
}
