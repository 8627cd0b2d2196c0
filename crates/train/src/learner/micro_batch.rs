//! Micro-batches: how an update is split, and the tensors that some of its samples become.

use std::collections::HashMap;

use burn::tensor::{Device, Int, Tensor, TensorData};
use firebrick_core::{
    TokenId,
    config::{Aggregation, SharePrompts},
};
use firebrick_models::{Padding, TokenBatch};

use crate::{algorithm::aggregation::Divisors, sample::Sample};

/// How an update is split into micro-batches, and what its backward pass recomputes. It changes memory and
/// speed, and the result by rounding at most. If the matmul precision is bfloat16, that is the rounding of
/// bfloat16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MicroBatching {
    /// Tokens per micro-batch, padding included if the policy does not pack: bounds activations.
    pub micro_batch_tokens: usize,
    /// Approximate maximum of materialised logits: bounds the widest tensor.
    pub max_logits: usize,
    /// Maximum of a micro-batch's logits that are kept for its backward pass. If there are more, they are
    /// computed twice.
    pub max_saved_logits: usize,
    /// Layers, counted from the last, whose activations are kept for the backward pass. Of the others only
    /// the inputs are kept, and the activations are recomputed.
    pub layers_without_recompute: usize,
    /// True if those inputs are offloaded to host memory.
    pub offload: bool,
    /// When completions of one prompt share it.
    pub share_prompts: SharePrompts,
}

impl Default for MicroBatching {
    /// Splits nothing, and recomputes no layer.
    fn default() -> Self {
        MicroBatching {
            micro_batch_tokens: usize::MAX,
            max_logits: 1 << 24,
            max_saved_logits: 1 << 24,
            layers_without_recompute: usize::MAX,
            offload: false,
            share_prompts: SharePrompts::Auto,
        }
    }
}

impl MicroBatching {
    /// Chooses the layout of the micro-batches of these samples.
    pub(crate) fn layout(&self, samples: &[Sample], packs: bool) -> Layout {
        if !packs {
            return Layout::Padded;
        }

        let shares = match self.share_prompts {
            SharePrompts::Auto => {
                prompt_sharing_saving(samples, self.micro_batch_tokens) >= MIN_SHARING_SAVING
            }
            SharePrompts::Always => true,
            SharePrompts::Never => false,
        };
        if shares { Layout::Shared } else { Layout::Packed }
    }
}

/// Fraction of an update's tokens that sharing has to save before prompts are computed once. It is a guess:
/// sharing costs a second pass over every completion, and nobody has measured the break-even point.
const MIN_SHARING_SAVING: f64 = 0.05;

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
        let mut group_of: HashMap<[&[TokenId]; 2], usize> = HashMap::new();
        for index in indices {
            let Sample { prompt, teacher_prompt, .. } = &samples[index];
            let group = *group_of.entry([prompt, teacher_prompt]).or_insert_with(|| {
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
    let all: usize = counted.map(|it| it.prompt.len() + it.completion.len()).sum();

    let saved: usize = micro_batches(samples, max_tokens, Layout::Shared)
        .iter()
        .flat_map(|batch| batch.windows(2))
        .map(|pair| (&samples[pair[0]], &samples[pair[1]]))
        .filter(|(first, second)| can_share_prompt(first, second))
        .map(|(_, sample)| sample.prompt.len() - 1)
        .sum();

    saved as f64 / all.max(1) as f64
}

/// Returns true if two samples have the same prompt, with something to share in it, also for a teacher.
fn can_share_prompt(first: &Sample, second: &Sample) -> bool {
    first.prompt.len() > 1
        && first.prompt == second.prompt
        && first.teacher_prompt == second.teacher_prompt
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
    /// The weights of tokens in the policy loss ([`Sample::importance`]), if there are any.
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
                divisors.token_weight(aggregation, sample.group, sample.loss_tokens()) as f32
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
