//! Bare numbers in plain text, for answers that have to be a bare number.

use std::ops::Range;

use super::trim;

/// Finds the last number in a part of a text, with its sign, fraction, exponent or percent, and returns its range and
/// its text. Numbers inside words and names do not count.
pub(super) fn last(text: &str, within: Range<usize>) -> Option<(Range<usize>, String)> {
    let bytes = text.as_bytes();
    let mut end = within.end;

    while let Some(digit) = bytes[within.start..end].iter().rposition(u8::is_ascii_digit) {
        let range =
            Candidate { bytes, from: within.start, until: within.start + digit + 1 }.widest();
        if fits(text, &within, &range) {
            let mut read = decimal_point(&text[range.clone()]);
            if trim::percent_follows(text, range.end, within.end) {
                read.push_str(" \\%");
            }
            return Some((range, read));
        }

        // The digit is part of a word or a name, so the search continues before it.
        end = range.start;
    }
    None
}

/// A number in `bytes` that begins at `from` or later and ends before `until`.
struct Candidate<'a> {
    bytes: &'a [u8],
    from: usize,
    until: usize,
}

impl Candidate<'_> {
    fn back(&self, at: usize, of: impl Fn(u8) -> bool) -> usize {
        at - self.bytes[self.from..at].iter().rev().take_while(|&&b| of(b)).count()
    }

    fn before(&self, at: usize) -> u8 {
        if at > self.from { self.bytes[at - 1] } else { 0 }
    }

    /// Finds the start of the digits, points and commas that end at `at`.
    fn digits(&self, end: usize) -> usize {
        let mut start = self.back(end, |b| b.is_ascii_digit() || matches!(b, b'.' | b','));
        // A comma belongs to the sentence, and so does a point after a word, although `.5` is a number.
        while start < end && (self.bytes[start] == b',' || !decimal_start(self.bytes, start, end)) {
            start += 1;
        }
        start
    }

    fn widest(&self) -> Range<usize> {
        let mut start = self.digits(self.until);

        // The digits may be an exponent.
        let sign = start - usize::from(matches!(self.before(start), b'+' | b'-'));
        if matches!(self.before(sign), b'e' | b'E') && self.before(sign - 1).is_ascii_digit() {
            start = self.digits(sign - 1);
        }

        // The digits may be a group of three after a space.
        while self.before(start) == b' '
            && self.before(start - 1).is_ascii_digit()
            && self.bytes[start..].iter().take_while(|b| b.is_ascii_digit()).count() == 3
        {
            start = self.back(start - 1, |b| b.is_ascii_digit());
        }

        // The digits may belong to a fraction, or to a chain of slashes, which is refused altogether.
        while self.before(start) == b'/' && self.before(start - 1).is_ascii_digit() {
            start = self.digits(start - 1);
        }

        if matches!(self.before(start), b'-' | b'+')
            && !self.before(start - 1).is_ascii_alphanumeric()
        {
            start -= 1;
        } else if self.bytes[self.from..start].ends_with("−".as_bytes()) {
            start -= "−".len();
        }

        start..self.until
    }
}

fn decimal_start(bytes: &[u8], start: usize, end: usize) -> bool {
    bytes[start].is_ascii_digit() || start + 1 < end && bytes[start + 1].is_ascii_digit()
}

/// Tells whether a number stands alone.
fn fits(text: &str, within: &Range<usize>, range: &Range<usize>) -> bool {
    let before = text[within.start..range.start].chars().next_back();
    let after = &text[range.end..within.end];
    let letters = after.len() - after.trim_start_matches(char::is_alphabetic).len();
    let unit =
        letters == 0 || letters > 1 && !["st", "nd", "rd", "th"].contains(&&after[..letters]);

    let inside = |c: char| c.is_alphanumeric() || matches!(c, '_' | '^' | '/' | '.');
    let number = &text[range.clone()];

    unit && !before.is_some_and(inside)
        && !after.starts_with(['_', '^', '/'])
        && number.matches('/').count() < 2
        && number.split('/').all(|part| part.matches('.').count() < 2)
}

/// Writes `2,74` with a decimal point. The group after the comma must not have three digits, except after `0,`.
fn decimal_point(number: &str) -> String {
    let digits = number.trim_start_matches(['-', '+', '−']);
    match digits.split_once(',') {
        Some((head, tail))
            if !digits.contains(['.', '/'])
                && !tail.contains(',')
                && (tail.len() != 3 || head == "0") =>
        {
            number.replace(',', ".")
        }
        _ => number.to_owned(),
    }
}
