//! Reports of a preparation: how many prompts or examples were kept, and why the others were dropped.

use std::{fmt, ops::AddAssign};

/// A report on the problems that were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptReport {
    /// Number of problems that were read.
    pub read: usize,
    /// Number of prompts that were kept.
    pub kept: usize,
    /// Prompts dropped because they are longer than `max_prompt_tokens`.
    pub too_long: usize,
    /// Prompts dropped because they have no token.
    pub empty: usize,
    /// Prompts dropped because an earlier one has the same question.
    pub duplicates: usize,
    /// Prompts dropped because another one has the same question and another reference.
    pub conflicting: usize,
}

impl AddAssign for PromptReport {
    fn add_assign(&mut self, other: Self) {
        self.read += other.read;
        self.kept += other.kept;
        self.too_long += other.too_long;
        self.empty += other.empty;
        self.duplicates += other.duplicates;
        self.conflicting += other.conflicting;
    }
}

impl fmt::Display for PromptReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} prompts kept", self.kept, self.read)?;

        for (count, why) in [
            (self.too_long, "too long"),
            (self.empty, "empty"),
            (self.duplicates, "duplicates"),
            (self.conflicting, "with conflicting references"),
        ] {
            if count > 0 {
                write!(f, ", {count} {why}")?;
            }
        }

        Ok(())
    }
}

/// A report on the rows that SFT was to imitate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SftReport {
    /// Number of rows that were read.
    pub read: usize,
    /// Number of examples that were kept.
    pub kept: usize,
    /// Rows left out because their prompt is longer than prompts may be, or has no token.
    pub long_prompts: usize,
    /// Limit on the tokens of a prompt.
    pub max_prompt_tokens: usize,
    /// Rows left out because their completion, its end included, is longer than the policy may write.
    pub long_completions: usize,
    /// Limit on the tokens of a completion.
    pub max_completion_tokens: usize,
}

impl fmt::Display for SftReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} examples kept", self.kept, self.read)?;

        for (count, what, limit) in [
            (self.long_prompts, "prompt", self.max_prompt_tokens),
            (self.long_completions, "completion", self.max_completion_tokens),
        ] {
            if count > 0 {
                write!(f, ", {count} with a {what} of more than {limit} tokens")?;
            }
        }

        Ok(())
    }
}
