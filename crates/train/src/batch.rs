//! Samples, which are plain numbers, and the micro-batches of tensors made of them.

use std::collections::HashMap;

use burn::tensor::{Device, Int, Tensor, TensorData};
use firebrick_core::{Completion, TokenId, Trained};
use firebrick_models::{Padding, TokenBatch};
use serde::{Deserialize, Serialize};

use crate::{Aggregation, Divisors, TokenValues, numbers};

/// One completion, ready for the update: plain numbers, no tensors. Lists have one entry for each token of
/// the completion, no matter who wrote the token.
///
/// Up to three policies matter to a token. The behaviour policy sampled it. The old policy is the one that
/// the update starts from; ratios are clipped against it. The reference policy is the one that a KL penalty
/// is measured from. With the local engine the behaviour policy and the old policy are the same, except for
/// groups that were carried over from an earlier step.
///
/// In JSON a number that is not finite is one of the strings `NaN`, `Infinity` and `-Infinity`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Sample {
    /// The tokens of the prompt; at least one.
    pub prompt: Vec<TokenId>,
    /// The tokens of the completion.
    pub completion: Vec<TokenId>,
    /// True where the policy wrote the token; other tokens are read and not trained on.
    pub mask: Vec<bool>,
    /// The log-probabilities under the behaviour policy, as its engine gave them.
    #[serde(with = "numbers")]
    pub rollout_logprobs: Vec<f32>,
    /// The log-probabilities under the old policy.
    #[serde(with = "numbers")]
    pub old_logprobs: Vec<f32>,
    /// The log-probabilities under the reference policy; empty without a KL penalty.
    #[serde(with = "numbers")]
    pub ref_logprobs: Vec<f32>,
    /// Weights of truncated importance sampling (TIS) between behaviour policy and old policy, which multiply
    /// the policy loss; empty if nothing is weighted.
    #[serde(with = "numbers")]
    pub importance: Vec<f32>,
    /// The completion's shaped reward.
    #[serde(with = "numbers::one")]
    pub reward: f32,
    /// Advantages: how much better each token was than expected.
    #[serde(with = "numbers")]
    pub advantages: Vec<f32>,
    /// A critic's values and targets for the completion, if there is a critic.
    pub token_values: Option<TokenValues>,
    /// False if every token is out of the loss.
    pub in_loss: bool,
    /// The number of the group that the completion belongs to.
    pub group: u64,
    /// The completion's index in its group, from 0.
    #[serde(default)]
    pub place: usize,
}

impl Sample {
    /// Makes a sample with advantages of 0, whose old policy is the policy that sampled the completion.
    pub fn new(prompt: &[TokenId], completion: &Completion, group: u64) -> Self {
        Sample {
            prompt: prompt.to_vec(),
            completion: completion.tokens.clone(),
            mask: completion.mask.clone(),
            rollout_logprobs: completion.logprobs.clone(),
            old_logprobs: completion.logprobs.clone(),
            ref_logprobs: Vec::new(),
            importance: Vec::new(),
            reward: 0.0,
            advantages: vec![0.0; completion.tokens.len()],
            token_values: None,
            in_loss: true,
            group,
            place: 0,
        }
    }

    /// Gives all tokens of the sample the same advantage.
    pub fn with_advantage(mut self, advantage: f32) -> Self {
        self.advantages = vec![advantage; self.completion.len()];
        self
    }

    /// Counts the tokens that enter the loss.
    pub fn loss_tokens(&self) -> usize {
        if self.in_loss { self.policy_tokens().count() } else { 0 }
    }

    /// Returns the sample's record of an update, as far as it is known before the update.
    pub(crate) fn trained(&self) -> Trained {
        let sum: f32 = self.policy_tokens().map(|index| self.advantages[index]).sum();
        let count = self.policy_tokens().count();
        Trained { advantage: sum / count.max(1) as f32, ..Trained::default() }
    }

    /// Returns the indices of the tokens that the policy wrote.
    pub fn policy_tokens(&self) -> impl Iterator<Item = usize> {
        self.mask.iter().enumerate().filter(|(_, by_policy)| **by_policy).map(|(index, _)| index)
    }

    /// Sets the weights of truncated importance sampling (TIS): min(cap, π_old / π_rollout) for each token
    /// (Ionides 2008), where π_rollout is the behaviour policy. So a token sampled by another policy counts
    /// as often as the old policy would have sampled it. The cap bounds the variance.
    pub fn set_tis_weights(&mut self, cap: f64) {
        let ratio = |(old, rollout): (&f32, &f32)| (f64::from(*old) - f64::from(*rollout)).exp();
        let pairs = self.old_logprobs.iter().zip(&self.rollout_logprobs);
        self.importance = pairs.map(|pair| ratio(pair).min(cap) as f32).collect();
    }

    pub(crate) fn length(&self) -> usize {
        self.prompt.len() + self.completion.len()
    }
}

/// Arrangement of the tokens of a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One row for each completion, padded to the longest.
    Padded,
    /// Completions one after another, with their prompts.
    Packed,
    /// Like `Packed`, but completions of the same prompt share it. The prompt is stored once, except for its
    /// last token: that is repeated for each completion, because it predicts the completion's first token.
    Shared,
}

/// Splits the samples of an update into batches of at most `max_tokens` tokens, and returns the indices of
/// each batch. A sample longer than `max_tokens` is a separate batch. Samples that do not count are left out,
/// because they would be computed for nothing. The samples of a batch have similar lengths, or the same
/// prompt where prompts are shared.
pub fn micro_batches(samples: &[Sample], max_tokens: usize, layout: Layout) -> Vec<Vec<usize>> {
    let mut indices: Vec<usize> =
        (0..samples.len()).filter(|&index| samples[index].loss_tokens() > 0).collect();
    indices.sort_by_key(|&index| std::cmp::Reverse(samples[index].length()));

    // Completions of one prompt become neighbours; groups keep the order of their longest sample.
    if layout == Layout::Shared {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut group_of: HashMap<&[TokenId], usize> = HashMap::new();
        for index in indices {
            let group = *group_of.entry(&samples[index].prompt).or_insert_with(|| {
                groups.push(Vec::new());
                groups.len() - 1
            });
            groups[group].push(index);
        }
        indices = groups.concat();
    }

    // Fills one batch after another until the next sample would make it too large.
    let mut batches: Vec<Vec<usize>> = Vec::new();
    let mut tokens = 0;
    for index in indices {
        let sample = &samples[index];
        if let Some(batch) = batches.last_mut() {
            tokens += match layout {
                // The batch's first sample is the longest, so it sets the width.
                Layout::Padded => samples[batch[0]].length(),
                Layout::Shared if can_share_prompt(&samples[batch[batch.len() - 1]], sample) => {
                    1 + sample.completion.len()
                }
                Layout::Packed | Layout::Shared => sample.length(),
            };
            if tokens <= max_tokens {
                batch.push(index);
                continue;
            }
        }
        batches.push(vec![index]);
        tokens = sample.length();
    }
    batches
}

/// Returns the fraction of the samples' tokens that need not be computed if prompts are shared.
pub(crate) fn prompt_sharing_saving(samples: &[Sample], max_tokens: usize) -> f64 {
    let counted = samples.iter().filter(|sample| sample.loss_tokens() > 0);
    let all: usize = counted.map(Sample::length).sum();

    let saved: usize = micro_batches(samples, max_tokens, Layout::Shared)
        .iter()
        .flat_map(|batch| batch.windows(2))
        .map(|pair| (&samples[pair[0]], &samples[pair[1]]))
        .filter(|(first, second)| can_share_prompt(first, second))
        .map(|(_, sample)| sample.prompt.len() - 1)
        .sum();

    saved as f64 / all.max(1) as f64
}

/// Returns true if two samples have the same prompt, with something to share in it.
fn can_share_prompt(first: &Sample, second: &Sample) -> bool {
    first.prompt.len() > 1 && first.prompt == second.prompt
}

/// Tensors of some samples. Only here do plain numbers become tensors.
///
/// Per-token tensors are `[rows, width]`. They hold only the tokens that the policy wrote, so `width` is the
/// maximum of such tokens in a completion. Tensors that pass through the head are `[count]`: they leave out
/// whatever is after a row's last token, so that no logits are made for padding, or for tokens that the policy
/// did not write.
#[derive(Clone, Debug)]
pub struct MicroBatch {
    /// The tokens of prompts and completions.
    pub tokens: TokenBatch,
    /// `[count]`: for each token that the policy wrote, the position in `tokens` whose hidden state predicts
    /// it.
    pub predictors: Tensor<1, Int>,
    /// `[positions]`: for each position in `tokens`, its index in `predictors`, or `count` if it predicts
    /// nothing.
    pub predicting: Tensor<1, Int>,
    /// `[count]`: the tokens that the policy wrote.
    pub labels: Tensor<1, Int>,
    /// `[count]`: for each token of `labels`, its index in the flattened `[rows · width]`.
    pub slots: Tensor<1, Int>,
    /// `[rows · width]`: for each of those indices, that of its token in `labels`; any index after a row's
    /// last token.
    pub sources: Tensor<1, Int>,
    /// The number of completions.
    pub rows: usize,
    /// The maximum number of a completion's tokens that the policy wrote.
    pub width: usize,
    /// The log-probabilities under the old policy, which the update starts from.
    pub old_logprobs: Tensor<2>,
    /// The log-probabilities under the reference policy, if there is one.
    pub ref_logprobs: Option<Tensor<2>>,
    /// The weights of truncated importance sampling (TIS), if there are any.
    pub tis_weights: Option<Tensor<2>>,
    /// The advantages, one per token.
    pub advantages: Tensor<2>,
    /// The targets of a critic, if there is one.
    pub targets: Option<ValueTargets>,
    /// 1 for tokens that count.
    pub mask: Tensor<2>,
    /// The weight of each token in the loss.
    pub loss_weights: Tensor<2>,
    /// The weight of each token in the metrics.
    pub metric_weights: Tensor<2>,
}

/// What a critic is trained on; tensors are `[rows, width]`.
#[derive(Clone, Debug)]
pub struct ValueTargets {
    /// The critic's values before the step's first update.
    pub old_values: Tensor<2>,
    /// What the critic should predict.
    pub returns: Tensor<2>,
}

impl MicroBatch {
    /// Makes the tensors of `samples`, which are a part of an update; `divisors` count the whole update. All
    /// are without autodiff.
    pub fn new(
        samples: &[&Sample],
        layout: Layout,
        aggregation: Aggregation,
        divisors: &Divisors,
        device: &Device,
    ) -> Self {
        let device = &device.clone().inner();
        let (tokens, firsts) = lay_out(samples, layout, device);
        let policy_tokens: Vec<Vec<usize>> =
            samples.iter().map(|sample| sample.policy_tokens().collect()).collect();
        let width = policy_tokens.iter().map(Vec::len).max().unwrap_or(0);
        let count: usize = policy_tokens.iter().map(Vec::len).sum();

        let positions = tokens.ids().len();
        let mut predictors = Vec::new();
        let mut predicting = vec![count as i32; positions];
        let mut labels = Vec::new();
        let mut slots = Vec::new();
        let mut sources = vec![0; samples.len() * width];
        // A token's predictor is the position before it, in the text of its row.
        for (row, (sample, token_indices)) in samples.iter().zip(&policy_tokens).enumerate() {
            for (column, &position) in token_indices.iter().enumerate() {
                let predictor = firsts[row] + position;
                let index = predictors.len() as i32;
                predicting[predictor] = index;
                predictors.push(predictor as i32);
                labels.push(sample.completion[position] as i32);
                slots.push((row * width + column) as i32);
                sources[row * width + column] = index;
            }
        }

        let flat = |values: Vec<i32>| {
            let count = values.len();
            Tensor::from_data(TensorData::new(values, [count]), device)
        };

        let per_token = |value: &dyn Fn(&Sample, usize) -> f32| {
            // Zeros fill each row up to the width; the mask keeps them out of every sum.
            let row = |(sample, token_indices): (&&Sample, &Vec<usize>)| {
                let fill = std::iter::repeat_n(0.0, width - token_indices.len());
                token_indices
                    .iter()
                    .map(|&position| value(sample, position))
                    .chain(fill)
                    .collect::<Vec<f32>>()
            };
            let values: Vec<f32> = samples.iter().zip(&policy_tokens).flat_map(row).collect();
            Tensor::<2>::from_data(TensorData::new(values, [samples.len(), width]), device)
        };

        // `Some` if every sample has the numbers.
        let optional = |numbers: fn(&Sample) -> Option<&Vec<f32>>| {
            samples.iter().all(|sample| numbers(sample).is_some()).then(|| {
                per_token(&|sample, position| {
                    numbers(sample).map_or(0.0, |numbers| numbers[position])
                })
            })
        };

        MicroBatch {
            tokens,
            predictors: flat(predictors),
            predicting: flat(predicting),
            labels: flat(labels),
            slots: flat(slots),
            sources: flat(sources),
            rows: samples.len(),
            width,
            old_logprobs: per_token(&|sample, position| sample.old_logprobs[position]),
            ref_logprobs: optional(|sample| non_empty(&sample.ref_logprobs)),
            // A sample without TIS weights weighs 1, whatever else is in its micro-batch.
            tis_weights: samples.iter().any(|sample| non_empty(&sample.importance).is_some()).then(
                || {
                    per_token(&|sample, position| {
                        non_empty(&sample.importance).map_or(1.0, |weights| weights[position])
                    })
                },
            ),
            advantages: per_token(&|sample, position| sample.advantages[position]),
            targets: optional(|sample| sample.token_values.as_ref().map(|tokens| &tokens.values))
                .zip(optional(|sample| sample.token_values.as_ref().map(|tokens| &tokens.returns)))
                .map(|(old_values, returns)| ValueTargets { old_values, returns }),
            mask: per_token(&|sample, _| f32::from(u8::from(sample.in_loss))),
            loss_weights: per_token(&|sample, _| {
                if !sample.in_loss {
                    return 0.0;
                }
                aggregation.weight(divisors, sample.group, sample.loss_tokens()) as f32
            }),
            metric_weights: per_token(&|sample, _| {
                if sample.in_loss { (1.0 / divisors.tokens.max(1.0)) as f32 } else { 0.0 }
            }),
        }
    }
}

impl MicroBatch {
    /// Lays out numbers of the policy's tokens by row, `[count]` to `[rows, width]`. Any number may be stored
    /// after a row's last token.
    pub fn by_row(&self, numbers: Tensor<1>) -> Tensor<2> {
        numbers.select(0, self.sources.clone()).reshape([self.rows, self.width])
    }

    /// Takes the numbers of the policy's tokens out of the rows, `[rows, width]` to `[count]`.
    pub fn by_token(&self, numbers: Tensor<2>) -> Tensor<1> {
        numbers.reshape([self.rows * self.width]).select(0, self.slots.clone())
    }

    /// Puts the vectors of the predictors, `[count, hidden]`, at their positions in the batch,
    /// `[rows, tokens, hidden]`; all other positions are 0.
    pub fn spread(&self, x: Tensor<2>) -> Tensor<3> {
        let [rows, tokens] = self.tokens.tokens.dims();
        let [_, width] = x.dims();

        // Positions that predict nothing select this last row.
        let nothing = Tensor::zeros([1, width], &x.device());
        let all = Tensor::cat(vec![x, nothing], 0).select(0, self.predicting.clone());
        all.reshape([rows, tokens, width])
    }
}

/// Lays out the tokens of the samples. Returns for each sample the position whose hidden state predicts the
/// completion's first token; the positions after it predict the other tokens.
fn lay_out(samples: &[&Sample], layout: Layout, device: &Device) -> (TokenBatch, Vec<usize>) {
    let mut texts: Vec<(Vec<TokenId>, Option<usize>)> = Vec::new();
    // For each sample, its text, and the number of the prompt's tokens in it, without the last.
    let mut starts = Vec::with_capacity(samples.len());
    let mut shared = None;

    for (row, sample) in samples.iter().enumerate() {
        let last_token = sample.prompt.len() - 1;
        let same_prompt = |other: usize| {
            layout == Layout::Shared
                && samples.get(other).is_some_and(|other| can_share_prompt(sample, other))
        };

        // Neighbours with the same prompt share it: its text comes with the first of them.
        let continues = row.checked_sub(1).is_some_and(same_prompt);
        if !continues {
            shared = same_prompt(row + 1).then(|| {
                texts.push((sample.prompt[..last_token].to_vec(), None));
                texts.len() - 1
            });
        }

        let first = if shared.is_some() { last_token } else { 0 };
        starts.push((texts.len(), last_token - first));
        texts.push(([&sample.prompt[first..], &sample.completion].concat(), shared));
    }

    let tokens = match layout {
        Layout::Padded => {
            let rows: Vec<&[TokenId]> = texts.iter().map(|(text, _)| text.as_slice()).collect();
            TokenBatch::new(&rows, Padding::Right, device)
        }
        Layout::Packed | Layout::Shared => {
            let texts: Vec<(&[TokenId], Option<usize>)> =
                texts.iter().map(|(text, after)| (text.as_slice(), *after)).collect();
            TokenBatch::packed(&texts, device)
        }
    };

    let segments = tokens.segments();
    let firsts = starts.iter().map(|&(text, before)| segments[text].range.start + before);
    let firsts = firsts.collect();
    (tokens, firsts)
}

/// Returns the list if it is not empty.
fn non_empty(numbers: &Vec<f32>) -> Option<&Vec<f32>> {
    (!numbers.is_empty()).then_some(numbers)
}
