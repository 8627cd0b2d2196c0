//! Measures the speed at which a device samples and trains, compared with its speed in a plain matmul and in a plain
//! copy.
//!
//! `firebrick bench` is the program around it. Weights and tokens are random, because neither changes the time
//! of a phase.

mod clock;
mod limits;
mod phases;
mod products;
mod shape;

use burn::tensor::Device;
use firebrick_core::Seed;
use firebrick_device::{Failure, Kind, Name, guard};
use firebrick_models::{Compute, random_in};
use firebrick_rollout::SampleOn;
use firebrick_train::TrainError;
use serde::Serialize;

pub use limits::Limits;
pub use products::{Product, products};
pub use shape::Shape;

use self::{clock::Clock, phases::Phases};
use crate::{
    Error, Result,
    plan::{ChunkPlan, Memory},
};

/// Sizes of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sizes {
    /// Number of completions, which are sampled together.
    pub rows: usize,
    /// Number of tokens of a prompt.
    pub prompt: usize,
    /// Number of tokens of a completion.
    pub completion: usize,
    /// Number of timed runs of a phase, after one warm-up run.
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
    /// Sampling as in a rollout, where one row of sixteen has the whole length, and the others a thirty-second of it.
    Tail,
    /// An optimizer update on all rows, with all activations of every layer kept.
    Update,
    /// An update in which every layer's forward pass is computed again, as with `train.recompute = "layers"`.
    Recompute,
    /// A step of the trainer: 8 prompts of 6 tokens, 8 completions of 64 each, judged and trained on.
    Step,
    /// Judging answers in mathematics.
    Verify,
}

impl Phase {
    /// All phases.
    pub const ALL: [Phase; 8] = [
        Phase::Rollout,
        Phase::Groups,
        Phase::Spread,
        Phase::Tail,
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
            Phase::Tail => "tail",
            Phase::Update => "update",
            Phase::Recompute => "recompute",
            Phase::Step => "step",
            Phase::Verify => "verify",
        }
    }
}

/// Measurement of a phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Name of the shape.
    pub shape: String,
    /// What was measured.
    pub phase: Phase,
    /// Sizes that it was measured at.
    pub sizes: Sizes,
    /// Number of units of work in a run: sampled tokens, all tokens of an update, the completions' tokens
    /// of a step, or answers.
    pub units: usize,
    /// Seconds of the warm-up run, in which a GPU's kernels are compiled.
    pub first: f64,
    /// Seconds of each run, ascending.
    pub seconds: Vec<f64>,
    /// Number of cores that were busy, in the mean over the runs; `None` if the system does not report it.
    pub cores: Option<f64>,
    /// Peak of the process's memory, in bytes; `None` if the system does not report it.
    pub peak_bytes: Option<u64>,
    /// Floating-point operations of the model in a run, forward and backward; `None` for a phase without a
    /// model.
    pub flops: Option<f64>,
    /// Bytes that a run has to read at least: the weights once for each token that all rows decode
    /// together, and keys and values. It is `None` if the phase does not decode.
    pub bytes: Option<f64>,
    /// Parts of a run, in seconds, from the trainer's metrics. Only a step has them.
    pub parts: Vec<(String, f64)>,
    /// Kernels of one more run on a GPU, each synchronised, with their launches and seconds, the longest first.
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

/// News from a bench, reported as soon as it is known.
#[derive(Clone, Copy, Debug)]
pub enum BenchEvent<'a> {
    /// Times of a phase, so far without its parts and kernels. Timing each kernel takes one more run, which may fail on
    /// its own.
    Phase(&'a Measured),
    /// The same measurement, complete.
    Whole(&'a Measured),
    /// A phase failed. The others are still measured.
    Failed(Phase, Sizes, &'a Error),
}

/// Measures phases of a model on `device`, which is `name`, with matmuls in the precision `compute`, each phase at its
/// own sizes. `observe` gets each phase when it is done.
///
/// # Errors
/// When the model's parts do not fit together. A phase that fails is not an error here: `observe` gets it.
pub fn run(
    shape: &Shape,
    compute: Compute,
    phases: &[(Phase, Sizes)],
    (name, device): (Name, &Device),
    observe: &mut dyn FnMut(BenchEvent<'_>),
) -> Result<()> {
    let sample_on = if name.kind == Kind::Cpu { SampleOn::Host } else { SampleOn::Device };
    let seed = Seed::run(17);

    // The passes are split as a run splits them.
    let chunks =
        ChunkPlan::for_device(name, Memory::of_device(name).bytes, shape.config.intermediate_size);
    let draw = || {
        let policy = random_in(&shape.config, shape.base, seed, &device.clone().autodiff());
        let mut policy = policy.map_err(Error::from)?;
        if shape.lora_rank > 0 {
            policy = policy.with_lora(shape.lora(), seed);
        }
        Ok(policy.with_chunk_sizes(chunks.chunk_sizes()).with_compute(compute))
    };

    let graphs = matches!(name.kind, Kind::Cuda | Kind::Rocm);
    let mut work = Phases::new(shape, draw()?, chunks, sample_on, graphs, seed);

    for &(phase, sizes) in phases {
        let mut measurement = None;
        let result = guard(|| {
            let mut clock = Clock::new(device, sizes.runs, |units, times| {
                let costs = shape.costs(phase, sizes, compute);
                let measured = Measured {
                    shape: shape.name.clone(),
                    phase,
                    sizes,
                    units,
                    first: times.first,
                    seconds: times.seconds,
                    cores: times.cores,
                    peak_bytes: times.peak_bytes,
                    flops: costs.map(|(flops, _)| flops),
                    bytes: costs.and_then(|(_, bytes)| bytes),
                    parts: Vec::new(),
                    kernels: Vec::new(),
                };
                observe(BenchEvent::Phase(&measured));
                measurement = Some(measured);
            });
            work.measure(phase, sizes, &mut clock)?;
            Ok::<_, Error>(clock.kernels)
        });

        match (result.map_err(lost).flatten(), measurement) {
            (Ok(kernels), Some(mut measured)) => {
                measured.parts = work.parts(phase);
                measured.kernels = kernels;
                observe(BenchEvent::Whole(&measured));
            }
            (Ok(_), None) => {}
            (Err(error), _) => {
                observe(BenchEvent::Failed(phase, sizes, &error));
                // The phase may have lost the weights.
                guard(|| work.renew(draw)).map_err(lost).flatten()?;
            }
        }
    }
    Ok(())
}

fn lost(failure: Failure) -> Error {
    Error::Train(TrainError::Device(failure.to_string()))
}
