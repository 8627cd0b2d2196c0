//! The command `firebrick bench`: measures sampling and updates on a device.

use std::{fmt::Write as _, path::PathBuf};

use clap::{Args, ValueEnum};
use firebrick::{
    bench::{self, Limits, Measured, Phase, Shape, Sizes},
    device::{Name, Precision, open},
    thousands,
};
use firebrick_device::{describe, gibibytes, guard};
use firebrick_kernels::{Kernels, use_kernels};
use firebrick_models::{Compute, load_config};
use serde_json::{Value, json};

use super::print;
use crate::{ProgramError, terminal::for_stdout, version::version};

/// The arguments of `firebrick bench`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Bench {
    /// The models: 1m, 10m, 50m, smollm2-135m, qwen2.5-0.5b, qwen2.5-1.5b, or folders with a config.json
    #[arg(default_values = ["1m", "10m"])]
    shapes: Vec<String>,
    /// The device, such as cpu or vulkan:0
    #[arg(long, value_name = "KIND:INDEX", default_value_t)]
    device: Name,
    /// The phases to measure, such as rollout,update
    #[arg(long, value_name = "PHASES", value_delimiter = ',', default_values_t = Asked::ALL)]
    phases: Vec<Asked>,
    /// The number of completions that are sampled at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    rows: u16,
    /// The number of tokens of a prompt
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=65536))]
    prompt: u32,
    /// The number of tokens of a completion
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=65536))]
    completion: u32,
    /// The number of runs of each phase, after a first run that does not count
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,
    /// The number of rows of an update's micro-batch; by default it depends on the model
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    micro_batch: Option<u16>,
    /// Multiply matrices in this format: float32, bfloat16 or float16
    #[arg(long, value_enum, default_value_t)]
    dtype: Format,
    /// Also measure matrix products in the shapes of a model
    #[arg(long)]
    products: bool,
    /// Compute with plain tensor code instead of the device's own kernels
    #[arg(long)]
    reference: bool,
    /// Print the measurements as one JSON object
    #[arg(long)]
    json: bool,
}

/// The format that matrices are multiplied in.
#[derive(Clone, Copy, Default, ValueEnum)]
enum Format {
    /// 32 bits
    #[default]
    Float32,
    /// 16 bits with the range of float32
    Bfloat16,
    /// 16 bits with values up to 65,504
    Float16,
}

/// A phase that a user can ask for.
#[derive(Clone, Copy, ValueEnum)]
enum Asked {
    Rollout,
    Groups,
    Spread,
    Update,
    Recompute,
    Step,
    Verify,
}

impl Asked {
    const ALL: [Asked; 7] = [
        Asked::Rollout,
        Asked::Groups,
        Asked::Spread,
        Asked::Update,
        Asked::Recompute,
        Asked::Step,
        Asked::Verify,
    ];

    fn phase(self) -> Phase {
        Phase::ALL[self as usize]
    }
}

impl std::fmt::Display for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.phase().name())
    }
}

const EXAMPLES: &str = "\
Weights and tokens are random. Phases: rollout samples one completion of each
prompt; groups samples eight of each; spread samples completions of a sixteenth
to the whole length; update is an optimizer's step on all rows; recompute is the
same with less memory, as with train.recompute=layers; step is a whole step of 8
prompts with 8 completions of 64 tokens, judged and trained on; verify judges
answers in mathematics.

Each rate is the median run's. The column 'of the product' is the rate of the
model's own operations, as a share of the device's rate in a product of
1024 x 1024 matrices. The column 'of the copy' is the rate of reading weights,
keys and values, as a share of the bandwidth of a copy.

Examples:
  firebrick bench 1m
  firebrick bench 10m --phases update --runs 9
  firebrick bench my-model --device vulkan:0 --json

Exit codes: 0 measured, 1 failed, 2 wrong arguments.";

impl Bench {
    pub(super) fn run(self) -> Result<(), ProgramError> {
        if self.reference {
            use_kernels(Kernels::Reference);
        }
        let shapes =
            self.shapes.iter().map(|name| self.shape(name)).collect::<Result<Vec<_>, _>>()?;
        let device = open(self.device, Precision::F32)?;
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let (compute, needed) = match self.dtype {
            Format::Float32 => (Compute::F32, Precision::F32),
            Format::Bfloat16 => (Compute::Bf16, Precision::Bf16),
            Format::Float16 => (Compute::F16, Precision::F16),
        };
        let device = if needed == Precision::F32 { device } else { open(self.device, needed)? };
        let mut limits = Limits::of(&device);
        if self.products {
            limits = limits.with_products(&device);
        }
        let about = guard(|| describe(self.device, &device)).ok();
        let about = about.map_or_else(|| self.device.to_string(), |about| about.headline());
        if !self.json {
            print(&for_stdout(&headline(&about, cores, &limits), 2 + limits.products.len()))?;
        }
        let sizes = Sizes {
            rows: self.rows.into(),
            prompt: self.prompt as usize,
            completion: self.completion as usize,
            runs: self.runs.into(),
        };
        let phases: Vec<Phase> = self.phases.iter().map(|asked| asked.phase()).collect();
        let mut all = Vec::new();
        let mut printed = Ok(());
        for shape in &shapes {
            let on = (self.device, &device);
            let measured = bench::run(shape, sizes, compute, &phases, on, |measured| {
                if !self.json && printed.is_ok() {
                    printed = print(&line(measured, &limits));
                }
            })?;
            all.extend(measured);
        }
        printed?;
        if self.json {
            let measured: Vec<Value> = all.iter().map(|it| as_json(it, &limits)).collect();
            let object = json!({
                "version": version(),
                "device": about,
                "cores": cores,
                "dtype": compute.to_string(),
                "kernels": if self.reference { "reference" } else { "fast" },
                "sizes": sizes,
                "limits": limits,
                "measured": measured,
            });
            print(&format!("{object:#}\n"))?;
        }
        Ok(())
    }

    fn shape(&self, name: &str) -> Result<Shape, ProgramError> {
        let built_in = Shape::built_in().into_iter().find(|shape| shape.name == name);
        let mut shape = match built_in {
            Some(shape) => shape,
            None => Shape {
                name: name.into(),
                config: load_config(&PathBuf::from(name))?.0,
                micro_batch_rows: 8,
            },
        };
        shape.micro_batch_rows = self.micro_batch.map_or(shape.micro_batch_rows, usize::from);
        Ok(shape)
    }
}

fn headline(about: &str, cores: usize, limits: &Limits) -> String {
    let mut more = String::new();
    for product in &limits.products {
        let bench::Product { rows, inner, columns, dtype, flops } = product;
        let rate =
            flops.map_or_else(|| "too slow to try".into(), |it| format!("{:.0} GFLOP/s", it / 1e9));
        let _ = writeln!(more, "[{rows}, {inner}] · [{inner}, {columns}] in {dtype}: {rate}");
    }
    let launch = limits.launch.map(|it| format!(", a launch takes {:.1} µs", 1e6 * it));
    let launch = launch.unwrap_or_default();
    format!(
        "{about}, {cores} cores; a product reaches {:.0} GFLOP/s, a copy {:.1} GB/s{launch}\n{more}\n{:<14}{:<10}{:>12}{:>11}{:>10}{:>7}{:>16}{:>13}{:>11}\n",
        limits.flops / 1e9,
        limits.bandwidth / 1e9,
        "model",
        "phase",
        "per second",
        "median s",
        "spread %",
        "cores",
        "of the product",
        "of the copy",
        "peak",
    )
}

fn line(measured: &Measured, limits: &Limits) -> String {
    let seconds = &measured.seconds;
    let spread = (seconds[seconds.len() - 1] - seconds[0]) / measured.median() * 100.0;
    let share = |of: Option<f64>, limit: f64| {
        of.map_or_else(
            || "–".into(),
            |of| format!("{:.0} %", 100.0 * of / measured.median() / limit),
        )
    };
    let mut text = format!(
        "{:<14}{:<10}{:>12}{:>11.3}{:>10.0}{:>7}{:>16}{:>13}{:>11}\n",
        measured.shape,
        measured.phase.name(),
        thousands(measured.rate().round() as u64),
        measured.median(),
        spread,
        measured.cores.map_or_else(|| "–".into(), |cores| format!("{cores:.2}")),
        share(measured.flops, limits.flops),
        share(measured.bytes, limits.bandwidth),
        measured.peak_bytes.map_or_else(|| "–".into(), gibibytes),
    );
    // These kernels take most of a GPU's time.
    for (name, count, seconds) in measured.kernels.iter().take(5) {
        let name = name.rsplit("::").nth(1).unwrap_or(name);
        let _ = writeln!(text, "{:<14}{seconds:.3} s in {count} launches of {name}", "");
    }
    if !measured.parts.is_empty() {
        let parts: Vec<String> = measured
            .parts
            .iter()
            .map(|(name, seconds)| format!("{} {seconds:.3} s", name.trim_start_matches("time/")))
            .collect();
        let _ = writeln!(text, "{:<14}{}", "", parts.join(", "));
    }
    text
}

fn as_json(measured: &Measured, limits: &Limits) -> Value {
    let mut object = json!(measured);
    object["per_second"] = json!(measured.rate());
    let share = |of: Option<f64>, limit: f64| of.map(|of| of / measured.median() / limit);
    object["share_of_product"] = json!(share(measured.flops, limits.flops));
    object["share_of_copy"] = json!(share(measured.bytes, limits.bandwidth));
    object["parts"] = measured.parts.iter().cloned().map(|(name, it)| (name, json!(it))).collect();
    object
}
