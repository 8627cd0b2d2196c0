//! The work in flight of a [`LocalEngine`].

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use burn::tensor::{Device, Int, Tensor, TensorData};
use firebrick_core::{Completion, FinishReason, Group, Stream, TokenId};
use firebrick_kernels::together;
use firebrick_models::{DecodeCache, Padding, PolicyModel, TokenBatch, head_logits};

use super::LocalEngine;
use crate::{GroupRequest, RequestId, RolloutError, SampleOn, Sampling, sampler::draw_tokens};

/// Prompt tokens prefilled at once.
const PREFILL_TOKENS: usize = 8192;

/// Requests on their way to groups.
pub(super) struct Decoding<M: PolicyModel> {
    /// Those without all of their completions.
    open: BTreeMap<RequestId, Open>,
    /// Those among them of which some completions have not begun.
    waiting: VecDeque<RequestId>,
    /// The rows of the cache, finished ones included until the next [`Decoding::make_room`].
    rows: Vec<Row>,
    cache: Option<M::Cache>,
    /// Completions that have ended in this turn.
    ended: usize,
    groups: Vec<(RequestId, Group)>,
}

struct Open {
    request: GroupRequest,
    completions: Vec<Option<Completion>>,
    /// How many of them have begun.
    begun: usize,
}

/// Completions that begin together: so many of each of some requests.
type Admitted = Vec<(RequestId, usize)>;

/// A completion on its way.
struct Row {
    request: RequestId,
    index: usize,
    sampling: Arc<Sampling>,
    /// The version of the weights that it was begun with.
    version: u64,
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

    fn push(&mut self, (token, logprob): (TokenId, f32)) {
        self.tokens.push(token);
        self.logprobs.push(logprob);
        self.finish = self.sampling.finish(&self.tokens);
    }

    /// The completion that it is, when it ended for this reason. The row keeps its tokens: until it is
    /// dropped it is decoded with the others.
    fn completion<M: PolicyModel>(&self, why: FinishReason, engine: &LocalEngine<M>) -> Completion {
        let stop = why == FinishReason::Stop;
        let said = &self.tokens[..self.tokens.len() - usize::from(stop)];
        Completion::written(self.tokens.clone(), self.logprobs.clone(), why)
            .with_text(engine.detokenizer.detokenize(said))
            .with_version(self.version)
    }
}

impl<M: PolicyModel> Default for Decoding<M> {
    fn default() -> Self {
        Decoding {
            open: BTreeMap::new(),
            waiting: VecDeque::new(),
            rows: Vec::new(),
            cache: None,
            ended: 0,
            groups: Vec::new(),
        }
    }
}

impl<M: PolicyModel> Decoding<M> {
    /// Takes on requests, all or none. They begin after those that are waiting; among themselves those
    /// with short prompts come first, because prompts of like length are prefilled together.
    pub(super) fn submit(&mut self, mut requests: Vec<GroupRequest>) -> Result<(), RolloutError> {
        requests.sort_by_key(|request| request.prompt.tokens.len());
        let mut ids: Vec<RequestId> = requests.iter().map(|request| request.id).collect();
        ids.sort_unstable();
        let twice = ids.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
        if let Some(id) = twice.or(ids.into_iter().find(|id| self.open.contains_key(id))) {
            let problem = "has the id of another in flight, expected one of its own".into();
            return Err(RolloutError::Request { id, problem });
        }
        for request in requests {
            self.waiting.push_back(request.id);
            let completions = vec![None; request.group_size];
            self.open.insert(request.id, Open { request, completions, begun: 0 });
        }
        Ok(())
    }

    pub(super) fn in_flight(&self) -> bool {
        !self.open.is_empty()
    }

    pub(super) fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    pub(super) fn take_groups(&mut self) -> Vec<(RequestId, Group)> {
        std::mem::take(&mut self.groups)
    }

    /// Admits what fits and decodes one token in every row; gives how many completions have ended.
    pub(super) fn turn(&mut self, engine: &LocalEngine<M>) -> Result<usize, RolloutError> {
        self.make_room(engine)?;
        // Else even the first tokens of all were the last.
        if self.rows.iter().any(Row::live) {
            self.step(engine)?;
        }
        if !self.in_flight() {
            self.rows.clear();
            self.cache = None;
        }
        Ok(std::mem::take(&mut self.ended))
    }

    /// Drops finished rows and admits waiting groups, when enough places are free to be worth
    /// copying the cache, or when it is full.
    fn make_room(&mut self, engine: &LocalEngine<M>) -> Result<(), RolloutError> {
        let places = engine.max_sequences;
        loop {
            let live = self.rows.iter().filter(|row| row.live()).count();
            let free = places.saturating_sub(live);
            let admitted = self.next_groups(places, live);
            let worth_filling = !admitted.is_empty() && (live == 0 || free * 4 >= places);
            let worth_shrinking =
                self.waiting.is_empty() && (self.rows.len() - live) * 4 >= self.rows.len().max(1);
            let full = live > 0 && self.cache.as_ref().is_some_and(|cache| cache.room() == 0);
            if worth_filling {
                self.arrange(&admitted, engine)?;
            } else if (worth_shrinking && self.rows.len() > live) || full {
                return self.arrange(&[], engine);
            } else {
                return Ok(());
            }
        }
    }

    /// The next waiting groups that fit into the free ones of `places`, and into one prefill. A group that is
    /// larger than all places is taken in parts, and its prompt prefilled for each of them.
    fn next_groups(&self, places: usize, live: usize) -> Admitted {
        let mut free = places.saturating_sub(live);
        let mut longest = 0;
        let mut admitted = Vec::new();
        for id in &self.waiting {
            let Open { request, begun, .. } = &self.open[id];
            let left = request.group_size - begun;
            let rows = if request.group_size > places { left.min(free) } else { left };
            longest = longest.max(request.prompt.tokens.len());
            let prefill = longest * (admitted.len() + 1);
            if rows == 0 || rows > free || (prefill > PREFILL_TOKENS && !admitted.is_empty()) {
                break;
            }
            free -= rows;
            admitted.push((*id, rows));
        }
        admitted
    }

    /// Rebuilds the cache of the live rows and those that are `admitted`, whose first tokens are drawn.
    fn arrange(
        &mut self,
        admitted: &[(RequestId, usize)],
        engine: &LocalEngine<M>,
    ) -> Result<(), RolloutError> {
        let keep: Vec<usize> = (0..self.rows.len()).filter(|&row| self.rows[row].live()).collect();
        self.rows.retain(Row::live);
        if keep.is_empty() {
            // Not beside the next batch's.
            self.cache = None;
        }
        let mut prompts = None;
        if !admitted.is_empty() {
            let policy = engine.policy()?;
            let tokens: Vec<&[TokenId]> = admitted
                .iter()
                .map(|(id, _)| self.open[id].request.prompt.tokens.as_slice())
                .collect();
            let batch = TokenBatch::new(&tokens, Padding::Left, &policy.device());
            let (hidden, cache) = together(|| policy.prefill(&batch));
            let mut newcomers: Vec<Row> = Vec::new();
            let mut join = Vec::new();
            for (prompt, &(id, rows)) in admitted.iter().enumerate() {
                let Some(Open { request, begun, .. }) = self.open.get_mut(&id) else { continue };
                let first = std::mem::replace(begun, *begun + rows);
                for index in first..*begun {
                    newcomers.push(Row {
                        request: request.id,
                        index,
                        sampling: request.sampling.clone(),
                        version: engine.version,
                        stream: request.completion_seed(index).stream(),
                        tokens: Vec::new(),
                        logprobs: Vec::new(),
                        finish: None,
                    });
                    join.push(prompt);
                }
            }
            let open = &self.open;
            self.waiting.retain(|id| open[id].begun < open[id].request.group_size);
            let hidden = hidden.select(0, indices(&join, &policy.device()));
            self.sample(hidden, &mut newcomers, engine)?;
            self.rows.append(&mut newcomers);
            prompts = Some((cache, join));
        }
        if self.rows.is_empty() {
            self.cache = None;
            return Ok(());
        }
        let left = |row: &Row| row.sampling.max_completion_tokens - row.tokens.len();
        let room = self.rows.iter().map(left).max().unwrap_or(0).max(1);
        self.cache = match (self.cache.take(), prompts) {
            (Some(cache), Some((others, join))) => {
                Some(cache.arrange(&keep, Some((&others, &join)), room))
            }
            (Some(cache), None) => Some(cache.arrange(&keep, None, room)),
            (None, Some((cache, join))) => Some(cache.arrange(&join, None, room)),
            (None, None) => None,
        };
        // Else every row would go on with the memory of another.
        let came = self.cache.as_ref().map_or(0, M::Cache::rows);
        expect_rows("DecodeCache::arrange", self.rows.len(), came)
    }

    /// Decodes one token in every row.
    fn step(&mut self, engine: &LocalEngine<M>) -> Result<(), RolloutError> {
        let policy = engine.policy()?;
        let last: Vec<usize> = self
            .rows
            .iter()
            .map(|row| row.tokens.last().map_or(0, |&token| token as usize))
            .collect();
        let cache = self.cache.as_mut().expect("rows were admitted together with their cache");
        let hidden = together(|| policy.decode(indices(&last, &policy.device()), cache));
        let mut rows = std::mem::take(&mut self.rows);
        self.sample(hidden, &mut rows, engine)?;
        self.rows = rows;
        Ok(())
    }

    /// Draws the next token of each live row from its hidden state, `[rows, hidden]`.
    fn sample(
        &mut self,
        hidden: Tensor<2>,
        rows: &mut [Row],
        engine: &LocalEngine<M>,
    ) -> Result<(), RolloutError> {
        expect_rows("prefill or decode", rows.len(), hidden.dims()[0])?;
        let head = engine.policy()?.head().val();
        let on = engine.sample_on;
        let drawn = together(|| draw(head_logits(hidden, head), rows, on))?;
        for (row, drawn) in rows.iter_mut().zip(drawn) {
            if row.live() {
                row.push(drawn);
                if let Some(why) = row.finish {
                    self.end(row.request, row.index, row.completion(why, engine));
                }
            }
        }
        Ok(())
    }

    fn end(&mut self, request: RequestId, index: usize, completion: Completion) {
        self.ended += 1;
        let Some(open) = self.open.get_mut(&request) else { return };
        open.completions[index] = Some(completion);
        if open.completions.iter().all(Option::is_some)
            && let Some(Open { request, completions, .. }) = self.open.remove(&request)
        {
            self.groups.push(request.answer(completions.into_iter().flatten().collect()));
        }
    }
}

/// A token of `logits`, `[rows, vocab]`, for each row; rows that are drawn alike are drawn together.
fn draw(
    logits: Tensor<2>,
    rows: &mut [Row],
    sample_on: SampleOn,
) -> Result<Vec<(TokenId, f32)>, RolloutError> {
    let uniforms: Vec<f64> = rows.iter_mut().map(Row::uniform).collect();
    let mut drawn = vec![(0, 0.0); rows.len()];
    let mut left: Vec<usize> = (0..rows.len()).collect();
    while let Some(&first) = left.first() {
        let sampling = &rows[first].sampling;
        let alike = |&row: &usize| {
            Arc::ptr_eq(&rows[row].sampling, sampling) || rows[row].sampling == *sampling
        };
        let (some, others): (Vec<usize>, Vec<usize>) = left.into_iter().partition(alike);
        let logits = match some.len() == rows.len() {
            true => logits.clone(),
            false => logits.clone().select(0, indices(&some, &logits.device())),
        };
        let numbers: Vec<f64> = some.iter().map(|&row| uniforms[row]).collect();
        for (&row, token) in some.iter().zip(draw_tokens(logits, &numbers, sampling, sample_on)?) {
            drawn[row] = token;
        }
        left = others;
    }
    Ok(drawn)
}

fn expect_rows(what: &'static str, expected: usize, came: usize) -> Result<(), RolloutError> {
    if came == expected { Ok(()) } else { Err(RolloutError::Rows { what, expected, came }) }
}

pub(crate) fn indices(values: &[usize], device: &Device) -> Tensor<1, Int> {
    let values: Vec<i32> = values.iter().map(|&value| value as i32).collect();
    let count = values.len();
    Tensor::from_data(TensorData::new(values, [count]), device)
}
