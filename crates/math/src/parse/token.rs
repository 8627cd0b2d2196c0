//! Tokens of formulas, one for each meaning.

use num_rational::BigRational;

use crate::{
    expr::{Constant, Function},
    value::{NamedSet, Relation},
};

/// One sign of a formula, however it was written: `\frac`, `\dfrac` and `\cfrac` are the same token, and so are
/// `\le`, `\leq`, `<=` and `≤`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A number, and whether it was written with a decimal point or an exponent.
    Number {
        value: BigRational,
        decimal: bool,
    },
    /// A number whose power of ten is too large to write out: mantissa and exponent.
    Scientific {
        mantissa: BigRational,
        exponent: i64,
    },
    /// A fraction in one sign: `½`.
    Vulgar(BigRational),
    /// A variable with its name. The parser turns `e` and `i` into constants, because it knows the bound names.
    Symbol(Box<str>),
    /// A word of text, or one without mathematical meaning.
    Word(Box<str>),
    Constant(Constant),
    Function(Function),
    NamedSet(NamedSet),
    Plus,
    Minus,
    PlusMinus,
    MinusPlus,
    Times,
    Slash,
    Caret,
    /// A superscript that needs no caret: `x²`.
    Superscript(u32),
    Underscore,
    Bang,
    Percent,
    Degree,
    Prime,
    Comma,
    Semicolon,
    /// The word `and`, or its sign.
    And,
    /// The word `or`, or its sign.
    Or,
    Colon,
    Bar,
    Open(Bracket),
    Close(Bracket),
    Relation(Relation),
    In,
    Union,
    Intersection,
    Without,
    Fraction,
    Root,
    CubeRoot,
    Binomial,
    Choose,
    Sum,
    Product,
    Modulo,
    BeginMatrix,
    EndMatrix,
    Ampersand,
    Row,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bracket {
    /// `(`
    Round,
    /// `[`
    Square,
    /// `\{`, the visible braces.
    Curly,
    /// `{`, the braces that only group.
    Group,
    /// `\langle`
    Angle,
    /// `\lfloor`
    Floor,
    /// `\lceil`
    Ceil,
    /// `\lvert`
    Bar,
}
