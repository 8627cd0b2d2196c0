//! Number formats of the suite, and the allowed distance between a device and the CPU.

use std::fmt;

use burn::tensor::FloatDType;
use serde::Serialize;

/// A format of floating-point numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// 24 bits of significand.
    F32,
    /// 11 bits of significand.
    F16,
    /// 8 bits of significand, with the range of `F32`.
    Bf16,
}

impl Precision {
    /// All formats.
    pub const ALL: [Precision; 3] = [Precision::F32, Precision::F16, Precision::Bf16];

    /// Returns burn's name of the format.
    pub fn dtype(self) -> FloatDType {
        match self {
            Precision::F32 => FloatDType::F32,
            Precision::F16 => FloatDType::F16,
            Precision::Bf16 => FloatDType::BF16,
        }
    }

    /// Returns the distance from 1 to the next number.
    pub fn epsilon(self) -> f64 {
        match self {
            Precision::F32 => 2f64.powi(-23),
            Precision::F16 => 2f64.powi(-10),
            Precision::Bf16 => 2f64.powi(-7),
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Precision::F32 => "f32",
            Precision::F16 => "f16",
            Precision::Bf16 => "bf16",
        })
    }
}

/// Largest allowed distance between a device's numbers and the right ones. Its unit is an epsilon times the largest
/// entry of the right array, because sums that cancel have no bounded relative error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Tolerance {
    /// Name of the bound.
    pub name: &'static str,
    /// Bound in epsilons of f32 if all arithmetic is f32. Rounding errors of a sum grow with its length.
    f32: f64,
    /// Bound in epsilons of a narrower format. On GPUs, burn sums in f32 there too, so the format rounds only inputs
    /// and outputs. `None` if it rounds neither; the bound of f32 then holds.
    narrow: Option<f64>,
}

impl Tolerance {
    /// Integers, copies and comparisons must be equal to the bit.
    pub const EXACT: Tolerance = Tolerance::new("exact", 0.0, 0.0);
    /// For one rounding or a few, exponentials included. GPUs' exponentials are good to some units in the last place.
    pub const ELEMENTWISE: Tolerance = Tolerance::new("elementwise", 32.0, 2.0);
    /// For sums of hundreds of terms, in another order.
    pub const SUM: Tolerance = Tolerance::new("sum", 64.0, 4.0);
    /// For matmuls.
    pub const PRODUCT: Tolerance = Tolerance::new("product", 64.0, 4.0);
    /// For a network's forward pass.
    pub const FORWARD: Tolerance = Tolerance::new("forward", 256.0, 16.0);
    /// For a network's backward pass.
    pub const BACKWARD: Tolerance = Tolerance::new("backward", 1024.0, 64.0);
    /// For the distance that weights move in some optimizer steps. Adam divides small gradients by their own size,
    /// which makes their rounding errors large. 2.6e-3 was seen on llvmpipe.
    pub const STEPS: Tolerance = Tolerance::new("steps", 65536.0, 256.0);
    /// For sums of up to some ten thousand products into f32, of factors that their format holds exactly. Only the sum
    /// is rounded. If each of K / 16 additions cuts off a unit in the last place, as matrix units may, a sum of K =
    /// 12,288 products of random signs is off by some 150 epsilons of the largest.
    pub const LONG_SUM: Tolerance = Tolerance { name: "long sum", f32: 1024.0, narrow: None };
    /// For numbers that a narrow format rounds once, before or after sums in f32: half an epsilon, and a margin for
    /// intermediate rounding. In bf16, it is just below a hundredth.
    pub const ROUNDED: Tolerance = Tolerance::new("rounded", 256.0, 1.25);

    const fn new(name: &'static str, f32: f64, narrow: f64) -> Self {
        Tolerance { name, f32, narrow: Some(narrow) }
    }

    /// Returns the bound relative to the largest entry.
    pub fn relative(self, precision: Precision) -> f64 {
        match (precision, self.narrow) {
            (Precision::F16 | Precision::Bf16, Some(epsilons)) => epsilons * precision.epsilon(),
            _ => self.f32 * Precision::F32.epsilon(),
        }
    }
}
