//! From hidden states to log-probabilities and back, without logits for the whole batch.
//!
//! The head is the widest matrix of a model: for 64 rows of 1,024 tokens and a vocabulary of
//! 151,936, f32 logits take 40 GB. So they are made for a chunk of tokens at a time, and made again
//! in the backward pass, whose gradient is written out by hand:
//! with p = softmax(z / T), ∂ log p_y / ∂z_j = (1[j = y] − p_j) / T and
//! ∂H / ∂z_j = −p_j (log p_j + H) / T.

use burn::tensor::{FloatDType, IndexingUpdateOp, Int, Tensor};

/// Log-probability and entropy of some tokens, `[tokens]` each, in nats.
#[derive(Clone, Debug)]
pub struct TokenLogProbs {
    /// log p of the label.
    pub logprobs: Tensor<1>,
    /// Entropy of the distribution that the label was drawn from.
    pub entropy: Tensor<1>,
}

/// Log-probabilities of `labels` `[tokens]` under `logits` `[tokens, vocab]` at `temperature`.
pub fn token_logprobs(
    logits: Tensor<2>,
    labels: Tensor<1, Int>,
    temperature: f64,
) -> TokenLogProbs {
    let log_p = log_softmax(logits, temperature);
    let logprobs = log_p.clone().gather(1, labels.unsqueeze_dim(1)).squeeze_dim(1);
    TokenLogProbs { logprobs, entropy: entropy(&log_p) }
}

/// Gradient with respect to `logits` `[tokens, vocab]` (before the temperature) of
/// `Σ d_logprobs · logprobs + Σ d_entropy · entropy`.
pub fn logits_gradient(
    logits: Tensor<2>,
    labels: Tensor<1, Int>,
    temperature: f64,
    d_logprobs: Tensor<1>,
    d_entropy: Option<Tensor<1>>,
) -> Tensor<2> {
    let log_p = log_softmax(logits, temperature);
    let p = log_p.clone().exp();
    let column = |row: Tensor<1>| row.unsqueeze_dim::<2>(1);
    let mut gradient = p.clone() * column(d_logprobs.clone()).neg();
    gradient =
        gradient.scatter(1, labels.unsqueeze_dim(1), column(d_logprobs), IndexingUpdateOp::Add);
    if let Some(d_entropy) = d_entropy {
        let spread = log_p.clone() + column(entropy(&log_p));
        gradient = gradient - p * spread * column(d_entropy);
    }
    gradient.div_scalar(temperature)
}

/// `hidden · headᵀ`: `[tokens, hidden]` and `[vocab, hidden]` to `[tokens, vocab]` in f32, multiplied in
/// the format of `hidden`.
pub fn head_logits(hidden: Tensor<2>, head: Tensor<2>) -> Tensor<2> {
    let format = hidden.dtype();
    hidden.matmul(head.cast(format).transpose()).cast(FloatDType::F32)
}

/// [`token_logprobs`] of `hidden` `[tokens, hidden]`, `chunk` tokens at a time.
pub fn head_logprobs(
    hidden: &Tensor<2>,
    head: &Tensor<2>,
    labels: &Tensor<1, Int>,
    temperature: f64,
    chunk: usize,
) -> TokenLogProbs {
    let head = head.clone().cast(hidden.dtype());
    let parts: Vec<TokenLogProbs> = chunks(hidden.dims()[0], chunk)
        .map(|range| {
            let logits = head_logits(hidden.clone().slice_dim(0, range.clone()), head.clone());
            token_logprobs(logits, labels.clone().slice_dim(0, range), temperature)
        })
        .collect();
    let join = |which: fn(&TokenLogProbs) -> &Tensor<1>| {
        Tensor::cat(parts.iter().map(|part| which(part).clone()).collect(), 0)
    };
    TokenLogProbs { logprobs: join(|part| &part.logprobs), entropy: join(|part| &part.entropy) }
}

/// Gradients of `Σ d_logprobs · logprobs + Σ d_entropy · entropy` with respect to `hidden` and, unless
/// it is frozen, `head`, `chunk` tokens at a time.
#[allow(clippy::too_many_arguments, reason = "the inputs of the forward pass and their gradients")]
pub fn head_backward(
    hidden: &Tensor<2>,
    head: &Tensor<2>,
    labels: &Tensor<1, Int>,
    temperature: f64,
    chunk: usize,
    d_logprobs: &Tensor<1>,
    d_entropy: Option<&Tensor<1>>,
    frozen: bool,
) -> (Tensor<2>, Option<Tensor<2>>) {
    let format = hidden.dtype();
    let head = head.clone().cast(format);
    let mut d_hidden = Vec::new();
    let mut d_head: Option<Tensor<2>> = None;
    for range in chunks(hidden.dims()[0], chunk) {
        let hidden = hidden.clone().slice_dim(0, range.clone());
        let d_logits = logits_gradient(
            head_logits(hidden.clone(), head.clone()),
            labels.clone().slice_dim(0, range.clone()),
            temperature,
            d_logprobs.clone().slice_dim(0, range.clone()),
            d_entropy.map(|d_entropy| d_entropy.clone().slice_dim(0, range)),
        );
        let d_logits = d_logits.cast(format);
        d_hidden.push(d_logits.clone().matmul(head.clone()));
        if frozen {
            continue;
        }
        let part = d_logits.transpose().matmul(hidden).cast(FloatDType::F32);
        d_head = Some(match d_head {
            Some(sum) => sum + part,
            None => part,
        });
    }
    (Tensor::cat(d_hidden, 0), d_head)
}

/// The row maximum goes first: "logit minus log-sum-exp" loses three digits in f32 when logits are
/// near 10⁴.
fn log_softmax(logits: Tensor<2>, temperature: f64) -> Tensor<2> {
    let logits = logits.div_scalar(temperature);
    let shifted = logits.clone() - logits.max_dim(1);
    shifted.clone() - shifted.exp().sum_dim(1).log()
}

fn entropy(log_p: &Tensor<2>) -> Tensor<1> {
    (log_p.clone().exp() * log_p.clone()).sum_dim(1).squeeze_dim::<1>(1).neg()
}

fn chunks(tokens: usize, chunk: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let chunk = chunk.max(1);
    (0..tokens).step_by(chunk).map(move |start| start..(start + chunk).min(tokens))
}
