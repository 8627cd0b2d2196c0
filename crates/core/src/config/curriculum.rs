//! Options of a curriculum.

use serde::{Deserialize, Serialize};

/// A curriculum by the prompts' history. It passes over prompts whose groups had nothing to teach, before their
/// completions are paid for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum CurriculumRule {
    /// A prompt is skipped if the base rewards of its last group hardly varied. If too much of a round would be
    /// skipped, some of the skipped prompts are put back at random.
    Variance(VarianceRule),
    /// A prompt is skipped if its next group is predicted to have no spread. The prediction follows from the
    /// prompt's right and wrong completions so far, which count less with every step, and from the pass rates of
    /// all prompts.
    Posterior(PosteriorRule),
}

/// Options of [`CurriculumRule::Variance`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct VarianceRule {
    /// Variance of a group's rewards, with the group's size as the divisor, up to which a prompt is skipped.
    /// It has to be less than the largest possible one, (`right` − `wrong`)² / 4 with the rewards of these names.
    #[cfg_attr(feature = "schema", schemars(range(min = 0.0)))]
    pub min_variance: f64,
    /// Share of a round, in [0, 1], beyond which some of the skipped prompts are put back.
    #[cfg_attr(feature = "schema", schemars(range(min = 0.0, max = 1.0)))]
    pub skip_fraction_trigger: f64,
    /// Number of prompts that are put back, as a share of the round, in [0, 1].
    #[cfg_attr(feature = "schema", schemars(range(min = 0.0, max = 1.0)))]
    pub refill_fraction: f64,
    /// Steps after which a prompt is tried again. 0 is never: a prompt may then be lost for ever.
    #[cfg_attr(feature = "schema", schemars(range(max = super::MAX_STEPS)))]
    pub expire: u64,
}

impl Default for VarianceRule {
    fn default() -> Self {
        VarianceRule {
            min_variance: 0.01,
            skip_fraction_trigger: 0.5,
            refill_fraction: 0.2,
            expire: 20,
        }
    }
}

/// Options of [`CurriculumRule::Posterior`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct PosteriorRule {
    /// The predicted probability of spread, in [0, 1], below which a prompt is skipped.
    #[cfg_attr(feature = "schema", schemars(range(min = 0.0, max = 1.0)))]
    pub min_spread_probability: f64,
    /// Steps after which a completion counts half; above 0.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0.0)))]
    pub half_life: f64,
    /// Share of a round's groups, in [0, 1], that take the next prompt whatever is predicted. At 0.0 a prompt may be
    /// lost for ever.
    #[cfg_attr(feature = "schema", schemars(range(min = 0.0, max = 1.0)))]
    pub explore: f64,
}

impl Default for PosteriorRule {
    fn default() -> Self {
        PosteriorRule { min_spread_probability: 0.5, half_life: 10.0, explore: 0.1 }
    }
}

impl CurriculumRule {
    /// Returns the fraction of a completion's weight as evidence that is left after that many steps.
    pub fn discount(&self, steps: f64) -> f64 {
        match self {
            CurriculumRule::Variance(_) => 1.0,
            CurriculumRule::Posterior(rule) => rule.discount(steps),
        }
    }
}

impl PosteriorRule {
    /// Returns the fraction of a completion's weight as evidence that is left after that many steps.
    pub fn discount(&self, steps: f64) -> f64 {
        (-steps / self.half_life).exp2()
    }
}
