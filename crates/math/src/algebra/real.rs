//! What intervals and balls share: the trait `Real`, and the costs of its operations.

use std::cmp::Ordering;

use num_bigint::BigInt;

/// A set of reals that encloses one real number, of which nothing more is known.
///
/// Every operation encloses the results of all members. `prec` is the precision in bits that the result should have,
/// if the implementation has a choice.
pub(crate) trait Real: Clone {
    fn integer(n: i64) -> Self;
    /// Builds a fraction. The denominator has to be positive.
    fn ratio(numer: &BigInt, denom: &BigInt, prec: u32) -> Self;
    fn pi(prec: u32) -> Self;
    fn neg(self) -> Self;
    fn add(&self, other: &Self, prec: u32) -> Self;
    fn mul(&self, other: &Self, prec: u32) -> Self;
    /// Divides. Returns `None` if the divisor may be zero.
    fn div(&self, other: &Self, prec: u32) -> Option<Self>;
    /// Computes the square root of all members that are not negative.
    fn sqrt(&self, prec: u32) -> Self;
    /// Computes the root of all members that are not negative. The degree is at least 2.
    fn root(&self, degree: u32, prec: u32) -> Self;
    fn exp(&self, prec: u32) -> Self;
    /// Computes the natural logarithm. Returns `None` unless all members are positive.
    fn ln(&self, prec: u32) -> Option<Self>;
    fn sin_cos(&self, prec: u32) -> (Self, Self);
    fn sinh(&self, prec: u32) -> Self;
    /// Computes the angle of the vector (x, y) in (-π, π]. Returns `None` if the vector may be zero, or if the
    /// vectors lie on both sides of the negative real axis.
    fn angle(y: &Self, x: &Self, prec: u32) -> Option<Self>;
    /// Compares all members with zero. The result is `Equal` if zero is the only member.
    fn sign(&self) -> Option<Ordering>;
    fn abs(&self, prec: u32) -> Self;
    /// Encloses all members of both sets and everything in between.
    fn hull(&self, other: &Self, prec: u32) -> Self;
    /// Encloses everything that is at most as large in absolute value as some member.
    fn around_zero(&self, prec: u32) -> Self;
    /// Returns the greatest integer below, if it is the same for all members and not astronomical.
    fn floor(&self) -> Option<BigInt>;
    /// Returns the only member, if there is only one, it is an integer, and it is not astronomical.
    fn whole(&self) -> Option<BigInt>;
    /// Returns a bound on the binary logarithm of the members' sizes.
    fn log2(&self) -> i64;
    fn cost(prec: u32) -> Cost;
}

/// Prices of operations, in units of the budget.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// Price of a sum, product or quotient.
    pub(crate) operation: u64,
    /// Price of a square root.
    pub(crate) root: u64,
    /// Price of an exponential, a logarithm, a sine or an angle.
    pub(crate) elementary: u64,
}
