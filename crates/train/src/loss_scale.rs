//! The factor that keeps the gradients of losses in f16 from vanishing.

use firebrick_models::Compute;
use serde::{Deserialize, Serialize};

/// The factor of losses for products in f16, whose smallest number is 6 · 10⁻⁸. It is halved when a gradient
/// is not finite, and the gradient is made again. It is doubled after many finite gradients (Micikevicius et
/// al. 2018).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossScale {
    /// The factor: a power of two, at least 1.
    pub scale: f64,
    /// The number of finite gradients since the factor changed.
    pub good: u32,
    /// The factor before it was halved for a gradient that is being made again.
    #[serde(default)]
    pub before: Option<f64>,
}

impl Default for LossScale {
    fn default() -> Self {
        LossScale { scale: 65536.0, good: 0, before: None }
    }
}

impl LossScale {
    const LARGEST: f64 = 16_777_216.0;
    const GOOD: u32 = 500;

    /// Gives the factor of the loss for a policy with products in this format.
    pub fn of(&self, compute: Compute) -> f64 {
        if compute == Compute::F16 { self.scale } else { 1.0 }
    }

    /// Notes a gradient that was finite.
    pub(crate) fn fits(&mut self) {
        (self.good, self.before) = (self.good + 1, None);
        if self.good == Self::GOOD {
            *self = LossScale { scale: (2.0 * self.scale).min(Self::LARGEST), ..Self::default() };
        }
    }

    /// Notes a gradient that was not finite, and tells whether a smaller scale is left to try. If no scale
    /// helped, the scale was not at fault: it becomes half of its value before.
    pub(crate) fn overflows(&mut self) -> bool {
        let before = self.before.unwrap_or(self.scale);
        let more = self.scale > 1.0;
        *self = match more {
            true => LossScale { scale: self.scale / 2.0, good: 0, before: Some(before) },
            false => LossScale { scale: (before / 2.0).max(1.0), good: 0, before: None },
        };
        more
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
        scale.fits();
        assert_eq!(scale, new(4.0, 0));
        assert_eq!((scale.of(Compute::F16), scale.of(Compute::Bf16)), (4.0, 1.0));
        assert!(scale.overflows());
        scale.fits();
        assert_eq!(scale, new(2.0, 1));
        let mut largest = new(LossScale::LARGEST, 499);
        largest.fits();
        assert_eq!(largest.scale, LossScale::LARGEST);
    }

    #[test]
    fn a_gradient_that_no_scale_makes_finite_halves_it_once() {
        let mut scale = new(8.0, 3);
        assert!(scale.overflows() && scale.overflows() && scale.overflows());
        assert_eq!(scale.scale, 1.0);
        assert!(!scale.overflows());
        assert_eq!(scale, new(4.0, 0));
    }
}
