//! Reads sums and products of numbers and of matrices.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::ToPrimitive as _;

use super::{
    BOTH_SIGNS, ParseError, Parser,
    token::{Bracket, Token},
};
use crate::{
    expr::{Expr, Function, MAX_DEPTH},
    value::{Join, Matrix, Side, Value},
};

impl Parser<'_> {
    /// Reads terms with signs between them.
    pub(super) fn sum(&mut self) -> Result<Value, ParseError> {
        let mut sign = self.sign();

        // A leading sign belongs to the number whose remainder is taken, so `-1 mod 5` is 4. Between terms it does not,
        // so `7 - 1 mod 5` is 6.
        let mut first = self.product(&mut sign)?;
        let mut terms = vec![];

        loop {
            terms.push(self.signed(sign, first)?);
            sign = match self.peek() {
                Some(Token::Plus | Token::Minus | Token::PlusMinus | Token::MinusPlus) => {
                    self.sign()
                }
                _ => break,
            };
            first = self.product(&mut Sign::Plus)?;
        }

        if terms.len() == 1 {
            return Ok(terms.remove(0));
        }
        self.add(terms)
    }

    /// Reads any number of signs as one.
    fn sign(&mut self) -> Sign {
        let mut sign = Sign::Plus;
        loop {
            sign =
                match (self.peek(), sign) {
                    (Some(Token::Plus), sign) => sign,
                    (Some(Token::Minus), Sign::Plus) => Sign::Minus,
                    (Some(Token::Minus), Sign::Minus) => Sign::Plus,
                    (Some(Token::PlusMinus), Sign::Plus)
                    | (Some(Token::MinusPlus), Sign::Minus) => Sign::Both,
                    (Some(Token::MinusPlus), Sign::Plus)
                    | (Some(Token::PlusMinus), Sign::Minus) => Sign::Opposite,
                    _ => return sign,
                };
            self.at += 1;
        }
    }

    fn signed(&mut self, sign: Sign, value: Value) -> Result<Value, ParseError> {
        let both_signs = || Value::Scalar(Expr::Symbol(BOTH_SIGNS.into()));
        match (sign, value) {
            (Sign::Plus, value) => Ok(value),
            (Sign::Minus, Value::Scalar(expr)) => Ok(Value::Scalar(negated(expr))),
            (Sign::Minus, value @ Value::Matrix(_)) => {
                self.multiply(Value::Scalar(integer(-1)), value)
            }
            // The method `add` turns this into the difference of sets.
            (Sign::Minus, set) if set.is_set() => Ok(Value::Join(Join::Without, vec![set])),
            (Sign::Both, value) => self.multiply(both_signs(), value),
            (Sign::Opposite, value) => {
                let both = Value::Scalar(Expr::Negate(Box::new(Expr::Symbol(BOTH_SIGNS.into()))));
                self.multiply(both, value)
            }
            (Sign::Minus, _) => Err(self.misplaced()),
        }
    }

    fn add(&self, terms: Vec<Value>) -> Result<Value, ParseError> {
        if terms.iter().all(|term| matches!(term, Value::Scalar(_))) {
            let terms = terms.into_iter().filter_map(|term| match term {
                Value::Scalar(expr) => Some(expr),
                _ => None,
            });
            return Ok(Value::Scalar(Expr::Sum(terms.collect())));
        }

        let mut terms = terms.into_iter();
        let Some(mut total) = terms.next() else { return Err(self.misplaced()) };
        for term in terms {
            total = match (total, term) {
                (Value::Matrix(a), Value::Matrix(b))
                    if a.rows == b.rows && a.columns == b.columns =>
                {
                    let pairs = a.entries.into_iter().zip(b.entries);
                    let entries = pairs.map(|(a, b)| Expr::Sum(vec![a, b])).collect();
                    Value::Matrix(Matrix { entries, ..empty_matrix(a.rows, a.columns) })
                }
                (set, Value::Join(Join::Without, mut without)) if without.len() == 1 => {
                    without.insert(0, set);
                    Value::Join(Join::Without, without)
                }
                _ => return Err(self.misplaced()),
            };
        }

        Ok(total)
    }

    /// Reads factors with signs between them, or side by side. A modulus takes the sign before them.
    fn product(&mut self, sign: &mut Sign) -> Result<Value, ParseError> {
        let first = self.power()?;
        let first = self.mixed_number(first)?;
        self.signed_product_from(first, true, sign)
    }

    /// Continues from a factor. Without `operators`, the product has only factors side by side, as in the argument of
    /// `\sin 2x`.
    pub(super) fn product_from(
        &mut self,
        first: Value,
        operators: bool,
    ) -> Result<Value, ParseError> {
        self.signed_product_from(first, operators, &mut Sign::Plus)
    }

    fn signed_product_from(
        &mut self,
        first: Value,
        operators: bool,
        sign: &mut Sign,
    ) -> Result<Value, ParseError> {
        // Scalar factors gather in `factors`, so that a long product is one node.
        let mut factors: Vec<Expr> = vec![];
        let mut non_scalar = None;
        let mut nested = 0;
        match first {
            Value::Scalar(expr) => factors.push(expr),
            other => non_scalar = Some(other),
        }

        loop {
            let operator = self.peek().filter(|_| operators);
            // Each of these nests the product so far one level deeper in the tree.
            if matches!(operator, Some(Token::Slash | Token::Modulo | Token::Open(_))) {
                nested += 1;
                if nested > MAX_DEPTH {
                    return Err(ParseError::TooDeep);
                }
            }

            match operator {
                Some(Token::Times) => {
                    self.at += 1;
                    let next = self.factor()?;
                    self.times(&mut factors, &mut non_scalar, next)?;
                }
                Some(Token::Slash) if !matches!(self.peek_at(1), Some(Token::Word(_))) => {
                    self.at += 1;
                    let below = self.factor()?;
                    let below = self.scalar(below)?;
                    match (&non_scalar, product(std::mem::take(&mut factors))) {
                        (None, Some(above)) => {
                            factors.push(Expr::Quotient(Box::new([above, below])))
                        }
                        _ => return Err(self.misplaced()),
                    }
                }
                Some(Token::Open(Bracket::Round)) if self.peek_at(1) == Some(&Token::Modulo) => {
                    self.at += 2;
                    let modulus = self.sum()?;
                    let modulus = self.scalar(modulus)?;
                    self.expect(&Token::Close(Bracket::Round))?;
                    self.reduce(&mut factors, &non_scalar, sign, modulus)?;
                }
                Some(Token::Modulo) => {
                    self.at += 1;
                    let modulus = self.factor()?;
                    let modulus = self.scalar(modulus)?;
                    self.reduce(&mut factors, &non_scalar, sign, modulus)?;
                }
                _ if self.starts_factor(operators) => {
                    let next = self.power()?;
                    self.times(&mut factors, &mut non_scalar, next)?;
                }
                _ => break,
            }
        }

        // Scalars multiply a matrix or a set last.
        match (product(factors), non_scalar) {
            (Some(expr), None) => Ok(Value::Scalar(expr)),
            (None, Some(value)) => Ok(value),
            (Some(expr), Some(value)) => self.multiply(Value::Scalar(expr), value),
            (None, None) => Err(self.misplaced()),
        }
    }

    /// Replaces the factors by their remainder, which takes in the sign before them.
    fn reduce(
        &mut self,
        factors: &mut Vec<Expr>,
        done: &Option<Value>,
        sign: &mut Sign,
        modulus: Expr,
    ) -> Result<(), ParseError> {
        let (None, Some(number)) = (done, product(std::mem::take(factors))) else {
            return Err(self.misplaced());
        };

        let signed = self.signed(std::mem::replace(sign, Sign::Plus), Value::Scalar(number))?;
        factors.push(Expr::Call(Function::Mod, vec![self.scalar(signed)?, modulus]));
        Ok(())
    }

    fn times(
        &self,
        factors: &mut Vec<Expr>,
        done: &mut Option<Value>,
        next: Value,
    ) -> Result<(), ParseError> {
        match next {
            Value::Scalar(expr) => factors.push(expr),
            other => {
                *done = Some(match done.take() {
                    None => other,
                    Some(before) => self.multiply(before, other)?,
                });
            }
        }
        Ok(())
    }

    /// Reads a factor after an operator. The factor may have its own sign: `2·-3`.
    pub(super) fn factor(&mut self) -> Result<Value, ParseError> {
        let sign = self.sign();
        let value = self.power()?;
        let value = self.mixed_number(value)?;
        self.signed(sign, value)
    }

    /// Reads `2\frac13`, `2 1/3` and `2½` as sums: a whole number in digits, directly followed by a proper fraction of
    /// digits. A sign after it applies to the sum, so `33\frac13\%` is a third.
    fn mixed_number(&mut self, integer: Value) -> Result<Value, ParseError> {
        let is_digits = |token: Option<&Token>| matches!(token, Some(Token::Number { value, decimal: false }) if value.is_integer());
        let before = |back: usize| {
            let at = self.at.checked_sub(back)?;
            self.lexemes.get(at).map(|lexeme| &lexeme.token)
        };

        // `{2}\frac13`
        let grouped = before(1) == Some(&Token::Close(Bracket::Group))
            && before(3) == Some(&Token::Open(Bracket::Group));
        let directly = is_digits(before(1)) || grouped && is_digits(before(2));

        let Value::Scalar(Expr::Number(number)) = &integer else { return Ok(integer) };
        if !directly {
            return Ok(integer);
        }

        let fraction = match self.peek() {
            Some(Token::Vulgar(fraction)) => {
                self.at += 1;
                fraction.clone()
            }
            Some(Token::Fraction) if !self.unit_follows() => {
                let start = self.at;
                let value = self.deeper(Self::atom)?;

                // In `2\frac13^2` nobody knows what is raised.
                let raised = match self.peek() {
                    Some(Token::Caret) => !self.degree_follows(),
                    Some(Token::Superscript(_) | Token::Bang) => true,
                    _ => false,
                };

                let Value::Scalar(Expr::Quotient(two)) = &value else {
                    self.at = start;
                    return Ok(integer);
                };
                let [Expr::Number(above), Expr::Number(below)] = two.as_ref() else {
                    self.at = start;
                    return Ok(integer);
                };

                if !(above.is_integer() && below.is_integer() && above < below) || raised {
                    self.at = start;
                    return Ok(integer);
                }
                above / below
            }

            Some(Token::Number { value: above, .. })
                if is_digits(self.peek())
                    && self.lexemes[self.at].spaced
                    && self.peek_at(1) == Some(&Token::Slash)
                    && is_digits(self.peek_at(2)) =>
            {
                let Some(Token::Number { value: below, .. }) = self.peek_at(2) else {
                    return Ok(integer);
                };
                if above >= below {
                    return Err(self.misplaced());
                }
                self.at += 3;
                above / below
            }
            _ => return Ok(integer),
        };

        self.postfix(Value::Scalar(Expr::Number(number + fraction)))
    }

    /// Tells whether the next token begins a factor that needs no sign before it.
    fn starts_factor(&self, functions: bool) -> bool {
        let Some(token) = self.peek() else { return false };
        if self.unit_follows() {
            return false;
        }

        match token {
            // Two numbers side by side are not a product: `1.11.1`, `4 2`.
            Token::Number { .. } | Token::Scientific { .. } | Token::Vulgar(_) => {
                let before = self.at.checked_sub(1).map(|at| &self.lexemes[at].token);
                !matches!(
                    before,
                    Some(Token::Number { .. } | Token::Scientific { .. } | Token::Vulgar(_))
                )
            }
            Token::Symbol(_)
            | Token::Constant(_)
            | Token::Fraction
            | Token::Root
            | Token::CubeRoot
            | Token::Binomial
            | Token::BeginMatrix => true,
            Token::Function(_) | Token::Sum | Token::Product => functions,
            Token::Open(Bracket::Curly) => false,
            Token::Open(_) => !(self.range_follows() || self.begins_condition(self.at)),
            Token::Bar => self.bars == 0,
            _ => false,
        }
    }

    /// Multiplies two values, at least one of which is not a scalar.
    fn multiply(&self, left: Value, right: Value) -> Result<Value, ParseError> {
        match (left, right) {
            (Value::Scalar(a), Value::Scalar(b)) => Ok(Value::Scalar(Expr::Product(vec![a, b]))),
            (Value::Scalar(scale), Value::Matrix(matrix))
            | (Value::Matrix(matrix), Value::Scalar(scale)) => {
                let scaled = |entry| Expr::Product(vec![scale.clone(), entry]);
                let entries = matrix.entries.into_iter().map(scaled).collect();
                Ok(Value::Matrix(Matrix { entries, ..empty_matrix(matrix.rows, matrix.columns) }))
            }
            // `P(2, -1)` is the point that P names.
            (Value::Scalar(Expr::Symbol(name)), point @ Value::Tuple { .. })
                if name.chars().all(char::is_uppercase) =>
            {
                Ok(point)
            }
            (Value::Scalar(scale), Value::Tuple { open: Side::Open, close: Side::Open, items }) => {
                let scaled = |item| self.multiply(Value::Scalar(scale.clone()), item);
                let items = items.into_iter().map(scaled).collect::<Result<_, _>>()?;
                Ok(Value::Tuple { open: Side::Open, close: Side::Open, items })
            }
            (Value::Matrix(a), Value::Matrix(b)) if a.columns == b.rows => {
                self.multiply_matrices(&a, &b)
            }
            _ => Err(self.misplaced()),
        }
    }

    fn multiply_matrices(&self, a: &Matrix, b: &Matrix) -> Result<Value, ParseError> {
        // People write products of this size, while larger ones are not answers.
        if a.rows * a.columns * b.columns > 1_000 {
            return Err(ParseError::TooLong);
        }

        let entry = |row: usize, column: usize| {
            let terms = (0..a.columns).map(|k| {
                let (left, right) =
                    (&a.entries[row * a.columns + k], &b.entries[k * b.columns + column]);
                Expr::Product(vec![left.clone(), right.clone()])
            });
            sum(terms.collect())
        };

        let cells = (0..a.rows).flat_map(|row| (0..b.columns).map(move |column| (row, column)));
        let entries = cells.map(|(row, column)| entry(row, column)).collect();
        Ok(Value::Matrix(Matrix { entries, ..empty_matrix(a.rows, b.columns) }))
    }
}

#[derive(Clone, Copy)]
enum Sign {
    Plus,
    Minus,
    /// `±`
    Both,
    /// `∓`
    Opposite,
}

fn empty_matrix(rows: usize, columns: usize) -> Matrix {
    Matrix { rows, columns, entries: vec![] }
}

pub(super) fn integer(value: i64) -> Expr {
    Expr::Number(BigRational::from(BigInt::from(value)))
}

/// Returns the product of any number of factors, or `None` if there are none.
fn product(mut factors: Vec<Expr>) -> Option<Expr> {
    match factors.len() {
        0 => None,
        1 => factors.pop(),
        _ => Some(Expr::Product(factors)),
    }
}

fn sum(mut terms: Vec<Expr>) -> Expr {
    match (terms.len(), terms.pop()) {
        (1, Some(term)) => term,
        (_, Some(last)) => {
            terms.push(last);
            Expr::Sum(terms)
        }
        (_, None) => integer(0),
    }
}

/// Negates an expression. A number becomes the negative number, because it is written `-5`.
fn negated(expr: Expr) -> Expr {
    match expr {
        Expr::Number(value) => Expr::Number(-value),
        Expr::Decimal(value) => Expr::Decimal(-value),
        other => Expr::Negate(Box::new(other)),
    }
}

pub(super) fn binomial(n: Expr, k: Expr) -> Expr {
    Expr::Call(Function::Binomial, vec![n, k])
}

/// Returns a whole number that fits a small exponent or index.
pub(super) fn small(value: &BigRational) -> Option<u32> {
    if value.is_integer() { value.to_integer().to_u32() } else { None }
}
