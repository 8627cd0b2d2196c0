//! On-policy distillation: a teacher says of each token that the policy wrote whether it would have written it, or what
//! it would have written there.

use firebrick_core::config::DistillationLoss;
use firebrick_kernels::KlDirection;

/// How what a teacher says becomes advantages, or a loss.
///
/// With [`DistillationLoss::PolicyGradient`] a token's advantage is `task_weight` · A + `weight` · (log p_teacher − log
/// p_policy), where A is the advantage that the task's reward gives it, and p_policy is the old policy of the ratio
/// ([`Sample::old_logprobs`](crate::Sample::old_logprobs)). The second part, averaged over the policy's own tokens, is
/// the negative reverse KL divergence, so the policy moves towards what the teacher would have written (Lu and Thinking
/// Machines Lab, 2025). It looks at no later token, as if rewards were discounted by 0.
///
/// With the other two a token's advantage is `task_weight` · A, and `weight` times the divergence is added to the
/// token's loss (Agarwal et al. 2024, arXiv 2306.13649).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distillation {
    /// How the policy learns from its teacher.
    pub loss: DistillationLoss,
    /// Weight of the teacher's part.
    pub weight: f64,
    /// Weight of the task's part; 0 if the teacher alone decides.
    pub task_weight: f64,
    /// Largest size of the difference of the log-probabilities in an advantage, in nats, if there is a limit.
    pub max_log_ratio: Option<f64>,
}

impl Distillation {
    /// Returns the divergence that is a loss, if one is.
    pub fn direction(&self) -> Option<KlDirection> {
        match self.loss {
            DistillationLoss::PolicyGradient => None,
            DistillationLoss::ForwardKl => Some(KlDirection::Forward),
            DistillationLoss::ReverseKl => Some(KlDirection::Reverse),
        }
    }

    /// Computes a token's advantage from its `task` advantage, and its log-probabilities under policy and teacher.
    pub fn advantage(&self, task: f32, policy: f32, teacher: f32) -> f32 {
        let max = self.max_log_ratio.unwrap_or(f64::INFINITY);
        let log_ratio = (f64::from(teacher) - f64::from(policy)).clamp(-max, max);
        (self.task_weight * f64::from(task) + self.weight * log_ratio) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_advantage_is_the_task_s_and_the_teacher_s() {
        let loss = DistillationLoss::PolicyGradient;
        let alone = Distillation { loss, weight: 2.0, task_weight: 0.0, max_log_ratio: None };
        assert_eq!(alone.advantage(7.0, -0.5, -2.0), -3.0);
        assert_eq!(alone.advantage(7.0, -1.5, -1.5), 0.0);

        let both = Distillation { task_weight: 0.5, max_log_ratio: Some(1.0), ..alone };
        assert_eq!(both.advantage(3.0, -0.5, -9.0), 1.5 - 2.0);
        assert_eq!(both.advantage(3.0, -9.0, -0.5), 1.5 + 2.0);
    }
}
