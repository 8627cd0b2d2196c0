//! Completions of several turns: the policy speaks, an environment answers.

mod exchange;
mod state;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use firebrick_core::{Completion, Detokenizer, Environment, Group, TokenId};

use self::{
    exchange::{Exchange, Spoken},
    state::{Conversation, Next},
};
use crate::{GroupRequest, RequestId, RolloutEngine, RolloutError, Wait};

/// The limits of a conversation. One more is [`Sampling::max_completion_tokens`](crate::Sampling), the number
/// of tokens that the policy may write in all of its turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turns {
    /// The number of turns that the policy may take; at least 1.
    pub max_turns: usize,
    /// The number of tokens of one turn; at least 1.
    pub max_turn_tokens: usize,
    /// The number of tokens of observations that the policy may read in all. A conversation ends at a reply that has
    /// more than are left.
    pub max_observation_tokens: usize,
    /// The tokens that end a turn besides those of [`Sampling::stop`](crate::Sampling). They are part of the
    /// policy's words.
    pub stop: Vec<TokenId>,
}

/// Renders an environment's words as the tokens between two turns.
pub trait Renderer: Send + Sync {
    /// Gives the tokens of `words`. `last` is the last token before them, which ended the policy's turn;
    /// `None` if the turn was cut off.
    ///
    /// # Errors
    /// When there are no such tokens. The error is the reason, in a sentence.
    fn tokens(&self, words: &str, last: Option<TokenId>) -> Result<Vec<TokenId>, String>;

    /// Gives the same as [`Renderer::tokens`], unless there are more than `most` tokens. Then any number of tokens
    /// above `most` will do, because nobody reads them. An environment's words may be long, and to make tokens of
    /// all of them may take a second.
    ///
    /// # Errors
    /// As for [`Renderer::tokens`].
    fn tokens_up_to(
        &self,
        words: &str,
        last: Option<TokenId>,
        most: usize,
    ) -> Result<Vec<TokenId>, String> {
        let _ = most;
        self.tokens(words, last)
    }

    /// Gives the text that stands between two turns for a person.
    fn between(&self) -> &str {
        ""
    }
}

/// Lets an engine's completions talk with an environment.
///
/// A turn is a request to the engine: the prompt with everything that was written and observed, token by token.
/// Nothing is tokenized twice: the policy's tokens stay as it wrote them, and the environment's words come
/// behind them, with a mask ([`Completion::mask`]). The first turn is one request for the whole group, and an
/// engine without an environment would sample the same. From then on every conversation goes its own way.
///
/// The environment answers on threads of its own, while other conversations speak. The outcome depends on no
/// clock. Replies are taken up when [`WIDTH`] conversations wait for one, or nobody speaks. They are taken in
/// the order in which they were asked for.
pub struct MultiTurnEngine<M> {
    engine: Box<dyn RolloutEngine<M>>,
    environment: Arc<dyn Environment>,
    detokenizer: Arc<dyn Detokenizer>,
    renderer: Arc<dyn Renderer>,
    turns: Turns,
    work: Work,
}

/// The number of conversations that are answered at once.
pub const WIDTH: usize = 32;

/// The time that a poll waits for replies.
const A_WHILE: Duration = Duration::from_millis(20);

/// The time for which an environment that had no room is left alone.
const FULL: Duration = Duration::from_millis(100);

/// A conversation: its request, and its place in the group.
type Place = (RequestId, usize);

/// Everything that is in flight.
#[derive(Default)]
struct Work {
    open: BTreeMap<RequestId, Open>,
    /// The requests to the engine. Each is a turn of the conversations beside it.
    asked: BTreeMap<RequestId, (GroupRequest, Vec<Place>)>,
    next: RequestId,
    /// The conversations that wait for a reply, in the order in which they spoke.
    waiting: VecDeque<Place>,
    exchange: Option<Exchange>,
    /// True if replies are taken up before the engine is asked again.
    due: bool,
    /// The number of episodes that have begun and are not over.
    episodes: usize,
    /// The time until which no episode begins, because the environment had no room lately.
    full_until: Option<Instant>,
    /// The number of conversations that have ended since the last poll.
    ended: usize,
    groups: Vec<(RequestId, Group)>,
}

/// A request, and its conversations.
struct Open {
    request: GroupRequest,
    conversations: Vec<Conversation>,
    /// The number of conversations that continue.
    left: usize,
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

    /// Has the engine write the next turn of conversations that stand at the same point.
    fn turn(&mut self, places: Vec<Place>) -> Option<GroupRequest> {
        let (id, index) = *places.first()?;
        let open = self.work.open.get(&id)?;
        let conversation = &open.conversations[index];
        let mut request = open.request.clone();
        request.id = self.work.next;
        request.group_size = places.len();
        let sampling = Arc::make_mut(&mut request.sampling);
        let left = sampling.max_completion_tokens.saturating_sub(conversation.completion.count());
        sampling.max_completion_tokens = left.min(self.turns.max_turn_tokens);
        sampling.stop.extend(&self.turns.stop);
        if conversation.outcome.turns > 0 {
            request.seed = open
                .request
                .completion_seed(index)
                .derive("turn", &[conversation.outcome.turns as u64]);
            request.prompt.tokens.extend(&conversation.completion.tokens);
        }
        self.work.next += 1;
        self.work.asked.insert(request.id, (request.clone(), places));
        Some(request)
    }

    fn advance(&mut self, wait: Wait) -> Result<(), RolloutError> {
        if !self.work.due {
            if let Some((&id, _)) = self.work.asked.first_key_value() {
                let turns = self.engine.poll(wait, &mut |_| {})?;
                // Otherwise the engine would be asked for ever.
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

    /// Takes up the policy's words of a turn.
    fn act(&mut self, id: RequestId, group: Group) -> Result<(), RolloutError> {
        let Some((request, places)) = self.work.asked.remove(&id) else {
            let problem = "it was not asked for, or has come before".into();
            return Err(RolloutError::Answer { id, problem });
        };
        request.check_answer(&group)?;
        for (place, turn) in places.into_iter().zip(group.completions) {
            if let Some(open) = self.work.open.get_mut(&place.0) {
                let (sampling, whole) = (&open.request.sampling, self.turns.max_turn_tokens);
                open.conversations[place.1].act(turn, sampling, whole, &*self.detokenizer);
                self.work.waiting.push_back(place);
            }
        }
        Ok(())
    }

    /// Gives the number of episodes that may begin now; `None` if the environment had no room a moment ago.
    fn room(&self) -> Option<usize> {
        let full = self.work.full_until.is_some_and(|until| Instant::now() < until);
        let sessions = self.environment.sessions().max(1);
        (!full).then(|| sessions.saturating_sub(self.work.episodes))
    }

    /// Counts the waiting conversations that can be answered now.
    fn answerable(&self) -> usize {
        let Work { open, waiting, .. } = &self.work;
        let room = self.room();
        let conversations =
            waiting.iter().filter_map(|(id, index)| Some(&open.get(id)?.conversations[*index]));
        let (mut new, mut others) = (0, 0);
        for conversation in
            conversations.filter(|conversation| room.is_some() || !conversation.again)
        {
            *(if conversation.begun { &mut others } else { &mut new }) += 1;
        }
        others + new.min(room.unwrap_or(0))
    }

    /// Asks the environment for replies to the conversations that wait, as far as it has room for their
    /// episodes.
    fn exchange(&mut self) -> Result<Option<Exchange>, RolloutError> {
        let room = self.room();
        let (full, mut room) = (room.is_none(), room.unwrap_or(0));
        let work = &mut self.work;
        let mut spoken = Vec::new();
        let mut later = VecDeque::new();
        for place in std::mem::take(&mut work.waiting) {
            let Some(open) = work.open.get_mut(&place.0) else { continue };
            let conversation = &mut open.conversations[place.1];
            let begins = !conversation.begun;
            if (begins && room == 0) || (full && conversation.again) {
                later.push_back(place);
                continue;
            }
            if begins {
                (room, work.episodes, conversation.begun) = (room - 1, work.episodes + 1, true);
            }
            let prompt = begins.then(|| open.request.prompt.clone());
            let (episode, action) =
                (conversation.episode.take(), std::mem::take(&mut conversation.action));
            spoken.push(Spoken { place, prompt, episode, action });
        }
        work.waiting = later;
        if spoken.is_empty() {
            return Ok(None);
        }
        let exchange = Exchange::begin(&self.environment, spoken);
        exchange.map(Some).map_err(|error| RolloutError::engine(error, false))
    }

    /// Takes up replies. Conversations that continue speak again.
    fn observe(&mut self, replies: Vec<exchange::Answered>) -> Result<(), RolloutError> {
        let mut speak = Vec::new();
        let mut again = VecDeque::new();
        for exchange::Answered { place, episode, action, reply } in replies {
            let Some(open) = self.work.open.get_mut(&place.0) else { continue };
            let conversation = &mut open.conversations[place.1];
            let most = open.request.sampling.max_completion_tokens;
            match conversation.observe(action, reply, most, &self.turns, &*self.renderer)? {
                Next::Speak => {
                    conversation.episode = episode;
                    speak.push(place);
                }
                Next::AskAgain => {
                    conversation.begun = episode.is_some();
                    self.work.episodes -= usize::from(!conversation.begun);
                    conversation.episode = episode;
                    again.push_back(place);
                }
                Next::End => {
                    self.work.episodes -= 1;
                    self.work.ended += 1;
                    open.left -= 1;
                    if open.left == 0
                        && let Some(Open { request, conversations, .. }) =
                            self.work.open.remove(&place.0)
                    {
                        let completions: Vec<Completion> =
                            conversations.into_iter().map(Conversation::ended).collect();
                        self.work.groups.push(request.answer(completions));
                    }
                }
            }
        }
        if !again.is_empty() {
            self.work.full_until = Some(Instant::now() + FULL);
            // These conversations came first.
            again.append(&mut self.work.waiting);
            self.work.waiting = again;
        }
        let requests: Vec<_> =
            speak.into_iter().filter_map(|place| self.turn(vec![place])).collect();
        if requests.is_empty() { Ok(()) } else { self.engine.submit(requests) }
    }

    /// Forgets everything that is in flight, here and in the engine. The ids of turns are never used again,
    /// because answers to old turns may still come.
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
            if self.work.open.contains_key(&request.id) || !ids.insert(request.id) {
                let problem =
                    "has the id of another request in flight, expected an id of its own".into();
                return Err(RolloutError::Request { id: request.id, problem });
            }
        }
        let mut first = Vec::new();
        for request in requests {
            let (id, count) = (request.id, request.group_size);
            let conversations = (0..count).map(|_| Conversation::default()).collect();
            self.work.open.insert(id, Open { request, conversations, left: count });
            first.extend(self.turn((0..count).map(|index| (id, index)).collect()));
        }
        let turns: Vec<RequestId> = first.iter().map(|turn| turn.id).collect();
        let submitted = self.engine.submit(first);
        match submitted {
            Ok(()) => {}
            // The engine has lost the turns of earlier conversations too.
            Err(RolloutError::Engine { .. }) => self.forget(),
            Err(_) => {
                ids.iter().for_each(|id| drop(self.work.open.remove(id)));
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
        while !self.work.open.is_empty() {
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

    fn sleep(&mut self) {
        self.engine.sleep();
    }
}
