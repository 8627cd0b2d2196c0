//! Quotes the words of commands that a user may type again.

/// Quotes a text as one word of a command for a POSIX shell. A text without special letters stays as it is, so any
/// other shell takes it too.
pub(crate) fn word(text: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "/\\:._-+=@%,".contains(letter);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_with_a_blank_is_one_word() {
        assert_eq!(word("runs/a.b/step-000001"), "runs/a.b/step-000001");
        assert_eq!(word("my runs/it's"), r"'my runs/it'\''s'");
        assert_eq!(word(""), "''");
    }
}
