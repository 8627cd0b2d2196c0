//! An error as a terminal shows it: its message, the lines of the recipe that are to blame, and help.

use std::{fmt, ops::Range};

use firebrick::{
    Error,
    recipe::{Invalid, Label, RecipeError},
};
use firebrick_core::{printable, printable_lines};
use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};

use crate::ProgramError;

/// An error as it is shown. Every message is complete, so its causes are not shown.
#[derive(Debug)]
pub struct Message {
    text: String,
    help: Option<String>,
    excerpt: Option<(NamedSource<String>, LabeledSpan)>,
    /// Further errors of the same recipe.
    more: Vec<Message>,
}

/// Largest number of characters of a line that are shown, because a file may be a single long line.
const LINE: usize = 300;

impl From<&ProgramError> for Message {
    fn from(error: &ProgramError) -> Self {
        match error {
            ProgramError::Library(Error::Recipe(RecipeError::Invalid(invalid))) => {
                let mut message = Message::of_invalid(invalid);
                message.more = invalid.more.iter().map(Message::of_invalid).collect();

                if invalid.left > 0 {
                    message.more.push(Message {
                        text: format!("faults that are not shown: {}", invalid.left),
                        help: None,
                        excerpt: None,
                        more: Vec::new(),
                    });
                }

                message
            }
            _ => Message {
                text: cut(&printable_lines(&error.to_string())),
                help: error.help().map(|help| cut(&printable_lines(&help))),
                excerpt: None,
                more: Vec::new(),
            },
        }
    }
}

impl Message {
    /// Makes the message of an error of a recipe.
    fn of_invalid(invalid: &Invalid) -> Self {
        let excerpt = invalid.label.as_ref().map(|Label { span, words }| {
            let (text, span) = around(&invalid.text, span.clone());
            let (text, span) = spelt(&text, span);
            let label =
                LabeledSpan::new_primary_with_span(Some(cut(&printable_lines(words))), span);
            (NamedSource::new(printable(&invalid.name), text), label)
        });

        let text = cut(&printable_lines(&invalid.to_string()));
        let help = invalid.help.as_deref().map(|help| cut(&printable_lines(help)));
        Message { text, help, excerpt, more: Vec::new() }
    }
}

/// Cuts the middle out of a text's long lines. Their ends stay, because an end mostly says what to do about the
/// beginning.
fn cut(text: &str) -> String {
    let line = |line: &str| {
        let at = |index: usize| line.char_indices().nth(index).map_or(line.len(), |(at, _)| at);
        let length = line.chars().count();
        let tail = LINE / 3;

        if length > LINE + tail {
            format!("{}…{}", &line[..at(LINE)], &line[at(length - tail)..])
        } else {
            line.to_owned()
        }
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Escapes what a terminal would interpret, and returns the text with the span's new range.
fn spelt(text: &str, span: Range<usize>) -> (String, Range<usize>) {
    let (Some(before), Some(within), Some(after)) =
        (text.get(..span.start), text.get(span.clone()), text.get(span.end..))
    else {
        return (printable_lines(text), 0..0);
    };

    // Editors on Windows end lines with two characters, and the first of them is not worth seeing.
    let escaped = |text: &str| printable_lines(&text.replace("\r\n", "\n"));
    let (before, within) = (escaped(before), escaped(within));

    let span = before.len()..before.len() + within.len();
    (before + &within + &escaped(after), span)
}

/// Cuts a text with long lines to the surroundings of `span`, and returns it with the span's new range. The lines
/// before the span stay, so that it keeps its line number, but long ones become empty.
fn around(text: &str, span: Range<usize>) -> (String, Range<usize>) {
    if text.get(span.clone()).is_none() {
        return (text.to_owned(), span);
    }

    let line_start = text[..span.start].rfind('\n').map_or(0, |line_end| line_end + 1);
    let line_end =
        text[span.start..].find('\n').map_or(text.len(), |line_end| span.start + line_end);
    // An ordinary text is shown as it is.
    let is_short = text.lines().all(|line| line.len() <= LINE);
    if is_short {
        return (text.to_owned(), span);
    }

    let boundary = |mut at: usize| {
        while !text.is_char_boundary(at) {
            at += 1;
        }
        at
    };

    // A quarter of the room is for the text before the span.
    let cut_start = boundary(span.start.saturating_sub(LINE / 4).max(line_start));
    let cut_end = boundary((cut_start + LINE).min(line_end)).min(line_end);
    let lines_before: String = text[..line_start]
        .split_inclusive('\n')
        .map(|line| if line.len() > LINE { "\n" } else { line })
        .collect();

    let start = lines_before.len() + span.start - cut_start;
    let length = span.end.min(cut_end).saturating_sub(span.start);
    (lines_before + &text[cut_start..cut_end], start..start + length)
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
        self.excerpt.as_ref().map(|(text, _)| text as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let spans = self.excerpt.iter().map(|(_, span)| span.clone());
        Some(Box::new(spans))
    }

    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        let more = self.more.iter().map(|message| message as &dyn Diagnostic);
        (!self.more.is_empty()).then(|| Box::new(more) as Box<dyn Iterator<Item = _>>)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_megabyte_is_shown_where_its_fault_is() {
        let long = "x".repeat(1 << 20);
        let text = format!("a = \"{long}\"\nb = \"{long}é{long}\"\nc = 1\n");
        let at = text.find('é').unwrap();
        let (shown, span) = around(&text, at..at + 'é'.len_utf8());

        assert_eq!(&shown[span.clone()], "é");
        assert_eq!(shown[..span.start].matches('\n').count(), 1);
        assert!(shown.len() < 2 * LINE, "{}", shown.len());

        assert!(cut(&format!("{long}\nno end")).chars().count() < 2 * LINE);

        for length in [0, 1, LINE, LINE + 1, LINE + LINE / 3] {
            assert_eq!(cut(&"é".repeat(length)), "é".repeat(length));
        }
        assert_eq!(cut(&"é".repeat(LINE + LINE / 3 + 1)).matches('…').count(), 1);
        assert_eq!(around("a = é", 4..6), ("a = é".to_owned(), 4..6));
    }

    #[test]
    fn a_span_stays_where_it_is_when_its_line_is_spelt_out() {
        let text = "a = \"\u{1b}[2J\"\r\nb = \u{202e}é\n";
        let at = text.find('é').unwrap();
        let (shown, span) = spelt(text, at - 3..at + 2);
        assert_eq!(&shown[span], "\\u202eé");
        assert_eq!(shown, "a = \"\\u001b[2J\"\nb = \\u202eé\n");
    }
}
