//! The report of a preparation: how many prompts were kept, and why the others were dropped.

use std::fmt;

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
