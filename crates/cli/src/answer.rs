//! A completion as one line of a terminal.

use firebrick::Example;
use firebrick_core::{FinishReason, Verdict};

use crate::inspect::printable;

/// What the policy made of a prompt.
#[derive(Debug)]
pub(crate) struct Answer {
    verdict: &'static str,
    prompt: String,
    completion: String,
    /// The reference, where the answer was not right.
    reference: Option<String>,
}

impl Answer {
    pub(crate) fn of(example: &Example) -> Self {
        let Example { prompt, completion, score, .. } = example;
        let cut_off = completion.finish == FinishReason::Length;
        let end = if cut_off { "…" } else { "" };
        let right = score.verdict == Verdict::Right;
        Answer {
            verdict: score.verdict.name(),
            prompt: one_line(&prompt.text),
            completion: one_line(&completion.text) + end,
            reference: (!right).then(|| one_line(&prompt.reference)),
        }
    }

    /// In at most `columns`, as far as that is possible: the ends of prompt and completion, where the
    /// question and the answer mostly are.
    pub(crate) fn within(&self, columns: usize) -> String {
        let verdict = format!("  {:<5}  ", self.verdict);
        let reference = match &self.reference {
            Some(reference) => format!("  (reference {})", end(reference, columns / 6)),
            None => String::new(),
        };
        let taken = verdict.len() + " → ".chars().count() + reference.chars().count();
        let room = columns.saturating_sub(taken).max(10);
        let prompt =
            end(&self.prompt, (room / 3).max(room.saturating_sub(self.completion.chars().count())));
        let completion = end(&self.completion, room - prompt.chars().count().min(room));
        format!("{verdict}{prompt} → {completion}{reference}")
    }
}

/// The last `most` characters of a text, with a sign where it was cut.
fn end(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_owned();
    }
    let kept = text.chars().skip(length - most.saturating_sub(1));
    std::iter::once('…').chain(kept).collect()
}

/// A text without line ends, and without what would command a terminal.
fn one_line(text: &str) -> String {
    printable(&text.replace('\n', "⏎"))
}
