//! Loss scaling, which keeps the gradients of losses in f16 from vanishing.

use firebrick_models::Compute;
use serde::{Deserialize, Serialize};

/// Factor of losses for matmuls in f16, whose smallest number is 6 · 10⁻⁸. It is halved when a gradient is not
/// finite, and the gradient is computed again. It is doubled after many finite gradients (Micikevicius et al.
/// 2018).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossScale {
    /// A power of two, at least 1.
    pub scale: f64,
    /// Finite gradients since the factor changed.
    pub good: u32,
    /// Factor before it was halved for a gradient that is being computed again.
    #[serde(default)]
    pub before: Option<f64>,
}

impl Default for LossScale {
    fn default() -> Self {
        LossScale { scale: 65536.0, good: 0, before: None }
    }
}

impl LossScale {
    const MAX_SCALE: f64 = 16_777_216.0;
    /// Finite gradients after which the factor is doubled.
    const GROWTH_INTERVAL: u32 = 500;

    /// Returns the factor of the loss for a policy with this matmul precision.
    pub fn of(&self, compute: Compute) -> f64 {
        if compute == Compute::F16 { self.scale } else { 1.0 }
    }

    /// Records a finite gradient.
    pub(crate) fn record_finite(&mut self) {
        self.good += 1;
        self.before = None;
        if self.good == Self::GROWTH_INTERVAL {
            *self = LossScale { scale: (2.0 * self.scale).min(Self::MAX_SCALE), ..Self::default() };
        }
    }

    /// Records a gradient that was not finite, and returns true if a smaller scale is left to try. If no scale
    /// helped, the scale was not at fault: it becomes half of its value before.
    pub(crate) fn record_overflow(&mut self) -> bool {
        let before = self.before.unwrap_or(self.scale);
        let can_shrink = self.scale > 1.0;

        *self = if can_shrink {
            LossScale { scale: self.scale / 2.0, good: 0, before: Some(before) }
        } else {
            LossScale { scale: (before / 2.0).max(1.0), good: 0, before: None }
        };
        can_shrink
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(scale: f64, good: u32) -> LossScale {
        LossScale { scale, good, before: None }
    }

    #[test]
    fn a_scale_falls_at_once_and_rises_slowly() {
        let mut scale = new(2.0, 499);
        scale.record_finite();
        assert_eq!(scale, new(4.0, 0));
        assert_eq!((scale.of(Compute::F16), scale.of(Compute::Bf16)), (4.0, 1.0));

        assert!(scale.record_overflow());
        scale.record_finite();
        assert_eq!(scale, new(2.0, 1));

        let mut largest = new(LossScale::MAX_SCALE, 499);
        largest.record_finite();
        assert_eq!(largest.scale, LossScale::MAX_SCALE);
    }

    #[test]
    fn a_gradient_that_no_scale_makes_finite_halves_it_once() {
        let mut scale = new(8.0, 3);
        assert!(scale.record_overflow() && scale.record_overflow() && scale.record_overflow());
        assert_eq!(scale.scale, 1.0);
        assert!(!scale.record_overflow());
        assert_eq!(scale, new(4.0, 0));
    }
}
