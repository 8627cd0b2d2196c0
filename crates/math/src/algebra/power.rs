//! Powers and roots of exact values.

use num_bigint::BigUint;
use num_integer::Integer;
use num_rational::{BigRational, Ratio};
use num_traits::{One, Signed, ToPrimitive, Zero};

use super::{
    atom::{Algebra, Atom},
    exact::Value,
    integer,
    limits::AlgebraError,
    polynomial::{self, AtomId, Exponent, Monomial, Polynomial, RationalFunction},
};
use crate::expr::{Constant, Function};

impl Algebra<'_> {
    pub(super) fn raise(&mut self, base: Value, exponent: Value) -> Result<Value, AlgebraError> {
        match (base, exponent) {
            (Value::Infinity { positive }, exponent) => match (positive, exponent) {
                (_, Value::Number(zero)) if zero.is_zero() => Err(AlgebraError::Undefined),
                (_, Value::Number(n)) if n.is_negative() => Ok(BigRational::zero().into()),
                (true, Value::Number(_)) => Ok(Value::Infinity { positive: true }),
                (false, Value::Number(n)) if n.is_integer() => {
                    Ok(Value::Infinity { positive: n.numer().is_even() })
                }
                _ => Err(AlgebraError::Opaque),
            },

            (base, Value::Infinity { positive }) => self.to_infinity(&base, positive),

            (Value::Number(base), Value::Number(exponent)) => {
                if exponent.is_integer() {
                    // Only 0, 1 and −1 allow exponents out of range, of which only sign and parity matter.
                    let small = exponent.numer().to_i64().unwrap_or_else(|| {
                        let odd = i64::from(exponent.numer().is_odd());
                        let size = i64::MAX - 1 + odd;
                        if exponent.is_negative() { -size } else { size }
                    });
                    match integer::power(&base, small, self.budget) {
                        // A power too large to be computed becomes a product of atoms.
                        Err(AlgebraError::TooLarge) if base.is_positive() => {}
                        power => return Ok(power?.into()),
                    }
                }

                if base.is_zero() {
                    return if exponent.is_positive() {
                        Ok(base.into())
                    } else {
                        Err(AlgebraError::Undefined)
                    };
                }

                let exponent = polynomial::exponent(&exponent)?;
                Ok(self.number_to(&base, exponent)?.into())
            }

            (base, Value::Number(exponent)) => {
                let base = base.into_fraction()?;
                let exponent = polynomial::exponent(&exponent)?;
                if exponent.is_integer() {
                    return Ok(self.power(&base, exponent.to_integer())?.into());
                }
                Ok(self.fraction_to(&base, exponent)?.into())
            }

            (base, Value::Fraction(exponent)) => {
                let base = base.into_fraction()?;
                if base.numer.is_zero() {
                    return Err(AlgebraError::Opaque);
                }
                Ok(self.symbolic(&base, &exponent)?.into())
            }
        }
    }

    /// Raises a number other than zero to a fraction, or to a whole number that is too large to compute.
    fn number_to(
        &mut self,
        base: &BigRational,
        exponent: Exponent,
    ) -> Result<RationalFunction, AlgebraError> {
        crate::parts::gate!(NumberRoots, Err(AlgebraError::Opaque));
        let mut power = Polynomial::one();
        for factor in integer::factors(base, self.budget)? {
            // Each prime factor is an atom, so that equal powers meet.
            let atom = Atom::IntegerBase { base: factor.base, prime: factor.prime };
            let exponent = polynomial::times(exponent, Ratio::from_integer(factor.exponent))?;
            let factor = self.polynomial(atom, exponent)?;
            power = self.multiply_polynomials(&power, &factor)?;
        }

        if base.is_negative() {
            let sign = self.minus_one_to(exponent)?;
            return self.multiply(&power.into(), &sign);
        }
        Ok(power.into())
    }

    /// Computes (−1)^exponent. An odd denominator takes the real branch, an even one the principal branch.
    fn minus_one_to(&mut self, exponent: Exponent) -> Result<RationalFunction, AlgebraError> {
        if exponent.denom().is_odd() {
            let sign =
                if exponent.numer().is_odd() { -BigRational::one() } else { BigRational::one() };
            return Ok(sign.into());
        }
        self.root_of_unity(exponent)
    }

    /// Computes e^(iπ·turns).
    pub(super) fn root_of_unity(
        &mut self,
        turns: Exponent,
    ) -> Result<RationalFunction, AlgebraError> {
        crate::parts::gate!(RootsOfUnity, Err(AlgebraError::Opaque));
        // A full turn, e^(2πi), is a factor of 1.
        let turns = turns - (turns / 2).floor() * 2;
        let quarter = Ratio::new(1, 2);

        if let (Some(cosine), Some(sine)) =
            (self.sine_of_turns(turns + quarter)?, self.sine_of_turns(turns)?)
        {
            let i = self.constant(Constant::I)?;
            let imaginary = self.multiply_polynomials(&i, &sine)?;
            return Ok(self.add_polynomials(&cosine, &imaginary)?.into());
        }

        let i = self.constant(Constant::I)?;
        let pi = self.constant(Constant::Pi)?;
        let angle = self.multiply_polynomials(&i, &pi)?;
        let base = self.constant(Constant::E)?.into();
        let atom = Atom::Power { base: Box::new(base), exponent: Box::new(angle.into()) };

        // A half turn is a factor of −1.
        let turned = turns - turns.floor();
        let sign = if turns.floor().is_zero() { BigRational::one() } else { -BigRational::one() };
        let power = self.polynomial(atom, turned)?;
        Ok(self.scale(&power, &sign)?.into())
    }

    /// Raises a quotient that is not a number to a fractional power.
    fn fraction_to(
        &mut self,
        base: &RationalFunction,
        exponent: Exponent,
    ) -> Result<RationalFunction, AlgebraError> {
        crate::parts::gate!(SymbolRoots, Err(AlgebraError::Opaque));
        let odd = exponent.denom().is_odd();

        if let Some(denom) = &base.denom {
            // For real numbers, √(n/d) = √(n·d)/|d|.
            if !self.is_real(base) || *exponent.denom() > 6 {
                return self.opaque_power(base, exponent);
            }
            let denom = RationalFunction::from(denom.clone());
            let cleared = self.power(&denom, exponent.denom() - 1)?;
            let radicand = self.multiply(&base.numer.clone().into(), &cleared)?;
            let numer = self.fraction_to(&radicand, exponent)?;
            let denom = if odd { denom } else { self.absolute(&denom)? };
            let denom = self.power(&denom, *exponent.numer())?;
            let inverse = self.inverse(&denom)?;
            return self.multiply(&numer, &inverse);
        }

        match base.numer.as_term() {
            Some((monomial, coefficient)) => {
                let monomial = monomial.clone();
                let coefficient = coefficient.clone();
                self.term_to(&monomial, &coefficient, exponent)
            }
            None => {
                let content = self.content(&base.numer)?;
                // A positive factor comes out of every root, but a sign only out of odd roots of real numbers.
                let real = self.is_real(base);
                let content = if odd && real { content } else { content.abs() };

                let outside = self.number_to(&content, exponent)?;
                let inside = self.scale(&base.numer, &content.recip())?;
                let root = self.root(inside, exponent)?;
                self.multiply(&outside, &root)
            }
        }
    }

    /// Builds the root atom of a radicand, and takes integer powers out of it.
    fn root(
        &mut self,
        radicand: Polynomial,
        exponent: Exponent,
    ) -> Result<RationalFunction, AlgebraError> {
        let integer_part = exponent.floor();
        let fraction = RationalFunction::from(radicand.clone());
        let outside = if integer_part.is_zero() {
            BigRational::one().into()
        } else {
            self.power(&fraction, integer_part.to_integer())?
        };

        let atom = Atom::Root { radicand, real: exponent.denom().is_odd() };
        let inside = self.polynomial(atom, exponent - integer_part)?;
        self.multiply(&outside, &inside.into())
    }

    /// Raises a single term to a fraction. Positive factors come out of the root, and so do even powers of real
    /// factors.
    fn term_to(
        &mut self,
        monomial: &Monomial,
        coefficient: &BigRational,
        exponent: Exponent,
    ) -> Result<RationalFunction, AlgebraError> {
        let degree = *exponent.denom();
        let odd = degree.is_odd();
        let all_real = monomial.0.iter().all(|(id, _)| self.atoms[*id as usize].real);

        let mut outside = self.number_to(&coefficient.abs(), exponent)?;
        let mut inside = vec![];

        for (id, power) in &monomial.0 {
            let real = self.atoms[*id as usize].real;
            let positive = self.atoms[*id as usize].positive;
            if positive {
                // A positive factor comes out entirely.
                let power = polynomial::times(*power, exponent)?;
                let factor = self.simplify_product(Monomial::of(*id, power), BigRational::one())?;
                outside = self.multiply(&outside, &factor.into())?;
                continue;
            }

            let mut remaining = *power;
            // An odd root is the real one only if the radicand is real: ∛(ix³) is not x∛i for x < 0.
            if real && power.is_integer() && (all_real || !odd) {
                let extracted = Integer::div_floor(&power.to_integer(), &degree);
                remaining = *power - extracted * degree;
                if extracted != 0 {
                    let atom: RationalFunction =
                        Polynomial::term(Monomial::of(*id, Ratio::one()), BigRational::one())
                            .into();
                    let atom = if odd { atom } else { self.absolute(&atom)? };
                    let extracted =
                        extracted.checked_mul(*exponent.numer()).ok_or(AlgebraError::TooLarge)?;
                    let factor = self.power(&atom, extracted)?;
                    outside = self.multiply(&outside, &factor)?;
                }
            }

            if !remaining.is_zero() {
                inside.push((*id, remaining));
            }
        }

        // A minus comes out as a power of −1 if nothing else is under the root, or if the root is the real one.
        let mut sign = BigRational::one();
        if coefficient.is_negative() {
            if inside.is_empty() || odd && all_real {
                let factor = self.minus_one_to(exponent)?;
                outside = self.multiply(&outside, &factor)?;
            } else {
                sign = -sign;
            }
        }

        match inside.as_slice() {
            [] => Ok(outside),
            [(id, _)] if *self.atom(*id) == Atom::I => {
                // Here i = e^(iπ/2) and −i = e^(−iπ/2). Neither is real.
                let quarter = Ratio::new(if sign.is_negative() { -1 } else { 1 }, 2);
                let turned = self.root_of_unity(polynomial::times(quarter, exponent)?)?;
                self.multiply(&outside, &turned)
            }
            _ => {
                let root = self.root(Polynomial::term(Monomial(inside), sign), exponent)?;
                self.multiply(&outside, &root)
            }
        }
    }

    /// Builds a power that cannot be taken apart.
    fn opaque_power(
        &mut self,
        base: &RationalFunction,
        exponent: Exponent,
    ) -> Result<RationalFunction, AlgebraError> {
        let exponent = BigRational::new((*exponent.numer()).into(), (*exponent.denom()).into());
        let atom =
            Atom::Power { base: Box::new(base.clone()), exponent: Box::new(exponent.into()) };
        Ok(self.polynomial(atom, Ratio::one())?.into())
    }

    /// Raises to an exponent that is not a number. The power is taken apart by the terms of the exponent: 2^(x+3) =
    /// 8·2^x.
    pub(super) fn symbolic(
        &mut self,
        base: &RationalFunction,
        exponent: &RationalFunction,
    ) -> Result<RationalFunction, AlgebraError> {
        crate::parts::gate!(SymbolicPowers, Err(AlgebraError::Opaque));
        if base.as_number().is_some_and(|number| number.is_one()) {
            return Ok(base.clone());
        }
        // A base that is zero has no power for some exponents.
        if !self.is_surely_nonzero(&base.numer) {
            self.uncertain = true;
        }

        if exponent.denom.is_some() {
            let atom =
                Atom::Power { base: Box::new(base.clone()), exponent: Box::new(exponent.clone()) };
            return Ok(self.polynomial(atom, Ratio::one())?.into());
        }

        let mut power: RationalFunction = BigRational::one().into();
        for (monomial, coefficient) in &exponent.numer.0 {
            let factor = self.power_by_term(base, monomial, coefficient)?;
            power = self.multiply(&power, &factor)?;
        }

        Ok(power)
    }

    fn power_by_term(
        &mut self,
        base: &RationalFunction,
        monomial: &Monomial,
        coefficient: &BigRational,
    ) -> Result<RationalFunction, AlgebraError> {
        let factor = polynomial::exponent(coefficient)?;
        if monomial.0.is_empty() && factor.is_integer() {
            return self.power(base, factor.to_integer());
        }

        if *base == self.constant(Constant::E)?.into() {
            return self.exponential(monomial, factor);
        }

        let term = base.as_polynomial().and_then(Polynomial::as_term).cloned();
        if let Some((parts, number)) = term
            && self.is_positive(base)
            && !crate::parts::is_off!(PowersOfProducts)
            && parts.0.iter().all(|(id, _)| self.atoms[*id as usize].positive)
        {
            return self.positive_power(&parts, &number, monomial, factor);
        }

        self.power_atom(base.clone(), monomial.clone(), factor)
    }

    /// Raises a positive product to the power `factor·monomial`, factor by factor.
    fn positive_power(
        &mut self,
        parts: &Monomial,
        number: &BigRational,
        monomial: &Monomial,
        factor: Exponent,
    ) -> Result<RationalFunction, AlgebraError> {
        let mut power: RationalFunction = BigRational::one().into();
        for part in integer::factors(number, self.budget)? {
            let base = BigRational::from_integer(BigUint::into(part.base));
            let exponent = polynomial::times(factor, part.exponent.into())?;
            let part = self.power_atom(base.into(), monomial.clone(), exponent)?;
            power = self.multiply(&power, &part)?;
        }

        for (id, exponent) in &parts.0 {
            let exponent = polynomial::times(factor, *exponent)?;
            let part = match self.atom(*id).clone() {
                Atom::E => self.exponential(monomial, exponent)?,
                Atom::IntegerBase { base, .. } => {
                    let base = BigRational::from_integer(base.into());
                    self.power_atom(base.into(), monomial.clone(), exponent)?
                }
                // (b^u)^v = b^(uv) for a real u and a positive b. Both hold here, because the atom b^u counts as
                // positive only then.
                Atom::Power { base, exponent: inner } => {
                    let outer = Polynomial::term(monomial.clone(), BigRational::one()).into();
                    let product = self.multiply(&inner, &outer)?;
                    let scale =
                        BigRational::new((*exponent.numer()).into(), (*exponent.denom()).into());
                    let product = self.multiply(&product, &scale.into())?;
                    self.symbolic(&base, &product)?
                }
                _ => {
                    let base =
                        Polynomial::term(Monomial::of(*id, Ratio::one()), BigRational::one());
                    self.power_atom(base.into(), monomial.clone(), exponent)?
                }
            };

            power = self.multiply(&power, &part)?;
        }

        Ok(power)
    }

    /// Computes e^(factor·monomial).
    fn exponential(
        &mut self,
        monomial: &Monomial,
        factor: Exponent,
    ) -> Result<RationalFunction, AlgebraError> {
        if monomial.0.is_empty() {
            return Ok(self.polynomial(Atom::E, factor)?.into());
        }

        if let [first, second] = monomial.0.as_slice() {
            let is =
                |part: &(AtomId, Exponent), atom| part.1.is_one() && *self.atom(part.0) == atom;
            if is(first, Atom::I) && is(second, Atom::Pi)
                || is(first, Atom::Pi) && is(second, Atom::I)
            {
                return self.root_of_unity(factor);
            }
        }

        if let Some((at, argument)) = self.logarithm_in(monomial) {
            // e^(c·u·ln f) = f^(c·u) holds for every f if c·u is a whole number, and otherwise for positive f.
            let mut rest = monomial.clone();
            rest.0.remove(at);
            if rest.0.is_empty() && factor.is_integer() {
                return self.power(&argument, factor.to_integer());
            }
            if self.is_positive(&argument) {
                let scale = BigRational::new((*factor.numer()).into(), (*factor.denom()).into());
                let exponent = Polynomial::term(rest, scale);
                return match exponent.as_number() {
                    Some(_) => self.fraction_to_any(&argument, factor),
                    None => self.symbolic(&argument, &exponent.into()),
                };
            }
        }

        let base = self.constant(Constant::E)?;
        self.power_atom(base.into(), monomial.clone(), factor)
    }

    /// Finds the logarithm in a product that becomes the base of the power, and returns its index and argument.
    /// That is the logarithm of the least number, or else the only logarithm.
    fn logarithm_in(&self, monomial: &Monomial) -> Option<(usize, RationalFunction)> {
        crate::parts::gate!(PowersOfLogarithms, None);
        let logarithms = monomial.0.iter().enumerate().filter_map(|(at, (id, power))| {
            match (self.atom(*id), power.is_one()) {
                (Atom::Call(Function::Ln, arguments), true) => Some((at, arguments.first()?)),
                _ => None,
            }
        });

        let least = logarithms
            .clone()
            .filter_map(|(at, argument)| Some((argument.as_number()?, at, argument)))
            .min_by(|a, b| a.0.cmp(&b.0));

        if let Some((_, at, argument)) = least {
            return Some((at, argument.clone()));
        }

        let mut logarithms = logarithms;
        match (logarithms.next(), logarithms.next()) {
            (Some((at, argument)), None) => Some((at, argument.clone())),
            _ => None,
        }
    }

    fn fraction_to_any(
        &mut self,
        base: &RationalFunction,
        exponent: Exponent,
    ) -> Result<RationalFunction, AlgebraError> {
        match base.as_number() {
            Some(number) => self.number_to(&number, exponent),
            None => self.fraction_to(base, exponent),
        }
    }

    fn power_atom(
        &mut self,
        base: RationalFunction,
        monomial: Monomial,
        factor: Exponent,
    ) -> Result<RationalFunction, AlgebraError> {
        let exponent = Polynomial::term(monomial, BigRational::one()).into();
        let atom = Atom::Power { base: Box::new(base), exponent: Box::new(exponent) };
        Ok(self.polynomial(atom, factor)?.into())
    }

    /// Raises a base to infinity of either sign.
    fn to_infinity(&self, base: &Value, positive: bool) -> Result<Value, AlgebraError> {
        crate::parts::gate!(InfiniteArguments, Err(AlgebraError::Opaque));
        let one = BigRational::one();
        let number = match base {
            Value::Number(number) => number.clone(),
            // Here any number above one can stand for e and π.
            Value::Fraction(fraction) => {
                match fraction.as_polynomial().and_then(Polynomial::as_term) {
                    Some((monomial, number)) if number.is_one() => match monomial.0.as_slice() {
                        [(id, power)]
                            if power.is_positive()
                                && matches!(self.atom(*id), Atom::E | Atom::Pi) =>
                        {
                            &one + &one
                        }
                        _ => return Err(AlgebraError::Opaque),
                    },
                    _ => return Err(AlgebraError::Opaque),
                }
            }
            Value::Infinity { .. } => return Err(AlgebraError::Opaque),
        };

        // 1^∞, (−1)^∞ and 0^−∞ have no value.
        if number.abs() == one || (number.is_zero() && !positive) {
            return Err(AlgebraError::Undefined);
        }
        // A power that shrinks tends to zero, whatever its sign.
        if (number.abs() < one) == positive {
            return Ok(BigRational::zero().into());
        }

        if number.is_positive() {
            Ok(Value::Infinity { positive: true })
        } else {
            Err(AlgebraError::Opaque)
        }
    }
}
