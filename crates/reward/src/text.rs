//! Searches in texts that several verifiers share.

use std::ops::Range;

/// Returns the last `count` characters of a text, or all of it if it has fewer.
pub(crate) fn last_characters(text: &str, count: usize) -> &str {
    match text.char_indices().rev().nth(count.saturating_sub(1)) {
        Some((start, _)) => &text[start..],
        None => text,
    }
}

/// Finds the bytes inside the last `\boxed{…}` or `\fbox{…}` that is closed. If boxes are nested, the outer box
/// counts.
///
/// Escaped braces do not count. The search takes one pass, whatever the text: an unterminated box costs nothing.
pub(crate) fn last_box(text: &str) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let mut depth = 0_usize;
    // Each entry is the place where the content of an open box begins, and the depth of its braces.
    let mut open: Vec<(usize, usize)> = vec![];
    let mut last = None;
    let mut at = 0;
    while let Some(step) = memchr::memchr3(b'\\', b'{', b'}', &bytes[at..]) {
        at += step;
        let opener = [r"\boxed{", r"\fbox{"].iter().find(|opener| text[at..].starts_with(**opener));
        match (bytes[at], opener) {
            (b'\\', Some(opener)) => {
                at += opener.len();
                depth += 1;
                open.push((at, depth));
                continue;
            }
            // The byte behind a backslash is skipped: no byte of a longer character is a brace.
            (b'\\', None) => at = (at + 1).min(bytes.len() - 1),
            (b'{', _) => depth += 1,
            _ => {
                if let Some((start, _)) = open.pop_if(|(_, of)| *of == depth) {
                    last = Some(start..at);
                }
                depth = depth.saturating_sub(1);
            }
        }
        at += 1;
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_closed_box_counts() {
        for (text, inside) in [
            (r"\boxed{1} \fbox{2}", Some("2")),
            (r"\boxed{1} \boxed{2", Some("1")),
            (r"\boxed{\boxed{1}}", Some(r"\boxed{1}")),
            (r"\boxed{\{1\}}", Some(r"\{1\}")),
            (r"} {\boxed{\frac{1}{2}} {", Some(r"\frac{1}{2}")),
            (r"\boxed{1\\}", Some(r"1\\")),
            (r"\boxed{\é}\", Some(r"\é")),
            (r"\boxed 1", None),
            ("", None),
        ] {
            assert_eq!(last_box(text).map(|range| &text[range]), inside, "{text}");
        }
    }
}
