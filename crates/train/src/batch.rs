use burn::tensor::{Device, Int, Tensor, TensorData};
use firebrick_core::{Completion, TokenId};
use firebrick_models::{Padding, TokenBatch};
use serde::Serialize;

use crate::{Aggregation, Divisors, TokenValues};

/// One completion, ready for the update: plain numbers, no tensors. Lists have one entry per token of
/// the completion, whoever wrote it.
///
/// Three policies may have a say in a token. The behaviour policy sampled it; the old policy is the one
/// that the update starts from, and ratios are clipped against it; the reference policy is the one that
/// a KL penalty holds on to. With the local engine the first two are the same, but for groups that were
/// carried over from an earlier step.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Sample {
    /// Tokens of the prompt; at least one.
    pub prompt: Vec<TokenId>,
    /// Tokens of the completion.
    pub completion: Vec<TokenId>,
    /// True where the policy wrote the token; the others are read and not trained on.
    pub mask: Vec<bool>,
    /// The log-probabilities under the policy that sampled, as its engine gave them.
    pub behaviour_logprobs: Vec<f32>,
    /// The log-probabilities under the policy that the update starts from.
    pub old_logprobs: Vec<f32>,
    /// Under the reference policy; empty without a KL penalty.
    pub ref_logprobs: Vec<f32>,
    /// Truncated importance weights between the first two, which the policy loss is multiplied by;
    /// empty where nothing is weighted.
    pub importance: Vec<f32>,
    /// The completion's shaped reward.
    pub reward: f32,
    /// How much better each token was than expected.
    pub advantages: Vec<f32>,
    /// A critic's values and targets for it, if there is a critic.
    pub token_values: Option<TokenValues>,
    /// False takes every token out of the loss.
    pub live: bool,
    /// Which group it belongs to.
    pub group: u64,
}

impl Sample {
    /// A completion with advantages of 0. The old policy is taken to be the one that sampled it.
    pub fn new(prompt: &[TokenId], completion: &Completion, group: u64) -> Self {
        Sample {
            prompt: prompt.to_vec(),
            completion: completion.tokens.clone(),
            mask: completion.mask.clone(),
            behaviour_logprobs: completion.logprobs.clone(),
            old_logprobs: completion.logprobs.clone(),
            ref_logprobs: Vec::new(),
            importance: Vec::new(),
            reward: 0.0,
            advantages: vec![0.0; completion.tokens.len()],
            token_values: None,
            live: true,
            group,
        }
    }

    /// The same with one advantage for all of its tokens.
    pub fn with_advantage(mut self, advantage: f32) -> Self {
        self.advantages = vec![advantage; self.completion.len()];
        self
    }

    /// How many tokens count in the loss.
    pub fn counted(&self) -> usize {
        if self.live { self.own().count() } else { 0 }
    }

    /// The places of the tokens that the policy wrote.
    pub fn own(&self) -> impl Iterator<Item = usize> {
        self.mask.iter().enumerate().filter(|(_, own)| **own).map(|(place, _)| place)
    }

    /// Weighs each token by min(cap, π_old / π_behaviour) (Ionides 2008): what was sampled from another
    /// policy then counts as often as the old policy would have sampled it. The cap bounds the variance.
    pub fn weigh(&mut self, cap: f64) {
        let ratio =
            |(old, behaviour): (&f32, &f32)| (f64::from(*old) - f64::from(*behaviour)).exp();
        let pairs = self.old_logprobs.iter().zip(&self.behaviour_logprobs);
        self.importance = pairs.map(|pair| ratio(pair).min(cap) as f32).collect();
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
/// Per-token tensors are `[rows, width]`. They have the tokens that the policy wrote and no others, so
/// `width` is the most that a completion has of them, and no logits are made for what it was told.
#[derive(Clone, Debug)]
pub struct MicroBatch {
    /// Prompts and completions, right-padded.
    pub tokens: TokenBatch,
    /// `[rows · width]`: for each of those tokens, the place in the flattened `[rows · tokens]` whose
    /// hidden state predicts it.
    pub predictors: Tensor<1, Int>,
    /// `[rows · width]`: those tokens.
    pub labels: Tensor<1, Int>,
    /// Number of completions.
    pub rows: usize,
    /// The most tokens of a completion that the policy wrote.
    pub width: usize,
    /// Under the policy that the update starts from.
    pub old_logprobs: Tensor<2>,
    /// Under the reference policy, if there is one.
    pub ref_logprobs: Option<Tensor<2>>,
    /// Truncated importance weights, if there are some.
    pub importance: Option<Tensor<2>>,
    /// One per token.
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
        let own: Vec<Vec<usize>> = samples.iter().map(|sample| sample.own().collect()).collect();
        let width = own.iter().map(Vec::len).max().unwrap_or(0);

        let mut predictors = Vec::with_capacity(samples.len() * width);
        let mut labels = Vec::with_capacity(samples.len() * width);
        for (row, (sample, own)) in samples.iter().zip(&own).enumerate() {
            for position in 0..width {
                // Behind the last one any place will do: the mask hides it.
                let place = own.get(position.min(own.len().saturating_sub(1))).copied();
                let place = place.unwrap_or(0);
                predictors.push((row * length + sample.prompt.len() + place - 1) as i32);
                labels.push(sample.completion.get(place).map_or(0, |&token| token as i32));
            }
        }
        let flat = |values: Vec<i32>| {
            let count = values.len();
            Tensor::from_data(TensorData::new(values, [count]), device)
        };
        let per_token = |value: &dyn Fn(&Sample, usize) -> f32| {
            let row = |(sample, own): (&&Sample, &Vec<usize>)| {
                let behind = std::iter::repeat_n(0.0, width - own.len());
                own.iter().map(|&place| value(sample, place)).chain(behind).collect::<Vec<f32>>()
            };
            let values: Vec<f32> = samples.iter().zip(&own).flat_map(row).collect();
            Tensor::<2>::from_data(TensorData::new(values, [samples.len(), width]), device)
        };
        // Where every sample has the numbers.
        let optional = |numbers: fn(&Sample) -> Option<&Vec<f32>>| {
            samples.iter().all(|sample| numbers(sample).is_some()).then(|| {
                per_token(&|sample, place| numbers(sample).map_or(0.0, |numbers| numbers[place]))
            })
        };
        MicroBatch {
            tokens,
            predictors: flat(predictors),
            labels: flat(labels),
            rows: samples.len(),
            width,
            old_logprobs: per_token(&|sample, place| sample.old_logprobs[place]),
            ref_logprobs: optional(|sample| given(&sample.ref_logprobs)),
            // One that is not weighed weighs 1, whatever it shares a micro-batch with.
            importance: samples.iter().any(|sample| given(&sample.importance).is_some()).then(
                || {
                    per_token(&|sample, place| {
                        given(&sample.importance).map_or(1.0, |weights| weights[place])
                    })
                },
            ),
            advantages: per_token(&|sample, place| sample.advantages[place]),
            targets: optional(|sample| sample.token_values.as_ref().map(|tokens| &tokens.values))
                .zip(optional(|sample| sample.token_values.as_ref().map(|tokens| &tokens.returns)))
                .map(|(old_values, returns)| ValueTargets { old_values, returns }),
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

/// A list that is not empty.
fn given(numbers: &Vec<f32>) -> Option<&Vec<f32>> {
    (!numbers.is_empty()).then_some(numbers)
}
