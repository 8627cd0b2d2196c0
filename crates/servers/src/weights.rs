//! The trait `Weights`, through which a pool gets a policy's files and its own log-probabilities.

use std::{
    error::Error,
    path::{Path, PathBuf},
};

use firebrick_core::{TokenId, Version};

/// Supplies what a pool needs from a policy: the weights as files, and the policy's own log-probabilities to compare
/// with.
pub trait Weights<M>: Send {
    /// Returns a fingerprint of the weights of `policy`: different weights have different fingerprints. `None` if it is
    /// not known; the weights are then published each time.
    fn fingerprint(&mut self, policy: &M) -> Option<[u8; 32]>;

    /// Writes the weights to a new folder, completely or not at all, and returns its path.
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

    /// Returns the path of `folder` as servers see it.
    fn seen_by_servers(&self, folder: &Path) -> PathBuf {
        folder.to_owned()
    }

    /// Returns the kind of files that [`Weights::write`] writes.
    fn kind(&self) -> WeightsKind;

    /// Returns the log-probability of each token of `completion` after `prompt`, at temperature 1. The prompt has at
    /// least one token.
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

/// How a server uses the weights in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightsKind {
    /// A complete model, which replaces the server's.
    Model,
    /// An adapter to the model that the server began with.
    Adapter,
}
