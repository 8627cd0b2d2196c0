use std::fmt;

use burn::tensor::FloatDType;
use serde::Serialize;

/// A format of floating-point numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// 24 bits of significand.
    F32,
    /// 11 bits.
    F16,
    /// 8 bits, with the range of `F32`.
    Bf16,
}

impl Precision {
    /// All of them.
    pub const ALL: [Precision; 3] = [Precision::F32, Precision::F16, Precision::Bf16];

    /// As burn names it.
    pub fn dtype(self) -> FloatDType {
        match self {
            Precision::F32 => FloatDType::F32,
            Precision::F16 => FloatDType::F16,
            Precision::Bf16 => FloatDType::BF16,
        }
    }

    /// The distance from 1 to the next number.
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

/// How far a device may be from the CPU, in units of the format's epsilon times the largest entry of
/// the CPU's array: sums that cancel have no relative error of their own.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Tolerance {
    /// What the bound is for.
    pub name: &'static str,
    /// Epsilons where all arithmetic is f32: rounding errors of a sum grow with its length.
    f32: f64,
    /// Epsilons of a narrower format. On GPUs burn sums in f32 there too, so that its own rounding is only
    /// that of what goes in and comes out.
    narrow: f64,
    /// Whether matrix products are part of it, which some devices compute in TF32.
    products: bool,
}

impl Tolerance {
    /// Whole numbers, copies, comparisons: to the bit.
    pub const EXACT: Tolerance = Tolerance::new("exact", 0.0, 0.0, false);
    /// One rounding or a few, exponentials included: GPUs' are good to some units in the last place.
    pub const ELEMENTWISE: Tolerance = Tolerance::new("elementwise", 32.0, 2.0, false);
    /// Sums of hundreds of terms, in another order.
    pub const SUM: Tolerance = Tolerance::new("sum", 64.0, 4.0, false);
    /// Matrix products.
    pub const PRODUCT: Tolerance = Tolerance::new("product", 64.0, 4.0, true);
    /// A network's forward pass.
    pub const FORWARD: Tolerance = Tolerance::new("forward", 256.0, 16.0, true);
    /// Its backward pass.
    pub const BACKWARD: Tolerance = Tolerance::new("backward", 1024.0, 64.0, true);
    /// How far weights move in some optimizer steps: Adam divides small gradients by their own size, which
    /// makes their rounding errors large. 2.6e-3 was seen on llvmpipe.
    pub const STEPS: Tolerance = Tolerance::new("steps", 65536.0, 256.0, true);

    const fn new(name: &'static str, f32: f64, narrow: f64, products: bool) -> Self {
        Tolerance { name, f32, narrow, products }
    }

    /// The bound relative to the largest entry; `tf32` for a device that rounds the factors of an
    /// f32 matrix product to TF32.
    pub fn relative(self, precision: Precision, tf32: bool) -> f64 {
        match precision {
            Precision::F32 if tf32 && self.products => self.narrow * TF32_EPSILON,
            Precision::F32 => self.f32 * precision.epsilon(),
            Precision::F16 | Precision::Bf16 => self.narrow * precision.epsilon(),
        }
    }
}

/// TF32 has the 11 bits of significand of f16, and the range of f32.
const TF32_EPSILON: f64 = 1.0 / 1024.0;
