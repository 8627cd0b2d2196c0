//! The program in a completion.

/// How a completion has its program.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Extraction {
    /// Names that may stand after the opening fence.
    pub(super) languages: Vec<String>,
    /// True if the whole text is the program.
    pub(super) bare: bool,
}

impl Extraction {
    /// Returns the program: the last block between fences, such as ```` ```python ````, of one of the languages or of none,
    /// after the thoughts. A block of the languages comes before one of none, and the end of the text closes a block.
    pub(super) fn find(&self, text: &str) -> Option<String> {
        const OPEN: &str = "<think>";
        const CLOSE: &str = "</think>";
        let answer = match text.rfind(CLOSE) {
            Some(at) => &text[at + CLOSE.len()..],
            // Thoughts without an end are not followed by an answer.
            None if text.contains(OPEN) => return None,
            None => text,
        };
        let program = if self.bare { Some(answer.to_owned()) } else { self.last_block(answer) };
        program.filter(|program| !program.trim().is_empty())
    }

    fn last_block(&self, answer: &str) -> Option<String> {
        let (mut named, mut unnamed) = (None, None);
        let mut open: Option<(Fence<'_>, String)> = None;
        let mut keep = |fence: &Fence<'_>, block: String| {
            let is_wanted = |name: &String| name.eq_ignore_ascii_case(fence.language);
            if fence.language.is_empty() {
                unnamed = Some(block);
            } else if self.languages.iter().any(is_wanted) {
                named = Some(block);
            }
        };

        for line in answer.split_inclusive('\n') {
            let fence = Fence::of(line);
            match (&mut open, fence) {
                (Some((opened, block)), Some(fence)) if fence.closes(opened) => {
                    keep(opened, std::mem::take(block));
                    open = None;
                }
                (Some((opened, block)), _) => *block += opened.without_indent(line),
                (None, Some(fence)) => open = Some((fence, String::new())),
                (None, None) => {}
            }
        }
        if let Some((opened, block)) = open {
            keep(&opened, block);
        }

        named.or(unnamed)
    }
}

/// A line that opens or closes a block.
#[derive(Clone, Copy)]
struct Fence<'text> {
    /// White space before it, which a list has and its blocks have too.
    indent: usize,
    mark: char,
    length: usize,
    /// The first word after it.
    language: &'text str,
}

impl<'text> Fence<'text> {
    fn of(line: &'text str) -> Option<Self> {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let line = line.trim();
        let mark = line.chars().next().filter(|mark| ['`', '~'].contains(mark))?;
        let rest = line.trim_start_matches(mark);
        let length = line.len() - rest.len();
        let language = rest.split_whitespace().next().unwrap_or_default();
        (length >= 3 && !rest.contains('`')).then_some(Fence { indent, mark, length, language })
    }

    fn closes(&self, opened: &Fence<'_>) -> bool {
        self.mark == opened.mark && self.length >= opened.length && self.language.is_empty()
    }

    fn without_indent<'line>(&self, line: &'line str) -> &'line str {
        let spaces = line.len() - line.trim_start_matches(' ').len();
        &line[spaces.min(self.indent)..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_block_of_the_language_is_the_program() {
        let extraction = Extraction { languages: vec!["python".into(), "py".into()], bare: false };
        for (text, program) in [
            ("```python\nx = 1\n```", Some("x = 1\n")),
            ("So:\n```python\nx = 1\n```\nor\n```py\nx = 2\n```\nDone.", Some("x = 2\n")),
            ("```Python title=\"a\"\r\nx = 1\r\n```\r\n", Some("x = 1\r\n")),
            ("```\nx = 1\n```", Some("x = 1\n")),
            // An example of its output is not the program.
            ("```python\nx = 1\n```\nIt prints\n```\n1\n```", Some("x = 1\n")),
            ("```sh\npython3 a.py\n```\n", None),
            // A block may be the last word, or hold shorter fences.
            ("```python\nx = 1", Some("x = 1")),
            ("````python\nx = '''\n```\n'''\n````", Some("x = '''\n```\n'''\n")),
            ("~~~python\nx = 1\n~~~", Some("x = 1\n")),
            ("1. Do:\n   ```python\n   x = 1\n   ```", Some("x = 1\n")),
            // Thoughts are no answers.
            ("<think>```python\nx = 1\n```</think>\n```python\nx = 2\n```", Some("x = 2\n")),
            ("<think>\n```python\nx = 1\n```", None),
            ("```python\nx = 1\n```\n</think> So it is 1.", None),
            ("x = 1", None),
            ("```python\n\n```", None),
            ("", None),
        ] {
            assert_eq!(extraction.find(text).as_deref(), program, "{text:?}");
        }

        let bare = Extraction { bare: true, ..extraction };
        assert_eq!(bare.find("<think>hm</think>x = 1").as_deref(), Some("x = 1"));
        assert_eq!(bare.find(" \n"), None);
    }
}
