mod ahead;
mod decoding;

use std::sync::Arc;

use firebrick_core::{Detokenizer, Group};
use firebrick_models::PolicyModel;

use self::decoding::Decoding;
pub(crate) use self::decoding::indices;
use crate::{GroupRequest, RequestId, RolloutEngine, RolloutError, SampleOn, Wait};

/// Samples in this process, from the very weights that are trained.
///
/// A prompt is prefilled once for its whole group, whose completions share what was remembered of it. Sequences of
/// different lengths run together, and the place of a finished one goes to the next completion that waits, or, when none
/// does, is given up, so that the last long completions do not decode in a wide, empty batch. On the CPU that is at once;
/// on other devices, which may compile kernels for each size, when a quarter of the places has become free.
///
/// It works while it is polled: [`Wait::Never`] admits what fits and decodes one token in every row; on devices other than
/// the CPU a few, of which those are read that were asked for by the poll before, so that the device never waits for its
/// tokens to be read.
/// Weights may be published while rows are in flight. They then go on with the new ones, over what they
/// remember from the old; each token has the log-probability of the weights that drew it, and the
/// completion the version that it was begun with. An error or a panic in a poll loses what was in flight.
pub struct LocalEngine<M: PolicyModel> {
    policy: Option<M>,
    version: u64,
    detokenizer: Arc<dyn Detokenizer>,
    max_sequences: usize,
    max_tokens: usize,
    sample_on: SampleOn,
    graphs: bool,
    decoding: Decoding<M>,
}

impl<M: PolicyModel> LocalEngine<M> {
    /// `max_sequences` is how many completions are decoded at once; `max_tokens` is the model's
    /// context, prompt and completion together. Until another is published, `policy` is version 0.
    pub fn new(
        policy: &M,
        detokenizer: Arc<dyn Detokenizer>,
        max_sequences: usize,
        max_tokens: usize,
        sample_on: SampleOn,
    ) -> Self {
        LocalEngine {
            policy: Some(policy.sampler()),
            version: 0,
            detokenizer,
            max_sequences: max_sequences.max(1),
            max_tokens,
            sample_on,
            graphs: false,
            decoding: Decoding::default(),
        }
    }

    /// Whether a device other than the CPU records the launches of a few steps once and repeats them, where the cache allows it:
    /// it need not be asked for each launch then. A device that can't fails.
    #[must_use]
    pub fn graphs(mut self, graphs: bool) -> Self {
        self.graphs = graphs;
        self
    }

    fn policy(&self) -> Result<&M, RolloutError> {
        self.policy.as_ref().ok_or(RolloutError::NoWeights)
    }

    fn check(&self, request: &GroupRequest) -> Result<(), RolloutError> {
        request.check()?;
        let prompt = request.prompt.tokens.len();
        let (completion, limit) = (request.sampling.max_completion_tokens, self.max_tokens);
        if prompt.saturating_add(completion) > limit {
            let id = request.prompt.id;
            return Err(RolloutError::TooLong { id, prompt, completion, limit });
        }
        Ok(())
    }
}

impl<M: PolicyModel> RolloutEngine<M> for LocalEngine<M> {
    fn publish(&mut self, policy: &M, version: u64) -> Result<(), RolloutError> {
        // First, because a rounded copy shares nothing with the policy: the old one and the next are
        // never there at once. What was recorded holds the old one.
        self.decoding.forget();
        self.policy = None;
        self.policy = Some(policy.sampler());
        self.version = version;
        Ok(())
    }

    fn submit(&mut self, requests: Vec<GroupRequest>) -> Result<(), RolloutError> {
        for request in &requests {
            self.check(request)?;
        }
        self.decoding.submit(requests)
    }

    fn poll(
        &mut self,
        wait: Wait,
        finished: &mut dyn FnMut(usize),
    ) -> Result<Vec<(RequestId, Group)>, RolloutError> {
        // Taken out, so that nothing is left of what fails half way.
        let mut decoding = std::mem::take(&mut self.decoding);
        while decoding.in_flight() {
            finished(decoding.turn(self)?);
            if wait == Wait::Never || decoding.has_groups() {
                break;
            }
        }
        let groups = decoding.take_groups();
        self.decoding = decoding;
        Ok(groups)
    }

    fn cancel(&mut self) {
        self.decoding = Decoding::default();
    }
}
