//! Answer markers: `Answer:`, “the final answer is”, `#### 18`, a heading “Final Answer”, `答案：`,
//! `<answer>`.

use std::ops::Range;

use memchr::{memchr, memmem, memrchr3};

use super::{
    delimiters::Formulas,
    formula::Formula,
    prose::operator,
    sentence::{self, AnswerKind},
};

/// Bytes at the end of a text in which markers are searched.
const WINDOW: usize = 64 << 10;

/// Sentence after the last marker, with its formulas. It is empty if nothing follows the marker.
pub(super) struct Field {
    pub(super) range: Range<usize>,
    pub(super) formulas: Vec<Formula>,
}

impl Field {
    /// Finds the one answer in the field.
    pub(super) fn answer(&self, text: &str) -> Option<(Range<usize>, String, AnswerKind)> {
        sentence::answer(text, self.range.clone(), &self.formulas)
    }
}

/// Returns the field after the last marker, or `None` if there is no marker.
pub(super) fn last(text: &str, within: Range<usize>) -> Option<Field> {
    let tail = tail(text.as_bytes(), &within)?;
    Some(field(text, tail..within.end))
}

/// Finds the end of the last marker. It examines each candidate once, and reads only as far as [`REACH`].
fn tail(bytes: &[u8], within: &Range<usize>) -> Option<usize> {
    let bytes = &bytes[..within.end];
    let from = within.start.max(within.end.saturating_sub(WINDOW));
    let mut chinese = memmem::rfind_iter(&bytes[from..], "答").peekable();
    let mut position = within.end;

    loop {
        // Of the two kinds of markers, the later one is tried first.
        let ascii = memrchr3(b'w', b'W', b'#', &bytes[from..position]);
        let end = match chinese.next_if(|&other| ascii < Some(other)) {
            Some(other) => after_chinese(bytes, from + other),
            None => {
                position = from + ascii?;
                match bytes[position] {
                    b'#' => after_hashes(bytes, position),
                    _ => after_word(bytes, position),
                }
            }
        };

        if end.is_some() {
            return end;
        }
    }
}

/// How many bytes a marker may reach from its word.
const REACH: usize = 64;

/// Recognises `#### 18`, the mark of answers in GSM8K. Headings of the fourth level look the same, so the text after
/// the mark has to begin as a number or a formula, and must not be the number of a heading (`#### 2. Area`).
fn after_hashes(bytes: &[u8], position: usize) -> Option<usize> {
    if !bytes[..=position].ends_with(b"####") {
        return None;
    }

    let skip = |at: usize, of: &[u8]| {
        at + bytes[at..].iter().take(REACH).take_while(|b| of.contains(b)).count()
    };
    let number = skip(position + 1, b" *$+-\\(");
    let digits = skip(number, b"0123456789");

    let decimal = digits == number && bytes.get(number) == Some(&b'.');
    let delimited = bytes[position + 1..number].contains(&b'$');
    let command =
        bytes[..number].ends_with(b"\\") && bytes.get(number).is_some_and(u8::is_ascii_alphabetic);

    // These are full-width digits, vulgar fractions and a typographic minus.
    let next = String::from_utf8_lossy(&bytes[number..bytes.len().min(number + 4)]);
    let unicode = next.starts_with(|c: char| !c.is_ascii() && (c.is_numeric() || c == '−'));

    let heading = matches!(bytes.get(digits), Some(b'.' | b')' | b':'))
        && matches!(bytes.get(digits + 1), Some(b' ' | b'*'))
        && bytes[digits + 2..].iter().take(2).any(|b| b.is_ascii_uppercase() || *b == b'*');

    ((digits > number || decimal || command || delimited || unicode) && !heading)
        .then_some(position + 1)
}

/// Recognises `Answer:`, “answer is”, and a heading that consists of the word.
fn after_word(bytes: &[u8], w: usize) -> Option<usize> {
    let start = w.checked_sub(3)?;
    let word = bytes.get(start..start + 6)?;
    let joined = start.checked_sub(1).is_some_and(|before| bytes[before].is_ascii_alphabetic());
    if joined || !word.eq_ignore_ascii_case(b"answer") {
        return None;
    }

    let mut end = start + 6;
    end += usize::from(bytes.get(end).is_some_and(|b| b.eq_ignore_ascii_case(&b's')));
    // `answered` is not a marker.
    if bytes.get(end).is_some_and(|b| b.is_ascii_alphabetic()) {
        return None;
    }

    let after = closers(bytes, end);
    let rest = &bytes[after..];
    if rest.starts_with("：".as_bytes()) {
        return Some(after + "：".len());
    }

    let opening = start > 0 && bytes[start - 1] == b'<';
    if rest.starts_with(b"->") || rest.starts_with("→".as_bytes()) {
        return Some(after + if rest[0] == b'-' { 2 } else { "→".len() });
    }

    match rest.first() {
        // These are the tags `<answer>…</answer>`.
        Some(b'>') if opening => Some(after + 1),
        Some(b':' | b'=') => Some(after + 1),
        None | Some(b'\n' | b'\r') => heading(bytes, start).then_some(after),
        Some(b'$' | b'\\' | b'0'..=b'9' | b'-' | b'+') if heading(bytes, start) => Some(after),
        _ => verb(bytes, end),
    }
}

/// Skips the signs after a marker's word that close emphasis or a group.
fn closers(bytes: &[u8], at: usize) -> usize {
    at + bytes[at..].iter().take(12).take_while(|b| b" \t*_}`)\"".contains(b)).count()
}

/// Finds the end of “answer is” or “answer to the problem would be”, if a value may follow.
fn verb(bytes: &[u8], end: usize) -> Option<usize> {
    let rest = &bytes[end..bytes.len().min(end + REACH)];
    let stop = |b: &u8| matches!(b, b'\n' | b'.' | b'?' | b'!' | b'$' | b':' | b';');
    let rest = &rest[..rest.iter().position(stop).unwrap_or(rest.len())];

    let mut first = true;
    let mut position = 0;
    for word in rest.split(|b| !b.is_ascii_alphabetic()) {
        let until = position + word.len();
        if VERBS.iter().any(|verb| word.eq_ignore_ascii_case(verb)) {
            let next = bytes[end + until..].iter().take(REACH).skip_while(|b| **b == b' ');
            let next: Vec<u8> = next.take_while(|b| b.is_ascii_alphabetic()).copied().collect();
            let idle = IDLE.iter().any(|idle| next.eq_ignore_ascii_case(idle));
            return (!idle).then_some(end + until);
        }

        if !word.is_empty() {
            if first && !BRIDGES.iter().any(|bridge| word.eq_ignore_ascii_case(bridge)) {
                return None;
            }
            // This refuses “The answer would not be 5”.
            if DENIALS.iter().any(|denial| word.eq_ignore_ascii_case(denial)) {
                return None;
            }
            first = false;
        }

        position = until + 1;
    }
    None
}

const VERBS: [&[u8]; 6] = [b"is", b"are", b"be", b"was", b"equals", b"becomes"];

/// Words that turn the verb into a denial. The last one is the end of “can't”.
const DENIALS: [&[u8]; 4] = [b"not", b"never", b"cannot", b"t"];

/// Words that may lead from “answer” to its verb.
const BRIDGES: [&[u8]; 18] = [
    b"to",
    b"for",
    b"of",
    b"in",
    b"that",
    b"we",
    b"i",
    b"must",
    b"would",
    b"should",
    b"will",
    b"can",
    b"therefore",
    b"thus",
    b"then",
    b"hence",
    b"here",
    b"now",
];

/// Words after “answer is” with which the sentence talks about an answer but doesn't state it.
const IDLE: [&[u8]; 16] = [
    b"not",
    b"correct",
    b"incorrect",
    b"right",
    b"wrong",
    b"reasonable",
    b"valid",
    b"in",
    b"expected",
    b"required",
    b"supposed",
    b"consistent",
    b"helpful",
    b"that",
    b"clear",
    b"below",
];

/// Tells whether a heading may begin with the part of the line before `word`.
fn heading(bytes: &[u8], word: usize) -> bool {
    let from = word.saturating_sub(48);
    let line =
        bytes[from..word].iter().rposition(|&b| b == b'\n').map(|newline| from + newline + 1);
    // A line that is longer than this is not a heading.
    let Some(line) = line.or((from == 0).then_some(0)) else {
        return false;
    };

    let words = bytes[line..word].split(|b| !b.is_ascii_alphabetic() && *b < 0x80);
    let known: [&[u8]; 9] =
        [b"", b"final", b"the", b"my", b"our", b"textbf", b"text", b"section", b"subsection"];
    words.into_iter().all(|word| known.iter().any(|known| word.eq_ignore_ascii_case(known)))
}

/// Recognises `答案：`, `答案是`, `答：`.
fn after_chinese(bytes: &[u8], start: usize) -> Option<usize> {
    let mut position = start + "答".len();
    if bytes[position..].starts_with("案".as_bytes()) {
        position += "案".len();
    }
    position = closers(bytes, position);

    let mut end = None;
    for part in ["应该", "应", "是", "为", "為", "：", ":"] {
        if bytes[position..].starts_with(part.as_bytes()) {
            position += part.len();
            end = Some(position);
        }
    }
    end
}

/// Finds the field of a marker in `rest`: the rest of the marker's line, or the next lines if nothing is on it.
fn field(text: &str, rest: Range<usize>) -> Field {
    let mut start = rest.start;
    // It takes two rounds, because the first line may only introduce the second: “The final answer is: the value”.
    for _ in 0..2 {
        let noise = |c: char| c.is_whitespace() || "*_`:：=}".contains(c);
        start = rest.end - text[start..rest.end].trim_start_matches(noise).len();

        // This is the dash of a list. Before a number it would be the number's sign.
        if text[start..rest.end]
            .strip_prefix("- ")
            .is_some_and(|item| item.starts_with(char::is_alphabetic))
        {
            start += 2;
        }

        let mut end =
            memchr(b'\n', &text.as_bytes()[start..rest.end]).map_or(rest.end, |line| start + line);
        let mut formulas = vec![];
        // A formula may extend beyond the end of the line.
        for formula in Formulas::new(text, start..rest.end) {
            if formula.outer.start >= end {
                break;
            }
            end = end.max(formula.outer.end);
            formulas.push(formula);
        }

        end = environment(text, start, end, rest.end);
        let line = text[start..end].trim_end_matches(|c: char| c.is_whitespace() || c == '*');
        let opens = line.ends_with(':')
            || line.ends_with('：')
            || [" is", " are", " by"].iter().any(|w| line.ends_with(w));

        if opens && !line.contains(char::is_numeric) && !text[end..rest.end].trim().is_empty() {
            start = end;
            continue;
        }

        let end = first_sentence(text, start..end, &formulas);
        formulas.retain(|formula| formula.outer.end <= end);
        return Field { range: start..end, formulas };
    }
    Field { range: start..start, formulas: vec![] }
}

/// Finds the end of a field that opens environments without closing them on its line.
fn environment(text: &str, start: usize, end: usize, limit: usize) -> usize {
    let count =
        |range: Range<usize>, what: &str| memmem::find_iter(text[range].as_bytes(), what).count();
    let open = count(start..end, "\\begin{").saturating_sub(count(start..end, "\\end{"));
    if open == 0 {
        return end;
    }

    let closed = memmem::find_iter(&text.as_bytes()[end..limit], "\\end{").nth(open - 1);
    let close = closed.and_then(|close| {
        Some(end + close + memchr(b'}', &text.as_bytes()[end + close..limit])? + 1)
    });
    close.unwrap_or(end)
}

/// Finds the end of the first sentence. A point before space ends it, unless the point abbreviates: after a letter,
/// only a word that is not in lower case begins another sentence. A number never does.
fn first_sentence(text: &str, within: Range<usize>, formulas: &[Formula]) -> usize {
    let mut formulas = formulas.iter().peekable();
    let mut before = ' ';

    for (offset, c) in text[within.clone()].char_indices() {
        let position = within.start + offset;
        // A point within a formula does not end a sentence.
        while formulas.next_if(|formula| formula.outer.end <= position).is_some() {}
        if formulas.peek().is_some_and(|formula| formula.outer.contains(&position)) {
            before = c;
            continue;
        }

        if matches!(c, '。' | '！') {
            return position;
        }

        if matches!(c, '.' | '!' | '?') {
            let after = &text[position + 1..within.end];
            let rest = after.trim_start_matches(['*', '_', '"', ')']);
            let next = rest.trim_start().chars().next();
            let spaced = rest.len() < after.len() || rest.starts_with(char::is_whitespace);
            let begins = |next: char| match before {
                _ if next.is_numeric() || operator(next) => false,
                before if before.is_alphabetic() => !next.is_lowercase(),
                _ => true,
            };

            if spaced && next.is_some_and(begins) {
                return position + usize::from(c == '!' && before.is_numeric());
            }
        }

        before = c;
    }
    within.end
}
