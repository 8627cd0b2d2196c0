//! The work in flight of a `LocalEngine`: requests, rows and completions on their way.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use burn::tensor::{Device, Int, Tensor, TensorData};
use firebrick_core::{Completion, FinishReason, Group, Stream, TokenId};
use firebrick_kernels::{joined, together};
use firebrick_models::{DecodeCache, Padding, PolicyModel, TokenBatch, head_logits};

use super::{
    LocalEngine,
    multi_step::{QueuedSteps, Recorded, STEPS},
};
use crate::{GroupRequest, RequestId, RolloutError, SampleOn, Sampling, sampler::draw_tokens};

/// The number of prompt tokens that are prefilled at once.
const PREFILL_TOKENS: usize = 8192;

/// Requests on their way to groups.
pub(super) struct Decoding<M: PolicyModel> {
    /// The requests without all of their completions.
    open: BTreeMap<RequestId, Open>,
    /// The open requests whose prompts have not been prefilled.
    waiting: VecDeque<RequestId>,
    /// Prompts that have been prefilled, some of whose completions have not begun.
    ready: Option<Ready<M>>,
    /// The rows of the cache, finished ones included until they are dropped.
    rows: Vec<Row>,
    cache: Option<M::Cache>,
    /// The tokens of all rows that the device is drawing.
    queued: Option<QueuedSteps>,
    /// The recording that the device repeats to draw tokens, if it does.
    recorded: Option<Recorded>,
    /// The number of completions that have ended in this turn.
    ended: usize,
    groups: Vec<(RequestId, Group)>,
}

/// Prompts that were prefilled together.
struct Ready<M: PolicyModel> {
    cache: M::Cache,
    /// The hidden state of each prompt's last token, `[prompts, hidden]`.
    hidden: Tensor<2>,
    /// The prompts some of whose completions have still to begin, by their rows in the cache.
    prompts: VecDeque<(usize, RequestId)>,
    version: u64,
}

/// The completions that begin together, each with its prompt's row among the ready prompts.
type Newcomers = Vec<(usize, Row)>;

struct Open {
    request: GroupRequest,
    completions: Vec<Option<Completion>>,
    /// The number of completions that have begun.
    begun: usize,
}

/// A completion on its way.
struct Row {
    request: RequestId,
    index: usize,
    sampling: Arc<Sampling>,
    /// The version of the weights that the completion was begun with.
    version: u64,
    stream: Stream,
    tokens: Vec<TokenId>,
    logprobs: Vec<f32>,
    finish: Option<FinishReason>,
}

impl Row {
    /// Makes a row for a completion that has no token yet.
    fn new(request: &GroupRequest, index: usize, version: u64) -> Self {
        Row {
            request: request.id,
            index,
            sampling: request.sampling.clone(),
            version,
            stream: request.completion_seed(index).stream(),
            tokens: Vec::new(),
            logprobs: Vec::new(),
            finish: None,
        }
    }

    fn last(&self) -> usize {
        self.tokens.last().map_or(0, |&token| token as usize)
    }

    fn live(&self) -> bool {
        self.finish.is_none()
    }

    /// Gives the number that the row's next token is drawn at, or the token `after` that one.
    fn uniform(&mut self, after: usize) -> f64 {
        let position = self.tokens.len() + after;
        self.stream.uniform_at(position as u64)
    }

    fn push(&mut self, (token, logprob): (TokenId, f32)) {
        self.tokens.push(token);
        self.logprobs.push(logprob);
        self.finish = self.sampling.finish(&self.tokens);
    }

    /// Gives the row's completion, which ended for the reason `why`. The row keeps its tokens: until it is
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
            ready: None,
            rows: Vec::new(),
            cache: None,
            queued: None,
            recorded: None,
            ended: 0,
            groups: Vec::new(),
        }
    }
}

impl<M: PolicyModel> Decoding<M> {
    /// Takes on requests, all or none. They begin after the requests that are waiting. Among themselves those
    /// with short prompts come first, because prompts of similar length are prefilled together.
    pub(super) fn submit(&mut self, mut requests: Vec<GroupRequest>) -> Result<(), RolloutError> {
        requests.sort_by_key(|request| request.prompt.tokens.len());
        let mut ids: Vec<RequestId> = requests.iter().map(|request| request.id).collect();
        ids.sort_unstable();
        let twice = ids.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
        if let Some(id) = twice.or(ids.into_iter().find(|id| self.open.contains_key(id))) {
            let problem =
                "has the id of another request in flight, expected an id of its own".into();
            return Err(RolloutError::Request { id, problem });
        }
        for request in requests {
            self.waiting.push_back(request.id);
            let completions = vec![None; request.group_size];
            self.open.insert(request.id, Open { request, completions, begun: 0 });
        }
        Ok(())
    }

    /// Drops the recording, which holds weights that are about to go.
    pub(super) fn forget(&mut self) {
        self.recorded = None;
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

    /// Admits what fits and draws one token in every row, or a few tokens if rows continue as they are. Gives
    /// the number of completions that have ended.
    pub(super) fn turn(&mut self, engine: &LocalEngine<M>) -> Result<usize, RolloutError> {
        if self.goes_ahead(engine) {
            self.queue_steps(engine)?;
        } else {
            self.recorded = None;
            self.settle(engine)?;
            self.admit_and_draw(engine)?;
        }
        if !self.in_flight() {
            self.rows.clear();
            self.recorded = None;
            (self.cache, self.ready, self.queued) = (None, None, None);
        }
        Ok(std::mem::take(&mut self.ended))
    }

    fn admit_and_draw(&mut self, engine: &LocalEngine<M>) -> Result<(), RolloutError> {
        let mut filling = false;
        loop {
            let newcomers = self.admit(filling, engine)?;
            // The newcomers of the next prefill begin together with the rows that there are: a product with
            // the head costs as much for a few rows as for many.
            let begun = newcomers.len();
            filling = begun > 0;
            if filling && self.admissible(begun, filling, engine) > 0 {
                self.draw(false, newcomers, engine)?;
            } else {
                return self.draw(true, newcomers, engine);
            }
        }
    }

    /// Tells whether rows continue as they are, so that the device can draw their tokens without being asked for
    /// each.
    fn goes_ahead(&self, engine: &LocalEngine<M>) -> bool {
        let alike = |row: &Row| row.sampling.choice() == self.rows[0].sampling.choice();
        engine.sample_on == SampleOn::Device
            && self.rows.iter().any(Row::live)
            && self.rows.iter().all(alike)
            && self.admissible(0, false, engine) == 0
    }

    /// Gives the device the next steps of all rows, and then reads the tokens of the steps that it was given
    /// before.
    fn queue_steps(&mut self, engine: &LocalEngine<M>) -> Result<(), RolloutError> {
        let before = self.queued.take();
        let drawn = before.as_ref().map_or(0, QueuedSteps::steps);
        let left = |row: &Row| row.sampling.max_completion_tokens - row.tokens.len();
        let left = self.rows.iter().filter(|row| row.live()).map(left).max().unwrap_or(0);
        if left > drawn && self.cache.as_ref().is_some_and(|cache| cache.room() == 0) {
            // Rows keep their order, and so do the tokens that are being drawn.
            self.arrange(&(0..self.rows.len()).collect::<Vec<_>>(), &[])?;
        }
        let room = self.cache.as_ref().map_or(0, M::Cache::room);
        let steps = STEPS.min(left.saturating_sub(drawn)).min(room);
        if steps > 0
            && let Some(cache) = &mut self.cache
        {
            let policy = engine.policy()?;
            let known: Vec<usize> = self.rows.iter().map(Row::last).collect();
            let last = before.as_ref().map(QueuedSteps::last);
            let last = last.unwrap_or_else(|| indices(&known, &policy.device()));
            let uniforms = (0..steps * self.rows.len()).map(|at| {
                let (step, row) = (at / known.len(), at % known.len());
                self.rows[row].uniform(drawn + step) as f32
            });
            let uniforms = TensorData::new(uniforms.collect::<Vec<f32>>(), [steps * known.len()]);
            let uniforms = Tensor::from_data(uniforms, &policy.device().inner());
            let sampling = self.rows[0].sampling.clone();
            let graphs = engine.graphs;
            let recorded = self.recorded.take().filter(|it| it.holds(steps));
            let queued = || {
                if let Some(mut recorded) = recorded {
                    let queued = recorded.repeat(cache, &uniforms)?;
                    return Ok((queued, Some(recorded)));
                }
                if graphs && steps == STEPS {
                    let first = (&last, &uniforms);
                    let both = Recorded::new(policy, cache, first, &sampling, left - drawn)?;
                    if let Some((queued, recorded)) = both {
                        return Ok((queued, Some(recorded)));
                    }
                }
                Ok((QueuedSteps::new(policy, cache, last, &uniforms, &sampling), None))
            };
            let (queued, recorded) = together(&policy.device(), queued)?;
            (self.queued, self.recorded) = (Some(queued), recorded);
        }
        if let Some(before) = before {
            self.take(before, engine)?;
        }
        let gone = self.rows.iter().filter(|row| !row.live()).count();
        if gone == self.rows.len() || gone * 4 >= self.rows.len().max(1) {
            self.settle(engine)?;
            let keep: Vec<usize> =
                (0..self.rows.len()).filter(|&row| self.rows[row].live()).collect();
            self.rows.retain(Row::live);
            self.arrange(&keep, &[])?;
        }
        Ok(())
    }

    /// Reads all tokens that the device has been asked for.
    fn settle(&mut self, engine: &LocalEngine<M>) -> Result<(), RolloutError> {
        self.queued.take().map_or(Ok(()), |queued| self.take(queued, engine))
    }

    /// Reads the tokens of some steps. Tokens behind a row's end belong to no completion.
    fn take(&mut self, queued: QueuedSteps, engine: &LocalEngine<M>) -> Result<(), RolloutError> {
        for drawn in queued.read()? {
            expect_rows("decode", self.rows.len(), drawn.len())?;
            self.push(0, drawn, engine)?;
        }
        Ok(())
    }

    /// Gives the rows from `first` on their tokens. A token that was drawn from numbers that are not finite
    /// means nothing.
    fn push(
        &mut self,
        first: usize,
        drawn: Vec<(TokenId, f32)>,
        engine: &LocalEngine<M>,
    ) -> Result<(), RolloutError> {
        let mut ended = Vec::new();
        for (row, drawn) in self.rows[first..].iter_mut().zip(drawn) {
            if row.live() {
                let (id, logprob) = (row.request, drawn.1);
                if !logprob.is_finite() {
                    return Err(RolloutError::NotFinite { id, logprob });
                }
                row.push(drawn);
                if let Some(why) = row.finish {
                    ended.push((row.request, row.index, row.completion(why, engine)));
                }
            }
        }
        for (request, index, completion) in ended {
            self.end(request, index, completion);
        }
        Ok(())
    }

    /// Gives the number of completions that can begin now, beside the `begun` ones that are about to.
    ///
    /// On a device that compiles a kernel for each size, free places stay empty until they are a quarter of
    /// all. Then all of them are filled, in this turn, in which some have been if it is `filling` them.
    fn admissible(&self, begun: usize, filling: bool, engine: &LocalEngine<M>) -> usize {
        let places = engine.max_sequences;
        let live = self.rows.iter().filter(|row| row.live()).count() + begun;
        let free = places.saturating_sub(live);
        let ready = self.ready.as_ref().is_some_and(|ready| !ready.prompts.is_empty());
        let none = self.waiting.is_empty() && !ready;
        let worth =
            engine.sample_on == SampleOn::Host || live == 0 || filling || free * 4 >= places;
        if none || !worth { 0 } else { free }
    }

    /// Gives the completions that begin now. Their prompts were all prefilled together.
    fn admit(&mut self, filling: bool, engine: &LocalEngine<M>) -> Result<Newcomers, RolloutError> {
        if let Some(ready) = self.ready.take_if(|ready| ready.version != engine.version) {
            // These prompts were prefilled with old weights.
            ready.prompts.into_iter().rev().for_each(|(_, id)| self.waiting.push_front(id));
        }
        self.ready.take_if(|ready| ready.prompts.is_empty());
        let free = self.admissible(0, filling, engine);
        if free == 0 {
            return Ok(Vec::new());
        }
        let Some(mut ready) =
            self.ready.take().map_or_else(|| self.prefill(engine), |it| Ok(Some(it)))?
        else {
            return Ok(Vec::new());
        };
        let mut newcomers = Vec::new();
        while newcomers.len() < free
            && let Some(&(prompt, id)) = ready.prompts.front()
            && let Some(Open { request, begun, .. }) = self.open.get_mut(&id)
        {
            newcomers.push((prompt, Row::new(request, *begun, engine.version)));
            *begun += 1;
            if *begun == request.group_size {
                ready.prompts.pop_front();
            }
        }
        self.ready = Some(ready);
        Ok(newcomers)
    }

    /// Prefills the next waiting prompts: as many as have completions for all places.
    fn prefill(&mut self, engine: &LocalEngine<M>) -> Result<Option<Ready<M>>, RolloutError> {
        let (mut rows, mut longest, mut count) = (0, 0, 0);
        for id in &self.waiting {
            let Open { request, begun, .. } = &self.open[id];
            longest = longest.max(request.prompt.tokens.len());
            if count > 0 && (rows >= engine.max_sequences || longest * (count + 1) > PREFILL_TOKENS)
            {
                break;
            }
            rows += request.group_size - begun;
            count += 1;
        }
        if count == 0 {
            return Ok(None);
        }
        let policy = engine.policy()?;
        let ids: Vec<RequestId> = self.waiting.drain(..count).collect();
        let tokens: Vec<&[TokenId]> =
            ids.iter().map(|id| self.open[id].request.prompt.tokens.as_slice()).collect();
        let device = policy.device();
        let batch = TokenBatch::new(&tokens, Padding::Left, &device);
        let (hidden, cache) = together(&device, || policy.prefill(&batch));
        expect_rows("prefill", ids.len(), hidden.dims()[0])?;
        let prompts = ids.into_iter().enumerate().collect();
        Ok(Some(Ready { cache, hidden, prompts, version: engine.version }))
    }

    /// Draws the first tokens of newcomers and, if `all`, the next token of every row. Then drops the rows
    /// that ended.
    fn draw(
        &mut self,
        all: bool,
        newcomers: Newcomers,
        engine: &LocalEngine<M>,
    ) -> Result<(), RolloutError> {
        let policy = engine.policy()?;
        let device = policy.device();
        let (join, newcomers): (Vec<usize>, Vec<Row>) = newcomers.into_iter().unzip();
        let first = self.ready.as_ref().filter(|_| !join.is_empty());
        let first = first.map(|ready| ready.hidden.clone().select(0, indices(&join, &device)));
        let old = self.rows.len();
        let decoded = if all && self.rows.iter().any(Row::live) { old } else { 0 };
        if decoded > 0 && self.cache.as_ref().is_some_and(|cache| cache.room() == 0) {
            self.arrange(&(0..old).collect::<Vec<_>>(), &[])?;
        }
        self.rows.extend(newcomers);
        let rows = &mut self.rows[old - decoded..];
        if rows.is_empty() {
            return Ok(());
        }
        let (cache, on) = (self.cache.as_mut(), engine.sample_on);
        // ANCHOR: tour
        let drawn = together(&device, || {
            let next = cache.filter(|_| decoded > 0).map(|cache| {
                let last: Vec<usize> = rows[..decoded].iter().map(Row::last).collect();
                policy.decode(indices(&last, &device), cache)
            });
            let hidden = joined(next.into_iter().chain(first).collect(), 0);
            expect_rows("prefill or decode", rows.len(), hidden.dims()[0])?;
            draw(head_logits(hidden, policy.head().val()), rows, on)
        })?;
        self.push(old - decoded, drawn, engine)?;
        // ANCHOR_END: tour
        let (keep, join): (Vec<usize>, Vec<usize>) = {
            let live = |&row: &usize| self.rows[row].live();
            let joining = (old..self.rows.len()).filter(live).map(|row| join[row - old]);
            ((0..old).filter(live).collect(), joining.collect())
        };
        // On a device, ended rows are dropped only when others join or a quarter of the rows has ended.
        let lazy = engine.sample_on == SampleOn::Device && (old - keep.len()) * 4 < old.max(1);
        if join.is_empty() && (keep.len() == old || (lazy && !keep.is_empty())) {
            self.rows.truncate(old);
            return Ok(());
        }
        self.rows.retain(Row::live);
        self.arrange(&keep, &join)
    }

    /// Makes the next cache from the rows `keep` of the old cache, and the rows `join` of the ready prompts.
    fn arrange(&mut self, keep: &[usize], join: &[usize]) -> Result<(), RolloutError> {
        self.recorded = None;
        let left = |row: &Row| row.sampling.max_completion_tokens - row.tokens.len();
        let room = self.rows.iter().map(left).max().unwrap_or(0).max(1);
        if keep.is_empty() {
            // The old cache goes first, so that it is not there beside that of the next batch.
            self.cache = None;
        }
        let over = |ready: &mut Ready<M>| ready.prompts.is_empty();
        self.cache = match (self.cache.take(), join.is_empty()) {
            (Some(cache), true) => Some(cache.arrange(keep, None, room)),
            (Some(cache), false) => {
                let others = self.ready.as_ref().map(|ready| (&ready.cache, join));
                Some(cache.arrange(keep, others, room))
            }
            (None, true) => None,
            (None, false) => {
                let others = match self.ready.take_if(over) {
                    Some(ready) => Some(ready.cache),
                    None => self.ready.as_ref().map(|ready| ready.cache.clone()),
                };
                others.map(|cache| cache.arrange(join, None, room))
            }
        };
        self.ready.take_if(over);
        // Otherwise every row would continue with the memory of another.
        let came = self.cache.as_ref().map_or(0, M::Cache::rows);
        expect_rows("DecodeCache::arrange", self.rows.len(), came)
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

/// Draws a token of `logits`, `[rows, vocab]`, for each row. Rows that are drawn alike are drawn together.
fn draw(
    logits: Tensor<2>,
    rows: &mut [Row],
    sample_on: SampleOn,
) -> Result<Vec<(TokenId, f32)>, RolloutError> {
    let uniforms: Vec<f64> = rows.iter_mut().map(|row| row.uniform(0)).collect();
    let mut drawn = vec![(0, 0.0); rows.len()];
    let mut left: Vec<usize> = (0..rows.len()).collect();
    while let Some(&first) = left.first() {
        let sampling = &rows[first].sampling;
        let alike = |&row: &usize| rows[row].sampling.choice() == sampling.choice();
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
