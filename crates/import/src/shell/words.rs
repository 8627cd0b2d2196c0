//! A script as commands, and the commands as words without their quotes.

/// A word as its pieces.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Word(pub(super) Vec<Piece>);

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Piece {
    /// Literal text.
    Text(String),
    /// `$name`, or `${name:-or}`. `quoted` is true inside `"…"`.
    Variable { name: String, or: Substitution, quoted: bool },
    /// `$((…))`, without the brackets.
    Arithmetic(String),
    /// A piece whose value only a shell knows, such as `$(…)` or `${…}`.
    Foreign(String),
}

/// What `${…}` says after the name, and for which variables.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Substitution {
    Nothing,
    /// `${name-…}`, with a colon `${name:-…}`: the value without one.
    Default(Word, Unset),
    /// `${name=…}`, `${name:=…}`: likewise, and the variable then has the value.
    Assigned(Word, Unset),
    /// `${name+…}`, `${name:+…}`: the word that replaces a value.
    Instead(Word, Unset),
}

/// Variables that count as having no value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Unset {
    /// Variables that were never set.
    Absent,
    /// Those and empty ones: the signs with a colon.
    Empty,
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
    let script = script.replace("\r\n", "\n");
    let mut reader = Reader { rest: &script, documents: Vec::new() };
    let mut commands = vec![Vec::new()];

    while let Some(c) = reader.peek() {
        match c {
            '\n' => {
                reader.line_end();
                commands.push(Vec::new());
            }
            ';' | '&' | '|' => {
                reader.skip(1);
                commands.push(Vec::new());
            }
            // None of these is part of a word.
            '#' => reader.comment(),
            '<' => reader.less_than(),
            '(' | ')' | '>' => reader.skip(1),
            c if c.is_whitespace() => reader.skip(c.len_utf8()),
            _ if reader.rest.starts_with("\\\n") => reader.skip(2),
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
    /// Last lines of the texts (`<<EOF`) that begin with the next line.
    documents: Vec<&'text str>,
}

impl<'text> Reader<'text> {
    fn of(text: &'text str) -> Self {
        Reader { rest: text, documents: Vec::new() }
    }

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

    fn comment(&mut self) {
        self.rest = self.rest.find('\n').map_or("", |end| &self.rest[end..]);
    }

    /// Skips `<`, and notes a text that begins with the next line: `<<EOF`, `<<-'EOF'`.
    fn less_than(&mut self) {
        let length = self.rest.bytes().take_while(|&b| b == b'<').count();
        self.skip(length);
        if length == 2 {
            let name = self.rest.trim_start_matches(['-', ' ', '\t', '\\', '\'', '"']);
            let is_end = |c: char| c.is_whitespace() || "'\";&|<>()".contains(c);
            let name = &name[..name.find(is_end).unwrap_or(name.len())];
            self.documents.extend((!name.is_empty()).then_some(name));
        }
    }

    /// Skips the end of a line and the texts that begin after it, which are not arguments.
    fn line_end(&mut self) {
        self.skip(1);
        for last in std::mem::take(&mut self.documents) {
            while !self.rest.is_empty() {
                let line = self.take(self.rest.find('\n').map_or(self.rest.len(), |end| end + 1));
                if line.trim() == last {
                    break;
                }
            }
        }
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
                '"' => {
                    self.skip(1);
                    self.quoted(&mut word);
                }
                '$' | '`' => {
                    let piece = self.dollar(false);
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

    /// Reads the pieces inside `"…"`, up to the end of the quotes.
    fn quoted(&mut self, word: &mut Word) {
        push(word, ""); // An empty text is a word too.

        while let Some(c) = self.peek() {
            match c {
                '"' => return self.skip(1),
                '$' | '`' => {
                    let piece = self.dollar(true);
                    add(word, piece);
                }
                '\\' if self.rest.starts_with("\\\n") => self.skip(2),
                // In quotes a backslash is literal, except before these signs.
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
    fn dollar(&mut self, quoted: bool) -> Piece {
        if self.rest.starts_with('`') {
            self.skip(1);
            return Piece::Foreign(format!("$({})", self.closed('`', quoted)));
        }
        // `$((` before `$(`, which is its beginning.
        if self.rest.starts_with("$((") {
            self.skip(3);
            let sum = self.closed(')', quoted).to_owned();
            self.skip(1);
            return Piece::Arithmetic(sum);
        }

        if self.rest.starts_with("$(") {
            self.skip(2);
            return Piece::Foreign(format!("$({})", self.closed(')', quoted)));
        }
        if self.rest.starts_with("${") {
            self.skip(2);
            return braces(self.closed('}', quoted), quoted);
        }

        // The rest is a plain name: `$name`.
        self.skip(1);
        let length =
            self.rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
        match length {
            // `$@` and the like are the script's arguments, and there are none.
            0 if self.rest.starts_with(['@', '*', '#', '?', '!']) => {
                self.skip(1);
                Piece::Text(String::new())
            }
            // `$'…'` and `$"…"` are texts.
            0 if !quoted && self.rest.starts_with(['\'', '"']) => Piece::Text(String::new()),
            0 => Piece::Text("$".into()),
            length => Piece::Variable {
                name: self.take(length).to_owned(),
                or: Substitution::Nothing,
                quoted,
            },
        }
    }

    /// Takes the text up to the sign that closes it, and skips that sign. Quotes and brackets inside are closed
    /// first, as in `"$(cd "$(dirname "$0")" && pwd)"`. A list holds them instead of a recursion, because a script
    /// may nest them a million times.
    fn closed(&mut self, close: char, quoted: bool) -> &'text str {
        let text = self.rest;

        // Each pending closing sign, and whether it is in quotes, where an apostrophe does nothing.
        let mut closers = vec![(close, quoted && close == '}')];
        let mut previous = ' ';

        while let (Some(&(close, quoted)), Some(c)) = (closers.last(), self.peek()) {
            // A sign that opens something adds the sign that closes it, and whether that one is in quotes.
            let opened = match c {
                c if c == close => {
                    closers.pop();
                    if closers.is_empty() {
                        let inside = &text[..text.len() - self.rest.len()];
                        self.skip(c.len_utf8());
                        return inside;
                    }
                    None
                }
                '\\' => {
                    self.skip(1);
                    None
                }
                '\'' if !quoted => {
                    self.skip(1);
                    self.rest = self.rest.find('\'').map_or("", |end| &self.rest[end..]);
                    None
                }
                '"' => Some(('"', true)),
                '`' => Some(('`', false)),
                '$' if self.rest.starts_with("$(") => {
                    self.skip(1);
                    Some((')', false))
                }
                '$' if self.rest.starts_with("${") => {
                    self.skip(1);
                    Some(('}', quoted))
                }
                '(' if close == ')' => Some((')', false)),
                '#' if close == ')' && previous.is_whitespace() => {
                    self.comment();
                    continue;
                }
                '<' if close == ')' => {
                    self.less_than();
                    continue;
                }
                '\n' if close == ')' => {
                    self.line_end();
                    previous = '\n';
                    continue;
                }
                _ => None,
            };

            closers.extend(opened);
            previous = c;
            let next = self.peek().map_or(0, char::len_utf8);
            self.skip(next);
        }

        text
    }
}

/// Reads the inside of `${…}`. The value after `:-` may hold at most eight more `${`, which bounds the depth.
fn braces(inside: &str, quoted: bool) -> Piece {
    let end = inside.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(inside.len());
    let (name, rest) = inside.split_at(end);
    let (unset, sign) = match rest.strip_prefix(':') {
        Some(sign) => (Unset::Empty, sign),
        None => (Unset::Absent, rest),
    };
    let variable = |or| Piece::Variable { name: name.to_owned(), or, quoted };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());

    let mut signs = sign.chars();
    match signs.next() {
        _ if !is_name(name) && !is_number(name) => {}
        None if rest.is_empty() => return variable(Substitution::Nothing),
        Some('?') => return variable(Substitution::Nothing),
        Some(sign @ ('-' | '=' | '+')) if rest.matches("${").count() <= 8 => {
            let word = word_of(signs.as_str(), quoted);
            return variable(match sign {
                '-' => Substitution::Default(word, unset),
                '=' => Substitution::Assigned(word, unset),
                _ => Substitution::Instead(word, unset),
            });
        }
        _ => {}
    }

    Piece::Foreign(format!("${{{inside}}}"))
}

/// Reads a text as one word, including the signs that would end a word elsewhere.
fn word_of(text: &str, quoted: bool) -> Word {
    let mut word = Word::default();
    let mut reader = Reader::of(text);
    while !reader.rest.is_empty() {
        if quoted {
            reader.quoted(&mut word);
            continue;
        }
        let Word(pieces) = reader.word();
        word.0.extend(pieces);
        let next = reader.peek().map_or(0, char::len_utf8);
        push(&mut word, reader.take(next));
    }

    word
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
