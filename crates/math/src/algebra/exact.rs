//! Computes the exact value of an expression, if there is one.

use num_bigint::BigInt;
use num_rational::{BigRational, Ratio};
use num_traits::{One, Signed, ToPrimitive, Zero};

use super::{
    atom::{Algebra, Atom},
    integer,
    limits::AlgebraError,
    polynomial::{Polynomial, RationalFunction},
};
use crate::expr::{Constant, Expr, Fold, FoldKind};

/// An exact value. Numbers are kept apart from quotients of polynomials for speed, because most answers are numbers.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Number(BigRational),
    Fraction(RationalFunction),
    /// Infinity of either sign.
    Infinity {
        positive: bool,
    },
}

impl From<RationalFunction> for Value {
    fn from(fraction: RationalFunction) -> Self {
        match fraction.as_number() {
            Some(number) => Value::Number(number),
            None => Value::Fraction(fraction),
        }
    }
}

impl From<Polynomial> for Value {
    fn from(polynomial: Polynomial) -> Self {
        RationalFunction::from(polynomial).into()
    }
}

impl From<BigRational> for Value {
    fn from(number: BigRational) -> Self {
        Value::Number(number)
    }
}

impl From<BigInt> for Value {
    fn from(number: BigInt) -> Self {
        Value::Number(BigRational::from_integer(number))
    }
}

impl Value {
    pub(super) fn as_number(&self) -> Option<&BigRational> {
        match self {
            Value::Number(number) => Some(number),
            _ => None,
        }
    }

    /// Returns a value that is not infinite as a quotient of polynomials.
    pub(super) fn into_fraction(self) -> Result<RationalFunction, AlgebraError> {
        match self {
            Value::Number(number) => Ok(number.into()),
            Value::Fraction(fraction) => Ok(fraction),
            Value::Infinity { .. } => Err(AlgebraError::Opaque),
        }
    }

    fn negated(self) -> Self {
        match self {
            Value::Number(number) => Value::Number(-number),
            Value::Fraction(fraction) => Value::Fraction(fraction.negated()),
            Value::Infinity { positive } => Value::Infinity { positive: !positive },
        }
    }
}

impl Algebra<'_> {
    /// Computes the exact value.
    pub(super) fn evaluate(&mut self, expr: &Expr) -> Result<Value, AlgebraError> {
        crate::parts::gate!(ExactValues, Err(AlgebraError::Opaque));
        self.budget.spend(8)?;
        match expr {
            Expr::Number(number) | Expr::Decimal(number) => {
                let bits = integer::bits(number);
                self.budget.spend(bits / 64)?;
                if bits > integer::MAX_BITS {
                    Err(AlgebraError::TooLarge)
                } else {
                    Ok(number.clone().into())
                }
            }
            Expr::Symbol(name) => match self.scope.iter().rev().find(|(index, _)| index == name) {
                Some((_, value)) => Ok(value.clone().into()),
                None => Ok(self.polynomial(Atom::Symbol(name.clone()), Ratio::one())?.into()),
            },
            Expr::Constant(Constant::Infinity) => Ok(Value::Infinity { positive: true }),
            Expr::Constant(constant) => Ok(self.constant(*constant)?.into()),

            Expr::Sum(terms) => {
                let mut values = Vec::with_capacity(terms.len());
                for term in terms {
                    values.push(self.evaluate(term)?);
                }
                self.sum(values)
            }

            Expr::Product(factors) => {
                let mut product = Value::Number(BigRational::one());
                for factor in factors {
                    let value = self.evaluate(factor)?;
                    product = self.product(product, value)?;
                }
                Ok(product)
            }
            Expr::Negate(inner) => Ok(self.evaluate(inner)?.negated()),

            Expr::Quotient(parts) => {
                let numer = self.evaluate(&parts[0])?;
                let denom = self.evaluate(&parts[1])?;
                self.quotient(numer, denom)
            }

            Expr::Power(parts) => {
                let base = self.evaluate(&parts[0])?;
                let exponent = self.evaluate(&parts[1])?;
                self.raise(base, exponent)
            }

            Expr::Root(parts) => {
                let degree = self.evaluate(&parts[0])?;
                let radicand = self.evaluate(&parts[1])?;
                let exponent = self.quotient(Value::Number(BigRational::one()), degree)?;
                self.raise(radicand, exponent)
            }

            Expr::Call(function, arguments) => self.call(*function, arguments),
            Expr::Fold(fold) => self.fold(fold),

            Expr::Apply(name, arguments) => {
                let mut fractions = Vec::with_capacity(arguments.len());
                for argument in arguments {
                    fractions.push(self.evaluate(argument)?.into_fraction()?);
                }
                Ok(self.polynomial(Atom::Apply(name.clone(), fractions), Ratio::one())?.into())
            }

            Expr::Degrees(angle) => {
                let angle = self.evaluate(angle)?;
                let unit = self.constant(Constant::Pi)?;
                let unit = self.scale(&unit, &BigRational::new(1.into(), 180.into()))?;
                self.product(angle, unit.into())
            }
        }
    }

    /// Adds all values, and collects like terms only once.
    fn sum(&mut self, values: Vec<Value>) -> Result<Value, AlgebraError> {
        let mut number = BigRational::zero();
        let mut terms = vec![];
        let mut quotients: Option<RationalFunction> = None;
        let mut infinity = None;

        for value in values {
            match value {
                Value::Number(summand) => {
                    number = integer::sum(&number, &summand, self.budget)?;
                }
                Value::Fraction(RationalFunction { numer, denom: None }) => terms.extend(numer.0),
                Value::Fraction(fraction) => {
                    quotients = Some(match quotients {
                        Some(sum) => self.add(&sum, &fraction)?,
                        None => fraction,
                    });
                }
                Value::Infinity { positive } => {
                    // ∞ − ∞ has no value.
                    if infinity.is_some_and(|before| before != positive) {
                        return Err(AlgebraError::Undefined);
                    }
                    infinity = Some(positive);
                }
            }
        }

        if terms.is_empty() && quotients.is_none() {
            return Ok(infinity.map_or(number.into(), |positive| Value::Infinity { positive }));
        }

        terms.extend(Polynomial::constant(number).0);
        let mut sum: RationalFunction = self.collect(terms)?.into();
        if let Some(quotients) = quotients {
            sum = self.add(&sum, &quotients)?;
        }

        // Infinity plus a real number is infinity. Infinity plus a complex number is not decided here.
        match infinity {
            None => Ok(sum.into()),
            Some(positive) if self.is_real(&sum) => Ok(Value::Infinity { positive }),
            Some(_) => Err(AlgebraError::Opaque),
        }
    }

    pub(super) fn product(&mut self, left: Value, right: Value) -> Result<Value, AlgebraError> {
        match (left, right) {
            (Value::Number(a), Value::Number(b)) => {
                Ok(integer::product(&a, &b, self.budget)?.into())
            }
            (Value::Infinity { positive }, other) | (other, Value::Infinity { positive }) => {
                let factor = self.sign(&other)?;
                Ok(Value::Infinity { positive: positive == factor })
            }
            (a, b) => {
                let a = a.into_fraction()?;
                let b = b.into_fraction()?;
                Ok(self.multiply(&a, &b)?.into())
            }
        }
    }

    /// Tells whether a factor of infinity is positive.
    fn sign(&self, value: &Value) -> Result<bool, AlgebraError> {
        match value {
            Value::Number(number) if number.is_zero() => Err(AlgebraError::Undefined),
            Value::Number(number) => Ok(number.is_positive()),
            Value::Infinity { positive } => Ok(*positive),
            Value::Fraction(fraction) if self.is_positive(fraction) => Ok(true),
            Value::Fraction(fraction) if self.is_positive(&fraction.clone().negated()) => Ok(false),
            Value::Fraction(_) => Err(AlgebraError::Opaque),
        }
    }

    pub(super) fn quotient(&mut self, numer: Value, denom: Value) -> Result<Value, AlgebraError> {
        match (numer, denom) {
            (Value::Number(a), Value::Number(b)) => {
                if b.is_zero() {
                    return Err(AlgebraError::Undefined);
                }
                Ok(integer::product(&a, &b.recip(), self.budget)?.into())
            }
            (Value::Infinity { .. }, Value::Infinity { .. }) => Err(AlgebraError::Undefined),
            (_, Value::Infinity { .. }) => Ok(BigRational::zero().into()),
            (numer, denom) => {
                let denom = denom.into_fraction()?;
                let inverse = self.inverse(&denom)?;
                self.product(numer, inverse.into())
            }
        }
    }

    /// Computes a finite sum or product, term by term.
    fn fold(&mut self, fold: &Fold) -> Result<Value, AlgebraError> {
        crate::parts::gate!(ExactFolds, Err(AlgebraError::Opaque));
        let from = self.evaluate(&fold.from)?;
        let to = self.evaluate(&fold.to)?;
        let whole = |value: &Value| {
            value.as_number().filter(|number| number.is_integer()).map(|n| n.numer().clone())
        };
        let (Some(from), Some(to)) = (whole(&from), whole(&to)) else {
            return Err(AlgebraError::Opaque);
        };

        let Some(count) = (&to - &from + 1u32).to_u64() else { return Err(AlgebraError::Opaque) };
        self.budget.spend(count.saturating_mul(32))?;

        let mut values = vec![];
        let mut product = Value::Number(BigRational::one());

        for step in 0..count {
            // The index is removed from the scope before an error can leave the loop.
            self.scope.push((fold.index.clone(), BigRational::from_integer(&from + step)));
            let value = self.evaluate(&fold.body);
            self.scope.pop();
            match fold.kind {
                FoldKind::Sum => values.push(value?),
                FoldKind::Product => product = self.product(product, value?)?,
            }
        }

        match fold.kind {
            FoldKind::Sum => self.sum(values),
            FoldKind::Product => Ok(product),
        }
    }
}
