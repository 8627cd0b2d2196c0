//! Boxes: `\boxed{…}`, `\fbox{…}`, `\framebox{…}`.

use std::ops::Range;

use memchr::{memchr, memchr3, memmem, memrchr};

use super::{
    blank::is_form,
    box_command::{Argument, command, until_delimiter},
    delimiters::Formulas,
    formula::Formula,
    grouping, prose, sentence, trim,
};

/// A box that isn't inside another one.
#[derive(Clone, Debug, PartialEq)]
struct Boxed {
    command: usize,
    content: Range<usize>,
    /// End of the box, its brace included.
    end: usize,
}

/// Finds the last answer in boxes, and returns the range and the text of its contents. Neighbours that [`grouping`]
/// allows are one answer.
pub(super) fn last(text: &str, within: Range<usize>) -> Option<(Range<usize>, String)> {
    let boxes = outermost(text, within.clone());
    let mut range: Option<Range<usize>> = None;
    let mut pieces: Vec<String> = vec![];
    let mut next = 0;

    // The last box counts, and those before it as long as they belong to the same answer.
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
        // Two equal boxes in a row repeat one answer.
        if pieces.last() != Some(&piece) {
            pieces.push(piece);
        }
    }

    pieces.reverse();
    Some((range?, pieces.join(", ")))
}

/// Finds the content of the box of which a text consists. Delimiters and punctuation around the box do not count.
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

    // The pass starts at the command around the first `box`, with all its backslashes.
    let mut position = (within.start + first).saturating_sub("\\frame".len()).max(within.start);
    while position > within.start && bytes[position - 1] == b'\\' {
        position -= 1;
    }

    let mut open_boxes = vec![];
    let mut stack = vec![];
    let mut closed = Vec::<Boxed>::new();
    let mut formulas: Option<Vec<Formula>> = None;

    while let Some(found) = memchr3(b'\\', b'{', b'}', &bytes[position..]) {
        position += found;
        match bytes[position] {
            b'{' => stack.push(PLAIN),
            b'}' => {
                if let Some(&(command, content)) =
                    stack.pop().and_then(|top| open_boxes.get(top as usize))
                {
                    let mut content: Range<usize> = content..position;
                    // A box that holds only a box has the content of the inner box.
                    if let Some(inner) = closed.last()
                        && inner.command >= content.start
                        && inner.end <= position
                        && hollow(&bytes[content.start..inner.command])
                        && hollow(&bytes[inner.end..position])
                    {
                        content = inner.content.clone();
                    }

                    // A box inside this one isn't outermost, and neither is one that reaches into it without braces.
                    closed.truncate(closed.partition_point(|inner| inner.end <= command));
                    closed.push(Boxed { command, content, end: position + 1 });
                }
            }

            _ => {
                let name = position + bytes[position..].iter().take_while(|&&b| b == b'\\').count();
                match command(bytes, name) {
                    Some(Argument::Braced(content)) => {
                        stack.push(open_boxes.len() as u32);
                        open_boxes.push((position, content));
                        position = content;
                    }
                    Some(Argument::Bare(content)) => {
                        let formulas = formulas
                            .get_or_insert_with(|| Formulas::new(text, within.clone()).collect());
                        if in_mathematics(text, &within, position, formulas) {
                            closed
                                .truncate(closed.partition_point(|before| before.end <= position));
                            closed.push(Boxed { command: position, end: content.end, content });
                        }
                        position = name;
                    }
                    // An odd backslash escapes a brace.
                    None => {
                        position =
                            name + usize::from((name - position) % 2 == 1 && brace(bytes, name))
                    }
                }
                continue;
            }
        }
        position += 1;
    }

    if closed.is_empty()
        && let Some(&(command, content)) =
            stack.iter().rev().find_map(|&top| open_boxes.get(top as usize))
    {
        let end = content + until_delimiter(&bytes[content..]).unwrap_or_else(|end| end);
        closed.push(Boxed { command, content: content..end, end });
    }

    closed
}

/// Tells whether a box without braces is in mathematics: in a formula, after an operator, or on a line of its own. In
/// prose `\boxed` is only the name of the command, as in “I used \boxed twice”.
fn in_mathematics(
    text: &str,
    within: &Range<usize>,
    position: usize,
    formulas: &[Formula],
) -> bool {
    let next = formulas.partition_point(|formula| formula.inner.end < position);
    if formulas.get(next).is_some_and(|formula| formula.inner.contains(&position)) {
        return true;
    }

    if text[..position].trim_end_matches(' ').ends_with(prose::operator) {
        return true;
    }

    // A line that is longer than what is read of it is prose.
    let bytes = text.as_bytes();
    let from = position.saturating_sub(LINE).max(within.start);
    let to = within.end.min(position + LINE);
    let start = memrchr(b'\n', &bytes[from..position]).map(|newline| from + newline + 1);
    let end = memchr(b'\n', &bytes[position..to]).map(|newline| position + newline);
    let start = start.or((from == within.start).then_some(from));
    let end = end.or((to == within.end).then_some(to));
    let (Some(start), Some(end)) = (start, end) else { return false };
    sentence::is_maths(text, start..end)
}

/// Bytes on both sides of a box that are read to tell a line of mathematics from prose.
const LINE: usize = 200;

fn brace(bytes: &[u8], at: usize) -> bool {
    matches!(bytes.get(at), Some(b'{' | b'}'))
}

/// Tells whether only space, braces and delimiters separate a box from the box inside it.
fn hollow(gap: &[u8]) -> bool {
    gap.iter().all(|b| matches!(b, b' ' | b'\n' | b'\t' | b'$' | b'{' | b'}' | b'.'))
}
