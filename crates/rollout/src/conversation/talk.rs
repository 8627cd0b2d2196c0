//! One conversation.

use firebrick_core::{
    Completion, Detokenizer, EnvironmentFailed, Episode, FinishReason, Outcome, Reply, TokenId,
};

use super::{Hearing, Turns};
use crate::RolloutError;

/// A completion on its way, with the episode that it is part of.
#[derive(Default)]
pub(super) struct Talk {
    pub(super) completion: Completion,
    pub(super) outcome: Outcome,
    /// None before the first reply, while one is awaited, and when the conversation is over.
    pub(super) episode: Option<Box<dyn Episode>>,
    /// The policy's words that have no reply.
    pub(super) said: String,
    /// Tokens that were heard.
    heard: usize,
}

impl Talk {
    /// Appends a turn. Its words are without the token of `stop` that ended it.
    pub(super) fn said(
        &mut self,
        turn: Completion,
        stop: &[TokenId],
        detokenizer: &dyn Detokenizer,
    ) {
        let Completion { tokens, logprobs, policy_version, finish, .. } = turn;
        let ended = tokens.last().is_some_and(|last| stop.contains(last));
        self.said = detokenizer.detokenize(&tokens[..tokens.len() - usize::from(ended)]);
        let completion = &mut self.completion;
        completion.policy_version = match self.outcome.turns {
            0 => policy_version,
            _ => completion.policy_version.min(policy_version),
        };
        completion.write(&tokens, &logprobs);
        completion.text += &self.said;
        completion.finish = finish;
        self.outcome.turns += 1;
    }

    /// Takes up the reply to the last turn; tells if the policy has another one. The policy may write `most` tokens in all.
    ///
    /// # Errors
    /// When the environment can answer nobody any more.
    pub(super) fn heard(
        &mut self,
        reply: Result<Reply, EnvironmentFailed>,
        most: usize,
        turns: &Turns,
        hearing: &dyn Hearing,
    ) -> Result<bool, RolloutError> {
        let Reply { heard, reward, over } = match reply {
            Ok(reply) => reply,
            Err(EnvironmentFailed::Episode(why)) => return Ok(self.fail(why)),
            Err(failed) => return Err(RolloutError::engine(failed, false)),
        };
        if let Some(reward) = reward {
            let sum = self.outcome.reward.unwrap_or(0.0) + reward;
            if !sum.is_finite() {
                return Ok(
                    self.fail(format!("its rewards add up to {sum}, expected a finite number"))
                );
            }
            self.outcome.reward = Some(sum);
        }
        if !heard.is_empty() {
            for part in [hearing.between(), &heard] {
                self.completion.text += part;
            }
        }
        if over {
            self.outcome.over = true;
            self.completion.finish = FinishReason::Stop;
            return Ok(false);
        }
        let last = self.completion.tokens.last().copied();
        let ended = last.filter(|_| self.completion.finish == FinishReason::Stop);
        self.completion.finish = FinishReason::Length;
        if self.outcome.turns >= turns.max_turns || self.completion.count() >= most {
            return Ok(false);
        }
        let tokens = match hearing.tokens(&heard, ended) {
            Ok(tokens) => tokens,
            Err(why) => return Ok(self.fail(why)),
        };
        self.heard = self.heard.saturating_add(tokens.len());
        if self.heard > turns.max_heard_tokens {
            return Ok(false);
        }
        self.completion.hear(&tokens);
        self.completion.text += hearing.between();
        Ok(true)
    }

    /// The completion of a conversation that is over.
    pub(super) fn ended(self) -> Completion {
        let mut completion = self.completion;
        completion.outcome = Some(self.outcome);
        completion
    }

    fn fail(&mut self, why: String) -> bool {
        self.outcome.failure = why;
        false
    }
}
