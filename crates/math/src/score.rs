//! The verifier for training: a score for the completion of a prompt.

use firebrick_core::{Completion, Prompt, Score};

use crate::{judgement::Verdict, verifier::Verifier};

impl firebrick_core::Verifier for Verifier {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        let judgement = self.judge(&prompt.reference, &completion.text);
        let extracted = judgement.extracted.map(|span| span.text).unwrap_or_default();
        match judgement.verdict {
            Verdict::Right => Score::right(extracted),
            verdict => Score::partial(verdict.into(), 0.0, extracted),
        }
    }

    fn same(&self, one: &str, other: &str) -> bool {
        one.trim() == other.trim() || self.are_same(one, other)
    }
}

impl From<Verdict> for firebrick_core::Verdict {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Right => firebrick_core::Verdict::Right,
            Verdict::Wrong => firebrick_core::Verdict::Wrong,
            Verdict::Unparsable => firebrick_core::Verdict::Unparsable,
            Verdict::OverBudget => firebrick_core::Verdict::OverBudget,
            Verdict::Error => firebrick_core::Verdict::Error,
        }
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::Verifier as _;

    use super::*;

    #[test]
    fn only_a_right_answer_has_credit() {
        for (reference, text, expected) in [
            ("0.5", r"\boxed{\frac12}", Score::right(r"\frac12")),
            ("0.5", r"\boxed{\frac13}", Score::wrong(r"\frac13")),
            ("0.5", "", Score::none(firebrick_core::Verdict::Unparsable)),
            ("", r"\boxed{1}", Score::partial(firebrick_core::Verdict::Error, 0.0, "1")),
        ] {
            let prompt = Prompt { reference: reference.into(), ..Prompt::default() };
            let completion = Completion::of_text(text);
            assert_eq!(Verifier::default().score(&prompt, &completion), expected, "{text}");
        }
    }
}
