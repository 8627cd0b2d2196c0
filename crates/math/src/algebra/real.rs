use std::cmp::Ordering;

use num_bigint::BigInt;

/// A set of reals that encloses one real number, of which it is all that is known.
///
/// Every operation encloses the results of all members; `p` is the precision in bits that the result
/// should have, where the implementation has a choice.
pub(crate) trait Real: Clone {
    fn integer(n: i64) -> Self;
    /// The denominator is positive.
    fn ratio(numer: &BigInt, denom: &BigInt, p: u32) -> Self;
    fn pi(p: u32) -> Self;
    fn neg(self) -> Self;
    fn add(&self, other: &Self, p: u32) -> Self;
    fn mul(&self, other: &Self, p: u32) -> Self;
    /// None if the divisor may be zero.
    fn div(&self, other: &Self, p: u32) -> Option<Self>;
    /// The square root of all members that are not negative.
    fn sqrt(&self, p: u32) -> Self;
    /// The root of all members that are not negative; the degree is at least 2.
    fn root(&self, degree: u32, p: u32) -> Self;
    fn exp(&self, p: u32) -> Self;
    /// None unless all members are positive.
    fn ln(&self, p: u32) -> Option<Self>;
    fn sin_cos(&self, p: u32) -> (Self, Self);
    fn sinh(&self, p: u32) -> Self;
    /// The angle of the vector (x, y) in (-π, π]. None if it may be the zero vector, or if the vectors
    /// lie on both sides of the negative real axis.
    fn angle(y: &Self, x: &Self, p: u32) -> Option<Self>;
    /// How all members compare with zero: `Equal` if zero is the only one.
    fn sign(&self) -> Option<Ordering>;
    fn abs(&self, p: u32) -> Self;
    /// All members of both and everything in between.
    fn hull(&self, other: &Self, p: u32) -> Self;
    /// Everything that is no greater in size than some member.
    fn around_zero(&self, p: u32) -> Self;
    /// The greatest integer below, if it is the same for all members and not astronomical.
    fn floor(&self) -> Option<BigInt>;
    /// The only member, if there is only one and it is an integer and not astronomical.
    fn whole(&self) -> Option<BigInt>;
    /// A bound on the binary logarithm of the members' sizes.
    fn log2(&self) -> i64;
    fn cost(p: u32) -> Cost;
}

/// What is asked of the budget.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// A sum, product or quotient.
    pub(crate) operation: u64,
    /// A square root.
    pub(crate) root: u64,
    /// An exponential, a logarithm, a sine, an angle.
    pub(crate) elementary: u64,
}
