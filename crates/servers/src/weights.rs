//! The trait `Weights`, through which a pool gets a policy's files and its own log-probabilities.

use std::{
    error::Error,
    path::{Path, PathBuf},
};

use firebrick_core::{TokenId, Version};

/// Gives a pool the things that it needs of a policy: the weights as files, and the policy's own
/// log-probabilities to compare with.
pub trait Weights<M>: Send {
    /// Gives a number that stands for the weights of `policy`: other weights have another number. `None` if
    /// nobody can tell; the weights are then published each time.
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

    /// Removes the folders that [`Weights::write`] has made, except for those `in_use`.
    fn keep_only(&mut self, in_use: &[PathBuf]);

    /// Gives the path of `folder` as servers see it.
    fn seen_by_servers(&self, folder: &Path) -> PathBuf {
        folder.to_owned()
    }

    /// Gives the kind of files that [`Weights::write`] writes.
    fn form(&self) -> Form;

    /// Gives the log-probability of each token of `completion` behind `prompt`, at temperature 1. The prompt
    /// has at least one token.
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

/// The weights in a folder, by the use that a server makes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A whole model, which takes the place of the server's.
    Model,
    /// An adapter to the model that the server began with.
    Adapter,
}
