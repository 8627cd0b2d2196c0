//! Whether two scalar expressions are the same, and which is greater.
// TEMPORARY STUB until the real one lands.
use std::cmp::Ordering;
use num_rational::BigRational;
use num_traits::ToPrimitive;
use super::{Certainty, budget::Budget, expr::*};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Decision {
    Equal(Certainty),
    Different(Certainty),
    /// One side has no value: division by zero, ∞ − ∞, ….
    Undefined,
    Undecided(Why),
}

/// Why two expressions could not be told apart or together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The budget ran out.
    OverBudget,
    /// The methods here do not decide it.
    OutOfReach,
}
fn ev(e: &Expr, p: u32) -> f64 {
    use Expr::*;
    match e {
        Number(v) | Decimal(v) => v.to_f64().unwrap(),
        Symbol(s) => { let h: u32 = s.bytes().fold(7u32, |h, b| h.wrapping_mul(31).wrapping_add(b as u32)); 0.3 + ((h.wrapping_mul(2654435761).wrapping_add(p*7919)) % 1000) as f64 / 500.0 }
        Constant(super::expr::Constant::Pi) => std::f64::consts::PI,
        Constant(super::expr::Constant::E) => std::f64::consts::E,
        Constant(super::expr::Constant::Infinity) => f64::INFINITY,
        Constant(_) => f64::NAN,
        Sum(v) => v.iter().map(|x| ev(x, p)).sum(),
        Product(v) => v.iter().map(|x| ev(x, p)).product(),
        Negate(x) => -ev(x, p),
        Quotient(t) => ev(&t[0], p) / ev(&t[1], p),
        Power(t) => ev(&t[0], p).powf(ev(&t[1], p)),
        Root(t) => { let (n, x) = (ev(&t[0], p), ev(&t[1], p)); if x < 0.0 && n == 3.0 { -(-x).powf(1.0 / n) } else { x.powf(1.0 / n) } }
        Degrees(x) => ev(x, p) * std::f64::consts::PI / 180.0,
        Call(f, a) => { let x = ev(&a[0], p); match f {
            Function::Sin => x.sin(), Function::Cos => x.cos(), Function::Tan => x.tan(), Function::Sec => 1.0/x.cos(), Function::Ln => x.ln(), Function::Exp => x.exp(), Function::Abs => x.abs(), Function::Floor => x.floor(),
            Function::Arctan => x.atan(), Function::Arcsin => x.asin(), Function::Arccos => x.acos(), Function::Log => ev(&a[1], p).ln() / x.ln(),
            Function::Factorial => (1..=x.min(200.0) as u64).map(|k| k as f64).product(), Function::Binomial => { let (n, k) = (x, ev(&a[1], p)); (0..k as u64).map(|j| (n - j as f64) / (j as f64 + 1.0)).product() }
            Function::Mod => x.rem_euclid(ev(&a[1], p)), _ => f64::NAN } }
        Fold(f) => { let (a, b) = (ev(&f.from, p) as i64, ev(&f.to, p) as i64); if b - a > 1000 { return f64::NAN } let it = (a..=b).map(|k| ev(&f.body.clone().with(&f.index, &Expr::Number(num_bigint::BigInt::from(k).into())), p)); if f.kind == FoldKind::Sum { it.sum() } else { it.product() } }
        Apply(n, a) => (n.len() as f64 + a.iter().map(|x| ev(x, p)).sum::<f64>()).sin(),
    }
}
fn close(x: f64, y: f64) -> Decision { if x.is_nan() || y.is_nan() { Decision::Undecided(Why::OutOfReach) } else if x == y || (x - y).abs() <= 1e-12 * (x.abs() + y.abs()) + 1e-15 { Decision::Equal(Certainty::Probable { bits: 40 }) } else { Decision::Different(Certainty::Proved) } }
pub(crate) fn equal(a: &Expr, b: &Expr, _: &mut Budget) -> Decision {
    for p in 0..4 { let d = close(ev(a, p), ev(b, p)); if !matches!(d, Decision::Equal(_)) { return d } }
    Decision::Equal(Certainty::Probable { bits: 40 })
}
pub(crate) fn equal_rounded(a: &Expr, b: &Expr, places: u32, _: &mut Budget) -> Decision {
    for p in 0..4 { if (ev(a, p) - ev(b, p)).abs() > 0.5000001 * 10f64.powi(-(places as i32)) { return Decision::Different(Certainty::Proved) } }
    Decision::Equal(Certainty::Proved)
}
pub(crate) fn order(a: &Expr, b: &Expr, _: &mut Budget) -> Option<Ordering> { let (x, y) = (ev(a, 0), ev(b, 0)); if (x - y).abs() < 1e-12 { return Some(Ordering::Equal) } x.partial_cmp(&y) }
pub(crate) fn proportional(a: &Expr, b: &Expr, _: &mut Budget) -> Option<(bool, Certainty)> { let k = ev(a, 0) / ev(b, 0); for p in 1..4 { if (ev(a, p) / ev(b, p) - k).abs() > 1e-9 { return None } } Some((k > 0.0, Certainty::Proved)) }
pub(crate) fn rational(e: &Expr, _: &mut Budget) -> Option<BigRational> { match e { Expr::Number(v) => Some(v.clone()), _ => { let x = ev(e, 0); (x.is_finite() && x == x.round()).then(|| num_bigint::BigInt::from(x as i64).into()) } } }
pub(crate) fn canonical(e: &Expr, _: &mut Budget) -> String { format!("{e:?}") }
