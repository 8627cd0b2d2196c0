//! Compares two answers by their types.
//!
//! Which answers count as the same although they are written differently, and which do not:
//!
//! | gold | response | |
//! |---|---|---|
//! | `5` | `x = 5`, `x ≈ 5` | the same: a name does not count |
//! | `x + z = 1` | `1` | not: an equation between unknowns is not its right side |
//! | `y = x^2` | `x = x^2`, `t = x^2` | the second is the same: a name must not occur in its value |
//! | `f(x) = 2x` | `f(t) = 2t`, `f(t) = 2x` | the first is the same: its letter changes on both sides |
//! | `y = 2x + 1` | `4x - 2y + 2 = 0` | the same: one is a multiple of the other |
//! | `x = 11` | `x = 5 + 6 = 11` | the same: a chain counts from its first to its last term |
//! | `1, 2` | `2 and 1`, `{1, 2}` | the same: without brackets a list is a set |
//! | `(1, 2)` | `(2, 1)`, `{1, 2}` | not: round brackets have an order |
//! | `-2 < x ≤ 7` | `(-2, 7]`, `x ∈ (-2, 7]` | the same set |
//! | `x < 1` | `-x > -1` | the same set |
//! | `15 cm` | `15`, `0.15 m` | the same: a missing unit does not count, another one is converted |
//! | `15 cm` | `15 m` | not |
//! | `15\text{ m}` | `15m` | the same: a letter is a unit if the other side has a unit like it |
//! | `15` | `15m` | not: otherwise the letter is a variable |
//! | `28 %` | `0.28` | the same: per cent is a value |
//! | `3:4` | `6:8` | not: a ratio is given by its terms |
//! | `90°` | `90`, `π/2` | the same: degree signs do not count, and an angle is an angle |
//! | `f(n) = n + 1` | `f(n) = n + 1, n ≥ 1` | the same: the range of a letter does not count if one side lacks it |
//! | `3:30 pm` | `3:30`, `15:30` | the same: the half of the day does not count if one side lacks it |
//! | `1 ± √2` | `1 + √2, 1 - √2` | the same: both signs are two values |

mod name;

use std::{borrow::Cow, collections::HashSet, slice};

use num_rational::BigRational;
use num_traits::ToPrimitive as _;

use self::name::is_name;
use crate::{
    algebra::{self, Decision, UndecidedReason},
    budget::Budget,
    expr::{Expr, Function},
    judgement::Certainty,
    moment::Moment,
    set::{self, RealSet},
    unit::Unit,
    value::{Matrix, Relation, Side, Value},
};

/// Options of a comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Digits after the point that are compared if a side is a decimal number.
    pub(crate) precision: u32,
    /// True if an inequality may answer for a set.
    pub(crate) relation_for_set: bool,
}

/// Compares a response's value with the gold one.
pub(crate) fn compare(
    gold: &Value,
    response: &Value,
    rules: Rules,
    budget: &mut Budget,
) -> Decision {
    Comparison { rules, budget }.values(gold, response)
}

struct Comparison<'a> {
    rules: Rules,
    budget: &'a mut Budget,
}

/// What a value states, if it is read as an equation.
enum AnswerForm<'a> {
    /// A name and the value that it stands for.
    Named(&'a Value, &'a Value),
    /// An equation between expressions.
    Equation(&'a Expr, &'a Expr),
    /// Any other value.
    Plain(&'a Value),
    /// An equation between numbers that has to hold: `2 + 2 = 4`.
    Claim(&'a Expr, &'a Value),
}

const DIFFERENT: Decision = Decision::Different(Certainty::Proved);

/// Verdict on answers that differ in form but are not shown to differ in value: `x < 2` and `x^3 < 8`.
const UNLIKE: Decision = Decision::Different(Certainty::Undecided);
const EQUAL: Decision = Decision::Equal(Certainty::Proved);

impl Comparison<'_> {
    fn values(&mut self, gold: &Value, response: &Value) -> Decision {
        // The range of a letter counts only if both sides have one.
        match (without_range(gold), without_range(response)) {
            (Some(gold), None) => return self.values(&gold, response),
            (None, Some(response)) => return self.values(gold, &response),
            _ => {}
        }

        match (answer_form(gold), answer_form(response)) {
            // A claim such as `2 + 2 = 4` has to hold before its right side is compared.
            (AnswerForm::Claim(claimed, value), _) => {
                let Some(expr) = value.scalar() else { return Decision::Undefined };
                match self.scalars(claimed, expr) {
                    Decision::Equal(_) => self.values(value, response),
                    undecided @ Decision::Undecided(_) => undecided,
                    _ => Decision::Undefined,
                }
            }

            (_, AnswerForm::Claim(claimed, value)) => {
                let Some(expr) = value.scalar() else { return Decision::Undefined };
                match self.scalars(claimed, expr) {
                    Decision::Equal(_) => self.values(gold, value),
                    undecided @ Decision::Undecided(_) => undecided,
                    _ => Decision::Undefined,
                }
            }

            (AnswerForm::Named(gold_name, gold_value), AnswerForm::Named(name, value)) => {
                let sides = [gold_name, gold_value, name, value];
                let relettered = name::with_common_letters(sides);
                let [gold_name, gold_value, name, value] = match &relettered {
                    Some([a, b, c, d]) => [a, b, c, d],
                    None => sides,
                };

                if !name::are_interchangeable(gold_name, name) {
                    return DIFFERENT;
                }

                let decision = self.values(gold_value, value);
                let sides =
                    (gold_name.scalar(), gold_value.scalar(), name.scalar(), value.scalar());
                match (decision, sides) {
                    (Decision::Equal(_), _) => decision,
                    // `y = 2x` and `x = y/2` are the same line.
                    (_, (Some(a), Some(b), Some(c), Some(d))) if !b.is_constant() => {
                        self.equations((a, b), (c, d))
                    }
                    _ => decision,
                }
            }

            (AnswerForm::Named(name, value), AnswerForm::Equation(left, right)) => {
                match (name.scalar(), value.scalar()) {
                    (Some(name), Some(value)) => self.equations((name, value), (left, right)),
                    _ => DIFFERENT,
                }
            }
            (AnswerForm::Equation(left, right), AnswerForm::Named(name, value)) => {
                match (name.scalar(), value.scalar()) {
                    (Some(name), Some(value)) => self.equations((left, right), (name, value)),
                    _ => DIFFERENT,
                }
            }

            (AnswerForm::Equation(a, b), AnswerForm::Equation(c, d)) => {
                self.equations((a, b), (c, d))
            }
            (AnswerForm::Named(_, value), AnswerForm::Plain(response)) => {
                self.values(value, response)
            }
            (AnswerForm::Plain(gold), AnswerForm::Named(_, value)) => self.values(gold, value),
            (AnswerForm::Equation(..), _) | (_, AnswerForm::Equation(..)) => UNLIKE,
            (AnswerForm::Plain(gold), AnswerForm::Plain(response)) => self.plain(gold, response),
        }
    }

    fn plain(&mut self, gold: &Value, response: &Value) -> Decision {
        use Value::*;

        // `25m^2` is a quantity only if the other side is one. Otherwise its letter is a variable.
        match (gold, response) {
            (Quantity(_, unit, power), Scalar(expr)) => {
                if let Some(response) = measured(expr, *unit, *power) {
                    return self.plain(gold, &response);
                }
            }
            (Scalar(expr), Quantity(_, unit, power)) => {
                if let Some(gold) = measured(expr, *unit, *power) {
                    return self.plain(&gold, response);
                }
            }
            _ => {}
        }

        match (gold, response) {
            // The modulus is part of a residue: 1 modulo 3 is not 1 modulo 4.
            (
                Scalar(a @ Expr::Call(Function::Mod, of_a)),
                Scalar(b @ Expr::Call(Function::Mod, of_b)),
            ) => match (of_a.last(), of_b.last()) {
                (Some(modulus), Some(other)) => {
                    let same = self.scalars(modulus, other);
                    and(same, || self.scalars(a, b))
                }
                _ => DIFFERENT,
            },

            (Scalar(a), Scalar(b) | Quantity(b, ..)) | (Quantity(a, ..), Scalar(b)) => {
                self.scalars(a, b)
            }
            (Text(text), Scalar(Expr::Symbol(name))) | (Scalar(Expr::Symbol(name)), Text(text)) => {
                if name.to_lowercase() == *text {
                    EQUAL
                } else {
                    DIFFERENT
                }
            }

            (Quantity(_, unit, power), Quantity(_, other, other_power))
                if !unit.measures_as(*other) || power != other_power =>
            {
                DIFFERENT
            }
            (Quantity(a, unit, power), Quantity(b, other, _)) => match other.factor(*unit) {
                None => self.scalars(a, b),
                // A quantity does not have such a power, and the factor raised to it would be huge.
                Some(_) if *power > 12 => DIFFERENT,
                Some(factor) => {
                    let factor =
                        BigRational::new((*factor.numer()).into(), (*factor.denom()).into());
                    let scale = Expr::Number(num_traits::pow(factor, *power as usize));
                    self.scalars(a, &Expr::Product(vec![b.clone(), scale]))
                }
            },

            (Text(a), Text(b)) => same(a == b),
            (Moment(a), Moment(b)) => same(a.agrees(*b)),
            (Moment(moment), other) | (other, Moment(moment)) => same(names_time(*moment, other)),
            (Matrix(a), Matrix(b)) => self.matrices(a, b),
            // A single row or column may be written as a tuple.
            (Matrix(matrix), Tuple { items, .. }) | (Tuple { items, .. }, Matrix(matrix)) => {
                if (matrix.columns != 1 && matrix.rows != 1) || matrix.entries.len() != items.len()
                {
                    return DIFFERENT;
                }
                let entries: Vec<Value> = matrix.entries.iter().cloned().map(Scalar).collect();
                self.in_order(&entries, items)
            }

            (Ratio(a), Ratio(b)) if a.len() == b.len() => {
                a.iter().zip(b).fold(EQUAL, |decision, (a, b)| and(decision, || self.scalars(a, b)))
            }
            (Ratio(terms), Scalar(value)) | (Scalar(value), Ratio(terms)) => match terms.as_slice()
            {
                [a, b] => self.scalars(&Expr::Quotient(Box::new([a.clone(), b.clone()])), value),
                _ => DIFFERENT,
            },

            (Tuple { .. }, Tuple { .. }) => self.tuples(gold, response),
            // A list only says which values there are. If the other side has brackets, its values have an order.
            (List(list), Tuple { items, .. }) if point(list, response).is_some() => {
                self.in_order(&point(list, response).unwrap_or_default(), &unnamed(items))
            }
            (Tuple { items, .. }, List(list)) if point(list, gold).is_some() => {
                self.in_order(&unnamed(items), &point(list, gold).unwrap_or_default())
            }

            (Chain { terms: a, relations: of_a }, Chain { terms: b, relations: of_b }) => {
                match self.real_sets(gold, response) {
                    Some(decision) => decision,
                    None => self.chains((a, of_a), (b, of_b)),
                }
            }

            _ if is_region(gold) || is_region(response) => self.regions(gold, response),
            (List(a), List(b)) => self.lists(a, b),
            (List(items) | Set(items), other) => self.as_sets(items, &elements(other)),
            (other, List(items) | Set(items)) => self.as_sets(&elements(other), items),
            _ => DIFFERENT,
        }
    }

    fn scalars(&mut self, gold: &Expr, response: &Expr) -> Decision {
        let bare_gold = without_degrees(gold);
        let bare_response = without_degrees(response);
        let decision = self.expressions(&bare_gold, &bare_response);

        // 90° is 90 if the degree signs only say what is counted, and π/2 if the other side is an angle.
        let gold_has_degrees = *bare_gold != *gold;
        let response_has_degrees = *bare_response != *response;
        if matches!(decision, Decision::Equal(_)) || gold_has_degrees == response_has_degrees {
            return decision;
        }

        match self.expressions(gold, response) {
            equal @ Decision::Equal(_) => equal,
            _ => decision,
        }
    }

    fn expressions(&mut self, gold: &Expr, response: &Expr) -> Decision {
        let decimal = |expr: &Expr| expr.any(&|part| matches!(part, Expr::Decimal(_)));
        // A decimal is a rounded value, so it can only be compared as such.
        if decimal(gold) || decimal(response) {
            return algebra::equal_rounded(gold, response, self.rules.precision, self.budget);
        }

        algebra::equal(gold, response, self.budget)
    }

    /// Compares two equations. They are the same if one is a multiple of the other.
    fn equations(&mut self, gold: (&Expr, &Expr), response: (&Expr, &Expr)) -> Decision {
        match algebra::proportional(&minus(gold), &minus(response), self.budget) {
            Some((_, certainty)) => Decision::Equal(certainty),
            None => UNLIKE,
        }
    }

    fn matrices(&mut self, gold: &Matrix, response: &Matrix) -> Decision {
        if (gold.rows, gold.columns) != (response.rows, response.columns) {
            return DIFFERENT;
        }

        let pairs = gold.entries.iter().zip(&response.entries);
        pairs.fold(EQUAL, |decision, (a, b)| and(decision, || self.scalars(a, b)))
    }

    fn tuples(&mut self, gold: &Value, response: &Value) -> Decision {
        let (
            Value::Tuple { open: a_open, close: a_close, items: a },
            Value::Tuple { open: b_open, close: b_close, items: b },
        ) = (gold, response)
        else {
            return DIFFERENT;
        };

        let sides = |open: Side, close: Side, items: &[Value]| {
            let infinite =
                |item: Option<&Value>| item.and_then(Value::scalar).is_some_and(set::is_infinite);
            // An interval never includes an infinite end, whatever the bracket is.
            let side = |side, item| if infinite(item) { Side::Open } else { side };
            (side(open, items.first()), side(close, items.last()))
        };

        // Brackets around two items say which interval it is. Around more items they are decoration.
        if a.len() == 2 && sides(*a_open, *a_close, a) != sides(*b_open, *b_close, b) {
            return DIFFERENT;
        }

        self.in_order(a, b)
    }

    fn in_order(&mut self, gold: &[Value], response: &[Value]) -> Decision {
        if gold.len() != response.len() {
            return DIFFERENT;
        }

        gold.iter()
            .zip(response)
            .fold(EQUAL, |decision, (a, b)| and(decision, || self.values(a, b)))
    }

    /// Compares lists without brackets. Assignments are compared by their names, anything else as sets.
    fn lists(&mut self, gold: &[Value], response: &[Value]) -> Decision {
        // If some items are left out (`…`), the order says which.
        if gold.iter().any(|item| item.any(&|part| *part == Expr::Symbol("…".into()))) {
            return self.in_order(gold, response);
        }

        // Assignments are compared name by name, whatever their order.
        if let (Some(mut gold), Some(mut response)) = (assignments(gold), assignments(response)) {
            gold.sort_by(|a, b| a.0.cmp(&b.0));
            response.sort_by(|a, b| a.0.cmp(&b.0));
            if gold.iter().map(|(name, _)| name).eq(response.iter().map(|(name, _)| name)) {
                return gold
                    .iter()
                    .zip(&response)
                    .fold(EQUAL, |decision, (a, b)| and(decision, || self.values(a.1, b.1)));
            }
        }

        // Values of different unknowns have an order. Values of `x_1, x_2` are the values of one unknown.
        if have_an_order(gold) && gold.len() == response.len() {
            return self.in_order(&unnamed(gold), &unnamed(response));
        }

        self.as_sets(gold, response)
    }

    /// Tells whether every element of each side is among the elements of the other.
    fn as_sets(&mut self, gold: &[Value], response: &[Value]) -> Decision {
        let gold = unnamed(gold);
        let response = unnamed(response);
        let gold_numbers = self.numbers(&gold);
        let response_numbers = self.numbers(&response);

        // Rational numbers are looked up, so sets of thousands cost only thousands of steps.
        if let (Some(gold), Some(response)) = (&gold_numbers, &response_numbers) {
            let gold: HashSet<_> = gold.iter().collect();
            let response: HashSet<_> = response.iter().collect();
            return if gold == response { EQUAL } else { DIFFERENT };
        }

        // Anything else is compared pair by pair, which costs the product of the lengths.
        if self.budget.spend((gold.len() * response.len()) as u64 * 20).is_err() {
            return Decision::Undecided(UndecidedReason::OverBudget);
        }

        let forward = self.all_among(&gold, &response, false);
        and(forward, || self.all_among(&response, &gold, true))
    }

    /// Returns the elements as exact numbers, if all are rational and none was written as a decimal.
    fn numbers(&mut self, values: &[Value]) -> Option<Vec<BigRational>> {
        values
            .iter()
            .map(|value| match value {
                Value::Scalar(Expr::Number(number)) => Some(number.clone()),
                Value::Scalar(Expr::Quotient(two)) => match two.as_ref() {
                    [Expr::Number(a), Expr::Number(b)]
                        if *b != BigRational::from_integer(0.into()) =>
                    {
                        Some(a / b)
                    }
                    _ => None,
                },
                Value::Scalar(Expr::Negate(inner)) => match inner.as_ref() {
                    Expr::Quotient(two) => match two.as_ref() {
                        [Expr::Number(a), Expr::Number(b)]
                            if *b != BigRational::from_integer(0.into()) =>
                        {
                            Some(-(a / b))
                        }
                        _ => None,
                    },
                    _ => None,
                },
                _ => None,
            })
            .collect()
    }

    fn all_among(&mut self, some: &[Value], others: &[Value], swapped: bool) -> Decision {
        let mut overall = EQUAL;
        for one in some {
            let mut best = DIFFERENT;
            for other in others {
                let decision =
                    if swapped { self.values(other, one) } else { self.values(one, other) };

                match decision {
                    Decision::Equal(_) => {
                        best = decision;
                        break;
                    }
                    // A later element may still be equal.
                    Decision::Undecided(_) => best = decision,
                    _ => {}
                }
            }

            overall = and(overall, || best);
            if !matches!(overall, Decision::Equal(_)) {
                return overall;
            }
        }

        overall
    }

    /// Compares sets of numbers, however they are written.
    fn regions(&mut self, gold: &Value, response: &Value) -> Decision {
        let gold_is_set = matches!(gold, Value::Tuple { .. } | Value::Member(_)) || gold.is_set();
        if gold_is_set && matches!(response, Value::Chain { .. }) && !self.rules.relation_for_set {
            return DIFFERENT;
        }

        if let (Value::NamedSet(a), Value::NamedSet(b)) = (gold, response) {
            return if a == b { EQUAL } else { DIFFERENT };
        }

        if let Some(decision) = self.real_sets(gold, response) {
            return decision;
        }

        // `x ∈ S` is compared as `S`.
        let inside = |value: &Value| match value {
            Value::Member(sides) => Some(sides[1].clone()),
            _ => None,
        };

        match (inside(gold), inside(response)) {
            (Some(a), Some(b)) => self.plain(&a, &b),
            (Some(a), None) => self.plain(&a, response),
            (None, Some(b)) => self.plain(gold, &b),
            (None, None) => match (gold, response) {
                (Value::Join(join, a), Value::Join(other, b)) if join == other => {
                    self.in_order(a, b)
                }
                (Value::List(a), Value::List(b)) => self.lists(a, b),
                (Value::Set(a), Value::Set(b)) => self.as_sets(a, b),
                _ => UNLIKE,
            },
        }
    }

    fn real_sets(&mut self, gold: &Value, response: &Value) -> Option<Decision> {
        let gold = RealSet::of(gold, self.budget)?;
        let response = RealSet::of(response, self.budget)?;
        let same = gold.equals(&response, self.budget)?;
        Some(if same { EQUAL } else { DIFFERENT })
    }

    /// Compares inequalities that are not solved: those with one relation as multiples, longer chains term by term.
    fn chains(
        &mut self,
        gold: (&[Value], &[Relation]),
        response: (&[Value], &[Relation]),
    ) -> Decision {
        if let ([a, b], [relation], [c, d], [other]) = (gold.0, gold.1, response.0, response.1)
            && let (Some(a), Some(b), Some(c), Some(d)) =
                (a.scalar(), b.scalar(), c.scalar(), d.scalar())
            && (relation.is_order() || *relation == Relation::NotEqual)
        {
            return match algebra::proportional(&minus((a, b)), &minus((c, d)), self.budget) {
                Some((positive, certainty)) => {
                    let other = if positive { *other } else { other.flipped() };
                    if *relation == other { Decision::Equal(certainty) } else { DIFFERENT }
                }
                None => UNLIKE,
            };
        }

        if let ([a, b], [Relation::Congruent], [c, d], [Relation::Congruent]) =
            (gold.0, gold.1, response.0, response.1)
        {
            // The modulus is part of a congruence, so both moduli have to agree as well.
            let decision = if is_name(a) && is_name(c) { EQUAL } else { self.values(a, c) };

            return match (b.scalar().and_then(residue), d.scalar().and_then(residue)) {
                (Some((gold, modulus)), Some((response, other))) => {
                    let modulo = |number| Expr::Call(Function::Mod, vec![number, modulus.clone()]);
                    let decision = and(decision, || self.scalars(modulus, other));
                    and(decision, || self.scalars(&modulo(gold), &modulo(response)))
                }
                (None, None) => and(decision, || self.values(b, d)),
                _ => DIFFERENT,
            };
        }

        if gold.1 == response.1 {
            return self.in_order(gold.0, response.0);
        }

        // `a < b` says the same as `b > a`.
        if gold.1.iter().eq(response
            .1
            .iter()
            .rev()
            .map(|relation| relation.flipped())
            .collect::<Vec<_>>()
            .iter())
        {
            let reversed: Vec<Value> = response.0.iter().rev().cloned().collect();
            return self.in_order(gold.0, &reversed);
        }

        UNLIKE
    }
}

/// Returns the decision on values that are either the same or not.
fn same(same: bool) -> Decision {
    if same { EQUAL } else { DIFFERENT }
}

/// Tells whether a value is a time of day without its half: `3:30` for `3:30 pm`, or `3` for `3 pm`.
fn names_time(moment: Moment, value: &Value) -> bool {
    let terms = match value {
        Value::Ratio(terms) => terms.as_slice(),
        Value::Scalar(expr) => slice::from_ref(expr),
        _ => return false,
    };

    let number = |term: &Expr| match term {
        Expr::Number(number) if number.is_integer() => number.to_integer().to_u32(),
        _ => None,
    };

    let parts: Option<Vec<u32>> = terms.iter().map(number).collect();
    let time = parts.and_then(|parts| Moment::time(&parts, None));
    time.is_some_and(|time| time.agrees(moment))
}

/// Joins two decisions that both have to be "equal". The first that is not "equal" is the result.
fn and(first: Decision, second: impl FnOnce() -> Decision) -> Decision {
    let Decision::Equal(certainty) = first else { return first };
    match second() {
        Decision::Equal(other) => Decision::Equal(weaker(certainty, other)),
        settled => settled,
    }
}

fn weaker(a: Certainty, b: Certainty) -> Certainty {
    match (a, b) {
        (Certainty::Proved, other) | (other, Certainty::Proved) => other,
        (Certainty::Probable { bits: a }, Certainty::Probable { bits: b }) => {
            Certainty::Probable { bits: a.min(b) }
        }
        _ => Certainty::Undecided,
    }
}

fn answer_form(value: &Value) -> AnswerForm<'_> {
    let Value::Chain { terms, relations } = value else { return AnswerForm::Plain(value) };
    let is_equation =
        relations.iter().all(|relation| matches!(relation, Relation::Equal | Relation::About));
    if !is_equation {
        return AnswerForm::Plain(value);
    }

    // An approximate term does not count if an exact term precedes it.
    let exact = match relations.iter().position(|relation| *relation == Relation::About) {
        Some(0) if is_name(&terms[0]) => 1,
        Some(at) => at,
        None => relations.len(),
    };

    let first = &terms[0];
    let last_term = &terms[exact];
    if exact == 0 {
        return AnswerForm::Plain(first);
    }

    // The name may be on either side: `x = 5`, `5 = x`.
    if is_name(first) && !name::occurs(first, last_term) {
        return AnswerForm::Named(first, last_term);
    }
    if is_name(last_term) && terms.len() == 2 && !name::occurs(last_term, first) {
        return AnswerForm::Named(last_term, first);
    }

    match (first.scalar(), last_term.scalar()) {
        (Some(a), Some(b)) if a.is_constant() && b.is_constant() => AnswerForm::Claim(a, last_term),
        (Some(a), Some(b)) => AnswerForm::Equation(a, b),
        _ => AnswerForm::Plain(value),
    }
}

/// Tells whether all items are assignments, to names that differ in more than their index.
fn have_an_order(items: &[Value]) -> bool {
    let base = |(name, _): &(String, &Value)| name.split('_').next().unwrap_or_default().to_owned();
    let Some(names) = assignments(items) else { return false };
    let bases: HashSet<String> = names.iter().map(base).collect();
    names.len() > 1 && bases.len() == names.len()
}

/// Reads `x = 3, y = 4` as names and values, if all items are assignments to different names.
fn assignments(items: &[Value]) -> Option<Vec<(String, &Value)>> {
    let mut names = vec![];
    let mut seen = HashSet::new();
    for item in items {
        let AnswerForm::Named(name, value) = answer_form(item) else { return None };
        let name = format!("{name:?}");
        if !seen.insert(name.clone()) {
            return None;
        }
        names.push((name, value));
    }
    Some(names)
}

/// Reads `2 mod 3`, `-1 mod 3` or `k + 1 mod 3` as the number and the modulus. The modulus belongs to the complete
/// number, although the parser attached it to the last term.
fn residue(expr: &Expr) -> Option<(Expr, &Expr)> {
    match expr {
        Expr::Call(Function::Mod, parts) => {
            let [number, modulus] = parts.as_slice() else { return None };
            Some((number.clone(), modulus))
        }
        Expr::Negate(inner) => {
            let (number, modulus) = residue(inner)?;
            Some((Expr::Negate(Box::new(number)), modulus))
        }
        Expr::Sum(terms) => {
            let (last, terms) = terms.split_last()?;
            let (number, modulus) = residue(last)?;
            Some((Expr::Sum(terms.iter().cloned().chain([number]).collect()), modulus))
        }
        _ => None,
    }
}

/// Returns the items of a list in the order of `tuple`. This is the order of writing, or that of the items' names if
/// these are neighbours in the alphabet, so `y = 2, x = 1` is the point (1, 2). Returns `None` if the brackets make
/// `tuple` an interval, or if the items are not coordinates.
fn point(list: &[Value], tuple: &Value) -> Option<Vec<Value>> {
    let Value::Tuple { open, close, items } = tuple else { return None };
    if items.len() == 2 && (*open, *close) != (Side::Open, Side::Open) {
        return None;
    }

    if let Some(mut named) = assignments(list) {
        named.sort_by(|a, b| a.0.cmp(&b.0));
        let letters = list.iter().map(|item| match answer_form(item) {
            AnswerForm::Named(Value::Scalar(Expr::Symbol(name)), _) => single(name),
            _ => None,
        });

        let mut letters: Vec<char> = letters.collect::<Option<_>>()?;
        letters.sort_unstable();
        let neighbours = letters.windows(2).all(|two| u32::from(two[0]) + 1 == u32::from(two[1]));
        // `r` and `θ` name polar coordinates, although they are not neighbours.
        let polar = letters == ['r', 'θ'];
        return (neighbours || polar).then(|| named.into_iter().map(|(_, v)| v.clone()).collect());
    }

    let written = |item| !matches!(item, &Value::Chain { .. } | &Value::Tuple { .. });
    list.iter().chain(items).all(written).then(|| list.to_vec())
}

/// Reads `25m^2` as a quantity if its letter is a unit like `unit` to the same power. Unless the other side has such a
/// unit, the letter is a variable.
fn measured(expr: &Expr, unit: Unit, power: u32) -> Option<Value> {
    if let Expr::Negate(inner) = expr {
        let Value::Quantity(number, unit, power) = measured(inner, unit, power)? else {
            return None;
        };
        return Some(Value::Quantity(Expr::Negate(Box::new(number)), unit, power));
    }

    let Expr::Product(factors) = expr else { return None };
    let (last, number) = factors.split_last()?;

    let whole = BigRational::from_integer(power.into());
    let letter = match last {
        Expr::Symbol(letter) if power == 1 => letter,
        Expr::Power(two) => match two.as_ref() {
            [Expr::Symbol(letter), Expr::Number(raised)] if *raised == whole => letter,
            _ => return None,
        },
        _ => return None,
    };

    single(letter)?;
    let letter_unit = Unit::named(letter).filter(|letter_unit| letter_unit.measures_as(unit))?;
    if !number.iter().all(Expr::is_constant) {
        return None;
    }

    let number = match number {
        [number] => number.clone(),
        factors => Expr::Product(factors.to_vec()),
    };

    Some(Value::Quantity(number, letter_unit, power))
}

/// Returns the only character of a name, if it has just one.
fn single(name: &str) -> Option<char> {
    let mut chars = name.chars();
    chars.next().filter(|_| chars.next().is_none())
}

/// Returns the part before ranges such as `, k ∈ ℤ` or `, n ≥ 1`. A range says what a letter of the part runs over,
/// and the other side may lack it.
fn without_range(value: &Value) -> Option<Value> {
    let Value::List(items) = value else { return None };
    // A longer list holds values, and the search for its letters would cost the square of its length.
    let end = items.iter().position(is_range).filter(|_| items.len() <= 16)?;
    let (part, ranges) = items.split_at(end);

    let about_part = |range: &Value| {
        let mut uses_letter = false;
        range.each(&mut |expr| {
            uses_letter |= expr.any(&|letter| {
                matches!(letter, Expr::Symbol(_))
                    && part.iter().any(|item| item.any(&|other| other == letter))
            });
        });
        is_range(range) && uses_letter
    };

    match part {
        [] => None,
        _ if !ranges.iter().all(about_part) => None,
        [value] => Some(value.clone()),
        values => Some(Value::List(values.to_vec())),
    }
}

/// Tells whether an item of a list says what a letter runs over.
fn is_range(item: &Value) -> bool {
    match item {
        Value::Member(sides) => matches!(sides[0], Value::Scalar(Expr::Symbol(_))),
        Value::Chain { relations, .. } => {
            relations.iter().all(|relation| relation.is_order() || *relation == Relation::NotEqual)
        }
        _ => false,
    }
}

/// Returns the items without their names.
fn unnamed(items: &[Value]) -> Vec<Value> {
    let value = |item: &Value| match answer_form(item) {
        AnswerForm::Named(_, value) => value.clone(),
        _ => item.clone(),
    };
    items.iter().map(value).collect()
}

/// Returns the elements of a set or list, or else the value itself.
fn elements(value: &Value) -> Vec<Value> {
    match value {
        Value::List(items) | Value::Set(items) => items.clone(),
        other => vec![other.clone()],
    }
}

/// Tells whether a value is written as a set of real numbers.
fn is_region(value: &Value) -> bool {
    match value {
        Value::NamedSet(_) | Value::Join(..) | Value::Member(_) => true,
        Value::Chain { relations, .. } => {
            relations.iter().any(|relation| relation.is_order() || *relation == Relation::NotEqual)
        }
        Value::List(items) => {
            !items.is_empty()
                && items.iter().all(|item| !matches!(item, Value::List(_)) && is_region(item))
        }
        _ => false,
    }
}

fn minus((left, right): (&Expr, &Expr)) -> Expr {
    Expr::Sum(vec![left.clone(), Expr::Negate(Box::new(right.clone()))])
}

/// Removes the degree signs that only say what is counted.
fn without_degrees(expr: &Expr) -> Cow<'_, Expr> {
    match expr {
        Expr::Degrees(inner) => without_degrees(inner),
        Expr::Negate(inner) if matches!(**inner, Expr::Degrees(_)) => {
            Cow::Owned(Expr::Negate(Box::new(without_degrees(inner).into_owned())))
        }
        Expr::Sum(terms) if terms.iter().any(|term| matches!(term, Expr::Degrees(_))) => {
            Cow::Owned(Expr::Sum(
                terms.iter().map(|term| without_degrees(term).into_owned()).collect(),
            ))
        }
        other => Cow::Borrowed(other),
    }
}
