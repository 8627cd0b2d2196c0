//! The engine `LocalEngine`, which samples in this process.

mod decoding;
mod multi_step;

use std::sync::Arc;

use firebrick_core::{Detokenizer, Group};
use firebrick_models::PolicyModel;

use self::decoding::Decoding;
pub(crate) use self::decoding::indices;
use crate::{GroupRequest, RequestId, RolloutEngine, RolloutError, SampleOn, Wait};

/// Samples in this process, from the very weights that are trained.
///
/// A prompt is prefilled once for its whole group, and the group's completions share its cache. Sequences of
/// different lengths run together. The place of a finished sequence goes to the next completion that waits.
/// If none waits, the place is given up, so that the last long completions do not decode in a wide, empty
/// batch. On the CPU that is at once. On other devices, which may compile kernels for each size, it is when a
/// quarter of the places has become free.
///
/// The engine works while it is polled. [`Wait::Never`] admits what fits and decodes one token in every row.
/// On devices other than the CPU it decodes a few tokens, and reads those that the poll before asked for, so
/// that the device never waits for its tokens to be read.
///
/// Weights may be published while rows are in flight. The rows then continue with the new weights, over a cache
/// that the old weights made. Each token has the log-probability of the weights that drew it, and the
/// completion has the version that it was begun with. An error or a panic in a poll loses the work in flight.
/// A log-probability that is not finite is such an error ([`RolloutError::NotFinite`]).
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
    /// Makes an engine that decodes `max_sequences` completions at once. `max_tokens` is the model's context,
    /// prompt and completion together. Until another policy is published, `policy` is version 0.
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

    /// Sets whether a device other than the CPU records the launches of a few steps once and repeats them, if
    /// the cache allows it. The device then need not be asked for each launch. A device that cannot do this
    /// fails.
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
        // This comes first, so that the old copy and the next are never there at once: a rounded copy shares
        // nothing with the policy.
        RolloutEngine::<M>::sleep(self);
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
        // The work is taken out, so that nothing of it is left if it fails half way.
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

    fn sleep(&mut self) {
        // A recording holds the weights too.
        self.decoding.forget();
        self.policy = None;
    }
}
