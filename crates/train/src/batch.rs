use std::borrow::Cow;

use burn::tensor::{Device, Int, Tensor, TensorData};
use firebrick_core::TokenId;
use firebrick_models::{Padding, TokenBatch};
use serde::Serialize;

use crate::{Aggregation, Divisors, TokenValues};

/// One completion, ready for the update: plain numbers, no tensors.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Tokens of the prompt; at least one.
    pub prompt: Vec<TokenId>,
    /// Tokens of the completion; at least one.
    pub completion: Vec<TokenId>,
    /// One per completion token: under the policy that sampled it.
    pub old_logprobs: Vec<f32>,
    /// One per completion token under the reference policy; empty without a KL penalty.
    pub ref_logprobs: Vec<f32>,
    /// The completion's advantage; its reward, where a critic makes advantages of it.
    pub advantage: f32,
    /// What a critic makes of it, if there is one.
    pub token_values: Option<TokenValues>,
    /// False takes every token out of the loss.
    pub live: bool,
    /// Which group it belongs to.
    pub group: u64,
}

impl Sample {
    /// Tokens that count in the loss.
    pub fn counted(&self) -> usize {
        if self.live { self.completion.len() } else { 0 }
    }

    /// The advantage of each completion token.
    pub fn token_advantages(&self) -> Cow<'_, [f32]> {
        match &self.token_values {
            Some(tokens) => Cow::Borrowed(&tokens.advantages),
            None => Cow::Owned(vec![self.advantage; self.completion.len()]),
        }
    }

    fn length(&self) -> usize {
        self.prompt.len() + self.completion.len()
    }
}

/// Cuts the samples of an update into batches of at most `max_tokens` padded tokens, of like
/// lengths, by their indices; a sample longer than that is a batch of its own. Samples that do not
/// count are left out: they would be computed for nothing.
pub fn micro_batches(samples: &[Sample], max_tokens: usize) -> Vec<Vec<usize>> {
    let mut counted: Vec<usize> =
        (0..samples.len()).filter(|&index| samples[index].counted() > 0).collect();
    counted.sort_by_key(|&index| std::cmp::Reverse(samples[index].length()));
    let mut batches: Vec<Vec<usize>> = Vec::new();
    for index in counted {
        match batches.last_mut() {
            // The first is the longest, so it sets the width.
            Some(batch) if (batch.len() + 1) * samples[batch[0]].length() <= max_tokens => {
                batch.push(index);
            }
            _ => batches.push(vec![index]),
        }
    }
    batches
}

/// The tensors of some samples: the only place where plain numbers become tensors.
///
/// Per-token tensors are `[rows, width]`, where `width` is the longest completion.
#[derive(Clone, Debug)]
pub struct MicroBatch {
    /// Prompts and completions, right-padded.
    pub tokens: TokenBatch,
    /// `[rows · width]`: for each completion token, the place in the flattened `[rows · tokens]`
    /// whose hidden state predicts it.
    pub predictors: Tensor<1, Int>,
    /// `[rows · width]`: the completion's tokens.
    pub labels: Tensor<1, Int>,
    /// Number of completions.
    pub rows: usize,
    /// Length of the longest completion.
    pub width: usize,
    /// Under the policy that sampled.
    pub old_logprobs: Tensor<2>,
    /// Under the reference policy, if there is one.
    pub ref_logprobs: Option<Tensor<2>>,
    /// One per token; the same along a row unless there is a critic.
    pub advantages: Tensor<2>,
    /// What a critic is trained on, if there is one.
    pub targets: Option<ValueTargets>,
    /// 1 on tokens that count.
    pub mask: Tensor<2>,
    /// Weight of each token in the loss.
    pub weights: Tensor<2>,
    /// Weight of each token in the metrics.
    pub shares: Tensor<2>,
}

/// What a critic is trained on; tensors are `[rows, width]`.
#[derive(Clone, Debug)]
pub struct ValueTargets {
    /// Its values before the step's first update.
    pub old_values: Tensor<2>,
    /// What it should say.
    pub returns: Tensor<2>,
}

impl MicroBatch {
    /// `divisors` count the whole update, of which `samples` is a part.
    pub fn new(
        samples: &[&Sample],
        aggregation: Aggregation,
        divisors: &Divisors,
        device: &Device,
    ) -> Self {
        let rows: Vec<Vec<TokenId>> = samples
            .iter()
            .map(|sample| [sample.prompt.as_slice(), &sample.completion].concat())
            .collect();
        let rows: Vec<&[TokenId]> = rows.iter().map(Vec::as_slice).collect();
        let tokens = TokenBatch::new(&rows, Padding::Right, device);
        let length = tokens.tokens.dims()[1];
        let width = samples.iter().map(|sample| sample.completion.len()).max().unwrap_or(0);

        let mut predictors = Vec::with_capacity(samples.len() * width);
        let mut labels = Vec::with_capacity(samples.len() * width);
        for (row, sample) in samples.iter().enumerate() {
            for position in 0..width {
                // Behind the completion's end any place will do: the mask hides it.
                let inside = position.min(sample.completion.len() - 1);
                predictors.push((row * length + sample.prompt.len() + inside - 1) as i32);
                labels.push(sample.completion[inside] as i32);
            }
        }
        let flat = |values: Vec<i32>| {
            let count = values.len();
            Tensor::from_data(TensorData::new(values, [count]), device)
        };
        let per_token = |value: &dyn Fn(&Sample, usize) -> f32| {
            let row = |sample: &&Sample| {
                let count = sample.completion.len();
                let behind = std::iter::repeat_n(0.0, width - count);
                (0..count)
                    .map(|position| value(sample, position))
                    .chain(behind)
                    .collect::<Vec<f32>>()
            };
            let values: Vec<f32> = samples.iter().flat_map(row).collect();
            Tensor::<2>::from_data(TensorData::new(values, [samples.len(), width]), device)
        };
        let with_reference = samples.iter().all(|sample| !sample.ref_logprobs.is_empty());
        MicroBatch {
            tokens,
            predictors: flat(predictors),
            labels: flat(labels),
            rows: samples.len(),
            width,
            old_logprobs: per_token(&|sample, position| sample.old_logprobs[position]),
            ref_logprobs: with_reference
                .then(|| per_token(&|sample, position| sample.ref_logprobs[position])),
            advantages: per_token(&|sample, position| match &sample.token_values {
                Some(tokens) => tokens.advantages[position],
                None => sample.advantage,
            }),
            targets: samples.iter().all(|sample| sample.token_values.is_some()).then(|| {
                let of = |numbers: fn(&TokenValues) -> &Vec<f32>| {
                    per_token(&|sample, position| {
                        sample.token_values.as_ref().map_or(0.0, |tokens| numbers(tokens)[position])
                    })
                };
                ValueTargets {
                    old_values: of(|tokens| &tokens.values),
                    returns: of(|tokens| &tokens.returns),
                }
            }),
            mask: per_token(&|sample, _| f32::from(u8::from(sample.live))),
            weights: per_token(&|sample, _| {
                if !sample.live {
                    return 0.0;
                }
                aggregation.weight(divisors, sample.group, sample.counted()) as f32
            }),
            shares: per_token(&|sample, _| {
                if sample.live { (1.0 / divisors.tokens.max(1.0)) as f32 } else { 0.0 }
            }),
        }
    }
}
