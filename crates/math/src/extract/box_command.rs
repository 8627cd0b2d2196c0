//! The command of a box, and its argument.

use std::ops::Range;

/// Argument of a box.
pub(super) enum Argument {
    /// The argument has a brace, and begins after it at this index.
    Braced(usize),
    /// The argument has no brace: `\boxed 5`.
    Bare(Range<usize>),
}

/// Tells whether the name of a box is at `name`, and finds its argument.
pub(super) fn command(bytes: &[u8], name: usize) -> Option<Argument> {
    let names: [&[u8]; 3] = [b"boxed", b"fbox", b"framebox"];
    let box_name_at = |at: usize| names.iter().find(|known| bytes[at..].starts_with(known));
    let mut position = name + box_name_at(name)?.len();
    position += bytes[position..].iter().take_while(|b| b.is_ascii_whitespace()).count();

    if bytes.get(position) == Some(&b'[') {
        // A width or a position is short. Anything longer is not an option of a box.
        let option = bytes[position..].iter().take(16).position(|&b| b == b']');
        position =
            option.filter(|_| bytes[name] == b'f').map_or(position, |close| position + close + 1);
    }

    match *bytes.get(position)? {
        b'{' => Some(Argument::Braced(position + 1)),
        b'\\' if box_name_at(position + 1).is_some() => None,
        b if b.is_ascii_alphabetic() && bytes[position - 1].is_ascii_alphabetic() => None,
        // The text only names the command.
        b'}' | b'$' | b'.' | b',' | b'`' | b'"' => None,
        _ => {
            let rest = &bytes[position..bytes.len().min(position + 200)];
            let token = rest.iter().position(|b| b.is_ascii_whitespace()).unwrap_or(rest.len());
            let end = until_delimiter(rest).unwrap_or(token);
            Some(Argument::Bare(position..boundary(bytes, position + end)))
        }
    }
}

/// Moves back to the start of a character, because a limit in bytes may have cut it.
fn boundary(bytes: &[u8], mut index: usize) -> usize {
    while index < bytes.len() && bytes[index] & 0xc0 == 0x80 {
        index -= 1;
    }
    index
}

/// Finds where the surrounding mathematics ends on this line: at `$`, `\)`, `\]` or the closing brace of a surrounding
/// group. If there is none, the line's end is the error.
pub(super) fn until_delimiter(bytes: &[u8]) -> Result<usize, usize> {
    let mut position = 0;
    let mut depth = 0u32;
    while position < bytes.len() {
        match bytes[position] {
            b'\n' => return Err(position),
            b'$' => return Ok(position),
            b'}' if depth == 0 => return Ok(position),
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b'\\' if matches!(bytes.get(position + 1), Some(b')' | b']')) => return Ok(position),
            b'\\' => position += 1,
            _ => {}
        }
        position += 1;
    }
    Err(bytes.len())
}
