//! Properties of an expression as it was written: its parts and its fingerprint.

use num_rational::BigRational;

use crate::expr::{Constant, Expr};

/// Puts two expressions into an order that does not depend on which one comes first. So neither do the results,
/// such as the step at which the budget ends, or the normal form that is met first.
pub(super) fn arranged<'e>(a: &'e Expr, b: &'e Expr) -> (&'e Expr, &'e Expr) {
    crate::parts::gate!(OrderOfSides, (a, b));
    if fingerprint(a) <= fingerprint(b) { (a, b) } else { (b, a) }
}

/// Returns a hash that tells most expressions apart. It is the same on every platform and with every compiler.
pub(super) fn fingerprint(e: &Expr) -> u64 {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    hash.expression(e);
    hash.0
}

/// FNV-1a with 64 bits.
struct Fnv(u64);

impl Fnv {
    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Hashes the length and then the bytes, so that neighbouring texts do not run together.
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

pub(super) fn holds(e: &Expr, what: &dyn Fn(&Expr) -> bool) -> bool {
    what(e) || children(e).into_iter().any(|part| holds(part, what))
}

/// Returns the parts of an expression.
pub(super) fn children(e: &Expr) -> Vec<&Expr> {
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
