//! Samples, which are plain numbers, and the micro-batches of tensors that are made of them.

use std::collections::HashMap;

use burn::tensor::{Device, Int, Tensor, TensorData};
use firebrick_core::{Completion, TokenId, Trained};
use firebrick_models::{Padding, TokenBatch};
use serde::{Deserialize, Serialize};

use crate::{Aggregation, Divisors, TokenValues, numbers};

/// One completion, ready for the update: plain numbers, no tensors. Lists have one entry for each token of
/// the completion, no matter who wrote the token.
///
/// Up to three policies have a say in a token. The behaviour policy sampled it. The old policy is the policy
/// that the update starts from; ratios are clipped against it. The reference policy is the policy that a KL
/// penalty holds on to. With the local engine the behaviour policy and the old policy are the same, except
/// for groups that were carried over from an earlier step.
///
/// In JSON a number that is not finite is one of the texts `NaN`, `Infinity` and `-Infinity`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Sample {
    /// The tokens of the prompt; at least one.
    pub prompt: Vec<TokenId>,
    /// The tokens of the completion.
    pub completion: Vec<TokenId>,
    /// True where the policy wrote the token; the other tokens are read and not trained on.
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
    /// The truncated importance weights between behaviour policy and old policy. The policy loss is
    /// multiplied by them. Empty if nothing is weighted.
    #[serde(with = "numbers")]
    pub importance: Vec<f32>,
    /// The completion's shaped reward.
    #[serde(with = "numbers::one")]
    pub reward: f32,
    /// The advantages: how much better each token was than expected.
    #[serde(with = "numbers")]
    pub advantages: Vec<f32>,
    /// A critic's values and targets for the completion, if there is a critic.
    pub token_values: Option<TokenValues>,
    /// False if every token is taken out of the loss.
    pub in_loss: bool,
    /// The number of the group that the completion belongs to.
    pub group: u64,
    /// The completion's place in its group, from 0.
    #[serde(default)]
    pub place: usize,
}

impl Sample {
    /// Makes a sample with advantages of 0. The old policy is taken to be the policy that sampled the
    /// completion.
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

    /// Counts the tokens that count in the loss.
    pub fn counted(&self) -> usize {
        if self.in_loss { self.own().count() } else { 0 }
    }

    /// Gives the sample's part in an update, as far as it is known before the update.
    pub(crate) fn trained(&self) -> Trained {
        let sum: f32 = self.own().map(|place| self.advantages[place]).sum();
        Trained { advantage: sum / self.own().count().max(1) as f32, ..Trained::default() }
    }

    /// Gives the places of the tokens that the policy wrote.
    pub fn own(&self) -> impl Iterator<Item = usize> {
        self.mask.iter().enumerate().filter(|(_, own)| **own).map(|(place, _)| place)
    }

    /// Weighs each token by min(cap, π_old / π_behaviour) (Ionides 2008). A token that another policy sampled
    /// then counts as often as the old policy would have sampled it. The cap bounds the variance.
    pub fn weigh(&mut self, cap: f64) {
        let ratio =
            |(old, behaviour): (&f32, &f32)| (f64::from(*old) - f64::from(*behaviour)).exp();
        let pairs = self.old_logprobs.iter().zip(&self.rollout_logprobs);
        self.importance = pairs.map(|pair| ratio(pair).min(cap) as f32).collect();
    }

    pub(crate) fn length(&self) -> usize {
        self.prompt.len() + self.completion.len()
    }
}

/// The way in which the tokens of a micro-batch lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One row for each completion, padded to the longest.
    Padded,
    /// Completions one behind the other, with their prompts.
    Packed,
    /// Like `Packed`, but completions of the same prompt share it. The prompt is there once, except for its
    /// last token: that is there for each completion, because it predicts the completion's first token.
    Shared,
}

/// Cuts the samples of an update into batches of at most `max_tokens` tokens, and gives the indices of each
/// batch. A sample longer than `max_tokens` is a batch of its own. Samples that do not count are left out,
/// because they would be computed for nothing. The samples of a batch have similar lengths, or the same
/// prompt where prompts are shared.
pub fn micro_batches(samples: &[Sample], max_tokens: usize, layout: Layout) -> Vec<Vec<usize>> {
    let mut counted: Vec<usize> =
        (0..samples.len()).filter(|&index| samples[index].counted() > 0).collect();
    counted.sort_by_key(|&index| std::cmp::Reverse(samples[index].length()));
    if layout == Layout::Shared {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut of: HashMap<&[TokenId], usize> = HashMap::new();
        for index in counted {
            let group = *of.entry(&samples[index].prompt).or_insert_with(|| {
                groups.push(Vec::new());
                groups.len() - 1
            });
            groups[group].push(index);
        }
        counted = groups.concat();
    }
    let mut batches: Vec<Vec<usize>> = Vec::new();
    let mut tokens = 0;
    for index in counted {
        let sample = &samples[index];
        if let Some(batch) = batches.last_mut() {
            tokens += match layout {
                // The batch's first sample is the longest, so it sets the width.
                Layout::Padded => samples[batch[0]].length(),
                Layout::Shared if shares(&samples[batch[batch.len() - 1]], sample) => {
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

/// Gives the share of the samples' tokens that need not be computed if prompts are shared.
pub(crate) fn share_saved(samples: &[Sample], max_tokens: usize) -> f64 {
    let counted = samples.iter().filter(|sample| sample.counted() > 0);
    let all: usize = counted.map(Sample::length).sum();
    let saved: usize = micro_batches(samples, max_tokens, Layout::Shared)
        .iter()
        .flat_map(|batch| batch.windows(2))
        .map(|pair| (&samples[pair[0]], &samples[pair[1]]))
        .filter(|(first, second)| shares(first, second))
        .map(|(_, sample)| sample.prompt.len() - 1)
        .sum();
    saved as f64 / all.max(1) as f64
}

/// Tells whether two samples have the same prompt, with something to share in it.
fn shares(first: &Sample, second: &Sample) -> bool {
    first.prompt.len() > 1 && first.prompt == second.prompt
}

/// The tensors of some samples: the only place where plain numbers become tensors.
///
/// Per-token tensors are `[rows, width]`. They hold only the tokens that the policy wrote, so `width` is the
/// most that a completion has of such tokens. The tensors that go through the head are `[count]`: they leave
/// out whatever lies behind a row's last token. So no logits are made for padding, or for tokens that the
/// policy was told.
#[derive(Clone, Debug)]
pub struct MicroBatch {
    /// The tokens of prompts and completions.
    pub tokens: TokenBatch,
    /// `[count]`: for each token that the policy wrote, the place in `tokens` whose hidden state predicts it.
    pub predictors: Tensor<1, Int>,
    /// `[places]`: for each place in `tokens`, its index in `predictors`, or `count` if it predicts nothing.
    pub predicting: Tensor<1, Int>,
    /// `[count]`: the tokens that the policy wrote.
    pub labels: Tensor<1, Int>,
    /// `[count]`: for each token of `labels`, its place in the flattened `[rows · width]`.
    pub slots: Tensor<1, Int>,
    /// `[rows · width]`: for each of those places, the index of its token in `labels`; any index behind a
    /// row's last token.
    pub sources: Tensor<1, Int>,
    /// The number of completions.
    pub rows: usize,
    /// The most tokens of a completion that the policy wrote.
    pub width: usize,
    /// The log-probabilities under the old policy, which the update starts from.
    pub old_logprobs: Tensor<2>,
    /// The log-probabilities under the reference policy, if there is one.
    pub ref_logprobs: Option<Tensor<2>>,
    /// The truncated importance weights, if there are any.
    pub importance: Option<Tensor<2>>,
    /// The advantages, one per token.
    pub advantages: Tensor<2>,
    /// The targets of a critic, if there is one.
    pub targets: Option<ValueTargets>,
    /// 1 for tokens that count.
    pub mask: Tensor<2>,
    /// The weight of each token in the loss.
    pub weights: Tensor<2>,
    /// The weight of each token in the metrics.
    pub shares: Tensor<2>,
}

/// The numbers that a critic is trained on; tensors are `[rows, width]`.
#[derive(Clone, Debug)]
pub struct ValueTargets {
    /// The critic's values before the step's first update.
    pub old_values: Tensor<2>,
    /// The values that the critic should give.
    pub returns: Tensor<2>,
}

impl MicroBatch {
    /// Makes the tensors of `samples`, which are a part of an update; `divisors` count the whole update.
    /// Tensors are without autodiff.
    pub fn new(
        samples: &[&Sample],
        layout: Layout,
        aggregation: Aggregation,
        divisors: &Divisors,
        device: &Device,
    ) -> Self {
        let device = &device.clone().inner();
        let (tokens, firsts) = laid(samples, layout, device);
        let own: Vec<Vec<usize>> = samples.iter().map(|sample| sample.own().collect()).collect();
        let width = own.iter().map(Vec::len).max().unwrap_or(0);
        let count: usize = own.iter().map(Vec::len).sum();

        let places = tokens.ids().len();
        let (mut predictors, mut predicting) = (Vec::new(), vec![count as i32; places]);
        let (mut labels, mut slots) = (Vec::new(), Vec::new());
        let mut sources = vec![0; samples.len() * width];
        for (row, (sample, own)) in samples.iter().zip(&own).enumerate() {
            for (column, &place) in own.iter().enumerate() {
                let predictor = firsts[row] + place;
                let index = predictors.len() as i32;
                predicting[predictor] = index;
                predictors.push(predictor as i32);
                labels.push(sample.completion[place] as i32);
                slots.push((row * width + column) as i32);
                sources[row * width + column] = index;
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
        // `Some` if every sample has the numbers.
        let optional = |numbers: fn(&Sample) -> Option<&Vec<f32>>| {
            samples.iter().all(|sample| numbers(sample).is_some()).then(|| {
                per_token(&|sample, place| numbers(sample).map_or(0.0, |numbers| numbers[place]))
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
            old_logprobs: per_token(&|sample, place| sample.old_logprobs[place]),
            ref_logprobs: optional(|sample| given(&sample.ref_logprobs)),
            // A sample that is not weighed weighs 1, whatever it shares a micro-batch with.
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
            mask: per_token(&|sample, _| f32::from(u8::from(sample.in_loss))),
            weights: per_token(&|sample, _| {
                if !sample.in_loss {
                    return 0.0;
                }
                aggregation.weight(divisors, sample.group, sample.counted()) as f32
            }),
            shares: per_token(&|sample, _| {
                if sample.in_loss { (1.0 / divisors.tokens.max(1.0)) as f32 } else { 0.0 }
            }),
        }
    }
}

impl MicroBatch {
    /// Lays out numbers of the policy's tokens by row, `[count]` to `[rows, width]`. Any number may stand
    /// behind a row's last token.
    pub fn by_row(&self, numbers: Tensor<1>) -> Tensor<2> {
        numbers.select(0, self.sources.clone()).reshape([self.rows, self.width])
    }

    /// Takes the numbers of the policy's tokens out of the rows, `[rows, width]` to `[count]`.
    pub fn by_token(&self, numbers: Tensor<2>) -> Tensor<1> {
        numbers.reshape([self.rows * self.width]).select(0, self.slots.clone())
    }

    /// Puts the vectors of the predictors, `[count, hidden]`, at their places in the batch,
    /// `[rows, tokens, hidden]`; all other places are 0.
    pub fn spread(&self, x: Tensor<2>) -> Tensor<3> {
        let ([rows, tokens], width) = (self.tokens.tokens.dims(), x.dims()[1]);
        let nothing = Tensor::zeros([1, width], &x.device());
        let all = Tensor::cat(vec![x, nothing], 0).select(0, self.predicting.clone());
        all.reshape([rows, tokens, width])
    }
}

/// Lays out the tokens of the samples. Gives for each sample the place whose hidden state predicts the
/// completion's first token; the places behind it predict the other tokens.
fn laid(samples: &[&Sample], layout: Layout, device: &Device) -> (TokenBatch, Vec<usize>) {
    let mut texts: Vec<(Vec<TokenId>, Option<usize>)> = Vec::new();
    // For each sample, its text, and the number of the prompt's tokens in it, without the last.
    let mut own = Vec::with_capacity(samples.len());
    let mut shared = None;
    for (row, sample) in samples.iter().enumerate() {
        let last = sample.prompt.len() - 1;
        let like = |other: usize| {
            layout == Layout::Shared
                && samples.get(other).is_some_and(|other| shares(sample, other))
        };
        let before = row.checked_sub(1).is_some_and(like);
        if !before {
            shared = like(row + 1).then(|| {
                texts.push((sample.prompt[..last].to_vec(), None));
                texts.len() - 1
            });
        }
        let first = if shared.is_some() { last } else { 0 };
        own.push((texts.len(), last - first));
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
    let firsts = own.iter().map(|&(text, before)| segments[text].range.start + before);
    let firsts = firsts.collect();
    (tokens, firsts)
}

/// Gives the list if it is not empty.
fn given(numbers: &Vec<f32>) -> Option<&Vec<f32>> {
    (!numbers.is_empty()).then_some(numbers)
}
