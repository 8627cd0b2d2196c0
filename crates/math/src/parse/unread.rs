//! The reasons why a text could not be parsed.

use std::fmt;

use crate::{budget::OverBudget, expr::MAX_DEPTH};

/// The reason why a text was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    Empty,
    /// A command whose meaning is not known here.
    Command(Box<str>),
    /// A sign that has no place in a formula.
    Sign(char),
    /// Words where a number was expected.
    Words(Box<str>),
    /// A day in digits, whose month nobody can tell.
    Date(Box<str>),
    /// The number of the sign at which something is missing or too much.
    Misplaced(usize),
    TooDeep,
    TooLong,
    OverBudget,
}

impl From<OverBudget> for Unread {
    fn from(_: OverBudget) -> Self {
        Unread::OverBudget
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unread::Empty => write!(f, "it is empty"),
            Unread::Command(name) => write!(f, "the command `\\{name}` is not known"),
            Unread::Sign(sign) => write!(f, "the sign {sign:?} has no place in a formula"),
            Unread::Words(words) => write!(f, "the words `{words}` stand where a number should"),
            Unread::Date(day) => write!(f, "`{day}` may be two days, so it is none"),
            Unread::Misplaced(at) => {
                write!(f, "something is missing or too much at token {at}, counted from 0")
            }
            Unread::TooDeep => write!(f, "it is nested deeper than {MAX_DEPTH}"),
            Unread::TooLong => write!(f, "it is too long"),
            Unread::OverBudget => write!(f, "the budget ran out while it was read"),
        }
    }
}
