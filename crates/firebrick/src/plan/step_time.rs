//! Works out how long a step takes, from sizes and from the speed of a device.
//!
//! Decoding is bound by the products of all rows, or by the bytes of weights, keys and values if there are few rows.
//! An update is bound by products. The shares of a device's speed that this program reaches were measured on one CPU
//! and one card. A small model, whose products are short, reaches less.

use std::time::Duration;

use firebrick_device::{Kind, Precision, open};
use firebrick_models::Compute;
use serde::Serialize;

use super::{
    Card, Facts, Plan,
    engines::{backward, cache_bytes, forward, logprobs},
};
use crate::{
    bench::Limits,
    build,
    recipe::{Dynamic, Recipe},
    source::Sources,
};

/// Speed that a run reaches on a device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Speed {
    /// Operations per second in an update, and while prompts are read.
    pub update: f64,
    /// Operations per second while many rows are decoded.
    pub decode: f64,
    /// Bytes read per second while few rows are decoded.
    pub bandwidth: f64,
}

impl Speed {
    /// Returns the speed on a card in 16 bits. An H200 reached 16 to 27 % of its peak in updates, and 19 to 32 % of its
    /// peaks in rollouts (book, page on cards).
    pub fn of_card(card: &Card) -> Self {
        Speed {
            update: 0.2 * card.flops,
            decode: 0.25 * card.flops,
            bandwidth: 0.25 * card.bandwidth,
        }
    }

    /// Returns the speed of the CPU's own code with these limits. With the shape of SmolLM2-135M, two cores reached 70 %
    /// of a product's speed in updates and 41 % in rollouts (book, page on speed).
    pub fn of_cpu(limits: &Limits) -> Self {
        Speed {
            update: 0.7 * limits.flops,
            decode: 0.4 * limits.flops,
            bandwidth: 0.6 * limits.bandwidth,
        }
    }
}

/// Returns the note that a run on the CPU begins with if its steps will take long. Servers and GPUs have none: their
/// speed is not known before they are asked.
pub fn long_steps(recipe: &Recipe, sources: &Sources) -> Option<String> {
    /// Seconds of a step from which a user should know.
    const LONG: f64 = 1800.0;
    /// Operations per second that no core reaches. What is short at this speed need not be measured.
    const FASTEST_CORE: f64 = 5e11;

    if recipe.device.kind != Kind::Cpu {
        return None;
    }
    let models = build::model_sizes(recipe, sources).ok()?;
    let facts = Plan::new(&models, recipe, Compute::F32, None).facts;
    let lengths = Lengths::likely(recipe);
    let of_speed = |speed| StepTime::new(&facts, recipe, speed, lengths);

    let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
    let fastest = Limits { flops: FASTEST_CORE * cores, bandwidth: f64::INFINITY, launch: None };
    of_speed(Speed::of_cpu(&fastest)).filter(|time| time.step > LONG / 10.0)?;

    let device = open(recipe.device.name(), Precision::F32).ok()?;
    let limits = Limits::measure_within(&device, Duration::from_millis(100));
    let time = of_speed(Speed::of_cpu(&limits)).filter(|time| time.step > LONG)?;
    Some(format!(
        "a step may take about {:.1} hours on this CPU, calculated with completions of {:.0} tokens; `firebrick plan` \
         shows why, and a smaller model, adapters, or fewer and shorter completions take less",
        time.step / 3600.0,
        lengths.mean_tokens
    ))
}

/// Facts of a step that are not in a recipe.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Lengths {
    /// Mean number of tokens of a completion.
    pub mean_tokens: f64,
    /// Number of groups that are sampled for each group that is trained on.
    pub sampled: f64,
}

impl Lengths {
    /// Returns likely lengths: completions of half the largest number of tokens, and two groups sampled for each that
    /// dynamic sampling keeps.
    pub fn likely(recipe: &Recipe) -> Self {
        let sampled = if recipe.sampling.dynamic == Dynamic::Off { 1.0 } else { 2.0 };
        let mean_tokens = (recipe.rollout.max_completion_tokens as f64 / 2.0).max(1.0);
        Lengths { mean_tokens, sampled }
    }
}

/// Seconds of a step that samples and trains on one machine, evaluations and checkpoints left out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StepTime {
    /// Seconds of sampling.
    pub rollout: f64,
    /// Seconds of the updates, old log-probabilities included.
    pub update: f64,
    /// Seconds of the step: the sum, or the longer of the two if the next step is sampled meanwhile.
    pub step: f64,
    /// Seconds of all steps.
    pub run: f64,
}

impl StepTime {
    /// Works out the time of a recipe whose facts are known. Returns `None` if servers sample: [`Engines`](super::Engines)
    /// has their time.
    pub fn new(facts: &Facts, recipe: &Recipe, speed: Speed, lengths: Lengths) -> Option<Self> {
        let work = &facts.work;
        if work.elsewhere {
            return None;
        }

        let mean = lengths.mean_tokens;
        let prompt = (work.prompt as f64).min(mean);
        let trained = work.completions as f64;
        let sampled = trained * lengths.sampled;
        let operations = forward(facts, prompt + mean);

        // All rows are decoded a token further at a time.
        let rows = (work.sequences as f64).min(sampled).max(1.0);
        let number = if facts.half { 2.0 } else { 4.0 };
        let cache = cache_bytes(facts, number) * rows * (prompt + mean / 2.0);
        let token = (rows * operations / speed.decode)
            .max((number * facts.parameters as f64 + cache) / speed.bandwidth);
        let prompts = sampled / work.group_size as f64 * prompt * operations / speed.update;
        let rollout = sampled * mean / rows * token + prompts;

        // Layers that are not kept whole go forward once more.
        let layers = facts.shape.layers.max(1) as f64;
        let recompute = 1.0 - (facts.work.whole_layers as f64 / layers).min(1.0);
        let passes = 1.0 + backward(facts) + recompute + logprobs(recipe);
        // A divergence from a teacher is computed on one device.
        let cards = if recipe.has_divergence() { 1.0 } else { recipe.device.count as f64 };
        // Of a teacher, every weight is multiplied once, as in a forward pass of the policy.
        let teacher = trained * (prompt + mean) * 2.0 * facts.teacher_values as f64 / speed.update;
        let update =
            teacher + trained * (prompt + mean) * operations * passes / (speed.update * cards);

        let step = if work.ahead { rollout.max(update) } else { rollout + update };
        Some(StepTime { rollout, update, step, run: step * recipe.train.steps as f64 })
    }
}
