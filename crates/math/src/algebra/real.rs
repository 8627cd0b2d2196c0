//! The trait `Real`, which intervals and balls share, and the costs of its operations.

use std::cmp::Ordering;

use num_bigint::BigInt;

/// A set of reals that encloses one real number. The set is all that is known of that number.
///
/// Every operation encloses the results of all members. `p` is the precision in bits that the result should have,
/// if the implementation has a choice.
pub(crate) trait Real: Clone {
    fn integer(n: i64) -> Self;
    /// Makes a fraction. The denominator is positive.
    fn ratio(numer: &BigInt, denom: &BigInt, p: u32) -> Self;
    fn pi(p: u32) -> Self;
    fn neg(self) -> Self;
    fn add(&self, other: &Self, p: u32) -> Self;
    fn mul(&self, other: &Self, p: u32) -> Self;
    /// Divides. Returns `None` if the divisor may be zero.
    fn div(&self, other: &Self, p: u32) -> Option<Self>;
    /// Computes the square root of all members that are not negative.
    fn sqrt(&self, p: u32) -> Self;
    /// Computes the root of all members that are not negative. The degree is at least 2.
    fn root(&self, degree: u32, p: u32) -> Self;
    fn exp(&self, p: u32) -> Self;
    /// Computes the natural logarithm. Returns `None` unless all members are positive.
    fn ln(&self, p: u32) -> Option<Self>;
    fn sin_cos(&self, p: u32) -> (Self, Self);
    fn sinh(&self, p: u32) -> Self;
    /// Computes the angle of the vector (x, y) in (-π, π]. Returns `None` if the vector may be zero, or if the
    /// vectors lie on both sides of the negative real axis.
    fn angle(y: &Self, x: &Self, p: u32) -> Option<Self>;
    /// Compares all members with zero. The result is `Equal` if zero is the only member.
    fn sign(&self) -> Option<Ordering>;
    fn abs(&self, p: u32) -> Self;
    /// Encloses all members of both sets and everything in between.
    fn hull(&self, other: &Self, p: u32) -> Self;
    /// Encloses everything that is no greater in size than some member.
    fn around_zero(&self, p: u32) -> Self;
    /// Returns the greatest integer below, if it is the same for all members and not astronomical.
    fn floor(&self) -> Option<BigInt>;
    /// Returns the only member, if there is only one, it is an integer, and it is not astronomical.
    fn whole(&self) -> Option<BigInt>;
    /// Returns a bound on the binary logarithm of the members' sizes.
    fn log2(&self) -> i64;
    fn cost(p: u32) -> Cost;
}

/// The prices of operations, in units of the budget.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// The price of a sum, product or quotient.
    pub(crate) operation: u64,
    /// The price of a square root.
    pub(crate) root: u64,
    /// The price of an exponential, a logarithm, a sine or an angle.
    pub(crate) elementary: u64,
}
