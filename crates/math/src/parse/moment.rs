//! Days and times of day: `June 5, 2024`, `3:30 p.m.`.

use num_traits::ToPrimitive as _;

use super::{Parser, lexicon, token::Token};
use crate::{
    expr::Expr,
    moment::{self, Moment},
    value::Value,
};

impl<'a> Parser<'a> {
    /// Reads a day with its month, in either order, and the year if one follows. A day of the week before it adds
    /// nothing.
    pub(super) fn day(&mut self) -> Option<Value> {
        if !matches!(
            (self.peek(), self.peek_at(1)),
            (Some(Token::Word(_)), _) | (Some(Token::Number { .. }), Some(Token::Word(_)))
        ) {
            return None;
        }

        let start = self.at;
        let day = self.weekday_and_day();
        if day.is_none() {
            self.at = start;
        }
        day.map(Value::Moment)
    }

    fn weekday_and_day(&mut self) -> Option<Moment> {
        if self.word(|word| WEEKDAYS.iter().any(|day| word.eq_ignore_ascii_case(day))).is_some() {
            self.take(&Token::Comma);
        }
        self.word(|word| word.eq_ignore_ascii_case("the"));

        let (month, day) = match self.word(|word| moment::month(word).is_some()) {
            Some(month) => (month, self.ordinal()),
            None => {
                let day = self.ordinal()?;
                self.word(|word| word.eq_ignore_ascii_case("of"));
                (self.word(|word| moment::month(word).is_some())?, Some(day))
            }
        };

        let comma = self.take(&Token::Comma);
        let year = self.whole_number(1000, 2999);
        // A comma without a year after it separates items.
        self.at -= usize::from(comma && year.is_none());

        // A month alone is a word.
        let month = moment::month(month).filter(|_| day.is_some() || year.is_some())?;
        Some(Moment::Day { year, month, day })
    }

    /// Reads what makes `terms` a time of day: `pm`, `in the morning`, `o'clock`. A time zone after it is ignored.
    pub(super) fn time(&mut self, terms: &[Value]) -> Option<Value> {
        if !matches!(self.peek(), Some(Token::Word(_) | Token::Symbol(_))) {
            return None;
        }

        let parts: Option<Vec<u32>> = terms.iter().map(part).collect();
        let parts = parts?;
        let start = self.at;

        let clock =
            [Some("o"), None, Some("clock")].iter().enumerate().all(|(offset, name)| {
                match (self.peek_at(offset), name) {
                    (Some(Token::Word(word) | Token::Symbol(word)), Some(name)) => **word == **name,
                    (token, None) => token == Some(&Token::Prime),
                    _ => false,
                }
            });
        self.at += 3 * usize::from(clock);

        let mut afternoon = None;
        while let Some(word) = self.word(|word| !lexicon::changes_meaning(word)) {
            afternoon = afternoon.or_else(|| moment::is_afternoon(word));
        }

        let time = Some(()).filter(|()| clock || afternoon.is_some());
        let time = time.and_then(|()| Moment::time(&parts, afternoon));
        if time.is_none() {
            self.at = start;
        }
        time.map(Value::Moment)
    }

    /// Reads the day of a month: `5` or `5th`.
    fn ordinal(&mut self) -> Option<u32> {
        let day = self.whole_number(1, 31)?;
        self.word(|word| matches!(word, "st" | "nd" | "rd" | "th"));
        Some(day)
    }

    fn word(&mut self, wanted: impl Fn(&str) -> bool) -> Option<&'a str> {
        let Some(Token::Word(word)) = self.peek() else { return None };
        if !wanted(word) || self.begins_condition(self.at) {
            return None;
        }
        self.at += 1;
        Some(word)
    }

    fn whole_number(&mut self, least: u32, most: u32) -> Option<u32> {
        let Some(Token::Number { value, decimal: false }) = self.peek() else { return None };
        let number = Some(value).filter(|value| value.is_integer())?.to_integer().to_u32()?;
        if !(least..=most).contains(&number) {
            return None;
        }
        self.at += 1;
        Some(number)
    }
}

/// Reads a term of digits as a part of a time of day.
pub(crate) fn part(term: &Value) -> Option<u32> {
    match term {
        Value::Scalar(Expr::Number(number)) if number.is_integer() => number.to_integer().to_u32(),
        _ => None,
    }
}

const WEEKDAYS: [&str; 14] = [
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
    "mon",
    "tue",
    "wed",
    "thu",
    "fri",
    "sat",
    "sun",
];
