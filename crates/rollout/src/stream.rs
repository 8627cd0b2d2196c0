//! One completion, token by token, for a listener who watches it being written.

use std::{ops::ControlFlow, sync::Arc};

use firebrick_core::{Detokenizer, FinishReason, TokenId};
use firebrick_models::PolicyModel;

use crate::{GroupRequest, LocalEngine, RolloutEngine, RolloutError, SampleOn, Wait};

/// What a stream has sampled.
#[derive(Clone, Debug, PartialEq)]
pub struct Streamed {
    /// Sampled tokens, the stop token included.
    pub tokens: Vec<TokenId>,
    /// Log-probability of each token, as in [`Completion::logprobs`](firebrick_core::Completion).
    pub logprobs: Vec<f32>,
    /// Why the stream ended; `None` if the listener ended it.
    pub finish: Option<FinishReason>,
}

/// Samples the first completion of `request`, the one that a [`LocalEngine`] gives. Calls `on_token` with every token
/// and its log-probability soon after it is sampled, the stop token included; a device other than the CPU samples a few
/// before they are read. `max_tokens` is the model's context, prompt and completion together.
///
/// # Errors
/// Fails if prompt and completion do not fit the context, or the device fails.
pub fn stream<M: PolicyModel>(
    policy: &M,
    request: &GroupRequest,
    max_tokens: usize,
    sample_on: SampleOn,
    on_token: &mut dyn FnMut(TokenId, f32) -> ControlFlow<()>,
) -> Result<Streamed, RolloutError> {
    let mut engine = LocalEngine::new(policy, Arc::new(NoText), 1, max_tokens, sample_on);
    RolloutEngine::<M>::submit(
        &mut engine,
        vec![GroupRequest { group_size: 1, ..request.clone() }],
    )?;

    let mut streamed = Streamed { tokens: Vec::new(), logprobs: Vec::new(), finish: None };
    loop {
        let groups = RolloutEngine::<M>::poll(&mut engine, Wait::Never, &mut |_| ())?;
        let ended = groups.first().and_then(|(_, group)| group.completions.first());
        let (tokens, logprobs) = match ended {
            Some(completion) => (&*completion.tokens, &*completion.logprobs),
            None => engine.written(),
        };

        let heard = streamed.tokens.len();
        for (&token, &logprob) in tokens.iter().zip(logprobs).skip(heard) {
            streamed.tokens.push(token);
            streamed.logprobs.push(logprob);
            let last = streamed.tokens.len() == tokens.len();
            streamed.finish = ended.filter(|_| last).map(|completion| completion.finish);
            if on_token(token, logprob).is_break() {
                return Ok(streamed);
            }
        }
        if ended.is_some() {
            return Ok(streamed);
        }
    }
}

/// A detokenizer without text: whoever listens makes it from the tokens.
struct NoText;

impl Detokenizer for NoText {
    fn detokenize(&self, _: &[TokenId]) -> String {
        String::new()
    }
}
