//! Reads an answer, LaTeX or plain, completely or not at all.
//!
//! A number is never picked out of a formula that could not be read. Otherwise a `1 - 1/e` that fails to parse would be
//! `1`, and equal to a `1 + 1/e` that fails at the same token.

mod arithmetic;
mod atom;
mod condition;
mod error;
mod label;
mod lex;
mod lexicon;
mod moment;
mod token;
mod unit;

use std::slice;

pub(crate) use error::ParseError;
use lex::Lexeme;
pub(crate) use lex::Reading;
use token::{Bracket, Token};

use crate::{
    budget::Budget,
    expr::{Expr, MAX_DEPTH, MAX_NODES},
    value::{Join, NamedSet, Relation, Side, Value},
};

/// Reads all of `text` as one answer. The letter of a choice in front of it does not count.
pub(crate) fn parse(
    text: &str,
    reading: Reading,
    budget: &mut Budget,
) -> Result<Value, ParseError> {
    match labelled(text, reading, budget) {
        Some((_, value)) => Ok(value),
        None => whole(text, reading, budget),
    }
}

/// Reads a text as the letter of a choice and one value after it, or returns `None` if it is something else. Words may
/// be about the letter, and a list may have more letters, so the value has to be a number or a formula.
pub(crate) fn labelled(text: &str, reading: Reading, budget: &mut Budget) -> Option<(char, Value)> {
    let (letter, answer) = label::split(text)?;
    let value = whole(answer, reading, budget).ok()?;
    let one = matches!(
        value,
        Value::Scalar(_) | Value::Quantity(..) | Value::Tuple { .. } | Value::Ratio(_)
    );
    one.then_some((letter, value))
}

fn whole(text: &str, reading: Reading, budget: &mut Budget) -> Result<Value, ParseError> {
    let lexemes = lex::lex(text, reading, budget)?;
    if lexemes.is_empty() {
        return Err(ParseError::Empty);
    }

    budget.spend(4 * lexemes.len() as u64)?;
    let lexemes = without_opening(&lexemes);
    if let Some(text) = words(lexemes) {
        return Ok(match lexicon::set(&text) {
            Some(set) => Value::NamedSet(set),
            // `Alice and Bob` are two names, in any order.
            None if text.contains(" and ") => {
                Value::List(text.split(" and ").map(|name| Value::Text(name.to_owned())).collect())
            }
            None => Value::Text(text),
        });
    }

    let mut parser = Parser::new(lexemes);
    parser.is_modular = lexemes.iter().any(|lexeme| lexeme.token == Token::Modulo);

    // A condition in front of an answer is not read, but it must not become a part of it either.
    if parser.begins_condition(0) {
        return Err(parser.misplaced());
    }

    let mut items = parser.list()?;
    parser.condition(&items)?;
    if parser.at < lexemes.len() {
        return Err(parser.misplaced());
    }

    let value = if items.len() == 1 { items.remove(0) } else { Value::List(items) };

    // Code that walks the tree recurses, so the depth is bounded.
    let mut deep = false;
    value.each(&mut |expr| deep |= expr.is_deeper_than(MAX_DEPTH));
    if deep {
        return Err(ParseError::TooDeep);
    }

    Ok(both_signs(value))
}

/// Leaves out the words that open the last step of an argument, with the comma after them: `Thus, x = 8`. They stay in
/// a list of words, where they may be one of the items.
fn without_opening(lexemes: &[Lexeme]) -> &[Lexeme] {
    let comma = lexemes.iter().take(4).position(|lexeme| lexeme.token == Token::Comma);
    let Some((opening, [_, rest @ ..])) = comma.map(|comma| lexemes.split_at(comma)) else {
        return lexemes;
    };

    let opens = words(opening).is_some_and(|words| lexicon::is_opening(&words));
    let lists_words = rest.iter().all(|lexeme| {
        matches!(
            lexeme.token,
            Token::Word(_) | Token::Symbol(_) | Token::Comma | Token::And | Token::Or
        )
    }) && rest.iter().any(|lexeme| lexeme.token == Token::Comma);

    if opens && !rest.is_empty() && !lists_words { rest } else { lexemes }
}

/// Returns the text if it consists only of words.
fn words(lexemes: &[Lexeme]) -> Option<String> {
    let mut text = String::new();
    for lexeme in lexemes {
        let word = match &lexeme.token {
            Token::Word(word) => word,
            Token::And if !text.is_empty() => "and",
            Token::Or if !text.is_empty() => "or",
            _ => return None,
        };

        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&word.to_lowercase());
    }

    Some(text)
}

/// Reads tokens by recursive descent. The methods are in the order of precedence, from the loosest to the tightest.
/// `depth` counts the recursion.
struct Parser<'a> {
    lexemes: &'a [Lexeme],
    at: usize,
    depth: usize,
    nodes: usize,
    /// Number of sets within sets. Each adds one level.
    joins: usize,
    /// Names of the indices of the enclosing sums and products.
    bound: Vec<Box<str>>,
    /// Number of open `|` that wait for their partner.
    bars: usize,
    /// True if there is a modulus anywhere in the text.
    is_modular: bool,
}

/// Name that stands for both signs until the answer is read completely.
const BOTH_SIGNS: &str = "±";

impl<'a> Parser<'a> {
    fn new(lexemes: &'a [Lexeme]) -> Self {
        Parser {
            lexemes,
            at: 0,
            depth: 0,
            nodes: 0,
            joins: 0,
            bound: vec![],
            bars: 0,
            is_modular: false,
        }
    }

    fn peek(&self) -> Option<&'a Token> {
        self.lexemes.get(self.at).map(|lexeme| &lexeme.token)
    }

    fn peek_at(&self, offset: usize) -> Option<&'a Token> {
        self.lexemes.get(self.at + offset).map(|lexeme| &lexeme.token)
    }

    fn take(&mut self, token: &Token) -> bool {
        let found = self.peek() == Some(token);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, token: &Token) -> Result<(), ParseError> {
        if self.take(token) { Ok(()) } else { Err(self.misplaced()) }
    }

    fn misplaced(&self) -> ParseError {
        match self.peek() {
            Some(Token::Word(word)) => ParseError::Words(word.clone()),
            _ => ParseError::Misplaced(self.at),
        }
    }

    /// Runs `read` one level deeper.
    fn deeper<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, ParseError>,
    ) -> Result<T, ParseError> {
        self.depth += 1;
        self.nodes += 1;

        if self.depth > MAX_DEPTH {
            return Err(ParseError::TooDeep);
        }
        if self.nodes > MAX_NODES {
            return Err(ParseError::TooLong);
        }

        let result = read(self);
        self.depth -= 1;
        result
    }

    /// Reads items up to the end or to a closing bracket.
    fn list(&mut self) -> Result<Vec<Value>, ParseError> {
        let mut items = vec![];
        let mut separators = vec![];
        loop {
            match self.item()? {
                // `(0,0) and (1,1), or (2,2)` in braces is one list.
                Value::List(more) => items.extend(more),
                item => items.push(item),
            }

            let start = self.at;
            if !(self.separator() || self.range_follows()) {
                return Ok(conditions(items, &separators));
            }

            separators.extend(self.lexemes[start..self.at].iter().map(|lexeme| &lexeme.token));
            if matches!(self.peek(), None | Some(Token::Close(_))) || self.begins_condition(self.at)
            {
                return Ok(conditions(items, &separators));
            }
        }
    }

    /// Skips any number of commas, semicolons and conjunctions: `, and`.
    fn separator(&mut self) -> bool {
        let start = self.at;
        while let Some(Token::Comma | Token::Semicolon | Token::And | Token::Or) = self.peek() {
            self.at += 1;
        }
        self.at > start
    }

    /// Tells whether a range such as `(k ∈ ℤ)` follows, over which k runs in the item before. A range without brackets
    /// means the same.
    fn range_follows(&self) -> bool {
        matches!(
            (self.peek(), self.peek_at(1), self.peek_at(2)),
            (Some(Token::Open(Bracket::Round)), Some(Token::Symbol(_)), Some(Token::In))
        )
    }

    /// Reads an expression, or expressions with relations between them.
    fn item(&mut self) -> Result<Value, ParseError> {
        self.filler();
        let first = match self.day() {
            Some(day) => day,
            None => self.text_or_ratio()?,
        };

        if self.take(&Token::In) {
            let set = self.ratio()?;
            return Ok(Value::Member(Box::new([first, set])));
        }

        let mut terms = vec![first];
        let mut relations = vec![];
        while let Some(Token::Relation(relation)) = self.peek() {
            self.at += 1;
            self.filler();
            relations.push(*relation);
            terms.push(self.text_or_ratio()?);
        }

        if relations.is_empty() {
            return Ok(terms.remove(0));
        }

        // A function that is `≡ 0` is 0 everywhere, but with a modulus anywhere in the text the sign is a congruence.
        if is_function(&terms[0]) && !self.is_modular {
            for relation in relations.iter_mut().filter(|it| **it == Relation::Congruent) {
                *relation = Relation::Equal;
            }
        }

        Ok(Value::Chain { terms, relations })
    }

    /// Skips words that only introduce a number, and `≈` or `=` without a left side.
    fn filler(&mut self) {
        const FILLERS: [&str; 6] =
            ["approximately", "about", "exactly", "roughly", "around", "only"];

        while let Some(Token::Word(word)) = self.peek()
            && FILLERS.iter().any(|filler| word.eq_ignore_ascii_case(filler))
            && !matches!(self.peek_at(1), None | Some(Token::Word(_)))
        {
            self.at += 1;
        }

        if matches!(self.peek(), Some(Token::Relation(Relation::About | Relation::Equal))) {
            self.at += 1;
        }
    }

    fn text_or_ratio(&mut self) -> Result<Value, ParseError> {
        match self.text() {
            Some(text) => Ok(Value::Text(text)),
            None => self.ratio(),
        }
    }

    /// Reads words up to the next separator, if nothing else precedes it.
    fn text(&mut self) -> Option<String> {
        let rest = &self.lexemes[self.at..];
        let end = rest
            .iter()
            .position(|lexeme| !matches!(lexeme.token, Token::Word(_)))
            .unwrap_or(rest.len());

        let closes = matches!(
            rest.get(end).map(|lexeme| &lexeme.token),
            None | Some(
                Token::Comma
                    | Token::Semicolon
                    | Token::And
                    | Token::Or
                    | Token::Close(_)
                    | Token::Relation(_)
            )
        );

        if end == 0 || !closes {
            return None;
        }

        self.at += end;
        words(&rest[..end])
    }

    /// Reads `2:3`, a day or a time of day, or a single term with its unit or noun.
    fn ratio(&mut self) -> Result<Value, ParseError> {
        if let Some(day) = self.day() {
            return Ok(day);
        }

        let first = self.sets()?;
        if self.peek() != Some(&Token::Colon) {
            return match self.time(slice::from_ref(&first)) {
                Some(time) => Ok(time),
                None => self.noun(first),
            };
        }

        let mut terms = vec![first];
        while self.take(&Token::Colon) {
            terms.push(self.sets()?);
        }

        match self.time(&terms) {
            Some(time) => Ok(time),
            // `3:30-4:30` goes from one time to another.
            None if terms.len() > 2 && terms.iter().any(is_sum) => Err(self.misplaced()),
            None => {
                let terms = terms.into_iter().map(|term| self.scalar(term));
                terms.collect::<Result<_, _>>().map(Value::Ratio)
            }
        }
    }

    /// Reads unions, intersections and differences of sets.
    fn sets(&mut self) -> Result<Value, ParseError> {
        let mut left = self.sum()?;
        loop {
            let join = match self.peek() {
                Some(Token::Union) => Join::Union,
                Some(Token::Intersection) => Join::Intersection,
                Some(Token::Without) => Join::Without,
                _ => return Ok(left),
            };

            self.at += 1;
            let right = self.sum()?;
            left = match left {
                // A chain of unions is one node, so that a long one stays flat.
                Value::Join(same, mut parts) if same == join && join != Join::Without => {
                    parts.push(right);
                    Value::Join(join, parts)
                }
                left => {
                    self.joins += 1;
                    if self.joins > MAX_DEPTH {
                        return Err(ParseError::TooDeep);
                    }
                    Value::Join(join, vec![left, right])
                }
            };
        }
    }

    /// Reads items between visible brackets.
    fn bracketed(&mut self, open: Bracket) -> Result<Value, ParseError> {
        // A bar outside the brackets has no partner inside them.
        let bars = std::mem::take(&mut self.bars);
        let empty = matches!(self.peek(), Some(Token::Close(_)));
        let mut items = if empty { vec![] } else { self.list()? };
        self.bars = bars;

        let Some(Token::Close(close)) = self.peek() else { return Err(self.misplaced()) };
        self.at += 1;

        let side = |bracket| match bracket {
            Bracket::Round | Bracket::Angle => Some(Side::Open),
            Bracket::Square => Some(Side::Closed),
            _ => None,
        };
        let (Some(open_side), Some(close_side)) = (side(open), side(*close)) else {
            return Err(ParseError::Misplaced(self.at - 1));
        };

        // Brackets around a single item only group it.
        if items.len() == 1 && open == *close && open != Bracket::Angle {
            return Ok(items.remove(0));
        }

        if items.len() < 2 {
            return Err(ParseError::Misplaced(self.at - 1));
        }

        Ok(Value::Tuple { open: open_side, close: close_side, items })
    }

    /// Reads a set in curly brackets, which is written with its elements or with a condition.
    fn curly(&mut self) -> Result<Value, ParseError> {
        if self.take(&Token::Close(Bracket::Curly)) {
            return Ok(Value::NamedSet(NamedSet::Empty));
        }
        if let Some(set) = self.described()? {
            return Ok(set);
        }

        let bars = std::mem::take(&mut self.bars);
        let items = self.list()?;
        self.bars = bars;
        self.expect(&Token::Close(Bracket::Curly))?;
        Ok(Value::Set(items))
    }

    /// Reads `x | x > 3`, `x : x > 3` or `x ∈ ℝ | x > 3` in curly brackets as its condition.
    fn described(&mut self) -> Result<Option<Value>, ParseError> {
        let real = [Some(&Token::In), Some(&Token::NamedSet(NamedSet::Reals))];
        let skip = if [self.peek_at(1), self.peek_at(2)] == real { 3 } else { 1 };
        let bar = matches!(self.peek_at(skip), Some(Token::Bar | Token::Colon));
        if !matches!(self.peek(), Some(Token::Symbol(_))) || !bar {
            return Ok(None);
        }

        self.at += skip + 1;
        let mut conditions = self.list()?;
        self.expect(&Token::Close(Bracket::Curly))?;

        let one = conditions.len() == 1;
        Ok(Some(if one { conditions.remove(0) } else { Value::List(conditions) }))
    }

    /// Reads items between braces that only group.
    fn group(&mut self) -> Result<Value, ParseError> {
        self.expect(&Token::Open(Bracket::Group))?;
        self.deeper(|parser| {
            let bars = std::mem::take(&mut parser.bars);
            let mut items = parser.list()?;
            parser.bars = bars;

            if parser.take(&Token::Choose) {
                let chosen = parser.sum()?;
                let n = parser.scalar(items.remove(0))?;
                let k = parser.scalar(chosen)?;
                items = vec![Value::Scalar(arithmetic::binomial(n, k))];
            }

            parser.expect(&Token::Close(Bracket::Group))?;
            Ok(if items.len() == 1 { items.remove(0) } else { Value::List(items) })
        })
    }

    /// Returns the expression of `value` where only an expression is allowed.
    fn scalar(&self, value: Value) -> Result<Expr, ParseError> {
        match value {
            Value::Scalar(expr) => Ok(expr),
            Value::Quantity(expr, ..) => Ok(expr),
            _ => Err(ParseError::Misplaced(self.at)),
        }
    }
}

/// Tells whether a value is the name of a function, with its arguments or without.
fn is_function(value: &Value) -> bool {
    match value {
        Value::Scalar(Expr::Apply(..)) => true,
        Value::Scalar(Expr::Symbol(name)) => {
            matches!(&**name, "f" | "g" | "h" | "F" | "G" | "H" | "φ" | "ψ")
        }
        _ => false,
    }
}

fn is_sum(value: &Value) -> bool {
    matches!(value, Value::Scalar(Expr::Sum(terms)) if terms.iter().all(Expr::is_constant))
}

/// Joins conditions: those with `and` between them have to hold together, while of those with `or` one is enough. Other
/// items are a list, whatever is between them.
fn conditions(items: Vec<Value>, separators: &[&Token]) -> Vec<Value> {
    let and = separators.contains(&&Token::And);
    let or = separators.contains(&&Token::Or);

    let condition = |item: &Value| match item {
        Value::Chain { relations, .. } => relations.iter().any(|r| r.is_order()),
        Value::Member(_) => true,
        _ => false,
    };

    // What `and` and `or` mean together is not clear.
    if items.len() < 2 || and == or || !items.iter().all(condition) {
        return items;
    }
    vec![Value::Join(if and { Join::Intersection } else { Join::Union }, items)]
}

/// Splits a value with `±` into the two values for which it stands.
fn both_signs(value: Value) -> Value {
    let mut found = false;
    value.each(&mut |expr| found |= expr.mentions(BOTH_SIGNS));
    if !found {
        return value;
    }

    match value {
        Value::List(items) => Value::List(
            items
                .into_iter()
                .flat_map(|item| match both_signs(item) {
                    Value::List(two) => two,
                    one => vec![one],
                })
                .collect(),
        ),

        Value::Set(items) => match both_signs(Value::List(items)) {
            Value::List(items) => Value::Set(items),
            other => other,
        },

        value => {
            let with = |sign: i64, value: Value| {
                let sign = Expr::Number(num_bigint::BigInt::from(sign).into());
                value.map(&mut |expr| expr.with(BOTH_SIGNS, &sign))
            };
            Value::List(vec![with(1, value.clone()), with(-1, value)])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `text` and returns it in canonical form.
    fn read(text: &str) -> String {
        let mut budget = Budget::new(1_000_000);
        match parse(text, Reading::default(), &mut budget) {
            Ok(value) => value.canonical(&mut budget),
            Err(why) => format!("unread: {why}"),
        }
    }

    /// Tells whether two texts are read as the same tree.
    fn same(a: &str, b: &str) -> bool {
        let tree = |text| parse(text, Reading::default(), &mut Budget::new(1_000_000)).ok();
        tree(a).is_some() && tree(a) == tree(b)
    }

    #[test]
    fn one_tree_for_every_way_to_write_it() {
        for (a, b) in [
            ("\\frac12", "1/2"),
            ("\\dfrac{1}{2}", "\\tfrac 1 2"),
            ("\\frac{x}2", "\\frac x2"),
            ("\\\\frac{1}{2}", "\\frac{1}{2}"),
            ("2\\frac13", "2 1/3"),
            ("2\\frac13", "2⅓"),
            ("-3\\frac12", "-3½"),
            ("3\\sqrt2", "3√2"),
            ("4\\sqrt(2)", "4\\sqrt{2}"),
            ("\\sqrt[3]{x}", "∛x"),
            ("1{,}234{,}567", "1,234,567"),
            ("1\\,234", "1234"),
            ("1,\\!234", "1 234"),
            ("１２", "12"),
            ("𝟒𝟐", "42"),
            ("x²", "x^{2}"),
            ("x^10", "x^{10}"),
            ("x_1", "x_{1}"),
            ("x₁", "x_1"),
            ("\\sin^2 x", "(\\sin x)^2"),
            ("\\sin 2x\\cos x", "(\\sin(2x))(\\cos(x))"),
            ("\\sin^{-1} x", "\\arcsin x"),
            ("sinx", "\\sin x"),
            ("\\log_{2}{8}", "\\log_2 8"),
            ("\\cos 2\\pi/3", "\\cos\\frac{2\\pi}{3}"),
            ("x \\le 5", "x <= 5"),
            ("x \\geqslant 5", "x ≥ 5"),
            ("\\left(1,2\\right]", "(1, 2]"),
            ("|x-3|", "\\left|x-3\\right|"),
            ("|x-3|", "\\lvert x-3\\rvert"),
            ("\\{1,2\\}", "\\left\\{1, 2\\right\\}"),
            ("\\mathbf{9}", "9"),
            ("\\$18.50", "18.50"),
            ("90^\\circ", "90°"),
            ("90^{\\circ}", "90 degrees"),
            ("28\\%", "28 percent"),
            ("5\\text{ apples}", "5"),
            ("112\\text{ square units}", "112"),
            ("0.1\\overline6", "0.1\\overline{6}"),
            ("5 x 10^3", "5\\times 10^{3}"),
            ("1'234'567", "1234567"),
            ("x\\equiv 3\\pmod{7}", "x ≡ 3 (mod 7)"),
            ("96 jars old", "96"),
            ("5 cups a day", "5"),
            ("5 million", "5\\cdot 1000000"),
            ("325_6", "325_{6}"),
            ("\\mathbb{R}", "ℝ"),
            ("\\emptyset", "\\{\\}"),
            (
                "\\begin{pmatrix}1\\\\2\\end{pmatrix}",
                "\\left[\\begin{array}{c}1\\\\2\\\\\\end{array}\\right]",
            ),
            ("(11,7)or(7,11)", "(11,7), (7,11)"),
            ("x=1orx=2", "x=1 \\text{ or } x=2"),
            ("\\begin{cases}x=1\\\\y=2\\end{cases}", "x=1, y=2"),
            ("x_{1}=3,\\quadx_{2}=4", "x_1=3, x_2=4"),
            ("\\{x \\mid x>3\\}", "x>3"),
            ("--5", "5"),
            ("\\mathrm{e}^x", "e^x"),
            ("\\binom{5}{2}", "{5 \\choose 2}"),
        ] {
            assert!(same(a, b), "{a:?} is {}, {b:?} is {}", read(a), read(b));
        }
    }

    #[test]
    fn what_looks_alike_is_not_the_same() {
        for (a, b) in [
            ("1,234", "1, 234"),
            ("2x", "2^x"),
            ("\\sin x^2", "(\\sin x)^2"),
            ("xy", "x y z"),
            ("ab", "AB"),
            ("f(x)", "f x"),
            ("x(x+1)", "x x+1"),
            ("0.\\overline{3}", "0.3"),
            ("[1,2)", "(1,2)"),
            ("325_6", "325_7"),
            ("42 x", "42"),
            ("1/2x", "1/(2x)"),
        ] {
            assert!(!same(a, b), "{a:?} and {b:?} are both {}", read(a));
        }
    }

    #[test]
    fn a_part_is_never_read_for_the_whole() {
        for text in [
            "",
            "+",
            "^",
            "\\frac",
            "\\frac{}{}",
            "(",
            "1)",
            "\\sqrt{",
            "1.11.1",
            "4 2",
            "\\int 42",
            "1/",
            "x=",
            "1++",
            "{",
            "}",
            "5 is wrong",
            "not 42",
            "\\forall x>0",
            "\\frac{d}{dx}x^2",
            "\\frac{dy}{dx}",
            "42́",
            "\\begin{pmatrix}\\end{pmatrix}",
            "\\begin{pmatrix}1&2\\\\3\\end{pmatrix}",
            "a?b:c",
            "12_2",
            "()",
            ",",
        ] {
            assert!(read(text).starts_with("unread"), "{text:?} was read as {}", read(text));
        }
    }

    #[test]
    fn depth_and_length_are_bounded() {
        // These pieces nest without brackets. The thread has a small stack.
        let small = std::thread::Builder::new().stack_size(1 << 20);
        let nested = small.spawn(|| {
            for (start, piece) in [
                ("1", "/2"),
                ("1", "\\%"),
                ("1", "°"),
                ("1", "\\bmod 7"),
                ("1", "\\pmod 7"),
                ("x", "\\cdot y/z"),
                ("\\mathbb{R}", "\\setminus\\{1\\}"),
                ("[0,1]", "\\cup[0,1]\\cap[0,1]"),
                ("1", "!"),
                ("1", "^2"),
                ("x", "²"),
            ] {
                let text = format!("{start}{}", piece.repeat(9_000));
                crate::Verifier::default().judge(&text, &format!("\\boxed{{{text}}}"));

                let mut twice = start.to_owned();
                for _ in 0..90 {
                    twice = format!("({twice}{})", piece.repeat(90));
                }
                crate::Verifier::default().judge(&twice, &format!("\\boxed{{{twice}}}"));
            }
        });
        nested.unwrap().join().unwrap();

        for piece in [
            "{",
            "(",
            "[",
            "\\{",
            "\\frac{1}{",
            "\\sqrt{",
            "1^{",
            "\\left(",
            "|",
            "-",
            "x^",
            "!",
            "\\sin ",
        ] {
            let open = piece.repeat(100_000);
            read(&open);
            read(&format!("{open}1"));
        }

        read(&format!("1{}", "!".repeat(100_000)));
        read(&format!("{}1{}", "{".repeat(50_000), "}".repeat(50_000)));
        read(&"1+".repeat(100_000));
        read(&"9".repeat(1_000_000));
        read(&"\\text{".repeat(100_000));
    }
}
