//! Completions of several turns: the policy speaks, an environment answers.

mod exchange;
mod state;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, atomic::AtomicU64},
    thread,
    time::{Duration, Instant},
};

use firebrick_core::{Completion, Detokenizer, Environment, Group, TokenId};

use self::{
    exchange::{Exchange, Spoken},
    state::{Conversation, Next},
};
use crate::{GroupRequest, RequestId, RolloutEngine, RolloutError, Wait};

/// Limits of a conversation. One more is [`Sampling::max_completion_tokens`](crate::Sampling), the number of tokens
/// that the policy may write in all of its turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turns {
    /// How many turns the policy may take; at least 1.
    pub max_turns: usize,
    /// How many tokens one turn may have; at least 1.
    pub max_turn_tokens: usize,
    /// How many tokens of observations the policy may read in total. A conversation ends at a reply that has more
    /// than are left.
    pub max_observation_tokens: usize,
    /// Tokens that end a turn besides those of [`Sampling::stop`](crate::Sampling). They are part of the policy's
    /// text.
    pub stop: Vec<TokenId>,
}

/// Renders an environment's text as the tokens between two turns.
pub trait Renderer: Send + Sync {
    /// Returns the tokens of `text`. `end` is the token before them, which ended the policy's turn; `None` if the turn
    /// was cut off.
    ///
    /// # Errors
    /// Fails if there are no such tokens. The error is the reason, in a sentence.
    fn tokens(&self, text: &str, end: Option<TokenId>) -> Result<Vec<TokenId>, String>;

    /// Returns the same as [`Renderer::tokens`], unless there are more than `limit` tokens. Then it may return any
    /// number of tokens above `limit`, because nobody reads them: an environment's text may be so long that tokenizing
    /// all of it takes a second.
    ///
    /// # Errors
    /// Fails like [`Renderer::tokens`].
    fn tokens_up_to(
        &self,
        text: &str,
        end: Option<TokenId>,
        limit: usize,
    ) -> Result<Vec<TokenId>, String> {
        let _ = limit;
        self.tokens(text, end)
    }

    /// Returns the separator of two turns in the text that a person reads.
    fn between(&self) -> &str {
        ""
    }
}

/// Lets an engine's completions talk with an environment.
///
/// A turn is a request to the engine: the prompt with everything that was written and observed, token by token.
/// Nothing is tokenized twice. The policy's tokens stay as it wrote them, and the environment's tokens are appended
/// with a mask of false ([`Completion::mask`]). The first turn is one request for the whole group, the same that is
/// made without an environment. After it, every conversation has its own requests.
///
/// While the environment answers on separate threads, other conversations continue, although the outcome does not
/// depend on timing: replies are processed when [`WIDTH`] conversations wait for one, or no conversation waits for the
/// policy, and in the order in which they were asked for.
pub struct MultiTurnEngine<M> {
    engine: Box<dyn RolloutEngine<M>>,
    environment: Arc<dyn Environment>,
    detokenizer: Arc<dyn Detokenizer>,
    renderer: Arc<dyn Renderer>,
    turns: Turns,
    work: Work,
}

/// How many conversations are answered at the same time.
pub const WIDTH: usize = 32;

/// How long a poll waits for replies.
const A_WHILE: Duration = Duration::from_millis(20);

/// How long an environment that had no room is left alone.
const FULL: Duration = Duration::from_millis(100);

/// A conversation: its request, and its index in the group.
type Position = (RequestId, usize);

/// Everything that is in flight.
#[derive(Default)]
struct Work {
    pending: BTreeMap<RequestId, PendingGroup>,
    /// Requests to the engine, each with the conversations whose turn it is.
    asked: BTreeMap<RequestId, (GroupRequest, Vec<Position>)>,
    next: RequestId,
    /// Conversations that wait for a reply, in the order in which they spoke.
    waiting: VecDeque<Position>,
    exchange: Option<Exchange>,
    /// True if replies are processed before the engine is polled again.
    due: bool,
    /// How many episodes have started and are not over.
    episodes: usize,
    /// No episode starts before this time, because the environment had no room a moment ago.
    full_until: Option<Instant>,
    /// How many conversations have ended since the last poll.
    ended: usize,
    groups: Vec<(RequestId, Group)>,
}

/// A request, and its conversations.
struct PendingGroup {
    request: GroupRequest,
    conversations: Vec<Conversation>,
    /// How many conversations continue.
    remaining: usize,
}

impl<M> MultiTurnEngine<M> {
    /// Makes an engine of conversations: `engine` samples them, and `environment` answers in them.
    pub fn new(
        engine: Box<dyn RolloutEngine<M>>,
        environment: Arc<dyn Environment>,
        detokenizer: Arc<dyn Detokenizer>,
        renderer: Arc<dyn Renderer>,
        turns: Turns,
    ) -> Self {
        MultiTurnEngine { engine, environment, detokenizer, renderer, turns, work: Work::default() }
    }

    /// Makes the request for the next turn of conversations that are at the same point.
    fn turn(&mut self, positions: Vec<Position>) -> Option<GroupRequest> {
        let (id, index) = *positions.first()?;
        let pending = self.work.pending.get(&id)?;
        let conversation = &pending.conversations[index];

        let mut request = pending.request.clone();
        request.id = self.work.next;
        request.group_size = positions.len();
        let sampling = Arc::make_mut(&mut request.sampling);
        let written = conversation.completion.count();
        let remaining = sampling.max_completion_tokens.saturating_sub(written);
        sampling.max_completion_tokens = remaining.min(self.turns.max_turn_tokens);
        sampling.stop.extend(&self.turns.stop);

        // The first turn keeps the group's own seed: it is the request that an engine without an environment gets.
        if conversation.outcome.turns > 0 {
            request.seed = pending
                .request
                .completion_seed(index)
                .derive("turn", &[conversation.outcome.turns as u64]);
            request.prompt.tokens.extend(&conversation.completion.tokens);
        }

        self.work.next += 1;
        self.work.asked.insert(request.id, (request.clone(), positions));
        Some(request)
    }

    fn advance(&mut self, wait: Wait) -> Result<(), RolloutError> {
        if !self.work.due {
            if let Some((&id, _)) = self.work.asked.first_key_value() {
                let turns = self.engine.poll(wait, &mut |_| {})?;
                // An engine that returns nothing without waiting would be polled forever.
                if turns.is_empty() && wait == Wait::ForGroup {
                    let problem = "the engine says that nothing is in flight, expected a turn";
                    return Err(RolloutError::Answer { id, problem: problem.into() });
                }
                for (id, group) in turns {
                    self.act(id, group)?;
                }
            }

            self.work.due = self.work.asked.is_empty() || self.answerable() >= WIDTH;
        }

        if self.work.due {
            if let Some(exchange) = &mut self.work.exchange {
                let Some(replies) = exchange.wait(A_WHILE) else { return Ok(()) };
                self.work.exchange = None;
                self.observe(replies)?;
            }

            self.work.exchange = self.exchange()?;
            self.work.due = false;

            if self.work.exchange.is_none() && self.work.asked.is_empty() {
                // All conversations wait for an environment that has no room.
                thread::sleep(A_WHILE);
            }
        }
        Ok(())
    }

    /// Processes the policy's text of a turn.
    fn act(&mut self, id: RequestId, group: Group) -> Result<(), RolloutError> {
        let Some((request, positions)) = self.work.asked.remove(&id) else {
            let problem = "it was not asked for, or has been answered already".into();
            return Err(RolloutError::Answer { id, problem });
        };
        request.check_answer(&group)?;

        for (position, turn) in positions.into_iter().zip(group.completions) {
            if let Some(pending) = self.work.pending.get_mut(&position.0) {
                let sampling = &pending.request.sampling;
                let limit = self.turns.max_turn_tokens;
                pending.conversations[position.1].act(turn, sampling, limit, &*self.detokenizer);
                self.work.waiting.push_back(position);
            }
        }

        Ok(())
    }

    /// Returns the number of episodes that may start now; `None` if the environment had no room a moment ago.
    fn room(&self) -> Option<usize> {
        let full = self.work.full_until.is_some_and(|until| Instant::now() < until);
        let sessions = self.environment.sessions().max(1);
        (!full).then(|| sessions.saturating_sub(self.work.episodes))
    }

    /// Counts the waiting conversations that can be answered now.
    fn answerable(&self) -> usize {
        let Work { pending, waiting, .. } = &self.work;

        let room = self.room();
        let conversations =
            waiting.iter().filter_map(|(id, index)| Some(&pending.get(id)?.conversations[*index]));
        let mut new = 0;
        let mut others = 0;
        for conversation in
            conversations.filter(|conversation| room.is_some() || !conversation.again)
        {
            if conversation.started {
                others += 1;
            } else {
                new += 1;
            }
        }

        others + new.min(room.unwrap_or(0))
    }

    /// Asks the environment for replies to the waiting conversations, as far as it has room for their episodes.
    fn exchange(&mut self) -> Result<Option<Exchange>, RolloutError> {
        let room = self.room();
        let full = room.is_none();
        let mut room = room.unwrap_or(0);

        let work = &mut self.work;
        let mut spoken = Vec::new();
        let mut later = VecDeque::new();

        for position in std::mem::take(&mut work.waiting) {
            let Some(pending) = work.pending.get_mut(&position.0) else { continue };
            let conversation = &mut pending.conversations[position.1];
            let starts = !conversation.started;
            if (starts && room == 0) || (full && conversation.again) {
                later.push_back(position);
                continue;
            }
            if starts {
                room -= 1;
                work.episodes += 1;
                conversation.started = true;
            }

            let prompt = starts.then(|| pending.request.prompt.clone());
            let episode = conversation.episode.take();
            let action = std::mem::take(&mut conversation.action);
            spoken.push(Spoken { position, prompt, episode, action });
        }

        work.waiting = later;
        if spoken.is_empty() {
            return Ok(None);
        }

        let exchange = Exchange::begin(&self.environment, spoken);
        exchange.map(Some).map_err(|error| RolloutError::engine(error, false))
    }

    /// Processes replies. Conversations that continue get their next turn.
    fn observe(&mut self, replies: Vec<exchange::Answered>) -> Result<(), RolloutError> {
        let mut speak = Vec::new();
        let mut again = VecDeque::new();
        for exchange::Answered { position, episode, action, reply } in replies {
            let Some(pending) = self.work.pending.get_mut(&position.0) else { continue };
            let conversation = &mut pending.conversations[position.1];

            let limit = pending.request.sampling.max_completion_tokens;
            match conversation.observe(action, reply, limit, &self.turns, &*self.renderer)? {
                Next::Speak => {
                    conversation.episode = episode;
                    speak.push(position);
                }
                Next::AskAgain => {
                    conversation.started = episode.is_some();
                    self.work.episodes -= usize::from(!conversation.started);
                    conversation.episode = episode;
                    again.push_back(position);
                }
                Next::End => {
                    self.work.episodes -= 1;
                    self.work.ended += 1;
                    pending.remaining -= 1;
                    if pending.remaining == 0
                        && let Some(PendingGroup { request, conversations, .. }) =
                            self.work.pending.remove(&position.0)
                    {
                        let completions: Vec<Completion> =
                            conversations.into_iter().map(Conversation::ended).collect();
                        self.work.groups.push(request.into_group(completions));
                    }
                }
            }
        }

        if !again.is_empty() {
            self.work.full_until = Some(Instant::now() + FULL);
            // These conversations were queued before all that wait now, and keep their place.
            again.append(&mut self.work.waiting);
            self.work.waiting = again;
        }

        let requests: Vec<_> =
            speak.into_iter().filter_map(|position| self.turn(vec![position])).collect();
        if requests.is_empty() { Ok(()) } else { self.engine.submit(requests) }
    }

    /// Forgets everything that is in flight, here and in the engine. Ids of turns are never reused, because the engine
    /// may still answer old turns.
    fn forget(&mut self) {
        self.work = Work { next: self.work.next, ..Work::default() };
        self.engine.cancel();
    }
}

impl<M> RolloutEngine<M> for MultiTurnEngine<M> {
    fn publish(&mut self, policy: &M, version: u64) -> Result<(), RolloutError> {
        self.engine.publish(policy, version)
    }

    fn submit(&mut self, requests: Vec<GroupRequest>) -> Result<(), RolloutError> {
        let mut ids = BTreeSet::new();
        for request in &requests {
            request.check()?;
            if self.work.pending.contains_key(&request.id) || !ids.insert(request.id) {
                let problem =
                    "has the id of another request in flight, expected an id of its own".into();
                return Err(RolloutError::Request { id: request.id, problem });
            }
        }

        let mut first = Vec::new();
        for request in requests {
            let id = request.id;
            let count = request.group_size;
            let conversations = (0..count).map(|_| Conversation::default()).collect();
            self.work.pending.insert(id, PendingGroup { request, conversations, remaining: count });
            first.extend(self.turn((0..count).map(|index| (id, index)).collect()));
        }

        let turns: Vec<RequestId> = first.iter().map(|turn| turn.id).collect();
        let submitted = self.engine.submit(first);

        match submitted {
            Ok(()) => {}
            // The engine has lost the turns of earlier conversations too.
            Err(RolloutError::Engine { .. }) => self.forget(),
            Err(_) => {
                ids.iter().for_each(|id| drop(self.work.pending.remove(id)));
                turns.iter().for_each(|id| drop(self.work.asked.remove(id)));
            }
        }
        submitted
    }

    fn poll(
        &mut self,
        wait: Wait,
        finished: &mut dyn FnMut(usize),
    ) -> Result<Vec<(RequestId, Group)>, RolloutError> {
        while !self.work.pending.is_empty() {
            if let Err(error) = self.advance(wait) {
                self.forget();
                return Err(error);
            }
            finished(std::mem::take(&mut self.work.ended));
            if wait == Wait::Never || !self.work.groups.is_empty() {
                break;
            }
        }

        Ok(std::mem::take(&mut self.work.groups))
    }

    fn cancel(&mut self) {
        self.forget();
    }

    fn tolerance(&self) -> Option<f64> {
        self.engine.tolerance()
    }

    fn token_counter(&self) -> Option<Arc<AtomicU64>> {
        self.engine.token_counter()
    }

    fn sleep(&mut self) {
        self.engine.sleep();
    }
}
