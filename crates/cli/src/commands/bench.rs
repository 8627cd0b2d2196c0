//! `firebrick bench`: measures sampling and updates on a device.

use std::{fmt::Write as _, path::PathBuf, str::FromStr, time::Instant};

use clap::{Args, ValueEnum};
use firebrick::{
    bench::{self, BenchEvent, Limits, Measured, Phase, Product, Shape, Sizes},
    device::{Name, Precision, open},
    model, thousands,
};
use firebrick_device::{Description, Failure, describe, gibibytes, guard};
use firebrick_kernels::{Kernels, use_kernels};
use firebrick_models::{Compute, FrozenFormat, load_config};
use serde_json::{Map, Value, json};

use super::{print, print_event, sample::Format as Base};
use crate::{
    ProgramError,
    json::{Of, program},
    terminal::for_stdout,
};

/// Arguments of `firebrick bench`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Bench {
    /// The models: 1m, 10m, 50m, smollm2-135m, qwen2.5-0.5b, qwen2.5-1.5b, or folders with a config.json
    #[arg(default_values = ["1m", "10m"])]
    shapes: Vec<String>,
    /// The device, such as cpu or vulkan:0
    #[arg(long, value_name = "KIND:INDEX", default_value_t)]
    device: Name,
    /// The phases to measure, such as rollout,update; each may have its own sizes, such as update@16x512+512; by
    /// default all that the model can do
    #[arg(long, value_name = "PHASES", value_delimiter = ',')]
    phases: Vec<PhaseRequest>,
    /// The numbers of completions that are sampled at the same time; phases other than rollout have the last one
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 8, 64], value_parser = clap::value_parser!(u16).range(1..=4096))]
    rows: Vec<u16>,
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
    /// Train adapters of this rank on all projections, in place of all weights
    #[arg(long, value_name = "RANK", value_parser = clap::value_parser!(u16).range(1..=1024))]
    lora: Option<u16>,
    /// Keep the weights in this format, as model.base does; with --lora, the adapters above them are trained
    #[arg(long, value_enum, default_value_t)]
    base: Base,
    /// Multiply matrices in this format: float32, bfloat16 or float16
    #[arg(long, value_enum, default_value_t)]
    dtype: Format,
    /// Also measure the matrix products of the models, and each way in which the device can compute them
    #[arg(long)]
    products: bool,
    /// Compute with plain tensor code instead of the device's own kernels
    #[arg(long)]
    reference: bool,
    /// Print JSON lines, each as soon as it is known
    #[arg(long)]
    json: bool,
}

/// Format that matrices are multiplied in.
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

/// A phase that a user asks for, with its own sizes if it has any: `update@16x512+512` has 16 rows with prompts and
/// completions of 512 tokens.
#[derive(Clone, Copy)]
struct PhaseRequest {
    phase: Phase,
    /// Rows, and tokens of a prompt and of a completion.
    sizes: Option<[usize; 3]>,
}

impl FromStr for PhaseRequest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, sizes) = match text.split_once('@') {
            Some((name, sizes)) => (name, Some(sizes)),
            None => (text, None),
        };

        let Some(phase) = Phase::ALL.into_iter().find(|phase| phase.name() == name) else {
            let names = Phase::ALL.map(Phase::name).join(", ");
            return Err(format!("there is no phase '{name}'; the phases are {names}"));
        };

        let read = |sizes: &str| {
            let (rows, tokens) = sizes.split_once('x')?;
            let (prompt, completion) = tokens.split_once('+')?;
            let sizes = [(rows, 4096), (prompt, 65_536), (completion, 65_536)]
                .map(|(text, most)| text.parse().ok().filter(|size| (1..=most).contains(size)));
            Some([sizes[0]?, sizes[1]?, sizes[2]?])
        };
        let invalid_sizes = || {
            "expected ROWSxPROMPT+COMPLETION behind the @, such as 16x512+512: 1 to 4096 rows, and 1 to 65536 \
             tokens each"
                .to_owned()
        };

        let sizes = sizes.map(|sizes| read(sizes).ok_or_else(invalid_sizes)).transpose()?;
        Ok(PhaseRequest { phase, sizes })
    }
}

const EXAMPLES: &str = "\
Weights and tokens are random. Phases: rollout samples one completion of each
prompt, with each number of rows; groups samples eight of each; spread samples
completions of a sixteenth to the whole length; tail samples one in sixteen of
the whole length, and the others of a thirty-second; update is an optimizer's
step on all rows; recompute is the same with less memory, as with
train.recompute=layers; step is a whole step of 8 prompts with 8 completions of
64 tokens, judged and trained on; verify judges answers in mathematics. A phase
that fails does not stop the others.

Each rate is the median run's. The column 'of matmul peak' is the rate of the
model's own operations, as a share of the device's rate in a product of
1024 x 1024 matrices. The column 'of memory bandwidth' is the rate of reading
weights, keys and values, as a share of the bandwidth of a copy.

Examples:
  firebrick bench 1m
  firebrick bench 10m --phases update --runs 9
  firebrick bench 10m --phases rollout@256x32+64,update@1x512+512
  firebrick bench my-model --device vulkan:0 --json

Exit codes: 0 measured, 1 failed, 2 wrong arguments.";

impl Bench {
    /// Returns exit code 1 if a phase failed.
    pub(super) fn run(self) -> Result<u8, ProgramError> {
        if self.reference {
            use_kernels(Kernels::Reference);
        }
        let phases = self.phases()?;
        let (compute, precision) = match self.dtype {
            Format::Float32 => (Compute::F32, Precision::F32),
            Format::Bfloat16 => (Compute::Bf16, Precision::Bf16),
            Format::Float16 => (Compute::F16, Precision::F16),
        };
        let shapes = self.shapes.iter().map(|name| self.shape(name, compute));
        let shapes = shapes.collect::<Result<Vec<_>, _>>()?;

        let began = Instant::now();
        let device = open(self.device, Precision::F32)?;
        // A device that can't compute in this format is refused before anything is measured.
        let device =
            if precision == Precision::F32 { device } else { open(self.device, precision)? };

        let about = guard(|| describe(self.device, &device)).ok();
        let mut output = Output::new(&self, about.as_ref(), compute)?;
        let limits = match guard(|| Limits::measure(&device)) {
            Ok(limits) => limits,
            Err(failure) => output.without_limits(&failure)?,
        };
        output.limits(&limits)?;

        if self.products {
            let mut printed = Ok(());
            for shape in &shapes {
                bench::products(shape, compute, &device, &limits, &mut |product| {
                    if printed.is_ok() {
                        printed = output.product(product);
                    }
                });
            }
            printed?;
        }

        output.head()?;
        // An event can't return an error, so the first error from printing is kept.
        let mut printed = Ok(());
        for shape in &shapes {
            let on = (self.device, &device);
            bench::run(shape, compute, &phases, on, &mut |event| {
                if printed.is_ok() {
                    printed = output.event(&shape.name, event, &limits);
                }
            })?;
        }

        printed?;
        output.end(began)
    }

    /// Returns the phases to measure, each with its sizes.
    fn phases(&self) -> Result<Vec<(Phase, Sizes)>, ProgramError> {
        let frozen = !matches!(self.base, Base::Auto | Base::Float32) && self.lora.is_none();
        let trains = |phase| matches!(phase, Phase::Update | Phase::Recompute | Phase::Step);
        if let Some(phase) = self.phases.iter().map(|it| it.phase).find(|&it| frozen && trains(it))
        {
            return Err(ProgramError::NothingTrains { phase: phase.name() });
        }

        let all = Phase::ALL.into_iter().filter(|&phase| !(frozen && trains(phase)));
        let asked = match self.phases.as_slice() {
            [] => all.map(|phase| PhaseRequest { phase, sizes: None }).collect(),
            asked => asked.to_vec(),
        };
        let [prompt, completion] = [self.prompt, self.completion].map(|tokens| tokens as usize);
        let sized = |PhaseRequest { phase, sizes }: PhaseRequest| {
            let last = &self.rows[self.rows.len() - 1..];
            let rows = if phase == Phase::Rollout { &self.rows } else { last };
            let of_rows = rows.iter().map(|&rows| [rows.into(), prompt, completion]);
            let sizes = sizes.map_or_else(|| of_rows.collect(), |sizes| vec![sizes]);
            sizes.into_iter().map(move |[rows, prompt, completion]| {
                (phase, Sizes { rows, prompt, completion, runs: self.runs.into() })
            })
        };
        Ok(asked.into_iter().flat_map(sized).collect())
    }

    fn shape(&self, name: &str, compute: Compute) -> Result<Shape, ProgramError> {
        let built_in = Shape::built_in().into_iter().find(|shape| shape.name == name);
        let mut shape = match built_in {
            Some(shape) => shape,
            None => Shape {
                name: name.into(),
                config: load_config(&PathBuf::from(name))?.0,
                micro_batch_rows: 8,
                lora_rank: 0,
                base: FrozenFormat::F32,
            },
        };

        shape.micro_batch_rows = self.micro_batch.map_or(shape.micro_batch_rows, usize::from);
        shape.base = match (self.base, self.lora) {
            // All weights are trained, in f32.
            (Base::Auto, None) => FrozenFormat::F32,
            (base, _) => model::base_of(base.into(), compute),
        };
        shape.lora_rank = self.lora.map_or(0, usize::from);
        Ok(shape)
    }
}

/// All that a bench prints: a table, or lines of JSON.
struct Output {
    json: bool,
    device: Name,
    /// Name of the device and number of cores.
    about: String,
    phases: usize,
    failed: usize,
}

impl Output {
    /// Says what is measured on which device.
    fn new(
        arguments: &Bench,
        about: Option<&Description>,
        compute: Compute,
    ) -> Result<Self, ProgramError> {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let name = about.map_or_else(|| arguments.device.to_string(), Description::headline);
        let output = Output {
            json: arguments.json,
            device: arguments.device,
            about: format!("{name}, {cores} cores"),
            phases: 0,
            failed: 0,
        };

        if output.json {
            let kernels = if arguments.reference { "reference" } else { "fast" };
            print_event("program", program(kernels))?;
            let mut device =
                about.map_or_else(|| json!({ "device": output.device }), |about| json!(about));
            device["cores"] = cores.into();
            device["dtype"] = compute.to_string().into();
            print_event("device", device)?;
        }
        Ok(output)
    }

    fn print_fact(&self, event: &str, fact: &Value) -> Result<(), ProgramError> {
        print_event(event, Of { device: self.device, fact })
    }

    fn limits(&self, limits: &Limits) -> Result<(), ProgramError> {
        let Limits { flops, bandwidth, launch, .. } = limits;
        if self.json {
            let limits = json!({ "flops": flops, "bandwidth": bandwidth, "launch": launch });
            return self.print_fact("limits", &limits);
        }
        let launch = launch.map(|it| format!(", a launch takes {:.1} µs", 1e6 * it));

        let text = format!(
            "{}; a product reaches {:.0} GFLOP/s, a copy {:.1} GB/s{}\n",
            self.about,
            flops / 1e9,
            bandwidth / 1e9,
            launch.unwrap_or_default(),
        );
        print(&for_stdout(&text, 1))
    }

    /// Continues without limits, and so without shares of them: a device on which a plain product or a copy fails may
    /// still compute a model.
    fn without_limits(&mut self, failure: &Failure) -> Result<Limits, ProgramError> {
        self.failed += 1;
        let error = failure.to_string();
        if self.json {
            self.print_fact("failed", &json!({ "phase": "limits", "error": error }))?;
        } else {
            print(&format!("a plain product or a copy failed: {error}\n"))?;
        }
        Ok(Limits { flops: f64::NAN, bandwidth: f64::NAN, launch: None })
    }

    fn product(&self, product: &Product) -> Result<(), ProgramError> {
        if self.json {
            return self.print_fact("product", &json!(product));
        }
        let Product { rows, inner, columns, dtype, flops, error, ways } = product;

        let rate = match (flops, error) {
            (Some(flops), _) => format!("{:.0} GFLOP/s", flops / 1e9),
            (None, Some(error)) => format!("failed: {error}"),
            (None, None) => "too slow to try".into(),
        };
        let best = match ways.first() {
            Some((way, flops)) => {
                format!("; best of {} ways: {:.0}, {way}", ways.len(), flops / 1e9)
            }
            None => String::new(),
        };
        print(&format!("[{rows}, {inner}] · [{inner}, {columns}] in {dtype}: {rate}{best}\n"))
    }

    /// Prints the table's head.
    fn head(&self) -> Result<(), ProgramError> {
        if self.json {
            return Ok(());
        }
        print(&format!(
            "\n{:<14}{:<10}{:>5}{:>12}{:>11}{:>10}{:>7}{:>16}{:>21}{:>11}\n",
            "model",
            "phase",
            "rows",
            "per second",
            "median s",
            "spread %",
            "cores",
            "of matmul peak",
            "of memory bandwidth",
            "peak",
        ))
    }

    fn event(
        &mut self,
        shape: &str,
        event: BenchEvent<'_>,
        limits: &Limits,
    ) -> Result<(), ProgramError> {
        match event {
            BenchEvent::Phase(measured) => {
                self.phases += 1;
                if self.json {
                    self.print_fact("phase", &as_json(measured, limits))
                } else {
                    print(&line(measured, limits))
                }
            }
            BenchEvent::Whole(measured) if self.json => {
                if measured.parts.len() + measured.kernels.len() > 0 {
                    self.print_fact("detail", &detail_as_json(measured))
                } else {
                    Ok(())
                }
            }
            BenchEvent::Whole(measured) => print(&detail(measured)),
            BenchEvent::Failed(phase, sizes, error) => {
                self.failed += 1;
                let phase = phase.name();
                if self.json {
                    let failed = json!({
                        "shape": shape, "phase": phase, "sizes": sizes, "error": error.to_string(),
                    });
                    return self.print_fact("failed", &failed);
                }

                print(&format!("{shape:<14}{phase:<10}failed: {error}\n"))
            }
        }
    }

    /// Says how the bench ended, and returns the exit code.
    fn end(&self, began: Instant) -> Result<u8, ProgramError> {
        let passed = self.failed == 0;
        let seconds = began.elapsed().as_secs_f64();
        if self.json {
            let Output { phases, failed, .. } = self;
            print_event(
                "summary",
                json!({ "passed": passed, "phases": phases, "failed": failed, "seconds": seconds }),
            )?;
        }
        Ok(u8::from(!passed))
    }
}

fn line(measured: &Measured, limits: &Limits) -> String {
    let seconds = &measured.seconds;
    // The seconds are sorted, so these are the slowest and the fastest run.
    let spread = (seconds[seconds.len() - 1] - seconds[0]) / measured.median() * 100.0;
    let share = |of: Option<f64>, limit: f64| {
        of.map_or_else(
            || "–".into(),
            |of| format!("{:.0} %", 100.0 * of / measured.median() / limit),
        )
    };

    format!(
        "{:<14}{:<10}{:>5}{:>12}{:>11.3}{:>10.0}{:>7}{:>16}{:>21}{:>11}\n",
        measured.shape,
        measured.phase.name(),
        measured.sizes.rows,
        thousands(measured.rate().round() as u64),
        measured.median(),
        spread,
        measured.cores.map_or_else(|| "–".into(), |cores| format!("{cores:.2}")),
        share(measured.flops, limits.flops),
        share(measured.bytes, limits.bandwidth),
        measured.peak_bytes.map_or_else(|| "–".into(), gibibytes),
    )
}

/// Writes the kernels that take most of a GPU's time, and the parts of a step.
fn detail(measured: &Measured) -> String {
    let mut text = String::new();
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

    // They come later, on a separate line.
    for later in ["parts", "kernels"] {
        object.as_object_mut().map(|fields| fields.shift_remove(later));
    }
    object
}

fn detail_as_json(measured: &Measured) -> Value {
    let parts: Map<String, Value> =
        measured.parts.iter().cloned().map(|(name, seconds)| (name, json!(seconds))).collect();
    let Measured { shape, phase, sizes, kernels, .. } = measured;
    json!({ "shape": shape, "phase": phase, "sizes": sizes, "parts": parts, "kernels": kernels })
}
