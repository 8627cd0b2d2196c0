use std::{collections::BTreeSet, path::Path};

use burn::{
    module::{Module, ModuleMapper, Param},
    tensor::{Tensor, TensorData},
};
use firebrick_models::{PolicyModel, parameters};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use super::Critic;
use crate::{TrainError, optim::read};

impl<M: PolicyModel> Critic<M> {
    /// Writes `critic.safetensors`, the weights that are trained, in f32 and under our own names, and
    /// `critic_optimizer.safetensors` into `folder`, which exists.
    ///
    /// # Errors
    /// When the device or the file system fails.
    pub fn save(&self, folder: &Path) -> Result<(), TrainError> {
        self.save_weights(&folder.join(WEIGHTS))?;
        self.optimizer.save(&folder.join(OPTIMIZER))
    }

    fn save_weights(&self, path: &Path) -> Result<(), TrainError> {
        let mut tensors = Vec::new();
        for parameter in parameters(&self.model).into_iter().filter(|parameter| parameter.trained) {
            let values = read(parameter.values)?;
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            tensors.push((parameter.path, parameter.shape, bytes));
        }
        let views = tensors.iter().map(|(name, shape, bytes)| {
            let view = TensorView::new(Dtype::F32, shape.clone(), bytes);
            (name, view.expect("the bytes are those of a tensor of that shape"))
        });
        safetensors::serialize_to_file(views, None, path)
            .map_err(|error| TrainError::checkpoint(path, format!("cannot be written: {error}")))
    }

    /// Takes over what [`Critic::save`] wrote; what is not trained stays as it is.
    ///
    /// # Errors
    /// When there is none, or it is damaged or another model's.
    pub fn load(&mut self, folder: &Path) -> Result<(), TrainError> {
        let path = folder.join(WEIGHTS);
        if !path.exists() {
            return Err(TrainError::NoCritic { folder: folder.to_owned() });
        }
        let bytes = std::fs::read(&path)
            .map_err(|error| TrainError::checkpoint(&path, format!("cannot be read: {error}")))?;
        let file = SafeTensors::deserialize(&bytes).map_err(|error| {
            TrainError::checkpoint(&path, format!("is not a whole safetensors file: {error}"))
        })?;
        let wanted: BTreeSet<String> = parameters(&self.model)
            .into_iter()
            .filter(|parameter| parameter.trained)
            .map(|parameter| parameter.path)
            .collect();
        if let Some(name) = file.names().into_iter().find(|name| !wanted.contains(*name)) {
            let problem = format!("has \"{name}\", which this critic lacks: it is another's");
            return Err(TrainError::checkpoint(&path, problem));
        }
        let mut reader = Reader { file: &file, path: Vec::new(), problem: None };
        let model = self.model.clone().map(&mut reader);
        if let Some(problem) = reader.problem {
            return Err(TrainError::checkpoint(&path, problem));
        }
        self.model = model;
        let device = self.model.head.weight.val().device().inner();
        self.optimizer.load(&self.model, &folder.join(OPTIMIZER), &device)
    }
}

const WEIGHTS: &str = "critic.safetensors";
const OPTIMIZER: &str = "critic_optimizer.safetensors";

/// Replaces what is trained by what the file has.
struct Reader<'a> {
    file: &'a SafeTensors<'a>,
    path: Vec<String>,
    problem: Option<String>,
}

impl ModuleMapper for Reader<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if !param.val().is_require_grad() {
            return param;
        }
        let (name, shape) = (self.path.join("."), param.dims());
        let view = match self.file.tensor(&name) {
            Ok(view) if view.dtype() == Dtype::F32 && view.shape() == shape => view,
            Ok(view) => {
                self.problem = Some(format!(
                    "has {:?} of {:?} as \"{name}\", expected {shape:?} of F32",
                    view.shape(),
                    view.dtype(),
                ));
                return param;
            }
            Err(_) => {
                self.problem = Some(format!("has no \"{name}\""));
                return param;
            }
        };
        let values = view.data().as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes));
        let values: Vec<f32> = values.collect();
        // With these no gradient would be finite: every update would be skipped, and the run would
        // end as if nothing had been the matter.
        if let Some(value) = values.iter().find(|value| !value.is_finite()) {
            self.problem = Some(format!("holds {value} in \"{name}\", expected finite numbers"));
            return param;
        }
        let values = TensorData::new(values, shape);
        param.map(|tensor| Tensor::from_data(values, &tensor.device()).require_grad())
    }

    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }
}
