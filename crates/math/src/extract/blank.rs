//! Boxes that wait for an answer: `\boxed{}`, `\boxed{...}`, `\boxed{\text{answer}}`.

use memchr::memmem;

use super::box_command::{Argument, command};

/// Bytes before a box within which a name for its answer ends.
const NAME: usize = 200;

/// Tells whether a formula is only a box to fill in, or a name and such a box: `\boxed{}`, `x = \boxed{...}`. In
/// `5 + \boxed{} = 8` it is only a part, without which the rest must not be read.
pub(super) fn is_blank(formula: &str) -> bool {
    let bytes = formula.as_bytes();
    let Some(found) = memmem::find(bytes, b"box").filter(|&at| at <= NAME) else { return false };
    let at = formula[..found].rfind('\\').unwrap_or(found);
    let Some(Argument::Braced(content)) = command(bytes, at + 1) else { return false };

    let named = formula[..at].trim_end_matches('\\').trim_end();
    let is_name = |name: &str| !name.contains(|c: char| c.is_numeric() || c == '\\' || c == '=');
    if !(named.is_empty() || named.strip_suffix('=').is_some_and(is_name)) {
        return false;
    }

    let end = formula.trim_end_matches(|c: char| c.is_whitespace() || matches!(c, '.' | ','));
    let inside = end.strip_suffix('}').and_then(|inside| inside.get(content..));
    inside.is_some_and(|inside| is_form(&inside.replace("\\boxed{", "{")))
}

/// Tells whether a box is a form to fill in instead of an answer: `\boxed{}`, `\boxed{...}`, `\boxed{\text{answer}}`.
pub(super) fn is_form(piece: &str) -> bool {
    const NOTHING: [&str; 22] = [
        "\\,",
        "\\;",
        "\\:",
        "\\!",
        "\\ ",
        "\\_",
        "\\quad",
        "\\qquad",
        "\\text{",
        "\\textbf{",
        "\\textit{",
        "\\mathrm{",
        "\\ldots",
        "\\dots",
        "\\cdots",
        "\\square",
        "\\Box",
        "\\underline{",
        "~",
        "{",
        "}",
        "…",
    ];

    let nothing = |c: char| c.is_whitespace() || matches!(c, '.' | '_' | '?');
    let mut rest = piece;

    // Strips what leaves a box empty, until a word or an answer remains.
    loop {
        rest = rest.trim_start_matches(nothing);
        let space = ["\\hspace{", "\\phantom{"].iter().find_map(|space| rest.strip_prefix(space));
        if let Some((_, after)) = space.and_then(|inside| inside.split_once('}')) {
            rest = after;
            continue;
        }

        match NOTHING.iter().find_map(|known| rest.strip_prefix(known)) {
            Some(shorter) => rest = shorter,
            None => break,
        }
    }

    let word = rest.trim_end_matches(|c: char| c == '}' || nothing(c)).trim_end();
    let known = ["", "answer", "your answer", "the answer", "final answer", "your final answer"];
    let word = word.strip_suffix(" here").unwrap_or(word);
    known.iter().any(|known| word.eq_ignore_ascii_case(known))
}
