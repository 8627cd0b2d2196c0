//! Trims everything around an answer that isn't part of it: the next turn of a chat, Markdown,
//! delimiters, invisible characters.

use std::ops::Range;

use memchr::memmem;

use crate::thoughts::Thoughts;

/// Tokens that end the turn of an answer.
const ENDS: [&str; 11] = [
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|end_of_text|>",
    "<|eom_id|>",
    "<｜end▁of▁sentence｜>",
    "<end_of_turn>",
    "</s>",
    "<|im_start|>",
    "<|start_header_id|>",
    "<start_of_turn>",
];

/// Turn of the model: the text before the first token that ends it. A token with nothing before it opens the turn
/// instead.
pub(super) struct Turn {
    pub(super) range: Range<usize>,
    thoughts: Thoughts,
}

impl Turn {
    /// Finds the turn and its thoughts, in one pass each over the signs with which a token or a tag may begin.
    pub(super) fn of(text: &str) -> Turn {
        let mut end = text.len();
        let mut blank = 0;

        for at in memchr::memchr_iter(b'<', text.as_bytes()) {
            let rest = &text[at..];
            if let Some(token) = ENDS.iter().find(|&&token| rest.starts_with(token)) {
                if !text[blank..at].trim().is_empty() {
                    end = at;
                    break;
                }
                blank = at + token.len();
            }
        }

        Turn { range: 0..end, thoughts: Thoughts::of("", &text[..end]) }
    }

    /// Returns the text after the thoughts, which is all of it if it has no thoughts. Returns `None` if the text breaks
    /// off within a thought, because a thought's last box or number is not an answer.
    pub(super) fn after_thoughts(&self) -> Option<Range<usize>> {
        let from = self.thoughts.end.unwrap_or(self.range.start);
        (!self.thoughts.are_open).then_some(from..self.range.end)
    }

    /// Returns the text after the thoughts, or after the heading that a response has instead of a tag. Returns `None`
    /// if the text has neither.
    pub(super) fn after_an_end(&self, text: &str) -> Option<Range<usize>> {
        let after = self.after_thoughts()?;
        let heading = after_last(text, self.range.clone(), &["###Response"]);
        let from = heading.map(|range| range.start).max(self.thoughts.end)?;
        Some(from..after.end)
    }
}

/// Returns the text in `within` after the last of `ends`, if one occurs.
fn after_last(text: &str, within: Range<usize>, ends: &[&str]) -> Option<Range<usize>> {
    let part = text[within.clone()].as_bytes();
    let last = ends.iter().filter_map(|end| Some(memmem::rfind(part, end.as_bytes())? + end.len()));
    last.max().map(|from| within.start + from..within.end)
}

/// Strips what surrounds the answer in `within`: white space, Markdown, delimiters and quotes around all of it, final
/// punctuation, currency signs.
pub(super) fn trim_around(text: &str, within: Range<usize>) -> Range<usize> {
    let mut rest = &text[within.clone()];
    loop {
        let shorter = once(rest);
        if shorter.len() == rest.len() {
            break;
        }
        rest = shorter;
    }

    // The rest is a part of `text`, so the addresses tell its position.
    let start = rest.as_ptr() as usize - text.as_ptr() as usize;
    start..start + rest.len()
}

fn once(text: &str) -> &str {
    let text = text.trim_matches(|c: char| c.is_whitespace() || invisible(c));
    // One pair is removed at a time, because another may be inside.
    for (open, close) in PAIRS {
        if let Some(inner) = text.strip_prefix(open).and_then(|text| text.strip_suffix(close))
            && !inner.contains(open)
            && !inner.contains(close)
            && !inner.ends_with('\\')
        {
            return inner;
        }
    }

    let text = text.trim_start_matches(['*', '`', ':', '：', '=', '≈']);
    let text = match text.trim_end_matches(['*', '`']) {
        // The star is a conjugate: `z^*`.
        short if short.ends_with('^') => text,
        short => short,
    };

    let text = without_tokens(text);
    let text = unpaired_dollars(text);
    let text = match text.strip_suffix('.') {
        // Three dots are an ellipsis: the number continues.
        Some(short) if !short.ends_with('.') => short,
        _ => text,
    };

    let text = text.trim_end_matches([',', ';', ':', '。', '，', '；', '、']);
    let text = text.strip_suffix("\\!").unwrap_or(text).trim_matches(['€', '£', '¥', '₹']);
    // The backslash is a line break, or belongs to a space at the end (`\,` or `\;`).
    text.trim_end_matches('\\')
}

const PAIRS: [(&str, &str); 9] = [
    ("$$", "$$"),
    ("$", "$"),
    ("\\(", "\\)"),
    ("\\[", "\\]"),
    ("__", "__"),
    ("_", "_"),
    ("'", "'"),
    ("\"", "\""),
    ("“", "”"),
];

/// Strips a token such as `<|im_end|>` from the end.
fn without_tokens(text: &str) -> &str {
    let head = text.strip_suffix("|>").and_then(|head| Some((head, head.rfind("<|")?)));
    match head {
        Some((head, at)) if !head[at..].contains(char::is_whitespace) => &text[..at],
        _ => text,
    }
}

/// Strips a dollar sign at one end that has no partner. It is currency, or half of a delimiter cut in two.
fn unpaired_dollars(text: &str) -> &str {
    if text.len() - text.trim_matches('$').len() == 0 || text.ends_with("\\$") {
        return text;
    }
    let inner = text.trim_matches('$');
    if inner.contains('$') { text } else { inner }
}

/// Tells whether a character is invisible. Overrides of the writing direction are not, because they change what a
/// reader sees.
fn invisible(c: char) -> bool {
    matches!(
        c,
        '\u{0}'..='\u{8}'
            | '\u{b}'..='\u{1a}'
            | '\u{7f}'
            | '\u{ad}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202c}'
            | '\u{2060}'..='\u{2064}'
            | '\u{2066}'..='\u{2069}'
            | '\u{fe0e}'..='\u{fe0f}'
            | '\u{feff}'
    )
}

/// Returns the text of `range` without invisible characters, terminal colours and Markdown's bold. With `plain`, the
/// range mixes formulas and plain text, so their delimiters are removed too.
pub(super) fn read(text: &str, range: Range<usize>, plain: bool) -> String {
    let part = &text[range];
    let mut out = String::with_capacity(part.len());
    let mut chars = part.char_indices().peekable();

    while let Some((at, c)) = chars.next() {
        match c {
            '\u{1b}' => skip_colour(&mut chars),
            _ if invisible(c) => {}
            '*' if part[at + 1..].starts_with('*') => {
                chars.next();
                // Two stars between operands are a power. Elsewhere they are Markdown's bold.
                let operand = |c: char| c.is_alphanumeric() || matches!(c, ')' | '(' | '-');
                if out.ends_with(operand) && part[at + 2..].starts_with(operand) {
                    out.push_str("**");
                }
            }
            '\\' => {
                let next = chars.peek().map(|&(_, next)| next);
                let delimiter = matches!(next, Some('(' | ')'));
                if !(plain && delimiter) {
                    out.push(c);
                    out.extend(next);
                }
                chars.next();
            }
            '$' | '`' if plain => {}
            _ => out.push(c),
        }
    }

    out
}

/// Skips a terminal's control sequence after its escape.
fn skip_colour(chars: &mut std::iter::Peekable<std::str::CharIndices>) {
    if chars.next_if(|&(_, c)| c == '[').is_some() {
        while chars.next_if(|&(_, c)| c.is_ascii_digit() || c == ';').is_some() {}
        chars.next_if(|&(_, c)| c.is_ascii_alphabetic());
    }
}

/// Tells whether a percent sign or word follows at `at`, with only delimiters and space before it.
pub(super) fn percent_follows(text: &str, start: usize, end: usize) -> bool {
    let mut rest = &text[start..end];
    // Honest text has a short gap, and the limit keeps the search linear.
    for _ in 0..12 {
        let gap =
            [" ", "\u{a0}", "$", "\\)", "\\]", "\\ ", "\\,", "\\;", "**", "\\text{", "\\mathrm{"];
        match gap.iter().find_map(|gap| rest.strip_prefix(gap)) {
            Some(next) => rest = next,
            None => break,
        }
    }

    if rest.starts_with('%') || rest.starts_with("\\%") || rest.starts_with('％') {
        return true;
    }

    let word = &rest
        [..rest.bytes().take(12).take_while(|b| b.is_ascii_alphabetic() || *b == b' ').count()];
    let mut words = word.split(' ');
    let first = words.next().unwrap_or_default();
    let is = |word: &str| first.eq_ignore_ascii_case(word);

    is("percent")
        || is("pct")
        || is("percentage")
        || is("percents")
        || is("per") && words.next().is_some_and(|word| word.eq_ignore_ascii_case("cent"))
}
