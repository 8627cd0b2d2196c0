//! Decode steps that a device is given in advance, before the tokens of earlier ones are read.

use std::iter::zip;

use burn::tensor::{Int, Tensor, Transaction};
use firebrick_core::TokenId;
use firebrick_kernels::{Graph, joined, overwrite, overwrite_ints, sample_on_device};
use firebrick_models::{DecodeCache, PolicyModel, head_logits};

use crate::{RolloutError, Sampling};

/// The number of tokens that a row is given at once. A row that ends early continues for nothing to the last of
/// them, and to the last of the next run, which is given before these are read.
pub(super) const STEPS: usize = 4;

/// The number of runs that have to be alike for a recording to be worth making.
const ALIKE: usize = 4;

/// A run of steps: the device draws each token from the one before. Only tokens and log-probabilities are
/// ever read, eight bytes for each token.
#[derive(Debug)]
pub(super) struct QueuedSteps {
    rows: usize,
    /// The tokens and their log-probabilities, `[steps · rows]` each.
    tokens: Tensor<1, Int>,
    logprobs: Tensor<1>,
}

impl QueuedSteps {
    /// Gives the device a step for each row of `uniforms`, `[steps · rows]`. The rows follow their tokens
    /// `last`.
    pub(super) fn new<M: PolicyModel>(
        policy: &M,
        cache: &mut M::Cache,
        mut last: Tensor<1, Int>,
        uniforms: &Tensor<1>,
        sampling: &Sampling,
    ) -> Self {
        let rows = last.dims()[0];
        let (choice, head) = (sampling.choice(), policy.head().val());
        let drawn = (0..uniforms.dims()[0] / rows).map(|step| {
            let hidden = policy.decode(last.clone(), cache);
            let uniforms = uniforms.clone().narrow(0, step * rows, rows);
            let logits = head_logits(hidden, head.clone());
            let (tokens, logprobs) = sample_on_device(logits, uniforms, &choice);
            last = tokens.clone();
            (tokens, logprobs)
        });
        let (tokens, logprobs): (Vec<_>, Vec<_>) = drawn.unzip();
        let tokens = if tokens.len() == 1 { tokens[0].clone() } else { Tensor::cat(tokens, 0) };
        QueuedSteps { rows, tokens, logprobs: joined(logprobs, 0) }
    }

    pub(super) fn steps(&self) -> usize {
        self.tokens.dims()[0] / self.rows
    }

    /// Gives the newest tokens, which the device knows already.
    pub(super) fn last(&self) -> Tensor<1, Int> {
        self.tokens.clone().narrow(0, self.tokens.dims()[0] - self.rows, self.rows)
    }

    /// Waits for all tokens, and reads them: `[steps][rows]`.
    pub(super) fn read(self) -> Result<Vec<Vec<(TokenId, f32)>>, RolloutError> {
        let both = Transaction::default().register(self.tokens).register(self.logprobs);
        let both = both.try_execute();
        let both = both.map_err(|error| RolloutError::Device(format!("{error:?}")))?;
        let tokens = both[0].iter::<i64>().map(|token| token as TokenId);
        let drawn: Vec<(TokenId, f32)> = zip(tokens, both[1].iter::<f32>()).collect();
        Ok(drawn.chunks_exact(self.rows).map(<[_]>::to_vec).collect())
    }
}

/// A run of [`STEPS`] that the device repeats by itself. It is right while the rows, the weights and the
/// memory that the cache has made ready stay as they are.
pub(super) struct Recorded {
    graph: Graph<Begun, QueuedSteps>,
    /// The number of tokens of a row that the cache is still ready for.
    left: usize,
}

/// The tensors that a run begins with. The run leaves in them the values that the next run begins with.
struct Begun {
    last: Tensor<1, Int>,
    counter: Tensor<1, Int>,
    /// The numbers that the run's tokens are drawn at. They are sent before each run.
    uniforms: Tensor<1>,
}

impl Recorded {
    /// Gives the device a run as [`QueuedSteps::new`] does, and records it, if enough later runs can be like it.
    /// `left` is the number of tokens that a row may still take.
    pub(super) fn new<M: PolicyModel>(
        policy: &M,
        cache: &mut M::Cache,
        (last, uniforms): (&Tensor<1, Int>, &Tensor<1>),
        sampling: &Sampling,
        left: usize,
    ) -> Result<Option<(QueuedSteps, Self)>, RolloutError> {
        let worth = ALIKE * STEPS;
        let ready = if left < worth { 0 } else { cache.make_ready(left) };
        let Some(counter) = cache.counter().filter(|_| ready >= worth) else {
            return Ok(None);
        };
        // The run changes these tensors, and nothing else may see that.
        let (last, counter) = (copy_of(last), copy_of(&counter));
        cache.advance(counter.clone(), 0);
        let begun = Begun { last, counter, uniforms: uniforms.clone() };
        let run = |Begun { last, counter, uniforms }: &Begun| {
            let run = QueuedSteps::new(policy, cache, last.clone(), uniforms, sampling);
            overwrite_ints(last, &run.last());
            if let Some(now) = cache.counter() {
                overwrite_ints(counter, &now);
            }
            cache.advance(counter.clone(), 0);
            run
        };
        let (first, graph) = Graph::record(&policy.device(), begun, run).map_err(refused)?;
        // The second run was only recorded, and not done.
        cache.advance(graph.inputs().counter.clone(), -(STEPS as isize));
        Ok(Some((first, Recorded { graph, left: ready - STEPS })))
    }

    /// Tells whether the next run, of `steps` steps, is like the recorded run.
    pub(super) fn holds(&self, steps: usize) -> bool {
        steps == STEPS && self.left >= STEPS
    }

    /// Gives the device one more run.
    pub(super) fn repeat<C: DecodeCache>(
        &mut self,
        cache: &mut C,
        uniforms: &Tensor<1>,
    ) -> Result<QueuedSteps, RolloutError> {
        let begun = self.graph.inputs();
        overwrite(&begun.uniforms, uniforms);
        self.graph.replay().map_err(refused)?;
        cache.advance(begun.counter.clone(), STEPS as isize);
        self.left -= STEPS;
        // The results are copied before the next run takes their place.
        let run = self.graph.made();
        let logprobs = run.logprobs.zeros_like();
        overwrite(&logprobs, &run.logprobs);
        Ok(QueuedSteps { rows: run.rows, tokens: copy_of(&run.tokens), logprobs })
    }
}

fn copy_of(tokens: &Tensor<1, Int>) -> Tensor<1, Int> {
    let copy = tokens.zeros_like();
    overwrite_ints(&copy, tokens);
    copy
}

fn refused(said: String) -> RolloutError {
    RolloutError::Device(format!(
        "a step could not be recorded or repeated: {said}; set rollout.graphs = false"
    ))
}
