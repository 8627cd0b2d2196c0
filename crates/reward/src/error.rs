/// What can be wrong with the material of a verifier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RewardError {
    /// A countdown reference that is not of the documented form.
    #[error(
        "a countdown reference should look like `3 7 25 50 : 82` (numbers, a colon, the target), \
         but in `{text}` {problem}; correct that row, or choose another verifier"
    )]
    CountdownProblem {
        /// The reference, cut to a readable length.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
}
