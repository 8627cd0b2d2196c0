//! The letter of a multiple-choice question.

use std::ops::Range;

/// Finds the choice that a part of a text names, and returns its place and its name. If the part begins with the
/// letter of a choice, that letter counts (“B, because C is too small”). Otherwise the last such letter counts.
pub(super) fn letter(
    text: &str,
    within: Range<usize>,
    choices: &[String],
) -> Option<(Range<usize>, String)> {
    let alphanumerics = text[within.clone()].chars().filter(|c| c.is_alphanumeric()).count();
    let mut last = None;
    for (at, c) in text[within.clone()].char_indices() {
        let at = within.start + at;
        for choice in choices.iter().filter(|choice| !choice.is_empty()) {
            let Some(length) = stands(text, at..within.end, c, choice) else {
                continue;
            };
            let range = at..at + length;
            if !names(text, &within, &range, alphanumerics == choice.chars().count()) {
                continue;
            }
            let opening = text[within.start..at].chars().filter(|c| c.is_alphanumeric()).count();
            if last.is_none() && (opening == 0 || command(&text[within.start..at])) {
                return Some((range, choice.clone()));
            }
            last = Some((range, choice.clone()));
        }
    }
    last
}

/// Returns the length of `choice` at the start of `rest`, which begins with `c`. Full-width letters and letters of
/// the other case are the same choice.
fn stands(text: &str, rest: Range<usize>, c: char, choice: &str) -> Option<usize> {
    if let Some(plain) = full_width(c) {
        let mut letters = choice.chars();
        return (letters.next() == Some(plain) && letters.next().is_none()).then_some(c.len_utf8());
    }
    let part =
        text.get(rest.start..rest.start + choice.len()).filter(|_| choice.len() <= rest.len())?;
    part.eq_ignore_ascii_case(choice).then_some(choice.len())
}

/// Returns the ASCII letter of a full-width letter.
fn full_width(c: char) -> Option<char> {
    let plain = (c as u32).checked_sub(0xfee0).and_then(char::from_u32)?;
    plain.is_ascii_alphabetic().then_some(plain)
}

/// Tells whether a letter names a choice. It has to stand alone, and must be neither an article nor part of a
/// formula.
fn names(text: &str, within: &Range<usize>, range: &Range<usize>, alone: bool) -> bool {
    let (before, after) = (&text[within.start..range.start], &text[range.end..within.end]);
    let glued =
        |c: char| c.is_alphanumeric() && !foreign(c) || matches!(c, '_' | '^' | '\'' | '’' | '\\');
    let (left, right) = (before.chars().next_back(), after.chars().next());
    if left.is_some_and(glued) || right.is_some_and(glued) {
        return false;
    }
    let wrapped = matches!(left, Some('(' | '{' | '*' | '（' | '[' | '"'))
        && right.is_some_and(|c| ")}*）]\"".contains(c));
    let listed = matches!(right, Some('.' | ')' | ':' | ','));
    let lower = text[range.clone()].chars().any(char::is_lowercase);
    if lower && text[range.clone()].chars().count() == 1 {
        return wrapped || alone || right == Some(')');
    }
    // “A” or “I” before a word in small letters is an article or a pronoun.
    let word = after
        .strip_prefix(' ')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()));
    wrapped || listed || !(word && matches!(&text[range.clone()], "A" | "I") && !verb(after))
}

/// Tells whether a verb follows, as in “A is right”.
fn verb(after: &str) -> bool {
    [" is ", " because ", " since ", " and ", " or "].iter().any(|verb| after.starts_with(verb))
}

/// Tells whether a letter is of a script that sets no space between words.
fn foreign(c: char) -> bool {
    c > '\u{2e7f}' && full_width(c).is_none()
}

/// Tells whether a text is nothing but brackets and commands, such as `\textbf{`.
fn command(text: &str) -> bool {
    text.split(['{', '(', ' ', '$', '*']).all(|part| {
        part.is_empty()
            || part.strip_prefix('\\').is_some_and(|name| name.chars().all(char::is_alphanumeric))
    })
}
