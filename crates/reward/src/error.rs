//! Errors in the references, patterns, parts and programs of verifiers.

/// An error in the material of a verifier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RewardError {
    /// A countdown reference that is not of the documented form.
    #[error(
        "a countdown reference should look like `3 7 25 50 : 82` (numbers, a colon, the target), \
         but in `{text}` {problem}; correct that row, or choose another verifier"
    )]
    CountdownProblem {
        /// The reference, cut to a readable length.
        text: String,
        /// Description of the problem.
        problem: String,
    },
    /// A pattern that cannot be used.
    #[error("the pattern `{pattern}` cannot be used: {problem}")]
    Pattern {
        /// The pattern, cut to a readable length.
        pattern: String,
        /// Description of the problem.
        problem: String,
    },
    /// Parts that do not make a weighted verifier.
    #[error("the parts of a weighted verifier cannot be added up: {problem}")]
    Weighted {
        /// Description of the problem.
        problem: String,
    },
    /// A program that can't judge.
    #[error("the verifier `{program}`: {problem}")]
    Command {
        /// The program's command line.
        program: String,
        /// Description of the problem.
        problem: String,
    },
    /// Programs can't be run.
    #[error("programs can't be run: {problem}")]
    Code {
        /// Description of the problem.
        problem: String,
    },
}
