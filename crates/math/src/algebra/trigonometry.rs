//! Sines, cosines and their hyperbolic counterparts.

use num_rational::{BigRational, Ratio};
use num_traits::One;

use super::{
    atom::{Algebra, Atom},
    exact::Value,
    limits::AlgebraError,
    polynomial::{self, Exponent, Polynomial, RationalFunction},
};
use crate::expr::{Constant, Function};

impl Algebra<'_> {
    pub(super) fn sine(
        &mut self,
        angle: RationalFunction,
    ) -> Result<RationalFunction, AlgebraError> {
        crate::parts::gate!(Trigonometry, self.opaque(Function::Sin, vec![angle]));
        if let Some(turns) = self.turns(&angle) {
            return Ok(self.sine_of(polynomial::exponent(&turns)?)?.into());
        }

        if angle.numer.is_zero() {
            return Ok(angle);
        }

        // The sine is odd, so only angles with one sign need an atom.
        let (angle, negative) = self.signed(angle);
        let sine = self.opaque(Function::Sin, vec![angle])?;
        Ok(if negative { sine.negated() } else { sine })
    }

    pub(super) fn cosine(
        &mut self,
        angle: RationalFunction,
    ) -> Result<RationalFunction, AlgebraError> {
        crate::parts::gate!(Trigonometry, self.opaque(Function::Cos, vec![angle]));
        if let Some(turns) = self.turns(&angle) {
            let turns = polynomial::exponent(&turns)?;
            return Ok(self.sine_of(turns + Ratio::new(1, 2))?.into());
        }

        if angle.numer.is_zero() {
            return Ok(BigRational::one().into());
        }

        // The cosine is even.
        let (angle, _) = self.signed(angle);
        self.opaque(Function::Cos, vec![angle])
    }

    /// Returns the c of an angle c·π.
    fn turns(&self, angle: &RationalFunction) -> Option<BigRational> {
        let (monomial, coefficient) = angle.as_polynomial()?.as_term()?;
        match monomial.0.as_slice() {
            [(id, power)] if power.is_one() && *self.atom(*id) == Atom::Pi => {
                Some(coefficient.clone())
            }
            _ => None,
        }
    }

    /// Computes sin(turns·π), with the angle brought into the first quadrant.
    fn sine_of(&mut self, turns: Exponent) -> Result<Polynomial, AlgebraError> {
        if let Some(sine) = self.sine_of_turns(turns)? {
            return Ok(sine);
        }

        let (angle, negative) = first_quadrant(turns);
        let angle = BigRational::new((*angle.numer()).into(), (*angle.denom()).into());
        let pi = self.constant(Constant::Pi)?;
        let angle = self.scale(&pi, &angle)?;
        let sine = self.polynomial(Atom::Call(Function::Sin, vec![angle.into()]), Ratio::one())?;

        Ok(if negative { sine.negated() } else { sine })
    }

    /// Computes sin(turns·π) if it is made of square roots of whole numbers.
    pub(super) fn sine_of_turns(
        &mut self,
        turns: Exponent,
    ) -> Result<Option<Polynomial>, AlgebraError> {
        crate::parts::gate!(SineValues, Ok(None));
        crate::parts::gate!(Trigonometry, Ok(None));
        let (angle, negative) = first_quadrant(turns);

        // Each summand is c/4 times the root of a whole number.
        let summands: &[(i64, i64)] = match (*angle.numer(), *angle.denom()) {
            (0, 1) => &[],
            (1, 6) => &[(2, 1)],
            (1, 4) => &[(2, 2)],
            (1, 3) => &[(2, 3)],
            (1, 2) => &[(4, 1)],
            (1, 12) => &[(1, 6), (-1, 2)],
            (5, 12) => &[(1, 6), (1, 2)],
            (1, 10) => &[(1, 5), (-1, 1)],
            (3, 10) => &[(1, 5), (1, 1)],
            _ => return Ok(None),
        };

        let mut sine = Polynomial::default();
        for (factor, radicand) in summands {
            let radicand = Value::Number(BigRational::from_integer((*radicand).into()));
            let half = Value::Number(BigRational::new(1.into(), 2.into()));
            let root = self.raise(radicand, half)?.into_fraction()?;
            let root = self.scale(&root.numer, &BigRational::new((*factor).into(), 4.into()))?;
            sine = self.add_polynomials(&sine, &root)?;
        }

        Ok(Some(if negative { sine.negated() } else { sine }))
    }

    pub(super) fn hyperbolic(
        &mut self,
        function: Function,
        argument: &RationalFunction,
    ) -> Result<RationalFunction, AlgebraError> {
        crate::parts::gate!(Hyperbolic, Err(AlgebraError::Opaque));
        crate::parts::gate!(Trigonometry, Err(AlgebraError::Opaque));
        // sinh x = (eˣ - e⁻ˣ)/2, cosh x = (eˣ + e⁻ˣ)/2, and tanh x is their quotient, without the halves.
        let e: RationalFunction = self.constant(Constant::E)?.into();
        let rising = self.symbolic(&e, argument)?;
        let falling = self.symbolic(&e, &argument.clone().negated())?;
        let sum = self.add(&rising, &falling)?;
        let difference = self.add(&rising, &falling.negated())?;
        let half = BigRational::new(1.into(), 2.into()).into();

        match function {
            Function::Sinh => self.multiply(&difference, &half),
            Function::Cosh => self.multiply(&sum, &half),
            _ => {
                let inverse = self.inverse(&sum)?;
                self.multiply(&difference, &inverse)
            }
        }
    }
}

/// Returns an angle between 0 and 1/2 with the same or the opposite sine, and whether the sine is the opposite.
/// Angles are multiples of π.
fn first_quadrant(turns: Exponent) -> (Exponent, bool) {
    let half = Ratio::new(1, 2);

    // Full turns drop out, and sin(x + π) = -sin(x).
    let turns = turns - (turns / 2).floor() * 2;
    let negative = turns >= Ratio::one();
    let turns = if negative { turns - 1 } else { turns };

    // sin(π - x) = sin(x).
    (if turns > half { Ratio::one() - turns } else { turns }, negative)
}
