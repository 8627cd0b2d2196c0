//! The suite's report on a device, as JSON and as text.

use std::fmt;

use serde::Serialize;

use crate::{Description, Name, Precision};

/// The results of the suite on one device.
#[derive(Clone, Debug, Serialize)]
pub struct SuiteReport {
    /// The device that the suite ran on.
    pub device: Name,
    /// The description of that device.
    pub description: Description,
    /// True if no case failed.
    pub passed: bool,
    /// The seconds that all cases took.
    pub seconds: f64,
    /// The results of the cases, in their order.
    pub cases: Vec<CaseReport>,
}

/// The result of one case.
#[derive(Clone, Debug, Serialize)]
pub struct CaseReport {
    /// The case's name, as `group/name`.
    pub name: &'static str,
    /// The format of the numbers on the device.
    pub precision: Precision,
    /// The name of the bound, such as `sum`.
    pub tolerance: &'static str,
    /// The bound, relative to the largest entry of an array.
    pub bound: f64,
    /// The verdict.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The seconds on the device, compilation of kernels included.
    pub seconds: f64,
}

/// A case's verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The case is within its bound.
    Passed {
        /// The largest error, relative to the largest entry of its array.
        error: f64,
    },
    /// The case is beyond its bound.
    Failed {
        /// The largest error, relative to the largest entry of its array.
        error: f64,
        /// The array with that error.
        array: String,
        /// The place of that entry in the array, row-major.
        index: usize,
        /// The number that the device computed there.
        #[serde(rename = "computed")]
        device: f32,
        /// The number that is right.
        expected: f32,
    },
    /// The case did not get to an end.
    Broken {
        /// The device's message.
        message: String,
    },
    /// The case does not apply to the device.
    Skipped {
        /// The reason why it does not apply.
        reason: String,
    },
}

/// The number of cases with each verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdicts {
    /// The cases within their bounds.
    pub passed: usize,
    /// The cases beyond their bounds.
    pub failed: usize,
    /// The cases that did not get to an end.
    pub broken: usize,
    /// The cases that do not apply.
    pub skipped: usize,
}

impl SuiteReport {
    /// Counts the verdicts.
    pub fn verdicts(&self) -> Verdicts {
        let mut of = Verdicts::default();
        for case in &self.cases {
            *match case.outcome {
                Outcome::Passed { .. } => &mut of.passed,
                Outcome::Failed { .. } => &mut of.failed,
                Outcome::Broken { .. } => &mut of.broken,
                Outcome::Skipped { .. } => &mut of.skipped,
            } += 1;
        }
        of
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
