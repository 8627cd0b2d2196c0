//! Scores completions for training, as a verifier of `firebrick-core`.

use firebrick_core::{Completion, Prompt, Score};

use crate::{extract::Extraction, judgement::Verdict, thoughts::Thoughts, verifier::Verifier};

impl firebrick_core::Verifier for Verifier {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        // A chat template may open the thoughts. A completion that never closes them is all thought, without an answer.
        let thinking = Thoughts::of(&prompt.text, "").are_open;
        let ends = || Thoughts::of(&prompt.text, &completion.text).end.is_some();
        if thinking && self.extraction != Extraction::Bare && !ends() {
            return Score::none(firebrick_core::Verdict::Unparsable);
        }

        let judgement = self.judge(&prompt.reference, &completion.text);
        let extracted = judgement.extracted.map(|span| span.text).unwrap_or_default();
        match judgement.verdict {
            Verdict::Right => Score::right(extracted),
            verdict => Score::partial(verdict.into(), 0.0, extracted),
        }
    }

    fn same(&self, _: &Prompt, one: &str, other: &str) -> bool {
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

    #[test]
    fn thoughts_that_the_prompt_opened_have_to_end() {
        let prompt =
            Prompt { text: "4?<think>\n".into(), reference: "4".into(), ..Prompt::default() };
        for (text, expected) in [
            (r"Perhaps \boxed{4}", Score::none(firebrick_core::Verdict::Unparsable)),
            (r"Perhaps \boxed{5}</think> \boxed{4}", Score::right("4")),
            ("<think>4</think> 4", Score::right("4")),
        ] {
            let score = Verifier::default().score(&prompt, &Completion::of_text(text));
            assert_eq!(score, expected, "{text}");
        }
    }
}
