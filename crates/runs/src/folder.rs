use crate::RunError;

/// Checks that `name` can be a folder's on every system: no separators, no `..`, nothing hidden.
///
/// # Errors
/// When it can't; the message says why.
pub fn check_name(name: &str) -> Result<(), RunError> {
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
    Err(RunError::Name { name: name.to_owned(), why })
}
