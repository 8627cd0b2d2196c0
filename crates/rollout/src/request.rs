//! Requests for completions, with everything that the completions depend on except for the weights.

use std::sync::Arc;

use firebrick_core::{Completion, Group, Prompt, Seed, Step};
use serde::{Deserialize, Serialize};

use crate::sampling::Sampling;

/// Names a request among those in flight.
pub type RequestId = u64;

/// A request for the completions of one prompt, with everything that they depend on except for the weights. In JSON
/// it is a message to an engine in another process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupRequest {
    /// Chosen by the caller. No other request in flight has the same id.
    pub id: RequestId,
    /// Prompt, of at least one token.
    pub prompt: Prompt,
    /// Number of the draw in the run; see [`Group::draw`].
    pub draw: u64,
    /// Step that the request is for; 0 outside of training. An engine does not need it, but a record of requests
    /// does.
    #[serde(default)]
    pub step: Step,
    /// How many completions to write; at least 1.
    pub group_size: usize,
    /// How completions are sampled.
    pub sampling: Arc<Sampling>,
    /// Seed from which those of the completions are derived.
    pub seed: Seed,
}

impl GroupRequest {
    /// Makes one request for each prompt and the number of its draw, with ids that count from 0.
    pub fn of_prompts(
        prompts: impl IntoIterator<Item = (u64, Prompt)>,
        group_size: usize,
        sampling: &Sampling,
        seed: Seed,
    ) -> Vec<GroupRequest> {
        let sampling = Arc::new(sampling.clone());
        let request = |(id, (draw, prompt))| {
            let sampling = sampling.clone();
            GroupRequest { id, prompt, draw, step: 0, group_size, sampling, seed }
        };
        (0..).zip(prompts).map(request).collect()
    }

    /// Derives the seed of one of the request's completions.
    pub fn completion_seed(&self, index: usize) -> Seed {
        self.seed.derive("completion", &[self.prompt.id, self.draw, index as u64])
    }

    /// Hashes everything that the completions depend on, except for the weights: prompt, draw, number, sampling and
    /// seed, but not the id.
    pub fn digest(&self) -> [u8; 32] {
        // Every field is named, so that a new one has to be thought about here.
        let GroupRequest { id: _, prompt, draw, step: _, group_size, sampling, seed } = self;
        let json = serde_json::to_string(&(prompt, sampling)).unwrap_or_default();
        seed.derive(&json, &[*draw, *group_size as u64]).bytes()
    }

    /// Makes the answer to this request, in the form of [`RolloutEngine::poll`](crate::RolloutEngine::poll).
    pub fn into_group(self, completions: Vec<Completion>) -> (RequestId, Group) {
        let GroupRequest { id, prompt, draw, .. } = self;
        (id, Group { prompt, completions, step: 0, draw })
    }
}
