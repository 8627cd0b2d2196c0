//! Probes: extra points at which functions made of pieces are compared.
//!
//! `|x + 100|` is `x + 100` at all points near zero, and `(-1)^n` is 1 at every second integer. Functions with
//! such pieces are therefore also compared far out on both sides, at consecutive and at round integers, and next to
//! the numbers that are written in them, because pieces tend to meet there.

use std::collections::BTreeSet;

use num_traits::{Signed, ToPrimitive};

use crate::{
    budget::{Budget, OverBudget},
    expr::{Constant, Expr, Function},
};

/// Probes besides the small integers. Each is used with both signs.
const ROUND: [(i64, i64); 18] = [
    (100, 1),
    (101, 1),
    (200, 1),
    (1_000, 1),
    (1_024, 1),
    (1_001, 1),
    (4_096, 1),
    (10_000, 1),
    (99_999, 1),
    (1_000_000, 1),
    (1_000_000_000, 1),
    (301, 3),
    (1_807, 7),
    (5_003, 5),
    (30_011, 3),
    (3_000_001, 3),
    (1, 2),
    (40, 7),
];

/// Largest of the small integers.
const SMALL: i64 = 12;

/// Maximum number of integers that are taken from the expressions, the smallest first.
const WRITTEN: usize = 12;

/// Largest number that is used.
const LARGEST: i64 = 1 << 50;

/// Largest number that is used if sums run up to a variable.
const TERMS: i64 = 100;

/// Returns the probes for a pair of expressions. There are none if neither expression has pieces.
pub(super) fn probes(
    first: &Expr,
    second: &Expr,
    budget: &mut Budget,
) -> Result<Vec<(i64, i64)>, OverBudget> {
    let mut survey = Survey::default();
    survey.read(first, &mut vec![], budget)?;
    survey.read(second, &mut vec![], budget)?;

    // Two expressions that are written in the same way have the same pieces.
    if !survey.pieces || first == second {
        return Ok(vec![]);
    }

    let mut probes: Vec<_> = (1..=SMALL).map(|n| (n, 1)).chain(ROUND).collect();
    for n in survey.written.into_iter().take(WRITTEN) {
        probes.extend([(n, 1), (3 * n + 1, 3), (3 * n - 1, 3)]);
    }

    let mut known = BTreeSet::new();
    let signed = probes.into_iter().flat_map(|(numer, denom)| [(numer, denom), (-numer, denom)]);
    let near = |numer: i64, denom: i64| !survey.sums || numer.abs() <= TERMS * denom;

    Ok(signed
        .filter(|(numer, denom)| near(*numer, *denom) && known.insert((*numer, *denom)))
        .collect())
}

#[derive(Default)]
struct Survey {
    /// True if a part is made of pieces, or has a value at integers only.
    pieces: bool,
    /// True if a sum or product has a variable number of terms.
    sums: bool,
    /// Integers that occur, ordered by size.
    written: BTreeSet<i64>,
}

impl Survey {
    /// Reads an expression in which some symbols are bound. Returns whether variables occur.
    fn read<'e>(
        &mut self,
        expr: &'e Expr,
        bound: &mut Vec<&'e str>,
        budget: &mut Budget,
    ) -> Result<bool, OverBudget> {
        budget.spend(2)?;
        match expr {
            Expr::Number(number) | Expr::Decimal(number) => {
                let parts = [number.numer(), number.denom()].into_iter();
                let sizes = parts.filter_map(|part| part.magnitude().to_i64());
                self.written.extend(sizes.filter(|size| (1..=LARGEST).contains(size)));
                return Ok(false);
            }
            Expr::Symbol(name) => return Ok(bound.iter().all(|bound| **bound != **name)),
            Expr::Fold(fold) => {
                let from = self.read(&fold.from, bound, budget)?;
                let to = self.read(&fold.to, bound, budget)?;
                self.sums |= from || to;
                bound.push(&fold.index);
                let body = self.read(&fold.body, bound, budget);
                bound.pop();
                return Ok(body? || from || to);
            }
            _ => (),
        }

        let mut varies = matches!(expr, Expr::Apply(..));
        let mut last_varies = false;
        for part in expr.children() {
            last_varies = self.read(part, bound, budget)?;
            varies |= last_varies;
        }

        // The last part of such an expression is an exponent or a radicand.
        self.pieces |= match expr {
            Expr::Call(function, _) => varies && has_pieces(*function),
            Expr::Root(parts) => last_varies && !is_odd(&parts[0]),
            Expr::Power(parts) => match &parts[1] {
                Expr::Number(exponent) | Expr::Decimal(exponent) => {
                    varies && exponent.denom().trailing_zeros() != Some(0)
                }
                _ => last_varies && !is_positive(&parts[0], budget)?,
            },
            _ => false,
        };

        Ok(varies)
    }
}

fn has_pieces(function: Function) -> bool {
    use Function::*;
    matches!(
        function,
        Abs | Floor
            | Ceil
            | Min
            | Max
            | Mod
            | Gcd
            | Lcm
            | Factorial
            | DoubleFactorial
            | Binomial
            | Permutations
    )
}

fn is_odd(degree: &Expr) -> bool {
    matches!(degree, Expr::Number(n) if n.is_integer() && n.numer().trailing_zeros() == Some(0))
}

/// Tells whether the base of a power is obviously positive.
fn is_positive(expr: &Expr, budget: &mut Budget) -> Result<bool, OverBudget> {
    budget.spend(1)?;
    match expr {
        Expr::Number(number) | Expr::Decimal(number) => Ok(number.is_positive()),
        Expr::Constant(Constant::Pi | Constant::E) => Ok(true),
        Expr::Call(Function::Exp, _) => Ok(true),
        Expr::Power(parts) => is_positive(&parts[0], budget),
        Expr::Root(parts) => is_positive(&parts[1], budget),
        Expr::Sum(parts) | Expr::Product(parts) => all_positive(parts, budget),
        Expr::Quotient(parts) => all_positive(parts.as_slice(), budget),
        _ => Ok(false),
    }
}

fn all_positive(parts: &[Expr], budget: &mut Budget) -> Result<bool, OverBudget> {
    for part in parts {
        if !is_positive(part, budget)? {
            return Ok(false);
        }
    }
    Ok(true)
}
