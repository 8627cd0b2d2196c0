//! A verifier that builds on another: the fields of a JSON object, each judged as mathematics.

#![allow(clippy::print_stdout, reason = "an example talks")]

// ANCHOR: verifier
use firebrick_core::{Completion, Prompt, Score, Verdict, Verifier};
use firebrick_reward::math::{self, Extraction};
use serde_json::{Map, Value};

/// A verifier for a last line that is a JSON object with the fields of the reference. Each right field earns
/// its share.
struct Fields {
    math: math::Verifier,
}

/// A length far beyond any honest answer.
const MAX_LENGTH: usize = 4096;

impl Default for Fields {
    fn default() -> Self {
        // A field is the answer and nothing else: there is no box to look for in it.
        let math = math::Verifier { extraction: Extraction::Bare, ..math::Verifier::default() };
        Fields { math }
    }
}

impl Verifier for Fields {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        let Some(wanted) = fields(&prompt.reference) else {
            return Score::none(Verdict::Error);
        };

        let answer = completion.text.trim_end().lines().next_back().unwrap_or_default().trim();
        if answer.len() > MAX_LENGTH {
            return Score::none(Verdict::OverBudget);
        }
        let Some(given) = fields(answer) else {
            return Score::none(Verdict::Unparsable);
        };
        let is_right = |(name, value): &(&String, &Value)| {
            given.get(*name).is_some_and(|given| self.same(value, given))
        };
        let right = wanted.iter().filter(is_right).count();

        // A field that nobody asked for counts as a wrong one.
        match wanted.len().max(given.len()) {
            all if all == right => Score::right(answer),
            all => Score::partial(Verdict::Wrong, right as f32 / all as f32, answer),
        }
    }
}
// ANCHOR_END: verifier

// ANCHOR: same
impl Fields {
    fn same(&self, wanted: &Value, given: &Value) -> bool {
        match (text(wanted), text(given)) {
            (Some(wanted), Some(given)) => {
                self.math.judge(&wanted, &given).verdict == math::Verdict::Right
            }
            _ => wanted == given,
        }
    }
}

/// Reads the fields of a JSON object that has any.
fn fields(text: &str) -> Option<Map<String, Value>> {
    serde_json::from_str(text).ok().filter(|fields: &Map<_, _>| !fields.is_empty())
}

/// Reads a value as mathematics, if it is a number or a text.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => Some(text.clone()),
        _ => None,
    }
}
// ANCHOR_END: same

fn score(reference: &str, text: &str) -> Score {
    let prompt = Prompt { reference: reference.into(), ..Prompt::default() };
    let completion = Completion::of_text(text);
    Fields::default().score(&prompt, &completion)
}

fn main() {
    let reference = r#"{"length": "3/2 km", "closed": true}"#;
    for text in [
        r#"{"length": "1500 meters", "closed": true}"#,
        r#"{"length": 1.5, "closed": false}"#,
        r#"{"closed": true}"#,
        "1.5",
    ] {
        let score = score(reference, text);
        println!("{text:<43} {:<11} {}", score.verdict.name(), score.credit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // ANCHOR: tests
    #[test]
    fn fields_are_compared_as_mathematics() {
        let reference = r#"{"area": "12\\sqrt3", "unit": "cm", "exact": true}"#;
        for (text, verdict, credit) in [
            (r#"{"unit": "cm", "exact": true, "area": "\\sqrt{432}"}"#, Verdict::Right, 1.0),
            (r#"{"area": "20.7846", "unit": "cm", "exact": true}"#, Verdict::Wrong, 2.0 / 3.0),
            (r#"{"area": "12\\sqrt3"}"#, Verdict::Wrong, 1.0 / 3.0),
            ("12\\sqrt3", Verdict::Unparsable, 0.0),
            ("[]", Verdict::Unparsable, 0.0),
        ] {
            let score = score(reference, text);
            assert_eq!((score.verdict, score.credit), (verdict, credit), "{text}");
        }
    }

    #[test]
    fn guesses_and_floods_earn_nothing() {
        let reference = r#"{"n": 4}"#;
        let guesses = r#"{"n": 4, "m": 5}"#;
        assert_eq!(score(reference, guesses).credit, 0.5);
        assert_eq!(score(reference, &"[".repeat(4000)).verdict, Verdict::Unparsable);
        assert_eq!(score(reference, &"[".repeat(1_000_000)).verdict, Verdict::OverBudget);
        assert_eq!(score("4", guesses).verdict, Verdict::Error);
    }
    // ANCHOR_END: tests
}
