//! Reads runs of letters: words, units, names of functions, or variables side by side.

use super::{Lexer, Words, letters_of};
use crate::{
    expr::Constant,
    moment,
    parse::{
        error::ParseError,
        lexicon::{self, Command},
        token::{Bracket, Token},
    },
    unit::Unit,
};

impl Lexer<'_, '_> {
    /// Reads a run of letters: a word, the name of a function, or variables side by side.
    pub(super) fn letters(&mut self) -> Result<(), ParseError> {
        let start = self.at;
        let letter = |c: char| lexicon::folded(c).is_ascii_alphabetic();
        while let Some(c) = self.peek() {
            // The point is part of an abbreviation: `a.m.` anywhere, and any other in a text.
            let point = self.rest().strip_prefix('.').is_some_and(|after| {
                let half = matches!(&self.text[start..self.at], "a" | "p" | "A" | "P")
                    && after.starts_with(['m', 'M']);
                half || self.words_until.is_some() && after.starts_with(letter)
            });
            if !letter(c) && !point {
                break;
            }
            self.at += c.len_utf8();
        }

        let run = self.text[start..self.at].chars().filter(|c| *c != '.');
        let run: String = run.map(lexicon::folded).collect();
        let adjacent = !self.spaced && self.last().is_some();

        if let Some(value) = lexicon::value(&run) {
            self.named(&run, value, adjacent);
            return Ok(());
        }

        if let Some(Words { lone_letters, .. }) = self.words_until {
            let token = match lexicon::plain(&run) {
                _ if self.is_time(&run) => Token::Word(run.into()),
                Some(token) => token,
                None if run.len() == 1 && !lone_letters => Token::Symbol(run.into()),
                None => Token::Word(run.into()),
            };
            self.push(token);
            return Ok(());
        }

        // The ending of an ordinal does not count: `5th`.
        let ordinal = matches!(&*run, "st" | "nd" | "rd" | "th") && adjacent;
        if ordinal && matches!(self.last(), Some(Token::Number { .. })) {
            return Ok(());
        }

        // `25^\circ C`
        let scale = matches!(&*run, "C" | "F") && !self.rest().starts_with(['(', '_', '^']);
        let before = self.lexemes.len().checked_sub(2).map(|at| &self.lexemes[at].token);
        if scale && (self.last() == Some(&Token::Degree) || before == Some(&Token::Degree)) {
            self.push(Token::Word(run.into()));
            return Ok(());
        }

        self.run(&run, adjacent);
        Ok(())
    }

    /// Pushes the run just read, which names a value. It is only a word if a digit is attached to it (`NaN1`) or if it
    /// could apply to the text after it (`inf A`), and three points in `∠INF`.
    fn named(&mut self, run: &str, value: Constant, adjacent: bool) {
        let capitals = run.bytes().all(|b| b.is_ascii_uppercase());
        if capitals && matches!(self.last(), Some(Token::Symbol(_))) {
            return self.product(run);
        }

        // The end of `\text{…}` does not separate the word from the text after it.
        let after = self.rest();
        let after = self.words_until.and_then(|_| after.strip_prefix('}')).unwrap_or(after);
        let touched = adjacent && matches!(self.last(), Some(Token::Number { .. }))
            || after.starts_with(|c| lexicon::folded(c).is_ascii_digit());
        let after = after.trim_start();
        let applies = after.starts_with(['(', '{', '_']) || letters_of(after).len() == 1;

        self.push(if touched || applies {
            Token::Word(run.into())
        } else {
            Token::Constant(value)
        });
    }

    /// Tells whether the `x` just read is a sign for times: `5 x 10^3`.
    fn is_times(&self, run: &str) -> bool {
        let number = matches!(self.last(), Some(Token::Number { .. }));
        let ten = self.rest().trim_start().strip_prefix("10");
        matches!(run, "x" | "X")
            && number
            && self.spaced
            && ten.is_some_and(|rest| {
                rest.starts_with(['^', '⁻', '⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'])
            })
    }

    /// Tells whether the `U` just read stands for a union: between two brackets.
    fn is_union(&self, run: &str) -> bool {
        let after = self.rest().trim_start();
        let after = after.strip_prefix("\\left").unwrap_or(after);
        run == "U"
            && matches!(self.last(), Some(Token::Close(Bracket::Round | Bracket::Square)))
            && after.starts_with(['(', '['])
    }

    /// Tells whether the run just read is a unit of time, although a function has that name too. It is one after a
    /// number or another unit, if nothing follows to which the function could apply.
    fn is_time(&self, run: &str) -> bool {
        if !matches!(run, "min" | "sec") || !(self.is_after_number() || self.is_after_unit()) {
            return false;
        }

        // A function applies to nothing outside of its group, but its own `\text{…}` is not such a group.
        let closes_words =
            self.words_until.is_some_and(|words| words.braced && words.end == self.at);
        let rest = self.rest();
        let inside = rest.strip_prefix('}').filter(|_| closes_words).unwrap_or(rest).trim_start();
        if inside.starts_with('}') {
            return true;
        }

        let after = rest.trim_start_matches(['}', ' ', '.', '$', ')']);
        let times = ["\\cdot", "\\times"].iter().any(|times| after.starts_with(times));
        times || !after.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '(' | '{' | '\\'))
    }

    /// Tells whether a unit or number precedes, with only signs that join units between: `L/`, `rev `,
    /// `\frac{\text{L}}{`.
    fn is_after_unit(&self) -> bool {
        let joins = |token: &Token| {
            matches!(
                token,
                Token::Slash
                    | Token::Times
                    | Token::Fraction
                    | Token::Open(Bracket::Group | Bracket::Round)
                    | Token::Close(Bracket::Group)
            )
        };

        let before = self.lexemes.iter().rev().find(|lexeme| !joins(&lexeme.token));
        before.is_some_and(|before| match before.token {
            Token::Word(_) | Token::Number { .. } | Token::Vulgar(_) | Token::Superscript(_) => {
                true
            }
            Token::Symbol(_) => before.upright,
            _ => false,
        })
    }

    /// Tells whether the run just read puts the number before it into a half of the day: `3:30 pm`.
    fn is_half_of_day(&self, run: &str) -> bool {
        moment::is_afternoon(run).is_some() && matches!(self.last(), Some(Token::Number { .. }))
    }

    /// Tells whether the run just read is a month next to its day or year, and not three variables.
    fn is_month(&self, run: &str) -> bool {
        let after = self.rest().strip_prefix('.').unwrap_or(self.rest());
        let day =
            after.starts_with(' ') && after.trim_start().starts_with(|c: char| c.is_ascii_digit());
        let before =
            self.spaced && matches!(self.last(), Some(Token::Number { .. } | Token::Word(_)));
        (day || before) && moment::month(run).is_some()
    }

    /// Tells whether the letter just read begins `m/s`, `m/min` or `L/min` after a number and a space, which nobody
    /// writes for variables.
    fn is_rate(&self, run: &str) -> bool {
        let per: &[&str] = match run {
            "m" => &["/s", "/min"],
            "L" => &["/min"],
            _ => return false,
        };

        let ends = |after: &str| {
            !after.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '('))
        };

        self.spaced
            && self.is_after_number()
            && per.iter().any(|per| self.rest().strip_prefix(per).is_some_and(ends))
    }

    /// Tells whether the run just read is the first word of a sentence, as in “We have $x=3$”, and not a product of `W`
    /// and `e`.
    fn opens_sentence(&self, run: &str) -> bool {
        let mut letters = run.bytes();
        let capitalised = letters.next().is_some_and(|b| b.is_ascii_uppercase())
            && letters.all(|b| b.is_ascii_lowercase());
        let next = letters_of(self.rest().trim_start());
        let word = next.len() > 1 && next.bytes().all(|b| b.is_ascii_lowercase());

        self.lexemes.is_empty()
            && run.len() > 1
            && capitalised
            && word
            && lexicon::plain(next).is_none()
    }

    /// Tells whether the run just read opens the last step of an argument, as in “So, $x=3$”, and is not a product.
    /// With a capital it needs no comma.
    fn opens_argument(&self, run: &str) -> bool {
        let after = self.rest().trim_start();
        let spaced = after.len() < self.rest().len() && !after.is_empty();
        self.lexemes.is_empty()
            && lexicon::is_opening(run)
            && (after.starts_with([',', '，']) || spaced && run.starts_with(char::is_uppercase))
    }

    /// Tells whether the `as` just read begins a closing phrase, as in “$x=3$, as required”, and is not a product.
    fn closes_argument(&self, run: &str) -> bool {
        run == "as"
            && !self.lexemes.is_empty()
            && self.rest().starts_with(' ')
            && lexicon::is_closing(letters_of(self.rest().trim_start()))
    }

    /// Tells whether an operator or relation follows the letter just read, which is then a variable.
    fn operator_follows(&self) -> bool {
        let after = self.rest().trim_start();
        let command = after.strip_prefix('\\').map(|after| lexicon::command(letters_of(after)));
        let related = matches!(command, Some(Command::Token(Token::Relation(_) | Token::In)));
        related || after.starts_with(['=', '<', '>', '^', '_', '+', '*', '/', '≤', '≥', '≠', '∈'])
    }

    fn is_after_number(&self) -> bool {
        matches!(self.last(), Some(Token::Number { .. } | Token::Close(_) | Token::Vulgar(_)))
    }

    fn run(&mut self, run: &str, adjacent: bool) {
        if self.is_times(run) {
            return self.push(Token::Times);
        }
        if self.is_union(run) {
            return self.push(Token::Union);
        }

        let unit = run == "in" && self.spaced && self.is_after_number();
        if unit || self.is_time(run) || self.is_half_of_day(run) || self.is_month(run) {
            return self.push(Token::Word(run.into()));
        }
        if self.is_rate(run) || self.opens_argument(run) || self.closes_argument(run) {
            return self.push(Token::Word(run.into()));
        }

        // The run after a word is a word too: `96 years old`, `5 miles a day`. In “we have x = 3” it is a variable.
        let after_word = self.spaced && matches!(self.last(), Some(Token::Word(_)));
        if after_word
            && lexicon::plain(run).is_none()
            && !(run.len() == 1 && self.operator_follows())
        {
            return self.push(Token::Word(run.into()));
        }

        if let Some(token) = lexicon::plain(run) {
            return self.push(token);
        }
        if self.opens_sentence(run) {
            return self.push(Token::Word(run.into()));
        }
        if run.len() == 1 {
            return self.push(Token::Symbol(run.into()));
        }

        // In `x=1orW` a conjunction swallowed its spaces.
        if adjacent
            && matches!(self.last(), Some(Token::Number { .. } | Token::Close(_)))
            && let Some((token, rest)) = conjunction(run)
            && rest.len() <= 2
        {
            self.push(token);
            return self.run(rest, false);
        }

        // A function may stick to its argument: `sinx`, `lnx`, `sinxcosx`.
        let function = (2..=6.min(run.len())).rev().find_map(|length| {
            let name = run.get(..length)?;
            let rest = run.get(length..)?;
            let known = length > 2 || name == "ln";
            let function = lexicon::function(name).filter(|_| known)?;
            (rest.len() == 1 || rest.get(1..).and_then(lexicon::plain).is_some())
                .then_some((function, rest))
        });

        if let Some((function, rest)) = function {
            self.push(Token::Function(function));
            let (letter, more) = rest.split_at(1);
            self.push(Token::Symbol(letter.into()));
            if !more.is_empty() {
                self.run(more, false);
            }
            return;
        }

        let after_number = matches!(
            self.last(),
            Some(Token::Number { .. } | Token::Close(_) | Token::Degree | Token::Vulgar(_))
        );
        // The unit `in` needs a space before it, which was tested above: `5in` is a product.
        let unit = after_number
            && run.len() > 1
            && run != "in"
            && (Unit::named(run).is_some()
                || lexicon::is_unit(run)
                || self.spaced
                    && lexicon::is_prefixed_unit(run)
                    && !self.rest().starts_with(['_', '^', '(']));

        if unit
            || lexicon::is_short_word(run)
            || lexicon::changes_meaning(run)
            || (run.len() >= 4 && !(adjacent && after_number))
        {
            return self.push(Token::Word(run.into()));
        }

        self.product(run);
    }

    /// Pushes variables side by side.
    fn product(&mut self, run: &str) {
        for letter in run.chars() {
            self.push(Token::Symbol(letter.to_string().into()));
        }
    }
}

/// Splits a run of letters into a conjunction at its beginning and the rest.
fn conjunction(run: &str) -> Option<(Token, &str)> {
    let or = run.strip_prefix("or").map(|rest| (Token::Or, rest));
    or.or_else(|| run.strip_prefix("and").map(|rest| (Token::And, rest)))
}
