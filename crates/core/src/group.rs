//! Groups of completions.

use serde::{Deserialize, Serialize};

use crate::{Completion, Prompt, Step};

/// One prompt and the completions that were sampled for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Question that all completions answer.
    pub prompt: Prompt,
    /// Answers to the prompt, `group_size` of them.
    pub completions: Vec<Completion>,
    /// Step whose policy wrote the completions; older than the current step if the group was surplus.
    pub step: Step,
    /// Number of this draw from the prompt source, counted over the whole run. A prompt drawn twice counts as two
    /// draws and gets new completions.
    pub draw: u64,
}
