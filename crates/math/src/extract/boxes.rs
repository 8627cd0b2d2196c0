//! Boxes: `\boxed{…}`, `\fbox{…}`, `\framebox{…}`.

use std::ops::Range;

use memchr::{memchr, memchr3, memmem, memrchr};

use super::{
    formula::{Formula, Formulas},
    grouping, prose, sentence, trim,
};

/// A box that isn't inside another one.
#[derive(Clone, Debug, PartialEq)]
struct Boxed {
    command: usize,
    content: Range<usize>,
    /// The end of the box, its brace included.
    end: usize,
}

/// Finds the last answer in boxes, and returns the place of its contents and their text. Neighbours that [`grouping`]
/// allows are one answer.
pub(super) fn last(text: &str, within: Range<usize>) -> Option<(Range<usize>, String)> {
    let boxes = outermost(text, within.clone());
    let mut range: Option<Range<usize>> = None;
    let mut pieces: Vec<String> = vec![];
    let mut next = 0;
    for boxed in boxes.iter().rev() {
        if range.is_some() && !grouping::joins_boxes(text, boxed.end..next) {
            break;
        }
        let content = trim::trim_around(text, boxed.content.clone());
        // A box inside a longer answer belongs to that answer.
        let mut piece = trim::read(text, content.clone(), false).replace("\\boxed{", "{");
        if is_form(&piece) {
            continue;
        }
        if !piece.contains('%') && trim::percent_follows(text, boxed.end, within.end) {
            piece.push_str(" \\%");
        }
        next = boxed.command;
        range = Some(content.start..range.map_or(content.end, |range| range.end));
        // Two equal boxes in a row are one answer, repeated.
        if pieces.last() != Some(&piece) {
            pieces.push(piece);
        }
    }
    pieces.reverse();
    Some((range?, pieces.join(", ")))
}

/// Finds the content of the box that a text consists of. Delimiters and punctuation around the box do not count.
pub(super) fn only(text: &str, within: Range<usize>) -> Option<(Range<usize>, String)> {
    let range = trim::trim_around(text, within);
    match outermost(text, range.clone())[..] {
        [ref boxed] if boxed.command == range.start && boxed.end == range.end => last(text, range),
        _ => None,
    }
}

/// Finds the outermost boxes in their order, in one pass that keeps a stack of open braces. If no box is closed,
/// the last one that was opened counts up to its line's end, because models forget braces.
fn outermost(text: &str, within: Range<usize>) -> Vec<Boxed> {
    const PLAIN: u32 = u32::MAX;
    let bytes = &text.as_bytes()[..within.end];
    let Some(first) = memmem::find(&bytes[within.start..], b"box") else {
        return vec![];
    };
    let mut at = (within.start + first).saturating_sub("\\frame".len()).max(within.start);
    while at > within.start && bytes[at - 1] == b'\\' {
        at -= 1;
    }
    let (mut open, mut stack, mut closed) = (vec![], vec![], Vec::<Boxed>::new());
    let mut formulas: Option<Vec<Formula>> = None;
    while let Some(found) = memchr3(b'\\', b'{', b'}', &bytes[at..]) {
        at += found;
        match bytes[at] {
            b'{' => stack.push(PLAIN),
            b'}' => {
                if let Some(&(command, content)) =
                    stack.pop().and_then(|top| open.get(top as usize))
                {
                    let mut content: Range<usize> = content..at;
                    // A box that holds nothing but a box has the content of the inner box.
                    if let Some(inner) = closed.last()
                        && inner.command >= content.start
                        && inner.end <= at
                        && hollow(&bytes[content.start..inner.command])
                        && hollow(&bytes[inner.end..at])
                    {
                        content = inner.content.clone();
                    }
                    // A box that is inside this one, or reaches into it without braces, isn't outermost.
                    closed.truncate(closed.partition_point(|inner| inner.end <= command));
                    closed.push(Boxed { command, content, end: at + 1 });
                }
            }
            _ => {
                let name = at + bytes[at..].iter().take_while(|&&b| b == b'\\').count();
                match command(bytes, name) {
                    Some(Argument::Braced(content)) => {
                        stack.push(open.len() as u32);
                        open.push((at, content));
                        at = content;
                    }
                    Some(Argument::Bare(content)) => {
                        let formulas = formulas
                            .get_or_insert_with(|| Formulas::new(text, within.clone()).collect());
                        if in_mathematics(text, &within, at, formulas) {
                            closed.truncate(closed.partition_point(|before| before.end <= at));
                            closed.push(Boxed { command: at, end: content.end, content });
                        }
                        at = name;
                    }
                    // An odd backslash escapes a brace.
                    None => at = name + usize::from((name - at) % 2 == 1 && brace(bytes, name)),
                }
                continue;
            }
        }
        at += 1;
    }
    if closed.is_empty()
        && let Some(&(command, content)) =
            stack.iter().rev().find_map(|&top| open.get(top as usize))
    {
        let end = content + until_delimiter(&bytes[content..]).unwrap_or_else(|end| end);
        closed.push(Boxed { command, content: content..end, end });
    }
    closed
}

/// Tells whether a formula is nothing but a box to fill in, or a name and that box: `\boxed{}`, `x = \boxed{...}`. In
/// `5 + \boxed{} = 8` it is only a part, and the rest must not be read without it.
pub(super) fn is_blank(formula: &str) -> bool {
    let bytes = formula.as_bytes();
    let Some(found) = memmem::find(bytes, b"box").filter(|&at| at <= LINE) else { return false };
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

/// Tells whether a box is a form to fill in and no answer: `\boxed{}`, `\boxed{...}`, `\boxed{\text{answer}}`.
fn is_form(piece: &str) -> bool {
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

/// Tells whether a box without braces stands in mathematics: in a formula, after an operator, or on a line of
/// nothing else. In prose `\boxed` is only the name of the command, as in “I used \boxed twice”.
fn in_mathematics(text: &str, within: &Range<usize>, at: usize, formulas: &[Formula]) -> bool {
    let next = formulas.partition_point(|formula| formula.inner.end < at);
    if formulas.get(next).is_some_and(|formula| formula.inner.contains(&at)) {
        return true;
    }

    if text[..at].trim_end_matches(' ').ends_with(prose::operator) {
        return true;
    }

    // A line that is longer than what is read of it is prose.
    let bytes = text.as_bytes();
    let (from, to) = (at.saturating_sub(LINE).max(within.start), within.end.min(at + LINE));
    let start = memrchr(b'\n', &bytes[from..at]).map(|newline| from + newline + 1);
    let end = memchr(b'\n', &bytes[at..to]).map(|newline| at + newline);
    let start = start.or((from == within.start).then_some(from));
    let end = end.or((to == within.end).then_some(to));
    let (Some(start), Some(end)) = (start, end) else { return false };
    sentence::is_maths(text, start..end)
}

/// The bytes on both sides of a box that are read to tell a line of mathematics from prose.
const LINE: usize = 200;

enum Argument {
    /// The argument has a brace, and begins after it at this place.
    Braced(usize),
    /// The argument has no brace: `\boxed 5`.
    Bare(Range<usize>),
}

/// Tells whether the name of a box stands at `name`, and finds its argument.
fn command(bytes: &[u8], name: usize) -> Option<Argument> {
    let names: [&[u8]; 3] = [b"boxed", b"fbox", b"framebox"];
    let mut at = name + names.iter().find(|known| bytes[name..].starts_with(known))?.len();
    at += bytes[at..].iter().take_while(|b| b.is_ascii_whitespace()).count();
    if bytes.get(at) == Some(&b'[') {
        // A width or a position is short. Anything longer is no option of a box.
        let option = bytes[at..].iter().take(16).position(|&b| b == b']');
        at = option.filter(|_| bytes[name] == b'f').map_or(at, |close| at + close + 1);
    }
    match *bytes.get(at)? {
        b'{' => Some(Argument::Braced(at + 1)),
        b'\\' if bytes[at..].iter().take(8).any(|&b| b == b'x') => None,
        b if b.is_ascii_alphabetic() && bytes[at - 1].is_ascii_alphabetic() => None,
        b'}' | b'$' | b'.' | b',' | b'`' | b'"' => None,
        _ => {
            let rest = &bytes[at..bytes.len().min(at + 200)];
            let token = rest.iter().position(|b| b.is_ascii_whitespace()).unwrap_or(rest.len());
            let end = until_delimiter(rest).unwrap_or(token);
            Some(Argument::Bare(at..boundary(bytes, at + end)))
        }
    }
}

/// Moves back to the start of a character, because a limit in bytes may have cut it.
fn boundary(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() && bytes[at] & 0xc0 == 0x80 {
        at -= 1;
    }
    at
}

fn brace(bytes: &[u8], at: usize) -> bool {
    matches!(bytes.get(at), Some(b'{' | b'}'))
}

/// Finds the end of the surrounding mathematics on this line: `$`, `\)`, `\]` or the closing brace of a
/// surrounding group. If there is none, returns the line's end as the error.
fn until_delimiter(bytes: &[u8]) -> Result<usize, usize> {
    let (mut at, mut depth) = (0, 0u32);
    while at < bytes.len() {
        match bytes[at] {
            b'\n' => return Err(at),
            b'$' => return Ok(at),
            b'}' if depth == 0 => return Ok(at),
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b'\\' if matches!(bytes.get(at + 1), Some(b')' | b']')) => return Ok(at),
            b'\\' => at += 1,
            _ => {}
        }
        at += 1;
    }
    Err(bytes.len())
}

/// Tells whether only space, braces and delimiters stand between a box and the box inside it.
fn hollow(gap: &[u8]) -> bool {
    gap.iter().all(|b| matches!(b, b' ' | b'\n' | b'\t' | b'$' | b'{' | b'}' | b'.'))
}
