//! YAML as a tree whose nodes know their spans. Recipes and the configurations of other programs are read
//! from it.
//!
//! The module reads as much of YAML as a configuration needs: one document of mappings, sequences and scalars, with
//! texts as keys, each key once. Anchors, aliases and tags are refused where they occur, so that nothing is ever
//! expanded. The parser bounds the nesting. `scalar` decides what a scalar is, by YAML 1.2.

mod document;
mod scalar;
mod write;

use std::{borrow::Cow, collections::HashSet, ops::Range, path::Path};

use granit_parser::{
    ErrorKind, Event, Parser, ScalarStyle, ScanError, Span, StrInput, StructureStyle,
};

use super::error::{BACKSLASH, Problem};

pub(crate) use document::document;
pub use scalar::Scalar;
pub(crate) use write::to_toml;

/// Maximum number of levels of nested blocks, and of nested brackets. A recipe has five.
const MAX_DEPTH: usize = 32;

/// Returns true if a file of that name is read as YAML.
pub(crate) fn is_yaml(path: &Path) -> bool {
    path.extension()
        .is_some_and(|end| end.eq_ignore_ascii_case("yaml") || end.eq_ignore_ascii_case("yml"))
}

/// A value and its span.
#[derive(Debug)]
pub struct Node {
    /// Bytes of the value in the text. A mapping without `{…}`, or a sequence without `[…]`, has those of its
    /// first key or item.
    pub span: Range<usize>,
    /// The value.
    pub kind: Kind,
}

impl Node {
    /// Returns true if it has keys.
    pub(crate) fn is_mapping(&self) -> bool {
        matches!(self.kind, Kind::Mapping(_))
    }
}

/// Kind of a node, with its value.
#[derive(Debug)]
pub enum Kind {
    /// A number, a truth value, a text or nothing.
    Scalar(Scalar),
    /// A list.
    Sequence(Vec<Node>),
    /// Keys with their values, each key once, in the order of the text.
    Mapping(Vec<Entry>),
}

/// A key with its value.
#[derive(Debug)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Bytes of the key in the text.
    pub span: Range<usize>,
    /// The value.
    pub value: Node,
}

/// Reads the one document in `text`. Returns `None` if there are only comments.
///
/// # Errors
/// When the text is not YAML, has more in it than a configuration needs, or is nested too deeply.
pub fn parse(text: &str) -> Result<Option<Node>, Problem> {
    let options = granit_parser::options! {
        strict_indentation: true,
        disallow_directives: true,
        emit_anchor_events: true,
        emit_unresolved_aliases: true,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };

    let mut reader = Reader { text, parser: Parser::new_from_str_with_options(text, options) };
    let mut tree = None;
    let mut documents = 0;

    while let Some((event, span)) = reader.next()? {
        match event {
            Event::DocumentStart(..) if documents > 0 => {
                return Err(problem(
                    bytes(span),
                    "a second document begins, expected one",
                    "the second",
                    "keep one of them in this file",
                ));
            }
            Event::DocumentStart(..) => documents += 1,
            Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
            event => tree = Some(reader.node(event, span)?),
        }
    }

    // A document of `null` is as empty as one of comments.
    let is_nothing = |node: &Node| matches!(node.kind, Kind::Scalar(Scalar::Null));
    Ok(tree.filter(|tree| !is_nothing(tree)))
}

struct Reader<'text> {
    text: &'text str,
    parser: Parser<'text, StrInput<'text>>,
}

impl<'text> Reader<'text> {
    fn next(&mut self) -> Result<Option<(Event<'text>, Span)>, Problem> {
        self.parser.next().transpose().map_err(|error| self.syntax(&error))
    }

    /// Reads the node that `event` begins. It nests as deeply as the text, which the parser bounds.
    fn node(&mut self, event: Event<'text>, span: Span) -> Result<Node, Problem> {
        if let Some(tag) = span.tag_span() {
            return Err(problem(
                bytes(tag),
                "a tag, expected a plain value",
                "tags are not read here",
                "remove it; a text that looks like a number is written in quotes",
            ));
        }

        let start = bytes(span);

        match event {
            Event::Scalar(text, style, ..) => {
                let kind = Kind::Scalar(match style {
                    ScalarStyle::Plain => scalar::plain(&text),
                    _ => Scalar::Text(text.into_owned()),
                });
                Ok(Node { span: start, kind })
            }
            Event::SequenceStart(style, ..) => {
                let mut items = Vec::new();
                let end = loop {
                    match self.inner()? {
                        (Event::SequenceEnd, span) => break bytes(span).end,
                        (event, span) => items.push(self.node(event, span)?),
                    }
                };

                let first = items.first().map(|item: &Node| item.span.clone());
                Ok(Node {
                    span: span_of_collection(style, start, end, first),
                    kind: Kind::Sequence(items),
                })
            }
            Event::MappingStart(style, ..) => {
                let mut entries: Vec<Entry> = Vec::new();
                let mut seen_keys = HashSet::new();
                let end = loop {
                    match self.inner()? {
                        (Event::MappingEnd, span) => break bytes(span).end,
                        (event, span) => {
                            let (key, span) = self.key(event, span)?;
                            if !seen_keys.insert(key.clone()) {
                                return Err(problem(
                                    span,
                                    &format!("duplicate key `{key}`"),
                                    "the second of that name",
                                    "keep one of the two",
                                ));
                            }

                            let (event, inner) = self.inner()?;
                            let value = self.node(event, inner)?;
                            entries.push(Entry { key, span, value });
                        }
                    }
                };

                let first = entries.first().map(|entry| entry.span.clone());
                Ok(Node {
                    span: span_of_collection(style, start, end, first),
                    kind: Kind::Mapping(entries),
                })
            }
            Event::Alias(_) | Event::UnresolvedAlias(_) => Err(problem(
                start,
                "an alias, expected a value",
                "aliases are not read here",
                "write out what it stands for",
            )),
            _ => Err(problem(start, "expected a value", "here", "write a value")),
        }
    }

    fn key(&self, event: Event<'text>, span: Span) -> Result<(String, Range<usize>), Problem> {
        match event {
            Event::Scalar(key, ..) if span.tag_span().is_none() => {
                Ok((key.into_owned(), bytes(span)))
            }
            _ => Err(problem(
                bytes(span),
                "a key that is not a text",
                "expected a name",
                "write a name before the colon",
            )),
        }
    }

    /// Returns the next event inside a collection, where the text can't end. Refuses an anchor: its event
    /// comes after that of its node.
    fn inner(&mut self) -> Result<(Event<'text>, Span), Problem> {
        match self.next()? {
            Some((Event::Anchor(..), span)) => Err(problem(
                bytes(span),
                "an anchor, expected a value",
                "anchors are not read here",
                "remove it, and write the value out wherever it is meant",
            )),
            Some(next) => Ok(next),
            None => {
                let end = self.text.len();
                Err(problem(end..end, "the file ends too early", "here", "close what is open"))
            }
        }
    }

    /// Makes a problem of the parser's own error. The parser describes the commonest faults by its own
    /// internals, so other messages replace those.
    fn syntax(&self, error: &ScanError) -> Problem {
        let mut position = error.marker().byte_offset().unwrap_or(0).min(self.text.len());
        let is_tab = matches!(
            error.kind(),
            ErrorKind::TabNotAllowed
                | ErrorKind::TabInBlockIndentation
                | ErrorKind::TabInIndentation
                | ErrorKind::TabAtBlockScalarStart
                | ErrorKind::TabInPlainScalar
        );

        // The parser may have gone past the tab, or stopped at a text that the tab's line would continue.
        let line_start = self.text[..position].rfind('\n').map_or(0, |end| end + 1);
        if is_tab && !self.text[position..].starts_with('\t') {
            let tab_before =
                self.text[line_start..position].rfind('\t').map(|tab| line_start + tab);
            let tab_after = || self.text[position..].find('\t').map(|tab| position + tab);
            let next_line = || self.text[position..].find("\n\t").map(|end| position + end + 1);
            position = tab_before.or_else(next_line).or_else(tab_after).unwrap_or(position);
        }

        // The span is one character, if there is one on that line. Otherwise the caret would be nowhere.
        let width =
            self.text[position..].chars().next().filter(|c| *c != '\n').map_or(0, char::len_utf8);

        let (message, help): (Cow<'_, str>, _) = match error.kind() {
            _ if is_tab || self.text[position..].starts_with('\t') => (
                "a tab, expected spaces".into(),
                Some("indent with spaces: YAML does not allow tabs"),
            ),
            ErrorKind::RecursionLimitExceeded => (
                format!("values are nested more than {MAX_DEPTH} deep").into(),
                Some("no recipe needs that"),
            ),
            ErrorKind::DirectiveDisallowed => {
                ("a directive, expected a key".into(), Some("remove the line"))
            }
            ErrorKind::ExpectedDocumentStart => (
                "another value, expected the end of the file".into(),
                Some("a recipe in TOML has a name that ends in .toml"),
            ),
            kind => (format!("not YAML: {kind}").into(), hint(kind)),
        };

        Problem {
            span: position..position + width,
            keys: Vec::new(),
            message: message.into_owned(),
            label: "here".into(),
            help: help.map(str::to_owned),
        }
    }
}

/// Returns advice for a fault that the parser's message leaves unclear.
fn hint(kind: &ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::MappingValueNotAllowed
        | ErrorKind::SimpleKeyExpected
        | ErrorKind::InvalidSimpleKey
        | ErrorKind::InvalidColonPlacement
        | ErrorKind::ExpectedFlowMappingSeparator => {
            Some("write `key: value`, with a space after the colon; a table's key ends in a colon")
        }
        ErrorKind::UnknownQuotedScalarEscape
        | ErrorKind::InvalidQuotedScalarHexEscape
        | ErrorKind::InvalidLowSurrogateHexEscape
        | ErrorKind::InvalidUnicodeEscape => Some(BACKSLASH),
        ErrorKind::InvalidIndentation | ErrorKind::ExpectedBlockMappingKey => {
            Some("indent like the line above, and close every bracket")
        }
        _ => None,
    }
}

/// Returns the span of a collection: from bracket to bracket, or that of its first key or item.
fn span_of_collection(
    style: StructureStyle,
    start: Range<usize>,
    end: usize,
    first: Option<Range<usize>>,
) -> Range<usize> {
    match style {
        StructureStyle::Flow => start.start..end,
        StructureStyle::Block => first.unwrap_or(start),
    }
}

/// Returns the bytes of a span, which the parser knows for every event of a text.
fn bytes(span: Span) -> Range<usize> {
    span.byte_range().unwrap_or(0..0)
}

fn problem(span: Range<usize>, message: &str, label: &str, help: &str) -> Problem {
    Problem {
        span,
        keys: Vec::new(),
        message: message.to_owned(),
        label: label.to_owned(),
        help: Some(help.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that a text may hold besides one plain document is refused, at the position where it occurs.
    #[test]
    fn what_is_not_read_is_pointed_at() {
        for (text, at, words) in [
            ("a: &x 1\nb: *x\n", "&x", "an anchor"),
            ("a: &x [1]\n", "&x", "an anchor"),
            ("&x a: 1\n", "&x", "an anchor"),
            ("a: *x\n", "*x", "an alias"),
            ("a: !!int 3\n", "!!int", "a tag"),
            ("!x a: 1\n", "a", "not a text"),
            ("a: !x {b: 1}\n", "!x", "a tag"),
            ("[a]: 1\n", "[a]", "not a text"),
            ("? {a: 1}\n: 2\n", "{", "not a text"),
            ("a: 1\n'a': 2\n", "'a'", "duplicate key `a`"),
            ("a: {b: 1, b: 2}\n", "b: 2", "duplicate key `b`"),
            ("a: 1\n---\nb: 2\n", "---", "second document"),
            ("a:\n\tb: 1\n", "\t", "a tab"),
            ("a:\n  b: 1\n\tc: 1\n", "\t", "a tab"),
            ("a:\n  b: x\n\tc: 1\n", "\t", "a tab"),
            ("%YAML 1.1\n---\na: 1\n", "%", "a directive"),
        ] {
            let problem = parse(text).map(|tree| panic!("{text:?}: {tree:?}")).unwrap_err();
            assert!(problem.message.contains(words), "{text:?}: {}", problem.message);

            let found = &text[problem.span.clone()];
            assert!(found.starts_with(at) || at.starts_with(found), "{text:?}: {found:?}");
            assert!(!found.is_empty(), "{text:?}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        for deep in ["[", "{a: ", "- ", "? ", "a:\n", "[a: "] {
            let text = deep.repeat(100_000);
            assert!(parse(&text).is_err(), "{deep:?}");
        }
        let nested = |depth| {
            let lines = (0..depth).map(|level| format!("{}a:\n", " ".repeat(level)));
            lines.collect::<String>() + &" ".repeat(depth) + "1"
        };

        assert!(parse(&nested(MAX_DEPTH - 1)).is_ok());
        assert!(parse(&nested(MAX_DEPTH + 1)).unwrap_err().message.contains("nested"));
    }

    #[test]
    fn nothing_is_no_document() {
        for text in ["", "# a comment\n", "---\n", "null\n", "\u{feff}"] {
            assert!(parse(text).unwrap().is_none(), "{text:?}");
        }
    }
}
