//! Splits text into tokens: LaTeX and plain maths in one pass, which reads each character once or twice.

mod command;
mod letters;
mod number;

use num_bigint::BigInt;
use num_rational::BigRational;

use super::{
    error::ParseError,
    lexicon,
    token::{Bracket, Token},
};
use crate::{budget::Budget, expr::MAX_DEPTH};

/// How to read a text where LaTeX and plain writing differ.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reading {
    /// True if `2,74` is a number and not a list of two.
    pub(crate) decimal_comma: bool,
}

/// A token and how it was set.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lexeme {
    pub(super) token: Token,
    /// True if white space precedes it.
    pub(super) spaced: bool,
    /// True if it was set upright, as units are: `\mathrm{m}`.
    pub(super) upright: bool,
}

/// How many tokens of a text are read.
const MAX_TOKENS: usize = 200_000;

/// Splits `text` into tokens.
pub(super) fn lex(
    text: &str,
    reading: Reading,
    budget: &mut Budget,
) -> Result<Vec<Lexeme>, ParseError> {
    budget.spend(text.len() as u64 / 4 + 1)?;
    let mut lexer = Lexer {
        text,
        budget,
        at: 0,
        reading,
        lexemes: Vec::with_capacity(text.len() / 2 + 4),
        spaced: false,
        brackets: 0,
        matrices: 0,
        cases: 0,
        words_until: None,
        groups: 0,
        numerators: vec![],
        single_signs: 0,
    };

    while lexer.at < text.len() {
        lexer.step()?;
        if lexer.budget.left() == 0 {
            return Err(ParseError::OverBudget);
        }
        if lexer.groups + lexer.brackets > MAX_DEPTH {
            return Err(ParseError::TooDeep);
        }
        if lexer.lexemes.len() > MAX_TOKENS {
            return Err(ParseError::TooLong);
        }
    }

    Ok(lexer.lexemes)
}

struct Lexer<'a, 'b> {
    text: &'a str,
    budget: &'b mut Budget,
    at: usize,
    reading: Reading,
    lexemes: Vec<Lexeme>,
    spaced: bool,
    /// Number of open visible brackets. Inside them a comma separates, and never groups digits.
    brackets: usize,
    matrices: usize,
    /// Number of open `cases`, whose rows are a list.
    cases: usize,
    /// The enclosing `\text{…}` or `\mathrm{…}`.
    words_until: Option<Words>,
    /// Number of open groups, without those of `\text`.
    groups: usize,
    /// Number of open groups around each fraction whose first argument is in braces.
    numerators: Vec<usize>,
    /// Number of arguments of `\frac` still to come, if they are single signs: `\frac12` is 1/2.
    single_signs: u8,
}

/// A part of the text whose letters are set upright.
#[derive(Clone, Copy)]
struct Words {
    end: usize,
    /// True if a single letter in it is a word, as in `\text{…}`.
    lone_letters: bool,
    /// True if the brace at its end is its own, while the brace of `{\rm m}` belongs to the group around it.
    braced: bool,
}

impl<'a> Lexer<'a, '_> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn push(&mut self, token: Token) {
        match token {
            Token::Open(bracket) if bracket != Bracket::Group => self.brackets += 1,
            Token::Close(bracket) if bracket != Bracket::Group => {
                self.brackets = self.brackets.saturating_sub(1);
            }
            _ => {}
        }

        // `\frac12` takes two single signs as its arguments, while in `\frac{1}2` only the second is one.
        match token {
            Token::Fraction => self.single_signs = 2,
            Token::Open(Bracket::Group) => {
                if self.single_signs == 2 {
                    self.numerators.push(self.groups);
                }
                self.single_signs = 0;
                self.groups += 1;
            }
            Token::Close(Bracket::Group) => {
                self.groups = self.groups.saturating_sub(1);
                if self.lone_sign() {
                    return;
                }
                let numerator = self.numerators.last() == Some(&self.groups);
                if numerator {
                    self.numerators.pop();
                }
                self.single_signs = u8::from(numerator);
            }
            _ => self.single_signs = self.single_signs.saturating_sub(1),
        }

        let upright = self.words_until.is_some_and(|words| !words.lone_letters);
        self.lexemes.push(Lexeme { token, spaced: std::mem::take(&mut self.spaced), upright });
    }

    /// Removes the braces around a single sign, which only change its spacing, as in `2{:}3` and `28{\%}`. After a
    /// caret they stay, because `{+}` is an exponent there.
    fn lone_sign(&mut self) -> bool {
        let [.., before, open, sign] = self.lexemes.as_slice() else { return false };
        let lone = matches!(sign.token, Token::Percent | Token::Colon | Token::Relation(_));
        let raised = matches!(before.token, Token::Caret | Token::Underscore);
        if !lone || raised || open.token != Token::Open(Bracket::Group) {
            return false;
        }

        self.lexemes.remove(self.lexemes.len() - 2);
        self.single_signs = 0;
        true
    }

    fn last(&self) -> Option<&Token> {
        self.lexemes.last().map(|lexeme| &lexeme.token)
    }

    fn step(&mut self) -> Result<(), ParseError> {
        if let Some(Words { end, braced, .. }) = self.words_until
            && self.at >= end
        {
            self.words_until = None;
            self.spaced = true;
            self.at = end + usize::from(braced && self.text[end..].starts_with('}'));
            return Ok(());
        }

        let Some(c) = self.peek() else { return Ok(()) };
        let plain = lexicon::folded(c);
        if plain.is_ascii_digit() || (plain == '.' && self.digit_after(c.len_utf8())) {
            return self.number();
        }
        if plain.is_ascii_alphabetic() {
            return self.letters();
        }
        if c == '\\' {
            return self.command();
        }

        self.at += c.len_utf8();
        if c.is_whitespace() || c == '~' || is_invisible(c) {
            self.spaced = true;
            return Ok(());
        }

        if let Some((digit, superscript)) = lexicon::small_digit(c) {
            let value = self.small_digits(digit, superscript);
            if superscript {
                self.push(Token::Superscript(value));
            } else {
                self.push(Token::Underscore);
                self.push(Token::Number { value: integer(value.into()), decimal: false });
            }
            return Ok(());
        }

        // `s⁻¹`
        if c == '⁻'
            && let Some((digit, true)) = self.peek().and_then(lexicon::small_digit)
        {
            self.at += self.peek().map_or(0, char::len_utf8);
            let value = self.small_digits(digit, true);

            for token in [Token::Caret, Token::Open(Bracket::Group), Token::Minus] {
                self.push(token);
            }
            self.push(Token::Number { value: integer(value.into()), decimal: false });
            self.push(Token::Close(Bracket::Group));
            return Ok(());
        }

        let two = |lexer: &mut Self, next: char, long: Token, short: Token| {
            let token = if lexer.rest().starts_with(next) {
                lexer.at += 1;
                long
            } else {
                short
            };
            lexer.push(token);
        };
        use crate::value::Relation as R;

        let token = match plain {
            '+' => Token::Plus,
            '-' => Token::Minus,
            '/' => Token::Slash,
            '^' => Token::Caret,
            '_' => Token::Underscore,
            '%' => Token::Percent,
            '\'' => Token::Prime,
            ',' => Token::Comma,
            ';' => Token::Semicolon,
            '|' => Token::Bar,
            // In `x &= 1` the sign only aligns lines.
            '&' if self.matrices == 0 && self.rest().trim_start().starts_with('=') => {
                self.spaced = true;
                return Ok(());
            }
            '&' => Token::Ampersand,
            '(' => Token::Open(Bracket::Round),
            ')' => Token::Close(Bracket::Round),
            '[' => Token::Open(Bracket::Square),
            ']' => Token::Close(Bracket::Square),
            // The empty group of `{}^\circ` only carries the exponent.
            '{' if self
                .rest()
                .trim_start()
                .strip_prefix('}')
                .is_some_and(|rest| rest.starts_with('^')) =>
            {
                self.at += self.rest().find('}').map_or(0, |close| close + 1);
                self.spaced = true;
                return Ok(());
            }
            '{' => Token::Open(Bracket::Group),
            '}' => Token::Close(Bracket::Group),
            // Currency and dollar signs are ignored, and so is a full stop that ends a sentence.
            '$' | '€' | '£' | '¥' | '₹' | '`' | '"' | '“' | '”' => {
                self.spaced = true;
                return Ok(());
            }
            '.' | '。' => return self.full_stop(),
            '*' => {
                two(self, '*', Token::Caret, Token::Times);
                return Ok(());
            }
            '!' => {
                two(self, '=', Token::Relation(R::NotEqual), Token::Bang);
                return Ok(());
            }
            '<' => {
                two(self, '=', Token::Relation(R::LessEqual), Token::Relation(R::Less));
                return Ok(());
            }
            '>' => {
                two(self, '=', Token::Relation(R::GreaterEqual), Token::Relation(R::Greater));
                return Ok(());
            }
            ':' => {
                two(self, '=', Token::Relation(R::Equal), Token::Colon);
                return Ok(());
            }
            '=' => {
                self.equals();
                return Ok(());
            }
            _ => match lexicon::sign(c) {
                Some(token) => token,
                None => return self.other(c),
            },
        };

        self.push(token);
        Ok(())
    }

    /// Reads `=`, and the spellings of `≤`, `≥` and `=` that begin with it.
    fn equals(&mut self) {
        use crate::value::Relation as R;
        let relation = match self.peek() {
            Some('=') => R::Equal,
            Some('<') => R::LessEqual,
            Some('>') => R::GreaterEqual,
            _ => return self.push(Token::Relation(R::Equal)),
        };
        self.at += 1;
        self.push(Token::Relation(relation));
    }

    /// Reads a point that no digit follows: the end of a sentence, the end of a number such as `5.`, or the empty
    /// bracket of `\right.`.
    fn full_stop(&mut self) -> Result<(), ParseError> {
        if self.rest().starts_with("..") && !matches!(self.last(), Some(Token::Number { .. })) {
            self.at += 2;
            self.push(Token::Symbol("…".into()));
            return Ok(());
        }

        let ends = self.rest().trim_start().is_empty()
            || matches!(self.peek(), Some('}' | '$' | ')' | '*' | ',' | '\\' | ' ' | '\n'));
        if ends {
            self.spaced = true;
            Ok(())
        } else {
            Err(ParseError::Sign('.'))
        }
    }

    /// Reads the digits that follow `first` at the same height, and returns the number that they make with it.
    fn small_digits(&mut self, first: u32, superscript: bool) -> u32 {
        let mut value = first;
        while let Some((digit, same)) = self.peek().and_then(lexicon::small_digit)
            && same == superscript
        {
            value = value.saturating_mul(10).saturating_add(digit);
            self.at += self.peek().map_or(0, char::len_utf8);
        }
        value
    }

    /// Reads letters of other scripts and signs without meaning as words. It refuses characters that cannot be part of
    /// a text, such as a combining accent.
    fn other(&mut self, c: char) -> Result<(), ParseError> {
        let start = self.at - c.len_utf8();
        if c.is_alphabetic() || ('\u{1F000}'..='\u{1FAFF}').contains(&c) {
            while let Some(next) = self.peek()
                && !next.is_ascii()
                && lexicon::sign(next).is_none()
                && (next.is_alphabetic() || ('\u{1F000}'..='\u{1FAFF}').contains(&next))
            {
                self.at += next.len_utf8();
            }
            self.push(Token::Word(self.text[start..self.at].into()));
            return Ok(());
        }
        Err(ParseError::Sign(c))
    }

    fn digit_after(&self, offset: usize) -> bool {
        self.text[self.at + offset..]
            .chars()
            .next()
            .is_some_and(|c| lexicon::folded(c).is_ascii_digit())
    }
}

/// Tells whether a mark prints nothing, as joiners, directions and the byte order do.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{fe0f}' | '\u{ad}')
}

/// Returns the ASCII letters at the beginning of a text.
pub(super) fn letters_of(text: &str) -> &str {
    &text[..text.bytes().take_while(u8::is_ascii_alphabetic).count()]
}

fn integer(value: u64) -> BigRational {
    BigRational::from(BigInt::from(value))
}
