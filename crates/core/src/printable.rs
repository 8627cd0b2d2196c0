//! Untrusted texts, made safe to print.
//!
//! A completion, a note in a run's record or the name of a metric may come from anybody. A terminal executes control
//! characters: it sets its title, moves over earlier lines, or fills the clipboard. Others reverse the direction of
//! writing, so that a line reads as a different one. That is why the functions of this file spell texts out wherever
//! they are printed.

use std::fmt::Write as _;

/// Tells whether a character has an effect instead of a glyph: control characters (C0 and C1, with line ends and tabs),
/// marks of the direction of writing, separators of lines, and the invisible ones that text can hide in.
pub fn is_unseen(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{61c}' // the Arabic letter mark
                | '\u{180e}'
                | '\u{200b}' // no width, but a word may break there
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}' // separators of lines, and embeddings
                | '\u{2060}'..='\u{206f}' // invisible operators, and isolates
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}' // tags
        )
}

/// Spells out the unseen characters of a text that belongs on one line, as JSON does: `\n`, `\u001b`. Printable texts
/// are not changed.
pub fn printable(text: &str) -> String {
    spelt(text, |_| false)
}

/// Spells out the unseen characters of a text, except its line ends and tabs. JSON stays the same JSON, because such
/// characters only occur in its strings.
pub fn printable_lines(text: &str) -> String {
    spelt(text, |letter| matches!(letter, '\n' | '\t'))
}

/// Writes a number with its noun: `1 step`, `8 steps`.
pub fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Shortens numbers of many digits, such as 1e300 written in full, to powers of ten.
pub fn short_numbers(text: &str) -> String {
    let mut shortened = String::with_capacity(text.len());
    let mut rest = text;
    let is_digit = |letter: char| letter.is_ascii_digit() || letter == '.';

    while let Some(start) = rest.find(|letter: char| letter.is_ascii_digit()) {
        let (before, number) = rest.split_at(start);
        let (number, after) =
            number.split_at(number.find(|letter| !is_digit(letter)).unwrap_or(number.len()));
        shortened += before;

        // A full stop may end the sentence.
        let digits = number.trim_end_matches('.');
        match digits.parse::<f64>() {
            Ok(value) if digits.len() > DIGITS => {
                let _ = write!(shortened, "{value:.2e}{}", &number[digits.len()..]);
            }
            _ => shortened += number,
        }

        rest = after;
    }

    shortened + rest
}

/// A number of at most this many digits is not changed.
const DIGITS: usize = 30;

fn spelt(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            letter if !is_unseen(letter) || stays(letter) => safe.push(letter),
            '\n' => safe += "\\n",
            '\r' => safe += "\\r",
            '\t' => safe += "\\t",
            // Characters beyond 16 bits are two units in JSON.
            letter => {
                for unit in letter.encode_utf16(&mut [0; 2]) {
                    let _ = write!(safe, "\\u{unit:04x}");
                }
            }
        }
    }

    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_printed_is_obeyed() {
        let hostile = "\u{1b}]0;title\u{7}\u{9b}2J\u{85}\u{202e}\u{2069}\u{2028}\u{feff}\u{e0041}\r\0é火\u{200d}";
        let safe = printable(hostile);
        assert_eq!(
            safe,
            "\\u001b]0;title\\u0007\\u009b2J\\u0085\\u202e\\u2069\\u2028\\ufeff\\udb40\\udc41\\r\\u0000é火\u{200d}"
        );

        // A safe text is not changed, so it may be passed twice.
        assert_eq!(printable(&safe), safe);

        assert!(
            (0..=0x10_ffff).filter_map(char::from_u32).filter(|c| c.is_control()).all(is_unseen)
        );
        assert_eq!(
            (printable("a\n\tb"), printable_lines("a\n\tb")),
            ("a\\n\\tb".into(), "a\n\tb".into())
        );
    }

    #[test]
    fn a_number_beyond_reading_is_short() {
        let text = format!("loss was {:.3}, and is {:.0}. 10.0.0.1 is -{:.1}", 1e300, 1e299, 1e31);
        assert_eq!(
            short_numbers(&text),
            "loss was 1.00e300, and is 1.00e299. 10.0.0.1 is -1.00e31"
        );
        assert_eq!(short_numbers("1.5 of 12345678901234567890"), "1.5 of 12345678901234567890");
    }
}
