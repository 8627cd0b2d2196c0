//! One conversation of the policy with an environment.

use firebrick_core::{
    Completion, Detokenizer, Ended, EnvironmentFailed, Episode, FinishReason, Outcome, Reply,
};

use super::{Renderer, Turns};
use crate::{RolloutError, Sampling};

/// An unfinished completion, with its episode.
#[derive(Default)]
pub(super) struct Conversation {
    pub(super) completion: Completion,
    pub(super) outcome: Outcome,
    /// Absent before the first reply, while a reply is awaited, and when the conversation is over.
    pub(super) episode: Option<Box<dyn Episode>>,
    /// True once the episode has started.
    pub(super) started: bool,
    /// True if the environment had no room for the last action.
    pub(super) again: bool,
    /// Text of the policy that has no reply.
    pub(super) action: String,
    /// True if the last turn was cut off because the policy may write no more.
    cut: bool,
}

/// How a conversation continues after a reply.
pub(super) enum Next {
    /// With another turn of the policy.
    Speak,
    /// With the same action for the environment, later.
    AskAgain,
    /// Not at all: it is over.
    End,
}

impl Conversation {
    /// Appends a turn of a policy that writes as `sampling` says. A stop token that ended the turn is not part of its
    /// text. A turn that did not stop was cut off if it has fewer than `limit` tokens, or the policy has written as
    /// many as it may.
    pub(super) fn act(
        &mut self,
        turn: Completion,
        sampling: &Sampling,
        limit: usize,
        detokenizer: &dyn Detokenizer,
    ) {
        let Completion { tokens, logprobs, policy_version, finish, .. } = turn;
        let ended = tokens.last().is_some_and(|last| sampling.stop.contains(last));
        self.action = detokenizer.detokenize(&tokens[..tokens.len() - usize::from(ended)]);
        let completion = &mut self.completion;
        completion.policy_version = match self.outcome.turns {
            0 => policy_version,
            _ => completion.policy_version.min(policy_version),
        };

        completion.write(&tokens, &logprobs);
        completion.text += &self.action;
        completion.finish = finish;

        let no_more = completion.count() >= sampling.max_completion_tokens;
        self.cut = finish == FinishReason::Length && (no_more || tokens.len() < limit);
        self.outcome.turns += 1;
    }

    /// Processes the reply to the last turn, whose text was `action`. The policy may write `limit` tokens in total.
    ///
    /// # Errors
    /// Fails if the environment gives no more answers.
    pub(super) fn observe(
        &mut self,
        action: String,
        reply: Result<Reply, EnvironmentFailed>,
        limit: usize,
        turns: &Turns,
        renderer: &dyn Renderer,
    ) -> Result<Next, RolloutError> {
        let Reply { observation, reward, over } = match reply {
            Ok(reply) => reply,
            Err(EnvironmentFailed::Busy(_)) => {
                self.action = action;
                self.again = true;
                return Ok(Next::AskAgain);
            }
            Err(EnvironmentFailed::Episode(why)) => return Ok(self.fail(why.to_string())),
            Err(failed) => return Err(RolloutError::Environment(failed)),
        };

        self.again = false;
        if let Some(reward) = reward {
            let sum = self.outcome.reward.unwrap_or(0.0) + reward;
            if !sum.is_finite() {
                return Ok(self.fail(format!(
                    "the environment's rewards add up to {sum}, expected a finite number"
                )));
            }
            self.outcome.reward = Some(sum);
        }

        let last_token = self.completion.tokens.last().copied();
        let end = last_token.filter(|_| self.completion.finish == FinishReason::Stop);

        let reason = if over {
            Some(Ended::Over)
        } else if self.outcome.turns >= turns.max_turns {
            Some(Ended::Turns)
        } else if self.completion.count() >= limit {
            Some(Ended::Tokens)
        } else {
            None
        };

        if let Some(ended) = reason {
            self.close(ended, &observation);
            let stopped = over && !self.cut;
            self.completion.finish =
                if stopped { FinishReason::Stop } else { FinishReason::Length };
            return Ok(Next::End);
        }

        self.completion.finish = FinishReason::Length;
        let observed = self.completion.tokens.len() - self.completion.count();
        let room = turns.max_observation_tokens.saturating_sub(observed);
        let tokens = match renderer.tokens_up_to(&observation, end, room) {
            Ok(tokens) => tokens,
            Err(why) => return Ok(self.fail(why)),
        };

        if tokens.len() > room {
            self.close(Ended::Observation, &observation);
            return Ok(Next::End);
        }

        self.completion.observe(&tokens);
        for part in [renderer.between(), &observation, renderer.between()] {
            self.completion.text += part;
        }
        Ok(Next::Speak)
    }

    /// Returns the completion of a conversation that is over.
    pub(super) fn ended(self) -> Completion {
        let mut completion = self.completion;
        completion.outcome = Some(self.outcome);
        completion
    }

    /// Notes the end, and the observation that the policy does not read any more.
    fn close(&mut self, ended: Ended, observation: &str) {
        self.outcome.ended = ended;
        self.outcome.closing = observation.chars().take(Outcome::CLOSING).collect();
    }

    fn fail(&mut self, why: String) -> Next {
        self.outcome.failure = why;
        self.outcome.ended = Ended::Failed;
        Next::End
    }
}
