//! Compares the work of training on a device with the same work on the CPU.
//!
//! A [`Case`] computes some arrays on any device that it gets. The suite runs it on the CPU and on the device, and
//! compares the arrays entry by entry. One suite serves every device, as a test and in `firebrick doctor --suite`.

mod attention;
mod defects;
mod experts;
mod head;
mod model;
mod noise;
mod operations;
mod pages;
mod products;
mod sampling;
mod tensors;
mod training;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use burn::tensor::Device;

use crate::{
    CaseReport, Description, Failure, Kind, Name, Outcome, Precision, SuiteReport, Tolerance,
    describe, guard,
};

/// One comparison.
pub struct Case {
    /// Name of the case, as `group/name`.
    pub name: &'static str,
    /// Format of the numbers on the device. The CPU computes in f32 from the same numbers.
    pub precision: Precision,
    /// Largest allowed distance between the arrays.
    pub tolerance: Tolerance,
    /// Whether the computation would take minutes on a processor: such a case is for GPUs.
    pub large: bool,
    /// What the case computes.
    pub compute: Compute,
}

/// Computes a case's arrays, in a format.
pub type Compute = fn(&Device, Precision) -> Result<Vec<Array>, Failure>;

/// Numbers that a case computed.
pub struct Array {
    /// Name of the numbers.
    pub name: String,
    /// Numbers, row-major.
    pub values: Vec<f32>,
    /// Right numbers, if they are not those that the CPU computes.
    pub expected: Option<Vec<f32>>,
}

impl Array {
    /// Makes an array that should be equal to the CPU's.
    pub fn new(name: impl Into<String>, values: Vec<f32>) -> Self {
        Array { name: name.into(), values, expected: None }
    }

    /// Makes an array that should be equal to `expected` on every device.
    pub fn with_expected(name: impl Into<String>, values: Vec<f32>, expected: Vec<f32>) -> Self {
        Array { name: name.into(), values, expected: Some(expected) }
    }
}

static LAUNCHES_ONLY: AtomicBool = AtomicBool::new(false);

/// Makes all cases of the process launch their kernels and compare nothing. They are then reported as skipped. On a
/// device that computes nothing, the right numbers of the large cases would take longer than everything else.
pub fn launch_only() {
    LAUNCHES_ONLY.store(true, Ordering::Relaxed);
}

/// Tells whether the results of cases are compared with right numbers.
fn compares() -> bool {
    !LAUNCHES_ONLY.load(Ordering::Relaxed)
}

/// Returns every case, in the order in which they build on each other.
pub fn cases() -> Vec<Case> {
    [
        tensors::cases(),
        operations::cases(),
        attention::cases(),
        pages::cases(),
        head::cases(),
        products::cases(),
        model::cases(),
        experts::cases(),
        sampling::cases(),
        training::cases(),
        defects::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns the few cases that show whether a device computes: matmul, a decode step, a backward pass.
pub fn smoke() -> Vec<Case> {
    let chosen = ["tensors/matmul", "model/decode", "model/gradients"];
    cases()
        .into_iter()
        .filter(|case| case.precision == Precision::F32 && chosen.contains(&case.name))
        .collect()
}

/// Runs `cases` on `device`, which is called `name`. `done` is called with each case as it ends.
///
/// A case that fails or panics is reported, and the next case runs.
///
/// # Errors
/// If the device can't even say what it is.
pub fn run(
    name: Name,
    device: &Device,
    cases: &[Case],
    done: &mut dyn FnMut(&CaseReport),
) -> Result<SuiteReport, Failure> {
    let began = Instant::now();
    // A driver that fails here would fail in each case.
    let description = guard(|| describe(name, device))?;

    let mut reports = Vec::with_capacity(cases.len());
    for case in cases {
        let report = case.run(device, &description);
        done(&report);
        reports.push(report);
    }

    let bad = |report: &CaseReport| {
        matches!(report.outcome, Outcome::Failed { .. } | Outcome::Broken { .. })
    };
    Ok(SuiteReport {
        device: name,
        description,
        passed: !reports.iter().any(bad),
        seconds: began.elapsed().as_secs_f64(),
        cases: reports,
    })
}

impl Case {
    /// Makes a case that every device with the format can compute.
    pub fn new(
        name: &'static str,
        precision: Precision,
        tolerance: Tolerance,
        compute: Compute,
    ) -> Self {
        Case { name, precision, tolerance, large: false, compute }
    }

    /// Makes cases of a computation in every format.
    fn in_every_format(
        name: &'static str,
        tolerance: Tolerance,
        compute: Compute,
    ) -> [Case; Precision::ALL.len()] {
        Precision::ALL.map(|precision| Case::new(name, precision, tolerance, compute))
    }

    /// Explains why the case does not apply to a device, if it does not.
    fn idle(&self, about: &Description) -> Option<String> {
        let on_processor = about.software || about.device.kind == Kind::Cpu;
        if !about.computes.contains(&self.precision) {
            Some(format!("the device does not compute {}", self.precision))
        } else if self.large && on_processor {
            Some("it is too large for a device that computes on the processor".into())
        } else {
            None
        }
    }

    fn run(&self, device: &Device, about: &Description) -> CaseReport {
        let began = Instant::now();
        let bound = self.tolerance.relative(self.precision);

        // Only the device is timed: the CPU computes its reference afterwards.
        let computed = match self.idle(about) {
            Some(reason) => Err(reason),
            None => Ok(guard(|| (self.compute)(device, self.precision)).and_then(|arrays| arrays)),
        };
        let seconds = began.elapsed().as_secs_f64();

        let outcome = match computed {
            Err(reason) => Outcome::Skipped { reason },
            Ok(Err(failure)) => Outcome::Broken { message: failure.to_string() },
            Ok(Ok(_)) if !compares() => Outcome::Skipped {
                reason: "its kernels were launched, and nothing was compared".into(),
            },
            Ok(Ok(arrays)) if arrays.is_empty() => {
                Outcome::Skipped { reason: "the device does not report the memory in use".into() }
            }
            Ok(Ok(arrays)) if arrays.iter().all(|array| array.expected.is_some()) => {
                compare(&arrays, None, bound)
            }
            Ok(Ok(arrays)) => {
                match guard(|| (self.compute)(&Device::flex(), Precision::F32)).and_then(|all| all)
                {
                    Ok(reference) => compare(&arrays, Some(&reference), bound),
                    Err(failure) => Outcome::Broken {
                        message: format!("the CPU's reference failed: {failure}"),
                    },
                }
            }
        };

        let Case { name, precision, tolerance, .. } = *self;
        CaseReport { name, precision, tolerance: tolerance.name, bound, outcome, seconds }
    }
}

/// Finds the largest error over all arrays, each relative to its array's largest expected entry. An array holds its
/// expected entries, or those of `reference` at the same index are expected. A number that is not finite is never
/// right.
fn compare(arrays: &[Array], reference: Option<&[Array]>, bound: f64) -> Outcome {
    if let Some(reference) = reference
        && reference.len() != arrays.len()
    {
        let message =
            format!("the device computed {} arrays, expected {}", arrays.len(), reference.len());
        return Outcome::Broken { message };
    }

    let mut worst = Outcome::Passed { error: 0.0 };
    let mut largest = 0.0;

    for (index, array) in arrays.iter().enumerate() {
        let computed = reference.map(|reference| &reference[index].values);
        let Some(expected) = array.expected.as_ref().or(computed) else {
            return Outcome::Broken { message: format!("{} has no expected values", array.name) };
        };

        if array.values.len() != expected.len() {
            let (got, wanted) = (array.values.len(), expected.len());
            let message = format!("{} has {got} entries, expected {wanted}", array.name);
            return Outcome::Broken { message };
        }

        // Infinite entries would make every error of the others 0.
        let finite = expected.iter().filter(|value| value.is_finite());
        let scale = finite.fold(0f64, |most, value| most.max(f64::from(value.abs())));
        for (index, (&device, &expected)) in array.values.iter().zip(expected).enumerate() {
            let error = if !device.is_finite() || !expected.is_finite() {
                f64::INFINITY
            } else {
                // If all entries should be zero, the error is absolute.
                f64::from((device - expected).abs()) / if scale > 0.0 { scale } else { 1.0 }
            };

            if error >= largest {
                largest = error;
                worst = if error > bound {
                    Outcome::Failed { error, array: array.name.clone(), index, device, expected }
                } else {
                    Outcome::Passed { error }
                };
            }
        }
    }
    worst
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(device: &[f32], expected: &[f32]) -> Outcome {
        let array = Array::with_expected("a", device.to_vec(), expected.to_vec());
        compare(&[array], None, 0.125)
    }

    #[test]
    fn a_comparison_fails_where_it_should() {
        let failed = |outcome: Outcome, at: usize| matches!(outcome, Outcome::Failed { index, .. } if index == at);

        assert_eq!(verdict(&[1.0, 4.5], &[1.0, 4.0]), Outcome::Passed { error: 0.125 });
        assert!(failed(verdict(&[2.0, 4.0], &[1.0, 4.0]), 0));
        assert!(failed(verdict(&[0.0, 0.25], &[0.0, 0.0]), 1));
        assert!(failed(verdict(&[f32::NAN], &[f32::NAN]), 0));
        assert!(failed(verdict(&[1.0, f32::INFINITY], &[9.0, f32::INFINITY]), 1));
        assert!(matches!(verdict(&[1.0], &[1.0, 1.0]), Outcome::Broken { .. }));

        let one = [Array::new("a", vec![1.0])];
        assert!(matches!(compare(&one, Some(&[]), 1.0), Outcome::Broken { .. }));
        assert!(matches!(compare(&one, None, 1.0), Outcome::Broken { .. }));
    }

    #[test]
    fn a_case_that_panics_is_broken_and_the_next_one_runs() {
        let case = |compute| Case::new("none/none", Precision::F32, Tolerance::EXACT, compute);

        let cases = [
            case(|_, _| panic!("no such kernel")),
            case(|_, _| Ok(Vec::new())),
            case(|device, _| {
                let there = f32::from(device.is_autodiff());
                Ok(vec![Array::new("a", vec![there])])
            }),
        ];

        let report = run(Name::default(), &Device::flex(), &cases, &mut |_| ()).unwrap();
        assert!(!report.passed);

        // Each case has its own verdict, whatever the result of the case before it.
        let outcomes: Vec<&Outcome> = report.cases.iter().map(|case| &case.outcome).collect();
        assert!(matches!(outcomes[0], Outcome::Broken { message } if message.contains("kernel")));
        assert!(matches!(outcomes[1], Outcome::Skipped { .. }));
        assert_eq!(*outcomes[2], Outcome::Passed { error: 0.0 });
    }

    /// Runs the large cases, for which there is no other device here.
    #[test]
    #[ignore = "a minute and 2.2 GB; the stage `kernels` of CI runs it"]
    fn the_large_cases_pass_on_the_cpu_too() {
        let mut large = cases();
        large.retain(|case| case.large && case.precision == Precision::F32);
        let large: Vec<Case> =
            large.into_iter().map(|case| Case { large: false, ..case }).collect();
        let report = run(Name::default(), &Device::flex(), &large, &mut |_| ()).unwrap();
        assert!(report.passed, "{report}");
    }
}
