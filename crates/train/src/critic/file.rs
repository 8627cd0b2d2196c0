use std::path::Path;

use firebrick_models::{ParameterSet, PolicyModel, load_parameters, save_parameters};

use super::Critic;
use crate::TrainError;

impl<M: PolicyModel> Critic<M> {
    /// Writes `critic.safetensors`, the weights that are trained, in f32 and under our own names, and
    /// `critic_optimizer.safetensors` into `folder`, which exists.
    ///
    /// # Errors
    /// When the device or the file system fails.
    pub fn save(&self, folder: &Path) -> Result<(), TrainError> {
        save_parameters(&self.model, ParameterSet::Trained, &folder.join(WEIGHTS))?;
        self.optimizer.save(&folder.join(OPTIMIZER))
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
        self.model = load_parameters(self.model.clone(), ParameterSet::Trained, &path)?;
        let device = self.model.head.weight.val().device().inner();
        self.optimizer.load(&self.model, &folder.join(OPTIMIZER), &device)
    }
}

const WEIGHTS: &str = "critic.safetensors";
const OPTIMIZER: &str = "critic_optimizer.safetensors";
