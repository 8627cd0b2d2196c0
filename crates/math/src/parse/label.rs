//! The letter of a choice in front of an answer: `\textbf{(B)}\ 5`.

use super::lex::letters_of;

/// Splits a text into the letter of a choice, from A to J, and the answer behind it.
///
/// The letter is in brackets, and the brackets are text or upright: `\text{(B) } 5`, `\mathrm{(B)}\ 5`. In text a
/// colon or a full stop will do: `\text{B: } 5`, `\text{B. 5}`. A letter that is not in text could be a factor, so
/// `(B) 5` is split only if there is a space, and then a digit. Lists of letters (`\text{(A), (C)}`) and names
/// (`\text{J. Smith}`) are not split.
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
    let after = without_space(after);
    let answer = match after.strip_prefix('}') {
        Some(answer) => answer,
        // In `\text{(B) 5}` the answer is in the group of the letter.
        None => after.strip_suffix('}').filter(|inside| !inside.contains(['{', '}']))?,
    };
    ((bracketed || is_text) && begins_answer(answer, bracketed)).then_some((letter, answer))
}

/// Returns the text after `\text{`, `\mathrm{` and their kin, and whether the group is text.
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

/// Tells whether a text can be an answer behind a letter. Signs that join it to the letter are no beginning. Words
/// need brackets around the letter, and so does anything else that could begin a list of letters.
fn begins_answer(text: &str, bracketed: bool) -> bool {
    let text = without_space(text);
    let is_word = |text: &str| !matches!(letters_of(text), "and" | "or");
    match text.chars().next() {
        Some('0'..='9' | '-' | '−' | '$' | '|' | '√' | 'π') => true,
        Some('\\') => match group(text) {
            Some((inside, _)) => {
                let inside = inside.trim_start();
                bracketed && is_word(inside) && letters_of(inside).len() > 1
            }
            None => text[1..].starts_with(|c: char| c.is_ascii_alphabetic() || "{$(".contains(c)),
        },
        Some('(' | '[') => bracketed && !text[1..].trim_start().starts_with(char::is_uppercase),
        Some('a'..='z') => bracketed && is_word(text),
        _ => false,
    }
}

/// Returns the text without the space at its beginning, plain or LaTeX's.
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
