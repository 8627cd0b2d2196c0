//! Encloses an expression's value at a point.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{ToPrimitive, Zero};

use super::{HIGHEST, unknowns::Unknowns, value::Value};
use crate::{
    algebra::{exact, real::Real},
    budget::{Budget, OverBudget},
    expr::{Constant, Expr, Fold, FoldKind},
};

/// Reason why there is no enclosure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EnclosureError {
    OverBudget,
    /// There is certainly no value here.
    Undefined,
    /// The value is not known at this precision, or at any.
    Unknown,
}

impl From<OverBudget> for EnclosureError {
    fn from(_: OverBudget) -> Self {
        EnclosureError::OverBudget
    }
}

pub(super) type Result<T> = std::result::Result<T, EnclosureError>;

pub(super) struct Evaluator<'e, 'b, R> {
    pub(super) prec: u32,
    pub(super) budget: &'b mut Budget,
    unknowns: &'b Unknowns<'e>,
    /// Values of the unknowns, as exact fractions here and as enclosures in `values`.
    coordinates: &'b [(i64, i64)],
    values: Vec<R>,
    /// Indices of the enclosing folds, with their current values.
    bound: Vec<(&'e str, i64)>,
    /// Binary logarithm of the largest intermediate value.
    pub(super) largest: i64,
    /// True if a term was too small next to its sum, or a number too long, to show at this precision. Agreement is
    /// no evidence then: `4 + e^{-10000}` is not 4.
    pub(super) lost: bool,
}

impl<'e, 'b, R: Real> Evaluator<'e, 'b, R> {
    pub(super) fn new(
        prec: u32,
        unknowns: &'b Unknowns<'e>,
        coordinates: &'b [(i64, i64)],
        budget: &'b mut Budget,
    ) -> Self {
        let value = |&(numer, denom): &(i64, i64)| R::ratio(&numer.into(), &denom.into(), prec);
        let values = coordinates.iter().map(value).collect();
        Evaluator {
            prec,
            budget,
            unknowns,
            coordinates,
            values,
            bound: vec![],
            largest: i64::MIN,
            lost: false,
        }
    }

    pub(super) fn eval(&mut self, expr: &'e Expr) -> Result<Value<R>> {
        let value = self.node(expr)?;
        self.largest = self.largest.max(value.log2());
        Ok(value)
    }

    fn node(&mut self, expr: &'e Expr) -> Result<Value<R>> {
        self.operation()?;
        let prec = self.prec;

        match expr {
            Expr::Number(value) | Expr::Decimal(value) => self.number(value),
            Expr::Symbol(name) => self.symbol(name),
            Expr::Constant(Constant::Pi) => Ok(Value::real(R::pi(prec))),
            Expr::Constant(Constant::E) => {
                self.elementary()?;
                Ok(Value::real(R::integer(1).exp(prec)))
            }
            Expr::Constant(Constant::I) => Ok(Value { re: R::integer(0), im: Some(R::integer(1)) }),
            Expr::Constant(Constant::Infinity | Constant::NotANumber) => {
                Err(EnclosureError::Undefined)
            }
            Expr::Sum(terms) => self.sum(terms),

            Expr::Product(factors) => {
                let mut product = Value::real(R::integer(1));
                for factor in factors {
                    product = product.mul(&self.eval(factor)?, prec);
                    self.operation()?;
                }
                Ok(product)
            }
            Expr::Negate(inner) => Ok(self.eval(inner)?.neg()),

            Expr::Quotient(parts) => {
                let numer = self.eval(&parts[0])?;
                let denom = self.eval(&parts[1])?;
                self.quotient(&numer, &denom, &parts[1])
            }

            Expr::Power(parts) => self.power(&parts[0], &parts[1]),

            Expr::Root(parts) => {
                let degree = self.exact(&parts[0])?.ok_or(EnclosureError::Unknown)?;
                if degree.is_zero() {
                    return Err(EnclosureError::Undefined);
                }

                let base = self.eval(&parts[1])?;
                self.rational_power(base, &degree.recip(), &parts[1])
            }
            Expr::Call(function, arguments) => self.call(*function, arguments),
            Expr::Fold(fold) => self.fold(fold),

            Expr::Apply(..) => {
                let value = self.unknowns.applied(expr).and_then(|index| self.values.get(index));
                value.cloned().map(Value::real).ok_or(EnclosureError::Unknown)
            }
            Expr::Degrees(inner) => {
                let turn =
                    R::pi(prec).div(&R::integer(180), prec).ok_or(EnclosureError::Unknown)?;
                Ok(self.eval(inner)?.mul(&Value::real(turn), prec))
            }
        }
    }

    /// Pays for an operation.
    pub(super) fn operation(&mut self) -> Result<()> {
        Ok(self.budget.spend(R::cost(self.prec).operation)?)
    }

    /// Pays for an elementary function.
    pub(super) fn elementary(&mut self) -> Result<()> {
        Ok(self.budget.spend(R::cost(self.prec).elementary)?)
    }

    pub(super) fn number(&mut self, value: &BigRational) -> Result<Value<R>> {
        let words = |value: &BigInt| value.bits() / 64;
        let limbs = u64::from(self.prec) / 64;
        let numer = words(value.numer());
        let denom = words(value.denom());
        self.budget.spend(numer + (numer + limbs) * denom)?;
        self.long(value);
        Ok(Value::real(R::ratio(value.numer(), value.denom(), self.prec)))
    }

    fn symbol(&mut self, name: &str) -> Result<Value<R>> {
        if let Some((_, value)) = self.bound.iter().rev().find(|(bound, _)| *bound == name) {
            return Ok(Value::real(R::integer(*value)));
        }
        let index = self.unknowns.symbol(name).ok_or(EnclosureError::Unknown)?;
        self.values.get(index).cloned().map(Value::real).ok_or(EnclosureError::Unknown)
    }

    fn sum(&mut self, terms: &'e [Expr]) -> Result<Value<R>> {
        let mut sum = Value::real(R::integer(0));
        for term in terms {
            let term = self.eval(term)?;
            sum = self.add(&sum, &term);
        }
        Ok(sum)
    }

    fn add(&mut self, sum: &Value<R>, term: &Value<R>) -> Value<R> {
        let total = sum.add(term, self.prec);
        if self.prec > 0 {
            // A part is lost if it is small, because products may hide its powers: (a − d)(a + d) is a² − d².
            let shows = total.log2().saturating_sub(i64::from(self.margin()));
            let hides = |part: &Value<R>| part.is_nonzero() && part.log2() < shows;
            self.lost |= hides(term) || hides(sum);
        }

        total
    }

    /// Notes whether an argument is too close to zero to show in a function's value: cos e^{-1000} is not 1. An
    /// argument may add as little to the value as its square.
    pub(super) fn faint(&mut self, nonzero: bool, log2: i64) {
        self.lost |= self.prec > 0 && nonzero && log2 < 8 - i64::from(self.prec) / 2;
    }

    /// Returns how many bits a part may be smaller than the whole so that agreement vouches for it. Functions are
    /// computed to no more than the highest precision.
    fn margin(&self) -> u32 {
        self.prec.min(HIGHEST) / 4
    }

    /// Notes whether a number has more digits than agreement can vouch for.
    pub(super) fn long(&mut self, number: &BigRational) {
        let bits = number.numer().bits().max(number.denom().bits());
        self.lost |= self.prec > 0 && bits > u64::from(self.margin());
    }

    pub(super) fn quotient(
        &mut self,
        numer: &Value<R>,
        denom: &Value<R>,
        written: &Expr,
    ) -> Result<Value<R>> {
        self.operation()?;
        match numer.div(denom, self.prec) {
            Some(value) => Ok(value),
            None if denom.is_zero() => Err(EnclosureError::Undefined),
            None => Err(match self.exact(written)? {
                Some(value) if value.is_zero() => EnclosureError::Undefined,
                _ => EnclosureError::Unknown,
            }),
        }
    }

    /// Returns the rational value of an expression at this point, if it is easy to find.
    pub(super) fn exact(&mut self, expr: &Expr) -> Result<Option<BigRational>> {
        let symbol = |name: &str| {
            let bound = self.bound.iter().rev().find(|(bound, _)| *bound == name);
            let free = || self.unknowns.symbol(name).and_then(|index| self.coordinates.get(index));
            bound.map(|(_, value)| (*value, 1)).or_else(|| free().copied())
        };
        Ok(exact::at_point(expr, &symbol, self.budget)?)
    }

    /// Tells whether the value is the same at all points. Such a value need not be real.
    pub(super) fn is_constant(&mut self, expr: &Expr) -> Result<bool> {
        if self.values.is_empty() {
            return Ok(true);
        }
        let mut bound = self.bound.iter().map(|(name, _)| *name).collect();
        Ok(!self.unknowns.occur_in(expr, &mut bound, self.budget)?)
    }

    fn fold(&mut self, fold: &'e Fold) -> Result<Value<R>> {
        let from = self.exact(&fold.from)?;
        let to = self.exact(&fold.to)?;
        let (Some(from), Some(to)) = (from, to) else { return Err(EnclosureError::Unknown) };
        if !from.is_integer() || !to.is_integer() {
            return Err(EnclosureError::Undefined);
        }

        let mut total = Value::real(R::integer(i64::from(fold.kind == FoldKind::Product)));
        if to < from {
            return Ok(total);
        }
        let (Some(from), Some(to)) = (from.to_i64(), to.to_i64()) else {
            return Err(EnclosureError::OverBudget);
        };

        let terms = (to as i128 - from as i128 + 1) as u128;
        // A fold that the budget can't pay for ends before it begins.
        if terms * u128::from(R::cost(self.prec).operation) > u128::from(self.budget.left()) {
            self.budget.spend(u64::MAX)?;
        }

        for index in from..=to {
            self.operation()?;
            self.bound.push((&fold.index, index));
            let term = self.eval(&fold.body);
            self.bound.pop();
            let term = term?;
            total = match fold.kind {
                FoldKind::Sum => self.add(&total, &term),
                FoldKind::Product => total.mul(&term, self.prec),
            };
        }

        Ok(total)
    }
}
