//! Text of a recipe, and the errors that point into it.

use super::{
    error::{Invalid, Label, Problem, RecipeError},
    overrides::Override,
};

/// Text that problems point into.
pub struct Text<'text> {
    name: String,
    text: &'text str,
    overrides: &'text [Override],
}

impl<'text> Text<'text> {
    /// Makes the text of the file `name`, unchanged.
    pub fn new(name: String, text: &'text str) -> Self {
        Text { name, text, overrides: &[] }
    }

    /// Returns the file's text after `overrides`. Its lines may differ from the file's, so the name mentions
    /// `--set`.
    pub(crate) fn overridden(self, text: &'text str, overrides: &'text [Override]) -> Self {
        let name =
            if overrides.is_empty() { self.name } else { format!("{} (with --set)", self.name) };
        Text { name, text, overrides }
    }

    /// Returns the error for `problem`.
    pub fn point(&self, problem: Problem) -> RecipeError {
        RecipeError::Invalid(Box::new(self.locate(problem)))
    }

    /// Returns the error for all of `problems`, led by the first in the text, or `None` if there are none. If
    /// several problems blame the same position, only the first counts, because the others mostly follow from
    /// it.
    pub(crate) fn point_all(&self, mut problems: Vec<Problem>) -> Option<RecipeError> {
        problems.sort_by_key(|problem| problem.span.start);
        problems
            .dedup_by(|next, first| !next.span.is_empty() && next.span.start == first.span.start);

        let left = problems.len().saturating_sub(MOST);
        let mut errors = problems.into_iter().take(MOST).map(|problem| self.locate(problem));
        // The error for the recipe is the first one, with the others in it.
        let first = errors.next()?;
        Some(RecipeError::Invalid(Box::new(Invalid { more: errors.collect(), left, ..first })))
    }

    /// Locates `problem`. If an override set one of the problem's keys, the message names the override.
    fn locate(&self, problem: Problem) -> Invalid {
        let Problem { span, keys, mut message, label, help } = problem;
        // An override of a table sets its keys, and an override of a key sets a part of its table.
        let culprits = self.overrides.iter().filter(|set| {
            keys.iter()
                .filter(|key| !key.is_empty())
                .any(|key| key.starts_with(&set.path) || set.path.starts_with(key))
        });

        for culprit in culprits {
            message.push_str(&format!(" (set by --set {})", culprit.given));
        }

        // A span outside the text could not be shown.
        let span = span.start.min(self.text.len())..span.end.min(self.text.len());
        let (place, label) = if span.is_empty() && label.is_empty() {
            (self.name.clone(), None)
        } else {
            let (line, column) = line_and_column(self.text, span.start);
            let place = format!("{}:{line}:{column}", self.name);
            (place, Some(Label { span, words: label }))
        };

        let name = self.name.clone();
        let text = self.text.to_owned();
        Invalid { place, message, help, name, text, label, more: Vec::new(), left: 0 }
    }
}

/// Maximum number of faults that are kept. Each fault holds the text, and a text may be full of faults.
const MOST: usize = 10;

/// Returns the line and the column of a byte, both counted from 1, the column in characters.
fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let head = text.get(..offset).unwrap_or(text);
    let line = head.matches('\n').count() + 1;
    let column = head.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}
