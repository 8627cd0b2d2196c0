//! A formula, and neighbouring formulas that are one answer.

use std::ops::Range;

use super::{grouping, trim};

/// A formula, with and without its delimiters.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Formula {
    pub(super) outer: Range<usize>,
    pub(super) inner: Range<usize>,
}

/// Returns the range and the text of the last of `formulas`, together with the formulas before it that [`grouping`]
/// adds.
pub(super) fn last_group(text: &str, formulas: &[Formula]) -> Option<(Range<usize>, String)> {
    let mut first = formulas.len().checked_sub(1)?;
    while first > 0 && joined(text, &formulas[first - 1], &formulas[first]) {
        first -= 1;
    }
    Some(group(text, &formulas[first..]))
}

/// Counts the formulas at the start of `formulas` that [`grouping`] makes one answer.
pub(super) fn first_group(text: &str, formulas: &[Formula]) -> usize {
    let mut count = formulas.len().min(1);
    while count < formulas.len() && joined(text, &formulas[count - 1], &formulas[count]) {
        count += 1;
    }
    count
}

fn joined(text: &str, left: &Formula, right: &Formula) -> bool {
    grouping::joins_formulas(text, left.outer.end..right.outer.start)
}

/// Returns the range and the text of formulas that are one answer, without the outer delimiters.
pub(super) fn group(text: &str, formulas: &[Formula]) -> (Range<usize>, String) {
    let mut pieces: Vec<String> = vec![];
    let mut range = formulas[0].inner.clone();

    for formula in formulas {
        let inner = trim::trim_around(text, formula.inner.clone());
        let mut piece = trim::read(text, inner.clone(), false);
        if !piece.contains('%') && trim::percent_follows(text, formula.outer.end, text.len()) {
            piece.push_str(" \\%");
        }
        range = if pieces.is_empty() { inner } else { range.start..inner.end };
        // Equal neighbours repeat one answer.
        if pieces.last() != Some(&piece) {
            pieces.push(piece);
        }
    }
    (range, pieces.join(", "))
}
