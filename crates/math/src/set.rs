//! Sets of real numbers, the meaning of intervals, inequalities, unions and `ℝ ∖ {1}`.

use std::cmp::Ordering;

use num_bigint::BigInt;

use crate::{
    algebra,
    budget::Budget,
    expr::{Constant, Expr, Function},
    value::{Join, NamedSet, Relation, Side, Value},
};

/// A union of disjoint intervals in rising order. No interval touches the next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RealSet {
    parts: Vec<Interval>,
}

/// An interval from one end to the other. A single point has two equal ends, both closed.
#[derive(Clone, Debug, PartialEq)]
struct Interval {
    left: Endpoint,
    right: Endpoint,
}

#[derive(Clone, Debug, PartialEq)]
struct Endpoint {
    at: Expr,
    closed: bool,
}

impl RealSet {
    /// Returns the set that `value` stands for. Returns `None` if it is not a set, or if its ends can't be ordered.
    pub(crate) fn of(value: &Value, budget: &mut Budget) -> Option<RealSet> {
        match value {
            Value::NamedSet(NamedSet::Empty) => Some(RealSet { parts: vec![] }),
            Value::NamedSet(NamedSet::Reals) => Some(RealSet::all()),

            Value::Tuple { open, close, items } => {
                let [left, right] = items.as_slice() else { return None };
                let end = |value: &Value, side| {
                    let at = value.scalar()?.clone();
                    // An infinite end never belongs to the set.
                    Some(Endpoint { closed: side == Side::Closed && !is_infinite(&at), at })
                };
                let left = end(left, *open)?;
                let right = end(right, *close)?;

                RealSet::interval(left.plain(budget), right.plain(budget), budget)
            }

            Value::Set(items) => {
                let mut points = RealSet { parts: vec![] };
                for item in items {
                    points = points
                        .union(RealSet::point(plain(item.scalar()?.clone(), budget)), budget)?;
                }

                Some(points)
            }

            Value::Join(join, values) => {
                let (first, rest) = values.split_first()?;
                let mut set = RealSet::of(first, budget)?;
                for value in rest {
                    let other = RealSet::of(value, budget)?;
                    set = match join {
                        Join::Union => set.union(other, budget)?,
                        Join::Intersection => set.intersection(&other, budget)?,
                        Join::Without => set.intersection(&other.complement(), budget)?,
                    };
                }

                Some(set)
            }

            Value::Member(sides) => RealSet::of(&sides[1], budget),
            Value::Chain { terms, relations } => RealSet::of_inequality(terms, relations, budget),
            Value::List(items) => RealSet::of_list(items, budget),
            _ => None,
        }
    }

    /// Reads a list as a union: `x < 1 or x > 3`, `(1, 2), (5, 6)`. If the union of the conditions is the whole line,
    /// all conditions have to hold: `x ≥ -2 and x ≤ 7`, `x ≠ 1, x ≠ 2`.
    fn of_list(items: &[Value], budget: &mut Budget) -> Option<RealSet> {
        let mut union = RealSet { parts: vec![] };
        let mut intersection = RealSet::all();
        let mut names = vec![];
        items.iter().for_each(|item| item.each(&mut |expr| collect_symbols(expr, &mut names)));
        if names.len() > 1 {
            return None;
        }

        for (number, item) in items.iter().enumerate() {
            if !matches!(item, Value::Chain { .. } | Value::Member(_) | Value::Tuple { .. }) {
                return None;
            }
            let set = RealSet::of(item, budget)?;

            intersection = intersection.intersection(&set, budget)?;
            let both = union.clone().union(set.clone(), budget)?;
            // One condition of `x > 3, x > 4` is enough. An answer that gives both has not decided.
            if number > 0 && (both == union || both == set) && both != RealSet::all() {
                return None;
            }
            union = both;
        }

        let conditions = items.iter().all(|item| matches!(item, Value::Chain { .. }));
        Some(if conditions && union == RealSet::all() { intersection } else { union })
    }

    /// Solves `x < 5`, `-2 < x ≤ 7`, `2x ≥ 14`, `x ≠ 1`, `x^2 < 4`, `|x - 1| ≤ 3`.
    fn of_inequality(
        terms: &[Value],
        relations: &[Relation],
        budget: &mut Budget,
    ) -> Option<RealSet> {
        let ordered = relations.iter().all(|relation| relation.is_order());
        if !ordered && !matches!(relations, [Relation::NotEqual | Relation::Equal]) {
            return None;
        }

        let unknown = unknown_of(terms)?;
        let mut set = RealSet::all();
        for (pair, relation) in terms.windows(2).zip(relations) {
            let [left, right] = pair else { return None };

            // `3 < x < ∞`
            match (infinite(left.scalar()?), infinite(right.scalar()?), relation) {
                (None, None, _) => {}
                (Some(false), None, Relation::Less | Relation::LessEqual)
                | (None, Some(true), Relation::Less | Relation::LessEqual)
                | (Some(true), None, Relation::Greater | Relation::GreaterEqual)
                | (None, Some(false), Relation::Greater | Relation::GreaterEqual) => continue,
                _ => return None,
            }

            let difference = Expr::Sum(vec![
                left.scalar()?.clone(),
                Expr::Negate(Box::new(right.scalar()?.clone())),
            ]);
            let part = solve(&difference, *relation, &unknown, budget)?;
            set = set.intersection(&part, budget)?;
        }

        Some(set)
    }

    fn all() -> RealSet {
        RealSet::one(Endpoint::minus_infinity(), Endpoint::infinity())
    }

    fn one(left: Endpoint, right: Endpoint) -> RealSet {
        RealSet { parts: vec![Interval { left, right }] }
    }

    fn point(at: Expr) -> RealSet {
        RealSet::one(Endpoint { at: at.clone(), closed: true }, Endpoint { at, closed: true })
    }

    /// Builds an interval. Returns `None` if the ends are in the wrong order: `(5, 3)` is a pair, not an interval.
    fn interval(left: Endpoint, right: Endpoint, budget: &mut Budget) -> Option<RealSet> {
        match algebra::order(&left.at, &right.at, budget)? {
            Ordering::Less => Some(RealSet::one(left, right)),
            Ordering::Equal if left.closed && right.closed => Some(RealSet::one(left, right)),
            _ => None,
        }
    }

    fn union(self, other: RealSet, budget: &mut Budget) -> Option<RealSet> {
        // The union is the complement of the intersection of the complements.
        Some(self.complement().intersection(&other.complement(), budget)?.complement())
    }

    fn intersection(&self, other: &RealSet, budget: &mut Budget) -> Option<RealSet> {
        let mut parts: Vec<Interval> = vec![];
        budget.spend((self.parts.len() + other.parts.len()) as u64 * 20).ok()?;

        // Both lists rise, so one walk along them finds every overlap.
        let mut i = 0;
        let mut j = 0;
        while let (Some(a), Some(b)) = (self.parts.get(i), other.parts.get(j)) {
            let left = if later_start(&a.left, &b.left, budget)? { &a.left } else { &b.left };
            let a_ends_first = earlier_end(&a.right, &b.right, budget)?;
            let right = if a_ends_first { &a.right } else { &b.right };

            let holds = match algebra::order(&left.at, &right.at, budget)? {
                Ordering::Less => true,
                Ordering::Equal => left.closed && right.closed,
                Ordering::Greater => false,
            };
            if holds {
                parts.push(Interval { left: left.clone(), right: right.clone() });
            }

            // The part that ends first can't meet any later part of the other set.
            if a_ends_first {
                i += 1;
            } else {
                j += 1;
            }
        }

        Some(RealSet { parts })
    }

    fn complement(&self) -> RealSet {
        let mut parts = vec![];
        let mut left = Endpoint::minus_infinity();
        for part in &self.parts {
            // The gap ends where the part begins, and holds that end if the part does not.
            let right = Endpoint { at: part.left.at.clone(), closed: !part.left.closed };
            let empty =
                is_infinite(&right.at) || (left.at == right.at && !(left.closed && right.closed));
            if !empty {
                parts.push(Interval { left, right });
            }
            left = Endpoint { at: part.right.at.clone(), closed: !part.right.closed };
        }

        if !matches!(left.at, Expr::Constant(Constant::Infinity)) {
            left.closed &= !is_infinite(&left.at);
            parts.push(Interval { left, right: Endpoint::infinity() });
        }

        RealSet { parts }
    }

    /// Tells whether both are the same set. Returns `None` if an end could not be compared.
    pub(crate) fn equals(&self, other: &RealSet, budget: &mut Budget) -> Option<bool> {
        if self.parts.len() != other.parts.len() {
            return Some(false);
        }

        for (a, b) in self.parts.iter().zip(&other.parts) {
            for (a, b) in [(&a.left, &b.left), (&a.right, &b.right)] {
                let same = algebra::order(&a.at, &b.at, budget)? == Ordering::Equal;
                if !same || a.closed != b.closed {
                    return Some(false);
                }
            }
        }

        Some(true)
    }
}

impl Endpoint {
    fn infinity() -> Endpoint {
        Endpoint { at: Expr::Constant(Constant::Infinity), closed: false }
    }

    fn plain(self, budget: &mut Budget) -> Endpoint {
        Endpoint { at: plain(self.at, budget), closed: self.closed }
    }

    fn minus_infinity() -> Endpoint {
        Endpoint { at: Expr::Negate(Box::new(Expr::Constant(Constant::Infinity))), closed: false }
    }
}

/// Tells whether an interval that starts at `a` starts later than one that starts at `b`.
fn later_start(a: &Endpoint, b: &Endpoint, budget: &mut Budget) -> Option<bool> {
    Some(match algebra::order(&a.at, &b.at, budget)? {
        Ordering::Greater => true,
        Ordering::Equal => !a.closed,
        Ordering::Less => false,
    })
}

/// Tells whether an interval that ends at `a` ends earlier than one that ends at `b`.
fn earlier_end(a: &Endpoint, b: &Endpoint, budget: &mut Budget) -> Option<bool> {
    Some(match algebra::order(&a.at, &b.at, budget)? {
        Ordering::Less => true,
        Ordering::Equal => !a.closed,
        Ordering::Greater => false,
    })
}

pub(crate) fn is_infinite(expr: &Expr) -> bool {
    infinite(expr).is_some()
}

/// Returns whether an infinity is positive, or `None` if the expression is not an infinity.
fn infinite(expr: &Expr) -> Option<bool> {
    match expr {
        Expr::Constant(Constant::Infinity) => Some(true),
        Expr::Negate(inner) => infinite(inner).map(|positive| !positive),
        _ => None,
    }
}

/// Returns the one unknown of an inequality: its only variable, or `f(x)` alone between constants.
fn unknown_of(terms: &[Value]) -> Option<Expr> {
    let mut unknown: Option<Expr> = None;
    for term in terms {
        // `f(x)` is an unknown only where it is a whole side, so the solver never has to look inside it.
        let expr = term.scalar()?;
        match expr {
            Expr::Apply(..) => match &unknown {
                None => unknown = Some(expr.clone()),
                Some(other) if other == expr => {}
                Some(_) => return None,
            },
            _ => {
                let mut names = vec![];
                collect_symbols(expr, &mut names);
                for name in names {
                    match &unknown {
                        None => unknown = Some(Expr::Symbol(name)),
                        Some(Expr::Symbol(other)) if *other == name => {}
                        Some(_) => return None,
                    }
                }
            }
        }
    }

    unknown
}

fn collect_symbols(expr: &Expr, names: &mut Vec<Box<str>>) {
    match expr {
        Expr::Symbol(name) => {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        // Inside an expression, an unknown function is a name for which nothing is solved.
        Expr::Apply(name, _) => names.push(format!("{name}()").into()),
        other => other.children().iter().for_each(|child| collect_symbols(child, names)),
    }
}

/// Returns the set on which `f` is in `relation` to zero. `f` is linear or quadratic in `unknown`, or the absolute
/// value of something linear, less a constant.
fn solve(f: &Expr, relation: Relation, unknown: &Expr, budget: &mut Budget) -> Option<RealSet> {
    let f = replace(f, unknown, &Expr::Symbol(UNKNOWN.into()));
    if let Some((inner, bound)) = absolute_value(&f) {
        // |g| < c means -c < g < c, and |g| > c is the rest.
        let minus_bound = Expr::Sum(vec![inner.clone(), Expr::Negate(Box::new(bound.clone()))]);
        let plus_bound = Expr::Sum(vec![inner, bound]);

        let inside_relations = match relation {
            Relation::Less | Relation::GreaterEqual => (Relation::Less, Relation::Greater),
            Relation::LessEqual | Relation::Greater => {
                (Relation::LessEqual, Relation::GreaterEqual)
            }
            _ => return None,
        };

        let inside = solve_polynomial(&minus_bound, inside_relations.0, budget)?
            .intersection(&solve_polynomial(&plus_bound, inside_relations.1, budget)?, budget)?;
        let outside = matches!(relation, Relation::Greater | Relation::GreaterEqual);
        return Some(if outside { inside.complement() } else { inside });
    }

    solve_polynomial(&f, relation, budget)
}

/// Name of the unknown while an inequality is solved.
const UNKNOWN: &str = "?";

/// Splits `|g| - c` into g and c.
fn absolute_value(f: &Expr) -> Option<(Expr, Expr)> {
    let Expr::Sum(terms) = f else { return None };
    let [Expr::Call(Function::Abs, arguments), Expr::Negate(bound)] = terms.as_slice() else {
        return None;
    };
    let [inner] = arguments.as_slice() else { return None };
    bound.is_constant().then(|| (inner.clone(), (**bound).clone()))
}

/// Solves a linear or quadratic inequality. Its coefficients come from the values of `f` at -1, 0 and 1, and must
/// then hold everywhere.
fn solve_polynomial(f: &Expr, relation: Relation, budget: &mut Budget) -> Option<RealSet> {
    let value_at = |value: i64| f.clone().with(UNKNOWN, &number(value));
    let at_minus_one = value_at(-1);
    let zero = value_at(0);
    let at_one = value_at(1);
    if !zero.is_constant() {
        return None;
    }

    // f(1) - f(-1) is 2b, and f(1) + f(-1) - 2f(0) is 2a.
    let half = |expr: Expr| Expr::Quotient(Box::new([expr, number(2)]));
    let c = plain(zero, budget);
    let b = plain(half(difference(at_one.clone(), at_minus_one.clone())), budget);
    let a = plain(difference(half(Expr::Sum(vec![at_one, at_minus_one])), c.clone()), budget);

    // Three values fit a parabola to any function, so only equality makes its roots those of `f`.
    let x = || Expr::Symbol(UNKNOWN.into());
    let square = Expr::Power(Box::new([x(), number(2)]));
    let polynomial = Expr::Sum(vec![
        Expr::Product(vec![a.clone(), square]),
        Expr::Product(vec![b.clone(), x()]),
        c.clone(),
    ]);
    if !matches!(algebra::equal(f, &polynomial, budget), algebra::Decision::Equal(_)) {
        return None;
    }

    let roots = match algebra::order(&a, &number(0), budget)? {
        Ordering::Equal => {
            // Without a square, it is a line.
            let root = Expr::Negate(Box::new(Expr::Quotient(Box::new([c, b.clone()]))));
            return Some(half_line(plain(root, budget), relation, sign_of(&b, budget)?));
        }
        sign => quadratic_roots(&a, &b, &c, sign, budget)?,
    };

    let rises = algebra::order(&a, &number(0), budget)? == Ordering::Greater;
    let relation = if rises { relation } else { relation.flipped() };
    // A parabola that opens upwards is negative between its roots.
    let Some((low, high)) = roots else {
        let everywhere =
            matches!(relation, Relation::Greater | Relation::GreaterEqual | Relation::NotEqual);
        return Some(if everywhere { RealSet::all() } else { RealSet::all().complement() });
    };

    let between = |closed: bool, budget: &mut Budget| {
        let end = |at: &Expr| Endpoint { at: at.clone(), closed };
        // A double root leaves a single point, or nothing.
        match algebra::order(&low, &high, budget)? {
            Ordering::Less => Some(RealSet::one(end(&low), end(&high))),
            _ if closed => Some(RealSet::point(low.clone())),
            _ => Some(RealSet::all().complement()),
        }
    };

    Some(match relation {
        Relation::Less => between(false, budget)?,
        Relation::LessEqual => between(true, budget)?,
        Relation::Greater => between(true, budget)?.complement(),
        Relation::GreaterEqual => between(false, budget)?.complement(),
        _ => {
            let roots = RealSet::point(low).union(RealSet::point(high), budget)?;
            if relation == Relation::Equal { roots } else { roots.complement() }
        }
    })
}

/// Returns the set on which a line through `root` is in `relation` to zero.
fn half_line(root: Expr, relation: Relation, rising: bool) -> RealSet {
    let relation = if rising { relation } else { relation.flipped() };
    let here = |closed| Endpoint { at: root.clone(), closed };
    match relation {
        Relation::Less => RealSet::one(Endpoint::minus_infinity(), here(false)),
        Relation::LessEqual => RealSet::one(Endpoint::minus_infinity(), here(true)),
        Relation::Greater => RealSet::one(here(false), Endpoint::infinity()),
        Relation::GreaterEqual => RealSet::one(here(true), Endpoint::infinity()),
        Relation::Equal => RealSet::point(root),
        _ => RealSet::point(root).complement(),
    }
}

/// Tells whether a constant is positive. Returns `None` for zero.
fn sign_of(expr: &Expr, budget: &mut Budget) -> Option<bool> {
    match algebra::order(expr, &number(0), budget)? {
        Ordering::Greater => Some(true),
        Ordering::Less => Some(false),
        Ordering::Equal => None,
    }
}

/// Computes the real roots of a quadratic polynomial, the lower one first. The inner `None` means that there are
/// none.
fn quadratic_roots(
    a: &Expr,
    b: &Expr,
    c: &Expr,
    sign: Ordering,
    budget: &mut Budget,
) -> Option<Option<(Expr, Expr)>> {
    let four = Expr::Product(vec![number(4), a.clone(), c.clone()]);
    let square = Expr::Power(Box::new([b.clone(), number(2)]));
    let discriminant = plain(difference(square, four), budget);
    if algebra::order(&discriminant, &number(0), budget)? == Ordering::Less {
        return Some(None);
    }

    let root = Expr::Root(Box::new([number(2), discriminant]));
    let middle = Expr::Negate(Box::new(b.clone()));
    let below = Expr::Product(vec![number(2), a.clone()]);
    let over = |above: Expr| Expr::Quotient(Box::new([above, below.clone()]));

    let minus = plain(over(difference(middle.clone(), root.clone())), budget);
    let plus = plain(over(Expr::Sum(vec![middle, root])), budget);
    // A negative `a` turns the two around.
    Some(Some(if sign == Ordering::Greater { (minus, plus) } else { (plus, minus) }))
}

/// Replaces an end by its rational value, if it has one, so that equal ends look equal.
fn plain(expr: Expr, budget: &mut Budget) -> Expr {
    match algebra::rational(&expr, budget) {
        Some(value) => Expr::Number(value),
        None => expr,
    }
}

fn replace(expr: &Expr, unknown: &Expr, by: &Expr) -> Expr {
    match unknown {
        Expr::Symbol(name) => expr.clone().with(name, by),
        unknown if expr == unknown => by.clone(),
        _ => match expr {
            Expr::Sum(parts) => {
                Expr::Sum(parts.iter().map(|part| replace(part, unknown, by)).collect())
            }
            Expr::Negate(inner) => Expr::Negate(Box::new(replace(inner, unknown, by))),
            other => other.clone(),
        },
    }
}

fn number(value: i64) -> Expr {
    Expr::Number(BigInt::from(value).into())
}

fn difference(a: Expr, b: Expr) -> Expr {
    Expr::Sum(vec![a, Expr::Negate(Box::new(b))])
}
