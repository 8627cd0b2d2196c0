use std::fmt;

use serde::Serialize;

use crate::{Description, Name, Precision};

/// What the suite found on one device.
#[derive(Clone, Debug, Serialize)]
pub struct SuiteReport {
    /// Where it ran.
    pub device: Name,
    /// What that is.
    pub description: Description,
    /// Whether no case failed.
    pub passed: bool,
    /// How long all of it took.
    pub seconds: f64,
    /// Case by case.
    pub cases: Vec<CaseReport>,
}

/// What one case found.
#[derive(Clone, Debug, Serialize)]
pub struct CaseReport {
    /// `group/name`.
    pub name: &'static str,
    /// The format of the numbers on the device.
    pub precision: Precision,
    /// What kind of bound holds.
    pub tolerance: &'static str,
    /// The bound, relative to the largest entry of an array.
    pub bound: f64,
    /// The verdict.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// On the device, compilation of kernels included.
    pub seconds: f64,
}

/// A case's verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// Within its bound.
    Passed {
        /// The largest error, relative to the largest entry of its array.
        error: f64,
    },
    /// Beyond its bound.
    Failed {
        /// The largest error, relative to the largest entry of its array.
        error: f64,
        /// The array with that error.
        array: String,
        /// The entry in it, row-major.
        index: usize,
        /// What the device computed there.
        device: f32,
        /// What it should be.
        expected: f32,
    },
    /// It did not get to an end.
    Broken {
        /// What the device said.
        message: String,
    },
    /// It does not apply to the device.
    Skipped {
        /// Why not.
        reason: String,
    },
}

impl SuiteReport {
    /// How many cases passed, in a line.
    pub fn summary(&self) -> String {
        let of = |wanted: fn(&Outcome) -> bool| {
            self.cases.iter().filter(|case| wanted(&case.outcome)).count()
        };
        format!(
            "{}: {} of {} cases passed, {} skipped, in {:.0} s",
            self.device,
            of(|outcome| matches!(outcome, Outcome::Passed { .. })),
            self.cases.len(),
            of(|outcome| matches!(outcome, Outcome::Skipped { .. })),
            self.seconds,
        )
    }
}

/// Case by case, and the summary.
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
        write!(f, "{name:<28} {precision:<5}")?;
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
