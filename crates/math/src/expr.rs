//! Scalar expressions in the form in which they were written.

use std::{cell::RefCell, collections::HashMap};

use num_rational::BigRational;

/// A scalar expression, as the parser reads it. Nothing is simplified, so an expression still shows the form in
/// which it was written.
///
/// # Invariants that the parser guarantees
///
/// - No expression is nested deeper than [`MAX_DEPTH`], so recursion over it is bounded.
/// - Sums and products are flat if they were written flat (`1+1+…+1` is one node), and hold at least two terms. An
///   expression has at most [`MAX_NODES`] nodes.
/// - A subtraction is a sum with a [`Expr::Negate`] term.
///
/// # Meaning
///
/// Variables stand for real numbers. An even root of a negative number is complex. An odd root of a negative real
/// number is real, and so is a power of it whose exponent has an odd denominator. `|x|` is the absolute value or the
/// modulus. Division by zero, the logarithm of zero, and every indeterminate form (∞ − ∞, ∞/∞, 0·∞) are undefined. An
/// undefined expression equals nothing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expr {
    /// A number written without a decimal point: `42`, or the parts of `\frac{1}{2}`.
    Number(BigRational),
    /// A number written with a decimal point or an exponent (`0.5`, `1.2e3`), with its exact value.
    Decimal(BigRational),
    /// A variable with its canonical name: `x`, `x_1`, `\alpha`, `AB`.
    Symbol(Box<str>),
    Constant(Constant),
    Sum(Vec<Expr>),
    Product(Vec<Expr>),
    Negate(Box<Expr>),
    /// Numerator and denominator.
    Quotient(Box<[Expr; 2]>),
    /// Base and exponent.
    Power(Box<[Expr; 2]>),
    /// Degree and radicand. A square root has the degree `Number(2)`.
    Root(Box<[Expr; 2]>),
    /// A known function. [`Function::arity`] is the number of its arguments.
    Call(Function, Vec<Expr>),
    /// A finite sum or product over an index.
    Fold(Box<Fold>),
    /// An unknown function of its arguments: `f(x)`, also `f'` and `f^{-1}` with their canonical names. Two are
    /// equal if name and arguments are equal.
    Apply(Box<str>, Vec<Expr>),
    /// An angle in degrees. Inside a function it is its argument times π/180. At the top, where degree signs do not
    /// count, the comparison removes it.
    Degrees(Box<Expr>),
}

/// Maximum depth of an expression that is read.
pub(crate) const MAX_DEPTH: usize = 100;

/// Maximum number of nodes of an expression that is read.
pub(crate) const MAX_NODES: usize = 30_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Constant {
    Pi,
    /// Euler's number.
    E,
    /// The imaginary unit.
    I,
    /// Positive infinity; minus infinity is its [`Expr::Negate`].
    Infinity,
    /// An undefined value, as programs print it: `NaN`.
    NotANumber,
}

/// A finite sum or product: `\sum_{index=from}^{to} body`, with both ends included.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fold {
    pub(crate) kind: FoldKind,
    pub(crate) index: Box<str>,
    pub(crate) from: Expr,
    pub(crate) to: Expr,
    pub(crate) body: Expr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum FoldKind {
    Sum,
    Product,
}

/// Functions whose meaning is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Function {
    Sin,
    Cos,
    Tan,
    Cot,
    Sec,
    Csc,
    Arcsin,
    Arccos,
    Arctan,
    Arccot,
    Sinh,
    Cosh,
    Tanh,
    Exp,
    /// Natural logarithm.
    Ln,
    /// Base and argument.
    Log,
    Abs,
    Floor,
    Ceil,
    Factorial,
    /// `n!!`.
    DoubleFactorial,
    /// `n` and `k`.
    Binomial,
    /// Ordered choices of `k` among `n`: `n` and `k`.
    Permutations,
    /// Remainder in `[0, m)` for a positive modulus: number and modulus.
    Mod,
    /// Any number of integers.
    Gcd,
    /// Any number of integers.
    Lcm,
    /// Any number of reals.
    Min,
    /// Any number of reals.
    Max,
    /// Real part.
    Re,
    /// Imaginary part.
    Im,
    /// Complex conjugate.
    Conjugate,
}

impl Function {
    /// Returns the number of arguments, or `None` if the function takes any number.
    pub(crate) fn arity(self) -> Option<usize> {
        match self {
            Function::Log | Function::Binomial | Function::Permutations | Function::Mod => Some(2),
            Function::Gcd | Function::Lcm | Function::Min | Function::Max => None,
            _ => Some(1),
        }
    }
}

impl Expr {
    /// Returns the parts of the expression.
    pub(crate) fn children(&self) -> &[Expr] {
        match self {
            Expr::Sum(parts)
            | Expr::Product(parts)
            | Expr::Call(_, parts)
            | Expr::Apply(_, parts) => parts,
            Expr::Quotient(two) | Expr::Power(two) | Expr::Root(two) => two.as_slice(),
            Expr::Negate(inner) | Expr::Degrees(inner) => std::slice::from_ref(inner),
            Expr::Number(_)
            | Expr::Decimal(_)
            | Expr::Symbol(_)
            | Expr::Constant(_)
            | Expr::Fold(_) => &[],
        }
    }

    /// Tells whether parts are nested deeper than `limit`, without recursion.
    pub(crate) fn is_deeper_than(&self, limit: usize) -> bool {
        let mut waiting = vec![(self, 0)];
        while let Some((expr, depth)) = waiting.pop() {
            if depth > limit {
                return true;
            }

            match expr {
                Expr::Fold(fold) => {
                    waiting
                        .extend([&fold.from, &fold.to, &fold.body].map(|part| (part, depth + 1)));
                }
                other => waiting.extend(other.children().iter().map(|part| (part, depth + 1))),
            }
        }

        false
    }

    /// Tells whether `found` holds for the expression or for a part of it, bounds and bodies of sums included.
    pub(crate) fn any(&self, found: &dyn Fn(&Expr) -> bool) -> bool {
        let inside = match self {
            Expr::Fold(fold) => {
                [&fold.from, &fold.to, &fold.body].into_iter().any(|part| part.any(found))
            }
            other => other.children().iter().any(|part| part.any(found)),
        };

        inside || found(self)
    }

    /// Tells whether the variable `name` occurs.
    pub(crate) fn mentions(&self, name: &str) -> bool {
        self.any(&|part| matches!(part, Expr::Symbol(symbol) if **symbol == *name))
    }

    /// Replaces the variables by numbers. A new variable gets the next number in `names`. The index of a sum is not a
    /// variable and keeps its name.
    pub(crate) fn renamed(self, names: &mut HashMap<Box<str>, usize>) -> Expr {
        let names = RefCell::new(names);
        self.replaced(&|symbol| {
            let mut names = names.borrow_mut();
            let next = names.len();
            let number = names.entry(symbol.into()).or_insert(next);
            Some(Expr::Symbol(format!("#{number}").into()))
        })
    }

    /// Tells whether the expression has neither variables nor unknown functions. An index of a sum is not a variable.
    pub(crate) fn is_constant(&self) -> bool {
        match self {
            Expr::Symbol(_) | Expr::Apply(..) => false,
            Expr::Fold(fold) => {
                // Any number may stand for the index, which is bound in the body.
                let zero = Expr::Number(num_bigint::BigInt::from(0).into());
                fold.from.is_constant()
                    && fold.to.is_constant()
                    && fold.body.clone().with(&fold.index, &zero).is_constant()
            }
            other => other.children().iter().all(Expr::is_constant),
        }
    }

    /// Replaces the variable `name` by `value`.
    pub(crate) fn with(self, name: &str, value: &Expr) -> Expr {
        self.replaced(&|symbol| (*symbol == *name).then(|| value.clone()))
    }

    /// Replaces each variable for which `by` has an expression. An index of a sum is not a variable in its body.
    pub(crate) fn replaced(self, by: &dyn Fn(&str) -> Option<Expr>) -> Expr {
        let replace_all =
            |parts: Vec<Expr>| parts.into_iter().map(|part| part.replaced(by)).collect();
        let two = |parts: Box<[Expr; 2]>| Box::new((*parts).map(|part| part.replaced(by)));

        match self {
            Expr::Symbol(symbol) => by(&symbol).unwrap_or(Expr::Symbol(symbol)),
            Expr::Sum(parts) => Expr::Sum(replace_all(parts)),
            Expr::Product(parts) => Expr::Product(replace_all(parts)),
            Expr::Call(function, parts) => Expr::Call(function, replace_all(parts)),
            Expr::Apply(function, parts) => Expr::Apply(function, replace_all(parts)),
            Expr::Quotient(parts) => Expr::Quotient(two(parts)),
            Expr::Power(parts) => Expr::Power(two(parts)),
            Expr::Root(parts) => Expr::Root(two(parts)),
            Expr::Negate(inner) => Expr::Negate(Box::new(inner.replaced(by))),
            Expr::Degrees(inner) => Expr::Degrees(Box::new(inner.replaced(by))),

            Expr::Fold(fold) => {
                let Fold { kind, index, from, to, body } = *fold;
                let free = |symbol: &str| if *symbol == *index { None } else { by(symbol) };
                let body = body.replaced(&free);
                let from = from.replaced(by);
                let to = to.replaced(by);
                Expr::Fold(Box::new(Fold { kind, index, from, to, body }))
            }
            leaf @ (Expr::Number(_) | Expr::Decimal(_) | Expr::Constant(_)) => leaf,
        }
    }
}
