//! Kinds of answers: a number, a tuple, a set, an equation, a word, ….

use crate::{algebra, budget::Budget, expr::Expr, moment::Moment, unit::Unit};

/// An answer with its type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// A number or an expression in variables. A percent sign is part of it (28 % is 28/100), and a number in
    /// another base is its value (325₆ is 125).
    Scalar(Expr),
    /// A number with a unit that can contradict another one, and the unit's power.
    Quantity(Expr, Unit, u32),
    /// Words in lower case, separated by single spaces.
    Text(String),
    /// Items without brackets, separated by commas, `and` or `or`. They count as a set, unless the other side is a
    /// tuple.
    List(Vec<Value>),
    /// Items in round, square or angle brackets, in their order. Two such items may be an interval.
    Tuple {
        open: Side,
        close: Side,
        items: Vec<Value>,
    },
    /// Items in curly brackets.
    Set(Vec<Value>),
    NamedSet(NamedSet),
    /// Sets joined by one operation, from left to right.
    Join(Join, Vec<Value>),
    Matrix(Matrix),
    /// Terms with relations between them: `x = 5`, `-2 < x ≤ 7`, `a = b = c`. There is one more term than relations.
    Chain {
        terms: Vec<Value>,
        relations: Vec<Relation>,
    },
    /// `x ∈ S`.
    Member(Box<[Value; 2]>),
    /// `2:3`, as its terms.
    Ratio(Vec<Expr>),
    /// A day or a time of day.
    Moment(Moment),
}

/// One side of a pair of brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// A round or angle bracket: an interval without its end.
    Open,
    /// A square bracket: an interval with its end.
    Closed,
}

/// An operation on sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    Union,
    Intersection,
    Without,
}

/// A matrix, with its entries row by row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Matrix {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) entries: Vec<Expr>,
}

/// A relation between two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Relation {
    Equal,
    /// `≈`
    About,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    /// `≡`
    Congruent,
}

impl Relation {
    /// Returns the relation as read from right to left.
    pub(crate) fn flipped(self) -> Self {
        match self {
            Relation::Less => Relation::Greater,
            Relation::LessEqual => Relation::GreaterEqual,
            Relation::Greater => Relation::Less,
            Relation::GreaterEqual => Relation::LessEqual,
            same => same,
        }
    }

    /// Tells whether the relation is one of `<`, `≤`, `>`, `≥`.
    pub(crate) fn is_order(self) -> bool {
        self.flipped() != self
    }

    /// Returns the relation's sign in canonical forms.
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Relation::Equal => "=",
            Relation::About => "≈",
            Relation::NotEqual => "≠",
            Relation::Less => "<",
            Relation::LessEqual => "≤",
            Relation::Greater => ">",
            Relation::GreaterEqual => "≥",
            Relation::Congruent => "≡",
        }
    }
}

/// A set that has its own letter or sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum NamedSet {
    Empty,
    Naturals,
    Integers,
    Rationals,
    Reals,
    Complex,
}

impl NamedSet {
    /// Returns the set's sign in canonical forms.
    pub(crate) fn sign(self) -> &'static str {
        match self {
            NamedSet::Empty => "∅",
            NamedSet::Naturals => "ℕ",
            NamedSet::Integers => "ℤ",
            NamedSet::Rationals => "ℚ",
            NamedSet::Reals => "ℝ",
            NamedSet::Complex => "ℂ",
        }
    }
}

impl Value {
    /// Returns the name of the type, for the reason of a judgement.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Value::Scalar(_) => "an expression",
            Value::Quantity(..) => "a quantity",
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Tuple { .. } => "a tuple or interval",
            Value::Set(_) | Value::NamedSet(_) | Value::Join(..) => "a set",
            Value::Matrix(_) => "a matrix",
            Value::Chain { .. } => "an equation or inequality",
            Value::Member(_) => "a membership",
            Value::Ratio(_) => "a ratio",
            Value::Moment(_) => "a day or time",
        }
    }

    /// Returns the expression of a scalar or quantity.
    pub(crate) fn scalar(&self) -> Option<&Expr> {
        match self {
            Value::Scalar(expr) | Value::Quantity(expr, ..) => Some(expr),
            _ => None,
        }
    }

    /// Tells whether the value is a set of numbers on its own.
    pub(crate) fn is_set(&self) -> bool {
        matches!(self, Value::Set(_) | Value::NamedSet(_) | Value::Join(..))
    }

    /// Writes the value in canonical form, as readable plain text.
    pub(crate) fn canonical(&self, budget: &mut Budget) -> String {
        let list = |items: &[Value], budget: &mut Budget| {
            items.iter().map(|item| item.canonical(budget)).collect::<Vec<_>>().join(", ")
        };
        let scalars = |items: &[Expr], between: &str, budget: &mut Budget| {
            items
                .iter()
                .map(|item| algebra::canonical(item, budget))
                .collect::<Vec<_>>()
                .join(between)
        };

        match self {
            Value::Scalar(expr) => algebra::canonical(expr, budget),
            Value::Quantity(expr, unit, 1) => {
                format!("{} {}", algebra::canonical(expr, budget), unit.name())
            }
            Value::Quantity(expr, unit, power) => {
                format!("{} {}^{power}", algebra::canonical(expr, budget), unit.name())
            }
            Value::Text(text) => text.clone(),
            Value::List(items) => list(items, budget),
            Value::Set(items) => format!("{{{}}}", list(items, budget)),
            Value::Tuple { open, close, items } => {
                let open = if *open == Side::Closed { '[' } else { '(' };
                let close = if *close == Side::Closed { ']' } else { ')' };
                format!("{open}{}{close}", list(items, budget))
            }
            Value::NamedSet(set) => set.sign().to_owned(),

            Value::Join(join, parts) => {
                let parts: Vec<_> = parts.iter().map(|part| part.canonical(budget)).collect();
                parts.join(match join {
                    Join::Union => " ∪ ",
                    Join::Intersection => " ∩ ",
                    Join::Without => " ∖ ",
                })
            }

            Value::Matrix(matrix) => {
                let rows = matrix.entries.chunks(matrix.columns.max(1));
                rows.map(|row| scalars(row, " ", budget)).collect::<Vec<_>>().join("; ")
            }

            Value::Chain { terms, relations } => {
                let mut text = String::new();
                for (index, term) in terms.iter().enumerate() {
                    if let Some(relation) = index.checked_sub(1).and_then(|at| relations.get(at)) {
                        text = text + " " + relation.sign() + " ";
                    }
                    text += &term.canonical(budget);
                }

                text
            }

            Value::Member(sides) => {
                format!("{} ∈ {}", sides[0].canonical(budget), sides[1].canonical(budget))
            }
            Value::Ratio(terms) => scalars(terms, ":", budget),
            Value::Moment(moment) => moment.canonical(),
        }
    }

    /// Applies `change` to every expression in the value.
    pub(crate) fn map(self, change: &mut dyn FnMut(Expr) -> Expr) -> Value {
        let mut map_all = |values: Vec<Value>| {
            values.into_iter().map(|value| value.map(change)).collect::<Vec<_>>()
        };

        match self {
            Value::Scalar(expr) => Value::Scalar(change(expr)),
            Value::Quantity(expr, unit, power) => Value::Quantity(change(expr), unit, power),
            Value::List(items) => Value::List(map_all(items)),
            Value::Tuple { open, close, items } => {
                Value::Tuple { open, close, items: map_all(items) }
            }
            Value::Set(items) => Value::Set(map_all(items)),
            Value::Join(join, items) => Value::Join(join, map_all(items)),
            Value::Chain { terms, relations } => Value::Chain { terms: map_all(terms), relations },

            Value::Member(sides) => {
                let [element, set] = *sides;
                Value::Member(Box::new([element.map(change), set.map(change)]))
            }
            Value::Matrix(Matrix { rows, columns, entries }) => {
                let entries = entries.into_iter().map(change).collect();
                Value::Matrix(Matrix { rows, columns, entries })
            }
            Value::Ratio(terms) => Value::Ratio(terms.into_iter().map(change).collect()),
            same @ (Value::Text(_) | Value::NamedSet(_) | Value::Moment(_)) => same,
        }
    }

    /// Tells whether `found` holds for a part of an expression in the value.
    pub(crate) fn any(&self, found: &dyn Fn(&Expr) -> bool) -> bool {
        let mut any = false;
        self.each(&mut |expr| any |= expr.any(found));
        any
    }

    /// Calls `visit` with every expression in the value.
    pub(crate) fn each(&self, visit: &mut dyn FnMut(&Expr)) {
        match self {
            Value::Scalar(expr) | Value::Quantity(expr, ..) => visit(expr),
            Value::List(items)
            | Value::Tuple { items, .. }
            | Value::Set(items)
            | Value::Join(_, items)
            | Value::Chain { terms: items, .. } => items.iter().for_each(|item| item.each(visit)),
            Value::Member(sides) => sides.iter().for_each(|side| side.each(visit)),
            Value::Matrix(matrix) => matrix.entries.iter().for_each(visit),
            Value::Ratio(terms) => terms.iter().for_each(visit),
            Value::Text(_) | Value::NamedSet(_) | Value::Moment(_) => {}
        }
    }
}
