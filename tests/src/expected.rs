//! The blocks of a fixture's `expected.json`; `tests/fixtures/README.md` says what they hold.

use std::collections::BTreeMap;

use firebrick_core::TokenId;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

/// `tokenizer`: special ids, and texts with their tokens.
#[derive(Debug, Deserialize)]
pub struct Tokens {
    /// Fills up a batch.
    pub pad_id: TokenId,
    /// Ends a completion.
    pub eos_id: TokenId,
    /// Begins a text, where there is such a token.
    pub bos_id: Option<TokenId>,
    /// Size of the vocabulary, added tokens included.
    pub len: usize,
    /// Texts with their tokens.
    pub encode: Vec<Encoded>,
}

/// A text as tokens and back.
#[derive(Debug, Deserialize)]
pub struct Encoded {
    /// The text.
    pub text: String,
    /// With the tokens that the tokenizer adds.
    pub ids: Vec<TokenId>,
    /// Without them.
    pub ids_no_special: Vec<TokenId>,
    /// `ids`, decoded without special tokens.
    pub decoded_skip_special: String,
}

/// An entry of `chat`: a conversation, and what its rendering gives.
#[derive(Debug, Deserialize)]
pub struct Chat {
    /// The conversation.
    pub messages: Value,
    /// Whether the text ends where the model is to speak.
    pub add_generation_prompt: bool,
    /// Further variables of the template.
    pub kwargs: Map<String, Value>,
    /// What the clock shows.
    pub now: Option<String>,
    /// The text.
    pub text: Option<String>,
    /// The text's tokens.
    pub ids: Option<Vec<TokenId>>,
    /// The template's complaint, where it raises one instead.
    pub raises: Option<String>,
}

/// `logits`, of one batch padded on either side.
#[derive(Debug, Deserialize)]
pub struct Logits {
    /// Padded on the right.
    pub right: LogitsOfBatch,
    /// Padded on the left.
    pub left: LogitsOfBatch,
}

/// One side of [`Logits`].
#[derive(Debug, Deserialize)]
pub struct LogitsOfBatch {
    /// `[rows, tokens]`.
    pub input_ids: Vec<Vec<TokenId>>,
    /// 0 on padding.
    pub attention_mask: Vec<Vec<u8>>,
    /// Some of its positions.
    pub samples: Vec<LogitsSample>,
}

/// The logits of one position.
#[derive(Debug, Deserialize)]
pub struct LogitsSample {
    /// Which row.
    pub row: usize,
    /// Which column, padding counted.
    pub pos: usize,
    /// Of the first tokens.
    pub first8: Vec<f64>,
    /// The likeliest tokens.
    pub top5_ids: Vec<TokenId>,
    /// Their logits, descending.
    pub top5: Vec<f64>,
    /// log Σ exp.
    pub logsumexp: f64,
}

/// `logprobs`: completions under the model.
#[derive(Debug, Deserialize)]
pub struct LogProbs {
    /// Prompts, padded.
    pub prompt_ids: Vec<Vec<TokenId>>,
    /// 0 on padding.
    pub prompt_mask: Vec<Vec<u8>>,
    /// Their completions, padded.
    pub completion_ids: Vec<Vec<TokenId>>,
    /// 0 on padding.
    pub completion_mask: Vec<Vec<u8>>,
    /// By temperature: [`LogProbsAt`].
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Numbers of every completion token, one list per completion.
#[derive(Debug, Deserialize)]
pub struct LogProbsAt {
    /// log p of the token.
    pub logprobs: Vec<Vec<f64>>,
    /// Their sum over the completion.
    pub sum: Vec<f64>,
    /// Entropy of the distribution that the token is from.
    pub entropy: Vec<Vec<f64>>,
}

/// `ce_lora`: cross-entropy over every token of `unmerged_logits`, and gradients of adapters.
#[derive(Debug, Deserialize)]
pub struct AdapterGradients {
    /// Mean over the tokens.
    pub loss: f64,
    /// Over all adapters.
    pub total_grad_norm: f64,
    /// By PEFT's names.
    pub grad_norms: BTreeMap<String, f64>,
}

/// `greedy`: the likeliest continuations.
#[derive(Debug, Deserialize)]
pub struct Greedy {
    /// What is continued.
    pub prompts: Vec<Vec<TokenId>>,
    /// The continuations where no token ends them.
    pub new_ids_no_eos: Vec<Vec<TokenId>>,
    /// The same as texts.
    pub texts: Vec<String>,
    /// The continuations where some tokens end them.
    pub with_stop: GreedyWithStop,
}

/// Part of [`Greedy`].
#[derive(Debug, Deserialize)]
pub struct GreedyWithStop {
    /// The tokens that end a continuation.
    pub stop_ids: Vec<TokenId>,
    /// The continuations, padded after the stop token.
    pub new_ids_padded: Vec<Vec<TokenId>>,
    /// Their lengths, the stop token included.
    pub lengths: Vec<usize>,
}

/// `ce`: cross-entropy of some tokens, and its gradient.
#[derive(Debug, Deserialize)]
pub struct CrossEntropyFacts {
    /// `[rows, tokens]`.
    pub input_ids: Vec<Vec<TokenId>>,
    /// 0 on padding.
    pub attention_mask: Vec<Vec<u8>>,
    /// The token at each position, or −100 where it does not count.
    pub labels: Vec<Vec<i64>>,
    /// Mean over the tokens that count.
    pub loss: f64,
    /// Over all parameters.
    pub total_grad_norm: f64,
    /// By parameter.
    pub grad_norms: BTreeMap<String, f64>,
    /// The first entries of each gradient.
    pub grad_first4: BTreeMap<String, Vec<f64>>,
}

/// `dapo`: the clipped surrogate on the batch of `logprobs`.
#[derive(Debug, Deserialize)]
pub struct DapoFacts {
    /// One per completion.
    pub advantages: Vec<f32>,
    /// ε_low.
    pub eps_low: f64,
    /// ε_high.
    pub eps_high: f64,
    /// By temperature: [`DapoAt`].
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// The surrogate at one temperature.
#[derive(Debug, Deserialize)]
pub struct DapoAt {
    /// Of the policy that sampled, one list per completion.
    pub old_logprobs: Vec<Vec<f32>>,
    /// New over old probability.
    pub ratio: Vec<Vec<f64>>,
    /// The loss before the mean.
    pub per_token_loss: Vec<Vec<f64>>,
    /// Mean over all tokens.
    pub loss: f64,
    /// Share of tokens cut at the lower end.
    pub clip_frac_low: f64,
    /// Share of tokens cut at the upper end.
    pub clip_frac_high: f64,
    /// Over all parameters.
    pub total_grad_norm: f64,
    /// By parameter.
    pub grad_norms: BTreeMap<String, f64>,
}

/// `adamw5`: optimizer steps on the batch of `ce`.
#[derive(Debug, Deserialize)]
pub struct AdamWFacts {
    /// Learning rate.
    pub lr: f64,
    /// β₁ and β₂.
    pub betas: [f64; 2],
    /// ε.
    pub eps: f64,
    /// On every parameter.
    pub weight_decay: f64,
    /// Gradients are scaled to at most this.
    pub max_grad_norm: f64,
    /// Before each step, and after the last.
    pub trajectory: Vec<AdamWStep>,
}

/// Part of [`AdamWFacts`].
#[derive(Debug, Deserialize)]
pub struct AdamWStep {
    /// Before the step.
    pub loss: f64,
    /// Absent after the last step.
    pub grad_norm_before_clip: Option<f64>,
}

/// The rows without their padding.
pub fn unpad<T: Copy>(rows: &[Vec<T>], mask: &[Vec<u8>]) -> Vec<Vec<T>> {
    let real = |(row, mask): (&Vec<T>, &Vec<u8>)| {
        row.iter().zip(mask).filter(|&(_, &mask)| mask == 1).map(|(&value, _)| value).collect()
    };
    rows.iter().zip(mask).map(real).collect()
}

/// The entries `T1.0`, `T0.7`, … with their temperatures.
///
/// # Panics
/// When there is none, or one is not a `T`.
pub fn by_temperature<T: DeserializeOwned>(rest: &Map<String, Value>) -> Vec<(f64, T)> {
    let entries: Vec<(f64, T)> = rest
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix('T')?.parse().ok()?, value)))
        .map(|(temperature, value)| match T::deserialize(value) {
            Ok(entry) => (temperature, entry),
            Err(error) => panic!("at temperature {temperature}: {error}"),
        })
        .collect();
    assert!(!entries.is_empty(), "there is no entry such as \"T1.0\"");
    entries
}

/// `router_aux`: the loss of uneven loads of the texts of `logits`, in the mean over layers, each by itself.
#[derive(Debug, Deserialize)]
pub struct RouterAux {
    /// Before its weight.
    pub loss: f64,
    /// Norm of each parameter's gradient, of those that have one.
    pub grad_norms: BTreeMap<String, f64>,
}
