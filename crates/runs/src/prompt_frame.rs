//! What the prompts of a run have in common, and a reader need not see each time.

use std::ops::Range;

use serde::Serialize;

/// The text around each question of a run: a chat template with its system message, and the pattern of the recipe. Both
/// parts are found by comparing prompts, because a record has only the texts that the model read.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PromptFrame {
    before: String,
    after: String,
}

impl PromptFrame {
    /// Finds the frame of these prompts. It ends where a line or a mark of a template ends, because questions may begin
    /// or end alike too.
    pub fn of(prompts: &[String]) -> Self {
        let Some((first, others)) = prompts.split_first() else { return PromptFrame::default() };
        let others = || others.iter().filter(|prompt| *prompt != first);
        if others().next().is_none() {
            return PromptFrame::default();
        }

        let before = others().fold(first.as_str(), |common, other| {
            let letters = common.char_indices().zip(other.chars());
            let differ = letters.into_iter().find(|((_, one), other)| one != other);
            &common[..differ.map_or(common.len().min(other.len()), |((at, _), _)| at)]
        });
        let before = &before[..marks(before).last().map_or(0, |mark| mark.end)];

        let after = others().fold(&first[before.len()..], |common, other| {
            let rest = other.get(before.len()..).unwrap_or_default();
            let same = common.chars().rev().zip(rest.chars().rev()).take_while(|(a, b)| a == b);
            let length: usize = same.map(|(letter, _)| letter.len_utf8()).sum();
            &common[common.len() - length..]
        });
        let after = marks(after).first().map_or("", |mark| &after[mark.start..]);
        PromptFrame { before: before.to_owned(), after: after.to_owned() }
    }

    /// Returns the question of a prompt, or the whole prompt if it does not stand in the frame.
    pub fn question<'a>(&self, prompt: &'a str) -> &'a str {
        let inner = prompt.strip_prefix(&self.before).and_then(|it| it.strip_suffix(&self.after));
        inner.map(str::trim).filter(|question| !question.is_empty()).unwrap_or(prompt)
    }
}

/// Finds line ends, and marks of templates such as `<|im_end|>` and `[/INST]`, in which there is no space.
fn marks(text: &str) -> Vec<Range<usize>> {
    let mut marks = Vec::new();
    let mut open = None;
    for (at, letter) in text.char_indices() {
        match letter {
            '\n' => marks.push(at..at + 1),
            '<' | '[' => open = Some(at),
            '>' | ']' => marks.extend(open.take().map(|start| start..at + 1)),
            _ => {}
        }
        if letter.is_whitespace() {
            open = None;
        }
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_what_prompts_do_not_have_in_common() {
        let chat = |question: &str| {
            format!(
                "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
            )
        };
        let asked = ["Which day follows Sunday?", "Which day follows Friday?", "2 < 3?\nSay why."];
        let prompts = asked.map(chat);
        let frame = PromptFrame::of(&prompts);
        for (asked, prompt) in asked.iter().zip(&prompts) {
            assert_eq!(frame.question(prompt), *asked);
        }

        // Without a template there is nothing to leave out, nor with a single prompt.
        for prompts in
            [vec!["47+85=".to_owned(), "4+85=".into()], vec![chat("?"), chat("?")], vec![]]
        {
            assert_eq!(PromptFrame::of(&prompts), PromptFrame::default());
        }
        assert_eq!(frame.question("another"), "another");
    }
}
