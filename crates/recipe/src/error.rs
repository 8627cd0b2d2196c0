//! Errors of recipes, each with its position in the text.

use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
};

/// Reason why a recipe could not be used.
#[derive(Debug, thiserror::Error)]
pub enum RecipeError {
    /// The file could not be read.
    #[error("can't read the recipe {}: {error}", path.display())]
    Read {
        /// Path that was given.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A `--set` argument could not be applied.
    #[error("--set {given}: {message}")]
    Override {
        /// The argument as it was given.
        given: String,
        /// What is wrong with the argument.
        message: String,
        /// What to write instead, as advice.
        help: String,
    },
    /// The text is not a valid recipe.
    #[error(transparent)]
    Invalid(Box<Invalid>),
}

/// Fault in a recipe and its position, with the faults that come after it in the text.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {message}")]
pub struct Invalid {
    /// `file:line:column`, counted from 1, or the file alone if no position in it is to blame.
    pub place: String,
    /// What was expected, and what was found.
    pub message: String,
    /// Advice for fixing it.
    pub help: Option<String>,
    /// Name of the text: its file, with a note if `--set` changed it.
    pub name: String,
    /// Effective text of the recipe.
    pub text: String,
    /// Part of `text` that is to blame, if there is one.
    pub label: Option<Label>,
    /// Next faults, in the order of the text. Their own `more` is empty.
    pub more: Vec<Invalid>,
    /// Number of faults beyond these.
    pub left: usize,
}

/// Label next to a part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Bytes of that part.
    pub span: Range<usize>,
    /// A few words.
    pub words: String,
}

impl RecipeError {
    /// Returns advice, if the message does not say by itself what to do.
    pub fn help(&self) -> Option<String> {
        match self {
            RecipeError::Read { path, error } => unread(path, error.kind()),
            RecipeError::Override { help, .. } => Some(help.clone()),
            RecipeError::Invalid(fault) => fault.help.clone(),
        }
    }
}

fn unread(path: &Path, kind: io::ErrorKind) -> Option<String> {
    let endings = ["toml", "yaml", "yml"].map(|end| path.with_extension(end));
    let there = endings.iter().find(|other| other.is_file());
    Some(match (kind, there) {
        (io::ErrorKind::NotFound, Some(other)) => format!("did you mean {}?", other.display()),
        (io::ErrorKind::NotFound, None) => {
            "give the path of a recipe, relative to the current directory; `firebrick recipes` lists \
             the ones that are built in, and `firebrick init FOLDER` begins one of your own"
                .into()
        }
        (io::ErrorKind::IsADirectory, _) => {
            "that is a folder: name the .toml or .yaml file inside it".into()
        }
        (io::ErrorKind::InvalidData, _) => "a recipe is TOML or YAML, which is UTF-8 text".into(),
        _ => return None,
    })
}

/// A fault without its text.
#[derive(Debug)]
pub struct Problem {
    /// Bytes of the text that are to blame; empty if the whole file is.
    pub span: Range<usize>,
    /// Keys that are involved, each as a path from the root.
    pub keys: Vec<Vec<String>>,
    /// What was expected, and what was found.
    pub message: String,
    /// A few words next to the caret.
    pub label: String,
    /// Advice for fixing it.
    pub help: Option<String>,
}

impl Problem {
    /// Makes a problem of the TOML parser's own error in `text`.
    pub(crate) fn syntax(error: &toml::de::Error, text: &str) -> Self {
        // The parser does not say where a key has too many parts.
        if error.message().contains("recurs")
            && let Some(span) = too_deep(text)
        {
            return Problem {
                span,
                keys: Vec::new(),
                message: format!("keys or brackets are nested more than {DEEPEST} deep"),
                label: "here".into(),
                help: Some("a recipe has tables in tables, and nothing deeper".into()),
            };
        }

        Problem {
            span: error.span().unwrap_or_default(),
            keys: Vec::new(),
            message: error.message().to_owned(),
            label: "here".into(),
            help: None,
        }
    }
}

/// Advice for a path that was written with backslashes.
pub(super) const BACKSLASH: &str = "write a path in single quotes, 'C:\\new', or with `/`: in double quotes a backslash \
    begins an escape, as in `\\n` for a line break";

/// Returns that advice if the text stops being TOML after a backslash in double quotes.
pub(super) fn backslash_help(text: &str, at: usize) -> Option<String> {
    let line = text.get(..at)?.rsplit('\n').next()?;
    line.split_once('"')
        .is_some_and(|(_, inside)| inside.contains('\\'))
        .then(|| BACKSLASH.to_owned())
}

/// Maximum number of levels of brackets that the TOML parser reads. A key has fewer parts.
const DEEPEST: usize = 80;

/// Finds the first bracket, or the first key, that is nested too deeply for the TOML parser.
fn too_deep(text: &str) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let mut position = 0;
    let mut depth = 0_usize;
    let mut dots = 0;
    let mut key_start = 0;

    // Strings and comments are skipped, because brackets and dots inside them nest nothing.
    while let Some(&byte) = bytes.get(position) {
        match byte {
            b'#' => {
                position += bytes[position..]
                    .iter()
                    .position(|byte| *byte == b'\n')
                    .unwrap_or(bytes.len() - position)
            }
            b'"' | b'\'' => {
                position = end_of_string(bytes, position);
                continue;
            }
            b'[' | b'{' if depth == DEEPEST => return Some(position..position + 1),
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'.' => dots += 1,
            _ => {}
        }

        if dots == DEEPEST - 1 {
            return Some(key_start..position);
        }

        if matches!(bytes.get(position), Some(b'[' | b'{' | b']' | b'}' | b'=' | b',' | b'\n')) {
            (dots, key_start) = (0, position + 1);
        }

        position += 1;
    }
    None
}

/// Returns the position after the string that begins at `start`.
fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let quote = bytes[start];
    let long = [quote; 3];
    let is_long = bytes[start..].starts_with(&long);

    let mut end = start + if is_long { 3 } else { 1 };
    while let Some(&byte) = bytes.get(end) {
        match byte {
            b'\\' if quote == b'"' => end += 1,
            b'\n' if !is_long => return end,
            _ if is_long && bytes[end..].starts_with(&long) => return end + 3,
            _ if !is_long && byte == quote => return end + 1,
            _ => {}
        }

        end += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nested_too_deeply_is_shown_where_it_is() {
        let start_of = |text: &str| match crate::Recipe::parse(Path::new("a.toml"), text, &[]) {
            Err(RecipeError::Invalid(fault)) => {
                assert!(fault.to_string().contains("80 deep"), "{fault}");
                fault.label.unwrap().span.start
            }
            other => panic!("{other:?}"),
        };

        let before = "a = \"[[.\\\"\" # [[[\nb = '''\n[[''' \n";

        for (deep, at) in [
            (format!("c = {}", "[".repeat(100)), 4 + 80),
            (format!("c = {}", "{a=".repeat(100)), 4 + 3 * 80),
            (format!("{}c = 1", "d . ".repeat(80)), 0),
            (format!("[{}c]", "d.".repeat(90)), 1),
        ] {
            assert_eq!(start_of(&format!("{before}{deep}")), before.len() + at, "{deep}");
        }
    }
}
