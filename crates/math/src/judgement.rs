//! What a judgement returns.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// A verdict with its grounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// Whether the answer is right, and if not, what it is instead.
    pub verdict: Verdict,
    /// How sure the verdict is.
    pub certainty: Certainty,
    /// Answer as it is written in the response; `None` if there is none.
    pub extracted: Option<Span>,
    /// Answer in canonical form; `None` if it could not be read.
    pub canonical: Option<String>,
    /// Gold answer in canonical form; `None` if it could not be read.
    pub gold: Option<String>,
    /// Reason for the verdict, in a sentence.
    pub why: String,
}

/// Verdict on an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The answer is the gold answer.
    Right,
    /// The answer is another one, or the verifier could not tell.
    Wrong,
    /// The response has no answer, or one that could not be read.
    Unparsable,
    /// The budget ran out before the verifier could tell.
    OverBudget,
    /// The gold text has no answer, or one that could not be read.
    Error,
}

/// A part of a response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Bytes of the response that hold the answer, without its delimiters.
    pub range: Range<usize>,
    /// Answer as it is read: the text of `range`, or the joined contents of several boxes.
    pub text: String,
}

/// How sure a verdict is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// Proved by exact arithmetic, or by intervals that exclude each other.
    Proved,
    /// The values agree. Unequal values would agree by chance with a probability below 2^-bits.
    Probable {
        /// Minus the binary logarithm of the chance of error.
        bits: u32,
    },
    /// The verifier could not tell. The answer counts as not equal.
    Undecided,
}

impl Judgement {
    /// Builds the judgement of texts in which there was nothing to compare.
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
