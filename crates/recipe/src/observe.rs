//! The table of what is observed: counted, and neither rewarded nor trained on.
//!
//! As in `tables`, the doc comments are the descriptions in the JSON schema and in the book.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is counted in sampled completions, without any effect on the training.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Observe {
    /// Phrases that show self-checking, such as `["wait", "let me check"]`: metrics have the share of
    /// completions with each, and how often. One is found anywhere in the text, also inside of a
    /// word, and whatever its case.
    #[schemars(length(max = 100), inner(length(min = 1, max = 100)))]
    pub phrases: Vec<String>,
}
