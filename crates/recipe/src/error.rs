use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
};

use super::overrides::Override;

/// Why a recipe could not be used.
#[derive(Debug, thiserror::Error)]
pub enum RecipeError {
    /// The file could not be read.
    #[error("can't read the recipe {}: {error}", path.display())]
    Read {
        /// The path that was given.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A `--set` argument could not be applied.
    #[error("--set {given}: {message}")]
    Override {
        /// The argument as it was given.
        given: String,
        /// What is wrong with it.
        message: String,
        /// What to write instead.
        help: String,
    },
    /// The text is no valid recipe.
    #[error(transparent)]
    Invalid(Box<Invalid>),
}

/// A fault in a recipe, and where it is; the faults that come after it in the text as well.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {message}")]
pub struct Invalid {
    /// `file:line:column`, counted from 1; the file alone when no place in it is to blame.
    pub place: String,
    /// What was expected and what came.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    /// What the text is called: its file, and whether `--set` changed it.
    pub name: String,
    /// The effective text of the recipe.
    pub text: String,
    /// The part of `text` that is to blame, if one is.
    pub label: Option<Label>,
    /// The next faults, in the order of the text; each of them has none.
    pub more: Vec<Invalid>,
    /// How many faults there are beyond those.
    pub left: usize,
}

/// The most faults that are kept: each holds the text, and a text may be all faults.
const MOST: usize = 10;

/// Words beside a part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Bytes of the text.
    pub span: Range<usize>,
    /// A few words.
    pub words: String,
}

impl RecipeError {
    /// What to do about it, where the message does not say so by itself.
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

/// A fault that has not met its text yet.
#[derive(Debug)]
pub struct Problem {
    /// Bytes of the text that are to blame; empty when it is the whole file.
    pub span: Range<usize>,
    /// The keys that are involved, each as a path from the root.
    pub keys: Vec<Vec<String>>,
    /// What was expected and what came.
    pub message: String,
    /// A few words beside the caret.
    pub label: String,
    /// What to do about it.
    pub help: Option<String>,
}

impl Problem {
    /// What the TOML parser itself says.
    pub(crate) fn syntax(error: &toml::de::Error) -> Self {
        Problem {
            span: error.span().unwrap_or_default(),
            keys: Vec::new(),
            message: error.message().to_owned(),
            label: "here".into(),
            help: None,
        }
    }
}

/// The text that problems point into.
pub struct Text<'text> {
    name: String,
    text: &'text str,
    overrides: &'text [Override],
}

impl<'text> Text<'text> {
    /// The text of the file `name`, as it stands.
    pub fn new(name: String, text: &'text str) -> Self {
        Text { name, text, overrides: &[] }
    }

    /// The same file after `overrides`. Its lines need not be the file's, so the name says so.
    pub(crate) fn overridden(self, text: &'text str, overrides: &'text [Override]) -> Self {
        let name =
            if overrides.is_empty() { self.name } else { format!("{} (with --set)", self.name) };
        Text { name, text, overrides }
    }

    /// The error for `problem`.
    pub fn point(&self, problem: Problem) -> RecipeError {
        RecipeError::Invalid(Box::new(self.fault(problem)))
    }

    /// The error for all of `problems`, the first in the text foremost; none for none. Of several that
    /// blame the same place only the first counts: the others mostly follow from it.
    pub(crate) fn point_all(&self, mut problems: Vec<Problem>) -> Option<RecipeError> {
        problems.sort_by_key(|problem| problem.span.start);
        problems
            .dedup_by(|next, first| !next.span.is_empty() && next.span.start == first.span.start);
        let left = problems.len().saturating_sub(MOST);
        let mut faults = problems.into_iter().take(MOST).map(|problem| self.fault(problem));
        let first = faults.next()?;
        Some(RecipeError::Invalid(Box::new(Invalid { more: faults.collect(), left, ..first })))
    }

    /// Where `problem` lies. When an override set one of its keys, the message names it.
    fn fault(&self, problem: Problem) -> Invalid {
        let Problem { span, keys, mut message, label, help } = problem;
        let culprits = self.overrides.iter().filter(|set| {
            keys.iter()
                .filter(|key| !key.is_empty())
                .any(|key| key.starts_with(&set.path) || set.path.starts_with(key))
        });
        for culprit in culprits {
            message.push_str(&format!(" (set by --set {})", culprit.given));
        }
        let span = span.start.min(self.text.len())..span.end.min(self.text.len());
        let (place, label) = if span.is_empty() && label.is_empty() {
            (self.name.clone(), None)
        } else {
            let (line, column) = line_and_column(self.text, span.start);
            let place = format!("{}:{line}:{column}", self.name);
            (place, Some(Label { span, words: label }))
        };
        let (name, text) = (self.name.clone(), self.text.to_owned());
        Invalid { place, message, help, name, text, label, more: Vec::new(), left: 0 }
    }
}

/// Both counted from 1, the column in characters.
fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let head = text.get(..offset).unwrap_or(text);
    let line = head.matches('\n').count() + 1;
    let column = head.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}
