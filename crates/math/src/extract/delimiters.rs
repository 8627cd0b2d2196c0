//! Formulas between LaTeX's delimiters: `$…$`, `$$…$$`, `\(…\)`, `\[…\]`, and environments.

use std::ops::Range;

use memchr::{memchr2, memmem, memrchr};

use super::{blank::is_blank, formula::Formula, prose};

/// Finds the formulas of a part of a text from left to right, in linear time.
///
/// `$…$` and `\(…\)` don't cross the end of a line, so a stray dollar sign spoils one line at most. For the same reason
/// `$$…$$` doesn't cross an empty line. `\[` and `\]` can't be confused, and may be any distance apart. A formula that
/// is only a box to fill in is left out, because it shows what an answer looks like but isn't one.
pub(super) struct Formulas<'a> {
    text: &'a str,
    at: usize,
    end: usize,
    /// For each [`Kind`] the index up to which an opening delimiter is known to have no closing one.
    barren: [usize; 3],
}

/// Delimiters of two characters.
#[derive(Clone, Copy)]
enum Kind {
    Dollars,
    Round,
    Square,
}

impl<'a> Formulas<'a> {
    pub(super) fn new(text: &'a str, within: Range<usize>) -> Self {
        Formulas { text, at: within.start, end: within.end, barren: [0; 3] }
    }

    /// Finds the formula whose opening delimiter of two bytes ends at `from`, if its closing delimiter follows soon
    /// enough.
    fn closed(&mut self, kind: Kind, from: usize) -> Option<Formula> {
        if from < self.barren[kind as usize] {
            return None;
        }

        let (close, limit) = match kind {
            Kind::Dollars => (b"$$", Some("\n\n")),
            Kind::Round => (b"\\)", Some("\n")),
            Kind::Square => (b"\\]", None),
        };

        let bytes = &self.text.as_bytes()[..self.end];
        let mut position = from;
        while let Some(found) = memchr2(close[0], b'\n', &bytes[position..]) {
            position += found;
            if bytes[position..].starts_with(close) {
                let inner = from..position;
                return Some(Formula { outer: from - 2..position + 2, inner });
            }
            if limit.is_some_and(|limit| bytes[position..].starts_with(limit.as_bytes())) {
                break;
            }
            position += 1;
        }

        // Later openings before this position are not searched again, which keeps the time linear.
        self.barren[kind as usize] = position.max(from);
        if limit.is_none() {
            self.barren[kind as usize] = self.end;
        }
        None
    }

    /// Finds the formula between the dollar sign before `from` and the next one on its line.
    fn dollars(&self, from: usize) -> Option<Formula> {
        let bytes = &self.text.as_bytes()[..self.end];
        let mut position = from;
        loop {
            position += memchr2(b'$', b'\n', &bytes[position..])?;
            if bytes[position] == b'\n' {
                return None;
            }
            // A dollar sign after an odd number of backslashes is escaped.
            let slashes = bytes[from..position].iter().rev().take_while(|&&b| b == b'\\').count();
            if slashes % 2 == 0 {
                break;
            }
            position += 1;
        }

        let inner = from..position;
        let formula = Formula { outer: from - 1..position + 1, inner };
        (!currency(self.text, &formula)).then_some(formula)
    }
}

/// Tells whether the dollar signs are money, as in `$5 and then $6`: words follow a number, or a number follows the
/// second sign.
fn currency(text: &str, formula: &Formula) -> bool {
    let inner = &text[formula.inner.clone()];
    inner.starts_with(|c: char| c.is_ascii_digit())
        && (prose::Tokens::new(text, formula.inner.clone(), &[])
            .any(|token| token.kind == prose::Kind::Word)
            || inner.ends_with(' ')
                && text[formula.outer.end..].starts_with(|c: char| c.is_ascii_digit()))
}

impl Iterator for Formulas<'_> {
    type Item = Formula;

    fn next(&mut self) -> Option<Formula> {
        let bytes = &self.text.as_bytes()[..self.end];
        loop {
            self.at += memchr2(b'$', b'\\', bytes.get(self.at..)?)?;
            let from = self.at;
            let slashes = bytes[from..].iter().take_while(|&&b| b == b'\\').count();
            let next = bytes.get(from + slashes);

            let candidate = match (slashes, next) {
                (0, _) if bytes.get(from + 1) == Some(&b'$') => {
                    self.at = from + 2;
                    self.closed(Kind::Dollars, from + 2)
                }
                (0, _) => {
                    self.at = from + 1;
                    self.dollars(from + 1)
                }
                // A text that was escaped once too often has two backslashes.
                (1 | 2, Some(b'(')) => {
                    self.at = from + slashes + 1;
                    self.closed(Kind::Round, self.at)
                }
                (1, Some(b'[')) => {
                    self.at = from + 2;
                    self.closed(Kind::Square, from + 2)
                }
                _ => {
                    self.at = from + slashes + usize::from(slashes % 2 == 1 && next == Some(&b'$'));
                    None
                }
            };

            if let Some(formula) = candidate {
                self.at = formula.outer.end;
                let inner = self.text[formula.inner.clone()].trim();
                if !inner.is_empty() && !is_blank(inner) {
                    return Some(formula);
                }
            }
        }
    }
}

/// Finds the last environment of mathematics without delimiters, such as `\begin{pmatrix}…\end{pmatrix}`.
pub(super) fn last_environment(text: &str, within: Range<usize>) -> Option<Formula> {
    let bytes = &text.as_bytes()[..within.end];
    let mut position = within.start + memmem::rfind(&bytes[within.start..], b"\\end{")?;
    let name_at = position + "\\end{".len();
    let name = &text[name_at..name_at + memchr::memchr(b'}', &bytes[name_at..])?];
    let end = name_at + name.len() + 1;
    let name = name.trim_end_matches('*');
    if !MATRICES.contains(&name) && !DISPLAYS.contains(&name) {
        return None;
    }

    // Goes back to the `\begin` that belongs to this `\end`.
    let last = position;
    let mut depth = 1;
    while depth > 0 {
        position = within.start + memrchr(b'\\', &bytes[within.start..position])?;
        if bytes[position..].starts_with(b"\\end{") {
            depth += 1;
        } else if bytes[position..].starts_with(b"\\begin{") {
            depth -= 1;
        }
    }

    let outer = position..end;

    // A display only surrounds its value, while a matrix is part of it.
    let inner = if DISPLAYS.contains(&name) {
        position + memchr::memchr(b'}', &bytes[position..])? + 1..last
    } else {
        outer.clone()
    };
    Some(Formula { outer, inner })
}

/// Environments that are values themselves.
const MATRICES: [&str; 10] = [
    "pmatrix",
    "bmatrix",
    "Bmatrix",
    "vmatrix",
    "Vmatrix",
    "matrix",
    "smallmatrix",
    "array",
    "cases",
    "aligned",
];

/// Environments that set their content apart, as `\[…\]` does.
const DISPLAYS: [&str; 5] = ["equation", "align", "gather", "multline", "displaymath"];
