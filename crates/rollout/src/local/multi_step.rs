//! Decode steps that are queued on a device before the tokens of earlier steps are read.

use std::iter::zip;

use burn::tensor::{Int, Tensor, Transaction};
use firebrick_core::TokenId;
use firebrick_kernels::{Graph, joined, overwrite, overwrite_ints, sample_on_device};
use firebrick_models::{DecodeCache, PolicyModel, head_logits};

use crate::{RolloutError, Sampling};

/// How many tokens of a row are queued together, in one run. A row that ends early is decoded in vain to the end of the
/// run, and of the next run, which is queued before these tokens are read.
pub(super) const STEPS: usize = 4;

/// A graph is captured only if at least this many runs can use it.
const MIN_RUNS: usize = 4;

/// A run of steps, in which the device samples each token given the one before. Only tokens and log-probabilities are
/// read by the host, eight bytes for each token.
#[derive(Debug)]
pub(super) struct QueuedSteps {
    rows: usize,
    /// Sampled tokens and their log-probabilities, `[steps · rows]` each.
    tokens: Tensor<1, Int>,
    logprobs: Tensor<1>,
}

impl QueuedSteps {
    /// Queues steps with the random numbers `uniforms`, `[steps · rows]`. `last_tokens` has the newest token of each
    /// row.
    pub(super) fn new<M: PolicyModel>(
        policy: &M,
        cache: &mut M::Cache,
        mut last_tokens: Tensor<1, Int>,
        uniforms: &Tensor<1>,
        sampling: &Sampling,
    ) -> Self {
        let rows = last_tokens.dims()[0];
        let token_sampling = sampling.token_sampling();
        let head = policy.lm_head();

        let sampled = (0..uniforms.dims()[0] / rows).map(|step| {
            let hidden = policy.decode(last_tokens.clone(), cache);
            let uniforms = uniforms.clone().narrow(0, step * rows, rows);
            let logits = head_logits(hidden, &head);
            let (tokens, logprobs) = sample_on_device(logits, uniforms, &token_sampling);
            last_tokens = tokens.clone();
            (tokens, logprobs)
        });

        let (tokens, logprobs): (Vec<_>, Vec<_>) = sampled.unzip();
        let tokens = if tokens.len() == 1 { tokens[0].clone() } else { Tensor::cat(tokens, 0) };
        QueuedSteps { rows, tokens, logprobs: joined(logprobs, 0) }
    }

    pub(super) fn steps(&self) -> usize {
        self.tokens.dims()[0] / self.rows
    }

    /// Returns the newest token of each row, which is on the device already.
    pub(super) fn last_tokens(&self) -> Tensor<1, Int> {
        self.tokens.clone().narrow(0, self.tokens.dims()[0] - self.rows, self.rows)
    }

    /// Waits for all tokens, and reads them: `[steps][rows]`.
    pub(super) fn read(self) -> Result<Vec<Vec<(TokenId, f32)>>, RolloutError> {
        // One transaction for both tensors costs one wait, not two.
        let both = Transaction::default().register(self.tokens).register(self.logprobs);
        let both = both.try_execute();
        let both = both.map_err(|error| RolloutError::Device(format!("{error:?}")))?;
        let tokens = both[0].iter::<i64>().map(|token| token as TokenId);
        let sampled: Vec<(TokenId, f32)> = zip(tokens, both[1].iter::<f32>()).collect();
        Ok(sampled.chunks_exact(self.rows).map(<[_]>::to_vec).collect())
    }
}

/// Captured GPU graph of a run of [`STEPS`] steps. It is valid until the rows or the weights change, or the memory that
/// the cache has reserved is used up.
pub(super) struct CapturedGraph {
    graph: Graph<GraphInputs, QueuedSteps>,
    /// For how many more tokens of a row the cache has reserved memory.
    reserved: usize,
}

/// Tensors that a run reads, and in which it leaves the values for the next run.
struct GraphInputs {
    last_tokens: Tensor<1, Int>,
    counter: Tensor<1, Int>,
    /// Uniform random numbers for the run's tokens, sent before each run.
    uniforms: Tensor<1>,
}

impl CapturedGraph {
    /// Queues a run as [`QueuedSteps::new`] does, and captures it. Queues nothing and returns `None` if too few
    /// later runs could use the graph. `remaining` is the number of tokens that a row may still have.
    pub(super) fn new<M: PolicyModel>(
        policy: &M,
        cache: &mut M::Cache,
        (last_tokens, uniforms): (&Tensor<1, Int>, &Tensor<1>),
        sampling: &Sampling,
        remaining: usize,
    ) -> Result<Option<(QueuedSteps, Self)>, RolloutError> {
        let least = MIN_RUNS * STEPS;
        let Some(replayed) = cache.replayed().filter(|_| remaining >= least) else {
            return Ok(None);
        };
        let reserved = replayed.make_ready(remaining);
        let Some(counter) = replayed.counter().filter(|_| reserved >= least) else {
            return Ok(None);
        };

        // The run overwrites these tensors, and nothing else may see that.
        let last_tokens = copy_of(last_tokens);
        let counter = copy_of(&counter);
        replayed.advance(counter.clone(), 0);
        let inputs = GraphInputs { last_tokens, counter, uniforms: uniforms.clone() };

        let run = |GraphInputs { last_tokens, counter, uniforms }: &GraphInputs| {
            let run = QueuedSteps::new(policy, cache, last_tokens.clone(), uniforms, sampling);
            overwrite_ints(last_tokens, &run.last_tokens());
            if let Some(replayed) = cache.replayed() {
                if let Some(count) = replayed.counter() {
                    overwrite_ints(counter, &count);
                }
                replayed.advance(counter.clone(), 0);
            }
            run
        };

        let (first, graph) = Graph::record(&policy.device(), inputs, run).map_err(graph_error)?;
        // The second run was captured without being executed.
        advance(cache, &graph, -(STEPS as isize));
        Ok(Some((first, CapturedGraph { graph, reserved: reserved - STEPS })))
    }

    /// Tells whether the graph can be the next run, of `steps` steps.
    pub(super) fn matches(&self, steps: usize) -> bool {
        steps == STEPS && self.reserved >= STEPS
    }

    /// Queues one more run.
    pub(super) fn replay<C: DecodeCache>(
        &mut self,
        cache: &mut C,
        uniforms: &Tensor<1>,
    ) -> Result<QueuedSteps, RolloutError> {
        let inputs = self.graph.inputs();
        overwrite(&inputs.uniforms, uniforms);
        self.graph.replay().map_err(graph_error)?;
        advance(cache, &self.graph, STEPS as isize);
        self.reserved -= STEPS;

        // The results are copied before the next run overwrites them.
        let run = self.graph.made();
        let logprobs = run.logprobs.zeros_like();
        overwrite(&logprobs, &run.logprobs);
        Ok(QueuedSteps { rows: run.rows, tokens: copy_of(&run.tokens), logprobs })
    }
}

/// Tells the cache that the graph has counted `tokens` tokens more.
fn advance<C: DecodeCache>(cache: &mut C, graph: &Graph<GraphInputs, QueuedSteps>, tokens: isize) {
    if let Some(replayed) = cache.replayed() {
        replayed.advance(graph.inputs().counter.clone(), tokens);
    }
}

fn copy_of(tokens: &Tensor<1, Int>) -> Tensor<1, Int> {
    let copy = tokens.zeros_like();
    overwrite_ints(&copy, tokens);
    copy
}

fn graph_error(message: String) -> RolloutError {
    RolloutError::Device(format!(
        "a step could not be recorded or repeated: {message}; set rollout.graphs = false"
    ))
}
