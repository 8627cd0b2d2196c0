//! Fallback for a text without a box and without a marker: its last mathematics.

use std::ops::Range;

use super::{
    delimiters::{self, Formulas},
    formula::Formula,
    negation,
    sentence::{self, AnswerKind},
    trim,
};

/// Bytes at the end of a text in which formulas and numbers are searched.
const WINDOW: usize = 64 << 10;

/// Length in bytes up to which a text may be mathematics throughout.
const WHOLE: usize = 2000;

/// Bytes that are read of a line around its last number.
const LINE: usize = 4000;

/// Returns the text if it is a single line of mathematics (or an environment) and nothing else.
pub(super) fn whole_text(text: &str, within: Range<usize>) -> Option<Range<usize>> {
    let range = trim::trim_around(text, within.clone());
    let part = &text[range.clone()];
    let line = !part.contains('\n') || part.starts_with("\\begin{") || part.starts_with("\\left");
    (line && part.len() <= WHOLE && sentence::is_maths(text, range.clone())).then_some(range)
}

/// Returns the text if it has at most three words, and so may be an answer in words.
pub(super) fn few_words(text: &str, within: Range<usize>) -> Option<Range<usize>> {
    let range = trim::trim_around(text, within);
    let part = &text[range.clone()];
    let short = part.len() <= 40 && part.split_whitespace().count() <= 3;
    (short && part.contains(char::is_alphabetic) && !part.starts_with('\\')).then_some(range)
}

/// Finds the formulas in the last part of a text, and an environment without delimiters after them.
pub(super) fn formulas(text: &str, within: Range<usize>) -> Vec<Formula> {
    let mut formulas: Vec<Formula> = Formulas::new(text, window(text, within.clone())).collect();
    let after = formulas.last().map_or(within.start, |formula| formula.outer.end);
    formulas.extend(delimiters::last_environment(text, after..within.end));
    formulas
}

/// Returns the last part of a text, from the beginning of a line if there is one.
fn window(text: &str, within: Range<usize>) -> Range<usize> {
    if within.len() <= WINDOW {
        return within;
    }

    let mut from = within.end - WINDOW;
    // A window that begins with a line is less likely to cut a formula in two.
    let line = memchr::memchr(b'\n', &text.as_bytes()[from..within.end]);
    from += line.filter(|&line| line < WINDOW / 2).map_or(0, |line| line + 1);
    while !text.is_char_boundary(from) {
        from += 1;
    }

    from..within.end
}

/// Finds the last formula or number, whichever ends last.
pub(super) fn mathematics(
    text: &str,
    within: Range<usize>,
    formulas: &[Formula],
) -> Option<(Range<usize>, String, AnswerKind)> {
    let window = window(text, within.clone());
    let mut end = window.end;

    // If a digit belongs to a word, the search continues in the text before it.
    while end > window.start {
        let formula = formulas.iter().rev().find(|formula| formula.outer.end <= end);
        let after = formula.map_or(window.start, |formula| formula.outer.end.max(window.start));
        let digit = text[after..end].rfind(char::is_numeric).map(|at| after + at);
        // A formula may begin before the window.
        let last_start = digit.or(formula.map(|formula| formula.outer.start))?.max(window.start);

        let line = memchr::memrchr(b'\n', &text.as_bytes()[window.start..last_start]);
        let mut from = line.map_or(window.start, |line| window.start + line + 1);
        let cut = last_start - from > LINE || from == window.start && from > within.start;

        // The cut must split neither a character nor a formula.
        from = from.max(last_start.saturating_sub(LINE));
        while !text.is_char_boundary(from) {
            from += 1;
        }
        if let Some(inside) = formulas.iter().find(|formula| formula.outer.contains(&from)) {
            from = inside.outer.start;
        }

        if let Some(found) = sentence::last(text, from..end, formulas, cut) {
            return Some(affirmed(text, within.start, found));
        }
        end = from;
    }
    None
}

/// Returns `found`, or its sentence if the sentence denies it. Words other than denials do not count here, because
/// nothing shows that the sentence is meant as an answer.
pub(super) fn affirmed(
    text: &str,
    from: usize,
    found: (Range<usize>, String, AnswerKind),
) -> (Range<usize>, String, AnswerKind) {
    let range = &found.0;
    let before = &text[from..range.start];
    if !negation::is_denied(before) {
        return found;
    }

    let sentence = [". ", "! ", "? ", "\n\n"].iter().filter_map(|end| Some(before.rfind(end)? + 2));
    let range = trim::trim_around(text, from + sentence.max().unwrap_or(0)..range.end);
    let read = trim::read(text, range.clone(), true);
    (range, read, AnswerKind::Changed)
}
