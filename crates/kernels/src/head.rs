//! Log-probabilities from hidden states, and their gradients, without logits for the entire batch.
//!
//! The head is the widest matrix of a model: for 64 rows of 1,024 tokens and a vocabulary of 151,936, f32 logits take
//! 40 GB. So logits are computed for a block of the vocabulary at a time, and again in the backward pass, unless they
//! are few enough to be kept for it. From block to block, a token's largest logit, its sum of exponentials and the
//! entropy's sum are carried along, and rescaled whenever the largest logit changes, as in
//! [`attention`](crate::attention()). The gradient is written by hand. With the logits over the temperature z and p =
//! exp(z − max) / sum, ∂ log p_y / ∂z_j = 1[j = y] − p_j and ∂H / ∂z_j = −p_j (log p_j + H). Each block's part of the
//! head's gradient is computed once, for all tokens.
//!
//! In some families logits are capped before they are divided by the temperature. [`head_logits`] caps them, so that
//! nothing after it knows of the cap, except for the gradient: the slope of c · tanh(x / c) is 1 − tanh², which follows
//! from the capped logit alone.

use std::ops::Range;

use burn::tensor::{DType, FloatDType, IndexingUpdateOp, Int, Tensor};

#[cfg(feature = "gpu")]
use crate::cube;
use crate::{
    Compute, cpu,
    flex::{edited, ints, matrix, numbers, tensor, weights},
};

/// What makes logits of hidden states: the head of a language model.
#[derive(Clone, Debug)]
pub struct LmHead {
    /// `[vocab, hidden]`.
    pub matrix: Tensor<2>,
    /// Bound c that logits come close to but never pass (soft-capping, in Gemma 2): a logit x becomes c · tanh(x / c),
    /// in f32, before the temperature divides it. A positive number, or `None` if logits stay as they are.
    pub cap: Option<f64>,
}

/// Makes a head that leaves logits as they are.
impl From<Tensor<2>> for LmHead {
    fn from(matrix: Tensor<2>) -> Self {
        LmHead { matrix, cap: None }
    }
}

impl LmHead {
    /// Returns the part of the head that makes the logits of a block of the vocabulary.
    pub(crate) fn rows(&self, block: &Range<usize>) -> Self {
        LmHead { matrix: self.matrix.clone().slice_dim(0, block.clone()), cap: self.cap }
    }

    pub(crate) fn vocab(&self) -> usize {
        self.matrix.dims()[0]
    }

    /// Computes the slope of the cap, 0 to 1, where the capped logits over `temperature` are `logits`; `None` without a
    /// cap.
    pub(crate) fn cap_slope(&self, logits: &Tensor<2>, temperature: f64) -> Option<Tensor<2>> {
        let cap = self.cap?;
        let tanh = logits.clone().mul_scalar(temperature / cap);
        Some((tanh.clone() * tanh).neg().add_scalar(1.0))
    }
}

/// Log-probabilities and entropies of some tokens, `[tokens]` each, in nats.
#[derive(Clone, Debug)]
pub struct TokenLogProbs {
    /// Log-probability of each label.
    pub logprobs: Tensor<1>,
    /// Entropy of the distribution that the label was drawn from.
    pub entropy: Tensor<1>,
    /// Largest logit over the temperature. `log_sum` is the logarithm of the sum of exp(logit − largest). They are kept
    /// separate, because their sum would lose three digits in f32 if logits are near 10⁴.
    pub(crate) largest: Tensor<2>,
    pub(crate) log_sum: Tensor<2>,
    /// That of the head, because the backward pass needs it too.
    pub(crate) cap: Option<f64>,
    waiting: Waiting,
}

/// Logits that are kept for the backward pass.
#[derive(Clone)]
enum Waiting {
    None,
    /// All logits, `[tokens, vocab]`.
    Plain(Box<Tensor<2>>),
    /// Blocks of the CPU's implementation, over the temperature.
    Cpu(Vec<Vec<f32>>),
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Waiting::None) { "none" } else { "all" })
    }
}

/// Computes the logits `hidden · headᵀ`, and caps them if the head has a cap: `[tokens, hidden]` and `[vocab, hidden]`
/// to `[tokens, vocab]`. Both sides are rounded to the format of `hidden`; the result is f32. A head of another format
/// is widened by blocks, so that an f32 copy of all of it never exists.
pub fn head_logits(hidden: Tensor<2>, head: &LmHead) -> Tensor<2> {
    on_gpu!(head::logits(&hidden, head));

    if let (Some(left), Some(right)) = (matrix(&hidden), weights(&head.matrix)) {
        let cap = head.cap.map(|cap| cap as f32);
        let logits = cpu::head::scaled_logits(left.view(), right.view(), cap, 1.0);
        return tensor(logits, [hidden.dims()[0], head.vocab()]);
    }

    let logits = plain_logits(hidden, &head.matrix);
    match head.cap {
        Some(cap) => logits.div_scalar(cap).tanh().mul_scalar(cap),
        None => logits,
    }
}

/// Does what [`head_logits`] does before it caps the logits, in plain tensor code.
fn plain_logits(hidden: Tensor<2>, head: &Tensor<2>) -> Tensor<2> {
    const WIDENED: usize = 1 << 24;
    let [vocab, width] = head.dims();

    if head.dtype() == DType::F32 && hidden.dtype() == DType::F32 {
        return product(hidden, head.clone());
    }

    let rows = (WIDENED / width).clamp(1, vocab);
    let blocks = (0..vocab).step_by(rows).map(|first| {
        let block = head.clone().slice_dim(0, first..(first + rows).min(vocab));
        product(hidden.clone(), block)
    });
    Tensor::cat(blocks.collect(), 1)
}

/// Computes `hidden · headᵀ` in one piece.
fn product(hidden: Tensor<2>, head: Tensor<2>) -> Tensor<2> {
    let format = hidden.dtype();
    let wide = |x: Tensor<2>| x.cast(format).cast(FloatDType::F32);
    crate::product(wide(hidden), wide(head).transpose(), Compute::F32)
}

/// Computes the log-probabilities of `labels`, `[tokens]`, at `temperature`, from `hidden`, `[tokens, hidden]`, and
/// `head`. About `logits` logits are in memory at the same time; in the CPU's implementation a million, or 512 of each
/// token.
pub fn head_logprobs(
    hidden: &Tensor<2>,
    head: &LmHead,
    labels: &Tensor<1, Int>,
    temperature: f64,
    logits: usize,
) -> TokenLogProbs {
    head_logprobs_saving(hidden, head, labels, temperature, [logits, 0])
}

/// Does [`head_logprobs`] for [`head_backward`]. Logits are kept for it if they are no more than `waiting`, and in
/// plain tensor code also no more than are in memory at the same time.
pub fn head_logprobs_saving(
    hidden: &Tensor<2>,
    head: &LmHead,
    labels: &Tensor<1, Int>,
    temperature: f64,
    [logits, waiting]: [usize; 2],
) -> TokenLogProbs {
    #[cfg(feature = "gpu")]
    if let Some(carried) = cube::head::Carried::new([hidden, &head.matrix], labels, temperature) {
        return on_gpu(hidden, head, carried, [logits, waiting]);
    }

    let (Some(x), Some(head_weights), Some(chosen)) =
        (matrix(hidden), weights(&head.matrix), ints(labels))
    else {
        return plain(hidden, head, labels, temperature, [logits, waiting]);
    };

    let tokens = chosen.len();
    let ([logprobs, entropy, largest, log_sum], blocks) = cpu::head::logprobs(
        x.view(),
        head_weights.view(),
        head.cap.map(|cap| cap as f32),
        &chosen,
        temperature as f32,
        waiting,
    );
    TokenLogProbs {
        logprobs: tensor(logprobs, [tokens]),
        entropy: tensor(entropy, [tokens]),
        largest: tensor(largest, [tokens, 1]),
        log_sum: tensor(log_sum, [tokens, 1]),
        cap: head.cap,
        waiting: Waiting::Cpu(blocks),
    }
}

/// Computes the gradient of `Σ d_logprobs · logprobs + Σ d_entropy · entropy` with respect to `hidden`. The gradient
/// of the head's matrix `head`, `[vocab, hidden]`, is added to `d_head`, unless the head is frozen. `now` must come from
/// [`head_logprobs_saving`] or [`head_logprobs`] for the same inputs and temperature; it knows the cap. Tensors are
/// without autodiff.
#[allow(clippy::too_many_arguments, reason = "the inputs of the forward pass and their gradients")]
pub fn head_backward(
    hidden: &Tensor<2>,
    head: &Tensor<2>,
    labels: &Tensor<1, Int>,
    temperature: f64,
    logits: usize,
    now: TokenLogProbs,
    d_logprobs: &Tensor<1>,
    d_entropy: Option<&Tensor<1>>,
    d_head: Option<Tensor<2>>,
) -> (Tensor<2>, Option<Tensor<2>>) {
    #[cfg(feature = "gpu")]
    if let Some(factors) =
        cube::head::Factors::new([hidden, head], labels, temperature, &now, d_logprobs, d_entropy)
    {
        let head = LmHead { matrix: head.clone(), cap: now.cap };
        return on_gpu_backward(hidden, &head, logits, factors, now.waiting, d_head);
    }

    let sides = (matrix(hidden), weights(head), ints(labels), numbers(d_logprobs));
    let of_entropy = d_entropy.map(numbers);
    let known = (numbers(&now.entropy), numbers(&now.largest), numbers(&now.log_sum));
    let (
        (Some(x), Some(weights), Some(chosen), Some(of_logprobs)),
        None | Some(Some(_)),
        (Some(entropy), Some(largest), Some(log_sum)),
    ) = (sides, &of_entropy, known)
    else {
        return plain_backward(
            hidden,
            head,
            labels,
            temperature,
            logits,
            now,
            d_logprobs,
            d_entropy,
            d_head,
        );
    };

    let of_entropy = of_entropy.flatten();
    let gradients = cpu::head::Gradients { logprobs: &of_logprobs, entropy: of_entropy.as_deref() };
    let mut waiting = match now.waiting {
        Waiting::Cpu(blocks) => blocks,
        Waiting::None | Waiting::Plain(_) => Vec::new(),
    };

    // With a head that trains, its gradient is edited in place while that of the hidden states is computed.
    let mut d_hidden = Vec::new();
    let mut back = |d_head: Option<&mut [f32]>| {
        d_hidden = cpu::head::backward(
            x.view(),
            weights.view(),
            now.cap.map(|cap| cap as f32),
            &chosen,
            temperature as f32,
            [&entropy, &largest, &log_sum],
            &gradients,
            d_head,
            std::mem::take(&mut waiting),
        );
    };

    let d_head = match d_head {
        Some(d_head) => Some(edited(d_head, |d_head| back(Some(d_head)))),
        None => {
            back(None);
            None
        }
    };

    (tensor(d_hidden, hidden.dims()), d_head)
}

#[cfg(feature = "gpu")]
fn on_gpu(
    hidden: &Tensor<2>,
    head: &LmHead,
    mut carried: cube::head::Carried,
    [logits, kept]: [usize; 2],
) -> TokenLogProbs {
    let vocab = head.vocab();

    let mut waiting = Waiting::None;
    for block in blocks(hidden.dims(), vocab, logits) {
        let logits = waiting.logits(hidden, head, &block);
        carried.add(&logits, block.start);
        // Logits are kept only if a single block holds all of them.
        if block.len() == vocab && hidden.dims()[0] * vocab <= kept {
            waiting = Waiting::Plain(Box::new(logits));
        }
    }

    let cube::head::Found { logprobs, entropy, largest, log_sum } = carried.finish();
    TokenLogProbs { logprobs, entropy, largest, log_sum, cap: head.cap, waiting }
}

/// Number of vocabulary tokens over which one matmul sums the gradient of hidden states.
///
/// A matmul sums its terms one after the other in f32. Over a vocabulary of 151,936 tokens, that was off by 7.5e-5 of
/// the largest number on llvmpipe, where the CPU is off by 2.4e-6.
#[cfg(feature = "gpu")]
const TERMS: usize = 1 << 13;

#[cfg(feature = "gpu")]
fn on_gpu_backward(
    hidden: &Tensor<2>,
    head: &LmHead,
    logits: usize,
    factors: cube::head::Factors,
    mut waiting: Waiting,
    mut d_head: Option<Tensor<2>>,
) -> (Tensor<2>, Option<Tensor<2>>) {
    let format = hidden.dtype();
    let mut d_hidden: Option<Tensor<2>> = None;

    for block in blocks(hidden.dims(), head.vocab(), logits) {
        let logits = waiting.logits(hidden, head, &block);
        let d_logits = factors.d_logits(&logits, block.start, format);
        drop(logits);

        let rows = head.rows(&block).matrix.cast(format);
        // The other matmuls gain from a wide block, so only this one's terms are split.
        for start in (0..block.len()).step_by(TERMS) {
            let run = start..block.len().min(start + TERMS);
            let part = d_logits.clone().slice_dim(1, run.clone());
            let rows = rows.clone().slice_dim(0, run);
            d_hidden = Some(cube::product::added(d_hidden, 0, &part, &rows));
        }

        d_head = d_head.map(|d_head| {
            cube::product::added(Some(d_head), block.start, &d_logits.transpose(), hidden)
        });
    }

    (d_hidden.expect("a vocabulary has tokens"), d_head)
}

pub(crate) fn plain(
    hidden: &Tensor<2>,
    head: &LmHead,
    labels: &Tensor<1, Int>,
    temperature: f64,
    [logits, kept]: [usize; 2],
) -> TokenLogProbs {
    let labels = labels.clone().unsqueeze_dim::<2>(1);
    let vocab = head.vocab();

    let mut carried: Option<[Tensor<2>; 4]> = None;
    let mut waiting = Waiting::None;

    for block in blocks(hidden.dims(), vocab, logits) {
        let logits = head_logits(hidden.clone(), &head.rows(&block));
        if block.len() == vocab && hidden.dims()[0] * vocab <= kept {
            waiting = Waiting::Plain(Box::new(logits.clone()));
        }

        let scaled = over(logits, temperature);
        let mut chosen = Chosen::new(&labels, &block).of(&scaled);

        let mut largest = scaled.clone().max_dim(1);
        if let Some([before, ..]) = &carried {
            largest = largest.max_pair(before.clone());
        }

        let lacking = scaled - largest.clone();
        let weights = lacking.clone().exp();
        // A logit of −∞ must add nothing, but 0 · ∞ would be NaN.
        let mut spread = (weights.clone() * lacking.clamp_min(f32::MIN)).sum_dim(1);
        let mut sum = weights.sum_dim(1);

        // The carried sums are relative to another largest logit. With z + less for z, Σ exp(z) · z becomes exp(less) ·
        // (Σ exp(z) · z + less · Σ exp(z)).
        if let Some([before, sum_before, spread_before, chosen_before]) = carried {
            let less = (before - largest.clone()).clamp_min(f32::MIN);
            let kept = less.clone().exp();
            spread = spread + (spread_before + sum_before.clone() * less) * kept.clone();
            sum = sum + sum_before * kept;
            chosen = chosen + chosen_before;
        }

        carried = Some([largest, sum, spread, chosen]);
    }

    let [largest, sum, spread, chosen] = carried.expect("a vocabulary has tokens");
    let log_sum = sum.clone().log();

    TokenLogProbs {
        logprobs: (chosen - largest.clone() - log_sum.clone()).squeeze_dim(1),
        entropy: (log_sum.clone() - spread / sum).squeeze_dim(1),
        largest,
        log_sum,
        cap: head.cap,
        waiting,
    }
}

#[allow(clippy::too_many_arguments, reason = "the inputs of the forward pass and their gradients")]
pub(crate) fn plain_backward(
    hidden: &Tensor<2>,
    head: &Tensor<2>,
    labels: &Tensor<1, Int>,
    temperature: f64,
    logits: usize,
    now: TokenLogProbs,
    d_logprobs: &Tensor<1>,
    d_entropy: Option<&Tensor<1>>,
    mut d_head: Option<Tensor<2>>,
) -> (Tensor<2>, Option<Tensor<2>>) {
    let format = hidden.dtype();
    let labels = labels.clone().unsqueeze_dim::<2>(1);
    let column = |row: &Tensor<1>| row.clone().unsqueeze_dim::<2>(1).div_scalar(temperature);

    // Over the temperature, because logits were divided by it.
    let d_chosen = column(d_logprobs);
    // ∂z_j = d · (1[j = y] − p_j) over the temperature: the second term for all tokens, the first only for labels.
    let d_weights = d_chosen.clone().neg() * now.log_sum.clone().neg().exp();

    let of_entropy = d_entropy.map(|d_entropy| {
        let entropy = now.entropy.clone().unsqueeze_dim::<2>(1);
        let d = column(d_entropy) * now.log_sum.clone().neg().exp();
        (d, entropy - now.log_sum.clone())
    });

    let head = LmHead { matrix: head.clone(), cap: now.cap };
    let mut waiting = now.waiting;
    let mut d_hidden: Option<Tensor<2>> = None;

    for block in blocks(hidden.dims(), head.vocab(), logits) {
        // Each logit's gradient.
        let scaled = over(waiting.logits(hidden, &head, &block), temperature);
        let cap_slope = head.cap_slope(&scaled, temperature);
        let lacking = scaled - now.largest.clone();
        let weights = lacking.clone().exp();
        let mut d_logits = weights.clone() * d_weights.clone();

        if let Some((d, difference)) = &of_entropy {
            let spread = lacking.clamp_min(f32::MIN) + difference.clone();
            d_logits = d_logits - weights * spread * d.clone();
        }
        let mut d_logits = Chosen::new(&labels, &block).add(d_logits, &d_chosen);
        if let Some(slope) = cap_slope {
            d_logits = d_logits * slope;
        }

        // The block's parts of both gradients.
        let product = |x: Tensor<2>, y: Tensor<2>| {
            x.cast(format).matmul(y.cast(format)).cast(FloatDType::F32)
        };
        let part = product(d_logits.clone(), head.rows(&block).matrix);
        d_hidden = Some(match d_hidden {
            Some(sum) => sum + part,
            None => part,
        });

        // The rows of the head that belong to this block get their gradient only from it.
        if let Some(whole) = d_head.take() {
            let part = product(d_logits.transpose(), hidden.clone());
            let columns = 0..whole.dims()[1];
            let sum = whole.clone().slice_dim(0, block.clone()) + part;
            d_head = Some(whole.slice_assign([block, columns], sum));
        }
    }

    (d_hidden.expect("a vocabulary has tokens"), d_head)
}

impl Waiting {
    /// Returns the logits of a block of the vocabulary: the kept ones if the block is all of it.
    fn logits(&mut self, hidden: &Tensor<2>, head: &LmHead, block: &Range<usize>) -> Tensor<2> {
        match std::mem::replace(self, Waiting::None) {
            Waiting::Plain(logits) if block.len() == head.vocab() => *logits,
            _ => head_logits(hidden.clone(), &head.rows(block)),
        }
    }
}

fn over(logits: Tensor<2>, temperature: f64) -> Tensor<2> {
    if temperature == 1.0 { logits } else { logits.div_scalar(temperature) }
}

/// Where the labels are in a block of the vocabulary.
struct Chosen {
    /// Index in the block, `[tokens, 1]`; 0 for a label outside the block.
    index: Tensor<2, Int>,
    /// 1 if the label is in the block and 0 otherwise, `[tokens, 1]`.
    there: Tensor<2>,
}

impl Chosen {
    fn new(labels: &Tensor<2, Int>, block: &Range<usize>) -> Self {
        let index = labels.clone().sub_scalar(block.start as i64);
        let outside = index
            .clone()
            .lower_elem(0)
            .bool_or(index.clone().greater_equal_elem(block.len() as i64));
        let there = outside.clone().bool_not().float();
        Chosen { index: index.mask_fill(outside, 0), there }
    }

    /// Reads the labels' entries, `[tokens, 1]`; 0 for labels outside the block.
    fn of(&self, logits: &Tensor<2>) -> Tensor<2> {
        let nowhere = self.there.clone().equal_elem(0.0);
        logits.clone().gather(1, self.index.clone()).mask_fill(nowhere, 0.0)
    }

    /// Adds to the labels' entries.
    fn add(&self, logits: Tensor<2>, values: &Tensor<2>) -> Tensor<2> {
        let values = values.clone() * self.there.clone();
        logits.scatter(1, self.index.clone(), values, IndexingUpdateOp::Add)
    }
}

/// Splits the vocabulary into blocks of about `logits` logits, and of at least 64 rows unless fewer logits are
/// requested.
pub(crate) fn blocks(
    [tokens, width]: [usize; 2],
    vocab: usize,
    logits: usize,
) -> impl Iterator<Item = Range<usize>> {
    const ROWS: usize = 64;
    // With few tokens, the block of the head has to be small, because it is widened.
    let rows = (logits / tokens.max(width)).max(ROWS.min(logits)).clamp(1, vocab);
    (0..vocab).step_by(rows).map(move |start| start..(start + rows).min(vocab))
}
