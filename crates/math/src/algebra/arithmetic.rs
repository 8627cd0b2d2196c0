//! Sums, products, inverses and powers of quotients of polynomials.

use num_rational::{BigRational, Ratio};
use num_traits::{One, Signed, Zero};

use super::{
    atom::{Algebra, Atom},
    integer,
    limits::AlgebraError,
    polynomial::{AtomId, Exponent, Monomial, Polynomial, RationalFunction, merge, times},
};

/// Maximum number of terms that are multiplied out.
const MAX_TERMS: usize = 4_096;

impl Algebra<'_> {
    /// Builds a polynomial from terms in any order.
    pub(super) fn collect(
        &mut self,
        mut terms: Vec<(Monomial, BigRational)>,
    ) -> Result<Polynomial, AlgebraError> {
        self.budget.spend(8 * terms.len() as u64)?;
        // Sorting puts like terms next to each other.
        terms.sort_by(|left, right| left.0.cmp(&right.0));

        let mut sum: Vec<(Monomial, BigRational)> = Vec::with_capacity(terms.len());
        for (monomial, coefficient) in terms {
            match sum.last_mut() {
                Some(last) if last.0 == monomial => {
                    last.1 = integer::sum(&last.1, &coefficient, self.budget)?;
                    if last.1.is_zero() {
                        sum.pop();
                    }
                }
                _ => sum.push((monomial, coefficient)),
            }
        }

        if sum.len() > MAX_TERMS {
            return Err(AlgebraError::TooLarge);
        }
        Ok(Polynomial(sum))
    }

    pub(super) fn add_polynomials(
        &mut self,
        left: &Polynomial,
        right: &Polynomial,
    ) -> Result<Polynomial, AlgebraError> {
        self.collect(left.0.iter().chain(&right.0).cloned().collect())
    }

    pub(super) fn scale(
        &mut self,
        polynomial: &Polynomial,
        factor: &BigRational,
    ) -> Result<Polynomial, AlgebraError> {
        if factor.is_one() {
            return Ok(polynomial.clone());
        }

        let mut scaled = Vec::with_capacity(polynomial.0.len());
        for (monomial, coefficient) in &polynomial.0 {
            let product = integer::product(coefficient, factor, self.budget)?;
            scaled.push((monomial.clone(), product));
        }
        Ok(if factor.is_zero() { Polynomial::default() } else { Polynomial(scaled) })
    }

    pub(super) fn multiply_polynomials(
        &mut self,
        left: &Polynomial,
        right: &Polynomial,
    ) -> Result<Polynomial, AlgebraError> {
        if let Some(number) = left.as_number() {
            return self.scale(right, &number);
        }
        if let Some(number) = right.as_number() {
            return self.scale(left, &number);
        }

        let products = left.0.len().saturating_mul(right.0.len());
        if products > MAX_TERMS * 16 {
            return Err(AlgebraError::TooLarge);
        }
        self.budget.spend(32 * products as u64)?;

        let mut terms = Vec::with_capacity(products);
        for (first, a) in &left.0 {
            for (second, b) in &right.0 {
                let coefficient = integer::product(a, b, self.budget)?;
                let monomial = merge(first, second)?;
                terms.extend(self.simplify_product(monomial, coefficient)?.0);
            }
        }

        self.collect(terms)
    }

    pub(super) fn add(
        &mut self,
        left: &RationalFunction,
        right: &RationalFunction,
    ) -> Result<RationalFunction, AlgebraError> {
        if left.denom == right.denom {
            let numer = self.add_polynomials(&left.numer, &right.numer)?;
            return self.fraction(numer, left.denom.clone());
        }

        let (first, second) = self.cross_multiply(left, right)?;
        let numer = self.add_polynomials(&first, &second)?;
        let denom = self.common_denominator(left, right)?;
        self.fraction(numer, denom)
    }

    /// Brings two quotients to the common denominator and returns the two numerators, which are equal if the quotients
    /// are.
    pub(super) fn cross_multiply(
        &mut self,
        left: &RationalFunction,
        right: &RationalFunction,
    ) -> Result<(Polynomial, Polynomial), AlgebraError> {
        if left.denom == right.denom {
            return Ok((left.numer.clone(), right.numer.clone()));
        }

        let first = match &right.denom {
            Some(denom) => self.multiply_polynomials(&left.numer, denom)?,
            None => left.numer.clone(),
        };
        let second = match &left.denom {
            Some(denom) => self.multiply_polynomials(&right.numer, denom)?,
            None => right.numer.clone(),
        };

        Ok((first, second))
    }

    fn common_denominator(
        &mut self,
        left: &RationalFunction,
        right: &RationalFunction,
    ) -> Result<Option<Polynomial>, AlgebraError> {
        Ok(match (&left.denom, &right.denom) {
            (Some(first), Some(second)) => Some(self.multiply_polynomials(first, second)?),
            (first, second) => first.clone().or(second.clone()),
        })
    }

    pub(super) fn multiply(
        &mut self,
        left: &RationalFunction,
        right: &RationalFunction,
    ) -> Result<RationalFunction, AlgebraError> {
        // The denominator of one cancels the numerator of the other.
        if left.denom.is_some() && left.denom.as_ref() == Some(&right.numer) {
            return Ok(RationalFunction { numer: left.numer.clone(), denom: right.denom.clone() });
        }
        if right.denom.is_some() && right.denom.as_ref() == Some(&left.numer) {
            return Ok(RationalFunction { numer: right.numer.clone(), denom: left.denom.clone() });
        }

        let numer = self.multiply_polynomials(&left.numer, &right.numer)?;
        let denom = self.common_denominator(left, right)?;
        self.fraction(numer, denom)
    }

    /// Divides two polynomials. The second is not zero.
    fn fraction(
        &mut self,
        numer: Polynomial,
        denom: Option<Polynomial>,
    ) -> Result<RationalFunction, AlgebraError> {
        let Some(denom) = denom else { return Ok(numer.into()) };
        if numer.is_zero() {
            return Ok(numer.into());
        }

        // A denominator of one term becomes negative exponents.
        if denom.as_term().is_some() {
            let inverse = self.inverse(&denom.into())?;
            return self.multiply(&numer.into(), &inverse);
        }

        // A numerator that is a constant multiple of the denominator leaves a constant.
        let factor = &numer.0[0].1 / &denom.0[0].1;
        if numer.0.len() == denom.0.len() && self.scale(&denom, &factor)? == numer {
            return Ok(factor.into());
        }

        let content = self.content(&denom)?.recip();
        Ok(RationalFunction {
            numer: self.scale(&numer, &content)?,
            denom: Some(self.scale(&denom, &content)?),
        })
    }

    /// Returns the content: the rational number that divides all coefficients into whole numbers without a common
    /// factor. It has the sign of the last coefficient.
    pub(super) fn content(&mut self, polynomial: &Polynomial) -> Result<BigRational, AlgebraError> {
        use num_integer::Integer;
        let Some(((_, last), others)) = polynomial.0.split_last() else {
            return Ok(BigRational::one());
        };
        let mut numer = last.numer().abs();
        let mut denom = last.denom().clone();

        for (_, coefficient) in others {
            if integer::bits(coefficient) + numer.bits() + denom.bits() > integer::MAX_BITS {
                return Err(AlgebraError::TooLarge);
            }
            let bits = numer.bits() + denom.bits() + integer::bits(coefficient);
            self.budget.spend(16 + bits * (bits / 64 + 1))?;
            numer = numer.gcd(coefficient.numer());
            denom = denom.lcm(coefficient.denom());
        }

        let content = BigRational::new(numer, denom);
        Ok(if last.is_negative() { -content } else { content })
    }

    pub(super) fn inverse(
        &mut self,
        fraction: &RationalFunction,
    ) -> Result<RationalFunction, AlgebraError> {
        if fraction.numer.is_zero() {
            return Err(AlgebraError::Undefined);
        }
        if !self.is_surely_nonzero(&fraction.numer) {
            self.uncertain = true;
        }

        let Some((monomial, coefficient)) = fraction.numer.as_term() else {
            let numer = fraction.denom.clone().unwrap_or_else(Polynomial::one);
            return self.fraction(numer, Some(fraction.numer.clone()));
        };

        let mut inverted = Vec::with_capacity(monomial.0.len());
        let mut denom: Option<Polynomial> = None;
        for (atom, exponent) in &monomial.0 {
            // 1/√f = √f/f: an atom that is a root of a polynomial keeps an exponent in [0, 1).
            let (kept_exponent, radicand_power) = match self.reducible(*atom) {
                Some((period, radicand)) => {
                    let periods = (*exponent / period).ceil();
                    let power =
                        self.power_polynomial(&radicand, (periods * period).to_integer())?;
                    (periods * period - exponent, Some(power))
                }
                None => (-exponent, None),
            };

            if !kept_exponent.is_zero() {
                inverted.push((*atom, kept_exponent));
            }

            denom = match (denom, radicand_power) {
                (Some(first), Some(second)) => Some(self.multiply_polynomials(&first, &second)?),
                (first, second) => first.or(second),
            };
        }

        let numer = self.simplify_product(Monomial(inverted), coefficient.recip())?;
        let numer = match &fraction.denom {
            Some(denom) => self.multiply_polynomials(&numer, denom)?,
            None => numer,
        };
        self.fraction(numer, denom)
    }

    /// Splits the monomials into their varying and their constant parts. Returns the coefficients of the varying
    /// parts, ordered by these parts.
    pub(super) fn by_variables(
        &mut self,
        polynomial: &Polynomial,
    ) -> Result<Vec<(Monomial, Polynomial)>, AlgebraError> {
        crate::parts::gate!(ConstantRatios, Err(AlgebraError::Opaque));
        self.budget.spend(16 * polynomial.0.len() as u64)?;

        let mut parts = vec![];
        for (monomial, coefficient) in &polynomial.0 {
            let (variable, constant) =
                monomial.0.iter().partition(|(id, _)| self.atoms[*id as usize].varies);
            parts.push((Monomial(variable), Monomial(constant), coefficient.clone()));
        }

        // Sorting puts equal varying parts next to each other.
        parts.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        let mut grouped: Vec<(Monomial, Polynomial)> = vec![];
        for (variable, constant, coefficient) in parts {
            match grouped.last_mut() {
                Some((last, sum)) if *last == variable => sum.0.push((constant, coefficient)),
                _ => grouped.push((variable, Polynomial::term(constant, coefficient))),
            }
        }
        Ok(grouped)
    }

    /// Raises a quotient to an integer power.
    pub(super) fn power(
        &mut self,
        fraction: &RationalFunction,
        exponent: i64,
    ) -> Result<RationalFunction, AlgebraError> {
        if exponent < 0 {
            let inverse = self.inverse(fraction)?;
            return self.power(&inverse, exponent.checked_neg().ok_or(AlgebraError::TooLarge)?);
        }

        if exponent == 0 {
            // x⁰ = 1 for x ≠ 0; 0⁰ is undefined, as is the inverse of 0.
            self.inverse(fraction)?;
            return Ok(BigRational::one().into());
        }

        let numer = self.power_polynomial(&fraction.numer, exponent)?;
        let denom = match &fraction.denom {
            Some(denom) => Some(self.power_polynomial(denom, exponent)?),
            None => None,
        };
        self.fraction(numer, denom)
    }

    /// Raises a polynomial to a non-negative integer power.
    fn power_polynomial(
        &mut self,
        base: &Polynomial,
        exponent: i64,
    ) -> Result<Polynomial, AlgebraError> {
        if let Some((monomial, coefficient)) = base.as_term() {
            let coefficient = integer::power(coefficient, exponent, self.budget)?;
            let mut raised = monomial.clone();
            for (_, power) in &mut raised.0 {
                *power = times(*power, exponent.into())?;
            }
            raised.0.retain(|(_, power)| !power.is_zero());
            return self.simplify_product(raised, coefficient);
        }

        if base.is_zero() {
            return Ok(base.clone());
        }
        // The powers of a sum with a variable in it have more and more terms.
        let variable = |(id, _): &(AtomId, Exponent)| matches!(self.atom(*id), Atom::Symbol(_));
        if exponent > MAX_TERMS as i64 && base.atoms().any(variable) {
            return Err(AlgebraError::TooLarge);
        }

        // Square and multiply, from the exponent's highest bit down.
        let mut power = Polynomial::one();
        for bit in (0..64 - exponent.leading_zeros()).rev() {
            power = self.multiply_polynomials(&power, &power.clone())?;
            if exponent >> bit & 1 == 1 {
                power = self.multiply_polynomials(&power, base)?;
            }
        }

        Ok(power)
    }

    /// Simplifies a product of atoms by the rules of the atoms: i² = −1, √2² = 2, √f² = f, |f|² = f².
    pub(super) fn simplify_product(
        &mut self,
        mut monomial: Monomial,
        mut coefficient: BigRational,
    ) -> Result<Polynomial, AlgebraError> {
        let mut factors = vec![];

        for (atom, exponent) in &mut monomial.0 {
            match self.atom(*atom) {
                Atom::I => {
                    let turns = exponent.to_integer().rem_euclid(4);
                    if turns >= 2 {
                        coefficient = -coefficient;
                    }
                    *exponent = Ratio::from_integer(turns % 2);
                }
                Atom::IntegerBase { base, .. } => {
                    let integer_part = exponent.floor().to_integer();
                    let size = base.bits().saturating_mul(integer_part.unsigned_abs());
                    if integer_part != 0 && size <= integer::MAX_BITS {
                        let base = BigRational::from_integer(base.clone().into());
                        let power = integer::power(&base, integer_part, self.budget)?;
                        coefficient = integer::product(&coefficient, &power, self.budget)?;
                        *exponent -= integer_part;
                    }
                }
                _ => {
                    if let Some((period, radicand)) = self.reducible(*atom) {
                        let periods = (*exponent / period).floor();
                        if !periods.is_zero() {
                            factors.push((radicand, (periods * period).to_integer()));
                            *exponent -= periods * period;
                        }
                    }
                }
            }
        }

        monomial.0.retain(|(_, exponent)| !exponent.is_zero());
        let mut product = Polynomial::term(monomial, coefficient);
        for (radicand, power) in factors {
            // Such atoms are never inverted, so the power is positive.
            let power = self.power_polynomial(&radicand, power)?;
            product = self.multiply_polynomials(&product, &power)?;
        }

        Ok(product)
    }
}
