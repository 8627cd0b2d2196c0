//! Exact values of expressions that are rational numbers.
//!
//! Arithmetic, functions whose values are rational, finite sums and products, and perfect roots are computed. Whatever
//! else occurs makes the value opaque, and is left to enclosures.

use std::cmp::Ordering;

use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};

use super::{
    function,
    integer::{self, ExactError},
};
use crate::{
    budget::{Budget, OverBudget},
    expr::{Constant, Expr, Fold, FoldKind},
};

/// An exact value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Number(BigRational),
    /// Infinity of either sign.
    Infinity {
        positive: bool,
    },
}

type Result<T> = std::result::Result<T, ExactError>;

impl From<BigRational> for Value {
    fn from(number: BigRational) -> Self {
        Value::Number(number)
    }
}

impl Value {
    pub(super) fn as_number(&self) -> Option<&BigRational> {
        match self {
            Value::Number(number) => Some(number),
            Value::Infinity { .. } => None,
        }
    }

    /// Compares two values. Infinity is beyond every number.
    pub(super) fn order(&self, other: &Value) -> Ordering {
        let rank = |value: &Value| match value {
            Value::Number(_) => 0,
            Value::Infinity { positive: true } => 1,
            Value::Infinity { positive: false } => -1,
        };
        match (self, other) {
            (Value::Number(first), Value::Number(second)) => first.cmp(second),
            (first, second) => rank(first).cmp(&rank(second)),
        }
    }

    fn negated(self) -> Self {
        match self {
            Value::Number(number) => Value::Number(-number),
            Value::Infinity { positive } => Value::Infinity { positive: !positive },
        }
    }

    /// Tells whether a factor of infinity is positive.
    fn sign(&self) -> Result<bool> {
        match self {
            Value::Number(number) if number.is_zero() => Err(ExactError::Undefined),
            Value::Number(number) => Ok(number.is_positive()),
            Value::Infinity { positive } => Ok(*positive),
        }
    }
}

/// Computes the exact value of an expression without variables.
pub(super) fn value(expr: &Expr, budget: &mut Budget) -> Result<Value> {
    let no_symbol = |_: &str| None;
    Exact { symbol: &no_symbol, scope: vec![], limit: integer::MAX_BITS, budget }.value(expr)
}

/// Returns the rational value of an expression at a point, given the values of its symbols there. Returns `None` if
/// there is none that is short and easy to find.
pub(super) fn at_point(
    expr: &Expr,
    symbol: &dyn Fn(&str) -> Option<(i64, i64)>,
    budget: &mut Budget,
) -> std::result::Result<Option<BigRational>, OverBudget> {
    match (Exact { symbol, scope: vec![], limit: integer::POINT_BITS, budget }).value(expr) {
        Ok(Value::Number(number)) => Ok(Some(number)),
        Err(ExactError::OverBudget) => Err(OverBudget),
        Ok(Value::Infinity { .. }) | Err(_) => Ok(None),
    }
}

struct Exact<'s, 'b> {
    symbol: &'s dyn Fn(&str) -> Option<(i64, i64)>,
    /// Values of the indices of the enclosing sums and products.
    scope: Vec<(Box<str>, BigRational)>,
    /// Bits of the longest number that is computed.
    limit: u64,
    budget: &'b mut Budget,
}

impl Exact<'_, '_> {
    fn value(&mut self, expr: &Expr) -> Result<Value> {
        self.budget.spend(8)?;

        match expr {
            Expr::Number(number) | Expr::Decimal(number) => {
                self.budget.spend(integer::bits(number) / 64)?;
                self.short(number.clone()).map(Value::Number)
            }
            Expr::Symbol(name) => self.symbol(name).ok_or(ExactError::Opaque),
            Expr::Constant(Constant::Infinity) => Ok(Value::Infinity { positive: true }),
            Expr::Constant(Constant::NotANumber) => Err(ExactError::Undefined),

            Expr::Sum(terms) => {
                let mut sum = BigRational::zero().into();
                for term in terms {
                    let term = self.value(term)?;
                    sum = self.sum(sum, term)?;
                }
                Ok(sum)
            }
            Expr::Product(factors) => {
                let mut product = BigRational::one().into();
                for factor in factors {
                    let factor = self.value(factor)?;
                    product = self.product(product, factor)?;
                }
                Ok(product)
            }
            Expr::Negate(inner) => Ok(self.value(inner)?.negated()),
            Expr::Quotient(parts) => {
                let numer = self.value(&parts[0])?;
                let denom = self.value(&parts[1])?;
                self.quotient(numer, denom)
            }

            Expr::Power(parts) => {
                let base = self.number(&parts[0])?;
                let exponent = self.number(&parts[1])?;
                self.power(base, &exponent)
            }
            Expr::Root(parts) => {
                let degree = self.number(&parts[0])?;
                let radicand = self.number(&parts[1])?;
                if degree.is_zero() {
                    return Err(ExactError::Undefined);
                }
                self.power(radicand, &degree.recip())
            }

            Expr::Call(function, _) if !function::may_be_rational(*function) => {
                Err(ExactError::Opaque)
            }
            Expr::Call(function, arguments) => {
                let mut numbers = Vec::with_capacity(arguments.len());
                for argument in arguments {
                    numbers.push(self.number(argument)?);
                }
                let value = function::value(*function, &numbers, self.limit, self.budget)?;
                self.short(value).map(Value::Number)
            }
            Expr::Fold(fold) => self.fold(fold),
            Expr::Constant(_) | Expr::Apply(..) | Expr::Degrees(_) => Err(ExactError::Opaque),
        }
    }

    fn symbol(&self, name: &str) -> Option<Value> {
        if let Some((_, value)) = self.scope.iter().rev().find(|(index, _)| **index == *name) {
            return Some(value.clone().into());
        }
        let (numer, denom) = (self.symbol)(name)?;
        Some(BigRational::new(numer.into(), denom.into()).into())
    }

    /// Refuses a number that is too long.
    fn short(&self, number: BigRational) -> Result<BigRational> {
        let short = integer::bits(&number) <= self.limit;
        short.then_some(number).ok_or(ExactError::TooLarge)
    }

    fn sum(&mut self, left: Value, right: Value) -> Result<Value> {
        match (left, right) {
            (Value::Number(a), Value::Number(b)) => {
                let sum = integer::sum(&a, &b, self.budget)?;
                Ok(self.short(sum)?.into())
            }
            // ∞ − ∞ has no value.
            (Value::Infinity { positive: a }, Value::Infinity { positive: b }) if a != b => {
                Err(ExactError::Undefined)
            }
            (Value::Infinity { positive }, _) | (_, Value::Infinity { positive }) => {
                Ok(Value::Infinity { positive })
            }
        }
    }

    fn product(&mut self, left: Value, right: Value) -> Result<Value> {
        match (left, right) {
            (Value::Number(a), Value::Number(b)) => {
                let product = integer::product(&a, &b, self.budget)?;
                Ok(self.short(product)?.into())
            }
            (Value::Infinity { positive }, other) | (other, Value::Infinity { positive }) => {
                Ok(Value::Infinity { positive: positive == other.sign()? })
            }
        }
    }

    fn quotient(&mut self, numer: Value, denom: Value) -> Result<Value> {
        match (numer, denom) {
            (Value::Infinity { .. }, Value::Infinity { .. }) => Err(ExactError::Undefined),
            (_, Value::Infinity { .. }) => Ok(BigRational::zero().into()),
            (_, Value::Number(denom)) if denom.is_zero() => Err(ExactError::Undefined),
            (numer, Value::Number(denom)) => self.product(numer, denom.recip().into()),
        }
    }

    /// Raises a number to a rational exponent, whose denominator needs a perfect root.
    fn power(&mut self, base: BigRational, exponent: &BigRational) -> Result<Value> {
        // Only 0, 1 and −1 allow exponents out of range, of which only sign and parity matter.
        let times = exponent.numer().to_i64().unwrap_or_else(|| {
            let size = i64::MAX - 1 + i64::from(exponent.numer().is_odd());
            if exponent.is_negative() { -size } else { size }
        });
        if exponent.is_integer() {
            return Ok(integer::power(&base, times, self.limit, self.budget)?.into());
        }

        if base.is_zero() {
            let positive = exponent.is_positive();
            return if positive { Ok(base.into()) } else { Err(ExactError::Undefined) };
        }

        let bits = integer::bits(&base);
        let degree = exponent.denom().to_u32().ok_or(ExactError::Opaque)?;
        // No negative number has a real even root, and with a degree greater than its number of bits, only 1 is a
        // perfect power.
        if base.is_negative() && degree.is_even() || u64::from(degree) > bits {
            return if base.is_one() { Ok(base.into()) } else { Err(ExactError::Opaque) };
        }
        if bits > integer::POINT_BITS {
            return Err(ExactError::TooLarge);
        }

        self.budget.spend(200 + bits * bits / 16)?;
        let numer = base.numer().nth_root(degree);
        let root = BigRational::new_raw(numer, base.denom().nth_root(degree));
        if root.pow(degree as i32) != base {
            return Err(ExactError::Opaque);
        }
        Ok(integer::power(&root, times, self.limit, self.budget)?.into())
    }

    /// Computes a finite sum or product, term by term.
    fn fold(&mut self, fold: &Fold) -> Result<Value> {
        let from = self.whole(&fold.from)?;
        let to = self.whole(&fold.to)?;
        let count = (&to - &from + 1u32).to_u64().ok_or(ExactError::Opaque)?;
        self.budget.spend(count.saturating_mul(32))?;

        let mut total: Value = match fold.kind {
            FoldKind::Sum => BigRational::zero().into(),
            FoldKind::Product => BigRational::one().into(),
        };
        for step in 0..count {
            // The index is removed from the scope before an error can leave the loop.
            self.scope.push((fold.index.clone(), BigRational::from_integer(&from + step)));
            let value = self.value(&fold.body);
            self.scope.pop();
            total = match fold.kind {
                FoldKind::Sum => self.sum(total, value?)?,
                FoldKind::Product => self.product(total, value?)?,
            };
        }

        Ok(total)
    }

    fn whole(&mut self, expr: &Expr) -> Result<BigInt> {
        let number = self.number(expr)?;
        number.is_integer().then(|| number.to_integer()).ok_or(ExactError::Opaque)
    }

    /// Computes the value of a part in which infinity has no meaning that is known here.
    fn number(&mut self, expr: &Expr) -> Result<BigRational> {
        match self.value(expr)? {
            Value::Number(number) => Ok(number),
            Value::Infinity { .. } => Err(ExactError::Opaque),
        }
    }
}
