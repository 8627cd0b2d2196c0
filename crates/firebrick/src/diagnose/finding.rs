//! What a rule has found, in words and numbers.

use firebrick_runs::Which;

/// What a rule has found.
#[derive(Default)]
pub(super) struct RuleFinding {
    pub(super) name: &'static str,
    pub(super) what: String,
    pub(super) evidence: Vec<String>,
    pub(super) remedy: String,
    /// Completions that show it.
    pub(super) which: Option<Which>,
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}
