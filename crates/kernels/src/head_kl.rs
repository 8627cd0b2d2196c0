//! KL divergences of two models over the whole vocabulary, token by token, and their gradients, without logits for the
//! entire batch.
//!
//! As in [`head`](crate::head), logits are computed for a block of the vocabulary at a time, and twice unless one block
//! has all of them. Let z be a model's logits over the temperature, q the policy's probabilities and p the teacher's. The
//! first pass carries each model's largest logit m, Σ exp(z − m) and Σ exp(z − m) · (z_q − z_p) from block to block. The
//! divergences follow from these, because KL(q ‖ p) = Σ q · (z_q − z_p) − (log Σ exp z_q − log Σ exp z_p). The second pass
//! makes the gradient: ∂ KL(p ‖ q) / ∂z_q = q − p, and ∂ KL(q ‖ p) / ∂z_q = q · (log q − log p − KL(q ‖ p)). Each model
//! caps its logits by its own head.

use std::ops::Range;

use burn::tensor::Tensor;

use crate::{Compute, LmHead, add_product, head::blocks, head_logits, product};

/// Which of two models the logarithms are weighted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KlDirection {
    /// KL(teacher ‖ policy).
    Forward,
    /// KL(policy ‖ teacher).
    Reverse,
}

/// Hidden states of some tokens, and the head that makes logits of them. Tensors are without autodiff.
#[derive(Clone, Debug)]
pub struct HeadStates {
    /// `[tokens, hidden]`.
    pub hidden: Tensor<2>,
    /// The head, whose matrix is `[vocab, hidden]`.
    pub head: LmHead,
}

/// Divergences of some tokens, `[tokens]` each in nats, with the gradient of a weighted sum of them.
#[derive(Clone, Debug)]
pub struct HeadKl {
    /// KL(teacher ‖ policy).
    pub forward: Tensor<1>,
    /// KL(policy ‖ teacher).
    pub reverse: Tensor<1>,
    /// Gradient with respect to the policy's hidden states, `[tokens, hidden]`.
    pub d_hidden: Tensor<2>,
    /// Gradient with respect to the policy's head, `[vocab, hidden]`, if it was asked for.
    pub d_head: Option<Tensor<2>>,
}

/// How many tensors as large as a block of logits exist at the same time.
const TENSORS: usize = 6;

/// Number of vocabulary tokens over which one matmul sums, at most. More terms would lose digits.
const TERMS: usize = 1 << 13;

/// Computes the divergences of `policy` and `teacher` at `temperature`, and the gradient of the sum of those in
/// `direction`, each times its weight, `[tokens]`. Products are in the precision `compute`. About `logits` logits are in
/// memory at the same time.
///
/// The teacher's head has at least as many rows as the policy's. Tokens that only the teacher has are left out, as if it
/// could not write them.
#[allow(clippy::too_many_arguments, reason = "two models, and what is to be made of them")]
pub fn head_kl(
    direction: KlDirection,
    policy: &HeadStates,
    teacher: &HeadStates,
    weights: &Tensor<1>,
    temperature: f64,
    logits: usize,
    compute: Compute,
    trains_head: bool,
) -> HeadKl {
    let vocab = policy.head.vocab();
    let dims = policy.hidden.dims();
    let blocks: Vec<Range<usize>> =
        blocks(dims, vocab, (logits / TENSORS).clamp(1, TERMS * dims[0].max(dims[1]))).collect();

    let logits_of = |states: &HeadStates, block: &Range<usize>| {
        let logits = head_logits(states.hidden.clone(), &states.head.rows(block));
        if temperature == 1.0 { logits } else { logits.div_scalar(temperature) }
    };
    let both = |block: &Range<usize>| [logits_of(policy, block), logits_of(teacher, block)];

    let mut kept = None;
    let mut carried: Option<[Carried; 2]> = None;
    for block in &blocks {
        let [of_policy, of_teacher] = both(block);
        let difference = of_policy.clone() - of_teacher.clone();
        let [policy, teacher] = match carried.take() {
            Some([policy, teacher]) => [Some(policy), Some(teacher)],
            None => [None, None],
        };
        carried = Some([
            Carried::after(policy, &of_policy, &difference),
            Carried::after(teacher, &of_teacher, &difference),
        ]);
        kept = (blocks.len() == 1).then_some([of_policy, of_teacher]);
    }
    let [of_policy, of_teacher] = carried.expect("a vocabulary has tokens");

    // log Σ exp z_q − log Σ exp z_p. The largest logits are kept apart, because sums with them would lose digits.
    let shift = (of_policy.largest.clone() - of_teacher.largest.clone())
        + (of_policy.sum.clone().log() - of_teacher.sum.clone().log());
    let reverse = of_policy.spread / of_policy.sum.clone() - shift.clone();
    let forward = shift.clone() - of_teacher.spread / of_teacher.sum.clone();

    // Over the temperature, because logits were divided by it.
    let weights = weights.clone().div_scalar(temperature).unsqueeze_dim::<2>(1);
    let mut d_hidden = None;
    let mut d_head = Vec::new();
    for block in &blocks {
        let [z_policy, z_teacher] = kept.take().unwrap_or_else(|| both(block));
        let cap_slope = policy.head.cap_slope(&z_policy, temperature);
        let log_ratio = z_policy.clone() - z_teacher.clone() - shift.clone();
        let q = (z_policy - of_policy.largest.clone()).exp() / of_policy.sum.clone();
        let d_logits = match direction {
            KlDirection::Forward => {
                q - (z_teacher - of_teacher.largest.clone()).exp() / of_teacher.sum.clone()
            }
            KlDirection::Reverse => q * (log_ratio - reverse.clone()),
        };
        let mut d_logits = d_logits * weights.clone();
        if let Some(slope) = cap_slope {
            d_logits = d_logits * slope;
        }

        let rows = policy.head.rows(block).matrix;
        d_hidden = Some(add_product(d_hidden, d_logits.clone(), rows, compute));
        if trains_head {
            d_head.push(product(d_logits.transpose(), policy.hidden.clone(), compute));
        }
    }

    HeadKl {
        forward: forward.squeeze_dim(1),
        reverse: reverse.squeeze_dim(1),
        d_hidden: d_hidden.expect("a vocabulary has tokens"),
        d_head: trains_head.then(|| Tensor::cat(d_head, 0)),
    }
}

/// What the first pass carries of one model, `[tokens, 1]` each.
struct Carried {
    /// Largest logit so far.
    largest: Tensor<2>,
    /// Σ exp(z − largest).
    sum: Tensor<2>,
    /// Σ exp(z − largest) · (z_policy − z_teacher).
    spread: Tensor<2>,
}

impl Carried {
    fn after(before: Option<Carried>, logits: &Tensor<2>, difference: &Tensor<2>) -> Self {
        let mut largest = logits.clone().max_dim(1);
        if let Some(before) = &before {
            largest = largest.max_pair(before.largest.clone());
        }
        let weights = (logits.clone() - largest.clone()).exp();
        let mut spread = (weights.clone() * difference.clone()).sum_dim(1);
        let mut sum = weights.sum_dim(1);
        if let Some(before) = before {
            let factor = (before.largest - largest.clone()).exp();
            spread = spread + before.spread * factor.clone();
            sum = sum + before.sum * factor;
        }
        Carried { largest, sum, spread }
    }
}
