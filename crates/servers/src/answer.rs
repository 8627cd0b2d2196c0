//! Checks of a server's completions.

use firebrick_core::{FinishReason, TokenId};
use firebrick_rollout::Sampling;
use serde_json::Value;

use crate::ServerError;

/// The number that a log-probability of 0 may be rounded up to.
const ROUNDING: f64 = 1e-2;

/// The number that vLLM writes for a log-probability that is not finite.
const NOT_FINITE: f64 = -9999.0;

/// Tells whether a number can be the log-probability of a token.
fn is_logprob(number: f64) -> bool {
    number.is_finite() && number <= ROUNDING && number > NOT_FINITE
}

/// One completion, as a server gave it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sampled {
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) logprobs: Vec<f32>,
    pub(crate) finish: FinishReason,
}

/// The rules that a completion has to follow.
pub(crate) struct Expected<'a> {
    /// The request's path.
    pub(crate) request: &'static str,
    pub(crate) sampling: &'a Sampling,
    pub(crate) vocabulary: usize,
}

impl Expected<'_> {
    /// Checks one completion of a group, whose place is `index`. `finish` is the server's word for the
    /// completion's end. A completion that the server ended early is no sample, whatever its tokens are.
    pub(crate) fn check(
        &self,
        index: usize,
        tokens: &Value,
        logprobs: Vec<f64>,
        finish: Option<&str>,
    ) -> Result<Sampled, ServerError> {
        if !matches!(finish, Some("stop" | "length")) {
            return Err(ServerError::Aborted { index });
        }
        let tokens = self.tokens(index, tokens)?;
        if logprobs.len() != tokens.len() {
            return Err(self.wrong(format!(
                "completion {index} has {} log-probabilities for {} tokens, expected one for each",
                logprobs.len(),
                tokens.len()
            )));
        }
        if let Some(logprob) = logprobs.iter().find(|logprob| !is_logprob(**logprob)) {
            return Err(self.wrong(format!(
                "completion {index} has a log-probability of {logprob}, expected finite numbers of at most 0"
            )));
        }
        // The trainer's rule decides, and not the server's word: the trainer would never sample past a stop
        // token.
        let ends = |end: usize| self.sampling.finish(&tokens[..end]);
        let finish = (1..=tokens.len()).find_map(|end| ends(end).map(|finish| (end, finish)));
        match finish {
            Some((end, finish)) if end == tokens.len() => Ok(Sampled {
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
        let most = self.sampling.max_completion_tokens;
        let list = tokens
            .as_array()
            .ok_or_else(|| self.wrong(format!("completion {index} has no list of token ids")))?;
        if list.is_empty() || list.len() > most {
            let came = list.len();
            return Err(
                self.wrong(format!("completion {index} has {came} tokens, expected 1 to {most}"))
            );
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

    /// Puts completions into the order of their places. Each of `count` completions must be there once.
    pub(crate) fn in_order(
        &self,
        count: usize,
        came: Vec<(usize, Sampled)>,
    ) -> Result<Vec<Sampled>, ServerError> {
        let mut places: Vec<Option<Sampled>> = vec![None; count];
        let number = came.len();
        for (index, sampled) in came {
            let place = places.get_mut(index);
            match place {
                Some(place) if place.is_none() => *place = Some(sampled),
                _ => {
                    return Err(self.wrong(format!(
                        "it has a surplus completion {index}, expected {count} completions"
                    )));
                }
            }
        }
        let all: Option<Vec<Sampled>> = places.into_iter().collect();
        all.ok_or_else(|| self.wrong(format!("it has {number} completions, expected {count}")))
    }
}

/// Makes a list of numbers; a missing value becomes NaN.
pub(crate) fn numbers(values: impl Iterator<Item = Option<f64>>) -> Vec<f64> {
    values.map(|value| value.unwrap_or(f64::NAN)).collect()
}

/// Checks the log-probabilities of a probe's tokens behind the first.
pub(crate) fn of_probe(
    request: &'static str,
    expected: usize,
    logprobs: Vec<f64>,
) -> Result<Vec<f32>, ServerError> {
    let wrong = |problem| Err(ServerError::Answer { request, problem });
    if logprobs.len() != expected {
        let came = logprobs.len();
        return wrong(format!(
            "it has {came} log-probabilities of given tokens, expected {expected}"
        ));
    }
    match logprobs.iter().find(|logprob| !is_logprob(**logprob)) {
        Some(logprob) => wrong(format!(
            "a given token has a log-probability of {logprob}, expected finite numbers of at most 0"
        )),
        None => Ok(logprobs.into_iter().map(|logprob| logprob as f32).collect()),
    }
}
