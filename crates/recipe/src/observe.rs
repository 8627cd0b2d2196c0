//! Table `[observe]` of a recipe: phrases that are counted, and neither rewarded nor trained on.
//!
//! As in `tables`, the doc comments are the descriptions in the JSON schema and in the book.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Phrases that are counted in sampled completions, without any effect on the training.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Observe {
    /// Phrases that show self-checking, such as `["wait", "let me check"]`. For each phrase, metrics have the
    /// share of completions that contain it, and how often they do on average. A phrase is found anywhere in the
    /// text, even inside a word, and whatever its case.
    #[schemars(length(max = 100), inner(length(min = 1, max = 100)))]
    pub phrases: Vec<String>,
}
