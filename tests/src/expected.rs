//! Blocks of a fixture's `expected.json`; `tests/fixtures/README.md` says what they hold.

use std::collections::BTreeMap;

use firebrick_core::TokenId;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

/// `tokenizer`: special ids, and texts with their tokens.
#[derive(Debug, Deserialize)]
pub struct Tokens {
    /// Token that fills up a batch.
    pub pad_id: TokenId,
    /// Token that ends a completion.
    pub eos_id: TokenId,
    /// Token that begins a text, if there is one.
    pub bos_id: Option<TokenId>,
    /// Size of the vocabulary, added tokens included.
    pub len: usize,
    /// Texts with their tokens.
    pub encode: Vec<Encoded>,
}

/// A text as tokens and back.
#[derive(Debug, Deserialize)]
pub struct Encoded {
    /// Text to encode.
    pub text: String,
    /// Tokens of the text, with those that the tokenizer adds.
    pub ids: Vec<TokenId>,
    /// Tokens of the text, without those that the tokenizer adds.
    pub ids_no_special: Vec<TokenId>,
    /// Text of `ids`, decoded without special tokens.
    pub decoded_skip_special: String,
}

/// An entry of `chat`: a conversation, and its rendering.
#[derive(Debug, Deserialize)]
pub struct Chat {
    /// Messages of the conversation.
    pub messages: Value,
    /// True if the text ends where the model is to speak.
    pub add_generation_prompt: bool,
    /// Further variables of the template.
    pub kwargs: Map<String, Value>,
    /// Time that the clock shows.
    pub now: Option<String>,
    /// Rendered text.
    pub text: Option<String>,
    /// Tokens of the text.
    pub ids: Option<Vec<TokenId>>,
    /// Complaint of the template, if it raises one instead.
    pub raises: Option<String>,
}

/// `logits`: those of one batch, padded on either side.
#[derive(Debug, Deserialize)]
pub struct Logits {
    /// Logits of the batch padded on the right.
    pub right: LogitsOfBatch,
    /// Logits of the batch padded on the left.
    pub left: LogitsOfBatch,
}

/// One side of [`Logits`].
#[derive(Debug, Deserialize)]
pub struct LogitsOfBatch {
    /// Tokens, `[rows, tokens]`.
    pub input_ids: Vec<Vec<TokenId>>,
    /// 0 on padding, 1 on tokens.
    pub attention_mask: Vec<Vec<u8>>,
    /// Logits of some positions.
    pub samples: Vec<LogitsSample>,
}

/// Logits of one position.
#[derive(Debug, Deserialize)]
pub struct LogitsSample {
    /// Row of the batch.
    pub row: usize,
    /// Column, padding counted.
    pub pos: usize,
    /// Logits of the first tokens.
    pub first8: Vec<f64>,
    /// Likeliest tokens.
    pub top5_ids: Vec<TokenId>,
    /// Their logits, descending.
    pub top5: Vec<f64>,
    /// log Σ exp of the logits.
    pub logsumexp: f64,
}

/// `logprobs`: completions under the model.
#[derive(Debug, Deserialize)]
pub struct LogProbs {
    /// Prompts, padded.
    pub prompt_ids: Vec<Vec<TokenId>>,
    /// 0 on padding of the prompts, 1 on their tokens.
    pub prompt_mask: Vec<Vec<u8>>,
    /// Their completions, padded.
    pub completion_ids: Vec<Vec<TokenId>>,
    /// 0 on padding of the completions, 1 on their tokens.
    pub completion_mask: Vec<Vec<u8>>,
    /// A [`LogProbsAt`] for each temperature.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Numbers of every completion token, one list per completion.
#[derive(Debug, Deserialize)]
pub struct LogProbsAt {
    /// log p of each token.
    pub logprobs: Vec<Vec<f64>>,
    /// Sum of log p over each completion.
    pub sum: Vec<f64>,
    /// Entropy of the distribution that each token is from.
    pub entropy: Vec<Vec<f64>>,
}

/// `ce_lora`: cross-entropy over every token of `unmerged_logits`, and gradients of adapters.
#[derive(Debug, Deserialize)]
pub struct AdapterGradients {
    /// Mean over the tokens.
    pub loss: f64,
    /// Norm of the gradient over all adapters.
    pub total_grad_norm: f64,
    /// Norm of each gradient, by PEFT's names.
    pub grad_norms: BTreeMap<String, f64>,
}

/// `greedy`: the likeliest continuations.
#[derive(Debug, Deserialize)]
pub struct Greedy {
    /// Prompts that are continued.
    pub prompts: Vec<Vec<TokenId>>,
    /// Continuations if no token ends them.
    pub new_ids_no_eos: Vec<Vec<TokenId>>,
    /// Texts of these continuations.
    pub texts: Vec<String>,
    /// Continuations if some tokens end them.
    pub with_stop: GreedyWithStop,
}

/// Part of [`Greedy`].
#[derive(Debug, Deserialize)]
pub struct GreedyWithStop {
    /// Tokens that end a continuation.
    pub stop_ids: Vec<TokenId>,
    /// Continuations, padded after the stop token.
    pub new_ids_padded: Vec<Vec<TokenId>>,
    /// Their lengths, the stop token included.
    pub lengths: Vec<usize>,
}

/// `ce`: cross-entropy of some tokens, and its gradient.
#[derive(Debug, Deserialize)]
pub struct CrossEntropyFacts {
    /// Tokens, `[rows, tokens]`.
    pub input_ids: Vec<Vec<TokenId>>,
    /// 0 on padding, 1 on tokens.
    pub attention_mask: Vec<Vec<u8>>,
    /// Token at each position, or −100 if it does not count.
    pub labels: Vec<Vec<i64>>,
    /// Mean over the tokens that count.
    pub loss: f64,
    /// Norm of the gradient over all parameters.
    pub total_grad_norm: f64,
    /// Norm of each parameter's gradient.
    pub grad_norms: BTreeMap<String, f64>,
    /// First entries of each gradient.
    pub grad_first4: BTreeMap<String, Vec<f64>>,
}

/// `dapo`: the clipped surrogate on the batch of `logprobs`.
#[derive(Debug, Deserialize)]
pub struct DapoFacts {
    /// One advantage per completion.
    pub advantages: Vec<f32>,
    /// ε_low.
    pub eps_low: f64,
    /// ε_high.
    pub eps_high: f64,
    /// A [`DapoAt`] for each temperature.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Surrogate at one temperature.
#[derive(Debug, Deserialize)]
pub struct DapoAt {
    /// Log-probabilities under the policy that sampled, one list per completion.
    pub old_logprobs: Vec<Vec<f32>>,
    /// New probability over the old one, for each token.
    pub ratio: Vec<Vec<f64>>,
    /// Loss of each token, before the mean.
    pub per_token_loss: Vec<Vec<f64>>,
    /// Mean over all tokens.
    pub loss: f64,
    /// Share of tokens cut at the lower end.
    pub clip_frac_low: f64,
    /// Share of tokens cut at the upper end.
    pub clip_frac_high: f64,
    /// Norm of the gradient over all parameters.
    pub total_grad_norm: f64,
    /// Norm of each parameter's gradient.
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
    /// Weight decay, on every parameter.
    pub weight_decay: f64,
    /// Norm to which a larger gradient is scaled down.
    pub max_grad_norm: f64,
    /// Numbers before each step, and after the last.
    pub trajectory: Vec<AdamWStep>,
}

/// Part of [`AdamWFacts`].
#[derive(Debug, Deserialize)]
pub struct AdamWStep {
    /// Loss before the step.
    pub loss: f64,
    /// Norm of the step's gradient, absent after the last step.
    pub grad_norm_before_clip: Option<f64>,
}

/// Removes the padding from the rows.
pub fn unpad<T: Copy>(rows: &[Vec<T>], mask: &[Vec<u8>]) -> Vec<Vec<T>> {
    let real = |(row, mask): (&Vec<T>, &Vec<u8>)| {
        row.iter().zip(mask).filter(|&(_, &mask)| mask == 1).map(|(&value, _)| value).collect()
    };
    rows.iter().zip(mask).map(real).collect()
}

/// Reads the entries `T1.0`, `T0.7`, … with their temperatures.
///
/// # Panics
/// If there is no entry, or one of them is not a `T`.
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

/// `router_aux`: the loss of uneven loads on the texts of `logits`, as a mean over the layers, each by itself.
#[derive(Debug, Deserialize)]
pub struct RouterAux {
    /// Loss before its weight.
    pub loss: f64,
    /// Norm of each parameter's gradient, for those that have one.
    pub grad_norms: BTreeMap<String, f64>,
}
