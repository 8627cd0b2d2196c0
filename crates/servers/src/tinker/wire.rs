//! Tinker's messages, in their JSON dialect, as in SkyRL 0.3.0 and `tinker` 0.24.

use firebrick_core::TokenId;
use serde::Serialize;
use serde_json::Value;

use crate::answer::is_logprob;

/// A text of a model: the tokens that it is given, and those that it is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// The first tokens; at least one.
    pub prompt: &'a [TokenId],
    /// The tokens after them.
    pub completion: &'a [TokenId],
}

impl Text<'_> {
    /// Returns the number of tokens that have one before them, each of which the server predicts.
    pub(super) fn targets(&self) -> usize {
        (self.prompt.len() + self.completion.len()).saturating_sub(1)
    }

    /// Returns the place of the completion's first token among the targets.
    fn begin(&self) -> usize {
        self.prompt.len().saturating_sub(1)
    }

    fn tokens(&self) -> impl Iterator<Item = TokenId> {
        self.prompt.iter().chain(self.completion).copied()
    }

    /// Spreads numbers of the completion's tokens over all targets; the others have 0.
    fn spread(&self, numbers: impl Iterator<Item = f32>) -> Vec<f32> {
        let zeros = || std::iter::repeat(0.0);
        zeros().take(self.begin()).chain(numbers).chain(zeros()).take(self.targets()).collect()
    }
}

/// One text of a pass, with what the loss needs of each of its targets.
#[derive(Serialize)]
pub(super) struct Datum {
    model_input: ModelInput,
    loss_fn_inputs: LossInputs,
}

#[derive(Serialize)]
pub(super) struct ModelInput {
    chunks: [Chunk; 1],
}

#[derive(Serialize)]
struct Chunk {
    r#type: &'static str,
    tokens: Vec<TokenId>,
}

#[derive(Serialize)]
struct LossInputs {
    target_tokens: Numbers<TokenId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weights: Option<Numbers<f32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Numbers<f32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    advantages: Option<Numbers<f32>>,
}

#[derive(Serialize)]
struct Numbers<T> {
    shape: [usize; 1],
    dtype: &'static str,
    data: Vec<T>,
}

fn floats(data: Vec<f32>) -> Numbers<f32> {
    Numbers { shape: [data.len()], dtype: "float32", data }
}

impl ModelInput {
    pub(super) fn new(tokens: impl IntoIterator<Item = TokenId>) -> Self {
        let tokens = tokens.into_iter().collect();
        ModelInput { chunks: [Chunk { r#type: "encoded_text", tokens }] }
    }
}

impl Datum {
    /// Bytes of a target in JSON, at most: two token ids and two numbers.
    pub(super) const TARGET_BYTES: usize = 48;

    /// Asks for the log-probabilities of a text.
    pub(super) fn forward(text: &Text<'_>) -> Self {
        Datum::new(text, |inputs| inputs.weights = Some(floats(vec![1.0; text.targets()])))
    }

    /// Asks for the gradient of −Σ cₜ · pₜ / p′ₜ, where p′ₜ are the probabilities of now, so that it is that of −Σ cₜ
    /// log pₜ. Weights are not sent: a server that divides by their sum then divides by the number of targets.
    pub(super) fn backward(
        text: &Text<'_>,
        logprobs: &[f32],
        coefficients: &[f32],
        scale: f64,
    ) -> Self {
        let scaled = |number: &f32| (f64::from(*number) * scale) as f32;
        Datum::new(text, |inputs| {
            inputs.logprobs = Some(floats(text.spread(logprobs.iter().copied())));
            inputs.advantages = Some(floats(text.spread(coefficients.iter().map(scaled))));
        })
    }

    /// Returns the number of targets.
    pub(super) fn targets(&self) -> usize {
        self.loss_fn_inputs.target_tokens.data.len()
    }

    fn new(text: &Text<'_>, fill: impl FnOnce(&mut LossInputs)) -> Self {
        let data: Vec<TokenId> = text.tokens().skip(1).collect();
        let target_tokens = Numbers { shape: [data.len()], dtype: "int64", data };
        let mut loss_fn_inputs =
            LossInputs { target_tokens, weights: None, logprobs: None, advantages: None };
        fill(&mut loss_fn_inputs);
        let model_input = ModelInput::new(text.tokens().take(text.targets()));
        Datum { model_input, loss_fn_inputs }
    }
}

/// The input of a pass, forward or backward.
#[derive(Serialize)]
pub(super) struct Pass {
    pub(super) data: Vec<Datum>,
    pub(super) loss_fn: &'static str,
}

/// A request for a pass of an adapter.
#[derive(Serialize)]
pub(super) struct PassRequest<'a> {
    model_id: &'a str,
    seq_id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    forward_input: Option<&'a Pass>,
    #[serde(skip_serializing_if = "Option::is_none")]
    forward_backward_input: Option<&'a Pass>,
}

impl<'a> PassRequest<'a> {
    pub(super) fn forward(model_id: &'a str, seq_id: u64, pass: &'a Pass) -> Self {
        PassRequest { model_id, seq_id, forward_input: Some(pass), forward_backward_input: None }
    }

    pub(super) fn backward(model_id: &'a str, seq_id: u64, pass: &'a Pass) -> Self {
        PassRequest { model_id, seq_id, forward_input: None, forward_backward_input: Some(pass) }
    }
}

/// Reads the log-probabilities of the texts' completions from a pass's result. The error says what is wrong with it.
pub(super) fn read_logprobs(result: &Value, texts: &[Text<'_>]) -> Result<Vec<Vec<f32>>, String> {
    let outputs = result["loss_fn_outputs"].as_array().map_or(&[][..], |list| list);
    if outputs.len() != texts.len() {
        let (actual, expected) = (outputs.len(), texts.len());
        return Err(format!("it has {actual} lists of log-probabilities, expected {expected}"));
    }

    let read = |(index, (output, text)): (usize, (&Value, &Text<'_>))| {
        let data = output["logprobs"]["data"].as_array().map_or(&[][..], |list| list);
        if data.len() != text.targets() {
            let (actual, expected) = (data.len(), text.targets());
            return Err(format!(
                "text {index} has {actual} log-probabilities, expected {expected}"
            ));
        }
        let number = |value: &Value| {
            let number = value.as_f64().filter(|&number| is_logprob(number));
            number.map(|number| number as f32).ok_or_else(|| {
                let shown: String = value.to_string().chars().take(40).collect();
                format!("text {index} has a log-probability of {shown}, expected finite numbers of at most 0")
            })
        };
        data[text.begin()..].iter().map(number).collect()
    };
    outputs.iter().zip(texts).enumerate().map(read).collect()
}
