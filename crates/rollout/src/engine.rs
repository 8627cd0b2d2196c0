use firebrick_core::{Group, Prompt, Seed};

use crate::Sampling;

/// Samples completions from a policy.
pub trait RolloutEngine<M> {
    /// One group per request, in the order of the requests; [`Group::step`] is left at 0.
    ///
    /// A completion depends on `seed`, its request and its index in the group, and not on what it
    /// was batched with (beyond the rounding of sums over different lengths). `finished` hears how
    /// many completions have come to their end since it was last called.
    ///
    /// # Errors
    /// When a prompt does not fit the model, or the device fails.
    fn generate(
        &mut self,
        requests: &[GroupRequest],
        sampling: &Sampling,
        seed: Seed,
        finished: &mut dyn FnMut(usize),
    ) -> Result<Vec<Group>, RolloutError>;

    /// Takes over the policy's weights: what is generated from now on comes from them.
    ///
    /// # Errors
    /// When they could not be delivered.
    fn publish(&mut self, policy: &M) -> Result<(), RolloutError>;
}

/// Asks for the completions of one prompt.
#[derive(Clone, Debug)]
pub struct GroupRequest {
    /// The question.
    pub prompt: Prompt,
    /// Which draw of the run this is; see [`Group::draw`].
    pub draw: u64,
    /// How many completions; at least 1.
    pub group_size: usize,
}

impl GroupRequest {
    /// The seed of one completion of this request.
    pub fn completion_seed(&self, seed: Seed, index: usize) -> Seed {
        seed.derive("completion", &[self.prompt.id, self.draw, index as u64])
    }
}

/// Why completions could not be sampled.
#[derive(Debug, thiserror::Error)]
pub enum RolloutError {
    /// A prompt and its completion would be longer than the model's context.
    #[error(
        "prompt {id} has {prompt} tokens and a completion may have {completion}, but the model \
         takes {limit} in all; lower data.max_prompt_tokens or rollout.max_completion_tokens"
    )]
    TooLong {
        /// [`Prompt::id`].
        id: u64,
        /// Its tokens.
        prompt: usize,
        /// `max_completion_tokens`.
        completion: usize,
        /// The model's `max_position_embeddings`.
        limit: usize,
    },
    /// The device could not give its values back.
    #[error("the device could not read back sampled tokens: {0}")]
    Device(String),
}
