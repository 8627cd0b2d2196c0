//! The speed at which a device samples and trains, beside its speed in a plain product and in a plain copy.
//!
//! `firebrick bench` is the program around it. Weights and tokens are random, because neither changes the time
//! of a phase.

mod clock;
mod limits;
mod phases;
mod shape;

use burn::tensor::Device;
use firebrick_core::Seed;
use firebrick_device::{Kind, Name};
use firebrick_models::{Compute, random};
use firebrick_rollout::SampleOn;
use serde::Serialize;

pub use limits::{Limits, Product};
pub use shape::Shape;

use self::{clock::Clock, phases::Phases};
use crate::{
    Error, Result,
    plan::{Memory, Pieces},
};

/// The sizes of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sizes {
    /// The number of completions, which are sampled at once.
    pub rows: usize,
    /// The number of tokens of a prompt.
    pub prompt: usize,
    /// The number of tokens of a completion.
    pub completion: usize,
    /// The number of times that a phase is run, after one run that does not count.
    pub runs: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes { rows: 64, prompt: 32, completion: 128, runs: 5 }
    }
}

/// A kind of work that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Sampling a completion of each prompt, all of one length.
    Rollout,
    /// Sampling as in a rollout, in groups of eight.
    Groups,
    /// Sampling as in a rollout, with lengths spread evenly from a sixteenth to the whole.
    Spread,
    /// An optimizer update on all rows, with every layer kept whole.
    Update,
    /// An update with every layer gone through once more, as with `train.recompute = "layers"`.
    Recompute,
    /// A step of the trainer: 8 prompts of 6 tokens, 8 completions of 64 each, judged and trained on.
    Step,
    /// Judging answers in mathematics.
    Verify,
}

impl Phase {
    /// All phases.
    pub const ALL: [Phase; 7] = [
        Phase::Rollout,
        Phase::Groups,
        Phase::Spread,
        Phase::Update,
        Phase::Recompute,
        Phase::Step,
        Phase::Verify,
    ];

    /// Returns the phase's name.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Rollout => "rollout",
            Phase::Groups => "groups",
            Phase::Spread => "spread",
            Phase::Update => "update",
            Phase::Recompute => "recompute",
            Phase::Step => "step",
            Phase::Verify => "verify",
        }
    }
}

/// The measurement of a phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// The shape's name.
    pub shape: String,
    /// The phase.
    pub phase: Phase,
    /// The number of units of work in a run: sampled tokens, all tokens of an update, the completions' tokens
    /// of a step, or answers.
    pub units: usize,
    /// The seconds of each run, ascending.
    pub seconds: Vec<f64>,
    /// The number of cores that were busy, in the mean over the runs; `None` if the system does not tell.
    pub cores: Option<f64>,
    /// The most memory that the process held, in bytes; `None` if the system does not tell.
    pub peak_bytes: Option<u64>,
    /// The floating-point operations of the model in a run, forward and backward; `None` for a phase without a
    /// model.
    pub flops: Option<f64>,
    /// The bytes that a run has to read at least: the weights once for each token that all rows decode
    /// together, and keys and values. It is `None` if the phase does not decode.
    pub bytes: Option<f64>,
    /// The parts of a run, in seconds, from the trainer's metrics. Only a step has them.
    pub parts: Vec<(String, f64)>,
    /// The kernels of one more run on a GPU, each waited for, with their launches and seconds, the longest
    /// first.
    pub kernels: Vec<(String, usize, f64)>,
}

impl Measured {
    /// Returns the units per second of the median run.
    pub fn rate(&self) -> f64 {
        self.units as f64 / self.median()
    }

    /// Returns the seconds of the median run.
    pub fn median(&self) -> f64 {
        self.seconds[self.seconds.len() / 2]
    }
}

/// Measures `phases` of a model on `device`, which is `name`, with products in the format of `compute`. `heard`
/// gets each result when it is done.
///
/// # Errors
/// When the model does not fit together, or the device fails.
pub fn run(
    shape: &Shape,
    sizes: Sizes,
    compute: Compute,
    phases: &[Phase],
    (name, device): (Name, &Device),
    mut heard: impl FnMut(&Measured),
) -> Result<Vec<Measured>> {
    let sample_on = if name.kind == Kind::Cpu { SampleOn::Host } else { SampleOn::Device };
    let seed = Seed::run(17);
    let policy = random(&shape.config, seed, &device.clone().autodiff()).map_err(Error::from)?;
    // The passes are cut as a run cuts them.
    let pieces = Pieces::of(name, Memory::of(name).bytes, policy.config().intermediate_size);
    let policy = policy.with_grain(pieces.grain()).with_compute(compute);
    let mut work = Phases::new(shape, sizes, policy, pieces, sample_on, seed);
    let mut all = Vec::new();
    for &phase in phases {
        let mut clock = Clock::new(device, sizes.runs);
        let units = work.measure(phase, &mut clock)?;
        let costs = shape.costs(phase, sizes, compute);
        let kernels = std::mem::take(&mut clock.kernels);
        let (seconds, cores, peak_bytes) = clock.read();
        let measured = Measured {
            shape: shape.name.clone(),
            phase,
            units,
            seconds,
            cores,
            peak_bytes,
            flops: costs.map(|(flops, _)| flops),
            bytes: costs.and_then(|(_, bytes)| bytes),
            parts: work.parts(phase),
            kernels,
        };
        heard(&measured);
        all.push(measured);
    }
    Ok(all)
}
