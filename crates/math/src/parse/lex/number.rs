//! Reads numbers in digits, and days that are written in digits.

use num_bigint::BigInt;
use num_rational::BigRational;

use super::{Lexer, integer};
use crate::{
    moment,
    parse::{error::ParseError, lexicon, token::Token},
};

/// How many digits of a number are read. (Two plain numbers of any length are compared as text, before anything is
/// parsed.)
const MAX_DIGITS: usize = 4_000;

/// Largest power of ten that is written out. Larger ones are kept as powers.
const MAX_EXPONENT: i64 = 1_000;

impl Lexer<'_, '_> {
    /// Reads a number with its separators, decimal part, repeating decimals and exponent.
    pub(super) fn number(&mut self) -> Result<(), ParseError> {
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
        // Only one to three digits may precede groups of three.
        if (1..=3).contains(&first) {
            while let Some(separator) = self.thousands_separator() {
                self.at += separator;
                self.digits(&mut digits);
            }
        }

        // A point counts only with a digit or a period after it, because `5.` may end a sentence.
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
        // The conversion from decimal takes quadratic time.
        self.budget.spend((digits.len() * digits.len() / 300) as u64 + 4)?;

        let whole = whole_number(&digits);
        let mut value = over_power_of_ten(whole, places);

        // A period of n digits is worth itself over 10ⁿ - 1, shifted to after the digits before it.
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
        // A huge power stays a power, because its digits would take too much memory.
        if exponent.abs() > MAX_EXPONENT {
            self.push(Token::Scientific { mantissa: value, exponent });
        } else {
            let power = BigRational::from(ten_to(exponent.unsigned_abs() as usize));
            let value = if exponent < 0 { value / power } else { value * power };
            self.push(Token::Number { value, decimal: true });
        }

        Ok(())
    }

    /// Reads a day in digits, which would otherwise be a difference or a quotient: `2024-06-05`. It refuses `6/5/2024`,
    /// because nobody can tell its month.
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
            // Within brackets a comma separates items.
            let groups = rest.starts_with(',') && self.brackets == 0 && self.matrices == 0;
            (groups && !self.decimal_comma(3)).then_some(1)
        })?;

        let mut after = rest[separator..].chars().map(lexicon::folded);
        let three = after.by_ref().take(3).filter(char::is_ascii_digit).count() == 3;
        (three && !after.next().is_some_and(|c| c.is_ascii_digit())).then_some(separator)
    }

    /// Tells whether the comma here is a decimal point. It is one only if numbers are read as people write them and it
    /// can't be a separator of thousands.
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
