//! Reads the noun or unit after a number: `12 apples`, `12\,\mathrm{m\,s^{-1}}`.

use num_traits::ToPrimitive as _;

use super::{
    ParseError, Parser, lexicon,
    token::{Bracket, Token},
};
use crate::{expr::Expr, unit::Unit, value::Value};

impl Parser<'_> {
    /// Reads the noun or unit after a number. Nouns are ignored. A unit is kept if it could contradict the unit of the
    /// other side, but if it has more than one part, only the number counts.
    pub(super) fn noun(&mut self, value: Value) -> Result<Value, ParseError> {
        // `5/hour`
        if self.peek() == Some(&Token::Slash) && self.names_unit(self.at + 1) {
            self.at += 1;
            self.units(&mut UnitReader::default())?;
            return Ok(value);
        }

        if !self.names_unit(self.at) {
            return Ok(value);
        }

        let Value::Scalar(expr) = value else { return Err(self.misplaced()) };
        let mut read = UnitReader::default();
        self.units(&mut read)?;
        // Words such as `million` multiply the number.
        let multiplied = |expr, factor| Expr::Product(vec![expr, factor]);
        let expr = read.factors.into_iter().fold(expr, multiplied);

        Ok(match read.unit.filter(|_| !read.is_compound) {
            // The degrees are those of the scale, not of an angle.
            Some(unit) if unit.is_temperature() => {
                Value::Quantity(without_degree(expr), unit, read.power)
            }
            Some(unit) => Value::Quantity(expr, unit, read.power),
            None => Value::Scalar(expr),
        })
    }

    /// Reads words and units in a row, with signs for products and quotients between them.
    fn units(&mut self, read: &mut UnitReader) -> Result<(), ParseError> {
        while self.names_unit(self.at)
            || read.after_slash && matches!(self.peek(), Some(Token::Symbol(_)))
        {
            self.deeper(|parser| parser.unit(read))?;

            let joined = match self.peek() {
                Some(Token::Slash) => {
                    let next = self.peek_at(1);
                    matches!(next, Some(Token::Symbol(_) | Token::Open(Bracket::Round)))
                        || self.names_unit(self.at + 1)
                }
                Some(Token::Times) => self.names_unit(self.at + 1),
                // `N-m`
                Some(Token::Minus) => {
                    !self.lexemes[self.at].spaced
                        && (matches!(self.peek_at(1), Some(Token::Word(_))) || self.is_hyphen())
                        && !self.lexemes[self.at + 1].spaced
                }
                _ => false,
            };

            read.after_slash = joined && self.peek() == Some(&Token::Slash);
            read.is_compound |= joined;
            self.at += usize::from(joined);

            // `J/(kg K)`
            if read.after_slash && self.take(&Token::Open(Bracket::Round)) {
                self.units(read)?;
                self.expect(&Token::Close(Bracket::Round))?;
                read.after_slash = false;
            }
        }
        Ok(())
    }

    /// Tells whether the minus here joins two units in upright letters, as in `\mathrm{N-m}`. A capital after it could
    /// be a variable.
    fn is_hyphen(&self) -> bool {
        let next = self.lexemes.get(self.at + 1);
        let is_unit = next.is_some_and(
            |next| matches!(&next.token, Token::Symbol(name) if matches!(&**name, "m" | "s" | "h")),
        );
        is_unit && self.letters_of_unit(self.at + 1).is_some()
    }

    /// Reads one word or unit with its power.
    fn unit(&mut self, read: &mut UnitReader) -> Result<(), ParseError> {
        read.words += 1;

        match self.peek() {
            Some(Token::Fraction) => {
                self.at += 1;
                self.grouped_units(read)?;
                self.grouped_units(read)?;
                read.is_compound = true;
            }
            Some(Token::Open(Bracket::Group)) => self.grouped_units(read)?,

            // `metres per second squared`
            Some(Token::Word(word)) if read.words > 1 && matches!(&**word, "squared" | "cubed") => {
                self.at += 1;
                read.power = if **word == *"squared" { 2 } else { 3 };
            }

            Some(Token::Word(word)) if self.letters_of_unit(self.at).is_none() => {
                if lexicon::changes_meaning(word) || read.words > 7 {
                    return Err(self.misplaced());
                }
                self.at += 1;
                match (lexicon::multiplier(word), word.to_lowercase().as_str()) {
                    (Some(factor), _) => read.factors.push(factor),
                    (_, "square" | "sq") => read.power = 2,
                    (_, "cubic" | "cu") => read.power = 3,
                    _ => read.name(word, lexicon::is_measure(word), false),
                }
            }

            Some(Token::Symbol(name)) => {
                self.at += self.letters_of_unit(self.at).unwrap_or(1);
                read.name(name, true, true);
            }

            // `\text{k}\Omega`
            _ => {
                self.at += self.letters_of_unit(self.at).unwrap_or(1);
                read.measure();
            }
        }

        if let Some(power) = self.power_of_unit()? {
            match power.to_u32() {
                Some(power) => read.power = power,
                None => read.is_compound = true,
            }
        }
        Ok(())
    }

    /// Reads units between braces.
    fn grouped_units(&mut self, read: &mut UnitReader) -> Result<(), ParseError> {
        self.expect(&Token::Open(Bracket::Group))?;
        self.units(read)?;
        self.expect(&Token::Close(Bracket::Group))
    }

    /// Reads the power of a unit: `²`, `^2`, `^{-1}`.
    fn power_of_unit(&mut self) -> Result<Option<i64>, ParseError> {
        if let Some(Token::Superscript(power)) = self.peek() {
            self.at += 1;
            return Ok(Some(i64::from(*power)));
        }

        if !self.take(&Token::Caret) {
            return Ok(None);
        }

        let grouped = self.take(&Token::Open(Bracket::Group));
        let negative = self.take(&Token::Minus);
        let Some(Token::Number { value, .. }) = self.peek() else { return Err(self.misplaced()) };
        let power = Some(value).filter(|value| value.is_integer());
        let power =
            power.and_then(|value| value.to_integer().to_i64()).filter(|power| *power <= 100);
        let power = power.ok_or_else(|| self.misplaced())?;

        self.at += 1;
        if grouped {
            self.expect(&Token::Close(Bracket::Group))?;
        }
        Ok(Some(if negative { -power } else { power }))
    }

    /// Tells whether a noun or unit begins at token `at`.
    pub(super) fn names_unit(&self, index: usize) -> bool {
        let token = |index: usize| self.lexemes.get(index).map(|lexeme| &lexeme.token);
        match token(index) {
            Some(Token::Word(_)) => !self.begins_condition(index),
            Some(Token::Symbol(_)) => self.letters_of_unit(index).is_some(),
            // `{\rm m/s}`, `\frac{\text{m}}{\text{s}}`
            Some(Token::Open(Bracket::Group)) => self.is_named_in_group(index),
            Some(Token::Fraction) => self.is_named_in_group(index + 1),
            _ => false,
        }
    }

    fn is_named_in_group(&self, index: usize) -> bool {
        let token = |index: usize| self.lexemes.get(index).map(|lexeme| &lexeme.token);
        token(index) == Some(&Token::Open(Bracket::Group))
            && (self.letters_of_unit(index + 1).is_some()
                || matches!(token(index + 1), Some(Token::Word(_))))
    }

    /// Tells whether a unit whose letters could be variables begins after the number just read, and nothing but units
    /// follows up to the end of the answer or of the item. In `3\mathrm{A}+2\mathrm{B}` the letters are variables.
    pub(super) fn unit_follows(&self) -> bool {
        if !self.names_unit(self.at) {
            return false;
        }

        let previous = self.at.checked_sub(1).map(|at| &self.lexemes[at]);
        let number = previous.is_some_and(|previous| match &previous.token {
            Token::Number { .. }
            | Token::Scientific { .. }
            | Token::Vulgar(_)
            | Token::Constant(_)
            | Token::Superscript(_)
            | Token::Degree
            | Token::Close(_) => true,
            Token::Symbol(name) => {
                !previous.upright && name.starts_with(|c: char| c.is_alphabetic())
            }
            _ => false,
        });
        if !number {
            return false;
        }

        // A second parser reads ahead, so this one does not move.
        let mut ahead = Parser { at: self.at, ..Parser::new(self.lexemes) };
        let ends = |token: &Token| {
            matches!(
                token,
                Token::Close(_)
                    | Token::Comma
                    | Token::Semicolon
                    | Token::And
                    | Token::Or
                    | Token::Relation(_)
                    | Token::In
                    | Token::Ampersand
                    | Token::Row
                    | Token::EndMatrix
            )
        };

        ahead.units(&mut UnitReader::default()).is_ok()
            && (ahead.peek().is_none_or(ends) || ahead.begins_condition(ahead.at))
    }

    /// Counts the tokens of a unit whose letters could be variables: upright letters, `Ω`, or either with a prefix such
    /// as `μ`. `C(` and `C_5` are not units.
    fn letters_of_unit(&self, index: usize) -> Option<usize> {
        let lexeme = self.lexemes.get(index)?;
        let next = self.lexemes.get(index + 1);
        let next_is = |name: &str| {
            next.is_some_and(
                |next| matches!(&next.token, Token::Symbol(letter) if **letter == *name),
            )
        };
        // A function or a variable with an index is not a unit.
        let applied = next.is_some_and(|next| {
            matches!(next.token, Token::Open(Bracket::Round) | Token::Underscore)
        });

        match &lexeme.token {
            Token::Symbol(name) | Token::Word(name)
                if matches!(&**name, "k" | "M" | "G" | "m") && next_is("Ω") =>
            {
                Some(2)
            }

            Token::Symbol(name) if **name == *"μ" => {
                let next = next?;
                let unit = match &next.token {
                    Token::Word(_) => true,
                    // `\mu N` and `\mu g` are formulas of friction.
                    Token::Symbol(letter) => {
                        lexicon::is_unit_letter(letter)
                            && (next.upright || !matches!(&**letter, "N" | "g"))
                    }
                    _ => false,
                };
                unit.then_some(2)
            }

            Token::Symbol(name) if **name == *"Ω" => {
                let raised = next
                    .is_some_and(|next| matches!(next.token, Token::Caret | Token::Superscript(_)));
                (!applied && !raised).then_some(1)
            }

            Token::Symbol(name) => {
                (lexeme.upright && lexicon::is_unit_letter(name) && !applied).then_some(1)
            }
            _ => None,
        }
    }
}

/// What was read of a unit so far.
#[derive(Default)]
struct UnitReader {
    /// Factors of words that multiply the number: `5 million`.
    factors: Vec<Expr>,
    unit: Option<Unit>,
    power: u32,
    words: usize,
    /// Number of units among the words.
    measures: usize,
    is_compound: bool,
    after_slash: bool,
}

impl UnitReader {
    /// Takes the next name. Only one of the first two words is the unit, because the rest of `5 cm long` says what is
    /// measured. A second unit makes it a product, even if it is not converted here, as in `12 N m`. A letter that is
    /// set upright is always a unit.
    fn name(&mut self, name: &str, is_measure: bool, is_upright: bool) {
        // As capitals these letters are other units: henry, siemens, gauss, molar.
        let small = name.to_lowercase();
        let unit = Unit::named(&small).filter(|_| !matches!(name, "H" | "S" | "G" | "M"));
        let specifies = |of: Unit| !is_upright && unit.is_none() && of.is_specified_by(name);

        if (is_measure || unit.is_some()) && !self.unit.is_some_and(specifies) {
            self.measure();
        }

        if self.unit.is_none() && self.words <= 2 {
            self.unit = unit;
        }
        self.power = self.power.max(1);
    }

    /// Counts one more unit.
    fn measure(&mut self) {
        self.measures += 1;
        self.is_compound |= self.measures > 1;
    }
}

/// Removes the sign from a number of degrees.
fn without_degree(expr: Expr) -> Expr {
    match expr {
        Expr::Degrees(inner) => *inner,
        Expr::Negate(inner) => Expr::Negate(Box::new(without_degree(*inner))),
        // `2.5\cdot10^3{}^\circ`
        Expr::Product(mut factors) => {
            let last = factors.pop().map(without_degree);
            factors.extend(last);
            Expr::Product(factors)
        }
        other => other,
    }
}
