//! Quotients of generalised polynomials: the exact normal form of expressions.
//!
//! A monomial is a product of atoms with rational exponents. These may be negative, so only a denominator of
//! several terms has to be kept apart.

use num_rational::{BigRational, Ratio};
use num_traits::{One, ToPrimitive, Zero};

use super::limits::AlgebraError;

/// Index of an atom in [`Algebra`](super::atom::Algebra).
pub(super) type AtomId = u32;

/// An atom's exponent.
pub(super) type Exponent = Ratio<i64>;

/// Atoms with their exponents, in the order of the atoms. No exponent is zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Monomial(pub(super) Vec<(AtomId, Exponent)>);

/// Monomials with their coefficients, in the order of the monomials. No coefficient is zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Polynomial(pub(super) Vec<(Monomial, BigRational)>);

/// A quotient of polynomials. A missing denominator means one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RationalFunction {
    pub(super) numer: Polynomial,
    pub(super) denom: Option<Polynomial>,
}

impl Monomial {
    pub(super) fn of(atom: AtomId, exponent: Exponent) -> Self {
        Monomial(if exponent.is_zero() { vec![] } else { vec![(atom, exponent)] })
    }
}

impl Polynomial {
    pub(super) fn constant(number: BigRational) -> Self {
        Polynomial::term(Monomial::default(), number)
    }

    pub(super) fn term(monomial: Monomial, coefficient: BigRational) -> Self {
        Polynomial(if coefficient.is_zero() { vec![] } else { vec![(monomial, coefficient)] })
    }

    pub(super) fn one() -> Self {
        Polynomial::constant(BigRational::one())
    }

    pub(super) fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value of a polynomial without atoms.
    pub(super) fn as_number(&self) -> Option<BigRational> {
        match self.0.as_slice() {
            [] => Some(BigRational::zero()),
            [(monomial, number)] if monomial.0.is_empty() => Some(number.clone()),
            _ => None,
        }
    }

    pub(super) fn as_term(&self) -> Option<&(Monomial, BigRational)> {
        match self.0.as_slice() {
            [term] => Some(term),
            _ => None,
        }
    }

    pub(super) fn negated(mut self) -> Self {
        for (_, coefficient) in &mut self.0 {
            *coefficient = -std::mem::take(coefficient);
        }
        self
    }

    pub(super) fn atoms(&self) -> impl Iterator<Item = &(AtomId, Exponent)> {
        self.0.iter().flat_map(|(monomial, _)| &monomial.0)
    }
}

impl From<Polynomial> for RationalFunction {
    fn from(numer: Polynomial) -> Self {
        RationalFunction { numer, denom: None }
    }
}

impl From<BigRational> for RationalFunction {
    fn from(number: BigRational) -> Self {
        Polynomial::constant(number).into()
    }
}

impl RationalFunction {
    pub(super) fn as_number(&self) -> Option<BigRational> {
        if self.denom.is_none() { self.numer.as_number() } else { None }
    }

    pub(super) fn as_polynomial(&self) -> Option<&Polynomial> {
        self.denom.is_none().then_some(&self.numer)
    }

    pub(super) fn negated(self) -> Self {
        RationalFunction { numer: self.numer.negated(), denom: self.denom }
    }

    pub(super) fn atoms(&self) -> impl Iterator<Item = &(AtomId, Exponent)> {
        self.numer.atoms().chain(self.denom.iter().flat_map(Polynomial::atoms))
    }
}

/// Multiplies two exponents.
pub(super) fn times(left: Exponent, right: Exponent) -> Result<Exponent, AlgebraError> {
    use num_traits::CheckedMul;
    bounded(left.checked_mul(&right))
}

/// Checks that an exponent is well below the range of its type, so that the sum of two cannot overflow.
fn bounded(exponent: Option<Exponent>) -> Result<Exponent, AlgebraError> {
    const BOUND: u64 = 1 << 40;
    exponent
        .filter(|e| e.numer().unsigned_abs() < BOUND && e.denom().unsigned_abs() < 1 << 20)
        .ok_or(AlgebraError::TooLarge)
}

pub(super) fn exponent(number: &BigRational) -> Result<Exponent, AlgebraError> {
    match (number.numer().to_i64(), number.denom().to_i64()) {
        (Some(numer), Some(denom)) => bounded(Some(Ratio::new_raw(numer, denom))),
        _ => Err(AlgebraError::TooLarge),
    }
}

/// Multiplies two monomials without applying the rules of their atoms.
pub(super) fn merge(left: &Monomial, right: &Monomial) -> Result<Monomial, AlgebraError> {
    use num_traits::CheckedAdd;
    let mut merged = Vec::with_capacity(left.0.len() + right.0.len());
    let mut first = left.0.iter().peekable();
    let mut second = right.0.iter().peekable();

    // Both lists are in the order of the atoms, so the lower atom comes next.
    loop {
        let order = match (first.peek(), second.peek()) {
            (Some(a), Some(b)) => a.0.cmp(&b.0),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => return Ok(Monomial(merged)),
        };

        if order.is_lt() {
            merged.extend(first.next().copied());
        } else if order.is_gt() {
            merged.extend(second.next().copied());
        } else if let (Some((atom, a)), Some((_, b))) = (first.next(), second.next()) {
            let sum = bounded(a.checked_add(b))?;
            if !sum.is_zero() {
                merged.push((*atom, sum));
            }
        }
    }
}
