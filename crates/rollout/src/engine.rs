//! The trait `RolloutEngine`, and the checks of an engine's requests and answers.

use std::sync::{Arc, atomic::AtomicU64};

use firebrick_core::{Completion, Group};

use crate::{
    error::RolloutError,
    request::{GroupRequest, RequestId},
};

/// Samples completions from a policy: groups are submitted, and fetched when they are finished.
///
/// You choose the order. The trainer publishes its weights, samples a step, with further requests while others are
/// in flight ([`InFlight`](crate::InFlight)), and then updates. That is only one possible scheduler: weights may also
/// be published between the two.
///
/// # The promises of an engine
///
/// - Every request is answered once, with as many completions as it asks for, or an error says that it is
///   lost. Groups are returned in any order; their [`Group::step`] stays 0.
/// - A completion depends on the weights, its seed ([`GroupRequest::completion_seed`]), its prompt and its
///   sampling. Neither the rest of its batch, except for the rounding of sums over different lengths, nor the
///   number of polls has an influence, so a request that is submitted again gets the same completions.
/// - The log-probabilities of a completion are those of the weights that sampled its tokens, as
///   [`Completion::logprobs`] says. Its version is that of the weights that it was started with.
/// - After an error of [`poll`](RolloutEngine::poll), and after [`RolloutError::Engine`] from any method,
///   nothing is in flight any more.
///
/// Answers are checked. One that nobody asked for is an error, not a panic.
///
/// # The smallest engine
///
/// Another program answers one request at a time, and the caller of `poll` waits for it:
///
/// ```
/// use std::{collections::VecDeque, io};
///
/// use firebrick_core::{Completion, Group};
/// use firebrick_rollout::{GroupRequest, RequestId, RolloutEngine, RolloutError, Wait};
///
/// #[derive(Default)]
/// struct Elsewhere {
///     asked: VecDeque<GroupRequest>,
/// }
///
/// impl<M> RolloutEngine<M> for Elsewhere {
///     fn publish(&mut self, policy: &M, version: u64) -> Result<(), RolloutError> {
///         send_weights(policy, version).map_err(|error| RolloutError::engine(error, false))
///     }
///
///     fn submit(&mut self, requests: Vec<GroupRequest>) -> Result<(), RolloutError> {
///         self.asked.extend(requests);
///         Ok(())
///     }
///
///     fn poll(
///         &mut self,
///         _: Wait,
///         finished: &mut dyn FnMut(usize),
///     ) -> Result<Vec<(RequestId, Group)>, RolloutError> {
///         let Some(request) = self.asked.pop_front() else { return Ok(Vec::new()) };
///         let completions = ask(&request).map_err(|error| {
///             self.asked.clear();
///             // It is restarted with the weights that it had, so the same requests may be submitted again.
///             RolloutError::engine(error, true)
///         })?;
///         finished(completions.len());
///         Ok(vec![request.into_group(completions)])
///     }
/// }
/// # fn send_weights<M>(_: &M, _: u64) -> io::Result<()> { Ok(()) }
/// # fn ask(_: &GroupRequest) -> io::Result<Vec<Completion>> { Ok(Vec::new()) }
/// # let mut engine = Elsewhere::default();
/// # assert!(firebrick_rollout::generate::<()>(&mut engine, Vec::new(), &mut |_| {}).unwrap().is_empty());
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not sample completions from `{M}`",
    note = "implement `firebrick_rollout::RolloutEngine<{M}>`: `publish`, `submit` and `poll`; the \
            trait's documentation has the smallest engine"
)]
pub trait RolloutEngine<M>: Send {
    /// Takes over the policy's weights. Completions that start after this call have the version `version`, in which
    /// the trainer counts its steps. Different weights may have the same version: SFT changes them before the first
    /// step, and all of these weights are version 0.
    ///
    /// Requests in flight continue, each engine in its own way: with the new weights, as
    /// [`LocalEngine`](crate::LocalEngine) does, or with the old weights to the end.
    ///
    /// # Errors
    /// Fails if the weights could not be delivered.
    fn publish(&mut self, policy: &M, version: u64) -> Result<(), RolloutError>;

    /// Asks for groups without waiting for them, while earlier ones may still be in flight.
    ///
    /// # Errors
    /// Fails if a request cannot be served, such as one with the id of another that is in flight: then none of
    /// `requests` was accepted. Fails also if the engine does.
    fn submit(&mut self, requests: Vec<GroupRequest>) -> Result<(), RolloutError>;

    /// Returns the groups that have been finished since the last call, in any order, each with its request's id.
    /// `finished` is called with the number of completions that have ended since then.
    ///
    /// # Errors
    /// Fails if the engine or the device does.
    fn poll(
        &mut self,
        wait: Wait,
        finished: &mut dyn FnMut(usize),
    ) -> Result<Vec<(RequestId, Group)>, RolloutError>;

    /// Returns the largest mean distance, in nats, that the log-probabilities of the engine's completions may have
    /// from those of the published weights, or `None` for an engine that is trusted. The trainer does not learn from
    /// completions whose distance is larger.
    fn tolerance(&self) -> Option<f64> {
        None
    }

    /// Returns a counter of the tokens that the engine has sampled, which may be read while it is polled: from it the
    /// time is estimated that a rollout still takes. An engine that hears of tokens only when a completion ends has
    /// none.
    fn token_counter(&self) -> Option<Arc<AtomicU64>> {
        None
    }

    /// Forgets everything that is in flight. An [`InFlight`](crate::InFlight) asks for this before it gives up. An
    /// engine that does nothing here may return old groups later. Most of them are refused, but if a request has been
    /// submitted again with the same id, an old group is mistaken for its answer.
    fn cancel(&mut self) {}

    /// Frees the weights. The trainer asks for this before an update, which needs their memory, and publishes new
    /// weights before it asks for completions again. An engine whose weights take none of the trainer's memory does
    /// nothing here.
    fn sleep(&mut self) {}
}

impl<M, T: RolloutEngine<M> + ?Sized> RolloutEngine<M> for Box<T> {
    fn publish(&mut self, policy: &M, version: u64) -> Result<(), RolloutError> {
        (**self).publish(policy, version)
    }

    fn submit(&mut self, requests: Vec<GroupRequest>) -> Result<(), RolloutError> {
        (**self).submit(requests)
    }

    fn poll(
        &mut self,
        wait: Wait,
        finished: &mut dyn FnMut(usize),
    ) -> Result<Vec<(RequestId, Group)>, RolloutError> {
        (**self).poll(wait, finished)
    }

    fn tolerance(&self) -> Option<f64> {
        (**self).tolerance()
    }

    fn token_counter(&self) -> Option<Arc<AtomicU64>> {
        (**self).token_counter()
    }

    fn cancel(&mut self) {
        (**self).cancel();
    }

    fn sleep(&mut self) {
        (**self).sleep();
    }
}

/// How long [`RolloutEngine::poll`] waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// Not at all. An engine that computes in this process does a bounded piece of work, so that a caller who polls
    /// again and again gets everything.
    Never,
    /// Until at least one group is finished, or nothing is in flight.
    ForGroup,
}

impl GroupRequest {
    /// Refuses a request that asks for nothing. An [`InFlight`](crate::InFlight) checks this, and an engine may.
    ///
    /// # Errors
    /// Fails if the prompt has no token, or the request asks for no completion or for completions of no token.
    pub fn check(&self) -> Result<(), RolloutError> {
        let problem = if self.prompt.tokens.is_empty() {
            "has a prompt without tokens, expected at least one"
        } else if self.group_size == 0 {
            "asks for 0 completions, expected at least 1"
        } else if self.sampling.max_completion_tokens == 0 {
            "asks for completions of 0 tokens, expected at least 1"
        } else {
            return Ok(());
        };
        Err(RolloutError::Request { id: self.id, problem: problem.into() })
    }

    /// Refuses a group that is not an answer to this request, because another program's answers can't be trusted. An
    /// [`InFlight`](crate::InFlight) checks this; a scheduler without one should.
    ///
    /// # Errors
    /// Fails if the group belongs to another prompt or draw, or has another number of completions; if a completion
    /// has no token, or more than were asked for; if its mask or its log-probabilities are not one for each token;
    /// and if a log-probability is above 0 or not finite.
    pub fn check_answer(&self, group: &Group) -> Result<(), RolloutError> {
        let wrong = |problem| Err(RolloutError::Answer { id: self.id, problem });
        if (&group.prompt, group.draw) != (&self.prompt, self.draw) {
            return wrong(format!(
                "it is a group of prompt {} in draw {}, expected one of prompt {} in draw {}",
                group.prompt.id, group.draw, self.prompt.id, self.draw
            ));
        }

        if group.completions.len() != self.group_size {
            let actual = group.completions.len();
            let expected = self.group_size;
            return wrong(format!("its number of completions is {actual}, expected {expected}"));
        }

        let max_tokens = self.sampling.max_completion_tokens;
        for (index, completion) in group.completions.iter().enumerate() {
            let Completion { tokens, mask, logprobs, .. } = completion;
            let unlikely = |logprob: &&f32| !logprob.is_finite() || **logprob > LOGPROB_ROUNDING;
            let count = completion.count();
            if count == 0 || count > max_tokens {
                return wrong(format!(
                    "completion {index} has {count} tokens, expected 1 to {max_tokens}"
                ));
            }

            if mask.len() != tokens.len() {
                return wrong(format!(
                    "completion {index} has a mask of {} for {} tokens, expected one entry for each",
                    mask.len(),
                    tokens.len()
                ));
            }

            if logprobs.len() != tokens.len() {
                return wrong(format!(
                    "completion {index} has {} log-probabilities, expected one for each of its tokens ({})",
                    logprobs.len(),
                    tokens.len()
                ));
            }

            if let Some(logprob) = logprobs.iter().find(unlikely) {
                return wrong(format!(
                    "completion {index} has a log-probability of {logprob}, expected finite numbers \
                     of at most 0"
                ));
            }
        }

        Ok(())
    }
}

/// A log-probability of 0 may be rounded up to this: half precision rounds it up by about 10⁻³.
const LOGPROB_ROUNDING: f32 = 1e-2;
