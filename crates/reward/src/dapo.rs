//! `AnswerLine` and `StrictBox`, verifiers that follow the rules that DAPO published.

mod normalise;

use firebrick_core::{Completion, Prompt, Score, Verdict, Verifier};
use serde::{Deserialize, Serialize};

use crate::text::last_characters;
use normalise::normalise;

/// Judges by DAPO's published rule, which compares the last `Answer:` line as a text (Yu et al. 2025, the
/// reward that verl calls `math_dapo`).
///
/// Only the last 300 characters are read. Answer and reference are normalised alike (the right side of the
/// last `=`, no spaces, units or dollars, `\text{}` and `\boxed{}` unwrapped, no thousands separators). Then
/// they must be the same text: `1/2` is not `0.5`, and `**7**` is not `7`. The rule was made for references
/// that are integers. It is kept verdict by verdict, so that runs can be compared, although the maths
/// verifier is the better judge. A completion without an answer has the answer `[INVALID]`, as in the
/// original. It is unparsable unless `[INVALID]` is the reference.
///
/// ```
/// use firebrick_core::{Completion, Prompt, Verdict, Verifier};
/// use firebrick_reward::AnswerLine;
///
/// let prompt = Prompt { reference: "1234".into(), ..Prompt::default() };
/// let completion = Completion::of_text("So it is.\n\nAnswer: $x = 1,234$ dollars");
/// assert_eq!(AnswerLine::default().score(&prompt, &completion).verdict, Verdict::Right);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AnswerLine {
    /// Version of the rule.
    pub fork: AnswerFork,
}

/// A version of DAPO's rule. Versions differ in how they treat end tokens that are left in the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AnswerFork {
    /// DAPO's own, as in verl: end tokens are part of the answer.
    #[default]
    Published,
    /// SkyRL's: the answer ends before the first `<`.
    StopAtLt,
    /// slime's: `<|im_end|>` and `<|endoftext|>` are deleted.
    StripEos,
}

impl Verifier for AnswerLine {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        // The original compares `[INVALID]` with the reference, too.
        let answer = self.last_answer(last_characters(&completion.text, 300));
        let normalised = |text| normalise(text, self.fork == AnswerFork::StripEos);
        let equal = normalised(answer.unwrap_or("[INVALID]")) == normalised(&prompt.reference);

        match answer {
            _ if equal => Score::right(answer.unwrap_or_default()),
            Some(answer) => Score::wrong(answer),
            None => Score::none(Verdict::Unparsable),
        }
    }
}

impl AnswerLine {
    /// Finds the text that `(?i)Answer\s*:\s*([^\n]+)` captures last in Python. Matches do not overlap there: a
    /// second `Answer:` on the line of the first belongs to the answer.
    fn last_answer(self, text: &str) -> Option<&str> {
        let ends = |c| c == '\n' || (self.fork == AnswerFork::StopAtLt && c == '<');
        let mut answer = None;
        let mut start = 0;
        let mut from = 0;

        while let Some(colon) = text[from..].find(':') {
            let colon = from + colon;
            from = colon + 1;
            if !ends_with_answer(text[start..colon].trim_end_matches(is_python_space)) {
                continue;
            }

            let rest = &text[from..];
            let space = rest.len() - rest.trim_start_matches(is_python_space).len();
            let length = rest[space..].find(ends).unwrap_or(rest.len() - space);
            let range = if length > 0 {
                Some(space..space + length)
            } else {
                // Nothing follows the white space, so the expression backtracks: the answer is the last blank that is
                // not the end of a line.
                rest[..space]
                    .char_indices()
                    .rfind(|(_, c)| *c != '\n')
                    .map(|(at, c)| at..at + c.len_utf8())
            };

            if let Some(range) = range {
                from += range.end;
                start = from;
                answer = Some(&rest[range]);
            }
        }

        answer
    }
}

/// Judges by DAPO's stricter rule, which takes the last `\boxed{…}` within the last 100 characters, byte for
/// byte.
///
/// The braces must balance. Escaped braces count like any others, as in the original. A box that begins further from
/// the end is ignored.
///
/// ```
/// use firebrick_core::{Completion, Prompt, Verdict, Verifier};
/// use firebrick_reward::StrictBox;
///
/// let prompt = Prompt { reference: r"\frac{1}{2}".into(), ..Prompt::default() };
/// let completion = Completion::of_text(r"Halve it: $\boxed{\frac{1}{2}}$.");
/// assert_eq!(StrictBox.score(&prompt, &completion).verdict, Verdict::Right);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrictBox;

impl Verifier for StrictBox {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        match unescaped_box(last_characters(&completion.text, 100)) {
            None => Score::none(Verdict::Unparsable),
            Some(found) if found == prompt.reference => Score::right(found),
            Some(found) => Score::wrong(found),
        }
    }
}

/// Finds the inside of the last `\boxed{`, up to the brace that closes it.
fn unescaped_box(text: &str) -> Option<&str> {
    const OPEN: &str = r"\boxed{";
    let inside = &text[text.rfind(OPEN)? + OPEN.len()..];

    let mut depth = 1_usize;
    for (at, byte) in inside.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(&inside[..at]);
        }
    }
    None
}

/// Returns true if a text ends in `answer`, in capitals or not. Python's comparison treats the long s as an s.
fn ends_with_answer(text: &str) -> bool {
    let mut found = text.chars().rev();
    "rewsna".chars().all(|wanted| {
        found.next().is_some_and(|c| c.eq_ignore_ascii_case(&wanted) || (c == 'ſ' && wanted == 's'))
    })
}

/// Returns true if Python's `\s` matches a character and `strip` strips it: Unicode's white space and four
/// separators.
fn is_python_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::verdict;
    use Verdict::*;

    #[test]
    fn the_last_answer_line_counts() {
        let rule = AnswerLine::default();
        for (text, expected) in [
            ("Answer: 4\nAnswer: 5", Right),
            ("ANSWER\n:\n\n5", Right),
            ("anſwer: 5", Right),
            ("Answer:\u{1c}5", Right),
            ("Answer: 4 = 5.", Wrong),
            ("Answer: $5.$", Right),
            ("Answer: 5 Answer: 6", Wrong),
            ("Answer: Answer: 5", Wrong),
            ("Answer：5", Unparsable),
            ("Answer:\n\n", Unparsable),
            ("Answer: \n", Wrong),
            ("Answer: 5 \nAnswer:\n", Right),
            ("**Answer:** 5", Wrong),
            ("Answer: 5<|im_end|>", Wrong),
            ("5", Unparsable),
        ] {
            assert_eq!(verdict(&rule, "5", text), expected, "{text:?}");
        }

        assert_eq!(verdict(&rule, "[INVALID]", "5"), Right);
        assert_eq!(verdict(&rule, "", "Answer:\t\n"), Right);
    }

    #[test]
    fn only_the_end_is_read() {
        for (filler, expected) in [(290, Right), (291, Unparsable)] {
            let text = format!("Answer: 5\n{}", "é".repeat(filler));
            assert_eq!(verdict(&AnswerLine::default(), "5", &text), expected);
        }

        for (filler, expected) in [(91, Right), (92, Unparsable)] {
            let text = format!(r"\boxed{{5}}{}", "é".repeat(filler));
            assert_eq!(verdict(&StrictBox, "5", &text), expected);
        }
    }

    #[test]
    fn forks_differ_in_end_tokens() {
        let stop = AnswerLine { fork: AnswerFork::StopAtLt };
        let strip = AnswerLine { fork: AnswerFork::StripEos };
        for (text, at_lt, stripped) in [
            ("Answer: 5<|eot_id|>", Right, Wrong),
            ("Answer: 5<|im_end|>", Right, Right),
            ("Answer: <|endoftext|>5", Wrong, Right),
            ("Answer:<b>5", Unparsable, Wrong),
            ("Answer: 4<Answer: 5<", Right, Wrong),
        ] {
            assert_eq!(verdict(&stop, "5", text), at_lt, "{text:?}");
            assert_eq!(verdict(&strip, "5", text), stripped, "{text:?}");
        }
    }

    #[test]
    fn a_strict_box_is_taken_byte_for_byte() {
        for (text, expected) in [
            (r"\boxed{4}\boxed{5}", Right),
            (r"\boxed{\boxed{5}}", Right),
            (r"\boxed{5}}", Right),
            (r"\boxed{5 }", Wrong),
            (r"\boxed{5}\boxed{", Unparsable),
            (r"\boxed {5}", Unparsable),
            (r"\fbox{5}", Unparsable),
        ] {
            assert_eq!(verdict(&StrictBox, "5", text), expected, "{text:?}");
        }

        assert_eq!(verdict(&StrictBox, r"\{5\}", r"\boxed{\{5\}}"), Right);
        assert_eq!(verdict(&StrictBox, r"\}5\{", r"\boxed{\}5\{}"), Wrong);
    }
}
