//! Quantifiers and conditions behind an answer: `for all n ≥ 1`, `where c is a constant`, `(x > 0)`.
//!
//! They say where the answer holds and are no part of it, so they are left aside. An answer that depends on them is not
//! read: one of several cases, or a formula whose letter gets its value only there.

use super::{
    Lexeme, ParseError, Parser,
    token::{Bracket, Token},
};
use crate::value::{NamedSet, Relation, Value};

impl Parser<'_> {
    /// Skips the condition that the rest of the text is.
    pub(super) fn condition(&mut self, items: &[Value]) -> Result<(), ParseError> {
        if self.at == self.lexemes.len() || !self.begins_condition(self.at) {
            return Ok(());
        }
        // Words are not true or false as a formula is: `yes, if n is odd`.
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
        let goes_on = rest.iter().any(|lexeme| lexeme.token == Token::Symbol("…".into()));
        let mut range = false;
        for part in parts {
            let conditional = is_condition(part, answer, goes_on, &mut range);
            if !conditional {
                return Err(self.misplaced());
            }
        }
        self.at = self.lexemes.len();
        Ok(())
    }

    /// Tells whether a condition begins at token `at`: with a word, or as a relation in brackets of its own.
    pub(super) fn begins_condition(&self, at: usize) -> bool {
        let Some(lexeme) = self.lexemes.get(at) else { return false };
        match &lexeme.token {
            Token::Word(word) => {
                let next = self.lexemes.get(at + 1);
                let bound = next.is_some_and(|next| {
                    matches!(&next.token, Token::Word(word) if matches!(&**word, "least" | "most"))
                });
                begins(word) && !bound
            }
            // A set that is not read as a value, as in `, n \in \mathbb{N}^*`.
            Token::Symbol(name) => {
                let token = |offset: usize| self.lexemes.get(at + offset).map(|it| &it.token);
                let separated =
                    at > 0 && matches!(self.lexemes[at - 1].token, Token::Comma | Token::Semicolon);
                let is_in_set = token(1) == Some(&Token::In)
                    && matches!(token(2), Some(Token::NamedSet(set)) if *set != NamedSet::Reals)
                    && matches!(token(3), Some(Token::Caret | Token::Underscore));
                separated && (is_in_set || self.is_listed(name, at))
            }
            // `P(X > 1)` is a probability.
            Token::Open(Bracket::Round) => {
                let before = at.checked_sub(1).map(|at| &self.lexemes[at].token);
                let applied = match before {
                    Some(Token::Symbol(name)) => {
                        name.starts_with(char::is_uppercase) || matches!(&**name, "f" | "g" | "h")
                    }
                    None | Some(Token::Function(_) | Token::Word(_)) => true,
                    _ => false,
                };
                lexeme.spaced && !applied && self.is_relation(at + 1)
            }
            _ => false,
        }
    }

    /// Tells whether the rest from token `at` lists what the letter `name` of the answer before it runs over:
    /// `, n = 1, 2, 3, …` or `, k = 0, 1, …, n - 1`. A letter that is given a value there is a part of the answer.
    fn is_listed(&self, name: &str, at: usize) -> bool {
        let (answer, range) = self.lexemes.split_at(at);
        let [_, equals, list @ ..] = range else { return false };
        let number = |token: &Token| {
            matches!(token, Token::Number { .. } | Token::Plus | Token::Minus | Token::PlusMinus)
        };
        let ends = |token: &Token| number(token) || matches!(token, Token::Symbol(_));
        let dots = |token: &Token| *token == Token::Symbol("…".into());
        let end = list.iter().position(|it| !(number(&it.token) || it.token == Token::Comma));
        let Some((first, rest)) = end.map(|end| list.split_at(end)) else { return false };

        let goes_on = equals.token == Token::Relation(Relation::Equal)
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
        if !goes_on {
            return false;
        }

        let is_name = |token: &Token| matches!(token, Token::Symbol(other) if **other == *name);
        let used = answer.iter().any(|it| is_name(&it.token));
        let given = answer.iter().enumerate().any(|(at, it)| {
            let opens = at == 0 || matches!(answer[at - 1].token, Token::Comma | Token::Semicolon);
            let next = answer.get(at + 1).map(|it| &it.token);
            opens && is_name(&it.token) && matches!(next, Some(Token::Relation(_) | Token::In))
        });
        used && !given
    }

    /// Tells whether a relation or words stand between the bracket before `at` and its partner.
    fn is_relation(&self, at: usize) -> bool {
        let mut depth = 0_usize;
        for lexeme in self.lexemes[at..].iter().take(LONGEST) {
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

/// The most tokens that a condition in brackets has.
const LONGEST: usize = 64;

/// Tells whether a part between commas is a condition on `answer`, or continues with one. `range` is true while numbers
/// continue with a range that has no end, as in `n = 1, 2, 3, …`.
fn is_condition(part: &[Lexeme], answer: &[Lexeme], goes_on: bool, range: &mut bool) -> bool {
    let is_start = |lexeme: &Lexeme| matches!(&lexeme.token, Token::Word(word) if begins(word));
    let starts = part.iter().take_while(|lexeme| is_start(lexeme)).count();
    let body = &part[starts..];
    let number = |lexeme: &Lexeme| {
        matches!(
            &lexeme.token,
            Token::Number { .. } | Token::Plus | Token::Minus | Token::PlusMinus
        ) || lexeme.token == Token::Symbol("…".into())
    };
    // Its last number may have a letter: `k = 0, 1, …, n - 1`.
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
            *range = goes_on && body[at + 1..].iter().all(number);
            !used || *range
        }
        Some(_) => true,
        None if body.iter().any(inside) => true,
        // A number is another answer. So is a letter or formula, unless the condition in words is about it.
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

/// Words that give another answer for the other cases, or take the answer back.
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
