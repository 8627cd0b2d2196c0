//! Residues: the values of rational expressions modulo primes, found without computing the values themselves.
//!
//! If two expressions are equal, so are their residues wherever no denominator vanishes. Unequal residues
//! therefore prove that the expressions differ. Equal residues only make equality likely (Schwartz 1980, Zippel
//! 1979): a rational function that is not zero, of degree d, is zero at a random point modulo p with a probability
//! of at most d/p. The points here are not random but hashes of the variables' names. If there is no variable, the
//! residues of a number that was not made for these primes are taken to be as good as random. The expressions
//! decide which three of the primes are used, so a number made for three primes rarely meets them. This makes such
//! numbers harder to find, but proves nothing, since the choice can be foreseen.

use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{Signed, ToPrimitive};

use super::{
    atom::Algebra,
    exact::Value,
    limits::AlgebraError,
    modular_u64::{is_prime, multiply, negate, power},
    tree::fingerprint,
};
use crate::{
    budget::Budget,
    expr::{Expr, Fold, FoldKind, Function},
};

/// Primes p between 2^60 and 2^61 with (p−1)/2, (p−3)/4 and (p−7)/8 prime as well. So powers have large periods in
/// their exponents, and so do powers in these exponents, and powers in the exponents of those.
pub(super) const PRIMES: [u64; 24] = [
    1_689_947_721_403_419_119,
    1_335_162_335_793_911_279,
    1_276_455_702_454_238_399,
    1_170_595_399_475_916_719,
    1_675_602_189_790_456_079,
    1_790_852_444_147_127_839,
    2_178_451_678_106_711_999,
    1_919_742_233_596_114_559,
    1_700_667_675_768_918_719,
    2_171_608_238_533_547_279,
    1_345_584_475_298_799_839,
    2_040_389_562_004_452_719,
    2_227_492_302_313_927_679,
    1_190_117_917_482_054_479,
    1_400_322_735_050_984_639,
    1_166_752_744_680_389_039,
    2_097_538_803_096_148_319,
    1_232_459_515_483_564_799,
    2_005_065_792_818_877_359,
    1_980_722_696_797_266_959,
    1_193_243_906_152_317_359,
    2_238_110_430_230_858_159,
    1_243_426_952_773_740_719,
    1_303_123_770_462_035_279,
];

/// Bound up to which factors of moduli are sought.
const TRIAL_BOUND: u64 = 1 << 16;

/// Bits of certainty that are enough: the chance of error is then at most 2^-64.
const ENOUGH: u32 = 64;

/// Verdict of the residues on two expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Residues {
    Different,
    /// The residues agree. Unequal expressions agree with a chance of 2^-bits.
    Agree {
        bits: u32,
    },
}

/// Compares two expressions by their residues.
pub(super) fn compare(
    left: &Expr,
    right: &Expr,
    budget: &mut Budget,
) -> Result<Residues, AlgebraError> {
    crate::parts::gate!(Residues, Err(AlgebraError::Opaque));
    let degree = degree(left).saturating_add(degree(right)).saturating_add(1);
    // Each prime adds its 60 bits, less the binary logarithm of the degree, rounded up.
    let bits_per_prime = 60u32.saturating_sub(64 - (degree - 1).leading_zeros());
    let mut bits = 0;

    for prime in chosen(fingerprint(left).wrapping_add(fingerprint(right))) {
        let mut ring = Ring { prime: true, scope: vec![], budget };
        let residue = ring.value(left, prime).and_then(|a| Ok((a, ring.value(right, prime)?)));
        match residue {
            Ok((a, b)) if a != b => return Ok(Residues::Different),
            Ok(_) => bits += bits_per_prime,
            // A denominator may vanish modulo one prime and not modulo another.
            Err(AlgebraError::Undefined) => {}
            Err(error) => return Err(error),
        }
    }

    if bits < ENOUGH { Err(AlgebraError::Opaque) } else { Ok(Residues::Agree { bits }) }
}

/// Tells whether a residue shows that an expression is not zero.
pub(super) fn is_nonzero(expr: &Expr, budget: &mut Budget) -> bool {
    crate::parts::gate!(Residues, false);
    chosen(fingerprint(expr)).into_iter().any(|prime| {
        let mut ring = Ring { prime: true, scope: vec![], budget: &mut *budget };
        ring.value(expr, prime).is_ok_and(|residue| residue != 0)
    })
}

/// Chooses three different primes by a hash of the expressions.
fn chosen(hash: u64) -> [u64; 3] {
    let count = PRIMES.len() as u64;
    // With a step below half the count, three steps never reach the same prime twice.
    let start = (hash >> 8) % count;
    let step = 1 + (hash >> 32) % (count / 2 - 1);
    [0, 1, 2].map(|i| PRIMES[((start + i * step) % count) as usize])
}

/// Computes the remainder of a whole number that is made only of whole numbers. Returns `None` for any other
/// expression.
pub(super) fn residue(
    expr: &Expr,
    modulus: u64,
    budget: &mut Budget,
) -> Result<Option<u64>, AlgebraError> {
    crate::parts::gate!(Residues, Ok(None));
    let mut ring = Ring { prime: false, scope: vec![], budget };
    match ring.value(expr, modulus) {
        Ok(residue) => Ok(Some(residue)),
        Err(AlgebraError::OverBudget) => Err(AlgebraError::OverBudget),
        Err(_) => Ok(None),
    }
}

struct Ring<'b> {
    /// True if the modulus is one of [`PRIMES`], so that there are quotients and points.
    prime: bool,
    scope: Vec<(Box<str>, BigInt)>,
    budget: &'b mut Budget,
}

impl Ring<'_> {
    fn value(&mut self, expr: &Expr, modulus: u64) -> Result<u64, AlgebraError> {
        self.budget.spend(8)?;
        match expr {
            Expr::Number(number) | Expr::Decimal(number) => self.number(number, modulus),
            Expr::Symbol(name) => match self.scope.iter().rev().find(|(index, _)| index == name) {
                Some((_, value)) => Ok(reduce(value, modulus)),
                None if self.prime => Ok(point(name, modulus)),
                None => Err(AlgebraError::Opaque),
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
                Err(AlgebraError::Opaque)
            }
        }
    }

    fn number(&mut self, number: &BigRational, modulus: u64) -> Result<u64, AlgebraError> {
        self.budget.spend(super::integer::bits(number) / 64)?;
        let numer = reduce(number.numer(), modulus);
        if number.is_integer() {
            return Ok(numer);
        }
        let denom = reduce(number.denom(), modulus);
        Ok(multiply(numer, self.inverse(denom, modulus)?, modulus))
    }

    fn inverse(&mut self, residue: u64, modulus: u64) -> Result<u64, AlgebraError> {
        if !self.prime {
            return Err(AlgebraError::Opaque);
        }
        if residue == 0 {
            return Err(AlgebraError::Undefined);
        }
        self.budget.spend(128)?;
        // By Fermat, aᵖ⁻² is the inverse of a modulo p.
        Ok(power(residue, modulus - 2, modulus))
    }

    fn power(&mut self, base: &Expr, exponent: &Expr, modulus: u64) -> Result<u64, AlgebraError> {
        let base = self.value(base, modulus)?;
        self.budget.spend(256)?;

        if let Some(exponent) = self.small(exponent)? {
            if exponent <= 0 && base == 0 {
                return Err(AlgebraError::Undefined);
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

    /// Computes a power whose exponent is too large to be computed. Starting at the exponent 64 at the latest, powers
    /// repeat with a period that divides Carmichael's function of the modulus.
    fn huge_power(
        &mut self,
        base: u64,
        exponent: &Expr,
        modulus: u64,
    ) -> Result<u64, AlgebraError> {
        crate::parts::gate!(HugePowers, Err(AlgebraError::Opaque));
        if log2_at_least(exponent).is_none_or(|log2| log2 < 6) {
            return Err(AlgebraError::Opaque);
        }

        let period = if self.prime { modulus - 1 } else { carmichael(modulus, self.budget)? };
        let mut ring = Ring { prime: false, scope: vec![], budget: &mut *self.budget };
        let rest = ring.value(exponent, period)?;
        Ok(power(base, rest + period * 64u64.div_ceil(period), modulus))
    }

    /// Returns a whole number that fits into a word.
    fn small(&mut self, expr: &Expr) -> Result<Option<i64>, AlgebraError> {
        if let Expr::Number(number) = expr {
            return whole(number).map(|number| number.to_i64()).ok_or(AlgebraError::Opaque);
        }

        let mut algebra = Algebra::new(self.budget);
        for (index, value) in &self.scope {
            algebra.scope.push((index.clone(), BigRational::from_integer(value.clone())));
        }

        match algebra.evaluate(expr) {
            Ok(Value::Number(number)) => {
                whole(&number).map(|n| n.to_i64()).ok_or(AlgebraError::Opaque)
            }
            Err(AlgebraError::OverBudget) => Err(AlgebraError::OverBudget),
            _ => Ok(None),
        }
    }

    /// Returns the word that a factorial or a similar function starts from.
    fn natural(&mut self, expr: &Expr, modulus: u64) -> Result<u64, AlgebraError> {
        let natural = self.small(expr)?.and_then(|number| u64::try_from(number).ok());
        natural.filter(|n| !self.prime || *n < modulus).ok_or(AlgebraError::Opaque)
    }

    fn call(
        &mut self,
        function: Function,
        arguments: &[Expr],
        modulus: u64,
    ) -> Result<u64, AlgebraError> {
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
                let n = self.natural(n, modulus)?;
                let k = self.natural(k, modulus)?;
                if k > n { Ok(0) } else { self.falling(n, k, 1, modulus) }
            }
            (Function::Binomial, [n, k]) => {
                let n = self.natural(n, modulus)?;
                let k = self.natural(k, modulus)?;
                if k > n {
                    return Ok(0);
                }
                // C(n, k) = C(n, n−k), and the smaller k is less work.
                let k = k.min(n - k);

                let numer = self.falling(n, k, 1, modulus)?;
                let denom = self.falling(k, k, 1, modulus)?;
                Ok(multiply(numer, self.inverse(denom, modulus)?, modulus))
            }
            (Function::Mod, [number, divisor]) if self.scope.is_empty() => {
                match self.small(divisor)? {
                    Some(divisor) if divisor > 0 => {
                        let rest = residue(number, divisor.unsigned_abs(), self.budget)?;
                        rest.map(|rest| rest % modulus).ok_or(AlgebraError::Opaque)
                    }
                    _ => Err(AlgebraError::Opaque),
                }
            }
            _ => Err(AlgebraError::Opaque),
        }
    }

    /// Computes `n (n − step) …` with `count` factors.
    fn falling(
        &mut self,
        n: u64,
        count: u64,
        step: u64,
        modulus: u64,
    ) -> Result<u64, AlgebraError> {
        self.budget.spend(count.saturating_mul(2))?;
        Ok((0..count).fold(1 % modulus, |product, i| multiply(product, n - i * step, modulus)))
    }

    fn fold(&mut self, fold: &Fold, modulus: u64) -> Result<u64, AlgebraError> {
        crate::parts::gate!(ModularFolds, Err(AlgebraError::Opaque));
        let from = self.small(&fold.from)?;
        let to = self.small(&fold.to)?;
        let (Some(from), Some(to)) = (from, to) else { return Err(AlgebraError::Opaque) };
        // An empty fold ends one below its start. A shorter one is not a fold.
        if i128::from(to) + 1 < i128::from(from) {
            return Err(AlgebraError::Opaque);
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

/// Returns the value that a variable takes: a hash (FNV-1a, then the mixer of SplitMix64) of its name.
fn point(name: &str, modulus: u64) -> u64 {
    let mut hash = modulus;
    for byte in name.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }

    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (hash ^ (hash >> 31)) % modulus
}

/// Computes Carmichael's function: a period of all powers of units modulo a number.
fn carmichael(number: u64, budget: &mut Budget) -> Result<u64, AlgebraError> {
    let mut left = number;
    let mut divisor = 2;
    let mut period = 1u64;
    while left > 1 {
        budget.spend(4_000)?;
        if is_prime(left) {
            return Ok(period.lcm(&(left - 1)));
        }

        while !left.is_multiple_of(divisor) {
            budget.spend(2)?;
            divisor += 1;
            if divisor > TRIAL_BOUND {
                return Err(AlgebraError::Opaque);
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

/// Returns a lower bound for the binary logarithm of an expression, if the expression is sure to be a whole number
/// of at least one.
fn log2_at_least(expr: &Expr) -> Option<u64> {
    let two_to = |log2: u64| if log2 < 64 { 1u64 << log2 } else { u64::MAX };

    match expr {
        Expr::Number(number) => {
            let natural = whole(number).filter(|number| number.is_positive())?;
            Some(natural.bits() - 1)
        }

        Expr::Sum(terms) => {
            // No summand is negative, so the sum is at least the greatest of them.
            terms.iter().try_fold(0, |most: u64, term| Some(most.max(log2_at_least(term)?)))
        }

        Expr::Product(factors) => factors
            .iter()
            .try_fold(0, |sum: u64, factor| Some(sum.saturating_add(log2_at_least(factor)?))),

        Expr::Power(parts) => {
            let base = log2_at_least(&parts[0])?;
            let exponent = log2_at_least(&parts[1])?;
            Some(base.saturating_mul(two_to(exponent)))
        }

        Expr::Call(Function::Factorial, arguments) => match arguments.as_slice() {
            // n! is at least 2^(n−1).
            [n] => Some(two_to(log2_at_least(n)?) - 1),
            _ => None,
        },
        _ => None,
    }
}

/// Returns a bound for the degree of numerator and denominator together if the expression is a rational function,
/// or `u64::MAX` if no bound is known.
fn degree(expr: &Expr) -> u64 {
    let size = |number: &BigRational| number.abs().ceil().to_integer().to_u64().unwrap_or(u64::MAX);

    match expr {
        Expr::Number(_) | Expr::Decimal(_) | Expr::Constant(_) => 0,
        Expr::Symbol(_) => 1,
        Expr::Sum(terms) | Expr::Product(terms) => {
            terms.iter().fold(0, |sum: u64, term| sum.saturating_add(degree(term)))
        }
        Expr::Negate(inner) => degree(inner),
        Expr::Quotient(parts) => degree(&parts[0]).saturating_add(degree(&parts[1])),
        Expr::Power(parts) => match (degree(&parts[0]), &parts[1]) {
            (0, _) => 0,
            (base, Expr::Number(exponent)) => base.saturating_mul(size(exponent)),
            (base, Expr::Negate(exponent)) => match exponent.as_ref() {
                Expr::Number(exponent) => base.saturating_mul(size(exponent)),
                _ => u64::MAX,
            },
            _ => u64::MAX,
        },
        Expr::Fold(fold) => match (&fold.from, &fold.to) {
            (Expr::Number(from), Expr::Number(to)) => {
                size(&(to - from)).saturating_add(1).saturating_mul(degree(&fold.body))
            }
            _ => u64::MAX,
        },
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primes_have_long_periods() {
        for (index, prime) in PRIMES.into_iter().enumerate() {
            assert!((1 << 60..1 << 61).contains(&prime));
            let chain = [prime, prime / 2, prime / 4, prime / 8];
            assert!(chain.into_iter().all(is_prime), "{prime}");
            assert!(!PRIMES[..index].contains(&prime));
        }

        for hash in (0..1_000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
            let [a, b, c] = chosen(hash);
            assert!(a != b && b != c && c != a, "{hash}");
        }
    }

    #[test]
    fn large_exponents_are_bounded_in_whole_numbers() {
        let number = |n: u64| Expr::Number(BigRational::from_integer(n.into()));
        let power = |a, b| Expr::Power(Box::new([a, b]));

        for (expr, expected) in [
            (number(64), Some(6)),
            (number(63), Some(5)),
            (number(0), None),
            (power(number(1), number(u64::MAX)), Some(0)),
            (power(number(2), power(number(2), number(900))), Some(u64::MAX)),
            (Expr::Call(Function::Factorial, vec![number(9)]), Some(7)),
            (Expr::Product(vec![number(4), number(9)]), Some(5)),
        ] {
            assert_eq!(log2_at_least(&expr), expected, "{expr:?}");
        }
    }
}
