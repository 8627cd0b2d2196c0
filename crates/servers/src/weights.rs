use std::{
    error::Error,
    path::{Path, PathBuf},
};

use firebrick_core::{TokenId, Version};

/// Gives a pool what it needs of a policy: its weights as files, and its own log-probabilities to compare with.
pub trait Weights<M>: Send {
    /// Stands for the weights of `policy`: another number for other weights. None where nobody can tell; the weights are then
    /// published each time.
    fn fingerprint(&mut self, policy: &M) -> Option<[u8; 32]>;

    /// Writes the weights to a folder that nobody has read before, whole or not at all, and gives its path.
    ///
    /// # Errors
    /// When the device or the file system fails.
    fn write(
        &mut self,
        policy: &M,
        version: Version,
    ) -> Result<PathBuf, Box<dyn Error + Send + Sync>>;

    /// Removes folders that [`Weights::write`] has made, but for those `in_use`.
    fn keep_only(&mut self, in_use: &[PathBuf]);

    /// The path of `folder` as servers see it.
    fn seen_by_servers(&self, folder: &Path) -> PathBuf {
        folder.to_owned()
    }

    /// The kind of files that [`Weights::write`] writes.
    fn form(&self) -> Form;

    /// The log-probability of each token of `completion` behind `prompt`, which has at least one token, at temperature 1.
    ///
    /// # Errors
    /// When the device fails.
    fn logprobs(
        &mut self,
        policy: &M,
        prompt: &[TokenId],
        completion: &[TokenId],
    ) -> Result<Vec<f32>, Box<dyn Error + Send + Sync>>;
}

/// The weights in a folder, by what a server does with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A whole model, which takes the place of the server's.
    Model,
    /// An adapter to the model that the server began with.
    Adapter,
}
