use num_rational::BigRational;

use crate::expr::{Constant, Function};

/// One sign of a formula, whatever it was written with: `\frac`, `\dfrac` and `\cfrac` are the same
/// token, and so are `\le`, `\leq`, `<=` and `≤`.
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
    /// A variable by its name; `e` and `i` become constants in the parser, which knows what is bound.
    Symbol(Box<str>),
    /// A word of text, or of no mathematical meaning.
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
    /// `\{`, the braces that one sees.
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

/// How two sides stand to each other.
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
    /// The relation read from right to left.
    pub(crate) fn flipped(self) -> Self {
        match self {
            Relation::Less => Relation::Greater,
            Relation::LessEqual => Relation::GreaterEqual,
            Relation::Greater => Relation::Less,
            Relation::GreaterEqual => Relation::LessEqual,
            same => same,
        }
    }

    /// Whether it is one of `<`, `≤`, `>`, `≥`.
    pub(crate) fn is_order(self) -> bool {
        self.flipped() != self
    }

    /// How it is written in canonical forms.
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

/// A set that has a letter or a sign of its own.
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
    /// How it is written in canonical forms.
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
