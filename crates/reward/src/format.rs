//! `Format`, a verifier of the format, whatever the answer.

use firebrick_core::{Completion, Prompt, Score, Verdict, Verifier};
use serde::{Deserialize, Serialize};

use crate::text::{CLOSE, OPEN, after_thoughts, boxes, opens_thoughts};

/// Gives credit for the format, whatever the answer is.
///
/// The credit is the share of the wanted properties that a completion has. A completion with all of them is right, and
/// any other is wrong. The reference is not read. It is an error if no property is wanted.
///
/// Thoughts are ignored: the box and the answer line are searched after the last `</think>`, or in the whole completion
/// if it has no thoughts. In thoughts that break off there is neither.
///
/// ```
/// use firebrick_core::{Completion, FinishReason, Prompt, Verdict, Verifier};
/// use firebrick_reward::Format;
///
/// let completion = Completion::of_text("<think>Seven times six.</think>\nIt is 42.");
/// let score = Format::default().score(&Prompt::default(), &completion);
/// assert_eq!(score.verdict, Verdict::Wrong);
/// assert_eq!(score.credit, 0.5); // It thought, but boxed nothing.
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Format {
    /// True if a completion must have `<think>` and `</think>`, each exactly once and in this order, and something
    /// after them. Only white space may precede them. The `<think>` may also be the end of the prompt.
    pub think: bool,
    /// True if a completion must have a closed `\boxed{…}` or `\fbox{…}` that is not blank.
    pub boxed: bool,
    /// True if a completion must have a line that begins with `Answer:` or `Final answer:` and continues. Marks of
    /// Markdown and the case of letters are ignored.
    pub answer_line: bool,
    /// True if only closing punctuation may follow the answer. The answer is the last box or answer line, of those that
    /// are wanted. (If neither is wanted, either counts.)
    pub nothing_after: bool,
}

impl Default for Format {
    fn default() -> Self {
        Format { think: true, boxed: true, answer_line: false, nothing_after: false }
    }
}

impl Verifier for Format {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        let text = &completion.text;
        let answer = after_thoughts(prompt, text).unwrap_or_default();
        let boxed = end_of_box(answer);
        let line = end_of_answer_line(answer);

        // If neither is wanted, whichever is last in the text is the answer.
        let either = !self.boxed && !self.answer_line;
        let end =
            boxed.filter(|_| self.boxed || either).max(line.filter(|_| self.answer_line || either));

        let properties = [
            (self.think, thinks_first(prompt, text)),
            (self.boxed, boxed.is_some()),
            (self.answer_line, line.is_some()),
            (self.nothing_after, end.is_some_and(|end| is_closing(&answer[end..]))),
        ];

        let wanted = properties.iter().filter(|(wanted, _)| *wanted).count();
        let satisfied = properties.iter().filter(|(wanted, holds)| *wanted && *holds).count();
        match (wanted, satisfied) {
            (0, _) => Score::none(Verdict::Error),
            _ if wanted == satisfied => Score::right(""),
            _ => Score::partial(Verdict::Wrong, satisfied as f32 / wanted as f32, ""),
        }
    }

    /// The reference is not read, so any will do.
    fn takes_json(&self) -> bool {
        true
    }
}

fn thinks_first(prompt: &Prompt, text: &str) -> bool {
    let opened = opens_thoughts(prompt);
    let thoughts = if opened { Some(text) } else { text.trim_start().strip_prefix(OPEN) };
    thoughts.and_then(|thoughts| thoughts.split_once(CLOSE)).is_some_and(|(thoughts, answer)| {
        // A repeated tag of either kind means that the policy thought more than once.
        let again = |text: &str| text.contains(OPEN) || text.contains(CLOSE);
        !again(thoughts) && !again(answer) && !answer.trim().is_empty()
    })
}

/// Finds the end of the last box, if there is something in it.
fn end_of_box(text: &str) -> Option<usize> {
    let inside = boxes(text).pop()?;
    (!text[inside.clone()].trim().is_empty()).then_some(inside.end + 1)
}

/// Finds the end of the last answer line, if there is something in it.
fn end_of_answer_line(text: &str) -> Option<usize> {
    let mut start = 0;
    let mut answer_end = None;
    for line in text.split_inclusive('\n') {
        // Models format the words with Markdown.
        let markup: &[char] = &['*', '_', '#', '>', ' ', '\t'];
        let words = line.trim_start_matches(markup);
        let announced = ["final answer", "answer"].iter().find_map(|words_before| {
            let (head, rest) = words.split_at_checked(words_before.len())?;
            head.eq_ignore_ascii_case(words_before).then(|| rest.trim_start_matches(markup))
        });
        let answer = announced.and_then(|rest| rest.strip_prefix(':'));

        if answer.is_some_and(|answer| !answer.trim().trim_matches(markup).is_empty()) {
            answer_end = Some(start + line.len());
        }
        start += line.len();
    }
    answer_end
}

/// Returns true if a text only closes things that were opened before it: `$`, `\)`, `**`, a full stop, ...
fn is_closing(text: &str) -> bool {
    text.chars().all(|c| c.is_whitespace() || r"$*_.。!)]}\".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Format =
        Format { think: false, boxed: false, answer_line: false, nothing_after: false };

    fn credit(format: Format, prompt: &str, text: &str) -> f32 {
        let prompt = Prompt { text: prompt.into(), ..Prompt::default() };
        let completion = Completion::of_text(text);
        let score = format.score(&prompt, &completion);

        assert_eq!(score.verdict == Verdict::Right, score.credit == 1.0);
        score.credit
    }

    #[test]
    fn thinking_comes_once_and_first() {
        let think = Format { think: true, ..NONE };
        for (text, expected) in [
            ("\n<think>a</think>b", 1.0),
            ("<think></think> 7", 1.0),
            ("<think>a</think>\n", 0.0),
            ("So: <think>a</think>b", 0.0),
            ("<think>a<think>b</think>c", 0.0),
            ("<think>a</think>b</think>c", 0.0),
            ("</think><think>b", 0.0),
            ("<think>a", 0.0),
            ("a</think>b", 0.0),
        ] {
            assert_eq!(credit(think, "Why?", text), expected, "{text:?}");
        }

        assert_eq!(credit(think, "Why?<think>\n", "a</think>b"), 1.0);
        assert_eq!(credit(think, "Why?<think>\n", "<think>a</think>b"), 0.0);
    }

    #[test]
    fn the_answer_stands_at_the_end() {
        let boxed = Format { boxed: true, nothing_after: true, ..NONE };
        let line = Format { answer_line: true, nothing_after: true, ..NONE };
        let end = Format { nothing_after: true, ..NONE };
        for (text, [in_box, on_line, at_end]) in [
            (r"So $\boxed{7}$.", [1.0, 0.0, 1.0]),
            (r"$\boxed{7}$ is it", [0.5, 0.0, 0.0]),
            (r"\boxed{ }", [0.0, 0.0, 0.0]),
            (r"\boxed{7}</think>7", [0.0, 0.0, 0.0]),
            ("**Final answer**: 7\n\n", [0.0, 1.0, 1.0]),
            ("answer: 7\nIt is.", [0.0, 0.5, 0.0]),
            ("**Answer:**\n7", [0.0, 0.0, 0.0]),
            ("The answer: 7", [0.0, 0.0, 0.0]),
            ("Answer: $\\boxed{7}$ m", [0.5, 1.0, 1.0]),
            ("Änswer: 7", [0.0, 0.0, 0.0]),
            ("<think>Perhaps \\boxed{7}", [0.0, 0.0, 0.0]),
            ("<think>Perhaps\nAnswer: 7", [0.0, 0.0, 0.0]),
        ] {
            assert_eq!(credit(boxed, "", text), in_box, "{text:?}");
            assert_eq!(credit(line, "", text), on_line, "{text:?}");
            assert_eq!(credit(end, "", text), at_end, "{text:?}");
        }
    }

    #[test]
    fn the_share_that_holds_is_paid() {
        let all = Format { think: true, boxed: true, answer_line: true, nothing_after: true };
        assert_eq!(credit(all, "", r"<think>a</think>\boxed{7} or so"), 0.5);
        assert_eq!(credit(all, "", "<think>a</think>\nAnswer: \\boxed{7}"), 1.0);
        assert_eq!(credit(NONE, "", "anything"), 0.0);
    }
}
