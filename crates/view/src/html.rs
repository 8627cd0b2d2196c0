//! Text in HTML. The text of a model, a data set or a recipe never becomes markup.

use std::fmt::Write as _;

use firebrick_core::is_unseen;

/// Escapes a text, so that it is read as text in an element and in a quoted attribute. Control characters, and
/// characters that change the direction of writing, are shown instead of executed.
pub(crate) fn text(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());

    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(letter),
            // Unicode has pictures of the control characters.
            '\0'..='\x1f' => {
                safe.push(char::from_u32(0x2400 + u32::from(letter)).unwrap_or('\u{fffd}'));
            }
            '\x7f' => safe.push('\u{2421}'),
            letter if is_unseen(letter) => {
                let _ = write!(safe, "‹U+{:04X}›", u32::from(letter));
            }
            _ => safe.push(letter),
        }
    }

    safe
}

/// Writes a link to a section of the book at this address, as a sentence; empty without an address.
pub(crate) fn more(book: Option<&str>, page: &str, section: &str) -> String {
    let Some(book) = book else { return String::new() };
    let book = text(book.trim_end_matches('/'));
    format!(" <a href=\"{book}/{page}.html#{section}\">More in the book</a>.")
}
