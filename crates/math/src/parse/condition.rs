//! Quantifiers and conditions after an answer: `for all n ≥ 1`, `where c is a constant`, `(x > 0)`.
//!
//! They say where the answer holds and are not part of it, so they are skipped. An answer that depends on them is not
//! read: one of several cases, or a formula whose letter gets its value only there.

use super::{
    Lexeme, ParseError, Parser,
    token::{Bracket, Token},
};
use crate::value::{NamedSet, Relation, Value};

impl Parser<'_> {
    /// Skips the rest of the text if it is a condition.
    pub(super) fn condition(&mut self, items: &[Value]) -> Result<(), ParseError> {
        if self.at == self.lexemes.len() || !self.begins_condition(self.at) {
            return Ok(());
        }

        // Words are an answer only together with their condition: `yes, if n is odd`.
        if items.iter().any(|item| matches!(item, Value::Text(_))) {
            return Err(self.misplaced());
        }

        let (answer, mut rest) = self.lexemes.split_at(self.at);
        if rest[0].token == Token::Open(Bracket::Round) {
            let Some((last, inside)) = rest[1..].split_last() else { return Err(self.misplaced()) };
            if last.token != Token::Close(Bracket::Round) {
                return Err(self.misplaced());
            }
            rest = inside;
        }

        // Only separators outside of brackets split the condition.
        let mut depth = 0_usize;
        let parts = rest.split(|lexeme| {
            match lexeme.token {
                Token::Open(_) => depth += 1,
                Token::Close(_) => depth = depth.saturating_sub(1),
                _ => {}
            }
            let separates =
                matches!(lexeme.token, Token::Comma | Token::Semicolon | Token::And | Token::Or);
            separates && depth == 0
        });

        let has_dots = rest.iter().any(|lexeme| lexeme.token == Token::Symbol("…".into()));
        let mut range = false;
        for part in parts {
            let conditional = is_condition(part, answer, has_dots, &mut range);
            if !conditional {
                return Err(self.misplaced());
            }
        }

        self.at = self.lexemes.len();
        Ok(())
    }

    /// Tells whether a condition begins at token `at`, with a word or as a relation in its own brackets.
    pub(super) fn begins_condition(&self, index: usize) -> bool {
        let Some(lexeme) = self.lexemes.get(index) else { return false };
        match &lexeme.token {
            Token::Word(word) => {
                let next = self.lexemes.get(index + 1);
                let bound = next.is_some_and(|next| {
                    matches!(&next.token, Token::Word(word) if matches!(&**word, "least" | "most"))
                });
                begins(word) && !bound
            }
            // A set such as `\mathbb{N}^*` is not read as a value, so `, n \in \mathbb{N}^*` is a condition.
            Token::Symbol(name) => {
                let token = |offset: usize| self.lexemes.get(index + offset).map(|it| &it.token);
                let separated = index > 0
                    && matches!(self.lexemes[index - 1].token, Token::Comma | Token::Semicolon);
                let is_in_set = token(1) == Some(&Token::In)
                    && matches!(token(2), Some(Token::NamedSet(set)) if *set != NamedSet::Reals)
                    && matches!(token(3), Some(Token::Caret | Token::Underscore));
                separated && (is_in_set || self.is_listed(name, index))
            }

            // `P(X > 1)` is a probability.
            Token::Open(Bracket::Round) => {
                let before = index.checked_sub(1).map(|index| &self.lexemes[index].token);
                let applied = match before {
                    Some(Token::Symbol(name)) => {
                        name.starts_with(char::is_uppercase) || matches!(&**name, "f" | "g" | "h")
                    }
                    None | Some(Token::Function(_) | Token::Word(_)) => true,
                    _ => false,
                };
                lexeme.spaced && !applied && self.is_relation(index + 1)
            }
            _ => false,
        }
    }

    /// Tells whether the rest from token `at` lists the values over which the letter `name` of the answer runs:
    /// `, n = 1, 2, 3, …` or `, k = 0, 1, …, n - 1`. A letter that has a single value there is a part of the answer.
    fn is_listed(&self, name: &str, index: usize) -> bool {
        let (answer, range) = self.lexemes.split_at(index);
        let [_, equals, list @ ..] = range else { return false };

        let number = |token: &Token| {
            matches!(token, Token::Number { .. } | Token::Plus | Token::Minus | Token::PlusMinus)
        };
        let ends = |token: &Token| number(token) || matches!(token, Token::Symbol(_));
        let dots = |token: &Token| *token == Token::Symbol("…".into());
        let end = list.iter().position(|it| !(number(&it.token) || it.token == Token::Comma));
        let Some((first, rest)) = end.map(|end| list.split_at(end)) else { return false };

        // A range has numbers, a comma, dots, and perhaps its last value.
        let is_range = equals.token == Token::Relation(Relation::Equal)
            && first.iter().any(|it| number(&it.token))
            && first.last().is_some_and(|it| it.token == Token::Comma)
            && match rest {
                [it] => dots(&it.token),
                [it, comma, last @ ..] => {
                    dots(&it.token)
                        && comma.token == Token::Comma
                        && !last.is_empty()
                        && last.iter().all(|it| ends(&it.token))
                }
                [] => false,
            };
        if !is_range {
            return false;
        }

        // The answer has to use the letter without giving it a value itself.
        let is_name = |token: &Token| matches!(token, Token::Symbol(other) if **other == *name);
        let used = answer.iter().any(|it| is_name(&it.token));
        let given = answer.iter().enumerate().any(|(index, it)| {
            let opens =
                index == 0 || matches!(answer[index - 1].token, Token::Comma | Token::Semicolon);
            let next = answer.get(index + 1).map(|it| &it.token);
            opens && is_name(&it.token) && matches!(next, Some(Token::Relation(_) | Token::In))
        });
        used && !given
    }

    /// Tells whether the bracket before `at` and its partner enclose a relation or words.
    fn is_relation(&self, index: usize) -> bool {
        let mut depth = 0_usize;
        for lexeme in self.lexemes[index..].iter().take(LONGEST) {
            match &lexeme.token {
                Token::Open(_) => depth += 1,
                Token::Close(_) if depth == 0 => return false,
                Token::Close(_) => depth -= 1,
                Token::Relation(_) | Token::In | Token::Word(_) if depth == 0 => return true,
                _ => {}
            }
        }

        false
    }
}

/// How many tokens a condition in brackets may have.
const LONGEST: usize = 64;

/// Tells whether a part between commas is a condition on `answer`, or continues one. `range` is true while numbers
/// continue a range with dots, as in `n = 1, 2, 3, …`.
fn is_condition(part: &[Lexeme], answer: &[Lexeme], has_dots: bool, range: &mut bool) -> bool {
    let is_start = |lexeme: &Lexeme| matches!(&lexeme.token, Token::Word(word) if begins(word));
    let starts = part.iter().take_while(|lexeme| is_start(lexeme)).count();
    let body = &part[starts..];

    let number = |lexeme: &Lexeme| {
        matches!(
            &lexeme.token,
            Token::Number { .. } | Token::Plus | Token::Minus | Token::PlusMinus
        ) || lexeme.token == Token::Symbol("…".into())
    };

    // A range may end in a letter: `k = 0, 1, …, n - 1`.
    let last = |lexeme: &Lexeme| number(lexeme) || matches!(lexeme.token, Token::Symbol(_));
    if *range && body.iter().all(last) {
        return true;
    }

    // `n/2 for n even, and n for n odd` are two answers.
    let another = body
        .iter()
        .position(is_start)
        .is_some_and(|at| body[..at].iter().any(|lexeme| !matches!(lexeme.token, Token::Word(_))));
    let refused = |lexeme: &Lexeme| {
        matches!(&lexeme.token, Token::Word(word)
            if OTHERWISE.iter().any(|known| word.eq_ignore_ascii_case(known)))
    };

    if another || body.iter().any(refused) {
        return false;
    }

    let inside = |lexeme: &Lexeme| {
        lexeme.token == Token::In || matches!(&lexeme.token, Token::Word(word) if **word == *"in")
    };
    let relation = body.iter().position(|lexeme| matches!(lexeme.token, Token::Relation(_)));
    let is_equal =
        |at: usize| matches!(body[at].token, Token::Relation(Relation::Equal | Relation::About));

    match relation {
        // The answer is not known until its letter is.
        Some(at) if is_equal(at) => {
            let [named] = &body[..at] else { return false };
            let (Token::Symbol(name) | Token::Word(name)) = &named.token else { return false };
            let used = answer.iter().any(|lexeme| {
                matches!(&lexeme.token, Token::Symbol(other) | Token::Word(other) if other == name)
            });
            *range = has_dots && body[at + 1..].iter().all(number);
            !used || *range
        }
        Some(_) => true,
        None if body.iter().any(inside) => true,
        // A number is another answer, and so is a letter or formula, unless the condition in words is about it.
        None => {
            let only = |lexeme: &Lexeme| {
                matches!(
                    lexeme.token,
                    Token::Word(_) | Token::Symbol(_) | Token::NamedSet(_) | Token::Function(_)
                )
            };
            let words = body.iter().any(|lexeme| matches!(lexeme.token, Token::Word(_)));
            !body.is_empty() && body.iter().all(only) && (words || starts > 0 || body.len() == 1)
        }
    }
}

/// Tells whether a word begins a condition.
fn begins(word: &str) -> bool {
    const WORDS: [&str; 18] = [
        "for", "forall", "where", "if", "when", "whenever", "with", "provided", "given", "such",
        "st", "assuming", "as", "on", "at", "while", "because", "since",
    ];
    WORDS.iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// Words that give another answer for the other cases, or retract the answer.
const OTHERWISE: [&str; 12] = [
    "otherwise",
    "else",
    "unless",
    "but",
    "except",
    "then",
    "wrong",
    "incorrect",
    "false",
    "maybe",
    "instead",
    "respectively",
];
