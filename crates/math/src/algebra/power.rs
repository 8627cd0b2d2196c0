//! Powers and roots of exact values.

use num_bigint::BigUint;
use num_integer::Integer;
use num_rational::{BigRational, Ratio};
use num_traits::{One, Signed, ToPrimitive, Zero};

use super::{
    atom::{Algebra, Atom},
    exact::Value,
    integer,
    limits::Stop,
    polynomial::{self, AtomId, Exponent, Form, Monomial, Polynomial},
};
use crate::expr::{Constant, Function};

impl Algebra<'_> {
    pub(super) fn raise(&mut self, base: Value, exponent: Value) -> Result<Value, Stop> {
        match (base, exponent) {
            (Value::Infinity { positive }, exponent) => match (positive, exponent) {
                (_, Value::Number(zero)) if zero.is_zero() => Err(Stop::Undefined),
                (_, Value::Number(n)) if n.is_negative() => Ok(BigRational::zero().into()),
                (true, Value::Number(_)) => Ok(Value::Infinity { positive: true }),
                (false, Value::Number(n)) if n.is_integer() => {
                    Ok(Value::Infinity { positive: n.numer().is_even() })
                }
                _ => Err(Stop::Opaque),
            },
            (base, Value::Infinity { positive }) => self.to_infinity(&base, positive),
            (Value::Number(base), Value::Number(exponent)) => {
                if exponent.is_integer() {
                    // Exponents out of range are possible only with 0, 1 and −1, whose powers depend on little.
                    let small = exponent.numer().to_i64().unwrap_or_else(|| {
                        let odd = i64::from(exponent.numer().is_odd());
                        let size = i64::MAX - 1 + odd;
                        if exponent.is_negative() { -size } else { size }
                    });
                    match integer::power(&base, small, self.budget) {
                        Err(Stop::TooLarge) if base.is_positive() => {}
                        power => return Ok(power?.into()),
                    }
                }
                if base.is_zero() {
                    return match exponent.is_positive() {
                        true => Ok(base.into()),
                        false => Err(Stop::Undefined),
                    };
                }
                let exponent = polynomial::exponent(&exponent)?;
                Ok(self.number_to(&base, exponent)?.into())
            }
            (base, Value::Number(exponent)) => {
                let base = base.into_form()?;
                let exponent = polynomial::exponent(&exponent)?;
                if exponent.is_integer() {
                    return Ok(self.power(&base, exponent.to_integer())?.into());
                }
                Ok(self.form_to(&base, exponent)?.into())
            }
            (base, Value::Form(exponent)) => {
                let base = base.into_form()?;
                if base.numer.is_zero() {
                    return Err(Stop::Opaque);
                }
                Ok(self.symbolic(&base, &exponent)?.into())
            }
        }
    }

    /// Raises a number other than zero to a fraction, or to a whole number that is too large to compute.
    fn number_to(&mut self, base: &BigRational, exponent: Exponent) -> Result<Form, Stop> {
        let mut power = Polynomial::one();
        for factor in integer::factors(base, self.budget)? {
            let atom = Atom::Whole { base: factor.base, prime: factor.prime };
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
    fn minus_one_to(&mut self, exponent: Exponent) -> Result<Form, Stop> {
        if exponent.denom().is_odd() {
            let sign =
                if exponent.numer().is_odd() { -BigRational::one() } else { BigRational::one() };
            return Ok(sign.into());
        }
        self.root_of_unity(exponent)
    }

    /// Computes e^(iπ·turns).
    pub(super) fn root_of_unity(&mut self, turns: Exponent) -> Result<Form, Stop> {
        let turns = turns - (turns / 2).floor() * 2;
        let quarter = Ratio::new(1, 2);
        if let (Some(cosine), Some(sine)) =
            (self.sine_of_turns(turns + quarter)?, self.sine_of_turns(turns)?)
        {
            let i = self.constant(Constant::I)?;
            let imaginary = self.multiply_polynomials(&i, &sine)?;
            return Ok(self.add_polynomials(&cosine, &imaginary)?.into());
        }
        let (i, pi) = (self.constant(Constant::I)?, self.constant(Constant::Pi)?);
        let angle = self.multiply_polynomials(&i, &pi)?;
        let base = self.constant(Constant::E)?.into();
        let atom = Atom::Power { base: Box::new(base), exponent: Box::new(angle.into()) };
        let turned = turns - turns.floor();
        let sign = if turns.floor().is_zero() { BigRational::one() } else { -BigRational::one() };
        let power = self.polynomial(atom, turned)?;
        Ok(self.scale(&power, &sign)?.into())
    }

    /// Raises a form that is no number to a fraction.
    fn form_to(&mut self, base: &Form, exponent: Exponent) -> Result<Form, Stop> {
        let odd = exponent.denom().is_odd();
        if let Some(denom) = &base.denom {
            // For real numbers, √(n/d) = √(n·d)/|d|.
            if !self.is_real(base) || *exponent.denom() > 6 {
                return self.opaque_power(base, exponent);
            }
            let denom = Form::from(denom.clone());
            let cleared = self.power(&denom, exponent.denom() - 1)?;
            let radicand = self.multiply(&base.numer.clone().into(), &cleared)?;
            let numer = self.form_to(&radicand, exponent)?;
            let denom = if odd { denom } else { self.absolute(&denom)? };
            let denom = self.power(&denom, *exponent.numer())?;
            let inverse = self.inverse(&denom)?;
            return self.multiply(&numer, &inverse);
        }
        match base.numer.as_term() {
            Some((monomial, coefficient)) => {
                let (monomial, coefficient) = (monomial.clone(), coefficient.clone());
                self.term_to(&monomial, &coefficient, exponent)
            }
            None => {
                let content = self.content(&base.numer)?;
                // A positive factor can be taken out of every root. A sign can be taken only out of odd roots of
                // real numbers.
                let real = self.is_real(base);
                let content = if odd && real { content } else { content.abs() };
                let outside = self.number_to(&content, exponent)?;
                let inside = self.scale(&base.numer, &content.recip())?;
                let root = self.root(inside, exponent)?;
                self.multiply(&outside, &root)
            }
        }
    }

    /// Makes the root atom of a radicand, and takes whole powers out.
    fn root(&mut self, radicand: Polynomial, exponent: Exponent) -> Result<Form, Stop> {
        let whole = exponent.floor();
        let form = Form::from(radicand.clone());
        let outside = match whole.is_zero() {
            true => BigRational::one().into(),
            false => self.power(&form, whole.to_integer())?,
        };
        let atom = Atom::Root { radicand, real: exponent.denom().is_odd() };
        let inside = self.polynomial(atom, exponent - whole)?;
        self.multiply(&outside, &inside.into())
    }

    /// Raises a single term to a fraction. Positive factors come out of the root, and so do even powers of real
    /// factors.
    fn term_to(
        &mut self,
        monomial: &Monomial,
        coefficient: &BigRational,
        exponent: Exponent,
    ) -> Result<Form, Stop> {
        let degree = *exponent.denom();
        let odd = degree.is_odd();
        let all_real = monomial.0.iter().all(|(id, _)| self.atoms[*id as usize].real);
        let mut outside = self.number_to(&coefficient.abs(), exponent)?;
        let mut inside = vec![];
        for (id, power) in &monomial.0 {
            let (real, positive) =
                (self.atoms[*id as usize].real, self.atoms[*id as usize].positive);
            if positive {
                let power = polynomial::times(*power, exponent)?;
                let factor = self.settle(Monomial::of(*id, power), BigRational::one())?;
                outside = self.multiply(&outside, &factor.into())?;
                continue;
            }
            let mut left = *power;
            // An odd root is the real one only if the radicand is real: ∛(ix³) is not x∛i for x < 0.
            if real && power.is_integer() && (all_real || !odd) {
                let taken = Integer::div_floor(&power.to_integer(), &degree);
                left = *power - taken * degree;
                if taken != 0 {
                    let atom: Form =
                        Polynomial::term(Monomial::of(*id, Ratio::one()), BigRational::one())
                            .into();
                    let atom = if odd { atom } else { self.absolute(&atom)? };
                    let taken = taken.checked_mul(*exponent.numer()).ok_or(Stop::TooLarge)?;
                    let factor = self.power(&atom, taken)?;
                    outside = self.multiply(&outside, &factor)?;
                }
            }
            if !left.is_zero() {
                inside.push((*id, left));
            }
        }
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

    /// Makes a power that cannot be taken apart.
    fn opaque_power(&mut self, base: &Form, exponent: Exponent) -> Result<Form, Stop> {
        let exponent = BigRational::new((*exponent.numer()).into(), (*exponent.denom()).into());
        let atom =
            Atom::Power { base: Box::new(base.clone()), exponent: Box::new(exponent.into()) };
        Ok(self.polynomial(atom, Ratio::one())?.into())
    }

    /// Raises to an exponent that is no number. The power is taken apart by the terms of the exponent: 2^(x+3) =
    /// 8·2^x.
    pub(super) fn symbolic(&mut self, base: &Form, exponent: &Form) -> Result<Form, Stop> {
        if base.as_number().is_some_and(|number| number.is_one()) {
            return Ok(base.clone());
        }
        if !self.is_surely_nonzero(&base.numer) {
            self.doubtful = true;
        }
        if exponent.denom.is_some() {
            let atom =
                Atom::Power { base: Box::new(base.clone()), exponent: Box::new(exponent.clone()) };
            return Ok(self.polynomial(atom, Ratio::one())?.into());
        }
        let mut power: Form = BigRational::one().into();
        for (monomial, coefficient) in &exponent.numer.0 {
            let factor = self.power_by_term(base, monomial, coefficient)?;
            power = self.multiply(&power, &factor)?;
        }
        Ok(power)
    }

    fn power_by_term(
        &mut self,
        base: &Form,
        monomial: &Monomial,
        coefficient: &BigRational,
    ) -> Result<Form, Stop> {
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
    ) -> Result<Form, Stop> {
        let mut power: Form = BigRational::one().into();
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
                Atom::Whole { base, .. } => {
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
    fn exponential(&mut self, monomial: &Monomial, factor: Exponent) -> Result<Form, Stop> {
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
                    Some(_) => self.form_to_any(&argument, factor),
                    None => self.symbolic(&argument, &exponent.into()),
                };
            }
        }
        let base = self.constant(Constant::E)?;
        self.power_atom(base.into(), monomial.clone(), factor)
    }

    /// Finds the logarithm in a product that becomes the base of the power, and returns its place and its
    /// argument. It is the logarithm of the least number, or else the only logarithm.
    fn logarithm_in(&self, monomial: &Monomial) -> Option<(usize, Form)> {
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

    fn form_to_any(&mut self, base: &Form, exponent: Exponent) -> Result<Form, Stop> {
        match base.as_number() {
            Some(number) => self.number_to(&number, exponent),
            None => self.form_to(base, exponent),
        }
    }

    fn power_atom(
        &mut self,
        base: Form,
        monomial: Monomial,
        factor: Exponent,
    ) -> Result<Form, Stop> {
        let exponent = Polynomial::term(monomial, BigRational::one()).into();
        let atom = Atom::Power { base: Box::new(base), exponent: Box::new(exponent) };
        Ok(self.polynomial(atom, factor)?.into())
    }

    /// Raises a base to infinity of either sign.
    fn to_infinity(&self, base: &Value, positive: bool) -> Result<Value, Stop> {
        let one = BigRational::one();
        let number = match base {
            Value::Number(number) => number.clone(),
            // Here any number above one can stand for e and π.
            Value::Form(form) => match form.as_polynomial().and_then(Polynomial::as_term) {
                Some((monomial, number)) if number.is_one() => match monomial.0.as_slice() {
                    [(id, power)]
                        if power.is_positive() && matches!(self.atom(*id), Atom::E | Atom::Pi) =>
                    {
                        &one + &one
                    }
                    _ => return Err(Stop::Opaque),
                },
                _ => return Err(Stop::Opaque),
            },
            Value::Infinity { .. } => return Err(Stop::Opaque),
        };
        if number.abs() == one || (number.is_zero() && !positive) {
            return Err(Stop::Undefined);
        }
        if (number.abs() < one) == positive {
            return Ok(BigRational::zero().into());
        }
        match number.is_positive() {
            true => Ok(Value::Infinity { positive: true }),
            false => Err(Stop::Opaque),
        }
    }
}
