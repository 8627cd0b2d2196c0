//! Rules by which neighbouring boxes or formulas are one answer.

use std::ops::Range;

/// Tells whether the boxes on both sides of `gap` belong to one answer: `\boxed{1}, \boxed{2}`, or
/// `\boxed{3} apples and \boxed{4} pears`.
///
/// Fewer than 10 characters of space, commas and delimiters join them. So do at most 70 characters with a joining
/// word or comma, unless the words between retract the first box or draw the second as a conclusion.
pub(super) fn joins_boxes(text: &str, gap: Range<usize>) -> bool {
    if gap.len() > 4 * 70 {
        return false;
    }
    let gap = &text[gap];
    let bare = |c: char| {
        c.is_whitespace() || matches!(c, ',' | ';' | '$' | '\\' | '(' | ')' | '[' | ']' | '&')
    };

    let mut words = words(gap).peekable();
    if gap.chars().count() < 10 && words.peek().is_none() {
        let names = gap.replace("\\quad", "").replace("\\qquad", "");
        return names.chars().all(bare);
    }

    let concluding = |word: &str| CONCLUDING.iter().any(|known| word.eq_ignore_ascii_case(known));
    let mut joined = gap.contains([',', ';']);
    let mut clean = !ends_sentence(gap);

    for word in words {
        joined |= word == "and" || word == "or";
        clean &= !concluding(word);
    }

    gap.chars().count() <= 70 && joined && clean
}

/// Words between two boxes that show that the second box replaces or repeats the first.
const CONCLUDING: [&str; 28] = [
    "not",
    "no",
    "wrong",
    "wait",
    "actually",
    "instead",
    "incorrect",
    "but",
    "however",
    "so",
    "thus",
    "therefore",
    "hence",
    "because",
    "since",
    "then",
    "which",
    "answer",
    "final",
    "correct",
    "rather",
    "find",
    "get",
    "have",
    "obtain",
    "check",
    "later",
    "finally",
];

/// Tells whether the formulas on both sides of `gap` belong to one answer. Only a comma, `and` or `or` may be between
/// them, as in `$x=3$ and $y=4$`.
pub(super) fn joins_formulas(text: &str, gap: Range<usize>) -> bool {
    if gap.len() > 24 {
        return false;
    }
    let gap = &text[gap];

    let mut joined = gap.contains([',', ';', '，', '、', '&']);
    for word in words(gap) {
        if !matches!(word, "and" | "or" | "或" | "和") {
            return false;
        }
        joined = true;
    }

    let bare = |c: char| {
        c.is_whitespace() || c.is_alphabetic() || matches!(c, ',' | ';' | '，' | '、' | '&' | '*')
    };
    joined && !gap.contains('\n') && gap.chars().all(bare)
}

/// Returns the words of a gap, without commands.
fn words(gap: &str) -> impl Iterator<Item = &str> {
    let commands = gap.split(|c: char| !(c.is_alphabetic() || c == '\\'));
    commands.filter(|word| !word.is_empty() && !word.contains('\\'))
}

/// Tells whether a sentence or a paragraph ends within the gap.
fn ends_sentence(gap: &str) -> bool {
    [". ", ".\n", "\n\n", "! ", "? ", "。"].iter().any(|end| gap.contains(end))
}
