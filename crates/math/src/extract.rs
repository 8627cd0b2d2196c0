//! Finds the answer in a text.
//!
//! A text has one answer or none. If several parts could hold the answer, a rule picks one, and that part is read
//! unchanged. An answer that can't be read isn't replaced by another one that can, because a verifier that tries every
//! candidate rewards guessing. The rules, first to last:
//!
//! 1. **The turn.** The text ends where the model's turn ends (`<|im_end|>`, `</s>`, …); the rest is not the model's
//!    own. If there is a `</think>` or another tag of [`crate::thoughts`], only the text after the last one is
//!    searched. If no answer is found there, there is none: an intermediate result is not an answer. For the same
//!    reason a text has no answer if it breaks off after a `<think>`.
//! 2. **The last box** (`\boxed{…}`, `\fbox{…}`, `\framebox{…}`) wins over everything else, wherever it is, because a
//!    box has no other use. Braces are matched, with escapes understood. A box without braces (`\boxed 5`) counts in
//!    mathematics, while in prose it is only the name of the command. A box that is never closed counts if no box is
//!    closed. A box that waits for an answer (`\boxed{}`, `\boxed{...}`) doesn't count. A box that holds only a box is
//!    that inner one. Neighbours are one answer (`\boxed{3}` and `\boxed{4}` give `3, 4`) if [`grouping::joins_boxes`]
//!    says so; in `\boxed{3} is wrong, it is \boxed{4}` the last box counts.
//! 3. **The last marker**: `Answer:` (with Markdown or LaTeX around it), “the answer is”, a heading “Final Answer”,
//!    `#### 18`, `<answer>`, `答案：`. The marker's field is the rest of the line, or the next line with something on it,
//!    up to the end of the first sentence. A display or an environment that begins there is read to its end. In the
//!    field the answer is the part after the verb, or else the last mathematics: “The volume of $ABCD$ is 120. I hope
//!    it is correct.” gives `120`, “42 apples” gives `42`, “$x=3$ and $y=4$” gives `x=3, y=4`. A field without
//!    mathematics gives the whole sentence: `no solution`. If nothing follows the marker, there is no answer, and the
//!    text before the marker is not searched, because the text broke off. If a word before the mathematics changes its
//!    meaning (`not 5`, `half of 5`, `at least 5`), the whole sentence is the answer.
//! 4. **The whole text**, if it is a single line that is all mathematics: `4\sqrt{2}`, `f(x) = 0`.
//! 5. **The last formula or number**, whichever ends last. A number is taken with the mathematics around it
//!    (`x = 3/4`), and never out of a word or a formula. A condition after a formula (“for all $x>0$”) doesn't count.
//!    If the text denies it (“it is not 5”), the whole sentence is the answer.
//! 6. **A text of up to three words** without any mathematics.
//!
//! A percent sign or word after a box, a formula or a number belongs to it: `$\boxed{28}$ percent`
//! gives `28 \%`. Other units don't.
//!
//! Every rule takes time linear in the text. Boxes are searched in the whole text, everything else in the last 64 KiB.

mod blank;
mod box_command;
mod boxes;
mod delimiters;
mod fallback;
mod formula;
mod grouping;
mod marker;
mod negation;
mod number;
mod prose;
mod sentence;
mod trim;

use std::ops::Range;

use serde::{Deserialize, Serialize};

use self::{sentence::AnswerKind, trim::Turn};
use crate::judgement::Span;

/// Where the answer of a completion is searched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Extraction {
    /// The answer is in the last box, else after the last answer marker, else in the last formula or number.
    #[default]
    Auto,
    /// The answer is in the last box, or nowhere.
    Boxed,
    /// The answer is in the last box after the end of the reasoning (`</think>`), or nowhere.
    AfterThinking,
    /// The whole completion is the answer.
    Bare,
    /// As `auto`, but a formula has to be in LaTeX's delimiters, and bare numbers don't count.
    Latex,
    /// As `auto`, but only bare numbers count.
    Plain,
}

/// An answer found in a text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    /// Span of the answer in the text, with the text to read.
    pub(crate) span: Span,
    /// Rule that found the answer.
    pub(crate) why: &'static str,
}

/// Finds the answer in `text`, if it has one.
pub(crate) fn extract(text: &str, extraction: Extraction) -> Option<Answer> {
    let turn = Turn::of(text);
    let part = match extraction {
        Extraction::Bare => turn.range,
        Extraction::AfterThinking => turn.after_an_end(text)?,
        _ => turn.after_thoughts()?,
    };

    if extraction == Extraction::Bare {
        return bare(text, part);
    }

    let boxed = boxed(text, part.clone());
    match extraction {
        Extraction::Boxed | Extraction::AfterThinking => boxed,
        Extraction::Plain if boxed.is_some() => {
            spell(number::last(text, boxed?.span.range), "a number in the last box")
        }
        _ => boxed.or_else(|| unboxed(text, part, extraction)),
    }
}

/// Tells whether a text is a solution that marks its answer.
pub(crate) fn marks_an_answer(text: &str) -> bool {
    text.contains("####") || text.contains("\\boxed") || marker::last(text, 0..text.len()).is_some()
}

fn answer(range: Range<usize>, text: String, why: &'static str) -> Option<Answer> {
    (!text.trim().is_empty()).then_some(Answer { span: Span { range, text }, why })
}

/// Finds the last box, or the boxes that are one answer with it.
fn boxed(text: &str, part: Range<usize>) -> Option<Answer> {
    let (range, read) = boxes::last(text, part)?;
    answer(range, read, "the last box")
}

/// Takes the whole text, or the box that it consists of.
fn bare(text: &str, part: Range<usize>) -> Option<Answer> {
    if let Some((range, read)) = boxes::only(text, part.clone()) {
        return answer(range, read, "the box that is the whole text");
    }
    let range = trim::trim_around(text, part);
    let read = trim::read(text, range.clone(), false);
    answer(range, read, "the whole text")
}

/// Applies the rules for texts without a box.
fn unboxed(text: &str, part: Range<usize>, extraction: Extraction) -> Option<Answer> {
    if let Some(field) = marker::last(text, part.clone()) {
        if extraction == Extraction::Plain {
            return spell(number::last(text, field.range), "a number after the last marker");
        }

        let (range, read, found) = field.answer(text)?;
        let why = match found {
            AnswerKind::Formula => "the formula after the last answer marker",
            AnswerKind::Plain => "the mathematics after the last answer marker",
            AnswerKind::Words => "the words after the last answer marker",
            AnswerKind::Changed => {
                "the sentence of the last answer marker, because a word changes the value"
            }
        };

        // `Latex` takes no plain mathematics, so its search continues without the marker.
        if extraction != Extraction::Latex
            || matches!(found, AnswerKind::Formula | AnswerKind::Changed)
        {
            return answer(range, read, why);
        }
    }

    if extraction == Extraction::Plain {
        return spell(number::last(text, part), "the last number");
    }

    let formulas = fallback::formulas(text, part.clone());
    if extraction == Extraction::Latex {
        let (range, read) = formula::last_group(text, &formulas)?;
        let found = fallback::affirmed(text, part.start, (range, read, AnswerKind::Formula));
        return answer(found.0, found.1, "the last formula");
    }

    // A text that is all mathematics is read as one, which keeps `f(x) = 0` together.
    if formulas.is_empty()
        && let Some(range) = fallback::whole_text(text, part.clone())
    {
        let read = trim::read(text, range.clone(), true);
        return answer(range, read, "the whole text, which is mathematics");
    }

    match fallback::mathematics(text, part.clone(), &formulas) {
        Some((range, read, AnswerKind::Formula)) => answer(range, read, "the last formula"),
        Some((range, read, AnswerKind::Changed)) => {
            answer(range, read, "the last sentence, because it denies its value")
        }
        Some((range, read, _)) => {
            answer(range, read, "the last number, with the expression around it")
        }
        None => {
            let range = fallback::few_words(text, part)?;
            let read = trim::read(text, range.clone(), true);
            answer(range, read, "the whole text, which is short")
        }
    }
}

fn spell(found: Option<(Range<usize>, String)>, why: &'static str) -> Option<Answer> {
    let (range, read) = found?;
    answer(range, read, why)
}

#[cfg(test)]
mod tests;
