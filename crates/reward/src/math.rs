//! Mathematical answers, judged as a careful reader would: what was the answer, and is it the same
//! thing as the reference?

mod algebra;
mod budget;
mod compare;
mod expr;
mod extract;
mod parse;
mod value;

use std::ops::Range;

use firebrick_core::{Completion, Prompt, Score, Verdict};
use serde::{Deserialize, Serialize};

/// Judges mathematical answers: extracts exactly one from a response, reads it completely or not at
/// all, and compares it with the gold answer as a value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Verifier {
    /// Where the answer of a response is.
    pub extraction: Extraction,
    /// Where the answer of a gold text is.
    pub gold: Gold,
    /// The letters of a multiple-choice question; empty if it is none.
    pub choices: Vec<String>,
    /// Where one side is a decimal number, places after the point that have to agree.
    pub precision: u32,
    /// Whether names of variables and functions count. Without, they are matched by their order.
    pub strict_names: bool,
    /// Whether an inequality may answer for an interval or a set. A set may always answer for an
    /// inequality.
    pub relation_for_set: bool,
    /// Whether a fraction has to be in lowest terms.
    pub reduced_fractions: bool,
    /// Operations that one judgement may take.
    pub budget: u64,
}

impl Default for Verifier {
    fn default() -> Self {
        Verifier {
            extraction: Extraction::Auto,
            gold: Gold::Bare,
            choices: vec![],
            precision: 6,
            strict_names: true,
            relation_for_set: true,
            reduced_fractions: false,
            budget: 2_000_000,
        }
    }
}

/// Where the answer of a response is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extraction {
    /// In the last box; else after the last answer marker; else in the last formula or number.
    #[default]
    Auto,
    /// In the last box, or nowhere.
    Boxed,
    /// In the last box after the end of the reasoning (`</think>`), or nowhere.
    AfterThinking,
    /// The response is the answer.
    Bare,
    /// As `Auto`, but a formula has to stand in LaTeX's delimiters, and bare numbers don't count.
    Latex,
    /// As `Auto`, but only bare numbers count.
    Plain,
}

/// Where the answer of a gold text is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gold {
    /// The gold text is the answer; a box or dollars around all of it are taken off.
    #[default]
    Bare,
    /// The gold text is a solution, from which the answer is extracted as from a response.
    Solution,
}

/// A verdict with everything it rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// How sure it is.
    pub certainty: Certainty,
    /// The answer as it stands in the response; none when there is none.
    pub extracted: Option<Span>,
    /// The answer in canonical form; none when it could not be read.
    pub canonical: Option<String>,
    /// The gold answer in canonical form; none when it could not be read.
    pub gold: Option<String>,
    /// The reason in a sentence.
    pub why: String,
}

/// A part of a response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The bytes of the response that hold the answer, delimiters left out.
    pub range: Range<usize>,
    /// The answer as it is read: the text of `range`, or the joined contents of several boxes.
    pub text: String,
}

/// How sure a verdict is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// By exact arithmetic, or by intervals that exclude each other.
    Proved,
    /// Unequal values would agree by chance with a probability below 2^-bits.
    Probable {
        /// Minus the binary logarithm of the chance of error.
        bits: u32,
    },
    /// It could not be told, and counts as not equal.
    Undecided,
}

impl Verifier {
    /// Judges `response` against `gold`.
    pub fn score(&self, gold: &str, response: &str) -> Judgement {
        let _ = (gold, response);
        unimplemented!()
    }
}

impl firebrick_core::Verifier for Verifier {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        let judgement = self.score(&prompt.reference, &completion.text);
        let extracted = judgement.extracted.map(|span| span.text).unwrap_or_default();
        match judgement.verdict {
            Verdict::Right => Score::right(extracted),
            verdict => Score { verdict, credit: 0.0, extracted },
        }
    }
}
