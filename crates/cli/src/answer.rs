//! A completion and its verdict as one line of a terminal.

use firebrick::{
    Example,
    runs::{Judged, PromptFrame},
};
use firebrick_core::{FinishReason, Verdict, printable};
use textwrap::core::display_width;

/// A policy's answer to a prompt, with its verdict.
#[derive(Debug)]
pub(crate) struct Answer {
    verdict: String,
    prompt: String,
    completion: String,
    /// Shown if the answer was not right.
    reference: Option<String>,
}

impl Answer {
    pub(crate) fn of_example(example: &Example) -> Self {
        let Example { prompt, completion, score, .. } = example;
        let cut_off = completion.finish == FinishReason::Length;
        let cut_mark = if cut_off { "…" } else { "" };
        let is_right = score.verdict == Verdict::Right;

        Answer {
            verdict: score.verdict.name().to_owned(),
            prompt: one_line(prompt.question_text()),
            completion: one_line(&completion.text) + cut_mark,
            reference: (!is_right && !prompt.reference.is_empty())
                .then(|| one_line(&prompt.reference)),
        }
    }

    pub(crate) fn of_record(judged: &Judged, frame: &PromptFrame) -> Self {
        let is_right = judged.verdict == Verdict::Right.name();
        let shows_reference = !is_right && !judged.reference.is_empty();
        Answer {
            verdict: one_line(&judged.verdict),
            prompt: one_line(frame.question(&judged.prompt)),
            completion: one_line(&judged.text),
            reference: shows_reference.then(|| one_line(&judged.reference)),
        }
    }

    /// Writes the answer in at most `columns` columns, as far as that is possible. It shows the ends of the prompt
    /// and the completion, because the question and the answer are mostly there. A narrow terminal has no room for
    /// the reference.
    pub(crate) fn within(&self, columns: usize) -> String {
        let is_wide = columns >= WIDE;
        let verdict = format!("  {:<1$}  ", self.verdict, if is_wide { LONGEST } else { 0 });
        let reference = match self.reference.as_ref().filter(|_| is_wide) {
            Some(reference) => format!("  (reference {})", end(reference, columns / 6)),
            None => String::new(),
        };

        let used_columns = verdict.len() + display_width(" → ") + display_width(&reference);
        let room = columns.saturating_sub(used_columns).max(10);

        // The prompt gets a third of the room, and whatever a short completion leaves.
        let prompt =
            end(&self.prompt, (room / 3).max(room.saturating_sub(display_width(&self.completion))));
        let completion = end(&self.completion, room.saturating_sub(display_width(&prompt)));

        format!("{verdict}{prompt} → {completion}{reference}")
    }
}

/// Smallest number of columns at which verdicts are aligned and references are shown.
const WIDE: usize = 60;

/// Letters of `unparsable`, the longest verdict that a model earns by itself.
const LONGEST: usize = 10;

/// Returns as much of a text's end as fits into `columns`, with a sign where the text was cut.
fn end(text: &str, columns: usize) -> String {
    if text.len() <= 4 * columns && display_width(text) <= columns {
        return text.to_owned();
    }

    // Letters are taken from the end as long as they fit, because a completion may have a hundred thousand
    // characters.
    let mut used_columns = 1;
    let kept = text.char_indices().rev().take_while(|(_, letter)| {
        used_columns += display_width(letter.encode_utf8(&mut [0; 4]));
        used_columns <= columns
    });
    let start = kept.last().map_or(text.len(), |(start, _)| start);
    format!("…{}", &text[start..])
}

/// Returns a text without line ends and without characters that a terminal would interpret.
fn one_line(text: &str) -> String {
    printable(&text.replace('\n', "⏎"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(prompt: &str, completion: &str) -> Answer {
        Answer {
            verdict: "unparsable".into(),
            prompt: prompt.into(),
            completion: completion.into(),
            reference: Some("72".into()),
        }
    }

    #[test]
    fn an_answer_keeps_to_its_columns_and_loses_neither_end() {
        let long = "a question that goes on and on ".repeat(20);
        // Each of these letters takes two columns.
        let wide = "火の煉瓦".repeat(50);

        for answer in [answer(&(long.clone() + "why?"), &(long + "72")), answer(&wide, &wide)] {
            for columns in [40, 59, 60, 80, 200] {
                let line = answer.within(columns);
                assert!(display_width(&line) <= columns, "{columns}: {line}");
                assert!(display_width(&line) + 3 >= columns, "{columns}: {line}");
                assert_eq!(line.contains("(reference 72)"), columns >= 60, "{line}");
            }
        }

        let short = answer("6*12=", "72").within(80);
        assert_eq!(short, "  unparsable  6*12= → 72  (reference 72)");
        assert!(answer(&"x".repeat(100), "72").within(40).contains("xxx → 72"));
    }
}
