//! Checks of a server's completions.

use firebrick_core::{FinishReason, TokenId};
use firebrick_rollout::Sampling;
use serde_json::Value;

use crate::ServerError;

/// Upper bound on a log-probability, which may be rounded to a little above 0.
const ROUNDING: f64 = 1e-2;

/// What vLLM writes for a log-probability that is not finite.
const NOT_FINITE: f64 = -9999.0;

/// Tells whether a number can be the log-probability of a token.
pub(crate) fn is_logprob(number: f64) -> bool {
    number.is_finite() && number <= ROUNDING && number > NOT_FINITE
}

/// One completion, as a server sent it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SampledCompletion {
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) logprobs: Vec<f32>,
    pub(crate) finish: FinishReason,
}

/// Rules that a completion has to follow.
pub(crate) struct CompletionRules<'a> {
    /// Path of the request.
    pub(crate) request: &'static str,
    pub(crate) sampling: &'a Sampling,
    pub(crate) vocabulary: usize,
}

impl CompletionRules<'_> {
    /// Checks completion `index` of a group. `finish` is the server's reason for the completion's end. A completion
    /// that the server ended early is not a sample, whatever its tokens are.
    pub(crate) fn check(
        &self,
        index: usize,
        tokens: &Value,
        logprobs: Vec<f64>,
        finish: Option<&str>,
    ) -> Result<SampledCompletion, ServerError> {
        if !matches!(finish, Some("stop" | "length")) {
            return Err(ServerError::Aborted { index });
        }

        let tokens = self.tokens(index, tokens)?;
        if logprobs.len() != tokens.len() {
            return Err(self.wrong(format!(
                "completion {index} has {} log-probabilities, expected one for each of its tokens ({})",
                logprobs.len(),
                tokens.len()
            )));
        }

        if let Some(logprob) = logprobs.iter().find(|logprob| !is_logprob(**logprob)) {
            return Err(self.wrong(format!(
                "completion {index} has a log-probability of {logprob}, expected finite numbers of at most 0"
            )));
        }

        // The trainer's rule decides instead of the server's reason, because the trainer would never sample past a stop
        // token.
        let ends = |end: usize| self.sampling.finish(&tokens[..end]);
        let finish = (1..=tokens.len()).find_map(|end| ends(end).map(|finish| (end, finish)));

        match finish {
            Some((end, finish)) if end == tokens.len() => Ok(SampledCompletion {
                tokens,
                logprobs: logprobs.into_iter().map(|logprob| logprob as f32).collect(),
                finish,
            }),
            Some((end, _)) => Err(self.wrong(format!(
                "completion {index} has {} tokens, but should have ended after {end}",
                tokens.len()
            ))),
            None => Err(ServerError::Aborted { index }),
        }
    }

    fn tokens(&self, index: usize, tokens: &Value) -> Result<Vec<TokenId>, ServerError> {
        let limit = self.sampling.max_completion_tokens;
        let list = tokens
            .as_array()
            .ok_or_else(|| self.wrong(format!("completion {index} has no list of token ids")))?;

        if list.is_empty() || list.len() > limit {
            let actual = list.len();
            return Err(self
                .wrong(format!("completion {index} has {actual} tokens, expected 1 to {limit}")));
        }

        let known = |id: u64| usize::try_from(id).is_ok_and(|id| id < self.vocabulary);
        let token = |value: &Value| {
            let id = value.as_u64().filter(|&id| known(id)).and_then(|id| id.try_into().ok());
            id.ok_or_else(|| {
                self.wrong(format!(
                    "completion {index} has the token id {value}, expected ids below {}",
                    self.vocabulary
                ))
            })
        };

        list.iter().map(token).collect()
    }

    pub(crate) fn wrong(&self, problem: String) -> ServerError {
        ServerError::Answer { request: self.request, problem }
    }

    /// Sorts completions by their indices. Each of `count` completions must be there once.
    pub(crate) fn in_order(
        &self,
        count: usize,
        actual: Vec<(usize, SampledCompletion)>,
    ) -> Result<Vec<SampledCompletion>, ServerError> {
        let mut slots: Vec<Option<SampledCompletion>> = vec![None; count];
        let number = actual.len();

        for (index, sampled) in actual {
            match slots.get_mut(index) {
                Some(slot) if slot.is_none() => *slot = Some(sampled),
                _ => {
                    return Err(self.wrong(format!(
                        "it has an unexpected completion {index} (expected completions: {count})"
                    )));
                }
            }
        }

        let all: Option<Vec<SampledCompletion>> = slots.into_iter().collect();
        all.ok_or_else(|| self.wrong(format!("it has only {number} of {count} completions")))
    }
}

/// Collects numbers; a missing value becomes NaN.
pub(crate) fn numbers(values: impl Iterator<Item = Option<f64>>) -> Vec<f64> {
    values.map(|value| value.unwrap_or(f64::NAN)).collect()
}

/// Checks the log-probabilities of a probe's tokens after the first.
pub(crate) fn of_probe(
    request: &'static str,
    expected: usize,
    logprobs: Vec<f64>,
) -> Result<Vec<f32>, ServerError> {
    let error = |problem| Err(ServerError::Answer { request, problem });

    if logprobs.len() != expected {
        let actual = logprobs.len();
        return error(format!(
            "it has {actual} of the {expected} expected log-probabilities of given tokens"
        ));
    }

    match logprobs.iter().find(|logprob| !is_logprob(**logprob)) {
        Some(logprob) => error(format!(
            "a given token has a log-probability of {logprob}, expected finite numbers of at most 0"
        )),
        None => Ok(logprobs.into_iter().map(|logprob| logprob as f32).collect()),
    }
}
