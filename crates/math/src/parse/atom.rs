//! Reads what is between operators: numbers, names, roots, fractions, functions and their exponents.

use num_bigint::BigInt;
use num_rational::BigRational;

use super::{
    ParseError, Parser,
    arithmetic::{binomial, integer, small},
    lexicon,
    token::{Bracket, Token},
};
use crate::{
    budget::OverBudget,
    expr::{Constant, Expr, Fold, FoldKind, Function, MAX_DEPTH},
    value::{Matrix, NamedSet, Relation, Side, Value},
};

impl Parser<'_> {
    /// Reads an atom with the signs after and above it: `x^2`, `5!`, `28\%`, `90^\circ`.
    pub(super) fn power(&mut self) -> Result<Value, ParseError> {
        let base = self.deeper(Self::atom)?;
        self.postfix(base)
    }

    pub(super) fn postfix(&mut self, mut base: Value) -> Result<Value, ParseError> {
        // Each round adds a level to the tree, which recursive code has to walk.
        for _ in 0..MAX_DEPTH {
            base = match self.peek() {
                Some(Token::Superscript(exponent)) => {
                    self.at += 1;
                    self.raised(base, Value::Scalar(integer(i64::from(*exponent))))?
                }
                Some(Token::Caret) if base == Value::NamedSet(NamedSet::Reals) => {
                    self.at += 1;
                    self.positive_reals()?
                }
                Some(Token::Caret) => {
                    self.at += 1;
                    match self.exponent()? {
                        Exponent::Value(exponent) => self.raised(base, exponent)?,
                        Exponent::Degree => {
                            Value::Scalar(Expr::Degrees(Box::new(self.scalar(base)?)))
                        }
                        Exponent::Nothing => base,
                    }
                }

                Some(Token::Bang) => {
                    let double = self.peek_at(1) == Some(&Token::Bang);
                    self.at += 1 + usize::from(double);
                    let function =
                        if double { Function::DoubleFactorial } else { Function::Factorial };
                    let number = self.scalar(base)?;
                    Value::Scalar(Expr::Call(function, vec![number]))
                }
                Some(Token::Percent) => {
                    self.at += 1;
                    let number = self.scalar(base)?;
                    Value::Scalar(Expr::Quotient(Box::new([number, integer(100)])))
                }
                Some(Token::Degree) => {
                    self.at += 1;
                    Value::Scalar(Expr::Degrees(Box::new(self.scalar(base)?)))
                }

                // `(1002)_3`, `{1002}_3`
                Some(Token::Underscore) => match base {
                    Value::Scalar(Expr::Number(digits)) => {
                        Value::Scalar(self.number(&digits, false)?)
                    }
                    // `ℝ_{+}` and `ℝ_{>0}`
                    Value::NamedSet(NamedSet::Reals) => {
                        self.at += 1;
                        self.positive_reals()?
                    }
                    _ => return Err(self.misplaced()),
                },
                _ => return Ok(base),
            };
        }

        Err(ParseError::TooDeep)
    }

    /// Reads the sign at `ℝ` that restricts it to positive numbers: `ℝ^+`, `ℝ_{>0}`.
    fn positive_reals(&mut self) -> Result<Value, ParseError> {
        let grouped = self.take(&Token::Open(Bracket::Group));

        if self.take(&Token::Relation(Relation::Greater)) {
            self.expect(&Token::Number { value: BigRational::default(), decimal: false })?;
        } else {
            self.expect(&Token::Plus)?;
        }
        if grouped {
            self.expect(&Token::Close(Bracket::Group))?;
        }

        let ends = [integer(0), Expr::Constant(Constant::Infinity)];
        let items = ends.into_iter().map(Value::Scalar).collect();
        Ok(Value::Tuple { open: Side::Open, close: Side::Open, items })
    }

    fn raised(&mut self, base: Value, exponent: Value) -> Result<Value, ParseError> {
        let base = self.scalar(base)?;
        let exponent = self.scalar(exponent)?;
        Ok(Value::Scalar(Expr::Power(Box::new([base, exponent]))))
    }

    /// Reads the exponent after a caret.
    fn exponent(&mut self) -> Result<Exponent, ParseError> {
        match (self.peek(), self.peek_at(1), self.peek_at(2)) {
            (Some(Token::Degree), ..) => {
                self.at += 1;
                return Ok(Exponent::Degree);
            }
            // In `70^o` and `70^{\text{o}}` a letter stands for the sign.
            (Some(Token::Symbol(o) | Token::Word(o)), ..) if **o == *"o" => {
                self.at += 1;
                return Ok(Exponent::Degree);
            }
            (
                Some(Token::Open(Bracket::Group)),
                Some(Token::Symbol(o) | Token::Word(o)),
                Some(Token::Close(_)),
            ) if **o == *"o" => {
                self.at += 3;
                return Ok(Exponent::Degree);
            }
            (Some(Token::Prime), ..) => {
                self.at += 1;
                return Ok(Exponent::Nothing);
            }
            (Some(Token::Open(Bracket::Group)), Some(Token::Degree), Some(Token::Close(_))) => {
                self.at += 3;
                return Ok(Exponent::Degree);
            }
            // `5^{\text{th}}`
            (Some(Token::Open(Bracket::Group)), Some(Token::Word(_)), Some(Token::Close(_))) => {
                self.at += 3;
                return Ok(Exponent::Nothing);
            }
            (Some(Token::Open(Bracket::Group)), ..) => return Ok(Exponent::Value(self.group()?)),
            _ => {}
        }

        // In `10^3{}^\circ` the degree sign belongs to the power, not to the exponent.
        if let Some(Token::Number { value, decimal: false }) = self.peek()
            && self.peek_at(1) == Some(&Token::Caret)
            && self.is_degree(2)
        {
            self.at += 1;
            return Ok(Exponent::Value(Value::Scalar(Expr::Number(value.clone()))));
        }

        // Powers of powers bind to the right: `2^3^2` is `2^(3^2)`.
        let value = self.deeper(Self::factor)?;
        Ok(Exponent::Value(value))
    }

    /// Tells whether the caret here only sets a degree sign: `90^\circ`.
    pub(super) fn degree_follows(&self) -> bool {
        self.is_degree(1)
    }

    fn is_degree(&self, offset: usize) -> bool {
        matches!(
            (self.peek_at(offset), self.peek_at(offset + 1)),
            (Some(Token::Degree), _) | (Some(Token::Open(Bracket::Group)), Some(Token::Degree))
        )
    }

    pub(super) fn atom(&mut self) -> Result<Value, ParseError> {
        let Some(token) = self.peek() else { return Err(self.misplaced()) };
        self.at += 1;

        let expr = match token {
            Token::Number { value, decimal } => {
                return self.number(value, *decimal).map(Value::Scalar);
            }
            Token::Scientific { mantissa, exponent } => {
                let power = Expr::Power(Box::new([integer(10), integer(*exponent)]));
                Expr::Product(vec![Expr::Decimal(mantissa.clone()), power])
            }
            Token::Vulgar(value) => Expr::Number(value.clone()),
            Token::Symbol(name) => return self.symbol(name),
            Token::Constant(constant) => Expr::Constant(*constant),
            Token::NamedSet(set) => return Ok(Value::NamedSet(*set)),
            Token::Function(function) => return self.call(*function).map(Value::Scalar),
            Token::Open(Bracket::Group) => {
                self.at -= 1;
                return self.group();
            }
            Token::Open(Bracket::Curly) => return self.curly(),
            Token::Open(Bracket::Floor) => {
                self.enclosed(Function::Floor, &Token::Close(Bracket::Floor))?
            }
            Token::Open(Bracket::Ceil) => {
                self.enclosed(Function::Ceil, &Token::Close(Bracket::Ceil))?
            }
            Token::Open(Bracket::Bar) => {
                self.enclosed(Function::Abs, &Token::Close(Bracket::Bar))?
            }
            Token::Open(bracket) => return self.bracketed(*bracket),
            Token::Bar => {
                self.bars += 1;
                let expr = self.enclosed(Function::Abs, &Token::Bar)?;
                self.bars -= 1;
                expr
            }

            Token::Fraction => {
                let above = self.argument()?;
                let below = self.argument()?;
                if is_derivative(&above, &below) {
                    return Err(ParseError::Command("frac{d}{dx}".into()));
                }
                Expr::Quotient(Box::new([above, below]))
            }

            Token::Root => {
                let degree = if self.take(&Token::Open(Bracket::Square)) {
                    let degree = self.sum()?;
                    self.expect(&Token::Close(Bracket::Square))?;
                    self.scalar(degree)?
                } else {
                    integer(2)
                };
                Expr::Root(Box::new([degree, self.argument()?]))
            }
            Token::CubeRoot => Expr::Root(Box::new([integer(3), self.argument()?])),
            Token::Binomial => self.binomial()?,
            Token::Sum => self.fold(FoldKind::Sum)?,
            Token::Product => self.fold(FoldKind::Product)?,
            Token::BeginMatrix => return self.matrix(),
            _ => {
                self.at -= 1;
                return Err(self.misplaced());
            }
        };

        Ok(Value::Scalar(expr))
    }

    /// Reads a number. If it has a subscript, the result is its value in that base.
    fn number(&mut self, value: &BigRational, decimal: bool) -> Result<Expr, ParseError> {
        let plain = |value: &BigRational| {
            if decimal { Expr::Decimal(value.clone()) } else { Expr::Number(value.clone()) }
        };

        // `0.3333333…` continues, but only the digits that are there are compared.
        if decimal && self.peek() == Some(&Token::Symbol("…".into())) {
            self.at += 1;
        }

        if self.peek() != Some(&Token::Underscore) {
            return Ok(plain(value));
        }
        self.at += 1;
        let base = self.base()?;
        let (Some(base), true) = (base, value.is_integer()) else { return Err(self.misplaced()) };

        let digits = value.to_integer().to_string();
        if digits.len() > 400 {
            return Err(OverBudget.into());
        }

        BigInt::parse_bytes(digits.as_bytes(), base)
            .map(|value| Expr::Number(value.into()))
            .ok_or_else(|| self.misplaced())
    }

    /// Reads the base in a subscript, in digits or as a word: `_7`, `_{(7)}`, `_{\text{seven}}`.
    fn base(&mut self) -> Result<Option<u32>, ParseError> {
        let grouped = self.peek() == Some(&Token::Open(Bracket::Group));
        if let Some(Token::Word(word)) = self.peek_at(usize::from(grouped)) {
            self.at += 1 + usize::from(grouped);
            if grouped {
                self.expect(&Token::Close(Bracket::Group))?;
            }
            return Ok(lexicon::number(word));
        }

        Ok(match self.argument()? {
            Expr::Number(base) => small(&base).filter(|base| (2..=36).contains(base)),
            _ => None,
        })
    }

    /// Reads a variable with its index and primes, the constants `e` and `i` unless they are bound, or an unknown
    /// function with its arguments.
    fn symbol(&mut self, name: &str) -> Result<Value, ParseError> {
        let mut full = name.to_owned();
        let mut index = None;
        if self.take(&Token::Underscore) {
            match self.peek() {
                Some(Token::Open(Bracket::Group)) => match self.literal_group() {
                    Some(literal) => full = format!("{full}_{literal}"),
                    None => {
                        let group = self.group()?;
                        index = Some(self.scalar(group)?);
                    }
                },
                _ => match self.argument()? {
                    Expr::Symbol(letter) if self.bound.contains(&letter) => {
                        index = Some(Expr::Symbol(letter));
                    }
                    Expr::Symbol(letter) => full = format!("{full}_{letter}"),
                    Expr::Number(number) => full = format!("{full}_{number}"),
                    Expr::Constant(Constant::I) => full.push_str("_i"),
                    Expr::Constant(Constant::E) => full.push_str("_e"),
                    _ => return Err(self.misplaced()),
                },
            }
        }

        while self.take(&Token::Prime) {
            full.push('\'');
        }

        // The value of a name with a bound index depends on that index.
        if let Some(index) = index {
            return Ok(Value::Scalar(Expr::Apply(format!("{full}_").into(), vec![index])));
        }

        if full == name && !self.bound.iter().any(|bound| **bound == *name) {
            match name {
                "e" => return Ok(Value::Scalar(Expr::Constant(Constant::E))),
                "i" => return Ok(Value::Scalar(Expr::Constant(Constant::I))),
                _ => {}
            }
        }

        // Unless its bracket is closed by a round one, the list is not an argument.
        if self.is_application(name) {
            let start = self.at;
            self.at += 1;
            let items = self.list()?;
            if self.take(&Token::Close(Bracket::Round)) {
                let arguments =
                    items.into_iter().map(|item| self.scalar(item)).collect::<Result<_, _>>()?;
                return Ok(Value::Scalar(Expr::Apply(full.into(), arguments)));
            }
            self.at = start;
        }

        Ok(Value::Scalar(Expr::Symbol(full.into())))
    }

    /// Tells whether `name(` applies a function. The usual letters of functions always do. Letters that may be
    /// functions do so if the argument is a single sign, because `P(x)` is a polynomial but `p(p+1)` a product.
    fn is_application(&self, name: &str) -> bool {
        if self.peek() != Some(&Token::Open(Bracket::Round)) {
            return false;
        }
        let single = matches!(self.peek_at(1), Some(Token::Symbol(_) | Token::Number { .. }))
            && self.peek_at(2) == Some(&Token::Close(Bracket::Round));
        match name {
            "f" | "g" | "h" | "F" | "G" | "H" | "φ" | "ψ" => true,
            "p" | "q" | "P" | "Q" | "R" | "S" | "T" | "W" | "Φ" | "Ψ" => single,
            _ => false,
        }
    }

    /// Reads an index that is a name, not an expression: `{MBCN}`, `{37}`, `{\text{max}}`.
    fn literal_group(&mut self) -> Option<String> {
        let mut literal = String::new();
        let mut index = self.at + 1;
        let mut count = 0;

        loop {
            match &self.lexemes.get(index)?.token {
                Token::Symbol(name) if count == 0 && self.bound.contains(name) => return None,
                Token::Symbol(name) => literal.push_str(name),
                Token::Word(word) => literal.push_str(word),
                Token::Number { value, decimal: false } => literal.push_str(&value.to_string()),
                // `x_{1,2}`
                Token::Comma if count > 0 => literal.push(','),
                Token::Close(Bracket::Group) if count > 0 => {
                    self.at = index + 1;
                    return Some(literal);
                }
                _ => return None,
            }
            count += 1;
            index += 1;
        }
    }

    /// Reads an argument of a command: a group, or the next sign alone.
    fn argument(&mut self) -> Result<Expr, ParseError> {
        let value = match self.peek() {
            Some(Token::Number { value, decimal }) => {
                self.at += 1;
                let value = value.clone();
                return Ok(if *decimal { Expr::Decimal(value) } else { Expr::Number(value) });
            }
            Some(Token::Symbol(name)) => {
                self.at += 1;
                let bound = self.bound.contains(name);
                return Ok(match &**name {
                    "e" if !bound => Expr::Constant(Constant::E),
                    "i" if !bound => Expr::Constant(Constant::I),
                    name => Expr::Symbol(name.into()),
                });
            }
            _ => self.deeper(Self::atom)?,
        };

        self.scalar(value)
    }

    fn enclosed(&mut self, function: Function, close: &Token) -> Result<Expr, ParseError> {
        let inner = self.sum()?;
        self.expect(close)?;
        Ok(Expr::Call(function, vec![self.scalar(inner)?]))
    }

    fn binomial(&mut self) -> Result<Expr, ParseError> {
        if self.peek() == Some(&Token::Open(Bracket::Round)) {
            let arguments = self.arguments()?;
            let [n, k] = <[Expr; 2]>::try_from(arguments).map_err(|_| self.misplaced())?;
            return Ok(binomial(n, k));
        }
        let n = self.argument()?;
        let k = self.argument()?;
        Ok(binomial(n, k))
    }

    /// Reads expressions in round brackets.
    fn arguments(&mut self) -> Result<Vec<Expr>, ParseError> {
        self.expect(&Token::Open(Bracket::Round))?;
        let bars = std::mem::take(&mut self.bars);
        let items = self.list()?;
        self.bars = bars;
        self.expect(&Token::Close(Bracket::Round))?;
        items.into_iter().map(|item| self.scalar(item)).collect()
    }

    /// Reads a known function: `\sin^2 x`, `\log_2 8`, `\sin^{-1} x`, `gcd(a, b)`.
    fn call(&mut self, function: Function) -> Result<Expr, ParseError> {
        // `\lg` has the base ten, unless an index says otherwise.
        let mut base = (function == Function::Log).then(|| integer(10));

        if self.take(&Token::Underscore) {
            let index = self.argument()?;
            match function {
                Function::Ln | Function::Log => base = Some(index),
                _ => return Err(self.misplaced()),
            }
        }

        let exponent = match self.peek() {
            Some(Token::Superscript(n)) => {
                self.at += 1;
                Some(integer(i64::from(*n)))
            }
            Some(Token::Caret) => {
                self.at += 1;
                match self.exponent()? {
                    Exponent::Value(value) => Some(self.scalar(value)?),
                    _ => return Err(self.misplaced()),
                }
            }
            _ => None,
        };

        // `\sin^{-1} x` is the arcsine and not a reciprocal.
        let inverse =
            exponent.as_ref().filter(|e| **e == integer(-1)).and_then(|_| inverse_of(function));

        let call = match (base, function.arity()) {
            (Some(base), _) => Expr::Call(Function::Log, vec![base, self.function_argument()?]),
            (None, Some(1)) => {
                Expr::Call(inverse.unwrap_or(function), vec![self.function_argument()?])
            }
            (None, arity) => {
                let arguments = self.arguments()?;
                if arity.is_some_and(|arity| arity != arguments.len()) {
                    return Err(self.misplaced());
                }
                Expr::Call(function, arguments)
            }
        };

        Ok(match exponent {
            Some(exponent) if inverse.is_none() => Expr::Power(Box::new([call, exponent])),
            _ => call,
        })
    }

    /// Reads the argument of a function. Without brackets it consists of the factors in a row, such as `2x` in
    /// `\sin 2x \cos x`. A fraction of π continues after its slash: `\cos 2\pi/3`.
    fn function_argument(&mut self) -> Result<Expr, ParseError> {
        let negative = self.take(&Token::Minus);
        let bracketed = matches!(self.peek(), Some(Token::Open(Bracket::Round | Bracket::Square)));

        let argument = if bracketed {
            self.deeper(Self::atom)?
        } else {
            let first = self.power()?;
            self.product_from(first, false)?
        };

        let mut argument = self.scalar(argument)?;
        let of_pi = argument.any(&|part| *part == Expr::Constant(Constant::Pi));
        if !bracketed && of_pi && self.take(&Token::Slash) {
            let below = self.power()?;
            argument = Expr::Quotient(Box::new([argument, self.scalar(below)?]));
        }

        Ok(if negative { Expr::Negate(Box::new(argument)) } else { argument })
    }

    /// Reads `\sum_{i=1}^{n} i^2`, with the limits in either order.
    fn fold(&mut self, kind: FoldKind) -> Result<Expr, ParseError> {
        let mut lower = None;
        let mut to = None;
        for _ in 0..2 {
            if self.take(&Token::Underscore) {
                self.expect(&Token::Open(Bracket::Group))?;
                let Some(Token::Symbol(index)) = self.peek() else { return Err(self.misplaced()) };
                self.at += 1;
                self.expect(&Token::Relation(Relation::Equal))?;
                let from = self.sum()?;
                let from = self.scalar(from)?;
                self.expect(&Token::Close(Bracket::Group))?;
                lower = Some((index.clone(), from));
            } else if self.take(&Token::Caret) {
                to = Some(self.argument()?);
            }
        }

        let (Some((index, from)), Some(to)) = (lower, to) else { return Err(self.misplaced()) };
        // Within the body the index is a name, even if it is `i`.
        self.bound.push(index.clone());
        let body = self.deeper(|parser| {
            let first = parser.power()?;
            parser.product_from(first, true)
        });
        self.bound.pop();

        let body = self.scalar(body?)?;
        Ok(Expr::Fold(Box::new(Fold { kind, index, from, to, body })))
    }

    fn matrix(&mut self) -> Result<Value, ParseError> {
        let mut entries = vec![];
        let mut columns = 0;
        let mut rows = 0;
        let mut row = 0;

        loop {
            // The last row may end in `\\`.
            if row == 0 && self.take(&Token::EndMatrix) {
                break;
            }

            let entry = self.sum()?;
            entries.push(self.scalar(entry)?);
            row += 1;
            if self.take(&Token::Ampersand) {
                continue;
            }

            let ends = self.take(&Token::EndMatrix);
            if !ends {
                self.expect(&Token::Row)?;
            }

            // All rows have the same length.
            if rows > 0 && row != columns {
                return Err(self.misplaced());
            }
            columns = row;
            rows += 1;
            row = 0;
            if ends {
                break;
            }
        }

        if rows == 0 {
            return Err(self.misplaced());
        }

        // A row vector of numbers in a matrix's brackets is a matrix too.
        let matrix = Value::Matrix(Matrix { rows, columns, entries });
        Ok(match matrix {
            Value::Matrix(Matrix { rows: 1, columns: 1, mut entries }) => {
                Value::Scalar(entries.remove(0))
            }
            matrix => matrix,
        })
    }
}

/// What follows a caret.
enum Exponent {
    Value(Value),
    /// `90^\circ`
    Degree,
    /// A prime or an ordinal's ending.
    Nothing,
}

/// Tells whether a fraction is really `d/dx` or `dy/dx`.
fn is_derivative(above: &Expr, below: &Expr) -> bool {
    let begins = |expr: &Expr| match expr {
        Expr::Symbol(name) => matches!(&**name, "d" | "∂"),
        _ => false,
    };
    let differential = |expr: &Expr| match expr {
        Expr::Product(factors) => factors.len() == 2 && factors.first().is_some_and(begins),
        _ => false,
    };

    differential(below) && (begins(above) || differential(above))
}

fn inverse_of(function: Function) -> Option<Function> {
    Some(match function {
        Function::Sin => Function::Arcsin,
        Function::Cos => Function::Arccos,
        Function::Tan => Function::Arctan,
        Function::Cot => Function::Arccot,
        _ => return None,
    })
}
