//! The engine `LocalEngine`, which samples in this process.

mod decoding;
mod multi_step;
mod ngram_proposer;

use std::sync::{Arc, atomic::AtomicU64};

use firebrick_core::{Detokenizer, Group, TokenId};
use firebrick_models::PolicyModel;

use self::decoding::DecodeScheduler;
use crate::{GroupRequest, RequestId, RolloutEngine, RolloutError, SampleOn, Wait};

/// A model whose weights take so many bytes has drafts. Those of a smaller one lie in the processor's cache, so that
/// every token of a pass takes as long as the first.
const DRAFTED: usize = 20_000_000;

/// Samples in this process, from the same weights that are trained.
///
/// A prompt is prefilled once for its whole group, and the group's completions share its cache. Sequences of
/// different lengths are decoded together, and the slot of a finished one is given to the next completion that waits
/// (continuous batching). If none waits, the row is dropped, so that the last long completions do not decode in a
/// wide, empty batch: immediately on the CPU, and as soon as a quarter of the rows is free on other devices, which may
/// compile kernels for each size.
///
/// The engine works while it is polled. [`Wait::Never`] admits what fits and decodes one token in every row, or a few
/// while there are few rows ([`LocalEngine::drafts`]). Devices other than the CPU decode a few tokens, while the tokens
/// of the previous poll are read, so that the device never waits for its tokens to be read.
///
/// Weights may be published while rows are in flight. The rows then continue with the new weights, over a cache
/// that the old weights made. Each token has the log-probability of the weights that sampled it, and the completion
/// has the version that it was started with. An error or a panic in a poll loses the work in flight. One such error is
/// a log-probability that is not finite ([`RolloutError::NotFinite`]).
pub struct LocalEngine<M: PolicyModel> {
    policy: Option<M>,
    version: u64,
    detokenizer: Arc<dyn Detokenizer>,
    max_sequences: usize,
    max_tokens: usize,
    sample_on: SampleOn,
    graphs: bool,
    drafts: bool,
    /// Number of tokens that were sampled.
    tokens: Arc<AtomicU64>,
    scheduler: DecodeScheduler<M>,
}

impl<M: PolicyModel> LocalEngine<M> {
    /// Makes an engine that decodes at most `max_sequences` completions at the same time. `max_tokens` is the model's
    /// context, prompt and completion together. Until another policy is published, `policy` is version 0.
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
            drafts: policy.weight_bytes() >= DRAFTED,
            tokens: Arc::default(),
            scheduler: DecodeScheduler::default(),
        }
    }

    /// Sets whether a device other than the CPU captures the launches of a few steps in a GPU graph and replays it, if
    /// the cache allows it, which saves the overhead of single launches. A device that can't do this fails.
    #[must_use]
    pub fn graphs(mut self, graphs: bool) -> Self {
        self.graphs = graphs;
        self
    }

    /// Sets whether a few rows are decoded with drafts of their next tokens, if the cache verifies drafts
    /// ([`DecodeCache::drafted`](firebrick_models::DecodeCache::drafted)) and tokens are sampled on the host. It
    /// changes no token, unless weights are published while rows are in flight. By default a model whose weights take
    /// 20 MB or more has drafts.
    #[must_use]
    pub fn drafts(mut self, drafts: bool) -> Self {
        self.drafts = drafts;
        self
    }

    /// Returns the tokens of the first unfinished completion that are sampled already, and their log-probabilities.
    pub(crate) fn written(&self) -> (&[TokenId], &[f32]) {
        self.scheduler.written()
    }

    fn policy(&self) -> Result<&M, RolloutError> {
        self.policy.as_ref().ok_or(RolloutError::NoWeights)
    }

    fn check(&self, request: &GroupRequest) -> Result<(), RolloutError> {
        request.check()?;

        let prompt = request.prompt.tokens.len();
        let completion = request.sampling.max_completion_tokens;
        let limit = self.max_tokens;
        if prompt.saturating_add(completion) > limit {
            let id = request.prompt.id;
            return Err(RolloutError::TooLong { id, prompt, completion, limit });
        }
        Ok(())
    }
}

impl<M: PolicyModel> RolloutEngine<M> for LocalEngine<M> {
    fn publish(&mut self, policy: &M, version: u64) -> Result<(), RolloutError> {
        // First of all, so that the old copy and the next never exist at the same time: a rounded copy shares nothing
        // with the policy.
        RolloutEngine::<M>::sleep(self);
        self.policy = Some(policy.sampler());
        self.version = version;
        Ok(())
    }

    fn submit(&mut self, requests: Vec<GroupRequest>) -> Result<(), RolloutError> {
        for request in &requests {
            self.check(request)?;
        }
        self.scheduler.submit(requests)
    }

    fn poll(
        &mut self,
        wait: Wait,
        finished: &mut dyn FnMut(usize),
    ) -> Result<Vec<(RequestId, Group)>, RolloutError> {
        // Taken out, so that nothing of the work remains if it fails halfway.
        let mut scheduler = std::mem::take(&mut self.scheduler);

        while scheduler.in_flight() {
            finished(scheduler.step(self)?);
            if wait == Wait::Never || scheduler.has_groups() {
                break;
            }
        }

        let groups = scheduler.take_groups();
        self.scheduler = scheduler;
        Ok(groups)
    }

    fn token_counter(&self) -> Option<Arc<AtomicU64>> {
        Some(self.tokens.clone())
    }

    fn cancel(&mut self) {
        self.scheduler = DecodeScheduler::default();
    }

    fn sleep(&mut self) {
        // A captured graph holds the weights too.
        self.scheduler.drop_graph();
        self.policy = None;
    }
}
