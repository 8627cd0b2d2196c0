//! Texts from outside: UTF-8, with or without a byte-order mark.

use std::io;

/// Byte-order marks of UTF-16.
const UTF_16: [&[u8]; 2] = [b"\xff\xfe", b"\xfe\xff"];

/// Returns the bytes of a text without the byte-order mark that some editors put before the first character.
///
/// # Errors
/// Fails if the text begins as UTF-16, of which a parser would only say that it can't read the first byte.
pub fn without_bom(bytes: &[u8]) -> io::Result<&[u8]> {
    if UTF_16.iter().any(|mark| bytes.starts_with(mark)) {
        return Err(invalid("it is UTF-16 text, expected UTF-8: save it as UTF-8".into()));
    }
    Ok(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes))
}

/// Returns a text from its bytes, without a byte-order mark.
///
/// # Errors
/// Fails if the bytes are not UTF-8.
pub fn text_from(bytes: &[u8]) -> io::Result<String> {
    let text = str::from_utf8(without_bom(bytes)?).map_err(|error| {
        let byte = error.valid_up_to() + 1;
        invalid(format!("it is not UTF-8 text, at byte {byte}: save it as UTF-8"))
    })?;
    Ok(text.to_owned())
}

fn invalid(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_skipped_and_utf_16_is_named() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"a = 1", "a = 1"),
            (b"\xef\xbb\xbfa = 1", "a = 1"),
            // Only the first mark is one.
            (b"\xef\xbb\xbf\xef\xbb\xbf", "\u{feff}"),
            (b"\xef\xbb\xbf\xc3\xa9", "\u{e9}"),
        ] {
            assert_eq!(text_from(bytes).unwrap(), text, "{bytes:?}");
        }

        for (bytes, words) in [
            (&b"\xff\xfea\0"[..], "it is UTF-16 text"),
            (b"\xfe\xff\0a", "it is UTF-16 text"),
            (b"\xff\xfe", "it is UTF-16 text"),
            (b"a\xe9 = 1", "it is not UTF-8 text, at byte 2"),
            (b"\xff", "it is not UTF-8 text, at byte 1"),
        ] {
            let error = text_from(bytes).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            assert!(error.to_string().starts_with(words), "{bytes:?}: {error}");
        }
    }
}
