//! What can be told from an expression as it was written: that it has a value, what occurs in it.

use num_rational::BigRational;
use num_traits::{Signed, Zero};

use super::{
    EXACT_SHARE, MODULAR_SHARE,
    atom::Algebra,
    exact::Value,
    modular,
    numeric::{self, Agreement},
};
use crate::{
    budget::Budget,
    expr::{Constant, Expr, Function},
};

/// Whether an expression is sure to have a value: no denominator, no argument of a logarithm, no
/// base of a power that may be zero in disguise.
pub(super) fn has_value(e: &Expr, budget: &mut Budget) -> bool {
    let parts_have =
        |budget: &mut Budget| children(e).into_iter().all(|part| has_value(part, budget));
    if budget.spend(8).is_err() || !parts_have(budget) {
        return false;
    }
    match e {
        Expr::Constant(Constant::Infinity) => false,
        Expr::Quotient(parts) => is_nonzero(&parts[1], budget),
        Expr::Root(parts) => {
            matches!(&parts[0], Expr::Number(degree) if degree.is_positive())
        }
        Expr::Power(parts) => {
            matches!(&parts[1], Expr::Number(exponent) if exponent.is_positive())
                || is_nonzero(&parts[0], budget)
        }
        Expr::Call(Function::Ln, parts) => parts.iter().all(|part| is_nonzero(part, budget)),
        Expr::Call(function, parts) => match function {
            Function::Sin
            | Function::Cos
            | Function::Arctan
            | Function::Sinh
            | Function::Cosh
            | Function::Tanh
            | Function::Exp
            | Function::Abs
            | Function::Re
            | Function::Im
            | Function::Conjugate => true,
            Function::Factorial | Function::DoubleFactorial => {
                matches!(parts.as_slice(), [Expr::Number(n)] if n.is_integer() && !n.is_negative())
                    || matches!(parts.as_slice(), [Expr::Call(Function::Factorial, _)])
            }
            Function::Binomial | Function::Permutations => parts
                .iter()
                .all(|n| matches!(n, Expr::Number(n) if n.is_integer() && !n.is_negative())),
            // The others have values here and there, which enclosures have to find.
            _ => equals_itself(e, budget),
        },
        Expr::Fold(_) => equals_itself(e, budget),
        _ => true,
    }
}

fn equals_itself(e: &Expr, budget: &mut Budget) -> bool {
    matches!(numeric::agree(e, e, budget), Ok(Agreement::Close { .. }))
}

/// Whether an expression is sure not to be zero, or, for one with unknown functions, not known to
/// be.
fn is_nonzero(e: &Expr, budget: &mut Budget) -> bool {
    let mut attempt = budget.portion(EXACT_SHARE);
    let mut algebra = Algebra::new(&mut attempt);
    let exact = match algebra.evaluate(e) {
        Ok(Value::Number(number)) => Some(!number.is_zero()),
        Ok(Value::Form(form)) if algebra.is_surely_nonzero(&form.numer) => Some(true),
        Ok(Value::Form(_)) if holds(e, &|part| matches!(part, Expr::Apply(..))) => Some(true),
        _ => None,
    };
    budget.settle(attempt);
    exact.unwrap_or_else(|| {
        let mut attempt = budget.portion(MODULAR_SHARE);
        let nonzero = modular::is_nonzero(e, &mut attempt);
        budget.settle(attempt);
        nonzero || {
            let zero = Expr::Number(BigRational::zero());
            matches!(numeric::agree(e, &zero, budget), Ok(Agreement::Distinct))
        }
    })
}

/// Two expressions in an order that does not depend on how they were given, so that neither does
/// what becomes of them: where the budget ends, and which of several normal forms is met first.
pub(super) fn arranged<'e>(a: &'e Expr, b: &'e Expr) -> (&'e Expr, &'e Expr) {
    if fingerprint(a) <= fingerprint(b) { (a, b) } else { (b, a) }
}

/// A word that tells most expressions apart, the same on every platform and with every compiler.
pub(super) fn fingerprint(e: &Expr) -> u64 {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    hash.expression(e);
    hash.0
}

/// The hash FNV-1a.
struct Fnv(u64);

impl Fnv {
    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Bytes of any number, whose end can be told.
    fn text(&mut self, bytes: &[u8]) {
        self.bytes(&(bytes.len() as u64).to_le_bytes());
        self.bytes(bytes);
    }

    fn number(&mut self, number: &BigRational) {
        self.text(&number.numer().to_signed_bytes_le());
        self.text(&number.denom().to_signed_bytes_le());
    }

    fn expression(&mut self, e: &Expr) {
        match e {
            Expr::Number(number) => {
                self.bytes(&[0]);
                self.number(number);
            }
            Expr::Decimal(number) => {
                self.bytes(&[1]);
                self.number(number);
            }
            Expr::Symbol(name) => {
                self.bytes(&[2]);
                self.text(name.as_bytes());
            }
            Expr::Constant(constant) => self.bytes(&[3, *constant as u8]),
            Expr::Sum(_) => self.bytes(&[4]),
            Expr::Product(_) => self.bytes(&[5]),
            Expr::Negate(_) => self.bytes(&[6]),
            Expr::Quotient(_) => self.bytes(&[7]),
            Expr::Power(_) => self.bytes(&[8]),
            Expr::Root(_) => self.bytes(&[9]),
            Expr::Call(function, _) => self.bytes(&[10, *function as u8]),
            Expr::Fold(fold) => {
                self.bytes(&[11, fold.kind as u8]);
                self.text(fold.index.as_bytes());
            }
            Expr::Apply(name, _) => {
                self.bytes(&[12]);
                self.text(name.as_bytes());
            }
            Expr::Degrees(_) => self.bytes(&[13]),
        }
        let parts = children(e);
        self.bytes(&(parts.len() as u64).to_le_bytes());
        parts.into_iter().for_each(|part| self.expression(part));
    }
}

pub(super) fn holds_infinity(e: &Expr) -> bool {
    holds(e, &|part| matches!(part, Expr::Constant(Constant::Infinity)))
}

fn holds(e: &Expr, what: &dyn Fn(&Expr) -> bool) -> bool {
    what(e) || children(e).into_iter().any(|part| holds(part, what))
}

/// The parts of an expression.
fn children(e: &Expr) -> Vec<&Expr> {
    match e {
        Expr::Number(_) | Expr::Decimal(_) | Expr::Symbol(_) | Expr::Constant(_) => vec![],
        Expr::Sum(parts) | Expr::Product(parts) | Expr::Call(_, parts) | Expr::Apply(_, parts) => {
            parts.iter().collect()
        }
        Expr::Negate(inner) | Expr::Degrees(inner) => vec![inner],
        Expr::Quotient(parts) | Expr::Power(parts) | Expr::Root(parts) => parts.iter().collect(),
        Expr::Fold(fold) => vec![&fold.from, &fold.to, &fold.body],
    }
}
