//! Residues: values of rational expressions modulo primes, without ever computing them.
//!
//! If two expressions are equal, so are their residues wherever no denominator vanishes; unequal
//! residues therefore prove that they differ. Equal residues only make it likely that they are
//! equal (Schwartz 1980, Zippel 1979): a rational function that is not zero, of degree d, is zero at
//! a random point modulo p with a probability of at most d/p. The points are not random but hashes
//! of the variables' names, and where there is no variable, the residues of a number that was not
//! made for these primes are taken to be as good as random.

use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{Signed, ToPrimitive};

use super::super::{
    budget::Budget,
    expr::{Expr, Fold, FoldKind, Function},
};
use super::{Stop, atom::Algebra, exact::Value};

/// Primes p between 2^60 and 2^61 with (p−1)/2, (p−3)/4 and (p−7)/8 prime as well, so that a power
/// has a large period in its exponent, and so has a power in that exponent, twice more.
const PRIMES: [u64; 3] =
    [2_161_100_818_108_548_959, 1_695_018_105_716_554_799, 1_682_410_920_919_819_439];

/// Factors of moduli are sought up to this bound.
const TRIAL_BOUND: u64 = 1 << 16;

/// Chances of error above this are not good enough: 2 to the minus 64.
const ENOUGH: u32 = 64;

/// What residues say of two expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Residues {
    Different,
    /// They agree, which unequal ones do with a chance of 2^-bits.
    Agree {
        bits: u32,
    },
}

/// Compares two expressions by their residues.
pub(super) fn compare(left: &Expr, right: &Expr, budget: &mut Budget) -> Result<Residues, Stop> {
    let degree = degree(left) + degree(right) + 1.0;
    let each = (60.0 - degree.log2()).floor().max(0.0) as u32;
    let mut bits = 0;
    for prime in PRIMES {
        let mut ring = Ring { prime: true, scope: vec![], budget };
        let residue = ring.value(left, prime).and_then(|a| Ok((a, ring.value(right, prime)?)));
        match residue {
            Ok((a, b)) if a != b => return Ok(Residues::Different),
            Ok(_) => bits += each,
            // A denominator may vanish modulo one prime and not modulo another.
            Err(Stop::Undefined) => {}
            Err(stop) => return Err(stop),
        }
    }
    if bits < ENOUGH { Err(Stop::Opaque) } else { Ok(Residues::Agree { bits }) }
}

/// Whether a residue shows that an expression is not zero.
pub(super) fn is_nonzero(expr: &Expr, budget: &mut Budget) -> bool {
    PRIMES.iter().any(|prime| {
        let mut ring = Ring { prime: true, scope: vec![], budget: &mut *budget };
        ring.value(expr, *prime).is_ok_and(|residue| residue != 0)
    })
}

/// The remainder of a whole number, which is given by whole numbers alone; none if it is not.
pub(super) fn residue(expr: &Expr, modulus: u64, budget: &mut Budget) -> Result<Option<u64>, Stop> {
    let mut ring = Ring { prime: false, scope: vec![], budget };
    match ring.value(expr, modulus) {
        Ok(residue) => Ok(Some(residue)),
        Err(Stop::OverBudget) => Err(Stop::OverBudget),
        Err(_) => Ok(None),
    }
}

struct Ring<'b> {
    /// Whether the modulus is one of [`PRIMES`], so that there are quotients and points.
    prime: bool,
    scope: Vec<(Box<str>, BigInt)>,
    budget: &'b mut Budget,
}

impl Ring<'_> {
    fn value(&mut self, expr: &Expr, modulus: u64) -> Result<u64, Stop> {
        self.budget.spend(8)?;
        match expr {
            Expr::Number(number) | Expr::Decimal(number) => self.number(number, modulus),
            Expr::Symbol(name) => match self.scope.iter().rev().find(|(index, _)| index == name) {
                Some((_, value)) => Ok(reduce(value, modulus)),
                None if self.prime => Ok(point(name, modulus)),
                None => Err(Stop::Opaque),
            },
            Expr::Sum(terms) => terms.iter().try_fold(0, |sum, term| {
                let term = self.value(term, modulus)?;
                Ok((u128::from(sum) + u128::from(term)).rem_euclid(modulus.into()) as u64)
            }),
            Expr::Product(factors) => factors.iter().try_fold(1 % modulus, |product, factor| {
                Ok(multiply(product, self.value(factor, modulus)?, modulus))
            }),
            Expr::Negate(inner) => Ok(negate(self.value(inner, modulus)?, modulus)),
            Expr::Quotient(parts) => {
                let numer = self.value(&parts[0], modulus)?;
                let denom = self.value(&parts[1], modulus)?;
                Ok(multiply(numer, self.inverse(denom, modulus)?, modulus))
            }
            Expr::Power(parts) => self.power(&parts[0], &parts[1], modulus),
            Expr::Call(function, arguments) => self.call(*function, arguments, modulus),
            Expr::Fold(fold) => self.fold(fold, modulus),
            Expr::Constant(_) | Expr::Root(_) | Expr::Apply(..) | Expr::Degrees(_) => {
                Err(Stop::Opaque)
            }
        }
    }

    fn number(&mut self, number: &BigRational, modulus: u64) -> Result<u64, Stop> {
        self.budget.spend(super::integer::bits(number) / 64)?;
        let numer = reduce(number.numer(), modulus);
        if number.is_integer() {
            return Ok(numer);
        }
        let denom = reduce(number.denom(), modulus);
        Ok(multiply(numer, self.inverse(denom, modulus)?, modulus))
    }

    fn inverse(&mut self, residue: u64, modulus: u64) -> Result<u64, Stop> {
        if !self.prime {
            return Err(Stop::Opaque);
        }
        if residue == 0 {
            return Err(Stop::Undefined);
        }
        self.budget.spend(128)?;
        Ok(power(residue, modulus - 2, modulus))
    }

    fn power(&mut self, base: &Expr, exponent: &Expr, modulus: u64) -> Result<u64, Stop> {
        let base = self.value(base, modulus)?;
        self.budget.spend(256)?;
        if let Some(exponent) = self.small(exponent)? {
            if exponent <= 0 && base == 0 {
                return Err(Stop::Undefined);
            }
            let raised = power(base, exponent.unsigned_abs(), modulus);
            return if exponent < 0 { self.inverse(raised, modulus) } else { Ok(raised) };
        }
        if let Expr::Negate(exponent) = exponent {
            let raised = self.huge_power(base, exponent, modulus)?;
            return self.inverse(raised, modulus);
        }
        self.huge_power(base, exponent, modulus)
    }

    /// A power whose exponent is too large to be computed: powers repeat with a period that divides
    /// Carmichael's function of the modulus, from the exponent 64 on at the latest.
    fn huge_power(&mut self, base: u64, exponent: &Expr, modulus: u64) -> Result<u64, Stop> {
        if log2_at_least(exponent).is_none_or(|log2| log2 < 6.0) {
            return Err(Stop::Opaque);
        }
        let period = if self.prime { modulus - 1 } else { carmichael(modulus, self.budget)? };
        let mut ring = Ring { prime: false, scope: vec![], budget: &mut *self.budget };
        let rest = ring.value(exponent, period)?;
        Ok(power(base, rest + period * 64u64.div_ceil(period), modulus))
    }

    /// A whole number that fits into a word.
    fn small(&mut self, expr: &Expr) -> Result<Option<i64>, Stop> {
        if let Expr::Number(number) = expr {
            return whole(number).map(|number| number.to_i64()).ok_or(Stop::Opaque);
        }
        let mut algebra = Algebra::new(self.budget);
        for (index, value) in &self.scope {
            algebra.scope.push((index.clone(), BigRational::from_integer(value.clone())));
        }
        match algebra.evaluate(expr) {
            Ok(Value::Number(number)) => whole(&number).map(|n| n.to_i64()).ok_or(Stop::Opaque),
            Err(Stop::OverBudget) => Err(Stop::OverBudget),
            _ => Ok(None),
        }
    }

    /// A word that a factorial or the like starts from, with its cost paid.
    fn natural(&mut self, expr: &Expr, modulus: u64) -> Result<u64, Stop> {
        let natural = self.small(expr)?.and_then(|number| u64::try_from(number).ok());
        natural.filter(|n| !self.prime || *n < modulus).ok_or(Stop::Opaque)
    }

    fn call(&mut self, function: Function, arguments: &[Expr], modulus: u64) -> Result<u64, Stop> {
        match (function, arguments) {
            (Function::Factorial, [n]) => {
                let n = self.natural(n, modulus)?;
                self.falling(n, n, 1, modulus)
            }
            (Function::DoubleFactorial, [n]) => {
                let n = self.natural(n, modulus)?;
                self.falling(n, n / 2, 2, modulus)
            }
            (Function::Permutations, [n, k]) => {
                let (n, k) = (self.natural(n, modulus)?, self.natural(k, modulus)?);
                if k > n { Ok(0) } else { self.falling(n, k, 1, modulus) }
            }
            (Function::Binomial, [n, k]) => {
                let (n, k) = (self.natural(n, modulus)?, self.natural(k, modulus)?);
                if k > n {
                    return Ok(0);
                }
                let k = k.min(n - k);
                let numer = self.falling(n, k, 1, modulus)?;
                let denom = self.falling(k, k, 1, modulus)?;
                Ok(multiply(numer, self.inverse(denom, modulus)?, modulus))
            }
            (Function::Mod, [number, divisor]) if self.scope.is_empty() => {
                match self.small(divisor)? {
                    Some(divisor) if divisor > 0 => {
                        let rest = residue(number, divisor.unsigned_abs(), self.budget)?;
                        rest.map(|rest| rest % modulus).ok_or(Stop::Opaque)
                    }
                    _ => Err(Stop::Opaque),
                }
            }
            _ => Err(Stop::Opaque),
        }
    }

    /// `n (n − step) …` of so many factors.
    fn falling(&mut self, n: u64, count: u64, step: u64, modulus: u64) -> Result<u64, Stop> {
        self.budget.spend(count.saturating_mul(2))?;
        Ok((0..count).fold(1 % modulus, |product, i| multiply(product, n - i * step, modulus)))
    }

    fn fold(&mut self, fold: &Fold, modulus: u64) -> Result<u64, Stop> {
        let (from, to) = (self.small(&fold.from)?, self.small(&fold.to)?);
        let (Some(from), Some(to)) = (from, to) else { return Err(Stop::Opaque) };
        if i128::from(to) + 1 < i128::from(from) {
            return Err(Stop::Opaque);
        }
        self.budget.spend(to.abs_diff(from).saturating_mul(16))?;
        let mut result = if fold.kind == FoldKind::Sum { 0 } else { 1 % modulus };
        for index in from..=to {
            self.scope.push((fold.index.clone(), index.into()));
            let value = self.value(&fold.body, modulus);
            self.scope.pop();
            result = match fold.kind {
                FoldKind::Sum => {
                    ((u128::from(result) + u128::from(value?)) % u128::from(modulus)) as u64
                }
                FoldKind::Product => multiply(result, value?, modulus),
            };
        }
        Ok(result)
    }
}

fn whole(number: &BigRational) -> Option<&BigInt> {
    number.is_integer().then(|| number.numer())
}

fn reduce(number: &BigInt, modulus: u64) -> u64 {
    let rest = (number.magnitude() % modulus).to_u64().unwrap_or_default();
    if number.is_negative() { negate(rest, modulus) } else { rest }
}

fn negate(residue: u64, modulus: u64) -> u64 {
    if residue == 0 { 0 } else { modulus - residue }
}

fn multiply(left: u64, right: u64, modulus: u64) -> u64 {
    (u128::from(left) * u128::from(right) % u128::from(modulus)) as u64
}

fn power(mut base: u64, mut exponent: u64, modulus: u64) -> u64 {
    let mut power = 1 % modulus;
    while exponent > 0 {
        if exponent & 1 == 1 {
            power = multiply(power, base, modulus);
        }
        base = multiply(base, base, modulus);
        exponent >>= 1;
    }
    power
}

/// Where a variable is put: a hash (FNV-1a, then the mixer of SplitMix64) of its name.
fn point(name: &str, modulus: u64) -> u64 {
    let mut hash = modulus;
    for byte in name.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (hash ^ (hash >> 31)) % modulus
}

/// Whether a word is prime, by the first twelve primes as bases (enough below 2^64: Sorenson and
/// Webster 2015).
pub(super) fn is_prime(number: u64) -> bool {
    const BASES: [u64; 12] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37];
    if number < 2 || BASES.iter().any(|base| number.is_multiple_of(*base)) {
        return BASES.contains(&number);
    }
    let twos = (number - 1).trailing_zeros();
    BASES.iter().all(|base| {
        let mut value = power(*base, (number - 1) >> twos, number);
        value == 1
            || (0..twos).any(|_| {
                let before = value;
                value = multiply(value, value, number);
                before == number - 1
            })
    })
}

/// Carmichael's function: a period of all powers of units modulo a number.
fn carmichael(number: u64, budget: &mut Budget) -> Result<u64, Stop> {
    let (mut left, mut divisor, mut period) = (number, 2, 1u64);
    while left > 1 {
        budget.spend(4_000)?;
        if is_prime(left) {
            return Ok(period.lcm(&(left - 1)));
        }
        while !left.is_multiple_of(divisor) {
            budget.spend(2)?;
            divisor += 1;
            if divisor > TRIAL_BOUND {
                return Err(Stop::Opaque);
            }
        }
        left /= divisor;
        let mut group = divisor - 1;
        while left.is_multiple_of(divisor) {
            left /= divisor;
            group *= divisor;
        }
        // Modulo 8, 16, … no power of a unit takes every odd value.
        period = period.lcm(&if divisor == 2 && group > 2 { group / 2 } else { group });
    }
    Ok(period)
}

/// A lower bound for the binary logarithm of an expression, if it is sure to be a whole number of at
/// least one.
fn log2_at_least(expr: &Expr) -> Option<f64> {
    let bound = match expr {
        Expr::Number(number) => {
            let natural = whole(number).filter(|number| number.is_positive())?;
            natural.bits() as f64 - 1.0
        }
        Expr::Sum(terms) => {
            let bounds: Option<Vec<f64>> = terms.iter().map(log2_at_least).collect();
            bounds?.into_iter().fold(0.0, f64::max)
        }
        Expr::Product(factors) => {
            let bounds: Option<Vec<f64>> = factors.iter().map(log2_at_least).collect();
            bounds?.into_iter().sum()
        }
        Expr::Power(parts) => {
            let (base, exponent) = (log2_at_least(&parts[0])?, log2_at_least(&parts[1])?);
            // 0 · ∞ is not a number, and a bound of 0 is what a base of one has.
            if base == 0.0 { 0.0 } else { base * exponent.exp2() }
        }
        Expr::Call(Function::Factorial, arguments) => match arguments.as_slice() {
            // n! is at least 2^(n−1).
            [n] => log2_at_least(n)?.exp2() - 1.0,
            _ => return None,
        },
        _ => return None,
    };
    (!bound.is_nan()).then_some(bound)
}

/// A bound for the degree of numerator and denominator together, if the expression is a rational
/// function; infinite if none is known.
fn degree(expr: &Expr) -> f64 {
    match expr {
        Expr::Number(_) | Expr::Decimal(_) | Expr::Constant(_) => 0.0,
        Expr::Symbol(_) => 1.0,
        Expr::Sum(terms) | Expr::Product(terms) => terms.iter().map(degree).sum(),
        Expr::Negate(inner) => degree(inner),
        Expr::Quotient(parts) => degree(&parts[0]) + degree(&parts[1]),
        Expr::Power(parts) => match (degree(&parts[0]), &parts[1]) {
            (0.0, _) => 0.0,
            (base, Expr::Number(exponent)) => {
                base * exponent.to_f64().map_or(f64::INFINITY, f64::abs)
            }
            (base, Expr::Negate(exponent)) => match exponent.as_ref() {
                Expr::Number(exponent) => base * exponent.to_f64().map_or(f64::INFINITY, f64::abs),
                _ => f64::INFINITY,
            },
            _ => f64::INFINITY,
        },
        Expr::Fold(fold) => match (&fold.from, &fold.to) {
            (Expr::Number(from), Expr::Number(to)) => {
                let count = (to - from).to_f64().map_or(f64::INFINITY, |count| count.abs() + 1.0);
                count * degree(&fold.body)
            }
            _ => f64::INFINITY,
        },
        _ => 0.0,
    }
}
