//! Schedules of the learning rate: constant, linear and cosine, with or without warm-up.

use std::f64::consts::PI;

use crate::error::TrainError;

/// Learning rate of each rollout step, however many updates the step makes.
///
/// The rate depends on the step alone, so a resumed run needs no state for it, and a step that is repeated
/// after a crash has the same rate. burn's schedulers count their own calls, keep that count in a record, and
/// refuse a rate of 0 or above 1; its cosine rises again after its end. The formulas here are burn's, as
/// functions of the step.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a schedule of the learning rate",
    label = "the trait `firebrick_train::algorithm::LrSchedule` is missing",
    note = "a fixed rate is `ConstantLr {{ lr }}`; burn's schedulers count their own calls, where this trait \
            gives the rate of any step"
)]
pub trait LrSchedule: Send + Sync {
    /// Returns the rate of the step that follows after `step` others, 0 for the first; finite and at least 0.
    /// The policy's steps are counted from the end of the critic's warm-up.
    fn lr(&self, step: u64) -> f64;
}

impl<S: LrSchedule + ?Sized> LrSchedule for Box<S> {
    fn lr(&self, step: u64) -> f64 {
        (**self).lr(step)
    }
}

/// One rate for every step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConstantLr {
    /// The rate.
    pub lr: f64,
}

impl LrSchedule for ConstantLr {
    fn lr(&self, _: u64) -> f64 {
        self.lr
    }
}

/// A straight line: `from · (1 − step / steps) + to · step / steps`, then `to`.
///
/// The first of `steps` steps has `from`, and the last is one step before `to`, so that a run of that length
/// that ends at 0 has no step at 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearDecay {
    /// Rate of the first step.
    pub from: f64,
    /// Rate after `steps` steps.
    pub to: f64,
    /// How many steps the line takes.
    pub steps: u64,
}

impl LrSchedule for LinearDecay {
    fn lr(&self, step: u64) -> f64 {
        let progress = progress(step, self.steps);
        self.from * (1.0 - progress) + self.to * progress
    }
}

/// Half a cosine: `from · w + to · (1 − w)` with `w = (1 + cos(π · step / steps)) / 2`, then `to` (Loshchilov
/// and Hutter 2017, without restarts). It ends as [`LinearDecay`] does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CosineDecay {
    /// Rate of the first step.
    pub from: f64,
    /// Rate after `steps` steps.
    pub to: f64,
    /// How many steps the curve takes.
    pub steps: u64,
}

impl LrSchedule for CosineDecay {
    fn lr(&self, step: u64) -> f64 {
        let weight = 0.5 * (1.0 + (PI * progress(step, self.steps)).cos());
        self.from * weight + self.to * (1.0 - weight)
    }
}

/// A straight line up to the first rate of another schedule, which then begins.
///
/// Step k of n, counted from 1, has k / n of that rate. With `from_zero`, as in verl, it has (k − 1) / n: the
/// first step then samples and judges, and trains at a rate of 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LrWarmup<S> {
    /// Length of the line in steps; 0 leaves it out.
    pub steps: u64,
    /// True if the first step has a rate of 0.
    pub from_zero: bool,
    /// Schedule that follows; its step 0 is the first step after the line.
    pub then: S,
}

impl<S: LrSchedule> LrSchedule for LrWarmup<S> {
    fn lr(&self, step: u64) -> f64 {
        if step >= self.steps {
            return self.then.lr(step - self.steps);
        }
        let step = if self.from_zero { step } else { step + 1 };
        constant_with_warmup(self.then.lr(0), self.steps, step)
    }
}

/// Returns the rate on a straight line from 0 at step 0 to `lr` at step `warmup_steps`, and `lr` after that.
/// The formula is verl's, which enters it at step 0, while [`LrWarmup`] enters it at step 1.
pub fn constant_with_warmup(lr: f64, warmup_steps: u64, step: u64) -> f64 {
    if step < warmup_steps { lr * step as f64 / warmup_steps as f64 } else { lr }
}

/// Returns the rate that training uses in the run's step `step`, which is step `schedule_step` of the schedule.
///
/// # Errors
/// When the schedule's rate is negative or not finite: weights moved by a rate that is not a number are lost.
pub(crate) fn rate(
    schedule: &dyn LrSchedule,
    schedule_step: u64,
    step: u64,
) -> Result<f64, TrainError> {
    let lr = schedule.lr(schedule_step);
    if lr.is_finite() && lr >= 0.0 {
        Ok(lr)
    } else {
        Err(TrainError::Rate { step, schedule_step, lr })
    }
}

/// Returns the fraction of `steps` that is done, at most 1.
fn progress(step: u64, steps: u64) -> f64 {
    if step < steps { step as f64 / steps as f64 } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use burn::lr_scheduler::{
        cosine::CosineAnnealingLrSchedulerConfig, linear::LinearLrSchedulerConfig,
    };

    use super::*;

    fn rates(schedule: impl LrSchedule, steps: u64) -> Vec<f64> {
        (0..steps).map(|step| rate(&schedule, step, step + 1).unwrap()).collect()
    }

    #[test]
    fn a_warm_up_begins_above_zero_and_ends_at_the_rate() {
        let warmup = LrWarmup { steps: 4, from_zero: false, then: ConstantLr { lr: 0.5 } };
        assert_eq!(rates(warmup, 6), [0.125, 0.25, 0.375, 0.5, 0.5, 0.5]);
        // verl's line is the same, one step later.
        let verl = LrWarmup { from_zero: true, ..warmup };
        assert_eq!(rates(verl, 6), [0.0, 0.125, 0.25, 0.375, 0.5, 0.5]);

        assert_eq!(rates(LrWarmup { steps: 1, ..warmup }, 2), [0.5, 0.5]);
        assert_eq!(rates(LrWarmup { steps: 0, ..verl }, 2), [0.5, 0.5]);
    }

    #[test]
    fn what_follows_a_warm_up_begins_after_it() {
        let then = LinearDecay { from: 1.0, to: 0.0, steps: 4 };
        let both = LrWarmup { steps: 2, from_zero: false, then };
        assert_eq!(rates(both, 8), [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0, 0.0]);
        let boxed: Box<dyn LrSchedule> = Box::new(then);
        assert_eq!(rates(LrWarmup { steps: 2, from_zero: false, then: boxed }, 8), rates(both, 8));
    }

    #[test]
    fn decays_are_those_of_burn_as_long_as_they_last() {
        let from = 3e-4;
        let to = 1e-5;
        let steps = 7;
        let linear = LinearDecay { from, to, steps };
        let cosine = CosineDecay { from, to, steps };

        let mut burns_linear = LinearLrSchedulerConfig::new(from, to, 7).init().unwrap();
        let mut burns_cosine =
            CosineAnnealingLrSchedulerConfig::new(from, 7).with_min_lr(to).init().unwrap();

        for step in 0..=steps {
            assert!((linear.lr(step) - burns_linear.step().base()).abs() < 1e-18, "{step}");
            assert!((cosine.lr(step) - burns_cosine.step().base()).abs() < 1e-18, "{step}");
        }

        // Both ends are exact to the bit, and the rate goes no further.
        for schedule in [&linear as &dyn LrSchedule, &cosine] {
            assert_eq!((schedule.lr(0), schedule.lr(steps)), (from, to));
            assert_eq!((schedule.lr(steps + 1), schedule.lr(u64::MAX)), (to, to));
        }

        // Half of the way gives half of the sum: cos(π / 2) = 0.
        let half = CosineDecay { from: 1.0, to: 0.5, steps: 2 }.lr(1);
        assert!((half - 0.75).abs() < 1e-15, "{half}");
    }

    #[test]
    fn a_decay_of_no_steps_is_over() {
        assert_eq!(LinearDecay { from: 1.0, to: 0.25, steps: 0 }.lr(0), 0.25);
        assert_eq!(CosineDecay { from: 1.0, to: 0.25, steps: 0 }.lr(0), 0.25);
    }

    #[test]
    fn a_rate_that_is_none_is_refused_before_it_moves_weights() {
        for lr in [f64::NAN, f64::INFINITY, -1e-9] {
            // Only the critic was trained in the first five steps.
            let error = rate(&ConstantLr { lr }, 3, 9).unwrap_err().to_string();
            assert!(error.starts_with("step 9: "), "{error}");
            assert!(error.contains(&format!("a rate of {lr}, expected")), "{error}");
            assert!(error.contains("`LrSchedule::lr(3)`"), "{error}");
        }
        assert_eq!(rate(&ConstantLr { lr: 0.0 }, 3, 9).unwrap(), 0.0);
    }
}
