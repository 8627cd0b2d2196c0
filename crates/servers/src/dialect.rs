//! The languages that inference servers speak, and the trait of a server that is spoken to in its own.

use std::{path::Path, time::Duration};

use firebrick_core::TokenId;
use firebrick_rollout::{GroupRequest, Sampling};

use crate::{Form, ServerError, answer::Sampled, http::Address, sglang::Sglang, vllm::Vllm};

/// A language that inference servers speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// vLLM's language: its token endpoint, or its completions endpoint if a server has the first switched
    /// off. Read and run with version 0.32.
    Vllm,
    /// SGLang's language. Read in version 0.5.23; it has not been run.
    Sglang,
}

impl Dialect {
    pub(crate) fn server(self, address: Address) -> Box<dyn Speaks> {
        match self {
            Dialect::Vllm => Box::new(Vllm::at(address)),
            Dialect::Sglang => Box::new(Sglang::at(address)),
        }
    }
}

/// One server, in its own words. Every call waits for an answer, until its deadline.
pub(crate) trait Speaks: Send + Sync {
    /// Gives the server's address.
    fn address(&self) -> &Address;

    /// Gives the completions of a group, whole and checked.
    fn sample(&self, ask: &Ask<'_>) -> Result<Vec<Sampled>, ServerError>;

    /// Gives the log-probabilities of `tokens` behind the first of them, at temperature 1.
    fn score(
        &self,
        adapter: Option<&str>,
        tokens: &[TokenId],
        deadline: Duration,
    ) -> Result<Vec<f32>, ServerError>;

    /// Ends requests by the names that they were given.
    fn abort(&self, names: &[String]) -> Result<(), ServerError>;

    /// Asks whether the server is well.
    fn health(&self) -> Result<(), ServerError>;

    /// Makes the server take nothing on any more, and end the work that it has.
    fn pause(&self) -> Result<(), ServerError>;

    /// Makes the server continue after a pause; a server that is not paused may be asked too.
    fn resume(&self) -> Result<(), ServerError>;

    /// Loads the weights in `folder`, which are called `label`.
    fn load(&self, weights: &Loadable<'_>, deadline: Duration) -> Result<(), ServerError>;

    /// Removes an adapter.
    fn unload(&self, adapter: &str) -> Result<(), ServerError>;
}

/// Weights on their way to a server.
pub(crate) struct Loadable<'a> {
    /// The folder as the server sees it.
    pub(crate) folder: &'a Path,
    /// The name of the weights; no two have the same.
    pub(crate) label: &'a str,
    pub(crate) form: Form,
}

/// A group that a server is asked for.
pub(crate) struct Ask<'a> {
    /// The name of the request; no other request has it.
    pub(crate) name: &'a str,
    pub(crate) prompt: &'a [TokenId],
    pub(crate) count: usize,
    pub(crate) sampling: &'a Sampling,
    /// The seed, from 0 to 2⁶². The seeds of the group's completions count on from it, and must fit into 63
    /// bits too.
    pub(crate) seed: u64,
    /// The name of the weights that the request is for.
    pub(crate) label: &'a str,
    /// The adapter's name, if the weights are one.
    pub(crate) adapter: Option<&'a str>,
    pub(crate) vocabulary: usize,
    pub(crate) deadline: Duration,
}

impl Ask<'_> {
    /// Gives the number of bytes that an answer may have: for each token an id, a log-probability, and the
    /// names around them.
    pub(crate) fn limit(&self) -> u64 {
        let tokens = self.count.saturating_mul(self.sampling.max_completion_tokens);
        let given = self.prompt.len();
        (tokens.saturating_mul(400).saturating_add(given * 20) as u64).saturating_add(1 << 20)
    }
}

/// Gives the number from which the seeds of a group's completions count on.
pub(crate) fn seed_of(request: &GroupRequest) -> u64 {
    let seed = request.seed.derive("group", &[request.prompt.id, request.draw]);
    let [a, b, c, d, e, f, g, h, ..] = seed.bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h]) >> 2
}

/// The time that a server has to say a word about itself.
pub(crate) const SHORT: Duration = Duration::from_secs(20);
