use std::collections::HashMap;

use num_rational::BigRational;

/// A scalar expression, as the parser reads it: nothing is simplified, so that a value can still be
/// told from its form.
///
/// # Invariants that the parser gives
///
/// - No expression is nested deeper than [`MAX_DEPTH`], so that recursion over it is bounded.
/// - Sums and products are flat where they were written flat (`1+1+…+1` is one node), hold at least
///   two terms, and an expression has at most [`MAX_NODES`] nodes.
/// - A subtraction is a sum with a [`Expr::Negate`] term.
///
/// # Meaning
///
/// Variables stand for real numbers. An even root of a negative number is complex, an odd root of a
/// negative real number is real, and so is a power with a fraction of odd denominator. `|x|` is the
/// absolute value or the modulus. Division by zero, the logarithm of zero, and every sum or product
/// in which infinity meets its like (∞ − ∞, ∞/∞, 0·∞) are undefined, and undefined forms equal
/// nothing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expr {
    /// A number written without a decimal point: `42`, or the parts of `\frac{1}{2}`.
    Number(BigRational),
    /// A number written with a decimal point or an exponent (`0.5`, `1.2e3`), by its exact value.
    Decimal(BigRational),
    /// A variable by its canonical name: `x`, `x_1`, `\alpha`, `AB`.
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
    /// A known function; how many arguments it has is [`Function::arity`].
    Call(Function, Vec<Expr>),
    /// A finite sum or product over an index.
    Fold(Box<Fold>),
    /// An unknown function of its arguments: `f(x)`, also `f'` and `f^{-1}` by their canonical names.
    /// Equal when name and arguments are equal.
    Apply(Box<str>, Vec<Expr>),
    /// An angle in degrees. It is its argument times π/180 inside of a function, and the comparison
    /// takes it off at the top, where degree signs do not count.
    Degrees(Box<Expr>),
}

/// Expressions nested deeper than this are not read.
pub(crate) const MAX_DEPTH: usize = 100;

/// Expressions with more nodes than this are not read.
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
    /// What programs print for an undefined value: `NaN`.
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

/// The functions whose meaning is known.
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
    /// How many arguments it has; none for any number.
    pub(crate) fn arity(self) -> Option<usize> {
        match self {
            Function::Log | Function::Binomial | Function::Permutations | Function::Mod => Some(2),
            Function::Gcd | Function::Lcm | Function::Min | Function::Max => None,
            _ => Some(1),
        }
    }
}

impl Expr {
    /// The parts it is made of.
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

    /// Whether parts are nested deeper than `limit`: told without recursion.
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

    /// Whether `found` holds for it or for a part of it, bounds and bodies of sums included.
    pub(crate) fn any(&self, found: &dyn Fn(&Expr) -> bool) -> bool {
        let inside = match self {
            Expr::Fold(fold) => {
                [&fold.from, &fold.to, &fold.body].into_iter().any(|part| part.any(found))
            }
            other => other.children().iter().any(|part| part.any(found)),
        };
        inside || found(self)
    }

    /// Whether the variable `name` occurs.
    pub(crate) fn mentions(&self, name: &str) -> bool {
        self.any(&|part| matches!(part, Expr::Symbol(symbol) if **symbol == *name))
    }

    /// With its variables numbered: a new one gets the next number of `names`.
    pub(crate) fn renamed(self, names: &mut HashMap<Box<str>, usize>) -> Expr {
        let mut all =
            |parts: Vec<Expr>| parts.into_iter().map(|part| part.renamed(names)).collect();
        match self {
            Expr::Symbol(name) => {
                let next = names.len();
                Expr::Symbol(format!("#{}", names.entry(name).or_insert(next)).into())
            }
            Expr::Sum(parts) => Expr::Sum(all(parts)),
            Expr::Product(parts) => Expr::Product(all(parts)),
            Expr::Call(function, parts) => Expr::Call(function, all(parts)),
            Expr::Apply(function, parts) => Expr::Apply(function, all(parts)),
            Expr::Quotient(parts) => {
                Expr::Quotient(Box::new(parts.map(|part| part.renamed(names))))
            }
            Expr::Power(parts) => Expr::Power(Box::new(parts.map(|part| part.renamed(names)))),
            Expr::Root(parts) => Expr::Root(Box::new(parts.map(|part| part.renamed(names)))),
            Expr::Negate(inner) => Expr::Negate(Box::new(inner.renamed(names))),
            Expr::Degrees(inner) => Expr::Degrees(Box::new(inner.renamed(names))),
            // The index of a sum is no variable, and has a name of its own here.
            fold @ Expr::Fold(_) => fold,
            leaf @ (Expr::Number(_) | Expr::Decimal(_) | Expr::Constant(_)) => leaf,
        }
    }

    /// Whether neither variables nor unknown functions occur. An index of a sum is no variable.
    pub(crate) fn is_constant(&self) -> bool {
        match self {
            Expr::Symbol(_) | Expr::Apply(..) => false,
            Expr::Fold(fold) => {
                let zero = Expr::Number(num_bigint::BigInt::from(0).into());
                fold.from.is_constant()
                    && fold.to.is_constant()
                    && fold.body.clone().with(&fold.index, &zero).is_constant()
            }
            other => other.children().iter().all(Expr::is_constant),
        }
    }

    /// With `value` in the place of the variable `name`.
    pub(crate) fn with(self, name: &str, value: &Expr) -> Expr {
        let all = |parts: Vec<Expr>| parts.into_iter().map(|part| part.with(name, value)).collect();
        let two = |parts: Box<[Expr; 2]>| Box::new((*parts).map(|part| part.with(name, value)));
        match self {
            Expr::Symbol(symbol) if *symbol == *name => value.clone(),
            Expr::Sum(parts) => Expr::Sum(all(parts)),
            Expr::Product(parts) => Expr::Product(all(parts)),
            Expr::Call(function, parts) => Expr::Call(function, all(parts)),
            Expr::Apply(function, parts) => Expr::Apply(function, all(parts)),
            Expr::Quotient(parts) => Expr::Quotient(two(parts)),
            Expr::Power(parts) => Expr::Power(two(parts)),
            Expr::Root(parts) => Expr::Root(two(parts)),
            Expr::Negate(inner) => Expr::Negate(Box::new(inner.with(name, value))),
            Expr::Degrees(inner) => Expr::Degrees(Box::new(inner.with(name, value))),
            Expr::Fold(fold) => {
                let Fold { kind, index, from, to, body } = *fold;
                let body = if *index == *name { body } else { body.with(name, value) };
                let (from, to) = (from.with(name, value), to.with(name, value));
                Expr::Fold(Box::new(Fold { kind, index, from, to, body }))
            }
            leaf @ (Expr::Number(_) | Expr::Decimal(_) | Expr::Symbol(_) | Expr::Constant(_)) => {
                leaf
            }
        }
    }
}
