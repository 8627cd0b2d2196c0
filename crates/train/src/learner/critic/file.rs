//! Files of a critic in a checkpoint.

use std::path::Path;

use firebrick_models::{ParameterSet, PolicyModel, load_parameters, save_parameters};

use super::Critic;
use crate::error::TrainError;

impl<M: PolicyModel> Critic<M> {
    /// Writes two files into `folder`, which exists: `critic.safetensors`, the trained weights in f32 and
    /// under our own names, and `critic_optimizer.safetensors`.
    ///
    /// # Errors
    /// When the device or the file system fails.
    pub fn save(&self, folder: &Path) -> Result<(), TrainError> {
        save_parameters(&self.model, ParameterSet::Trained, &folder.join(WEIGHTS))?;
        self.optimizer.save(&folder.join(OPTIMIZER))
    }

    /// Takes over the files of [`Critic::save`]; weights that are not trained stay as they are.
    ///
    /// # Errors
    /// When there are no such files, or they are damaged or belong to another model.
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
