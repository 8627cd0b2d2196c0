//! The work in flight of a `LocalEngine`: requests, rows and unfinished completions.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, atomic::Ordering},
};

use burn::tensor::{Device, Int, Tensor, TensorData};
use firebrick_core::{Completion, FinishReason, Group, RandomStream, TokenId};
use firebrick_kernels::{joined, run_on_compute_thread};
use firebrick_models::{DecodeCache, Padding, PolicyModel, TokenBatch, head_logits};

use super::{
    LocalEngine,
    multi_step::{CapturedGraph, QueuedSteps, STEPS},
    ngram_proposer::{Draft, NgramProposer, PASS},
};
use crate::{GroupRequest, RequestId, RolloutError, SampleOn, Sampling, sampler::sample_with};

/// How many prompt tokens are prefilled together.
const PREFILL_TOKENS: usize = 8192;

/// Schedules requests until they are groups of completions.
pub(super) struct DecodeScheduler<M: PolicyModel> {
    /// Requests without all of their completions.
    pending: BTreeMap<RequestId, PendingGroup>,
    /// Pending requests whose prompts have not been prefilled.
    waiting: VecDeque<RequestId>,
    /// Prompts that have been prefilled, some of whose completions are not yet started.
    prefilled: Option<PrefilledPrompts<M>>,
    /// Rows of the cache, finished ones included until they are dropped.
    rows: Vec<Row>,
    cache: Option<M::Cache>,
    /// Tokens of all rows that are queued on the device.
    queued: Option<QueuedSteps>,
    /// Captured GPU graph, if any.
    graph: Option<CapturedGraph>,
    proposer: NgramProposer,
    /// How many completions have ended in this step.
    ended: usize,
    groups: Vec<(RequestId, Group)>,
}

/// Prompts that were prefilled together.
struct PrefilledPrompts<M: PolicyModel> {
    cache: M::Cache,
    /// Hidden state of each prompt's last token, `[prompts, hidden]`.
    hidden: Tensor<2>,
    /// Prompts some of whose completions are not yet started, by their rows in the cache.
    prompts: VecDeque<(usize, RequestId)>,
    version: u64,
}

/// Completions that start together, each with its prompt's row among the prefilled prompts.
type AdmittedRows = Vec<(usize, Row)>;

struct PendingGroup {
    request: GroupRequest,
    completions: Vec<Option<Completion>>,
    /// How many completions have started.
    started: usize,
}

/// An unfinished completion.
struct Row {
    request: RequestId,
    index: usize,
    sampling: Arc<Sampling>,
    /// Version of the weights that the completion was started with.
    version: u64,
    stream: RandomStream,
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

    fn last_token(&self) -> usize {
        self.tokens.last().map_or(0, |&token| token as usize)
    }

    fn live(&self) -> bool {
        self.finish.is_none()
    }

    /// Returns how many more tokens the completion may have.
    fn remaining(&self) -> usize {
        self.sampling.max_completion_tokens - self.tokens.len()
    }

    /// Returns the uniform random number for the next token, or for the token `after` places later.
    fn uniform(&mut self, after: usize) -> f64 {
        let position = self.tokens.len() + after;
        self.stream.uniform_at(position as u64)
    }

    fn push(&mut self, (token, logprob): (TokenId, f32)) {
        self.tokens.push(token);
        self.logprobs.push(logprob);
        self.finish = self.sampling.finish(&self.tokens);
    }

    /// Makes the row's completion, which ended for the reason `why`. The row keeps its tokens, because it is decoded
    /// with the others until it is dropped.
    fn completion<M: PolicyModel>(&self, why: FinishReason, engine: &LocalEngine<M>) -> Completion {
        let stop = why == FinishReason::Stop;
        let text_tokens = &self.tokens[..self.tokens.len() - usize::from(stop)];
        Completion::written(self.tokens.clone(), self.logprobs.clone(), why)
            .with_text(engine.detokenizer.detokenize(text_tokens))
            .with_version(self.version)
    }
}

impl<M: PolicyModel> Default for DecodeScheduler<M> {
    fn default() -> Self {
        DecodeScheduler {
            pending: BTreeMap::new(),
            waiting: VecDeque::new(),
            prefilled: None,
            rows: Vec::new(),
            cache: None,
            queued: None,
            graph: None,
            proposer: NgramProposer::default(),
            ended: 0,
            groups: Vec::new(),
        }
    }
}

impl<M: PolicyModel> DecodeScheduler<M> {
    /// Accepts all requests or none. They start after the requests that are waiting, those with short prompts first,
    /// because prompts of similar length are prefilled together.
    pub(super) fn submit(&mut self, mut requests: Vec<GroupRequest>) -> Result<(), RolloutError> {
        requests.sort_by_key(|request| request.prompt.tokens.len());
        let mut ids: Vec<RequestId> = requests.iter().map(|request| request.id).collect();
        ids.sort_unstable();
        let twice = ids.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);

        if let Some(id) = twice.or(ids.into_iter().find(|id| self.pending.contains_key(id))) {
            let problem =
                "has the id of another request in flight, expected an id of its own".into();
            return Err(RolloutError::Request { id, problem });
        }

        for request in requests {
            self.waiting.push_back(request.id);
            let completions = vec![None; request.group_size];
            self.pending.insert(request.id, PendingGroup { request, completions, started: 0 });
        }
        Ok(())
    }

    /// Drops the captured graph, which holds weights that are to be replaced.
    pub(super) fn drop_graph(&mut self) {
        self.graph = None;
    }

    pub(super) fn in_flight(&self) -> bool {
        !self.pending.is_empty()
    }

    pub(super) fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    pub(super) fn written(&self) -> (&[TokenId], &[f32]) {
        self.rows.first().map_or((&[], &[]), |row| (&row.tokens, &row.logprobs))
    }

    pub(super) fn take_groups(&mut self) -> Vec<(RequestId, Group)> {
        std::mem::take(&mut self.groups)
    }

    /// Admits what fits and samples a token in every row, or a few by a draft or if no row is added or removed. Returns
    /// the number of completions that have ended.
    pub(super) fn step(&mut self, engine: &LocalEngine<M>) -> Result<usize, RolloutError> {
        if self.can_queue(engine) {
            self.queue_steps(engine)?;
        } else {
            self.graph = None;
            self.drain_queued(engine)?;
            self.admit_and_sample(engine)?;
        }

        if !self.in_flight() {
            self.rows.clear();
            self.graph = None;
            self.cache = None;
            self.prefilled = None;
            self.queued = None;
        }
        Ok(std::mem::take(&mut self.ended))
    }

    fn admit_and_sample(&mut self, engine: &LocalEngine<M>) -> Result<(), RolloutError> {
        let mut refilling = false;
        loop {
            let admitted = self.admit(refilling, engine)?;
            // The rows of the last prefill share one LM-head matmul with the running rows, because the head costs as
            // much for a few rows as for many.
            let started = admitted.len();
            refilling = started > 0;
            if refilling && self.free_slots(started, refilling, engine) > 0 {
                self.sample_step(false, admitted, engine)?;
            } else {
                return self.sample_step(true, admitted, engine);
            }
        }
    }

    /// Tells whether no row is added or removed, so that the device can sample several tokens of each without the host.
    fn can_queue(&self, engine: &LocalEngine<M>) -> bool {
        let same_sampling =
            |row: &Row| row.sampling.token_sampling() == self.rows[0].sampling.token_sampling();
        engine.sample_on == SampleOn::Device
            && self.rows.iter().any(Row::live)
            && self.rows.iter().all(same_sampling)
            && self.free_slots(0, false, engine) == 0
    }

    /// Queues the next steps of all rows, then reads the tokens of the steps that were queued before, and drops ended
    /// rows.
    fn queue_steps(&mut self, engine: &LocalEngine<M>) -> Result<(), RolloutError> {
        let previous = self.queued.take();
        let unread = previous.as_ref().map_or(0, QueuedSteps::steps);
        let live = self.rows.iter().filter(|row| row.live());
        let remaining = live.map(Row::remaining).max().unwrap_or(0);

        if remaining > unread && self.cache.as_ref().is_some_and(|cache| cache.room() == 0) {
            // Rows keep their order, and so do the tokens that are queued.
            self.rebuild_cache(&(0..self.rows.len()).collect::<Vec<_>>(), &[])?;
        }

        let room = self.cache.as_ref().map_or(0, M::Cache::room);
        let steps = STEPS.min(remaining.saturating_sub(unread)).min(room);
        if steps > 0 {
            self.launch_steps(steps, remaining - unread, previous.as_ref(), engine)?;
        }

        if let Some(previous) = previous {
            self.apply_queued(previous, engine)?;
        }
        self.drop_ended(engine)
    }

    /// Queues `steps` steps of all rows on the device after the `previous` ones: by a replay of the captured graph, by
    /// a capture, or launch by launch. A row may have `remaining` more tokens after the previous steps.
    fn launch_steps(
        &mut self,
        steps: usize,
        remaining: usize,
        previous: Option<&QueuedSteps>,
        engine: &LocalEngine<M>,
    ) -> Result<(), RolloutError> {
        let policy = engine.policy()?;
        let read_tokens = || {
            let tokens: Vec<usize> = self.rows.iter().map(Row::last_token).collect();
            indices(&tokens, &policy.device())
        };
        let last_tokens = previous.map_or_else(read_tokens, QueuedSteps::last_tokens);
        let unread = previous.map_or(0, QueuedSteps::steps);
        let uniforms = self.uniforms(unread, steps, &policy.device().inner());

        let sampling = self.rows[0].sampling.clone();
        let capture = engine.graphs && steps == STEPS;
        let graph = self.graph.take().filter(|graph| graph.matches(steps));
        let Some(cache) = &mut self.cache else { return Ok(()) };

        let launch = || {
            if let Some(mut graph) = graph {
                let queued = graph.replay(cache, &uniforms)?;
                return Ok((queued, Some(graph)));
            }
            if capture {
                let first = (&last_tokens, &uniforms);
                let captured = CapturedGraph::new(policy, cache, first, &sampling, remaining)?;
                if let Some((queued, graph)) = captured {
                    return Ok((queued, Some(graph)));
                }
            }
            Ok((QueuedSteps::new(policy, cache, last_tokens, &uniforms, &sampling), None))
        };
        let (queued, graph) = run_on_compute_thread(&policy.device(), launch)?;
        self.queued = Some(queued);
        self.graph = graph;
        Ok(())
    }

    /// Returns the uniform random numbers for the next `steps` tokens of all rows after `unread` queued ones,
    /// `[steps · rows]`.
    fn uniforms(&mut self, unread: usize, steps: usize, device: &Device) -> Tensor<1> {
        let rows = self.rows.len();
        let mut uniforms = Vec::with_capacity(steps * rows);
        for step in 0..steps {
            uniforms.extend(self.rows.iter_mut().map(|row| row.uniform(unread + step) as f32));
        }
        Tensor::from_data(TensorData::new(uniforms, [steps * rows]), device)
    }

    /// Drops ended rows if they are ≥ 25 % of all rows.
    fn drop_ended(&mut self, engine: &LocalEngine<M>) -> Result<(), RolloutError> {
        let ended = self.rows.iter().filter(|row| !row.live()).count();
        if ended == self.rows.len() || ended * 4 >= self.rows.len().max(1) {
            self.drain_queued(engine)?;

            let keep: Vec<usize> =
                (0..self.rows.len()).filter(|&row| self.rows[row].live()).collect();
            self.rows.retain(Row::live);
            self.rebuild_cache(&keep, &[])?;
        }
        Ok(())
    }

    /// Reads all tokens that are queued on the device.
    fn drain_queued(&mut self, engine: &LocalEngine<M>) -> Result<(), RolloutError> {
        self.queued.take().map_or(Ok(()), |queued| self.apply_queued(queued, engine))
    }

    /// Reads the tokens of some steps.
    fn apply_queued(
        &mut self,
        queued: QueuedSteps,
        engine: &LocalEngine<M>,
    ) -> Result<(), RolloutError> {
        for sampled in queued.read()? {
            expect_rows("decode", self.rows.len(), sampled.len())?;
            self.push(sampled.into_iter().enumerate().collect(), engine)?;
        }
        Ok(())
    }

    /// Appends tokens to rows, which are named by their indices. A token that was sampled from logits that are not
    /// finite is invalid, and one past a row's end belongs to no completion.
    fn push(
        &mut self,
        sampled: Vec<(usize, (TokenId, f32))>,
        engine: &LocalEngine<M>,
    ) -> Result<(), RolloutError> {
        let mut count = 0;
        let mut ended = Vec::new();
        for (row, (token, logprob)) in sampled {
            let row = &mut self.rows[row];
            if row.live() {
                let id = row.request;
                if !logprob.is_finite() {
                    return Err(RolloutError::NotFinite { id, logprob });
                }

                row.push((token, logprob));
                count += 1;
                if let Some(why) = row.finish {
                    ended.push((row.request, row.index, row.completion(why, engine)));
                }
            }
        }

        engine.tokens.fetch_add(count, Ordering::Relaxed);
        for (request, index, completion) in ended {
            if engine.drafts {
                self.proposer.remember(&completion.tokens);
            }
            self.finish_completion(request, index, completion);
        }
        Ok(())
    }

    /// Returns the number of completions that can start now, besides the `started` ones that are about to.
    ///
    /// On a device that compiles a kernel for each size, free slots stay empty until ≥ 25 % of the slots are free. Then
    /// this step fills all of them; `refilling` says that it has begun to.
    fn free_slots(&self, started: usize, refilling: bool, engine: &LocalEngine<M>) -> usize {
        let slots = engine.max_sequences;
        let live = self.rows.iter().filter(|row| row.live()).count() + started;
        let free = slots.saturating_sub(live);
        let prefilled = self.prefilled.as_ref().is_some_and(|it| !it.prompts.is_empty());
        let none_waiting = self.waiting.is_empty() && !prefilled;
        let worth_admitting =
            engine.sample_on == SampleOn::Host || live == 0 || refilling || free * 4 >= slots;

        if none_waiting || !worth_admitting { 0 } else { free }
    }

    /// Returns the completions that start now, whose prompts were all prefilled together.
    fn admit(
        &mut self,
        refilling: bool,
        engine: &LocalEngine<M>,
    ) -> Result<AdmittedRows, RolloutError> {
        if let Some(stale) = self.prefilled.take_if(|it| it.version != engine.version) {
            // These prompts were prefilled with old weights.
            stale.prompts.into_iter().rev().for_each(|(_, id)| self.waiting.push_front(id));
        }

        self.prefilled.take_if(|it| it.prompts.is_empty());
        let free = self.free_slots(0, refilling, engine);
        if free == 0 {
            return Ok(Vec::new());
        }

        let Some(mut prefilled) =
            self.prefilled.take().map_or_else(|| self.prefill(engine), |it| Ok(Some(it)))?
        else {
            return Ok(Vec::new());
        };

        let mut admitted = Vec::new();
        while admitted.len() < free
            && let Some(&(prompt, id)) = prefilled.prompts.front()
            && let Some(PendingGroup { request, started, .. }) = self.pending.get_mut(&id)
        {
            admitted.push((prompt, Row::new(request, *started, engine.version)));
            *started += 1;
            if *started == request.group_size {
                prefilled.prompts.pop_front();
            }
        }

        self.prefilled = Some(prefilled);
        Ok(admitted)
    }

    /// Prefills the next waiting prompts: enough to fill all slots.
    fn prefill(
        &mut self,
        engine: &LocalEngine<M>,
    ) -> Result<Option<PrefilledPrompts<M>>, RolloutError> {
        let mut rows = 0;
        let mut longest = 0;
        let mut count = 0;
        // Every prompt is padded to the longest, so the limit is for the padded batch.
        for id in &self.waiting {
            let PendingGroup { request, started, .. } = &self.pending[id];
            longest = longest.max(request.prompt.tokens.len());
            if count > 0 && (rows >= engine.max_sequences || longest * (count + 1) > PREFILL_TOKENS)
            {
                break;
            }
            rows += request.group_size - started;
            count += 1;
        }

        if count == 0 {
            return Ok(None);
        }

        let policy = engine.policy()?;
        let ids: Vec<RequestId> = self.waiting.drain(..count).collect();
        let tokens: Vec<&[TokenId]> =
            ids.iter().map(|id| self.pending[id].request.prompt.tokens.as_slice()).collect();

        let device = policy.device();
        let batch = TokenBatch::new(&tokens, Padding::Left, &device);
        let (hidden, cache) = run_on_compute_thread(&device, || policy.prefill(&batch));
        expect_rows("prefill", ids.len(), hidden.dims()[0])?;
        let prompts = ids.into_iter().enumerate().collect();
        Ok(Some(PrefilledPrompts { cache, hidden, prompts, version: engine.version }))
    }

    /// Samples the first tokens of admitted rows and, if `decode`, the next token of every running row, or a few by a
    /// draft. Then drops the rows that ended.
    ///
    /// Rows have three numberings:
    /// - `self.rows`: the `running` rows first, each with the index of its row in the cache, then the admitted rows,
    ///   which have no row in the cache yet. `first_sampled` and `keep` are indices of this kind.
    /// - The sampled batch: `self.rows` starting at `first_sampled`, so either all rows, or only the admitted ones.
    /// - The prefilled prompts: `prompt_rows` and `joining` are rows of their cache. The completions of a group have
    ///   the same one.
    fn sample_step(
        &mut self,
        decode: bool,
        admitted: AdmittedRows,
        engine: &LocalEngine<M>,
    ) -> Result<(), RolloutError> {
        let policy = engine.policy()?;
        let device = policy.device();

        let (prompt_rows, admitted): (Vec<usize>, Vec<Row>) = admitted.into_iter().unzip();
        let prompts = self.prefilled.as_ref().filter(|_| !prompt_rows.is_empty());
        let prompt_hidden =
            prompts.map(|it| it.hidden.clone().select(0, indices(&prompt_rows, &device)));

        let running = self.rows.len();
        let decoded = if decode && self.rows.iter().any(Row::live) { running } else { 0 };
        if decoded > 0 && self.cache.as_ref().is_some_and(|cache| cache.room() == 0) {
            self.rebuild_cache(&(0..running).collect::<Vec<_>>(), &[])?;
        }

        self.rows.extend(admitted);
        let first_sampled = running - decoded;
        let drafts = self.drafts(first_sampled, decoded, engine);
        let rows = &mut self.rows[first_sampled..];
        if rows.is_empty() {
            return Ok(());
        }

        let cache = self.cache.as_mut();
        let sample_on = engine.sample_on;
        // ANCHOR: tour
        let sampled = run_on_compute_thread(&device, || {
            let decoded_hidden = cache.filter(|_| decoded > 0).map(|cache| {
                let inputs = rows[..decoded].iter().zip(&drafts).flat_map(|(row, draft)| {
                    let draft = draft.tokens().iter().map(|&token| token as usize);
                    std::iter::once(row.last_token()).chain(draft)
                });
                policy.decode(indices(&inputs.collect::<Vec<_>>(), &device), cache)
            });
            let hidden = joined(decoded_hidden.into_iter().chain(prompt_hidden).collect(), 0);
            let tokens = drafts.iter().map(|draft| draft.tokens().len() + 1).sum();
            expect_rows("prefill or decode", tokens, hidden.dims()[0])?;
            sample_tokens(head_logits(hidden, &policy.lm_head()), rows, &drafts, sample_on)
        })?;
        let verified = self.verified(first_sampled, decoded, &drafts, &sampled);
        self.push(verified, engine)?;
        // ANCHOR_END: tour
        let (keep, joining): (Vec<usize>, Vec<usize>) = {
            let live = |&row: &usize| self.rows[row].live();
            let joining = (running..self.rows.len()).filter(live);
            let joining = joining.map(|row| prompt_rows[row - running]);
            ((0..running).filter(live).collect(), joining.collect())
        };

        // On a device, ended rows are dropped only when others join or ≥ 25 % of the running rows have ended.
        let ended = running - keep.len();
        let lazy = engine.sample_on == SampleOn::Device && ended * 4 < running.max(1);
        if joining.is_empty() && (ended == 0 || (lazy && !keep.is_empty())) {
            self.rows.truncate(running);
            return Ok(());
        }

        self.rows.retain(Row::live);
        self.rebuild_cache(&keep, &joining)
    }

    /// Proposes drafts for the rows starting at `first`, of which `decoded` are in the cache, and prepares the cache
    /// for them.
    fn drafts(&mut self, first: usize, decoded: usize, engine: &LocalEngine<M>) -> Vec<Draft> {
        let rows = &self.rows[first..];
        let mut drafts = vec![Draft::default(); rows.len()];
        let wanted = engine.drafts && engine.sample_on == SampleOn::Host;
        if !wanted || decoded == 0 || rows.len() >= PASS {
            return drafts;
        }
        let Some(cache) = self.cache.as_mut().and_then(M::Cache::drafted) else { return drafts };

        for (row, draft) in rows[..decoded].iter().zip(&mut drafts) {
            let prompt = &self.pending[&row.request].request.prompt.tokens;
            let text = [prompt, row.tokens.as_slice()].concat();
            *draft = self.proposer.propose(&text, row.remaining() - 1, &row.sampling.stop);
        }
        self.proposer.choose_lengths(&mut drafts);

        if drafts.iter().any(|draft| !draft.tokens().is_empty()) {
            let tokens: Vec<usize> =
                drafts[..decoded].iter().map(|draft| draft.tokens().len() + 1).collect();
            cache.plan_pass(&tokens);
        }
        drafts
    }

    /// Returns the tokens that count, each with the index of its row: a row's next token, and those behind the tokens
    /// of its draft that were sampled too. The cache gives the rest of the drafts back.
    fn verified(
        &mut self,
        first: usize,
        decoded: usize,
        drafts: &[Draft],
        mut sampled: &[(TokenId, f32)],
    ) -> Vec<(usize, (TokenId, f32))> {
        let mut verified = Vec::with_capacity(drafts.len());
        let mut rejected = Vec::with_capacity(drafts.len());
        for (row, draft) in (first..).zip(drafts) {
            let (of_row, others) = sampled.split_at(draft.tokens().len() + 1);
            let hits = self.proposer.verify(draft, of_row);
            rejected.push(draft.tokens().len() - hits);
            verified.extend(of_row[..=hits].iter().map(|&token| (row, token)));
            sampled = others;
        }

        if rejected.iter().any(|&tokens| tokens > 0)
            && let Some(cache) = self.cache.as_mut().and_then(M::Cache::drafted)
        {
            cache.take_back(&rejected[..decoded]);
        }
        verified
    }

    /// Makes the next cache from the rows `keep` of the old cache, and the rows `joining` of the prefilled prompts.
    fn rebuild_cache(&mut self, keep: &[usize], joining: &[usize]) -> Result<(), RolloutError> {
        self.graph = None;
        let room = self.rows.iter().map(Row::remaining).max().unwrap_or(0).max(1);
        if keep.is_empty() {
            // The old cache is freed first, so that it does not exist next to that of the next batch.
            self.cache = None;
        }

        let exhausted = |prefilled: &mut PrefilledPrompts<M>| prefilled.prompts.is_empty();
        self.cache = match (self.cache.take(), joining.is_empty()) {
            (Some(cache), true) => Some(cache.arrange(keep, None, room)),
            (Some(cache), false) => {
                let others = self.prefilled.as_ref().map(|it| (&it.cache, joining));
                Some(cache.arrange(keep, others, room))
            }
            (None, true) => None,
            (None, false) => {
                let others = match self.prefilled.take_if(exhausted) {
                    Some(prefilled) => Some(prefilled.cache),
                    None => self.prefilled.as_ref().map(|it| it.cache.clone()),
                };
                others.map(|cache| cache.arrange(joining, None, room))
            }
        };

        self.prefilled.take_if(exhausted);
        // With another number of rows, every row would use another row's KV cache.
        let actual = self.cache.as_ref().map_or(0, M::Cache::rows);
        expect_rows("DecodeCache::arrange", self.rows.len(), actual)
    }

    fn finish_completion(&mut self, request: RequestId, index: usize, completion: Completion) {
        self.ended += 1;
        let Some(group) = self.pending.get_mut(&request) else { return };
        group.completions[index] = Some(completion);
        if group.completions.iter().all(Option::is_some)
            && let Some(PendingGroup { request, completions, .. }) = self.pending.remove(&request)
        {
            self.groups.push(request.into_group(completions.into_iter().flatten().collect()));
        }
    }
}

/// Samples from `logits`, `[tokens, vocab]`: the next token of each row and those behind the tokens of its draft. Rows
/// with the same sampling are sampled together.
fn sample_tokens(
    logits: Tensor<2>,
    rows: &mut [Row],
    drafts: &[Draft],
    sample_on: SampleOn,
) -> Result<Vec<(TokenId, f32)>, RolloutError> {
    // Each token's row, and the random number that it is sampled with.
    let mut row_of = Vec::with_capacity(rows.len());
    let mut uniforms = Vec::with_capacity(rows.len());
    for (index, (row, draft)) in rows.iter_mut().zip(drafts).enumerate() {
        for after in 0..=draft.tokens().len() {
            row_of.push(index);
            uniforms.push(row.uniform(after));
        }
    }

    let mut sampled = vec![(0, 0.0); row_of.len()];
    let mut remaining: Vec<usize> = (0..row_of.len()).collect();

    while let Some(&first) = remaining.first() {
        let sampling = &rows[row_of[first]].sampling;
        let same_sampling = |&token: &usize| {
            rows[row_of[token]].sampling.token_sampling() == sampling.token_sampling()
        };
        let (batch, others): (Vec<usize>, Vec<usize>) =
            remaining.into_iter().partition(same_sampling);
        let logits = if batch.len() == sampled.len() {
            logits.clone()
        } else {
            logits.clone().select(0, indices(&batch, &logits.device()))
        };

        let batch_uniforms: Vec<f64> = batch.iter().map(|&token| uniforms[token]).collect();
        let tokens = sample_with(logits, &batch_uniforms, sampling, sample_on)?;
        for (&at, token) in batch.iter().zip(tokens) {
            sampled[at] = token;
        }
        remaining = others;
    }
    Ok(sampled)
}

fn expect_rows(what: &'static str, expected: usize, actual: usize) -> Result<(), RolloutError> {
    if actual == expected { Ok(()) } else { Err(RolloutError::Rows { what, expected, actual }) }
}

fn indices(values: &[usize], device: &Device) -> Tensor<1, Int> {
    let values: Vec<i32> = values.iter().map(|&value| value as i32).collect();
    let count = values.len();
    Tensor::from_data(TensorData::new(values, [count]), device)
}
