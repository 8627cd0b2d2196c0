//! Tells words from mathematics in plain text: in “the total is x = 5 apples” it finds where the formula begins and
//! ends.

use std::ops::{Range, RangeInclusive};

use super::formula::Formula;
use crate::moment;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A word of prose.
    Word,
    /// A number, a variable, an operator, a command.
    Maths,
    /// A formula in delimiters.
    Formula,
    /// Something that mathematics does not cross: the end of a sentence or a line, a colon, a pictograph.
    Break,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) range: Range<usize>,
    pub(super) kind: Kind,
}

/// Tokens of a part of a text. `formulas` are the formulas in it, in order.
pub(super) struct Tokens<'a> {
    text: &'a str,
    at: usize,
    end: usize,
    formulas: &'a [Formula],
    /// Number of open braces and environments. Their content is mathematics, whatever it looks like.
    depth: usize,
    /// True once a brace wasn't closed, so that searching for the end of the next one is useless.
    unclosed: bool,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a str, within: Range<usize>, formulas: &'a [Formula]) -> Self {
        Tokens { text, at: within.start, end: within.end, formulas, depth: 0, unclosed: false }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..self.end]
    }

    /// Returns the length of the command at the cursor, together with the braces after it if they hold text.
    fn command(&mut self) -> usize {
        let rest = self.rest();
        let name = rest[1..].bytes().take_while(u8::is_ascii_alphabetic).count();
        if name == 0 {
            return 1 + rest[1..].chars().next().map_or(0, char::len_utf8);
        }

        // An environment is mathematics up to its end, across lines.
        match &rest[1..1 + name] {
            "begin" => self.depth += 1,
            "end" => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }

        let after = &rest[1 + name..];
        // Only these commands have words between their braces.
        let wordy = ["text", "mbox", "begin", "end", "operatorname"];
        if self.unclosed
            || !after.starts_with('{')
            || !wordy.iter().any(|w| rest[1..].starts_with(w))
        {
            return 1 + name;
        }

        let mut depth = 0usize;
        for (at, b) in after.bytes().enumerate() {
            depth = depth + usize::from(b == b'{') - usize::from(b == b'}');
            if depth == 0 {
                return 1 + name + at + 1;
            }
        }

        self.unclosed = true;
        1 + name
    }

    /// Returns the length and the kind of the letters at the cursor.
    fn letters(&self) -> (usize, Kind) {
        let rest = self.rest();
        let mut length = run(rest, |c| c.is_alphabetic());
        // An apostrophe within a word belongs to it: “isn't”.
        while let Some(more) = rest[length..].strip_prefix(['\'', '’'])
            && length > 1
            && more.starts_with(char::is_alphabetic)
        {
            length = rest.len() - more.len() + run(more, |c| c.is_alphabetic());
        }

        let before = self.text[..self.at].chars().next_back();
        let word = &rest[..length];
        if self.depth > 0 || matches!(before, Some('_' | '^')) || !self.is_word(word, before) {
            return (length, Kind::Maths);
        }

        // A word may mix letters and digits, as the name of a product does. It does not contain a number.
        let glued = if word.len() > 1 { run(&rest[length..], char::is_alphanumeric) } else { 0 };
        (length + glued, Kind::Word)
    }

    fn is_word(&self, word: &str, before: Option<char>) -> bool {
        let after = &self.rest()[word.len()..];
        let next = after.trim_start().chars().next();
        let mut letters = word.chars();

        // A single letter is a variable, unless it is an article or of another script.
        if let (Some(letter), None) = (letters.next(), letters.next()) {
            let article = matches!(letter, 'a' | 'A' | 'I')
                && after.starts_with(' ')
                && next.is_some_and(char::is_alphabetic)
                && !self.text[..self.at].trim_end().ends_with(operator);
            return article || foreign(letter);
        }

        // `12 L/min`
        if before == Some('/') && matches!(word, "min" | "sec") {
            return false;
        }

        // Letters that stick to a number are variables, unless they are a unit.
        if before.is_some_and(char::is_numeric) && moment::is_afternoon(word).is_none() {
            let joiner = joiner_glued(word);
            return !joiner && UNITS.iter().any(|unit| word.eq_ignore_ascii_case(unit));
        }
        if matches!(before, Some(')' | '}' | ']')) && joiner_glued(word) {
            return false;
        }

        let left = self.text[..self.at].trim_end();
        if self.is_of_moment(word, left, after) {
            return false;
        }
        if UNITS.contains(&word) && left.ends_with(char::is_numeric) {
            return true;
        }

        // `x in (0, 1)` is mathematics.
        let element = word == "in"
            && left.ends_with(char::is_alphabetic)
            && matches!(next, Some('(' | '[' | '{'));
        if element || NAMES.contains(&word) {
            return false;
        }

        // Capitals such as `AB` name points and segments.
        let upper = word.bytes().all(|b| b.is_ascii_uppercase());
        if upper && (word.len() <= 2 || word.len() <= 4 && next.is_some_and(operator)) {
            return false;
        }

        // Next to an operator, a short word or one without a vowel is a product of variables.
        let vowel = |b: u8| matches!(b.to_ascii_lowercase(), b'a' | b'e' | b'i' | b'o' | b'u');
        let product = word.len() <= 2 && !SHORT.contains(&word) || !word.bytes().any(vowel);
        let near_operator = next.is_some_and(operator) || left.ends_with(operator);
        !(product && word.len() <= 4 && word.is_ascii() && near_operator)
    }

    /// Tells whether a word is part of a day or of a time of day: a month next to its day, or `pm` after a number. The
    /// number alone would be another answer. In “May 5 people come” the word is not a month.
    fn is_of_moment(&self, word: &str, left: &str, after: &str) -> bool {
        if matches!(word, "am" | "pm" | "AM" | "PM") {
            return left.ends_with(char::is_numeric);
        }
        if moment::month(word).is_none() {
            return false;
        }

        let after = after.trim_start_matches(['.', ' ']);
        let following = after.trim_start_matches(|c: char| c.is_ascii_digit());
        let day = (1..=4).contains(&(after.len() - following.len()));
        let ordinal = ORDINALS.iter().find_map(|ending| following.strip_prefix(ending));
        let following = ordinal.unwrap_or(following).trim_start_matches(' ');

        day && !following.starts_with(char::is_alphabetic)
            || left.ends_with(|c: char| c.is_ascii_digit())
    }

    /// Returns the length and the kind of the digits at the cursor, with their points and commas. With an ordinal's
    /// ending they are a word.
    fn digits(&self) -> (usize, Kind) {
        let rest = self.rest();
        let mut length = 0;
        loop {
            length += run(&rest[length..], char::is_numeric);
            match rest[length..].strip_prefix(['.', ',']) {
                Some(more) if more.starts_with(char::is_numeric) => length += 1,
                _ => break,
            }
        }

        let ending = run(&rest[length..], char::is_alphabetic);
        let ordinal = ORDINALS.contains(&&rest[length..length + ending]);

        // The ordinal of a day is a number: `June 5th`.
        let left = self.text[..self.at].trim_end();
        let month = &left[left.trim_end_matches(char::is_alphabetic).len()..];
        if ordinal && moment::month(month).is_some() {
            return (length + ending, Kind::Maths);
        }

        if ordinal && self.depth == 0 {
            (length + ending, Kind::Word)
        } else {
            (length, Kind::Maths)
        }
    }
}

impl Iterator for Tokens<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        // Space and the marks of code and of bold are not tokens.
        loop {
            let skip = run(self.rest(), |c| c != '\n' && c.is_whitespace() || c == '`');
            let bold = if self.rest()[skip..].starts_with("**") { 2 } else { 0 };
            if skip + bold == 0 {
                break;
            }
            self.at += skip + bold;
        }

        let start = self.at;
        let c = self.rest().chars().next()?;
        // Formulas before the cursor are dropped, which keeps the search linear.
        while self.formulas.first().is_some_and(|formula| formula.outer.start < start) {
            self.formulas = &self.formulas[1..];
        }

        let (length, kind) = match c {
            _ if self.formulas.first().is_some_and(|formula| formula.outer.start == start) => {
                (self.formulas[0].outer.end.min(self.end) - start, Kind::Formula)
            }
            '\\' => (self.command(), Kind::Maths),
            '{' | '}' => {
                self.depth = if c == '{' { self.depth + 1 } else { self.depth.saturating_sub(1) };
                (1, Kind::Maths)
            }
            '\n' => (1, if self.depth > 0 { Kind::Maths } else { Kind::Break }),
            '.' | ':' | '?' | '!' if self.depth == 0 => {
                let after = &self.rest()[1..];
                let spaced = after.is_empty() || after.starts_with(char::is_whitespace);
                let ratio = c == ':' && self.text[..start].ends_with(' ') && after.starts_with(' ');
                let more = c == '.' && self.text[..start].ends_with('.');
                let stop = c == '?' || c != '!' && spaced && !ratio && !more;
                (1, if stop { Kind::Break } else { Kind::Maths })
            }
            '#' => (1, Kind::Break),
            '<' if tag(self.rest()) > 0 => (tag(self.rest()), Kind::Break),
            _ if c.is_alphabetic() => self.letters(),
            _ if c.is_numeric() => self.digits(),
            _ => (c.len_utf8(), if symbol(c) { Kind::Maths } else { Kind::Break }),
        };

        self.at += length;
        Some(Token { range: start..self.at, kind })
    }
}

fn run(text: &str, of: impl Fn(char) -> bool) -> usize {
    text.len() - text.trim_start_matches(of).len()
}

/// Returns the length of a tag such as `</answer>` or `<br>` at the start, or 0 if there is none. A single letter
/// between inequality signs is a variable.
fn tag(text: &str) -> usize {
    let name = text[1..].strip_prefix('/').unwrap_or(&text[1..]);
    let letters = name.bytes().take(12).take_while(u8::is_ascii_alphabetic).count();
    let closes = name[letters..].starts_with('>');
    let shortest = if text.starts_with("</") { 1 } else { 2 };
    if closes && letters >= shortest { text.len() - name.len() + letters + 1 } else { 0 }
}

pub(super) fn operator(c: char) -> bool {
    matches!(
        c,
        '=' | '+'
            | '-'
            | '*'
            | '/'
            | '^'
            | '_'
            | '<'
            | '>'
            | '−'
            | '×'
            | '·'
            | '≤'
            | '≥'
            | '≈'
            | '≠'
    )
}

/// Tells whether a letter is of a script from which mathematics takes no variables.
fn foreign(c: char) -> bool {
    const ALPHABETS: [RangeInclusive<char>; 6] = [
        '\0'..='\u{bf}',
        '\u{370}'..='\u{3ff}',
        '\u{1f00}'..='\u{1fff}',
        '\u{2100}'..='\u{214f}',
        '\u{ff21}'..='\u{ff5a}',
        '\u{1d400}'..='\u{1d7ff}',
    ];
    !ALPHABETS.iter().any(|range| range.contains(&c))
}

/// Tells whether a character is a sign of mathematics, money or measure, an accent, or invisible.
fn symbol(c: char) -> bool {
    const SIGNS: [RangeInclusive<char>; 13] = [
        '\0'..='\u{36f}',
        '\u{200b}'..='\u{2013}',
        '\u{2026}'..='\u{2026}',
        '\u{202a}'..='\u{2037}',
        '\u{2044}'..='\u{2044}',
        '\u{2060}'..='\u{20bf}',
        '\u{2200}'..='\u{22ff}',
        '\u{2308}'..='\u{230b}',
        '\u{27e8}'..='\u{27e9}',
        '\u{2a00}'..='\u{2aff}',
        '\u{fe0e}'..='\u{fe0f}',
        '\u{feff}'..='\u{ff0f}',
        '\u{ff1c}'..='\u{ff1e}',
    ];
    SIGNS.iter().any(|range| range.contains(&c))
}

/// Recognises `1orW`, in which a joining word sticks to its neighbours.
fn joiner_glued(word: &str) -> bool {
    ["or", "and"]
        .iter()
        .any(|joiner| word.strip_prefix(joiner).is_some_and(|rest| rest.chars().count() <= 1))
}

/// Endings of ordinals.
const ORDINALS: [&str; 4] = ["st", "nd", "rd", "th"];

/// Words of mathematics.
const NAMES: [&str; 48] = [
    "and", "or", "sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "arcsin",
    "arccos", "arctan", "asin", "acos", "atan", "ln", "log", "exp", "sqrt", "cbrt", "gcd", "lcm",
    "mod", "det", "lim", "inf", "infty", "infinity", "pi", "alpha", "beta", "gamma", "delta",
    "epsilon", "theta", "lambda", "mu", "sigma", "phi", "psi", "omega", "max", "union", "nan",
    "cis", "abs",
];

/// Words of two letters that are not a product of variables.
const SHORT: [&str; 24] = [
    "is", "of", "to", "in", "we", "as", "at", "by", "so", "if", "it", "an", "be", "no", "on", "my",
    "do", "go", "he", "me", "up", "us", "cm", "km",
];

/// Units that stick to their number.
const UNITS: [&str; 24] = [
    "cm", "mm", "km", "dm", "kg", "mg", "ml", "cl", "ft", "in", "mi", "hr", "hrs", "min", "mins",
    "sec", "secs", "mph", "kmh", "lb", "lbs", "oz", "yd", "degrees",
];
