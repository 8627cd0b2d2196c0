//! Reads the letter of a choice in front of an answer: `\textbf{(B)}\ 5`.

use super::lex::letters_of;
use crate::unit::Unit;

/// Splits a text into the letter of a choice, from A to J, and the number or formula after it.
///
/// The letter is in brackets, and the brackets are text or upright: `\text{(B) } 5`, `\mathrm{(B)}\ 5`. In text a
/// colon or a full stop will do: `\text{B: } 5`, `\text{B. 5}`. A letter that is not in text could be a factor, so
/// `(B) 5` is split only if a space and then a digit follow. If words or another letter follow, the first letter may
/// be all of the answer: `\text{(A) only}`, `\text{(A) 3, (B) 1}`.
pub(crate) fn split(text: &str) -> Option<(char, &str)> {
    let text = text.trim_start();
    let Some((inside, is_text)) = group(text) else {
        let (letter, bracketed, after) = lettered(text)?;
        let answer = after.trim_start();
        let safe = bracketed && answer.len() < after.len();
        return (safe && answer.starts_with(|c: char| c.is_ascii_digit()))
            .then_some((letter, answer));
    };

    let (letter, bracketed, after) = lettered(inside.trim_start())?;
    let rest = without_space(after);
    let (answer, joined) = match rest.strip_prefix('}') {
        Some(answer) => (without_space(answer), false),
        // In `\text{(B) 5}` the answer is in the group of the letter, and letters in it are words.
        None => {
            let answer = rest.strip_suffix('}')?;
            if answer.contains(|c: char| c.is_alphabetic() || "{}".contains(c)) {
                return None;
            }
            (answer, answer.len() + 1 == after.len())
        }
    };

    let taken = (bracketed || is_text) && begins_answer(answer, joined) && !has_words(answer);
    taken.then_some((letter, answer))
}

/// Returns the text after `\text{`, `\mathrm{` and the like, and whether the group is text.
fn group(text: &str) -> Option<(&str, bool)> {
    let name = letters_of(text.strip_prefix('\\')?);
    let is_text = match name {
        "text" | "textbf" | "textit" | "textrm" | "textnormal" | "textsf" | "mbox" => true,
        "mathrm" | "mathbf" | "mathsf" => false,
        _ => return None,
    };

    let inside = text[1 + name.len()..].trim_start().strip_prefix('{')?;
    Some((inside, is_text))
}

/// Reads `(B)`, `B:` or `B.` as the letter, whether it is in brackets, and the text after it.
fn lettered(text: &str) -> Option<(char, bool, &str)> {
    let inside = text.strip_prefix('(');
    let mut rest = inside.unwrap_or(text).chars();
    let letter = rest.next().filter(|letter| ('A'..='J').contains(letter))?;

    let ends = match (inside, rest.next()?) {
        (Some(_), sign) => sign == ')',
        (None, ':') => true,
        // The point of `B.5` is a decimal point.
        (None, sign) => sign == '.' && !rest.as_str().starts_with(|c: char| c.is_ascii_digit()),
    };
    ends.then_some((letter, inside.is_some(), rest.as_str()))
}

/// Tells whether a text can be a number or a formula after a letter. A sign that is `joined` to the letter, as in the
/// pairs `(A)-(3)`, does not begin a number.
fn begins_answer(text: &str, joined: bool) -> bool {
    match text.chars().next() {
        Some('0'..='9' | 'a'..='z' | '$' | '|' | '√' | 'π') => true,
        Some('-' | '−') => !joined,
        Some('\\') => {
            group(text).is_none()
                && text[1..].starts_with(|c: char| c.is_ascii_alphabetic() || "{$(".contains(c))
        }
        Some('(' | '[') => !text[1..].trim_start().starts_with(char::is_uppercase),
        _ => false,
    }
}

/// Tells whether there is a word that is neither a command nor a unit.
fn has_words(text: &str) -> bool {
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_alphabetic()) {
        let word = letters_of(&rest[at..]);
        let is_command = rest[..at].ends_with('\\');
        if word.len() > 1 && !is_command && Unit::named(word).is_none() {
            return true;
        }

        rest = &rest[at + word.len()..];
    }
    false
}

/// Strips the space at the beginning, plain or LaTeX's.
fn without_space(mut text: &str) -> &str {
    const SPACES: [&str; 8] = ["~", "\\ ", "\\,", "\\;", "\\:", "\\!", "\\quad", "\\qquad"];
    loop {
        text = text.trim_start();
        match SPACES.iter().find_map(|space| text.strip_prefix(space)) {
            Some(rest) => text = rest,
            None => return text,
        }
    }
}
