//! Reasons why a text could not be parsed.

use std::fmt;

use crate::{budget::OverBudget, expr::MAX_DEPTH};

/// Why a text was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ParseError {
    Empty,
    /// A command whose meaning is unknown here.
    Command(Box<str>),
    /// A sign that has no place in a formula.
    Sign(char),
    /// Words where a number was expected.
    Words(Box<str>),
    /// A day in digits, whose month nobody can tell.
    Date(Box<str>),
    /// Index of the token at which something is missing or too much.
    Misplaced(usize),
    TooDeep,
    TooLong,
    OverBudget,
}

impl From<OverBudget> for ParseError {
    fn from(_: OverBudget) -> Self {
        ParseError::OverBudget
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParseError::Empty => write!(f, "it is empty"),
            ParseError::Command(name) => write!(f, "the command `\\{name}` is not known"),
            ParseError::Sign(sign) => write!(f, "the sign {sign:?} has no place in a formula"),
            ParseError::Words(words) => {
                write!(f, "the words `{words}` stand where a number is expected")
            }
            ParseError::Date(day) => {
                write!(f, "`{day}` could be two different days, so it is not read")
            }
            ParseError::Misplaced(at) => {
                write!(f, "something is missing or superfluous at token {at}, counted from 0")
            }
            ParseError::TooDeep => write!(f, "it is nested deeper than {MAX_DEPTH}"),
            ParseError::TooLong => write!(f, "it is too long"),
            ParseError::OverBudget => write!(f, "the budget ran out while it was read"),
        }
    }
}
