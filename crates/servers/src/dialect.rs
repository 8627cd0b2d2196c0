//! Protocols of inference servers, and the trait of a server that is reached through its own protocol.

use std::{path::Path, time::Duration};

use firebrick_core::TokenId;
use firebrick_rollout::{GroupRequest, Sampling};

use crate::{answer::SampledCompletion, error::ServerError, http::Address, weights::WeightsKind};

/// A protocol of inference servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// vLLM's protocol: its token endpoint, or its completions endpoint if a server has the first switched off. Read
    /// and run with version 0.32.
    Vllm,
    /// SGLang's protocol. Read in version 0.5.23; it has not been run.
    Sglang,
}

/// One server, in its own protocol. Every call waits for an answer, until its deadline.
pub(crate) trait ServerApi: Send + Sync {
    /// Returns the server's address.
    fn address(&self) -> &Address;

    /// Samples the completions of a group, complete and checked.
    fn sample(&self, ask: &SampleRequest<'_>) -> Result<Vec<SampledCompletion>, ServerError>;

    /// Returns the log-probabilities of `tokens` after the first of them, at temperature 1.
    fn score(
        &self,
        adapter: Option<&str>,
        tokens: &[TokenId],
        deadline: Duration,
    ) -> Result<Vec<f32>, ServerError>;

    /// Ends requests by the names that they were sent with.
    fn abort(&self, names: &[String]) -> Result<(), ServerError>;

    /// Asks whether the server is healthy.
    fn health(&self) -> Result<(), ServerError>;

    /// Makes the server accept no more work, and end the work that it has.
    fn pause(&self) -> Result<(), ServerError>;

    /// Makes the server continue after a pause; a server that is not paused may be asked too.
    fn resume(&self) -> Result<(), ServerError>;

    /// Loads the weights in `folder`, which are called `label`.
    fn load(&self, weights: &LoadRequest<'_>, deadline: Duration) -> Result<(), ServerError>;

    /// Removes an adapter.
    fn unload(&self, adapter: &str) -> Result<(), ServerError>;
}

/// Weights to be loaded by a server.
pub(crate) struct LoadRequest<'a> {
    /// Path of the folder as the server sees it.
    pub(crate) folder: &'a Path,
    /// Name of the weights; no two have the same.
    pub(crate) label: &'a str,
    pub(crate) kind: WeightsKind,
}

/// A group that a server is asked for.
pub(crate) struct SampleRequest<'a> {
    /// Name of the request; no other request has it.
    pub(crate) name: &'a str,
    pub(crate) prompt: &'a [TokenId],
    pub(crate) count: usize,
    pub(crate) sampling: &'a Sampling,
    /// Seed, from 0 to 2⁶². The seeds of the group's completions count up from it, and must fit into 63 bits too.
    pub(crate) seed: u64,
    /// Name of the weights that the request is for.
    pub(crate) label: &'a str,
    /// Name of the adapter, if the weights are one.
    pub(crate) adapter: Option<&'a str>,
    pub(crate) vocabulary: usize,
    pub(crate) deadline: Duration,
}

impl SampleRequest<'_> {
    /// Returns how many bytes an answer may have: for each token an id, a log-probability, and the names around them.
    pub(crate) fn limit(&self) -> u64 {
        let tokens = self.count.saturating_mul(self.sampling.max_completion_tokens);
        let given = self.prompt.len();
        (tokens.saturating_mul(400).saturating_add(given * 20) as u64).saturating_add(1 << 20)
    }
}

/// Returns the number from which the seeds of a group's completions count up.
pub(crate) fn seed_of(request: &GroupRequest) -> u64 {
    let seed = request.seed.derive("group", &[request.prompt.id, request.draw]);
    let [a, b, c, d, e, f, g, h, ..] = seed.bytes();
    // Two bits fewer than a u64, so that counting up stays within the 63 bits that servers take.
    u64::from_le_bytes([a, b, c, d, e, f, g, h]) >> 2
}

/// Maximum time for a server to answer a question about itself.
pub(crate) const SHORT: Duration = Duration::from_secs(20);
