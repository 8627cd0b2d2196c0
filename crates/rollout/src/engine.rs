//! The trait `RolloutEngine`, the requests that an engine gets, and the checks of its answers.

use std::sync::Arc;

use firebrick_core::{Completion, Group, Prompt, Seed, Step};
use serde::{Deserialize, Serialize};

use crate::{RolloutError, Sampling};

/// Samples completions from a policy: groups are submitted, and fetched when they are finished.
///
/// The caller chooses the order. The trainer publishes its weights, samples a step, with further requests
/// while others are in flight ([`InFlight`](crate::InFlight)), and then updates. That is one scheduler among
/// possible ones: weights may be published in between.
///
/// # The promises of an engine
///
/// - Every request is answered once, with as many completions as it asks for, or an error says that it is
///   lost. Groups come in any order; their [`Group::step`] is left at 0.
/// - A completion depends on the weights, its seed ([`GroupRequest::completion_seed`]), its prompt and its
///   sampling. It does not depend on the rest of its batch, except for the rounding of sums over different
///   lengths, nor on how often the engine was polled. So a request that is submitted again gives the same
///   completions.
/// - The log-probabilities of a completion are those of the weights that drew its tokens, as
///   [`Completion::logprobs`] says. Its version is that of the weights that it was begun with.
/// - After an error of [`poll`](RolloutEngine::poll), and after [`RolloutError::Engine`] wherever it comes
///   from, nothing is in flight any more.
///
/// An engine's answers are checked. An answer that nobody asked for is an error and no panic.
///
/// # The smallest engine
///
/// A program elsewhere answers one request at a time, and the caller of `poll` waits for it:
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
///             // It is started again, with the weights that it had: the same may be asked again.
///             RolloutError::engine(error, true)
///         })?;
///         finished(completions.len());
///         Ok(vec![request.answer(completions)])
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
    /// Takes over the policy's weights. Completions that begin from now on carry the number `version`, in
    /// which the trainer counts its steps. A number may come again with other weights: before the first step
    /// SFT moves them, and all of these weights are version 0.
    ///
    /// Requests in flight continue, each engine in its own way: with the new weights, as
    /// [`LocalEngine`](crate::LocalEngine) does, or with the old weights to the end.
    ///
    /// # Errors
    /// When the weights could not be delivered.
    fn publish(&mut self, policy: &M, version: u64) -> Result<(), RolloutError>;

    /// Asks for groups, while earlier ones may still be in flight. It does not wait for them.
    ///
    /// # Errors
    /// When a request cannot be served, such as one with the id of another that is in flight: then none of
    /// `requests` was taken. When the engine fails.
    fn submit(&mut self, requests: Vec<GroupRequest>) -> Result<(), RolloutError>;

    /// Gives the groups that have been finished since the last call, in any order, each with its request's
    /// id. `finished` hears the number of completions that have ended since then.
    ///
    /// # Errors
    /// When the engine or the device fails.
    fn poll(
        &mut self,
        wait: Wait,
        finished: &mut dyn FnMut(usize),
    ) -> Result<Vec<(RequestId, Group)>, RolloutError>;

    /// Returns the largest mean distance, in nats, that the log-probabilities of the engine's completions may have
    /// from those of the published weights. The trainer learns nothing from completions that are further away. `None`
    /// is for an engine that is trusted.
    fn tolerance(&self) -> Option<f64> {
        None
    }

    /// Forgets everything that is in flight. An [`InFlight`](crate::InFlight) asks for this before it gives up. An
    /// engine that does nothing here may hand over old groups later. Most of them are refused then. But if a
    /// request has come again with the same id, an old group is taken for its answer.
    fn cancel(&mut self) {}

    /// Lets go of the weights. The trainer asks for this before an update, which needs their memory, and publishes
    /// new ones before it asks for completions again. An engine whose weights take no memory of the trainer's does
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

    fn cancel(&mut self) {
        (**self).cancel();
    }

    fn sleep(&mut self) {
        (**self).sleep();
    }
}

/// The time that [`RolloutEngine::poll`] waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// It does not wait. An engine that computes in this process does a bounded piece of work, so that a
    /// caller who asks again and again gets everything.
    Never,
    /// It waits until at least one group is finished, or nothing is in flight.
    ForGroup,
}

/// The name of a request among those in flight.
pub type RequestId = u64;

/// A request for the completions of one prompt. In JSON it is a message to an engine in another process. It
/// has everything that the completions depend on, except for the weights.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupRequest {
    /// The id, which the caller chooses. No other request in flight has it.
    pub id: RequestId,
    /// The question, of at least one token.
    pub prompt: Prompt,
    /// The number of the draw in the run; see [`Group::draw`].
    pub draw: u64,
    /// The step that the request is for; 0 outside of training. An engine needs no step; a record of requests
    /// does.
    #[serde(default)]
    pub step: Step,
    /// The number of completions; at least 1.
    pub group_size: usize,
    /// The way in which completions are drawn.
    pub sampling: Arc<Sampling>,
    /// The seed from which the completions' seeds are derived.
    pub seed: Seed,
}

impl GroupRequest {
    /// Makes one request for each prompt, with the number of its draw. The ids count from 0.
    pub fn of_prompts(
        prompts: impl IntoIterator<Item = (u64, Prompt)>,
        group_size: usize,
        sampling: &Sampling,
        seed: Seed,
    ) -> Vec<GroupRequest> {
        let sampling = Arc::new(sampling.clone());
        let request = |(id, (draw, prompt))| {
            let sampling = sampling.clone();
            GroupRequest { id, prompt, draw, step: 0, group_size, sampling, seed }
        };
        (0..).zip(prompts).map(request).collect()
    }

    /// Gives the seed of one of the request's completions.
    pub fn completion_seed(&self, index: usize) -> Seed {
        self.seed.derive("completion", &[self.prompt.id, self.draw, index as u64])
    }

    /// Hashes everything that the completions depend on, except for the weights: prompt, draw, number,
    /// sampling and seed. The id has no part in it.
    pub fn digest(&self) -> [u8; 32] {
        let GroupRequest { id: _, prompt, draw, step: _, group_size, sampling, seed } = self;
        let words = serde_json::to_string(&(prompt, sampling)).unwrap_or_default();
        seed.derive(&words, &[*draw, *group_size as u64]).bytes()
    }

    /// Gives the answer to this request, in the form of [`RolloutEngine::poll`].
    pub fn answer(self, completions: Vec<Completion>) -> (RequestId, Group) {
        let GroupRequest { id, prompt, draw, .. } = self;
        (id, Group { prompt, completions, step: 0, draw })
    }

    /// Refuses a request that asks for nothing. An [`InFlight`](crate::InFlight) checks this, and an engine may.
    ///
    /// # Errors
    /// When the prompt has no token, or the request asks for no completion or for completions of no token.
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

    /// Refuses a group that is no answer to this request, because another program's answers are not to be
    /// trusted. An [`InFlight`](crate::InFlight) checks this; a scheduler without one should.
    ///
    /// # Errors
    /// When the group belongs to another prompt or draw, or has another number of completions. When a
    /// completion has no token, or more tokens than were asked for. When its mask, or its log-probabilities,
    /// are not one for each token, and when a log-probability is not finite or above 0.
    pub fn check_answer(&self, group: &Group) -> Result<(), RolloutError> {
        let wrong = |problem| Err(RolloutError::Answer { id: self.id, problem });
        if (&group.prompt, group.draw) != (&self.prompt, self.draw) {
            return wrong(format!(
                "it is a group of prompt {} in draw {}, expected one of prompt {} in draw {}",
                group.prompt.id, group.draw, self.prompt.id, self.draw
            ));
        }
        if group.completions.len() != self.group_size {
            let (came, expected) = (group.completions.len(), self.group_size);
            return wrong(format!("it has {came} completions, expected {expected}"));
        }
        let most = self.sampling.max_completion_tokens;
        for (index, completion) in group.completions.iter().enumerate() {
            let Completion { tokens, mask, logprobs, .. } = completion;
            let unlikely = |logprob: &&f32| !logprob.is_finite() || **logprob > LOGPROB_ROUNDING;
            let came = completion.count();
            if came == 0 || came > most {
                return wrong(format!(
                    "completion {index} has {came} tokens, expected 1 to {most}"
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
                    "completion {index} has {} log-probabilities for {} tokens, expected one for each",
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

/// The number that a log-probability of 0 may be rounded up to: half precision rounds it up by some 10⁻³.
const LOGPROB_ROUNDING: f32 = 1e-2;
