//! The way from text to tokens: LaTeX and plain maths in one pass, which reads each character once or twice.

use num_bigint::BigInt;
use num_rational::BigRational;

use super::{
    error::ParseError,
    lexicon::{self, Command},
    token::{Bracket, Token},
};
use crate::{
    budget::Budget,
    expr::{Constant, MAX_DEPTH},
    moment,
    unit::Unit,
};

/// The way to read a text where LaTeX and plain writing differ.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reading {
    /// True if `2,74` is a number and not a list of two.
    pub(crate) decimal_comma: bool,
}

/// A token, and how it was set.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lexeme {
    pub(super) token: Token,
    /// True if white space stood before it.
    pub(super) spaced: bool,
    /// True if it was set upright, as units are: `\mathrm{m}`.
    pub(super) upright: bool,
}

/// The most digits of a number that is read. (Two plain numbers of any length are compared as text, before
/// anything is parsed.)
const MAX_DIGITS: usize = 4_000;

/// The most tokens of a text that is read.
const MAX_TOKENS: usize = 200_000;

/// The largest power of ten that is written out. Larger ones are kept as powers.
const MAX_EXPONENT: i64 = 1_000;

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
    /// The number of open visible brackets. Inside them a comma separates, and never groups digits.
    brackets: usize,
    matrices: usize,
    /// The number of open `cases`, whose rows are a list.
    cases: usize,
    /// The enclosing `\text{…}` or `\mathrm{…}`.
    words_until: Option<Words>,
    /// The number of open groups, without those of `\text`.
    groups: usize,
    /// The number of open groups around each fraction whose first argument is in braces.
    numerators: Vec<usize>,
    /// The number of arguments of `\frac` still to come, if they are single signs: `\frac12` is 1/2.
    single_signs: u8,
}

/// A part of the text whose letters are set upright.
#[derive(Clone, Copy)]
struct Words {
    end: usize,
    /// True if a single letter in it is a word, as in `\text{…}`.
    lone_letters: bool,
    /// True if the brace at its end is its own. The brace of `{\rm m}` belongs to the group around it.
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

    /// Takes the braces off a sign that stands alone in them only for its spacing, as in `2{:}3` and `28{\%}`. It
    /// does not do so after a caret, because `{+}` is an exponent there.
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
            self.small_digits(digit, superscript);
            return Ok(());
        }
        // `s⁻¹`
        if c == '⁻'
            && let Some((digit, true)) = self.peek().and_then(lexicon::small_digit)
        {
            self.at += self.peek().map_or(0, char::len_utf8);
            for token in [Token::Caret, Token::Open(Bracket::Group), Token::Minus] {
                self.push(token);
            }
            self.push(Token::Number { value: integer(digit.into()), decimal: false });
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
            // In `x &= 1` the sign sets lines below each other.
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
            // Currency and dollar signs do not count. Neither does a full stop that ends a sentence.
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

    fn small_digits(&mut self, first: u32, superscript: bool) {
        let mut value = first;
        while let Some((digit, same)) = self.peek().and_then(lexicon::small_digit)
            && same == superscript
        {
            value = value.saturating_mul(10).saturating_add(digit);
            self.at += self.peek().map_or(0, char::len_utf8);
        }
        if superscript {
            self.push(Token::Superscript(value));
        } else {
            self.push(Token::Underscore);
            self.push(Token::Number { value: integer(value.into()), decimal: false });
        }
    }

    /// Reads letters of other scripts and signs of no meaning as words. It refuses characters that cannot be part
    /// of a text, such as a combining accent.
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

    /// Reads a number with its separators, decimal part, repeating decimals and exponent.
    fn number(&mut self) -> Result<(), ParseError> {
        let mut digits = String::new();
        if self.single_signs > 0
            && let Some(digit) = self.peek().map(lexicon::folded).and_then(|c| c.to_digit(10))
        {
            self.at += self.peek().map_or(0, char::len_utf8);
            self.push(Token::Number { value: integer(digit.into()), decimal: false });
            return Ok(());
        }
        if self.day()? {
            return Ok(());
        }
        self.digits(&mut digits);
        let first = digits.len();
        if (1..=3).contains(&first) {
            while let Some(separator) = self.thousands_separator() {
                self.at += separator;
                self.digits(&mut digits);
            }
        }
        let mut places = 0;
        let mut decimal = false;
        let is_point = |c: char| lexicon::folded(c) == '.' || c == ',' && self.decimal_comma(first);
        let point = self.peek().filter(|c| is_point(*c)).map(char::len_utf8);
        if let Some(point) = point
            && (self.digit_after(point) || period_of(&self.rest()[point..]).is_some())
        {
            self.at += point;
            let whole = digits.len();
            self.digits(&mut digits);
            places = digits.len() - whole;
            decimal = true;
        }
        // In `3{,}5` the comma has braces and separates no thousands, so it is a decimal comma.
        if !decimal && self.rest().starts_with("{,}") && self.digit_after(3) {
            self.at += 3;
            let whole = digits.len();
            self.digits(&mut digits);
            places = digits.len() - whole;
            decimal = true;
        }
        if digits.len() > MAX_DIGITS {
            return Err(ParseError::TooLong);
        }
        self.budget.spend((digits.len() * digits.len() / 300) as u64 + 4)?;
        let whole = whole_number(&digits);
        let mut value = over_power_of_ten(whole, places);
        if let Some((period, length)) = period_of(self.rest()).filter(|_| decimal) {
            value += BigRational::new(
                whole_number(period),
                (ten_to(period.len()) - BigInt::from(1)) * ten_to(places),
            );
            self.at += length;
            self.push(Token::Number { value, decimal: false });
            return Ok(());
        }
        let Some(exponent) = self.exponent() else {
            self.push(Token::Number { value, decimal });
            return Ok(());
        };
        if exponent.abs() > MAX_EXPONENT {
            self.push(Token::Scientific { mantissa: value, exponent });
        } else {
            let power = BigRational::from(ten_to(exponent.unsigned_abs() as usize));
            let value = if exponent < 0 { value / power } else { value * power };
            self.push(Token::Number { value, decimal: true });
        }
        Ok(())
    }

    /// Reads a day in digits, which would otherwise be a difference or a quotient: `2024-06-05`. Nobody can tell the
    /// month of `6/5/2024`, so it is not read.
    fn day(&mut self) -> Result<bool, ParseError> {
        let bytes = self.rest().as_bytes();
        let sign = |at: usize| matches!(bytes.get(at), Some(b'-' | b'/'));
        if !(sign(1) || sign(2) || sign(4)) {
            return Ok(false);
        }
        let is_part = |byte: &&u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'/');
        let length = bytes.iter().take(11).take_while(is_part).count();
        let text = &self.rest()[..length];
        let parts: Vec<&str> = text.split(['-', '/']).collect();
        let [first, second, third] = parts[..] else { return Ok(false) };
        // `2000-10-10 = 1980` is a difference.
        let after = self.rest()[length..].trim_start();
        let zero = |part: &&str| part.starts_with('0');
        if after.starts_with(['+', '*', '=', '^']) && !parts.iter().any(zero) {
            return Ok(false);
        }
        let number = |part: &str| part.parse::<u64>().unwrap_or(0);
        let is_day = |part: &str| part.len() <= 2 && (1..=31).contains(&number(part));
        let is_year = |part: &str| part.len() == 4 && (1000..3000).contains(&number(part));
        if is_day(first) && is_day(second) && is_year(third) {
            return Err(ParseError::Date(text.into()));
        }
        let month = moment::month_name(number(second)).filter(|_| second.len() == 2);
        let (Some(month), 2) = (month, third.len()) else { return Ok(false) };
        if !is_year(first) || !is_day(third) {
            return Ok(false);
        }
        self.at += length;
        self.push(Token::Word(month.into()));
        for value in [number(third), number(first)] {
            self.push(Token::Number { value: integer(value), decimal: false });
        }
        Ok(true)
    }

    fn digits(&mut self, into: &mut String) {
        while let Some(c) = self.peek() {
            let digit = lexicon::folded(c);
            if !digit.is_ascii_digit() {
                break;
            }
            into.push(digit);
            self.at += c.len_utf8();
        }
    }

    /// Returns the length of the separator here, if exactly three digits follow it: `1,234`, `1{,}234`, `1,\!234`,
    /// `1\,234`, `1 234`.
    fn thousands_separator(&self) -> Option<usize> {
        const SEPARATORS: [&str; 16] = [
            " {,}", " {, }", "{, }", "{,}", "'", "{,\\!}", ",\\!\\!", ",\\! ", ",\\!", "\\,",
            "\\ ", "\\;", "\u{2009}", "\u{202f}", "\u{a0}", " ",
        ];
        let rest = self.rest();
        let separator =
            SEPARATORS.iter().find(|separator| rest.starts_with(**separator)).map(|s| s.len());
        let separator = separator.or_else(|| {
            let groups = rest.starts_with(',') && self.brackets == 0 && self.matrices == 0;
            (groups && !self.decimal_comma(3)).then_some(1)
        })?;
        let mut after = rest[separator..].chars().map(lexicon::folded);
        let three = after.by_ref().take(3).filter(char::is_ascii_digit).count() == 3;
        (three && !after.next().is_some_and(|c| c.is_ascii_digit())).then_some(separator)
    }

    /// Tells whether the comma here is a decimal point. It is one only if numbers are read as people write them,
    /// and if it can't be a separator of thousands.
    fn decimal_comma(&self, digits_before: usize) -> bool {
        if !self.reading.decimal_comma || !self.rest().starts_with(',') || self.brackets > 0 {
            return false;
        }
        let after = self.rest()[1..].chars().take_while(char::is_ascii_digit).count();
        after > 0 && (after != 3 || digits_before > 3)
    }

    /// Reads the exponent in `1.2e-5`, directly after the digits.
    fn exponent(&mut self) -> Option<i64> {
        let rest = self.rest();
        let after = rest.strip_prefix(['e', 'E'])?;
        let digits = after.strip_prefix(['+', '-']).unwrap_or(after);
        let count = digits.bytes().take_while(u8::is_ascii_digit).count();
        if count == 0
            || count > 12
            || digits[count..].starts_with(|c: char| c.is_ascii_alphabetic())
        {
            return None;
        }
        let length = rest.len() - digits.len() + count;
        let exponent = rest[1..length].trim_start_matches('+').parse().ok()?;
        self.at += length;
        Some(exponent)
    }

    /// Reads a run of letters: a word, the name of a function, or variables side by side.
    fn letters(&mut self) -> Result<(), ParseError> {
        let start = self.at;
        let letter = |c: char| lexicon::folded(c).is_ascii_alphabetic();
        while let Some(c) = self.peek() {
            // The point is part of an abbreviation such as `a.m.`, or of any other in a text.
            let point = self.rest().strip_prefix('.').is_some_and(|after| {
                let half = matches!(&self.text[start..self.at], "a" | "p" | "A" | "P")
                    && after.starts_with(['m', 'M']);
                half || self.words_until.is_some() && after.starts_with(letter)
            });
            if !letter(c) && !point {
                break;
            }
            self.at += c.len_utf8();
        }
        let run = self.text[start..self.at].chars().filter(|c| *c != '.');
        let run: String = run.map(lexicon::folded).collect();
        let adjacent = !self.spaced && self.last().is_some();
        if let Some(value) = lexicon::value(&run) {
            self.named(&run, value, adjacent);
            return Ok(());
        }
        if let Some(Words { lone_letters, .. }) = self.words_until {
            let token = match lexicon::plain(&run) {
                _ if self.is_time(&run) => Token::Word(run.into()),
                Some(token) => token,
                None if run.len() == 1 && !lone_letters => Token::Symbol(run.into()),
                None => Token::Word(run.into()),
            };
            self.push(token);
            return Ok(());
        }
        let ordinal = matches!(&*run, "st" | "nd" | "rd" | "th") && adjacent;
        if ordinal && matches!(self.last(), Some(Token::Number { .. })) {
            return Ok(());
        }
        // `25^\circ C`
        let scale = matches!(&*run, "C" | "F") && !self.rest().starts_with(['(', '_', '^']);
        let before = self.lexemes.len().checked_sub(2).map(|at| &self.lexemes[at].token);
        if scale && (self.last() == Some(&Token::Degree) || before == Some(&Token::Degree)) {
            self.push(Token::Word(run.into()));
            return Ok(());
        }
        self.run(&run, adjacent);
        Ok(())
    }

    /// Pushes the run just read, which names a value. It is that value, or only a word if a digit sticks to it
    /// (`NaN1`) or if it could apply to the next text (`inf A`). In `∠INF` it is three points.
    fn named(&mut self, run: &str, value: Constant, adjacent: bool) {
        let capitals = run.bytes().all(|b| b.is_ascii_uppercase());
        if capitals && matches!(self.last(), Some(Token::Symbol(_))) {
            return self.product(run);
        }
        // The end of `\text{…}` does not separate the word from the text after it.
        let after = self.rest();
        let after = self.words_until.and_then(|_| after.strip_prefix('}')).unwrap_or(after);
        let touched = adjacent && matches!(self.last(), Some(Token::Number { .. }))
            || after.starts_with(|c| lexicon::folded(c).is_ascii_digit());
        let after = after.trim_start();
        let applies = after.starts_with(['(', '{', '_']) || letters_of(after).len() == 1;
        self.push(match touched || applies {
            true => Token::Word(run.into()),
            false => Token::Constant(value),
        });
    }

    /// Tells whether the `x` just read is a sign for times: `5 x 10^3`.
    fn is_times(&self, run: &str) -> bool {
        let number = matches!(self.last(), Some(Token::Number { .. }));
        let ten = self.rest().trim_start().strip_prefix("10");
        matches!(run, "x" | "X")
            && number
            && self.spaced
            && ten.is_some_and(|rest| {
                rest.starts_with(['^', '⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'])
            })
    }

    /// Tells whether the `U` just read stands for a union: between two brackets.
    fn is_union(&self, run: &str) -> bool {
        let after = self.rest().trim_start();
        let after = after.strip_prefix("\\left").unwrap_or(after);
        run == "U"
            && matches!(self.last(), Some(Token::Close(Bracket::Round | Bracket::Square)))
            && after.starts_with(['(', '['])
    }

    /// Tells whether the run just read is a unit of time, although a function has that name too. It is one after a
    /// number or another unit, if nothing follows that the function could apply to.
    fn is_time(&self, run: &str) -> bool {
        if !matches!(run, "min" | "sec") || !(self.is_after_number() || self.is_after_unit()) {
            return false;
        }

        // A function applies to nothing outside of the group that it stands in. The brace of its own `\text{…}` is no
        // such group.
        let closes_words =
            self.words_until.is_some_and(|words| words.braced && words.end == self.at);
        let rest = self.rest();
        let inside = rest.strip_prefix('}').filter(|_| closes_words).unwrap_or(rest).trim_start();
        if inside.starts_with('}') {
            return true;
        }

        let after = rest.trim_start_matches(['}', ' ', '.', '$', ')']);
        let times = ["\\cdot", "\\times"].iter().any(|times| after.starts_with(times));
        times || !after.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '(' | '{' | '\\'))
    }

    /// Tells whether a unit or number stands before, with nothing between but the signs that join units: `L/`, `rev `,
    /// `\frac{\text{L}}{`.
    fn is_after_unit(&self) -> bool {
        let joins = |token: &Token| {
            matches!(
                token,
                Token::Slash
                    | Token::Times
                    | Token::Fraction
                    | Token::Open(Bracket::Group | Bracket::Round)
                    | Token::Close(Bracket::Group)
            )
        };
        let before = self.lexemes.iter().rev().find(|lexeme| !joins(&lexeme.token));
        before.is_some_and(|before| match before.token {
            Token::Word(_) | Token::Number { .. } | Token::Vulgar(_) | Token::Superscript(_) => {
                true
            }
            Token::Symbol(_) => before.upright,
            _ => false,
        })
    }

    /// Tells whether the run just read says which half of the day the number before it is in: `3:30 pm`.
    fn is_half_of_day(&self, run: &str) -> bool {
        moment::is_afternoon(run).is_some() && matches!(self.last(), Some(Token::Number { .. }))
    }

    /// Tells whether the run just read is a month beside its day or year, and not three variables.
    fn is_month(&self, run: &str) -> bool {
        let after = self.rest().strip_prefix('.').unwrap_or(self.rest());
        let day =
            after.starts_with(' ') && after.trim_start().starts_with(|c: char| c.is_ascii_digit());
        let before =
            self.spaced && matches!(self.last(), Some(Token::Number { .. } | Token::Word(_)));
        (day || before) && moment::month(run).is_some()
    }

    /// Tells whether the letter just read begins `m/s`, `m/min` or `L/min` behind a number and a space, which nobody
    /// writes of variables.
    fn is_rate(&self, run: &str) -> bool {
        let per: &[&str] = match run {
            "m" => &["/s", "/min"],
            "L" => &["/min"],
            _ => return false,
        };
        let ends = |after: &str| {
            !after.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '('))
        };
        self.spaced
            && self.is_after_number()
            && per.iter().any(|per| self.rest().strip_prefix(per).is_some_and(ends))
    }

    /// Tells whether the run just read is the first word of a sentence, as in “We have $x=3$”, and no product of `W`
    /// and `e`.
    fn opens_sentence(&self, run: &str) -> bool {
        let mut letters = run.bytes();
        let capitalised = letters.next().is_some_and(|b| b.is_ascii_uppercase())
            && letters.all(|b| b.is_ascii_lowercase());
        let next = letters_of(self.rest().trim_start());
        let word = next.len() > 1 && next.bytes().all(|b| b.is_ascii_lowercase());
        self.lexemes.is_empty()
            && run.len() > 1
            && capitalised
            && word
            && lexicon::plain(next).is_none()
    }

    /// Tells whether the run just read opens the last step of an argument, as in “So, $x=3$”, and is no product. With a
    /// capital it does so without a comma too.
    fn opens_argument(&self, run: &str) -> bool {
        let after = self.rest().trim_start();
        let spaced = after.len() < self.rest().len() && !after.is_empty();
        self.lexemes.is_empty()
            && lexicon::is_opening(run)
            && (after.starts_with([',', '，']) || spaced && run.starts_with(char::is_uppercase))
    }

    /// Tells whether the `as` just read begins a closing phrase, as in “$x=3$, as required”, and is no product.
    fn closes_argument(&self, run: &str) -> bool {
        run == "as"
            && !self.lexemes.is_empty()
            && self.rest().starts_with(' ')
            && lexicon::is_closing(letters_of(self.rest().trim_start()))
    }

    /// Tells whether an operator or relation follows the letter just read, which is a variable then.
    fn operator_follows(&self) -> bool {
        let after = self.rest().trim_start();
        let command = after.strip_prefix('\\').map(|after| lexicon::command(letters_of(after)));
        let related = matches!(command, Some(Command::Token(Token::Relation(_) | Token::In)));
        related || after.starts_with(['=', '<', '>', '^', '_', '+', '*', '/', '≤', '≥', '≠', '∈'])
    }

    fn is_after_number(&self) -> bool {
        matches!(self.last(), Some(Token::Number { .. } | Token::Close(_) | Token::Vulgar(_)))
    }

    fn run(&mut self, run: &str, adjacent: bool) {
        if self.is_times(run) {
            return self.push(Token::Times);
        }
        if self.is_union(run) {
            return self.push(Token::Union);
        }
        let unit = run == "in" && self.spaced && self.is_after_number();
        if unit || self.is_time(run) || self.is_half_of_day(run) || self.is_month(run) {
            return self.push(Token::Word(run.into()));
        }
        if self.is_rate(run) || self.opens_argument(run) || self.closes_argument(run) {
            return self.push(Token::Word(run.into()));
        }
        // The run after a word is a word too: `96 years old`, `5 miles a day`. In “we have x = 3” it is a variable.
        let after_word = self.spaced && matches!(self.last(), Some(Token::Word(_)));
        if after_word
            && lexicon::plain(run).is_none()
            && !(run.len() == 1 && self.operator_follows())
        {
            return self.push(Token::Word(run.into()));
        }
        if let Some(token) = lexicon::plain(run) {
            return self.push(token);
        }
        if self.opens_sentence(run) {
            return self.push(Token::Word(run.into()));
        }
        if run.len() == 1 {
            return self.push(Token::Symbol(run.into()));
        }
        // In `x=1orW` a conjunction swallowed its spaces.
        if adjacent
            && matches!(self.last(), Some(Token::Number { .. } | Token::Close(_)))
            && let Some((token, rest)) = conjunction(run)
            && rest.len() <= 2
        {
            self.push(token);
            return self.run(rest, false);
        }
        // A function may stick to its argument: `sinx`, `lnx`, `sinxcosx`.
        let function = (2..=6.min(run.len())).rev().find_map(|length| {
            let (name, rest) = (run.get(..length)?, run.get(length..)?);
            let known = length > 2 || name == "ln";
            let function = lexicon::function(name).filter(|_| known)?;
            (rest.len() == 1 || rest.get(1..).and_then(lexicon::plain).is_some())
                .then_some((function, rest))
        });
        if let Some((function, rest)) = function {
            self.push(Token::Function(function));
            let (letter, more) = rest.split_at(1);
            self.push(Token::Symbol(letter.into()));
            if !more.is_empty() {
                self.run(more, false);
            }
            return;
        }
        let after_number = matches!(
            self.last(),
            Some(Token::Number { .. } | Token::Close(_) | Token::Degree | Token::Vulgar(_))
        );
        // The unit `in` needs a space before it, which was tested above: `5in` is a product.
        let unit = after_number
            && run.len() > 1
            && run != "in"
            && (Unit::named(run).is_some()
                || lexicon::is_unit(run)
                || self.spaced
                    && lexicon::is_prefixed_unit(run)
                    && !self.rest().starts_with(['_', '^', '(']));
        if unit
            || lexicon::is_short_word(run)
            || lexicon::changes_meaning(run)
            || (run.len() >= 4 && !(adjacent && after_number))
        {
            return self.push(Token::Word(run.into()));
        }
        self.product(run);
    }

    /// Pushes variables side by side.
    fn product(&mut self, run: &str) {
        for letter in run.chars() {
            self.push(Token::Symbol(letter.to_string().into()));
        }
    }

    fn command(&mut self) -> Result<(), ParseError> {
        let rest = self.rest();
        // JSON and Python leave doubled backslashes behind. In a matrix two backslashes end a row.
        if let Some(after) = rest.strip_prefix("\\\\") {
            let name = letters_of(after);
            let known = !name.is_empty() && !matches!(lexicon::command(name), Command::Unknown);
            let sign = after.starts_with(['{', '}', '%', ',', '!', ';', '(', ')', '[', ']']);
            if self.matrices == 0 && (known || sign) {
                self.at += 1;
                return self.command();
            }
            self.at += 2;
            match (self.matrices, self.cases) {
                (0, 0) if self.equation_follows() => self.push(Token::Comma),
                (0, 0) => self.spaced = true,
                (0, _) => self.push(Token::Comma),
                _ => {
                    self.push(Token::Row);
                    self.at += skip_of(self.rest());
                }
            }
            return Ok(());
        }
        let after = &rest[1..];
        let mut name = letters_of(after);
        if name.is_empty() {
            name = after.chars().next().map_or("", |c| &after[..c.len_utf8()]);
            // `\(…\)` and `\[…\]` are like dollars.
            if matches!(name, "(" | ")" | "[" | "]" | "\n" | "") {
                self.at += 1 + name.len();
                self.spaced = true;
                return Ok(());
            }
        }
        let mut command = lexicon::command(name);
        if matches!(command, Command::Unknown) {
            // In `\quadx` and `\cdotx` a command swallowed the letters after it.
            const PREFIXES: [&str; 9] =
                ["qquad", "quad", "cdot", "times", "left", "right", "pi", "pm", "mp"];
            let found = PREFIXES.iter().find(|prefix| name.starts_with(**prefix));
            let Some(prefix) = found.filter(|_| !name.ends_with("arrow") && name != "pmod") else {
                return self.named_command(name);
            };
            name = prefix;
            command = lexicon::command(name);
        }
        self.at += 1 + name.len();
        match command {
            Command::Token(token) => {
                if name == "circ"
                    && !matches!(self.last(), Some(Token::Caret | Token::Open(Bracket::Group)))
                {
                    return Err(ParseError::Command(name.into()));
                }
                self.push(token);
            }
            Command::Nothing if matches!(name, "quad" | "qquad") && self.statement_follows() => {
                self.push(Token::Comma);
            }
            Command::Nothing => {
                self.spaced = true;
                if matches!(name, "left" | "right" | "middle")
                    && self.rest().trim_start().starts_with('.')
                {
                    self.at += self.rest().find('.').map_or(0, |at| at + 1);
                }
            }
            Command::NothingWith => {
                self.at += self.argument().map_or(0, |(_, end)| end);
                self.spaced = true;
            }
            Command::Text | Command::Upright => {
                self.words(matches!(command, Command::Text), name == "rm");
            }
            Command::Coloured => self.at += self.argument().map_or(0, |(_, end)| end),
            Command::Transparent => {}
            Command::Accent => return self.accent(name),
            Command::Begin | Command::End => return self.environment(name == "begin"),
            Command::Unknown => return Err(ParseError::Command(name.into())),
        }
        Ok(())
    }

    /// Tells whether a wide space separates a value from a statement: `f(n)=n \quad n\ge1`. Side by side they would be
    /// a product.
    fn statement_follows(&self) -> bool {
        let start: String = self.rest().trim_start().chars().take(40).collect();
        let mut parts = start.split(['\\', ',']);
        let (start, command) = (parts.next().unwrap_or_default(), parts.next());
        let begins = start.starts_with(|c: char| c.is_alphanumeric());
        let relation = |command: &str| {
            matches!(
                lexicon::command(letters_of(command)),
                Command::Token(Token::Relation(_) | Token::In)
            )
        };
        let signs = ['=', '<', '>', '≤', '≥', '≠', '∈'];
        let related = start.contains(signs) || command.is_some_and(relation);
        let ends_value = !matches!(
            self.last(),
            None | Some(
                Token::Comma
                    | Token::Semicolon
                    | Token::And
                    | Token::Or
                    | Token::Open(_)
                    | Token::Word(_)
            )
        );
        self.brackets + self.matrices == 0 && ends_value && begins && related
    }

    /// Tells whether the next line is an equation of its own: `x=1\\y=2`.
    fn equation_follows(&self) -> bool {
        let line = self.rest().split("\\\\").next().unwrap_or_default().trim_start();
        let start: String = line.chars().take(40).collect();
        start.find('=').is_some_and(|at| start[..at].contains(char::is_alphanumeric))
    }

    /// Reads a command that needs more than its name: `\mathbb{R}`, `\pmod{7}`, `\not=`.
    fn named_command(&mut self, name: &str) -> Result<(), ParseError> {
        self.at += 1 + name.len();
        match name {
            "mathbb" | "Bbb" | "mathcal" | "mathscr" | "mathfrak" => {
                let space = self.rest().len() - self.rest().trim_start().len();
                let letter = self.rest().get(space..space + 1).map(|letter| (letter, space + 1));
                let (argument, end) = self.argument().or(letter).unwrap_or(("", 0));
                let mut letters = argument.trim().chars();
                let (Some(letter), None) = (letters.next(), letters.next()) else {
                    return Err(ParseError::Command(name.into()));
                };
                self.at += end;
                let token = match lexicon::named_set(letter) {
                    Some(set) if matches!(name, "mathbb" | "Bbb") => Token::NamedSet(set),
                    _ => Token::Symbol(letter.to_string().into()),
                };
                self.push(token);
                Ok(())
            }
            "not" if self.rest().trim_start().starts_with('=') => {
                self.at += self.rest().find('=').map_or(0, |at| at + 1);
                self.push(Token::Relation(crate::value::Relation::NotEqual));
                Ok(())
            }
            "pmod" => {
                self.push(Token::Modulo);
                Ok(())
            }
            _ => Err(ParseError::Command(name.into())),
        }
    }

    /// Reads an accent. A letter with an accent is a name of its own; capital letters under a line are a segment.
    fn accent(&mut self, name: &str) -> Result<(), ParseError> {
        let rest = self.rest().trim_start();
        let skipped = self.rest().len() - rest.len();
        let (under, length) = match self.argument() {
            Some(argument) => argument,
            None => (rest.get(..1).unwrap_or(""), skipped + 1),
        };
        let under = under.trim();
        if under.len() == 1 && under.bytes().all(|b| b.is_ascii_alphabetic()) {
            self.at += length;
            self.push(Token::Symbol(format!("{under} {name}").into()));
            return Ok(());
        }
        let segment = !under.is_empty() && under.bytes().all(|b| b.is_ascii_uppercase());
        if segment { Ok(()) } else { Err(ParseError::Command(name.into())) }
    }

    /// Enters `\text{…}`. Letters are words up to its closing brace. Without braces `\rm` sets all that follows in its
    /// group, and other commands set one letter.
    fn words(&mut self, lone_letters: bool, is_switch: bool) {
        if let Some((_, length)) = self.argument() {
            let end = self.at + length - 1;
            self.at += self.rest().find('{').map_or(0, |open| open + 1);
            self.words_until = Some(Words { end, lone_letters, braced: true });
        } else {
            let rest = self.rest();
            self.at += rest.len() - rest.trim_start().len();
            let rest = self.rest();
            let letter = letters_of(rest).len().min(1);
            let length = if is_switch { self.end_of_group() } else { letter };
            let end = self.at + length;
            self.words_until = Some(Words { end, lone_letters, braced: false });
            if !is_switch && letter == 1 {
                self.at = end;
                let name = rest[..1].into();
                self.push(if lone_letters { Token::Word(name) } else { Token::Symbol(name) });
            }
        }
        self.spaced = true;
    }

    /// Returns the content of the next braces, and the length up to their end.
    fn argument(&mut self) -> Option<(&'a str, usize)> {
        let rest = self.rest();
        let open = rest.len() - rest.trim_start().len();
        let inside = rest[open..].strip_prefix('{')?;
        let close = self.closing_brace(inside)?;
        Some((&inside[..close], open + 1 + close + 1))
    }

    /// Returns the length of the text up to the brace that closes the group around it, or to the end of the text.
    fn end_of_group(&mut self) -> usize {
        let rest = self.rest();
        self.closing_brace(rest).unwrap_or(rest.len())
    }

    /// Finds the first brace that closes more than was opened in `text`.
    fn closing_brace(&mut self, text: &str) -> Option<usize> {
        let mut depth = 0_usize;
        let mut escaped = false;
        for (at, byte) in text.bytes().enumerate() {
            // Arguments inside arguments are read again and again, and that has to be paid for.
            if at % 64 == 0 && self.budget.spend(8).is_err() {
                return None;
            }
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'{' => depth += 1,
                b'}' if depth == 0 => return Some(at),
                b'}' => depth -= 1,
                _ => {}
            }
        }
        None
    }

    fn environment(&mut self, begins: bool) -> Result<(), ParseError> {
        let Some((name, length)) = self.argument() else {
            return Err(ParseError::Command("begin".into()));
        };
        self.at += length;
        let braced = self.last() == Some(&Token::Open(Bracket::Curly));
        match name.trim_end_matches('*') {
            "array" | "aligned" | "matrix" if begins && braced => {
                // In `\left\{\begin{array}…\end{array}\right.` the array is a system, and its brace has no
                // partner.
                if name == "array" {
                    self.at += self.argument().map_or(0, |(_, end)| end);
                }
                self.lexemes.pop();
                self.brackets = self.brackets.saturating_sub(1);
                self.cases += 1;
                self.spaced = true;
                Ok(())
            }
            "array" | "aligned" | "matrix" if !begins && self.cases > 0 && self.matrices == 0 => {
                self.cases -= 1;
                self.spaced = true;
                Ok(())
            }
            "cases" => {
                self.cases = if begins { self.cases + 1 } else { self.cases.saturating_sub(1) };
                self.spaced = true;
                Ok(())
            }
            "pmatrix" | "bmatrix" | "matrix" | "Bmatrix" | "smallmatrix" | "array" => {
                if begins {
                    // These are the columns of an array: `{cc|c}`.
                    if name == "array" {
                        self.at += self.argument().map_or(0, |(_, end)| end);
                    }
                    self.matrices += 1;
                    self.push(Token::BeginMatrix);
                } else {
                    self.matrices = self.matrices.saturating_sub(1);
                    self.push(Token::EndMatrix);
                }
                Ok(())
            }
            "equation" | "align" | "aligned" | "gather" | "math" | "displaymath" => {
                self.spaced = true;
                Ok(())
            }
            other => Err(ParseError::Command(format!("begin{{{other}}}").into())),
        }
    }
}

/// Returns the length of the distance to the next row that may stand after `\\`: `[4pt]`.
fn skip_of(text: &str) -> usize {
    const UNITS: [&str; 8] = ["pt", "em", "ex", "mm", "cm", "in", "mu", "px"];
    let length = text.strip_prefix('[').and_then(|rest| Some(rest.split_once(']')?.0));
    let number = length.and_then(|length| {
        UNITS.iter().find_map(|unit| length.trim().strip_suffix(unit)).map(str::trim)
    });
    let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b"+-.".contains(&b));
    match (length, number) {
        (Some(length), Some(number)) if is_number(number) => length.len() + 2,
        _ => 0,
    }
}

/// Returns the digits of an `\overline{…}` here, which repeat for ever, and the length of the command:
/// `0.1\overline{6}`.
fn period_of(text: &str) -> Option<(&str, usize)> {
    let after =
        ["\\overline", "\\bar", "\\dot"].iter().find_map(|start| text.strip_prefix(start))?;
    let (period, rest) = match after.strip_prefix('{') {
        Some(inside) => inside.split_once('}')?,
        None => (after.get(..1)?, after.get(1..)?),
    };
    let digits =
        !period.is_empty() && period.len() <= 40 && period.bytes().all(|b| b.is_ascii_digit());
    digits.then_some((period, text.len() - rest.len()))
}

/// Tells whether a mark prints nothing: joiners, directions, byte order.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{fe0f}' | '\u{ad}')
}

/// Splits a run of letters into a conjunction at its beginning and the rest.
fn conjunction(run: &str) -> Option<(Token, &str)> {
    let or = run.strip_prefix("or").map(|rest| (Token::Or, rest));
    or.or_else(|| run.strip_prefix("and").map(|rest| (Token::And, rest)))
}

/// Returns the ASCII letters at the beginning of a text.
pub(super) fn letters_of(text: &str) -> &str {
    &text[..text.bytes().take_while(u8::is_ascii_alphabetic).count()]
}

fn integer(value: u64) -> BigRational {
    BigRational::from(BigInt::from(value))
}

fn ten_to(power: usize) -> BigInt {
    BigInt::from(10).pow(power as u32)
}

/// Reads a number in ASCII digits; 0 if there are none.
fn whole_number(digits: &str) -> BigInt {
    if digits.len() <= 18 {
        return BigInt::from(digits.parse::<u64>().unwrap_or(0));
    }
    digits.parse().unwrap_or_default()
}

fn over_power_of_ten(whole: BigInt, places: usize) -> BigRational {
    if places == 0 { BigRational::from(whole) } else { BigRational::new(whole, ten_to(places)) }
}
