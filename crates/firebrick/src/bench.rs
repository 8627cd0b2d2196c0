//! How fast a device samples and trains, beside what it reaches in a plain product and in a plain copy.
//!
//! `firebrick bench` is the program around it. Weights are random and tokens too: neither changes how long a
//! phase takes.

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

/// The sizes of what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sizes {
    /// Completions, sampled at once.
    pub rows: usize,
    /// Tokens of a prompt.
    pub prompt: usize,
    /// Tokens of a completion.
    pub completion: usize,
    /// How often a phase is run after once that does not count.
    pub runs: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes { rows: 64, prompt: 32, completion: 128, runs: 5 }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Sampling a completion of each prompt, all of one length.
    Rollout,
    /// The same in groups of eight.
    Groups,
    /// The same with lengths spread evenly from a sixteenth to the whole.
    Spread,
    /// An optimizer update on all rows, with every layer kept whole.
    Update,
    /// The same with every layer gone through once more, as `train.recompute = "layers"` has it.
    Recompute,
    /// A step of the trainer: 8 prompts of 6 tokens, 8 completions of 64 each, judged and trained on.
    Step,
    /// Judging answers in mathematics.
    Verify,
}

impl Phase {
    /// All of them.
    pub const ALL: [Phase; 7] = [
        Phase::Rollout,
        Phase::Groups,
        Phase::Spread,
        Phase::Update,
        Phase::Recompute,
        Phase::Step,
        Phase::Verify,
    ];

    /// As it is written.
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

/// A phase, measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// The shape's name.
    pub shape: String,
    /// The phase.
    pub phase: Phase,
    /// What was worked on in a run: sampled tokens; all tokens of an update; of a step, the completions'; answers.
    pub units: usize,
    /// Of each run, ascending.
    pub seconds: Vec<f64>,
    /// Cores kept busy, in the mean over the runs; none where the system does not tell.
    pub cores: Option<f64>,
    /// The most memory that the process held, in bytes; none where the system does not tell.
    pub peak_bytes: Option<u64>,
    /// Floating-point operations of the model in a run, forward and backward; none of a phase without a model.
    pub flops: Option<f64>,
    /// Bytes that a run has to read at least: weights once for each token decoded at once, and keys and values; none
    /// but of decoding.
    pub bytes: Option<f64>,
    /// Parts of a run, in seconds, as the trainer tells them; of a step alone.
    pub parts: Vec<(String, f64)>,
    /// The kernels of one more run on a GPU, each waited for: their launches and seconds, the longest first.
    pub kernels: Vec<(String, usize, f64)>,
}

impl Measured {
    /// Units a second, of the median run.
    pub fn rate(&self) -> f64 {
        self.units as f64 / self.median()
    }

    /// The median run, in seconds.
    pub fn median(&self) -> f64 {
        self.seconds[self.seconds.len() / 2]
    }
}

/// Measures `phases` of a model, with products in the format of `compute`, on `device`, which is `name`; `heard` gets each when it is done.
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
    // As a run cuts its passes.
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
