//! How much memory a run needs, from its recipe and the sizes of its model alone.
//!
//! A step holds most at one of six moments, each of which is a column of the plan: while it samples,
//! when the activations of a micro-batch are whole and logits are made from them, when the backward
//! pass enters the last layer, when it has left the first, while AdamW moves the weights, and while a
//! checkpoint is written. Every part is counted from what the code keeps: the comments of `sums`
//! say where. A part is exact where the tensors that it counts are there for the whole moment
//! and have these very sizes; what depends on the lengths that a policy writes, or on tensors that
//! live for an operation, is an estimate, taken at its largest.

mod advice;
mod engines;
mod facts;
mod memory;
mod pieces;
mod sums;

use serde::Serialize;

pub use advice::{Advice, Longest, Remedy, remedy};
pub use engines::{Card, Engines, Load, REACHED, Reached};
pub use facts::{Facts, Models, Work};
pub use memory::{Cut, Memory, compute, cut, warning};
pub use pieces::Pieces;

use crate::recipe::Recipe;
use firebrick_device::Kind;
use firebrick_models::Compute;

/// When a run holds most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    /// Sampling, with all completions at their full length.
    Rollout,
    /// In a micro-batch, after its forward pass: logits, all or a block at a time.
    Head,
    /// In a micro-batch, at the beginning of the backward pass through the layers.
    Backward,
    /// In a micro-batch, at the end of that pass: its gradient is whole.
    Gradient,
    /// AdamW's step.
    Optimizer,
    /// Writing a checkpoint.
    Saving,
}

impl Moment {
    /// All of them, in the order of a step.
    pub const ALL: [Moment; 6] = [
        Moment::Rollout,
        Moment::Head,
        Moment::Backward,
        Moment::Gradient,
        Moment::Optimizer,
        Moment::Saving,
    ];

    /// As the plan's columns are headed.
    pub fn name(self) -> &'static str {
        match self {
            Moment::Rollout => "rollout",
            Moment::Head => "head",
            Moment::Backward => "backward",
            Moment::Gradient => "gradient",
            Moment::Optimizer => "optimizer",
            Moment::Saving => "saving",
        }
    }
}

/// Something that takes memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// What it is.
    pub name: &'static str,
    /// Whether the bytes are counted, and not estimated.
    pub exact: bool,
    /// Bytes at each of [`Moment::ALL`].
    pub bytes: [u64; 6],
}

/// What a run needs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// What it was worked out from.
    pub facts: Facts,
    /// By what it is for.
    pub parts: Vec<Part>,
}

impl Plan {
    /// The plan of `recipe` for models of these sizes that are multiplied in `compute`, on a device with so
    /// many bytes of memory. Where the recipe leaves it to the plan, an update keeps as many layers whole as
    /// fit; none, where the memory is not known.
    pub fn new(models: &Models, recipe: &Recipe, compute: Compute, memory: Option<u64>) -> Self {
        let facts = Facts::new(models, recipe, compute, memory);
        let whole = memory.filter(|_| facts.work.recompute_auto);
        let whole = whole.map_or(facts.work.whole_layers, |memory| whole_layers(&facts, memory));
        Plan::of(Facts { work: Work { whole_layers: whole, ..facts.work }, ..facts })
    }

    /// The plan of a run of which these things are known.
    pub fn of(facts: Facts) -> Self {
        let parts = sums::parts(&facts);
        Plan { facts, parts }
    }

    /// Bytes at `moment`.
    pub fn sum(&self, moment: Moment) -> u64 {
        let bytes = self.parts.iter().map(|part| part.bytes[moment as usize]);
        bytes.fold(0, u64::saturating_add)
    }

    /// The most bytes that are needed at any moment, and the first one at which they are.
    pub fn peak(&self) -> (u64, Moment) {
        let sums = Moment::ALL.into_iter().rev().map(|moment| (self.sum(moment), moment));
        sums.max_by_key(|&(bytes, _)| bytes).unwrap_or((0, Moment::Rollout))
    }

    /// Whether the run fits into `memory` bytes.
    pub fn fits(&self, memory: u64) -> bool {
        self.peak().0 <= memory
    }

    /// Bytes of the largest weight, where the recipe's API may have no tensor that large. wgpu gives one tensor at
    /// most 2 GiB with Vulkan on Linux, unless the card is NVIDIA's (wgpu-hal 30.0.1, `vulkan/adapter.rs`).
    pub fn too_large_a_weight(&self, kind: Kind) -> Option<u64> {
        let bytes = u64::try_from(self.facts.largest_weight).unwrap_or(u64::MAX);
        (matches!(kind, Kind::Vulkan | Kind::Wgpu) && bytes > i32::MAX as u64).then_some(bytes)
    }

    /// The same run with the smallest batches: what no key about their sizes can go below.
    pub fn least(&self) -> Plan {
        advice::least(self)
    }

    /// How long completions may be for the run to fit into `memory` bytes with the smallest batches; none where
    /// not even short ones fit.
    pub fn longest(&self, memory: u64) -> Option<Longest> {
        advice::longest(self, memory)
    }

    /// What to change for the run to fit into `memory` bytes; empty where it does. Where
    /// [`Plan::least`] does not fit, it is not all that has to change.
    pub fn advice(&self, memory: u64) -> Vec<Advice> {
        advice::advice(self, memory)
    }
}

/// How many layers an update may keep whole and still have a tenth of the memory to spare: a plan is an
/// estimate, and to go through a layer once more costs less than to run out of memory.
fn whole_layers(facts: &Facts, memory: u64) -> u128 {
    let fits = |&whole_layers: &u128| {
        let work = Work { whole_layers, ..facts.work };
        let plan = Plan::of(Facts { work, ..facts.clone() });
        let update = [Moment::Head, Moment::Backward, Moment::Gradient];
        update.into_iter().all(|moment| plan.sum(moment) <= memory - memory / 10)
    };
    (1..=facts.shape.layers).take_while(fits).last().unwrap_or(0)
}

#[cfg(test)]
mod tests;
