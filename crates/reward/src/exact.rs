//! `Exact`, a verifier that compares texts character by character.

use firebrick_core::{Completion, Prompt, Score, Verdict, Verifier};
use serde::{Deserialize, Serialize};

/// Compares answers that must be the same text as the reference, and nothing else.
///
/// The answer is the text after the last occurrence of the marker `after`. If there is no marker to find, it is the
/// whole completion. White space around the answer is ignored. The reference is read in the same way, except that it
/// may lack the marker. A completion without the marker, or with nothing after it, is unparsable. A blank reference is
/// an error.
///
/// ```
/// use firebrick_core::{Completion, Prompt, Verdict, Verifier};
/// use firebrick_reward::Exact;
///
/// let exact = Exact { after: Some("Therefore:".into()), ignore_case: true, ..Exact::default() };
/// let prompt = Prompt { reference: "Socrates is mortal".into(), ..Prompt::default() };
/// let completion = Completion::of_text("All men are.\nTherefore: socrates is mortal\n");
/// assert_eq!(exact.score(&prompt, &completion).verdict, Verdict::Right);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Exact {
    /// Announces the answer, as `####` does. Without a marker, or with an empty one, the whole text is the
    /// answer.
    pub after: Option<String>,
    /// True if upper and lower case are equal, in every script that has both.
    pub ignore_case: bool,
    /// True if white space inside the answer is ignored too, even between words.
    pub ignore_whitespace: bool,
}

impl Verifier for Exact {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        let expected = self.answer(&prompt.reference).unwrap_or(&prompt.reference).trim();
        if expected.is_empty() {
            return Score::none(Verdict::Error);
        }

        match self.answer(&completion.text).map(str::trim) {
            None | Some("") => Score::none(Verdict::Unparsable),
            Some(found) if self.equal(found, expected) => Score::right(found),
            Some(found) => Score::wrong(found),
        }
    }
}

impl Exact {
    /// Returns the text after the last marker. Returns `None` if the marker does not occur.
    fn answer<'text>(&self, text: &'text str) -> Option<&'text str> {
        match self.after.as_deref() {
            None | Some("") => Some(text),
            Some(marker) => text.rfind(marker).map(|at| &text[at + marker.len()..]),
        }
    }

    fn equal(&self, answer: &str, expected: &str) -> bool {
        if self.ignore_case {
            let folded = |c: char| c.to_lowercase();
            self.counted(answer).flat_map(folded).eq(self.counted(expected).flat_map(folded))
        } else {
            self.counted(answer).eq(self.counted(expected))
        }
    }

    fn counted(&self, text: &str) -> impl Iterator<Item = char> {
        text.chars().filter(|c| !(self.ignore_whitespace && c.is_whitespace()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::verdict;
    use Verdict::*;

    #[test]
    fn options_say_what_counts() {
        let plain = Exact::default();
        let no_case = Exact { ignore_case: true, ..Exact::default() };
        let no_space = Exact { ignore_whitespace: true, ..Exact::default() };

        for (text, [exact, cased, spaced]) in [
            (" le Monde\n", [Right, Right, Right]),
            ("Le monde", [Wrong, Right, Wrong]),
            ("leMo n\u{a0}de", [Wrong, Wrong, Right]),
            ("le Monde.", [Wrong, Wrong, Wrong]),
            (" \n", [Unparsable, Unparsable, Unparsable]),
        ] {
            assert_eq!(verdict(&plain, "le Monde", text), exact, "{text:?}");
            assert_eq!(verdict(&no_case, "le Monde", text), cased, "{text:?}");
            assert_eq!(verdict(&no_space, "le Monde", text), spaced, "{text:?}");
        }

        assert_eq!(verdict(&no_case, "ÉTÉ", "été"), Right);
        assert_eq!(verdict(&plain, " ", "x"), Error);
    }

    #[test]
    fn the_last_marker_announces_the_answer() {
        let marked = Exact { after: Some("=>".into()), ..Exact::default() };
        assert_eq!(verdict(&marked, "b", "=> a => b"), Right);
        assert_eq!(verdict(&marked, "so => b", "=>b"), Right);
        assert_eq!(verdict(&marked, "b", "b"), Unparsable);
        assert_eq!(verdict(&marked, "b", "b =>"), Unparsable);
    }
}
