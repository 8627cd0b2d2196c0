//! Text searches that several verifiers share.

use std::ops::Range;

use firebrick_core::Prompt;
use firebrick_math::thoughts::Thoughts;

/// Returns the last `count` characters of a text, or all of it if it has fewer.
pub(crate) fn last_characters(text: &str, count: usize) -> &str {
    match text.char_indices().rev().nth(count.saturating_sub(1)) {
        Some((start, _)) => &text[start..],
        None => text,
    }
}

/// Returns the part of a completion after its thoughts: all of it if it has none. Returns `None` if the completion
/// breaks off within its thoughts, whoever opened them, because text within thoughts is not an answer.
pub(crate) fn after_thoughts<'text>(prompt: &Prompt, text: &'text str) -> Option<&'text str> {
    let thoughts = Thoughts::of(&prompt.text, text);
    (!thoughts.are_open).then(|| &text[thoughts.end.unwrap_or(0)..])
}

/// Returns true if a prompt ends in the tag that opens the thoughts.
pub(crate) fn opens_thoughts(prompt: &Prompt) -> bool {
    prompt.text.trim_end().ends_with(OPEN)
}

/// Opens thoughts.
pub(crate) const OPEN: &str = "<think>";
/// Closes thoughts.
pub(crate) const CLOSE: &str = "</think>";

/// Finds the bytes inside each `\boxed{…}` or `\fbox{…}` that is closed and not inside another such box, in their
/// order.
///
/// Escaped braces are ignored. The search takes one pass, whatever the text: an unterminated box costs nothing.
pub(crate) fn boxes(text: &str) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let mut depth = 0_usize;
    // Where the content of each open box begins, and the depth of its braces.
    let mut open_boxes: Vec<(usize, usize)> = vec![];
    let mut closed: Vec<Range<usize>> = vec![];
    let mut position = 0;

    while let Some(step) = memchr::memchr3(b'\\', b'{', b'}', &bytes[position..]) {
        position += step;
        let opener =
            [r"\boxed{", r"\fbox{"].iter().find(|opener| text[position..].starts_with(**opener));

        match (bytes[position], opener) {
            (b'\\', Some(opener)) => {
                position += opener.len();
                depth += 1;
                open_boxes.push((position, depth));
                continue;
            }
            // The byte after a backslash is skipped: no byte of a multi-byte character is a brace.
            (b'\\', None) => position = (position + 1).min(bytes.len() - 1),
            (b'{', _) => depth += 1,
            _ => {
                // A closed box replaces the ones inside it: only the outermost is an answer.
                if let Some((start, _)) = open_boxes.pop_if(|(_, of)| *of == depth) {
                    closed.truncate(closed.partition_point(|inner| inner.end < start));
                    closed.push(start..position);
                }
                depth = depth.saturating_sub(1);
            }
        }
        position += 1;
    }

    closed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_boxes_count() {
        for (text, inside) in [
            (r"\boxed{1} \fbox{2}", &["1", "2"][..]),
            (r"\boxed{1} \boxed{2", &["1"]),
            (r"\boxed{1} \boxed{\boxed{2}, \fbox{3}}", &["1", r"\boxed{2}, \fbox{3}"]),
            (r"\boxed{\{1\}}", &[r"\{1\}"]),
            (r"} {\boxed{\frac{1}{2}} {", &[r"\frac{1}{2}"]),
            (r"\boxed{1\\}", &[r"1\\"]),
            (r"\boxed{\é}\", &[r"\é"]),
            (r"\boxed 1", &[]),
            ("", &[]),
        ] {
            let found: Vec<&str> = boxes(text).into_iter().map(|range| &text[range]).collect();
            assert_eq!(found, inside, "{text}");
        }
    }

    #[test]
    fn thoughts_that_break_off_leave_no_answer() {
        let opened = Prompt { text: "Why?<think>\n".into(), ..Prompt::default() };
        for (text, free, within) in [
            ("7", Some("7"), None),
            ("a</think>7", Some("7"), Some("7")),
            ("<think>a</think>7", Some("7"), Some("7")),
            ("7<think>a", None, None),
            ("a</think>7<think>b", None, None),
            ("[THINK]a[/THINK]7", Some("7"), None),
            ("<thinking>a</thinking>7", Some("7"), None),
            ("<thinking>a", None, None),
        ] {
            assert_eq!(after_thoughts(&Prompt::default(), text), free, "{text}");
            assert_eq!(after_thoughts(&opened, text), within, "{text}");
        }
    }
}
