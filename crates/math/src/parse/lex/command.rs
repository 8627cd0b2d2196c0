//! Reads LaTeX's commands and their arguments.

use super::{Lexer, Words, letters_of};
use crate::parse::{
    error::ParseError,
    lexicon::{self, Command},
    token::{Bracket, Token},
};

impl<'a> Lexer<'a, '_> {
    pub(super) fn command(&mut self) -> Result<(), ParseError> {
        let rest = self.rest();
        // JSON and Python leave doubled backslashes, although in a matrix two backslashes end a row.
        if let Some(after) = rest.strip_prefix("\\\\") {
            let name = letters_of(after);
            let known = !name.is_empty() && !matches!(lexicon::command(name), Command::Unknown);
            let sign = after.starts_with(['{', '}', '%', ',', '!', ';', '(', ')', '[', ']']);
            if self.matrices == 0 && (known || sign) {
                self.at += 1;
                return self.command();
            }

            self.at += 2;
            match (self.matrices, self.cases) {
                (0, 0) if self.equation_follows() => self.push(Token::Comma),
                (0, 0) => self.spaced = true,
                (0, _) => self.push(Token::Comma),
                _ => {
                    self.push(Token::Row);
                    self.at += skip_of(self.rest());
                }
            }
            return Ok(());
        }

        let after = &rest[1..];
        let mut name = letters_of(after);
        if name.is_empty() {
            name = after.chars().next().map_or("", |c| &after[..c.len_utf8()]);
            // `\(…\)` and `\[…\]` delimit a formula, as dollars do.
            if matches!(name, "(" | ")" | "[" | "]" | "\n" | "") {
                self.at += 1 + name.len();
                self.spaced = true;
                return Ok(());
            }
        }

        let mut command = lexicon::command(name);
        if matches!(command, Command::Unknown) {
            // In `\quadx` and `\cdotx` a command swallowed the letters after it.
            const PREFIXES: [&str; 9] =
                ["qquad", "quad", "cdot", "times", "left", "right", "pi", "pm", "mp"];
            let found = PREFIXES.iter().find(|prefix| name.starts_with(**prefix));
            let Some(prefix) = found.filter(|_| !name.ends_with("arrow") && name != "pmod") else {
                return self.named_command(name);
            };
            name = prefix;
            command = lexicon::command(name);
        }

        self.at += 1 + name.len();
        match command {
            Command::Token(token) => {
                // Without a caret `\circ` composes functions, which are not read.
                if name == "circ"
                    && !matches!(self.last(), Some(Token::Caret | Token::Open(Bracket::Group)))
                {
                    return Err(ParseError::Command(name.into()));
                }
                self.push(token);
            }
            Command::Nothing if matches!(name, "quad" | "qquad") && self.statement_follows() => {
                self.push(Token::Comma);
            }

            Command::Nothing => {
                self.spaced = true;
                // `\left.` and `\right.` set no bracket.
                if matches!(name, "left" | "right" | "middle")
                    && self.rest().trim_start().starts_with('.')
                {
                    self.at += self.rest().find('.').map_or(0, |at| at + 1);
                }
            }
            Command::NothingWith => {
                self.at += self.argument().map_or(0, |(_, end)| end);
                self.spaced = true;
            }

            Command::Text | Command::Upright => {
                self.words(matches!(command, Command::Text), name == "rm");
            }
            Command::Coloured => self.at += self.argument().map_or(0, |(_, end)| end),
            Command::Transparent => {}
            Command::Accent => return self.accent(name),
            Command::Begin | Command::End => return self.environment(name == "begin"),
            Command::Unknown => return Err(ParseError::Command(name.into())),
        }

        Ok(())
    }

    /// Tells whether a wide space separates a value from a statement: `f(n)=n \quad n\ge1`. Otherwise they would be a
    /// product.
    fn statement_follows(&self) -> bool {
        let start: String = self.rest().trim_start().chars().take(40).collect();
        let mut parts = start.split(['\\', ',']);
        let start = parts.next().unwrap_or_default();
        let command = parts.next();
        let begins = start.starts_with(|c: char| c.is_alphanumeric());

        let relation = |command: &str| {
            matches!(
                lexicon::command(letters_of(command)),
                Command::Token(Token::Relation(_) | Token::In)
            )
        };
        let signs = ['=', '<', '>', '≤', '≥', '≠', '∈'];
        let related = start.contains(signs) || command.is_some_and(relation);

        let ends_value = !matches!(
            self.last(),
            None | Some(
                Token::Comma
                    | Token::Semicolon
                    | Token::And
                    | Token::Or
                    | Token::Open(_)
                    | Token::Word(_)
            )
        );

        self.brackets + self.matrices == 0 && ends_value && begins && related
    }

    /// Tells whether the next line is a separate equation: `x=1\\y=2`.
    fn equation_follows(&self) -> bool {
        let line = self.rest().split("\\\\").next().unwrap_or_default().trim_start();
        let start: String = line.chars().take(40).collect();
        start.find('=').is_some_and(|at| start[..at].contains(char::is_alphanumeric))
    }

    /// Reads a command that needs more than its name: `\mathbb{R}`, `\pmod{7}`, `\not=`.
    fn named_command(&mut self, name: &str) -> Result<(), ParseError> {
        self.at += 1 + name.len();
        match name {
            "mathbb" | "Bbb" | "mathcal" | "mathscr" | "mathfrak" => {
                let space = self.rest().len() - self.rest().trim_start().len();
                let letter = self.rest().get(space..space + 1).map(|letter| (letter, space + 1));
                let (argument, end) = self.argument().or(letter).unwrap_or(("", 0));
                let mut letters = argument.trim().chars();
                let (Some(letter), None) = (letters.next(), letters.next()) else {
                    return Err(ParseError::Command(name.into()));
                };

                self.at += end;
                let token = match lexicon::named_set(letter) {
                    Some(set) if matches!(name, "mathbb" | "Bbb") => Token::NamedSet(set),
                    _ => Token::Symbol(letter.to_string().into()),
                };
                self.push(token);
                Ok(())
            }

            "not" if self.rest().trim_start().starts_with('=') => {
                self.at += self.rest().find('=').map_or(0, |at| at + 1);
                self.push(Token::Relation(crate::value::Relation::NotEqual));
                Ok(())
            }

            "pmod" => {
                self.push(Token::Modulo);
                Ok(())
            }
            _ => Err(ParseError::Command(name.into())),
        }
    }

    /// Reads an accent. A letter with an accent is a separate name, while capital letters under a line are a segment.
    fn accent(&mut self, name: &str) -> Result<(), ParseError> {
        let rest = self.rest().trim_start();
        let skipped = self.rest().len() - rest.len();
        let (argument, length) = match self.argument() {
            Some(argument) => argument,
            None => (rest.get(..1).unwrap_or(""), skipped + 1),
        };

        let argument = argument.trim();
        if argument.len() == 1 && argument.bytes().all(|b| b.is_ascii_alphabetic()) {
            self.at += length;
            self.push(Token::Symbol(format!("{argument} {name}").into()));
            return Ok(());
        }

        let segment = !argument.is_empty() && argument.bytes().all(|b| b.is_ascii_uppercase());
        if segment { Ok(()) } else { Err(ParseError::Command(name.into())) }
    }

    /// Enters `\text{…}`, in which letters are words up to its closing brace. Without braces `\rm` sets all that
    /// follows in its group, while other commands set one letter.
    fn words(&mut self, lone_letters: bool, is_switch: bool) {
        if let Some((_, length)) = self.argument() {
            let end = self.at + length - 1;
            self.at += self.rest().find('{').map_or(0, |open| open + 1);
            self.words_until = Some(Words { end, lone_letters, braced: true });
        } else {
            let rest = self.rest();
            self.at += rest.len() - rest.trim_start().len();
            let rest = self.rest();

            let letter = letters_of(rest).len().min(1);
            let length = if is_switch { self.end_of_group() } else { letter };
            let end = self.at + length;
            self.words_until = Some(Words { end, lone_letters, braced: false });

            if !is_switch && letter == 1 {
                self.at = end;
                let name = rest[..1].into();
                self.push(if lone_letters { Token::Word(name) } else { Token::Symbol(name) });
            }
        }

        self.spaced = true;
    }

    /// Returns the content of the next braces, and the length up to their end.
    fn argument(&mut self) -> Option<(&'a str, usize)> {
        let rest = self.rest();
        let open = rest.len() - rest.trim_start().len();
        let inside = rest[open..].strip_prefix('{')?;
        let close = self.closing_brace(inside)?;
        Some((&inside[..close], open + 1 + close + 1))
    }

    /// Returns the length of the text up to the brace that closes the group around it, or to the end of the text.
    fn end_of_group(&mut self) -> usize {
        let rest = self.rest();
        self.closing_brace(rest).unwrap_or(rest.len())
    }

    /// Finds the first brace that closes more than was opened in `text`.
    fn closing_brace(&mut self, text: &str) -> Option<usize> {
        let mut depth = 0_usize;
        let mut escaped = false;
        for (at, byte) in text.bytes().enumerate() {
            // Arguments inside arguments are read repeatedly, which is charged to the budget.
            if at % 64 == 0 && self.budget.spend(8).is_err() {
                return None;
            }

            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'{' => depth += 1,
                b'}' if depth == 0 => return Some(at),
                b'}' => depth -= 1,
                _ => {}
            }
        }
        None
    }

    fn environment(&mut self, begins: bool) -> Result<(), ParseError> {
        let Some((name, length)) = self.argument() else {
            return Err(ParseError::Command("begin".into()));
        };
        self.at += length;
        let braced = self.last() == Some(&Token::Open(Bracket::Curly));

        match name.trim_end_matches('*') {
            "array" | "aligned" | "matrix" if begins && braced => {
                // In `\left\{\begin{array}…\end{array}\right.` the array is a system whose brace has no partner.
                if name == "array" {
                    self.at += self.argument().map_or(0, |(_, end)| end);
                }
                self.lexemes.pop();
                self.brackets = self.brackets.saturating_sub(1);
                self.cases += 1;
                self.spaced = true;
                Ok(())
            }

            "array" | "aligned" | "matrix" if !begins && self.cases > 0 && self.matrices == 0 => {
                self.cases -= 1;
                self.spaced = true;
                Ok(())
            }
            "cases" => {
                self.cases = if begins { self.cases + 1 } else { self.cases.saturating_sub(1) };
                self.spaced = true;
                Ok(())
            }

            "pmatrix" | "bmatrix" | "matrix" | "Bmatrix" | "smallmatrix" | "array" => {
                if begins {
                    // These are the columns of an array: `{cc|c}`.
                    if name == "array" {
                        self.at += self.argument().map_or(0, |(_, end)| end);
                    }
                    self.matrices += 1;
                    self.push(Token::BeginMatrix);
                } else {
                    self.matrices = self.matrices.saturating_sub(1);
                    self.push(Token::EndMatrix);
                }
                Ok(())
            }

            "equation" | "align" | "aligned" | "gather" | "math" | "displaymath" => {
                self.spaced = true;
                Ok(())
            }
            other => Err(ParseError::Command(format!("begin{{{other}}}").into())),
        }
    }
}

/// Returns the length of the distance to the next row, such as `[4pt]`, that may stand after `\\`.
fn skip_of(text: &str) -> usize {
    const UNITS: [&str; 8] = ["pt", "em", "ex", "mm", "cm", "in", "mu", "px"];

    let length = text.strip_prefix('[').and_then(|rest| Some(rest.split_once(']')?.0));
    let number = length.and_then(|length| {
        UNITS.iter().find_map(|unit| length.trim().strip_suffix(unit)).map(str::trim)
    });
    let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b"+-.".contains(&b));

    match (length, number) {
        (Some(length), Some(number)) if is_number(number) => length.len() + 2,
        _ => 0,
    }
}
