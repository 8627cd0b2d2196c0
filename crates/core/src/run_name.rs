//! The form of a run's name.

/// Checks that `name` can be the name of a run, and so of the run's folder on every system: no separators, no
/// `..`, no leading dot.
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
    } else if name.ends_with(['.', ' ']) {
        "it ends with a dot or a space"
    } else if name.chars().any(|letter| letter.is_control() || r#"/\:*?"<>|"#.contains(letter)) {
        r#"it contains one of / \ : * ? " < > | or a control character"#
    } else {
        return Ok(());
    };
    Err(RunNameError { name: name.to_owned(), why })
}

/// A text that can't be a run's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` can't be a run's name: {why}")]
pub struct RunNameError {
    /// The name that was given.
    pub name: String,
    /// The reason why the name is refused.
    pub why: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_plain_folder() {
        for good in ["addition", "gsm8k-qwen2.5-0.5b", "lauf 3", "größe"] {
            assert!(check_run_name(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a/b", r"a\b", "../x", "/etc", ".hidden", "a\0b", "c:", "x."] {
            assert!(check_run_name(bad).is_err(), "{bad}");
        }
    }
}
