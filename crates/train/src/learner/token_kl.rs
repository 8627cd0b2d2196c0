//! KL divergences of a policy and its teacher over the whole vocabulary, token by token, and their gradients.

use burn::{
    module::Param,
    tensor::{Tensor, activation::log_softmax},
};
use firebrick_kernels::{Compute, product};
use firebrick_models::{GradientSum, head_logits};

/// Which of the two models the logarithms are weighted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// KL(teacher ‖ policy).
    Forward,
    /// KL(policy ‖ teacher).
    Reverse,
}

/// Divergences of some tokens, `[count]` each, in nats.
pub(super) struct TokenKl {
    pub(super) forward: Tensor<1>,
    pub(super) reverse: Tensor<1>,
    /// Gradient of the weighted sum of one of the two with respect to the policy's hidden states, `[count, hidden]`.
    pub(super) d_hidden: Tensor<2>,
}

/// How many tensors as large as the logits exist at the same time.
const TENSORS: usize = 4;

impl TokenKl {
    /// Computes the divergences at `temperature`, and the gradient of the sum of those in `direction`, each times its
    /// weight, `[count]`. The head's gradient is added to `sum`, unless the head is frozen.
    ///
    /// `hidden` are the policy's hidden states and `taught` the teacher's, `[count, …]`. `head` and `teacher` make logits of
    /// them, `[vocab, …]`; tokens that only the teacher has are left out, as if it could not write them. All are without
    /// autodiff, but for `head`. About `logits` logits are in memory at the same time.
    ///
    /// With p for the teacher, q for the policy and z for the policy's logits over the temperature, ∂ KL(p ‖ q) / ∂z = q −
    /// p, and ∂ KL(q ‖ p) / ∂z = q · (log q − log p − KL(q ‖ p)).
    #[allow(clippy::too_many_arguments, reason = "two models, and what is to be made of them")]
    pub(super) fn backward(
        direction: Direction,
        [hidden, taught]: [&Tensor<2>; 2],
        head: &Param<Tensor<2>>,
        teacher: &Tensor<2>,
        weights: &Tensor<1>,
        temperature: f64,
        logits: usize,
        compute: Compute,
        sum: &mut GradientSum,
    ) -> Self {
        let policy_head = head.val().inner();
        let [vocab, _] = policy_head.dims();
        let teacher_head = teacher.clone().slice_dim(0, 0..vocab);
        let [count, _] = hidden.dims();
        let rows = (logits / (TENSORS * vocab)).clamp(1, count.max(1));

        let [mut forward, mut reverse] = [Vec::new(), Vec::new()];
        let mut d_hidden = Vec::new();
        for start in (0..count).step_by(rows) {
            let block = start..(start + rows).min(count);
            let of_block = |x: &Tensor<2>| x.clone().slice_dim(0, block.clone());
            let log_probs = |hidden: &Tensor<2>, head: &Tensor<2>| {
                let logits = head_logits(of_block(hidden), head.clone());
                log_softmax(logits.div_scalar(temperature), 1)
            };

            let log_policy = log_probs(hidden, &policy_head);
            let log_teacher = log_probs(taught, &teacher_head);
            let (policy, teacher) = (log_policy.clone().exp(), log_teacher.clone().exp());
            let log_ratio = log_policy - log_teacher;
            let kl = (policy.clone() * log_ratio.clone()).sum_dim(1);
            forward.push((teacher.clone() * log_ratio.clone()).sum_dim(1).neg());
            reverse.push(kl.clone());

            let d_logits = match direction {
                Direction::Forward => policy - teacher,
                Direction::Reverse => policy * (log_ratio - kl),
            };
            // Over the temperature, because logits were divided by it.
            let weights = weights.clone().slice(block.clone()).div_scalar(temperature);
            let d_logits = d_logits * weights.unsqueeze_dim(1);

            d_hidden.push(product(d_logits.clone(), policy_head.clone(), compute));
            if head.is_require_grad() {
                sum.add_product(head, d_logits.transpose(), of_block(hidden), compute);
            }
        }

        let joined = |parts: Vec<Tensor<2>>| Tensor::cat(parts, 0).squeeze_dim(1);
        TokenKl {
            forward: joined(forward),
            reverse: joined(reverse),
            d_hidden: Tensor::cat(d_hidden, 0),
        }
    }
}

#[cfg(test)]
mod tests;
