//! The number of updates that a mini-batch gets: as many as its importance says, until the policy has moved
//! too far, and at least one.
//!
//! score = w_a · mean |A| + w_c · mean |Δ log p| + w_e / (mean H + 1e-8), and n = ⌊clip(n_base · score,
//! n_min, n_max)⌋ updates, ended early by the policy's change. As published, w_a is 0.5, w_c 0.3 and w_e 0.2.
//!
//! That change is counted from the old policy, which is the policy that sampled unless its log-probabilities
//! are recomputed. The first update of a mini-batch is made whatever the change is, so the bound ends the
//! updates of one mini-batch and not those of a step: each later mini-batch makes at least one, however far
//! the policy has moved.
//!
//! Because the last term grows without bound as the entropy H falls, the rule as published gives most updates
//! to the policy that is nearest to collapse. `max_entropy_term` guards against that.

use firebrick_core::Metrics;
pub use firebrick_core::config::AdaptiveUpdates;

use crate::{error::TrainError, sample::Sample};

/// What the rule sees of a mini-batch before the first update: means over the tokens that count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Signals {
    /// Mean |A|.
    pub advantage: f64,
    /// Mean |log p − log p under the old policy|, in nats, where p is the current policy's.
    pub change: f64,
    /// Mean entropy of the policy, in nats.
    pub entropy: f64,
}

/// Terms of a score, each already multiplied by its weight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Importance {
    /// Contribution of the advantages.
    pub advantage: f64,
    /// Contribution of the change.
    pub change: f64,
    /// Contribution of 1 / entropy.
    pub entropy: f64,
    /// True if [`AdaptiveUpdates::max_entropy_term`] made the entropy term smaller.
    pub capped: bool,
}

impl Importance {
    /// Computes the terms of a mini-batch's score.
    pub fn new(rule: &AdaptiveUpdates, signals: &Signals) -> Self {
        let inverse = 1.0 / (signals.entropy + 1e-8);
        let most = match rule.max_entropy_term {
            0.0 => f64::INFINITY,
            most => most,
        };

        Importance {
            advantage: rule.weight_advantage * signals.advantage,
            change: rule.weight_change * signals.change,
            entropy: rule.weight_entropy * inverse.min(most),
            capped: inverse > most,
        }
    }

    /// Adds up the terms.
    pub fn score(&self) -> f64 {
        self.advantage + self.change + self.entropy
    }
}

/// A mini-batch that may get more than one update.
pub trait Repeatable {
    /// A gradient, and what is known after computing it.
    type Pass;

    /// Computes loss and gradient of the mini-batch under the current weights.
    ///
    /// # Errors
    /// When the device fails.
    fn pass(&mut self) -> Result<(Self::Pass, Signals), TrainError>;

    /// Moves the weights by the gradient of `pass`. Returns false if the gradient was not finite and nothing
    /// was moved.
    ///
    /// # Errors
    /// When the device fails.
    fn apply(&mut self, pass: Self::Pass) -> Result<bool, TrainError>;

    /// Computes [`Signals::change`] under the current weights, without a gradient.
    ///
    /// # Errors
    /// When the device fails.
    fn change(&mut self) -> Result<f64, TrainError>;
}

/// The outcome of a mini-batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repeats {
    /// The terms that the plan was made from.
    pub importance: Importance,
    /// The number of updates that the score was worth.
    pub planned: usize,
    /// The number of updates that were made.
    pub done: usize,
    /// The mean absolute change of log-probabilities after the last update.
    pub change: f64,
    /// True if that change was too large; the update that crossed the bound counts.
    pub stopped_by_kl: bool,
    /// True if a gradient that was not finite ended the updates.
    pub stopped_by_gradient: bool,
}

/// Plans a mini-batch from its first pass, and makes its updates.
///
/// The change after an update comes from the pass of the next gradient, which is thrown away if that pass
/// shows that the last update was one too many. A forward pass has about a third of a gradient's matmuls: one
/// after each of k updates costs k/3 gradients, while a pass thrown away costs one. So the gradient's pass is
/// cheaper for three updates or more, and a mini-batch is meant to get at least five. No gradient follows the
/// last planned update, so the change after it comes from a forward pass.
///
/// A gradient that is not finite ends the mini-batch, because the same weights would give it again.
///
/// # Errors
/// When the device fails.
pub fn repeat<B: Repeatable>(batch: &mut B, rule: &AdaptiveUpdates) -> Result<Repeats, TrainError> {
    let (mut pass, mut signals) = batch.pass()?;
    let importance = Importance::new(rule, &signals);
    let planned = rule.updates(importance.score());
    let mut done = 0;
    let mut stopped_by_gradient = false;

    let change = loop {
        if !batch.apply(pass)? {
            stopped_by_gradient = true;
            break signals.change;
        }
        done += 1;

        // No gradient follows the last planned update, so a forward pass is enough.
        if done == planned {
            break batch.change()?;
        }

        (pass, signals) = batch.pass()?;
        if rule.stops(signals.change) {
            break signals.change;
        }
    };

    let stopped_by_kl = done > 0 && rule.stops(change);
    Ok(Repeats { importance, planned, done, change, stopped_by_kl, stopped_by_gradient })
}

/// Returns the mean |A| over the tokens that count, the same tokens that the other two signals are means
/// over. So a long completion has more weight than a short one, as in a loss by `token_mean`. Advantages are
/// taken as they are: although the published rule first normalises them by batch, ours are already normalised
/// by group.
pub fn mean_advantage(samples: &[Sample]) -> f64 {
    mean(samples.iter().map(|sample| {
        let tokens = || sample.policy_tokens().filter(|_| sample.in_loss);
        let sum: f64 = tokens().map(|index| f64::from(sample.advantages[index].abs())).sum();
        (sum, tokens().count() as f64)
    }))
}

/// Returns the mean |log p − log p under the old policy| over the tokens that count. `logprobs` has each
/// sample's log-probabilities under the current policy.
pub fn mean_change(samples: &[Sample], logprobs: &[Vec<f32>]) -> f64 {
    let in_loss = samples.iter().zip(logprobs).filter(|(sample, _)| sample.in_loss);
    mean(in_loss.map(|(sample, logprobs)| {
        let change = |index: usize| f64::from((logprobs[index] - sample.old_logprobs[index]).abs());
        let sum: f64 = sample.policy_tokens().map(change).sum();
        (sum, sample.loss_tokens() as f64)
    }))
}

/// Divides the sum of the first numbers by the sum of the second; 0 if there are none.
fn mean(parts: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (sum, count) = parts.fold((0.0, 0.0), |(sum, count), part| (sum + part.0, count + part.1));
    if count > 0.0 { sum / count } else { 0.0 }
}

/// Records the means over the step's mini-batches, and the minimum and maximum of updates of a mini-batch;
/// nothing if there was no mini-batch.
pub(crate) fn record_metrics(repeats: &[Repeats], metrics: &mut Metrics) {
    if repeats.is_empty() {
        return;
    }

    let mut set = |name: &str, value: fn(&Repeats) -> f64| {
        let sum: f64 = repeats.iter().map(value).sum();
        metrics.set(format!("adaptive/{name}"), sum / repeats.len() as f64);
    };

    set("score", |it| it.importance.score());
    set("score_advantage", |it| it.importance.advantage);
    set("score_change", |it| it.importance.change);
    set("score_entropy", |it| it.importance.entropy);
    set("capped", |it| f64::from(u8::from(it.importance.capped)));
    set("updates_planned", |it| it.planned as f64);
    set("updates_done", |it| it.done as f64);
    set("stopped_by_kl", |it| f64::from(u8::from(it.stopped_by_kl)));
    set("stopped_by_gradient", |it| f64::from(u8::from(it.stopped_by_gradient)));
    set("change", |it| it.change);

    let done = || repeats.iter().map(|it| it.done);
    metrics.set("adaptive/updates_done_min", done().min().unwrap_or(0) as f64);
    metrics.set("adaptive/updates_done_max", done().max().unwrap_or(0) as f64);
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: AdaptiveUpdates = AdaptiveUpdates {
        weight_advantage: 0.5,
        weight_change: 0.3,
        weight_entropy: 0.2,
        max_entropy_term: 0.0,
        n_base: 10,
        n_min: 5,
        n_max: 20,
        kl_stop: 0.02,
    };

    /// Changes by `change` with every update, and has a broken gradient at the update `broken`.
    struct Script {
        change: f64,
        broken: Option<usize>,
        applied: usize,
        passes: usize,
        forwards: usize,
    }

    impl Repeatable for Script {
        type Pass = ();

        fn pass(&mut self) -> Result<((), Signals), TrainError> {
            self.passes += 1;
            let change = self.change * self.applied as f64;
            Ok(((), Signals { advantage: 0.8, change, entropy: 0.5 }))
        }

        fn apply(&mut self, (): ()) -> Result<bool, TrainError> {
            let finite = self.broken != Some(self.applied);
            self.applied += usize::from(finite);
            Ok(finite)
        }

        fn change(&mut self) -> Result<f64, TrainError> {
            self.forwards += 1;
            Ok(self.change * self.applied as f64)
        }
    }

    #[test]
    fn a_mini_batch_ends_by_plan_by_change_or_by_a_broken_gradient() {
        // 10 · (0.5 · 0.8 + 0.2 / 0.5) = 8 updates, minus a little because of the 1e-8 in the last term.
        for (change, broken, planned, done, by_kl, passes, forwards) in [
            (0.0, None, 7, 7, false, 7, 1),
            (0.005, None, 7, 5, true, 6, 0),
            (0.003, None, 7, 7, true, 7, 1),
            (1.0, None, 7, 1, true, 2, 0),
            (0.0, Some(3), 7, 3, false, 4, 0),
            (1.0, Some(0), 7, 0, false, 1, 0),
            (f64::NAN, Some(2), 5, 2, false, 3, 0),
        ] {
            let mut script = Script { change, broken, applied: 0, passes: 0, forwards: 0 };
            let repeats = repeat(&mut script, &RULE).unwrap();
            let label = format!("{change} {broken:?}");

            assert_eq!(repeats.stopped_by_gradient, broken.is_some(), "{label}");
            let Repeats { planned: plan, done: made, stopped_by_kl, .. } = repeats;
            assert_eq!((plan, made, stopped_by_kl), (planned, done, by_kl), "{label}");
            assert_eq!((script.passes, script.forwards), (passes, forwards), "{label}");
        }
    }

    #[test]
    fn a_collapsing_policy_gets_most_updates_unless_guarded() {
        let updates = |rule: &AdaptiveUpdates, entropy: f64| {
            let signals = Signals { advantage: 0.8, change: 0.0, entropy };
            let importance = Importance::new(rule, &signals);
            (rule.updates(importance.score()), importance.capped)
        };

        let guarded = AdaptiveUpdates { max_entropy_term: 2.0, ..RULE };
        for (entropy, as_written, with_guard) in [
            (1.0, (5, false), (5, false)),
            (0.1, (20, false), (8, true)),
            (0.0, (20, false), (8, true)),
        ] {
            assert_eq!(updates(&RULE, entropy), as_written, "{entropy}");
            assert_eq!(updates(&guarded, entropy), with_guard, "{entropy}");
        }
        assert_eq!(RULE.updates(f64::NAN), 5);
    }
}
