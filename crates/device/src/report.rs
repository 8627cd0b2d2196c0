//! The suite's report on a device, as JSON and as text.

use std::fmt;

use serde::Serialize;

use crate::{Description, Name, Precision};

/// Results of the suite on one device.
#[derive(Clone, Debug, Serialize)]
pub struct SuiteReport {
    /// Device that the suite ran on.
    pub device: Name,
    /// Description of that device.
    pub description: Description,
    /// Whether no case failed.
    pub passed: bool,
    /// Seconds that all cases took.
    pub seconds: f64,
    /// Results of the cases, in their order.
    pub cases: Vec<CaseReport>,
}

/// Result of one case.
#[derive(Clone, Debug, Serialize)]
pub struct CaseReport {
    /// Name of the case, as `group/name`.
    pub name: &'static str,
    /// Format of the numbers on the device.
    pub precision: Precision,
    /// Name of the bound, such as `sum`.
    pub tolerance: &'static str,
    /// Bound, relative to the largest entry of an array.
    pub bound: f64,
    /// Verdict.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Seconds on the device, compilation of kernels included.
    pub seconds: f64,
}

/// A case's verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// Within its bound.
    Passed {
        /// Largest error, relative to the largest entry of its array.
        error: f64,
    },
    /// Beyond its bound.
    Failed {
        /// Largest error, relative to the largest entry of its array.
        error: f64,
        /// Array with that error.
        array: String,
        /// Index of that entry in the array, row-major.
        index: usize,
        /// Number that the device computed there.
        #[serde(rename = "computed")]
        device: f32,
        /// Number that is right.
        expected: f32,
    },
    /// Ended by a failure before there was a result.
    Broken {
        /// Message of the device.
        message: String,
    },
    /// Not for this device.
    Skipped {
        /// Why it does not apply.
        reason: String,
    },
}

/// How many cases have each verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdicts {
    /// Cases within their bounds.
    pub passed: usize,
    /// Cases beyond their bounds.
    pub failed: usize,
    /// Cases that a failure ended.
    pub broken: usize,
    /// Cases that do not apply.
    pub skipped: usize,
}

impl SuiteReport {
    /// Counts the verdicts.
    pub fn verdicts(&self) -> Verdicts {
        let mut counts = Verdicts::default();

        for case in &self.cases {
            *match case.outcome {
                Outcome::Passed { .. } => &mut counts.passed,
                Outcome::Failed { .. } => &mut counts.failed,
                Outcome::Broken { .. } => &mut counts.broken,
                Outcome::Skipped { .. } => &mut counts.skipped,
            } += 1;
        }
        counts
    }

    /// Says in a line how many cases passed.
    pub fn summary(&self) -> String {
        let Verdicts { passed, skipped, .. } = self.verdicts();
        let all = self.cases.len();
        format!(
            "{}: {passed} of {all} cases passed, {skipped} skipped, in {:.0} s",
            self.device, self.seconds,
        )
    }
}

/// Writes the cases one by one, and the summary.
impl fmt::Display for SuiteReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for case in &self.cases {
            writeln!(f, "{case}")?;
        }
        f.write_str(&self.summary())
    }
}

impl fmt::Display for CaseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CaseReport { name, precision, bound, seconds, .. } = self;
        write!(f, "{name:<29} {precision:<5}")?;

        match &self.outcome {
            Outcome::Passed { error } => {
                write!(f, "passed   {error:8.1e} of {bound:.1e}  {seconds:6.1} s")
            }
            Outcome::Failed { error, array, index, device, expected } => write!(
                f,
                "FAILED   {error:8.1e} of {bound:.1e}  {seconds:6.1} s  {array}[{index}] is \
                 {device}, expected {expected}"
            ),
            Outcome::Broken { message } => {
                write!(f, "BROKEN   {message}")
            }
            Outcome::Skipped { reason } => write!(f, "skipped  {reason}"),
        }
    }
}
