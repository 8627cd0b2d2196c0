//! The syntax of a run's name.

use crate::{is_unseen, printable};

/// Checks that `name` can be the name of a run, and so of the run's folder on every system: no separators, no `..`, no
/// leading dot or dash, no name of a device, and no invisible character.
///
/// # Errors
/// Fails if `name` can't be used; the message says why.
pub fn check_run_name(name: &str) -> Result<(), RunNameError> {
    let why = if name.is_empty() {
        "it is empty"
    } else if name.len() > 128 {
        "it is longer than 128 bytes"
    } else if name.starts_with('.') {
        "it starts with a dot"
    } else if name.starts_with('-') {
        "it starts with a dash, and programs would take it for an option"
    } else if name.starts_with(char::is_whitespace) {
        "it starts with a space"
    } else if name.ends_with('.') || name.ends_with(char::is_whitespace) {
        "it ends with a dot or a space"
    } else if name.chars().any(|letter| is_unseen(letter) || r#"/\:*?"<>|"#.contains(letter)) {
        r#"it contains one of / \ : * ? " < > |, or an invisible character"#
    } else if is_device(name) {
        "Windows has a device of that name; put another letter in front"
    } else {
        return Ok(());
    };

    Err(RunNameError { name: name.to_owned(), why })
}

/// Tells whether Windows treats a name as a device, which it does with any extension, in upper or lower case.
fn is_device(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or(name).trim_end().to_uppercase();
    if ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$", "CLOCK$"].contains(&&*stem) {
        return true;
    }

    let port = stem.strip_prefix("COM").or_else(|| stem.strip_prefix("LPT"));
    // The three superscript digits count too.
    let mut digits = port.unwrap_or_default().chars();
    matches!((digits.next(), digits.next()), (Some('0'..='9' | '¹' | '²' | '³'), None))
}

/// A text that can't be a run's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` can't be a run's name: {why}", printable(name))]
pub struct RunNameError {
    /// Name that was refused.
    pub name: String,
    /// Why it was refused.
    pub why: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_plain_folder() {
        for good in [
            "addition",
            "gsm8k-qwen2.5-0.5b",
            "lauf 3",
            "größe",
            "console",
            "com",
            "com10",
            "lpt",
            "nul-1",
            "auxiliary.v2",
            "火の煉瓦",
            "x.con",
        ] {
            assert!(check_run_name(good).is_ok(), "{good}");
        }

        // Refused: each would be another folder, an option or a device somewhere.
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            r"a\b",
            "../x",
            "/etc",
            ".hidden",
            "a\0b",
            "c:",
            "x.",
            "CON",
            "NUL",
            "aux",
            "COM1",
            "con.txt",
            "Prn.tar.gz",
            "nul .txt",
            "lpt9",
            "com²",
            "conin$",
            "-rf",
            "--help",
            "-",
            "a\u{202e}b",
            "a\u{2066}b",
            "a\u{200f}b",
            "a\u{2028}b",
            "a\u{9b}b",
            "a\u{feff}",
            " a",
            "a\u{a0}",
        ] {
            let error = check_run_name(bad).unwrap_err().to_string();

            assert!(!error.chars().any(is_unseen), "{error:?}");
        }
    }
}
