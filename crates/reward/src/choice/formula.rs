//! Tells the letter of a choice from a letter of a formula: the `E` of `(E) 12` and of `E=mc^2`.

use std::ops::Range;

use super::{CONTINUING, boxes, word_after};

/// Returns true if a letter is alone between its `markup` and the `rest` after it, or marked as a choice: in brackets,
/// with a full stop or a colon, or by words that continue about it.
pub(super) fn is_alone_or_marked(markup: &str, rest: &str) -> bool {
    let closed = rest.trim_start_matches(closes);
    let alone =
        closed.is_empty() || ["$", r"\)", r"\]"].iter().any(|close| closed.starts_with(close));
    let bracket =
        markup.ends_with(['(', '[', '（', '【']) && rest.starts_with([')', ']', '）', '】']);

    alone
        || bracket
        || rest.starts_with([')', '.', ':', '．', '：'])
        || CONTINUING.contains(&word_after(rest.strip_prefix(',').unwrap_or(rest)))
}

/// Returns true if a formula continues after a letter: after `E` in `E=mc^2`, after `A` in `A \cup B`, `(A) \to (B)`
/// and `A(x)`.
pub(super) fn continues(markup: &str, rest: &str) -> bool {
    let quoted = markup.ends_with(['\'', '’', '‘']);
    let next = rest.trim_start_matches(closes);
    let emphasis = rest.len() - next.len() > 0 && rest[..rest.len() - next.len()].contains('*');
    let spaced = rest.starts_with(char::is_whitespace);

    // Right after the letter: an argument, a prime or an index.
    let mut signs = rest.chars();
    match (signs.next(), signs.next()) {
        (Some('(' | '['), _) => return true,
        (Some('\'' | '’'), after) if !quoted => return after != Some('s'),
        (Some(sign @ ('_' | '*')), Some(after))
            if (sign == '_' || !emphasis) && (after.is_alphanumeric() || after == '{') =>
        {
            return true;
        }
        _ => {}
    }

    // After what closes the letter's markup: an operator or a relation.
    if let Some(command) = next.strip_prefix('\\') {
        return is_operator(command);
    }

    let mut signs = next.chars();
    match signs.next() {
        Some(c) if OPERATORS.contains(c) => true,
        Some('<' | '>') => signs.as_str().starts_with(' '),
        Some('/') => signs.next().is_some_and(|after| !after.is_alphabetic()),
        // After a space it may be a dash: `B - Paris`, or the sign of the answer: `(B) -3`.
        Some('-' | '−') if spaced || next.len() < rest.len() => {
            let operand = signs.as_str().trim_start_matches([' ', '(']);
            let letters = operand.find(|c: char| !c.is_alphabetic()).unwrap_or(operand.len());
            letters == 1
        }
        Some('-' | '−') => true,
        _ => false,
    }
}

/// Finds the content of the box or of the formula in delimiters that contains `at`.
pub(super) fn around(line: &str, at: usize) -> Option<Range<usize>> {
    let delimited = |open: &str, close: &str| {
        let start = line[..at].rfind(open)? + open.len();
        let end = at + line[at..].find(close)?;
        let inside = if open == close {
            line[..start].matches(open).count() % 2 == 1
        } else {
            !line[start..at].contains(close)
        };
        inside.then_some(start..end)
    };

    boxes(line)
        .into_iter()
        .find(|inside| inside.contains(&at))
        .or_else(|| delimited(r"\(", r"\)"))
        .or_else(|| delimited("$", "$"))
}

/// Returns true if a formula leads to what follows `before`: to `A` in `x \in A`, `c = A`, `P(A)` and `\vec{A}`.
pub(super) fn leads_to(before: &str) -> bool {
    if let Some(outer) = before.strip_suffix(['(', '{', '[']) {
        let name = outer.trim_end_matches(char::is_alphabetic);
        let word = &outer[name.len()..];
        let is_markup =
            name.ends_with('\\') && (word.starts_with("text") || MARKUP.contains(&word));
        return !word.is_empty() && !is_markup || outer.ends_with(['_', '^']);
    }

    let bare = before.trim_end();
    if bare.ends_with(|c| OPERATORS.contains(c) || matches!(c, '-' | '−' | '/')) {
        return true;
    }

    let name = bare.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    name.ends_with('\\') && is_operator(&bare[name.len()..])
}

/// Returns true if a command, written without its backslash, relates or joins two sides.
fn is_operator(command: &str) -> bool {
    const NAMES: [&str; 35] = [
        "approx",
        "backslash",
        "cap",
        "cdot",
        "circ",
        "cong",
        "cup",
        "equiv",
        "ge",
        "geq",
        "gg",
        "gt",
        "iff",
        "implies",
        "in",
        "le",
        "leq",
        "ll",
        "lt",
        "mapsto",
        "ne",
        "neq",
        "parallel",
        "perp",
        "pm",
        "prime",
        "propto",
        "rightarrow",
        "setminus",
        "sim",
        "subset",
        "subseteq",
        "supset",
        "times",
        "to",
    ];

    let end = command.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(command.len());
    let name = command[..end].to_ascii_lowercase();

    // A relation's negation begins with `not`.
    name.starts_with("not") || NAMES.contains(&name.as_str())
}

const OPERATORS: &str = "=+^≤≥≠≈∈∪∩⊂⊆→×·±";

/// Commands besides `\text…` that only format a letter.
const MARKUP: [&str; 9] =
    ["boxed", "fbox", "mathbf", "mathit", "mathrm", "mathsf", "underline", "emph", "mbox"];

/// Returns true if a sign closes the markup of a letter.
fn closes(c: char) -> bool {
    c.is_whitespace() || ")]}*.,\"）】~".contains(c)
}
