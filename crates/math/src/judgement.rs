//! What a judgement says.

use std::ops::Range;

use serde::{Deserialize, Serialize};

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

/// How an answer was judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is the gold answer.
    Right,
    /// It is another one, or it could not be told.
    Wrong,
    /// The response has no answer, or one that could not be read.
    Unparsable,
    /// The budget ran out before it could be told.
    OverBudget,
    /// The gold text has no answer, or one that could not be read.
    Error,
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

impl Judgement {
    /// The judgement of texts that gave nothing to compare.
    pub(crate) fn none(verdict: Verdict, why: &str) -> Judgement {
        Judgement {
            verdict,
            certainty: Certainty::Proved,
            extracted: None,
            canonical: None,
            gold: None,
            why: why.to_owned(),
        }
    }
}
