//! Works out the memory that a run needs, from its recipe and the sizes of its model alone.
//!
//! A step's memory peaks at one of six moments, each of which is a column of the plan: while it samples, when the
//! activations of a micro-batch are complete and logits are made from them, when the backward pass enters the last
//! layer, when it has left the first layer, while AdamW moves the weights, and while a checkpoint is written. If the
//! next step is sampled while a step is trained on, the moments of an update hold what sampling takes as well. Every
//! part is counted from the tensors that the code keeps: the comments of `sums` say where. A part is exact if its
//! tensors are there for the whole moment and have exactly these sizes. The other parts depend on the lengths that a
//! policy writes, or on tensors that live for one operation. They are estimates, taken at their maximum.

mod advice;
mod chunks;
mod engines;
mod facts;
mod memory;
mod step_time;
mod sums;
mod wire;

use serde::Serialize;

pub use advice::{Advice, Longest, MoreSequences, Remedy, remedy};
pub use chunks::ChunkPlan;
pub use engines::{Card, Engines, Load, REACHED, Reached};
pub use facts::{Facts, Models, Work, Workload};
pub use memory::{Memory, MicroBatchPlan, compute, micro_batching, warning};
pub use step_time::{Lengths, Speed, StepTime, long_steps};
pub use wire::Wire;

use crate::recipe::Recipe;
use firebrick_device::Kind;
use firebrick_models::Compute;

/// A moment at which a run's memory may peak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    /// The run samples, with all completions at their full length.
    Rollout,
    /// A micro-batch has finished its forward pass: logits, all or a block at a time.
    Head,
    /// A micro-batch begins its backward pass through the layers.
    Backward,
    /// A micro-batch ends that pass: its gradient is complete.
    Gradient,
    /// AdamW takes its step.
    Optimizer,
    /// The run writes a checkpoint.
    Saving,
}

impl Moment {
    /// All moments, in the order of a step.
    pub const ALL: [Moment; 6] = [
        Moment::Rollout,
        Moment::Head,
        Moment::Backward,
        Moment::Gradient,
        Moment::Optimizer,
        Moment::Saving,
    ];

    /// Returns the heading of the moment's column in the plan.
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

    /// Returns a phrase that says when memory is at its peak.
    pub fn in_words(self) -> &'static str {
        match self {
            Moment::Rollout => "while sampling",
            Moment::Head => "at the logits",
            Moment::Backward => "in the backward pass",
            Moment::Gradient => "at the end of the backward pass",
            Moment::Optimizer => "in the optimizer's step",
            Moment::Saving => "while saving",
        }
    }
}

/// A use of memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// Name of the part.
    pub name: &'static str,
    /// True if the bytes are counted, and not estimated.
    pub exact: bool,
    /// Bytes at each of [`Moment::ALL`].
    pub bytes: [u64; 6],
}

/// What a run needs in memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Facts that the plan was worked out from.
    pub facts: Facts,
    /// Memory by its purpose.
    pub parts: Vec<Part>,
}

impl Plan {
    /// Works out the plan of `recipe` for models of these sizes with the matmul precision `compute`, on a device with
    /// `memory` bytes. If the recipe leaves it to the plan, an update keeps all activations of as many layers as fit,
    /// or of none if the memory is not known. On a GPU with enough memory, the engine unpacks weights of 8 or 4 bits
    /// once.
    pub fn new(models: &Models, recipe: &Recipe, compute: Compute, memory: Option<u64>) -> Self {
        let mut facts = Facts::new(models, recipe, compute, memory);
        if let Some(memory) = memory {
            if facts.work.recompute_auto {
                facts.work.whole_layers = whole_layers(&facts, memory);
            }
            // An update's layers go first, so that unpacked weights never take their memory.
            facts.unpacks_once = unpacks_once(&facts, memory);
        }
        Plan::from_facts(facts)
    }

    /// Works out the plan of a run with these facts.
    pub fn from_facts(facts: Facts) -> Self {
        let parts = sums::parts(&facts);
        Plan { facts, parts }
    }

    /// Returns the bytes at `moment`.
    pub fn sum(&self, moment: Moment) -> u64 {
        let bytes = self.parts.iter().map(|part| part.bytes[moment as usize]);
        bytes.fold(0, u64::saturating_add)
    }

    /// Returns the peak in bytes, and the first moment that reaches it.
    pub fn peak(&self) -> (u64, Moment) {
        let sums = Moment::ALL.into_iter().rev().map(|moment| (self.sum(moment), moment));
        sums.max_by_key(|&(bytes, _)| bytes).unwrap_or((0, Moment::Rollout))
    }

    /// Tells whether the run fits into `memory` bytes.
    pub fn fits(&self, memory: u64) -> bool {
        self.peak().0 <= memory
    }

    /// Returns the bytes of the largest weight if the recipe's API may not allow a tensor that large. With Vulkan on
    /// Linux, wgpu limits a tensor to 2 GiB, unless the card is NVIDIA's (wgpu-hal 30.0.1, `vulkan/adapter.rs`).
    pub fn too_large_a_weight(&self, kind: Kind) -> Option<u64> {
        let bytes = u64::try_from(self.facts.largest_weight).unwrap_or(u64::MAX);
        (matches!(kind, Kind::Vulkan | Kind::Wgpu) && bytes > i32::MAX as u64).then_some(bytes)
    }

    /// Plans the same run with the smallest batches. No smaller batch size reduces it further.
    pub fn least(&self) -> Plan {
        advice::least(self)
    }

    /// Returns the longest completions with which the run fits into `memory` bytes with the smallest batches,
    /// or `None` if not even short ones fit.
    pub fn longest(&self, memory: u64) -> Option<Longest> {
        advice::longest(self, memory)
    }

    /// Returns the changes that make the run fit into `memory` bytes; empty if it does. If [`Plan::least`] does
    /// not fit either, more than that has to change.
    pub fn advice(&self, memory: u64) -> Vec<Advice> {
        advice::advice(self, memory)
    }

    /// Returns how many more sequences a GPU with `memory` bytes can decode at the same time, and still have a tenth of
    /// it to spare; `None` if they are too few more to be worth a change of the recipe, and on a CPU, where caches set
    /// the limit.
    pub fn more_sequences(&self, memory: u64) -> Option<MoreSequences> {
        advice::more_sequences(self, memory)
    }
}

/// Returns the number of layers of which an update may keep all activations and still have a tenth of the memory to
/// spare. A plan is an estimate, and computing a layer once more costs less than running out of memory.
fn whole_layers(facts: &Facts, memory: u64) -> u128 {
    let fits = |&whole_layers: &u128| {
        let work = Work { whole_layers, ..facts.work };
        let plan = Plan::from_facts(Facts { work, ..facts.clone() });
        let update = [Moment::Head, Moment::Backward, Moment::Gradient];
        update.into_iter().all(|moment| plan.sum(moment) <= memory - memory / 10)
    };
    (1..=facts.shape.layers).take_while(fits).last().unwrap_or(0)
}

/// Tells whether the engine may unpack all weights of 8 and 4 bits, and still have a quarter of the memory to spare:
/// other weights are unpacked for each rollout, into memory that an update has cut into other pieces, and nothing is
/// packed again if it does not suffice. The CPU's memory is what happens to be free, so it does not decide.
fn unpacks_once(facts: &Facts, memory: u64) -> bool {
    if facts.packed == 0 || !facts.half || facts.work.on_host || facts.work.elsewhere {
        return false;
    }
    let plan = Plan::from_facts(Facts { unpacks_once: true, ..facts.clone() });
    // An engine that does not sample ahead has no weights outside of a rollout.
    let mut moments =
        Moment::ALL.into_iter().filter(|&it| it == Moment::Rollout || plan.facts.work.ahead);
    moments.all(|moment| plan.sum(moment) <= memory - memory / 4)
}

#[cfg(test)]
mod tests;
