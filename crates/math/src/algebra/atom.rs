//! Atoms of normal forms, and the properties known of each.

use num_bigint::BigUint;
use num_rational::{BigRational, Ratio};
use num_traits::{One, Signed};

use super::{
    integer,
    limits::AlgebraError,
    polynomial::{AtomId, Exponent, Monomial, Polynomial, RationalFunction},
};
use crate::{
    budget::Budget,
    expr::{Constant, Function},
};

/// A part that is not split any further.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Atom {
    /// The imaginary unit.
    I,
    Pi,
    /// Euler's number.
    E,
    /// A whole number above one, under a root or in an exponent too large to be computed.
    IntegerBase {
        base: BigUint,
        prime: bool,
    },
    Symbol(Box<str>),
    /// A base to an exponent that is not a number, by the principal branch. An exponent of the atom is a rational
    /// factor of that exponent.
    Power {
        base: Box<RationalFunction>,
        exponent: Box<RationalFunction>,
    },
    /// A radicand that is raised to fractions, by the principal branch. If `real` is true, fractions with odd
    /// denominators take the real branch instead. Exponents add in either case.
    Root {
        radicand: Polynomial,
        real: bool,
    },
    Call(Function, Vec<RationalFunction>),
    /// An unknown function.
    Apply(Box<str>, Vec<RationalFunction>),
}

/// An atom and the properties known of it.
pub(super) struct AtomProperties {
    pub(super) atom: Atom,
    /// True if the atom is a real number, whatever its variables are.
    pub(super) real: bool,
    /// True if the atom is a positive real number.
    pub(super) positive: bool,
    /// True if the atom is not zero, or zero only at exceptional values of its variables.
    pub(super) nonzero: bool,
    /// True if the atom is algebraically independent of all other such atoms (except π and e together), or if the
    /// rules of the normal form are all its relations to them: i and the roots of primes. A polynomial of such
    /// atoms that has terms is not zero.
    pub(super) free: bool,
    /// True if a variable occurs in the atom.
    pub(super) varies: bool,
}

/// Atoms of a comparison, and the arithmetic on quotients of polynomials in them.
pub(super) struct Algebra<'b> {
    pub(super) atoms: Vec<AtomProperties>,
    pub(super) budget: &'b mut Budget,
    /// True if a divisor might be zero in disguise.
    pub(super) uncertain: bool,
    /// Values of the indices of the enclosing sums and products.
    pub(super) scope: Vec<(Box<str>, BigRational)>,
}

impl<'b> Algebra<'b> {
    pub(super) fn new(budget: &'b mut Budget) -> Self {
        Algebra { atoms: vec![], budget, uncertain: false, scope: vec![] }
    }

    pub(super) fn atom(&self, id: AtomId) -> &Atom {
        &self.atoms[id as usize].atom
    }

    /// Returns the index of an atom, which is added if it is new.
    pub(super) fn intern(&mut self, atom: Atom) -> Result<AtomId, AlgebraError> {
        crate::parts::gate!(NormalForms, Err(AlgebraError::Opaque));
        self.budget.spend(8 + self.atoms.len() as u64 * weight(&atom))?;
        for id in 0..self.atoms.len() {
            if self.atoms[id].atom == atom || self.is_same_call(id, &atom)? {
                return Ok(id as AtomId);
            }
        }

        let known = self.describe(atom);
        self.atoms.push(known);
        Ok((self.atoms.len() - 1) as AtomId)
    }

    /// Tells whether an atom is the same function of equal arguments. A quotient has no unique normal form, so two of
    /// them are cross-multiplied.
    fn is_same_call(&mut self, id: usize, atom: &Atom) -> Result<bool, AlgebraError> {
        crate::parts::gate!(EqualCalls, Ok(false));
        let existing = &self.atoms[id].atom;
        let (left, right) = match (existing, atom) {
            (Atom::Call(f, left), Atom::Call(g, right)) if f == g => (left, right),
            (Atom::Apply(f, left), Atom::Apply(g, right)) if f == g => (left, right),
            _ => return Ok(false),
        };

        if left.len() != right.len() {
            return Ok(false);
        }

        // Only quotients with different denominators need arithmetic, and copies for it.
        let mut unresolved = vec![];
        for (left, right) in left.iter().zip(right) {
            if left.denom != right.denom {
                unresolved.push((left, right));
            } else if left.numer != right.numer {
                return Ok(false);
            }
        }

        if unresolved.is_empty() {
            return Ok(true);
        }
        self.budget.spend(weight(existing))?;
        let unresolved: Vec<_> =
            unresolved.into_iter().map(|(left, right)| (left.clone(), right)).collect();

        for (left, right) in unresolved {
            let (first, second) = self.cross_multiply(&left, right)?;
            if first != second {
                return Ok(false);
            }
        }

        Ok(true)
    }

    /// Builds a polynomial from an atom.
    pub(super) fn polynomial(
        &mut self,
        atom: Atom,
        exponent: Exponent,
    ) -> Result<Polynomial, AlgebraError> {
        let id = self.intern(atom)?;
        self.simplify_product(Monomial::of(id, exponent), BigRational::one())
    }

    pub(super) fn constant(&mut self, constant: Constant) -> Result<Polynomial, AlgebraError> {
        let atom = match constant {
            Constant::Pi => Atom::Pi,
            Constant::E => Atom::E,
            Constant::I => Atom::I,
            Constant::Infinity => return Err(AlgebraError::Opaque),
            Constant::NotANumber => return Err(AlgebraError::Undefined),
        };
        self.polynomial(atom, Ratio::one())
    }

    fn describe(&self, atom: Atom) -> AtomProperties {
        let pure = |fractions: &[RationalFunction]| {
            fractions.iter().all(|fraction| self.is_free(fraction))
        };
        let real = |fractions: &[RationalFunction]| {
            fractions.iter().all(|fraction| self.is_real(fraction))
        };

        let (real, positive, nonzero, free) = match &atom {
            Atom::I => (false, false, true, true),
            Atom::Pi | Atom::E => (true, true, true, true),
            Atom::IntegerBase { prime, .. } => (true, true, true, *prime),
            Atom::Symbol(_) => (true, false, true, true),
            Atom::Power { base, exponent } => {
                let positive = self.is_positive(base) && self.is_real(exponent);
                (positive, positive, self.is_surely_nonzero(&base.numer), false)
            }
            Atom::Root { radicand, real: odd } => {
                let real = *odd && radicand.atoms().all(|(id, _)| self.atoms[*id as usize].real);
                (real, false, self.is_surely_nonzero(radicand), false)
            }
            Atom::Call(function, arguments) => {
                let real = real(arguments) && is_real_function(*function)
                    || matches!(function, Function::Abs | Function::Re | Function::Im);
                let positive = self.is_positive_call(*function, arguments);
                // Waves such as the sine of a variable are zero at some points, but not everywhere.
                let wave = matches!(function, Function::Sin | Function::Cos)
                    && pure(arguments)
                    && arguments.iter().any(|fraction| self.varies(fraction));
                let nonzero = match function {
                    Function::Factorial => true,
                    Function::Abs => {
                        arguments.iter().all(|fraction| self.is_surely_nonzero(&fraction.numer))
                    }
                    _ => positive || wave,
                };
                (real || positive, positive, nonzero, false)
            }
            Atom::Apply(_, arguments) => (false, false, true, pure(arguments)),
        };

        let varies = match &atom {
            Atom::I | Atom::Pi | Atom::E | Atom::IntegerBase { .. } => false,
            Atom::Symbol(_) | Atom::Apply(..) => true,
            Atom::Power { base, exponent } => self.varies(base) || self.varies(exponent),
            Atom::Root { radicand, .. } => self.polynomial_varies(radicand),
            Atom::Call(_, arguments) => arguments.iter().any(|fraction| self.varies(fraction)),
        };

        AtomProperties { atom, real, positive, nonzero, free, varies }
    }

    /// Tells whether a call is known to be positive: the logarithm of π or of a number above one, or the sine of
    /// an angle between 0 and π.
    fn is_positive_call(&self, function: Function, arguments: &[RationalFunction]) -> bool {
        let [argument] = arguments else { return false };
        let term = argument.as_polynomial().and_then(Polynomial::as_term);

        match (function, term) {
            (Function::Ln, Some((monomial, one))) if one.is_one() => {
                matches!(monomial.0.as_slice(), [(id, power)] if power.is_one()
                    && matches!(self.atom(*id), Atom::Pi))
            }
            (Function::Ln, Some((monomial, number))) => {
                monomial.0.is_empty() && *number > BigRational::one()
            }
            (Function::Sin, Some((monomial, turns))) => {
                matches!(monomial.0.as_slice(), [(id, power)] if power.is_one()
                    && matches!(self.atom(*id), Atom::Pi))
                    && turns.is_positive()
                    && *turns < BigRational::one()
            }
            _ => false,
        }
    }

    pub(super) fn is_real(&self, fraction: &RationalFunction) -> bool {
        fraction.atoms().all(|(id, _)| self.atoms[*id as usize].real)
    }

    /// Tells whether the quotient is positive for all values of its variables but exceptional ones.
    pub(super) fn is_positive(&self, fraction: &RationalFunction) -> bool {
        self.is_positive_polynomial(&fraction.numer)
            && fraction.denom.as_ref().is_none_or(|denom| self.is_positive_polynomial(denom))
    }

    fn is_positive_polynomial(&self, polynomial: &Polynomial) -> bool {
        let positive = |id: AtomId| self.atoms[id as usize].positive;
        let even = |id: AtomId, power: &Exponent| {
            self.atoms[id as usize].real && power.is_integer() && power.to_integer() % 2 == 0
        };

        // No term is negative, and at least one of them is positive.
        let at_least_zero = polynomial.0.iter().all(|(monomial, coefficient)| {
            coefficient.is_positive()
                && monomial.0.iter().all(|(id, power)| positive(*id) || even(*id, power))
        });

        at_least_zero
            && polynomial
                .0
                .iter()
                .any(|(monomial, _)| monomial.0.iter().all(|(id, _)| positive(*id)))
    }

    /// Tells whether the quotient's atoms are all free. Two such quotients are equal only if their normal forms are.
    pub(super) fn is_free(&self, fraction: &RationalFunction) -> bool {
        let free = |(id, exponent): &(AtomId, Exponent)| {
            let known = &self.atoms[*id as usize];
            // An exponent of 1 or more remains only on powers too large to be computed.
            let computed =
                !matches!(known.atom, Atom::IntegerBase { .. }) || *exponent < Ratio::one();
            known.free && computed && *exponent >= -Ratio::from_integer(1 << 20)
        };

        let has = |atom: Atom| fraction.atoms().any(|(id, _)| *self.atom(*id) == atom);
        fraction.atoms().all(free) && !(has(Atom::Pi) && has(Atom::E))
    }

    /// Tells whether a polynomial that has terms is certain not to be zero.
    pub(super) fn is_surely_nonzero(&self, polynomial: &Polynomial) -> bool {
        match polynomial.as_term() {
            Some((monomial, _)) => {
                monomial.0.iter().all(|(id, _)| self.atoms[*id as usize].nonzero)
            }
            None => {
                let fraction = polynomial.clone().into();
                !polynomial.is_zero()
                    && (self.is_free(&fraction)
                        || self.is_positive_polynomial(polynomial)
                        || self.is_positive_polynomial(&polynomial.clone().negated()))
            }
        }
    }

    /// Tells whether a variable occurs.
    pub(super) fn varies(&self, fraction: &RationalFunction) -> bool {
        fraction.atoms().any(|(id, _)| self.atoms[*id as usize].varies)
    }

    fn polynomial_varies(&self, polynomial: &Polynomial) -> bool {
        polynomial.atoms().any(|(id, _)| self.atoms[*id as usize].varies)
    }

    /// Returns the period p and the polynomial f of an atom a with aᵖ = fᵖ. The atom of the root of f has the
    /// period 1, because √f² = f. The atom |f| has the period 2.
    pub(super) fn reducible(&self, id: AtomId) -> Option<(Exponent, Polynomial)> {
        match self.atom(id) {
            Atom::Root { radicand, .. } => Some((Ratio::one(), radicand.clone())),
            Atom::Call(Function::Abs, arguments) => match arguments.as_slice() {
                [argument] if self.is_real(argument) => {
                    let radicand = argument.as_polynomial()?;
                    Some((Ratio::from_integer(2), radicand.clone()))
                }
                _ => None,
            },
            _ => None,
        }
    }
}

fn is_real_function(function: Function) -> bool {
    use Function::*;
    matches!(
        function,
        Sin | Cos
            | Arctan
            | Arccot
            | Abs
            | Floor
            | Ceil
            | Factorial
            | DoubleFactorial
            | Mod
            | Gcd
            | Lcm
            | Min
            | Max
            | Re
            | Im
            | Conjugate
    )
}

/// Estimates the cost of comparing an atom with another.
fn weight(atom: &Atom) -> u64 {
    let of_polynomial = |polynomial: &Polynomial| {
        let limbs = |(monomial, number): &(Monomial, BigRational)| {
            1 + monomial.0.len() as u64 + integer::bits(number) / 64
        };
        polynomial.0.iter().map(limbs).sum::<u64>()
    };
    let of_fraction = |fraction: &RationalFunction| {
        of_polynomial(&fraction.numer) + fraction.denom.as_ref().map_or(0, of_polynomial)
    };

    1 + match atom {
        Atom::Power { base, exponent } => of_fraction(base) + of_fraction(exponent),
        Atom::Root { radicand, .. } => of_polynomial(radicand),
        Atom::Call(_, arguments) | Atom::Apply(_, arguments) => {
            arguments.iter().map(of_fraction).sum()
        }
        Atom::IntegerBase { base, .. } => base.bits() / 64,
        Atom::Symbol(name) => name.len() as u64 / 8,
        Atom::I | Atom::Pi | Atom::E => 0,
    }
}
