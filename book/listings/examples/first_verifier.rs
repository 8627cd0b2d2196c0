//! A verifier of one's own: brackets that close in order. It needs `firebrick-core` alone.

#![allow(clippy::print_stdout, reason = "an example talks")]

// ANCHOR: verifier
use firebrick_core::{Completion, Prompt, Score, Verdict, Verifier};

/// A verifier for strings of `()[]{}` that close in order, with as many pairs as the reference says.
struct Balanced;

/// A length far beyond any honest answer. A policy that repeats one bracket must not cost time.
const MAX_LENGTH: usize = 4096;

impl Verifier for Balanced {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        let Ok(pairs) = prompt.reference.trim().parse::<usize>() else {
            return Score::none(Verdict::Error);
        };

        let answer = completion.text.trim();
        if answer.len() > MAX_LENGTH {
            return Score::none(Verdict::OverBudget);
        }
        match closes_in_order(answer) {
            None => Score::none(Verdict::Unparsable),
            Some(true) if answer.len() == 2 * pairs => Score::right(answer),
            Some(_) => Score::wrong(answer),
        }
    }
}
// ANCHOR_END: verifier

// ANCHOR: closes
/// Tells whether all brackets close in order. `None` for a text that is not all brackets.
fn closes_in_order(text: &str) -> Option<bool> {
    let mut open = Vec::new();
    let mut in_order = true;
    for letter in text.chars() {
        match letter {
            '(' => open.push(')'),
            '[' => open.push(']'),
            '{' => open.push('}'),
            ')' | ']' | '}' => in_order &= open.pop() == Some(letter),
            _ => return None,
        }
    }
    (!text.is_empty()).then_some(in_order && open.is_empty())
}
// ANCHOR_END: closes

// ANCHOR: judge
/// Judges two bare texts, as a test wants it.
fn judge(reference: &str, text: &str) -> Verdict {
    let prompt = Prompt { reference: reference.into(), ..Prompt::default() };
    let completion = Completion::of_text(text);
    Balanced.score(&prompt, &completion).verdict
}
// ANCHOR_END: judge

fn main() {
    for text in ["([]){}", "(()())", "([)]", "three pairs"] {
        println!("{text:<12} {}", judge("3", text).name());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // ANCHOR: tests
    #[test]
    fn brackets_that_close_in_order_are_right() {
        for text in ["([]){}", "((()))", " ()()() \n"] {
            assert_eq!(judge("3", text), Verdict::Right, "{text:?}");
        }
        for text in ["([)]{}", "((())", "()()", "))(("] {
            assert_eq!(judge("3", text), Verdict::Wrong, "{text:?}");
        }
    }

    #[test]
    fn nothing_else_is_judged() {
        assert_eq!(judge("3", ""), Verdict::Unparsable);
        assert_eq!(judge("3", "()() and ()"), Verdict::Unparsable);
        assert_eq!(judge("three", "()()()"), Verdict::Error);
        assert_eq!(judge("3", &"(".repeat(1_000_000)), Verdict::OverBudget);
    }
    // ANCHOR_END: tests
}
