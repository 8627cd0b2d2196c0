//! An error as a terminal shows it: its message, the place in the recipe that is to blame, and help.

use std::fmt;

use firebrick::{Error, recipe::RecipeError};
use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};

use crate::ProgramError;

/// An error as it is shown. Every message is complete, so its causes are not shown.
#[derive(Debug)]
pub struct Message {
    text: String,
    help: Option<String>,
    place: Option<(NamedSource<String>, LabeledSpan)>,
}

impl From<&ProgramError> for Message {
    fn from(error: &ProgramError) -> Self {
        let place = match error {
            ProgramError::Library(Error::Recipe(RecipeError::Invalid(fault))) => {
                fault.label.as_ref().map(|label| {
                    let words = Some(label.words.clone());
                    let span = LabeledSpan::new_primary_with_span(words, label.span.clone());
                    (NamedSource::new(&fault.name, fault.text.clone()), span)
                })
            }
            _ => None,
        };
        Message { text: error.to_string(), help: error.help(), place }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Message {}

impl Diagnostic for Message {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.place.as_ref().map(|(text, _)| text as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let spans = self.place.iter().map(|(_, span)| span.clone());
        Some(Box::new(spans))
    }
}
