//! What would make a run fit.

use serde::Serialize;

use super::{Facts, Moment, Plan};

/// A key of the recipe to change.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// Such as `train.micro_batch_tokens`.
    pub key: &'static str,
    /// As it is.
    pub from: u128,
    /// The largest value, rounded down, with which the moments that it changes fit.
    pub to: u128,
    #[serde(skip)]
    set: fn(&mut Facts, u128),
}

impl Advice {
    /// Changes what is known of the run as the advice would.
    pub fn follow(&self, facts: &mut Facts) {
        (self.set)(facts, self.to);
    }
}

/// The moments that are too large and the key that makes each smaller. Keys whose smallest value
/// does not help are left out, so nothing is advised that would not do.
pub(super) fn advice(plan: &Plan, memory: u64) -> Vec<Advice> {
    let work = plan.facts.work;
    let keys = [
        Key {
            name: "rollout.max_sequences",
            moments: &[Moment::Rollout],
            from: work.sequences,
            least: work.least_sequences,
            set: |facts, to| facts.work.sequences = to,
        },
        Key {
            name: "train.micro_batch_tokens",
            moments: &[Moment::Head, Moment::Backward, Moment::Gradient],
            from: work.micro_batch_tokens,
            least: 1,
            set: |facts, to| facts.work.micro_batch_tokens = to,
        },
    ];
    let mut advice = Vec::new();
    for Key { name: key, moments, from, least, set } in keys {
        let fits = |to: u128| {
            let mut facts = plan.facts.clone();
            set(&mut facts, to);
            let changed = Plan::of(facts);
            moments.iter().all(|&moment| changed.sum(moment) <= memory)
        };
        if fits(from) {
            continue;
        }
        if let Some(to) = largest(least, from, fits) {
            advice.push(Advice { key, from, to, set });
        }
    }
    advice
}

/// A key that makes batches smaller.
struct Key {
    name: &'static str,
    /// When what it changes is held.
    moments: &'static [Moment],
    from: u128,
    least: u128,
    set: fn(&mut Facts, u128),
}

/// The same run with the smallest batches that there can be.
pub(super) fn least(plan: &Plan) -> Plan {
    let mut facts = plan.facts.clone();
    (facts.work.sequences, facts.work.micro_batch_tokens) = (facts.work.least_sequences, 1);
    Plan::of(facts)
}

/// The largest number in `[least, most)` that fits, rounded down to two digits; more would look more
/// exact than an estimate is.
fn largest(least: u128, most: u128, fits: impl Fn(u128) -> bool) -> Option<u128> {
    let (mut low, mut high) = (least, most);
    if low >= high || !fits(low) {
        return None;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle }
    }
    let step = 10u128.pow(low.checked_ilog10().unwrap_or(0).saturating_sub(1));
    Some((low / step * step).max(least))
}
