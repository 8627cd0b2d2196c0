//! Two expressions, evaluated together at the same points.

use std::{cmp::Ordering, ops::Range};

use super::{
    Agreement, agree,
    evaluate::{EnclosureError, Evaluator},
    piecewise::probes,
    points::{POINTS, coordinate, shift},
    unknowns::Unknowns,
    value::Value,
};
use crate::{
    algebra::real::Real,
    budget::{Budget, OverBudget},
    expr::Expr,
};

/// Two expressions and the unknowns of both.
pub(super) struct Pair<'e> {
    pub(super) first: &'e Expr,
    pub(super) second: &'e Expr,
    unknowns: Unknowns<'e>,
    /// Names of all unknowns.
    names: Vec<String>,
    /// Values of the unknowns at further points, if the functions are made of pieces.
    probes: Vec<(i64, i64)>,
}

/// Values of both expressions at a point, and the binary logarithm of the largest intermediate value.
pub(super) struct Values<R> {
    pub(super) first: Value<R>,
    pub(super) second: Value<R>,
    largest: i64,
    /// True if agreement at this precision is no evidence.
    pub(super) lost: bool,
}

impl<'e> Pair<'e> {
    /// Pairs two expressions. Returns `None` if there are too many unknowns, or if it is not clear which values of
    /// unknown functions are the same.
    pub(super) fn new(
        first: &'e Expr,
        second: &'e Expr,
        budget: &mut Budget,
    ) -> Result<Option<Self>, OverBudget> {
        let mut unknowns = Unknowns::default();
        unknowns.collect(first, &mut vec![], budget)?;
        unknowns.collect(second, &mut vec![], budget)?;
        let many = unknowns.symbols.len().max(unknowns.applications.len()) > Unknowns::MANY;
        if many || unknowns.indexed || !classify(&mut unknowns, budget)? {
            return Ok(None);
        }

        let symbols = unknowns.symbols.iter().map(|name| String::from(*name));
        // No symbol has such a name.
        let classes = (0..unknowns.classes).map(|class| format!("({class})"));
        let names: Vec<_> = symbols.chain(classes).collect();

        let probes = if names.is_empty() { vec![] } else { probes(first, second, budget)? };
        Ok(Some(Pair { first, second, unknowns, names, probes }))
    }

    pub(super) fn is_constant(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns the extra points for functions made of pieces. Each probe is one point, or two if there are several
    /// unknowns, whose probes are then shifted against each other.
    pub(super) fn probes(&self) -> Range<u32> {
        let rounds = if self.names.len() > 1 { 2 } else { 1 };
        POINTS..POINTS + rounds * self.probes.len() as u32
    }

    fn coordinate(&self, name: &str, point: u32) -> (i64, i64) {
        let Some(probe) = point.checked_sub(POINTS) else { return coordinate(name, point) };
        let count = self.probes.len() as u64;
        let round = u64::from(probe) / count;
        let index = u64::from(probe) % count;
        self.probes[((index + shift(name, round) % count) % count) as usize]
    }

    /// Evaluates both expressions at a point. Constants are the same at any point.
    pub(super) fn at<R: Real>(
        &self,
        point: u32,
        prec: u32,
        budget: &mut Budget,
    ) -> Result<Values<R>, EnclosureError> {
        let coordinates: Vec<_> =
            self.names.iter().map(|name| self.coordinate(name, point)).collect();
        let mut evaluator = Evaluator::new(prec, &self.unknowns, &coordinates, budget);

        let first = evaluator.eval(self.first);
        // If the first value is merely unknown, the second may still turn out to be undefined.
        if first.as_ref().is_err_and(|error| *error != EnclosureError::Unknown) {
            return first.map(|_| Err(EnclosureError::Unknown))?;
        }

        let second = evaluator.eval(self.second)?;
        Ok(Values { first: first?, second, largest: evaluator.largest, lost: evaluator.lost })
    }
}

/// Sorts the applications of unknown functions into classes of equal value: same name, same number of arguments,
/// same arguments. Returns whether that could be done.
fn classify(unknowns: &mut Unknowns, budget: &mut Budget) -> Result<bool, OverBudget> {
    for current in 0..unknowns.applications.len() {
        let mut class = None;
        // A single comparison without a verdict makes all classes uncertain.
        for known in 0..current {
            match same(unknowns.applications[known].0, unknowns.applications[current].0, budget)? {
                Some(true) => class = Some(unknowns.applications[known].1),
                Some(false) => continue,
                None => return Ok(false),
            }
            break;
        }

        unknowns.applications[current].1 = class.unwrap_or(unknowns.classes);
        unknowns.classes += usize::from(class.is_none());
    }
    Ok(true)
}

fn same(first: &Expr, second: &Expr, budget: &mut Budget) -> Result<Option<bool>, OverBudget> {
    let (Expr::Apply(first, own), Expr::Apply(second, others)) = (first, second) else {
        return Ok(None);
    };
    if first != second || own.len() != others.len() {
        return Ok(Some(false));
    }

    let mut all_known = true;
    for (own, other) in own.iter().zip(others) {
        match agree(own, other, budget)? {
            Agreement::Distinct => return Ok(Some(false)),
            Agreement::Close { .. } => (),
            Agreement::Undefined | Agreement::Unknown => all_known = false,
        }
    }

    Ok(all_known.then_some(true))
}

impl<R: Real> Values<R> {
    /// Counts the bits to which both values agree. Returns `None` if they certainly differ.
    ///
    /// The bits are counted from the values' own size, if it is known. If both may be zero, they are counted from
    /// 1, or from the largest intermediate value if all of these were smaller. (The largest value alone says
    /// nothing: the sine of an astronomical number is only known to lie within ±1.)
    pub(super) fn agreement(&self, prec: u32) -> Option<i64> {
        let difference = self.first.sub(&self.second, prec);
        if difference.is_nonzero() {
            return None;
        }
        if difference.is_zero() {
            return Some(prec.into());
        }
        if self.lost {
            return Some(0);
        }

        let known = self.first.is_nonzero() || self.second.is_nonzero();
        let size = self.first.log2().max(self.second.log2());
        let scale = if known { size } else { self.largest.min(0) };
        Some(scale.saturating_sub(difference.log2()).clamp(0, prec.into()))
    }

    /// Tells whether both values are exactly known, and the same.
    pub(super) fn are_same(&self) -> bool {
        self.first.sub(&self.second, 0).is_zero()
    }

    /// Compares the first value with the second. Both have to be real.
    pub(super) fn order(&self, prec: u32) -> Option<Ordering> {
        self.first.as_real()?;
        self.second.as_real()?;
        self.first.sub(&self.second, prec).re.sign().filter(|order| order.is_ne())
    }
}
