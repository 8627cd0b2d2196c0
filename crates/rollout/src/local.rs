use std::{collections::VecDeque, sync::Arc};

use burn::tensor::{Int, Tensor, TensorData};
use firebrick_core::{Completion, Detokenizer, FinishReason, Group, Seed, Stream, TokenId};
use firebrick_models::{DecodeCache, Padding, PolicyModel, TokenBatch, head_logits};

use crate::{
    GroupRequest, RolloutEngine, RolloutError, SampleOn, Sampling, sample_on_device, sample_on_host,
};

/// Samples in this process, from the very weights that are trained.
///
/// A prompt is prefilled once for its whole group. Sequences of different lengths run together;
/// when a quarter of the places has become free they are filled with the next groups, or, when none
/// is waiting, given up, so that the last long completions do not decode in a wide, empty batch.
pub struct LocalEngine<M> {
    policy: M,
    detokenizer: Arc<dyn Detokenizer>,
    max_sequences: usize,
    max_tokens: usize,
    sample_on: SampleOn,
}

impl<M: PolicyModel> LocalEngine<M> {
    /// `max_sequences` is how many completions are decoded at once; `max_tokens` is the model's
    /// context, prompt and completion together.
    pub fn new(
        policy: &M,
        detokenizer: Arc<dyn Detokenizer>,
        max_sequences: usize,
        max_tokens: usize,
        sample_on: SampleOn,
    ) -> Self {
        LocalEngine { policy: policy.sampler(), detokenizer, max_sequences, max_tokens, sample_on }
    }
}

impl<M: PolicyModel> RolloutEngine<M> for LocalEngine<M> {
    fn generate(
        &mut self,
        requests: &[GroupRequest],
        sampling: &Sampling,
        seed: Seed,
        finished: &mut dyn FnMut(usize),
    ) -> Result<Vec<Group>, RolloutError> {
        for request in requests {
            let prompt = request.prompt.tokens.len();
            if prompt + sampling.max_completion_tokens > self.max_tokens {
                return Err(RolloutError::TooLong {
                    id: request.prompt.id,
                    prompt,
                    completion: sampling.max_completion_tokens,
                    limit: self.max_tokens,
                });
            }
        }
        let mut decoding = Decoding {
            engine: self,
            requests,
            sampling,
            seed,
            waiting: waiting(requests),
            rows: Vec::new(),
            cache: None,
            done: requests.iter().map(|request| vec![None; request.group_size]).collect(),
        };
        loop {
            let before = decoding.finished();
            decoding.make_room()?;
            let live = decoding.rows.iter().any(Row::live);
            if live {
                decoding.step()?;
            }
            finished(decoding.finished() - before);
            // Without a row to decode all is done, or even the first tokens were the last.
            if !live && decoding.waiting.is_empty() {
                break;
            }
        }
        let groups = requests.iter().zip(decoding.done).map(|(request, completions)| Group {
            prompt: request.prompt.clone(),
            completions: completions.into_iter().flatten().collect(),
            step: 0,
            draw: request.draw,
        });
        Ok(groups.collect())
    }

    fn publish(&mut self, policy: &M) -> Result<(), RolloutError> {
        self.policy = policy.sampler();
        Ok(())
    }
}

/// Prompts of like length are prefilled together; the order of the results does not depend on it.
fn waiting(requests: &[GroupRequest]) -> VecDeque<usize> {
    let mut order: Vec<usize> = (0..requests.len()).collect();
    order.sort_by_key(|&index| requests[index].prompt.tokens.len());
    order.into()
}

/// Columns that the cache is grown by: more would attend to emptiness, fewer would copy too often.
pub(crate) const BLOCK: usize = 64;

/// Prompt tokens prefilled at once; attention scores grow with their length squared.
const PREFILL_TOKENS: usize = 8192;

/// One call of [`LocalEngine::generate`].
struct Decoding<'a, M: PolicyModel> {
    engine: &'a LocalEngine<M>,
    requests: &'a [GroupRequest],
    sampling: &'a Sampling,
    seed: Seed,
    /// Requests that have not begun.
    waiting: VecDeque<usize>,
    /// The rows of the cache, finished ones included until the next [`Decoding::make_room`].
    rows: Vec<Row>,
    cache: Option<M::Cache>,
    /// Finished completions, by request and index.
    done: Vec<Vec<Option<Completion>>>,
}

struct Row {
    request: usize,
    index: usize,
    stream: Stream,
    tokens: Vec<TokenId>,
    logprobs: Vec<f32>,
    finish: Option<FinishReason>,
}

impl Row {
    fn live(&self) -> bool {
        self.finish.is_none()
    }

    fn uniform(&mut self) -> f64 {
        let position = self.tokens.len() as u64;
        self.stream.uniform_at(position)
    }

    fn push(&mut self, (token, logprob): (TokenId, f32), sampling: &Sampling) {
        self.tokens.push(token);
        self.logprobs.push(logprob);
        self.finish = sampling.finish(&self.tokens);
    }
}

impl<M: PolicyModel> Decoding<'_, M> {
    /// Drops finished rows and admits waiting groups, when enough places are free to be worth
    /// copying the cache, or when it is full.
    fn make_room(&mut self) -> Result<(), RolloutError> {
        let places = self.engine.max_sequences;
        loop {
            let live = self.rows.iter().filter(|row| row.live()).count();
            let free = places.saturating_sub(live);
            let admitted = self.next_groups(live, free);
            let worth_filling = !admitted.is_empty() && (live == 0 || free * 4 >= places);
            let worth_shrinking =
                self.waiting.is_empty() && (self.rows.len() - live) * 4 >= self.rows.len().max(1);
            let full = live > 0 && self.cache.as_ref().is_some_and(|cache| cache.room() == 0);
            if worth_filling {
                self.waiting.drain(..admitted.len());
                self.arrange(&admitted)?;
            } else if (worth_shrinking && self.rows.len() > live) || full {
                return self.arrange(&[]);
            } else {
                return Ok(());
            }
        }
    }

    /// The next waiting groups that fit into `free` places and into one prefill.
    fn next_groups(&self, live: usize, free: usize) -> Vec<usize> {
        let (mut places, mut longest) = (0, 0);
        let fits = |&(taken, &request): &(usize, &usize)| {
            places += self.requests[request].group_size;
            longest = longest.max(self.requests[request].prompt.tokens.len());
            // One group is always taken when nothing runs, however large it is.
            (live == 0 && taken == 0)
                || (places <= free && (taken == 0 || longest * (taken + 1) <= PREFILL_TOKENS))
        };
        self.waiting.iter().enumerate().take_while(fits).map(|(_, &request)| request).collect()
    }

    /// Rebuilds the cache of the live rows and the groups `admitted`, whose first tokens are drawn.
    fn arrange(&mut self, admitted: &[usize]) -> Result<(), RolloutError> {
        let keep: Vec<usize> = (0..self.rows.len()).filter(|&row| self.rows[row].live()).collect();
        for row in std::mem::take(&mut self.rows) {
            if row.live() {
                self.rows.push(row);
            } else {
                self.finish(row);
            }
        }
        let mut prompts = None;
        if !admitted.is_empty() {
            let tokens: Vec<&[TokenId]> = admitted
                .iter()
                .map(|&request| self.requests[request].prompt.tokens.as_slice())
                .collect();
            let batch = TokenBatch::new(&tokens, Padding::Left, &self.engine.policy.device());
            let (hidden, cache) = self.engine.policy.prefill(&batch);
            let mut newcomers: Vec<Row> = Vec::new();
            let mut join = Vec::new();
            for (prompt, &request) in admitted.iter().enumerate() {
                for index in 0..self.requests[request].group_size {
                    let stream = self.requests[request].completion_seed(self.seed, index).stream();
                    let (tokens, logprobs) = (Vec::new(), Vec::new());
                    newcomers.push(Row { request, index, stream, tokens, logprobs, finish: None });
                    join.push(prompt);
                }
            }
            self.sample(
                hidden.select(0, indices(&join, &self.engine.policy.device())),
                &mut newcomers,
            )?;
            self.rows.append(&mut newcomers);
            prompts = Some((cache, join));
        }
        if self.rows.is_empty() {
            self.cache = None;
            return Ok(());
        }
        let most =
            self.rows.iter().map(|row| self.sampling.max_completion_tokens - row.tokens.len());
        let room = most.max().unwrap_or(0).clamp(1, BLOCK);
        let newcomers = prompts.as_ref().map(|(cache, join)| (cache, join.as_slice()));
        self.cache = match (self.cache.take(), newcomers) {
            (Some(cache), newcomers) => Some(cache.arrange(&keep, newcomers, room)),
            (None, Some((cache, join))) => Some(cache.clone().arrange(join, None, room)),
            (None, None) => None,
        };
        Ok(())
    }

    /// Decodes one token in every row.
    fn step(&mut self) -> Result<(), RolloutError> {
        let device = self.engine.policy.device();
        let last: Vec<usize> = self
            .rows
            .iter()
            .map(|row| row.tokens.last().map_or(0, |&token| token as usize))
            .collect();
        let cache = self.cache.as_mut().expect("rows were admitted together with their cache");
        let hidden = self.engine.policy.decode(indices(&last, &device), cache);
        let mut rows = std::mem::take(&mut self.rows);
        self.sample(hidden, &mut rows)?;
        self.rows = rows;
        Ok(())
    }

    /// Draws the next token of each live row from its hidden state, `[rows, hidden]`.
    fn sample(&self, hidden: Tensor<2>, rows: &mut [Row]) -> Result<(), RolloutError> {
        let logits = head_logits(hidden, self.engine.policy.head().val());
        let uniforms: Vec<f64> = rows.iter_mut().map(Row::uniform).collect();
        let drawn = draw_tokens(logits, &uniforms, self.sampling, self.engine.sample_on)?;
        for (row, drawn) in rows.iter_mut().zip(drawn) {
            if row.live() {
                row.push(drawn, self.sampling);
            }
        }
        Ok(())
    }

    fn finish(&mut self, row: Row) {
        let stop = row.finish == Some(FinishReason::Stop);
        let said = &row.tokens[..row.tokens.len() - usize::from(stop)];
        let text = self.engine.detokenizer.detokenize(said);
        let finish = row.finish.unwrap_or(FinishReason::Length);
        let completion = Completion::written(row.tokens, row.logprobs, finish).with_text(text);
        self.done[row.request][row.index] = Some(completion);
    }

    /// Completions that have ended, whether or not their row has been dropped yet.
    fn finished(&self) -> usize {
        self.done.iter().flatten().flatten().count()
            + self.rows.iter().filter(|row| !row.live()).count()
    }
}

/// Draws one token per row of `logits`, `[rows, vocab]`, at the uniform numbers; gives it with its
/// log-probability.
pub(crate) fn draw_tokens(
    logits: Tensor<2>,
    uniforms: &[f64],
    sampling: &Sampling,
    sample_on: SampleOn,
) -> Result<Vec<(TokenId, f32)>, RolloutError> {
    match sample_on {
        SampleOn::Host => {
            let logits: Vec<f32> = read(logits.try_into_vec_as::<f32>())?;
            Ok(sample_on_host(&logits, uniforms, sampling))
        }
        SampleOn::Device => {
            let uniforms: Vec<f32> = uniforms.iter().map(|&uniform| uniform as f32).collect();
            let uniforms = Tensor::from_floats(uniforms.as_slice(), &logits.device());
            let (tokens, logprobs) = sample_on_device(logits, uniforms, sampling);
            // One tensor, one read-back. Ids below 2²⁴ are exact in f32.
            let both = Tensor::stack::<2>(vec![tokens.float(), logprobs], 1);
            let both: Vec<f32> = read(both.try_into_vec_as::<f32>())?;
            let pairs = both.as_chunks::<2>().0.iter();
            Ok(pairs.map(|&[token, logprob]| (token as TokenId, logprob)).collect())
        }
    }
}

pub(crate) fn indices(values: &[usize], device: &burn::tensor::Device) -> Tensor<1, Int> {
    let values: Vec<i32> = values.iter().map(|&value| value as i32).collect();
    let count = values.len();
    Tensor::from_data(TensorData::new(values, [count]), device)
}

fn read<T, E: std::fmt::Debug>(result: Result<T, E>) -> Result<T, RolloutError> {
    result.map_err(|error| RolloutError::Device(format!("{error:?}")))
}
