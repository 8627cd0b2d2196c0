//! A script as commands, and the commands as words without their quotes.

/// A word, as the pieces that it is put together from.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Word(pub(super) Vec<Piece>);

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Piece {
    /// Text as it stands.
    Text(String),
    /// `$name`, or `${name:-or}`. `quoted` is true inside `"…"`.
    Variable { name: String, or: Option<Word>, quoted: bool },
    /// `$((…))`, without the brackets.
    Arithmetic(String),
    /// A piece whose value only a shell knows, as `$(…)` or `${…}`.
    Foreign(String),
}

impl Word {
    /// Returns the word, if nothing in it has to be filled in.
    pub(super) fn plain(&self) -> Option<&str> {
        match self.0.as_slice() {
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Returns the text before the first `=` and the word after it.
    fn split_at_equals(&self) -> Option<(String, Word)> {
        let Some((Piece::Text(first), rest)) = self.0.split_first() else { return None };
        let (key, value) = first.split_once('=')?;
        let value = [Piece::Text(value.to_owned())].into_iter().chain(rest.iter().cloned());
        Some((key.to_owned(), Word(value.collect())))
    }

    /// Returns the name and the value of `name=value`. The name in `name+=value` keeps its sign.
    pub(super) fn assignment(&self) -> Option<(String, Word)> {
        let is_ours = |name: &str| is_name(name.strip_suffix('+').unwrap_or(name));
        self.split_at_equals().filter(|(name, _)| is_ours(name))
    }
}

/// Returns the commands of a script. Every sign that may end a command ends it here, whatever it means to a shell.
pub(super) fn commands(script: &str) -> Vec<Vec<Word>> {
    let mut reader = Reader { rest: script };
    let mut commands = vec![Vec::new()];
    while let Some(c) = reader.peek() {
        match c {
            '\n' | ';' | '&' | '|' => {
                reader.skip(1);
                commands.push(Vec::new());
            }
            '#' => reader.rest = reader.rest.find('\n').map_or("", |end| &reader.rest[end..]),
            '(' | ')' | '<' | '>' => reader.skip(1),
            c if c.is_whitespace() => reader.skip(c.len_utf8()),
            _ if reader.rest.starts_with("\\\n") => reader.skip(2),
            _ if reader.rest.starts_with("\\\r\n") => reader.skip(3),
            _ => {
                let word = reader.word();
                if let Some(command) = commands.last_mut() {
                    command.push(word);
                }
            }
        }
    }
    commands
}

struct Reader<'text> {
    rest: &'text str,
}

impl<'text> Reader<'text> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    fn take(&mut self, bytes: usize) -> &'text str {
        let (taken, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    fn word(&mut self) -> Word {
        let mut word = Word::default();
        while let Some(c) = self.peek() {
            match c {
                '\'' => {
                    self.skip(1);
                    let end = self.rest.find('\'').unwrap_or(self.rest.len());
                    let text = self.take(end);
                    self.skip(1);
                    push(&mut word, text);
                }
                '"' => self.quoted(&mut word),
                '$' | '`' => {
                    let piece = self.dollar();
                    add(&mut word, piece);
                }
                // The shell joins the lines, also in the middle of a word.
                '\\' if self.rest.starts_with("\\\n") => self.skip(2),
                '\\' => {
                    self.skip(1);
                    let next = self.peek().map_or(0, char::len_utf8);
                    let text = self.take(next);
                    push(&mut word, text);
                }
                '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>' => break,
                c if c.is_whitespace() => break,
                c => {
                    let text = self.take(c.len_utf8());
                    push(&mut word, text);
                }
            }
        }
        word
    }

    /// Reads the pieces inside `"…"`.
    fn quoted(&mut self, word: &mut Word) {
        self.skip(1);
        push(word, ""); // An empty text is a word too.
        while let Some(c) = self.peek() {
            match c {
                '"' => return self.skip(1),
                '$' | '`' => {
                    let mut piece = self.dollar();
                    if let Piece::Variable { quoted, .. } = &mut piece {
                        *quoted = true;
                    }
                    add(word, piece);
                }
                '\\' if self.rest.starts_with("\\\n") => self.skip(2),
                '\\' if self.rest[1..].starts_with(['"', '\\', '$', '`']) => {
                    self.skip(1);
                    let text = self.take(1);
                    push(word, text);
                }
                c => {
                    let text = self.take(c.len_utf8());
                    push(word, text);
                }
            }
        }
    }

    /// Reads the piece that begins with `$` or a backquote.
    fn dollar(&mut self) -> Piece {
        if self.rest.starts_with('`') {
            self.skip(1);
            let end = self.rest.find('`').unwrap_or(self.rest.len());
            let code = self.take(end).to_owned();
            self.skip(1);
            return Piece::Foreign(format!("$({code})"));
        }
        if self.rest.starts_with("$((") {
            self.skip(3);
            // The first bracket that closes none inside ends the sum.
            let mut open = 0usize;
            let ends = |letter: char| match letter {
                '(' => {
                    open += 1;
                    false
                }
                ')' if open > 0 => {
                    open -= 1;
                    false
                }
                letter => letter == ')',
            };
            let end = self.rest.find(ends).unwrap_or(self.rest.len());
            let sum = self.take(end).to_owned();
            self.skip(2);
            return Piece::Arithmetic(sum);
        }
        if self.rest.starts_with("$(") {
            self.skip(2);
            let end = self.rest.find(')').unwrap_or(self.rest.len());
            let code = self.take(end).to_owned();
            self.skip(1);
            return Piece::Foreign(format!("$({code})"));
        }
        if self.rest.starts_with("${") {
            self.skip(2);
            let inside = self.take(closing(self.rest));
            self.skip(1);
            return braces(inside);
        }
        self.skip(1);
        let length =
            self.rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
        match length {
            // `$@` and its like stand for the script's arguments, and there are none.
            0 if self.rest.starts_with(['@', '*', '#', '?', '!']) => {
                self.skip(1);
                Piece::Text(String::new())
            }
            0 => Piece::Text("$".into()),
            length => {
                Piece::Variable { name: self.take(length).to_owned(), or: None, quoted: false }
            }
        }
    }
}

/// Returns the place of the `}` that closes a bracket opened before `text`.
fn closing(text: &str) -> usize {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => return at,
            '}' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

/// Reads the inside of `${…}`. The value after `:-` may have at most eight more `${` in it, which bounds the
/// depth.
fn braces(inside: &str) -> Piece {
    let end = inside.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(inside.len());
    let (name, rest) = inside.split_at(end);
    let otherwise = [":-", "-", ":=", "="].iter().find_map(|sign| rest.strip_prefix(sign));
    match (is_name(name), rest, otherwise) {
        (true, "", _) => Piece::Variable { name: name.to_owned(), or: None, quoted: false },
        (true, _, Some(or)) if or.matches("${").count() <= 8 => {
            let mut word = Word::default();
            let mut reader = Reader { rest: or };
            while !reader.rest.is_empty() {
                let Word(pieces) = reader.word();
                word.0.extend(pieces);
                // A sign that would end a word elsewhere is part of this one.
                let next = reader.peek().map_or(0, char::len_utf8);
                push(&mut word, reader.take(next));
            }
            Piece::Variable { name: name.to_owned(), or: Some(word), quoted: false }
        }
        _ => Piece::Foreign(format!("${{{inside}}}")),
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn add(word: &mut Word, piece: Piece) {
    match piece {
        Piece::Text(text) => push(word, &text),
        piece => word.0.push(piece),
    }
}

fn push(word: &mut Word, text: &str) {
    match word.0.last_mut() {
        Some(Piece::Text(last)) => last.push_str(text),
        _ => word.0.push(Piece::Text(text.to_owned())),
    }
}
