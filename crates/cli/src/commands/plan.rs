//! `firebrick plan`: estimates the memory that a recipe needs, before anything runs.

mod engines;
mod time;

use std::{fmt::Write as _, path::PathBuf};

use clap::Args;
use firebrick::{
    build,
    plan::{
        Facts, Memory, Moment, MoreSequences, Plan as Sums, Remedy, Wire, compute,
        remedy as remedy_for,
    },
    recipe::{Loaded, Recipe, UpdateEngine},
    thousands,
};
use firebrick_device::{Kind, Name, gibibytes};
use serde_json::{Value, json};

use crate::ProgramError;
use time::Times;

/// Arguments of `firebrick plan`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Plan {
    /// The recipe: a TOML or YAML file, the folder of a task, or a name that `firebrick recipes` lists
    recipe: PathBuf,
    /// Replace a value of the recipe, such as train.micro_batch_tokens=4096
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Plan for this device instead of the recipe's, such as cpu or vulkan:0
    #[arg(long, value_name = "KIND:INDEX")]
    device: Option<Name>,
    /// The memory of the device, such as 24GiB or 80GB; by default the device is asked. If neither --device nor the
    /// recipe names a device, this is the memory of a card that computes in bfloat16
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    memory: Option<u64>,
    /// Say the longest completion that fits into the memory, instead of listing the parts
    #[arg(long)]
    fit: bool,
    /// Print the plan as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    servers: engines::Servers,
}

const EXAMPLES: &str = "\
No model is loaded: the sizes come from the recipe and the model's config.json,
or from a table of published models if that file is not on this machine. Prompts
and completions are taken at the longest that the recipe allows, so a run with
shorter ones needs less.

Columns are the moments at which a step holds most memory: sampling; logits from
a micro-batch's activations; its backward pass at the beginning and at the end;
AdamW's step; writing a checkpoint. Parts with ~ are estimates, the others are
counted.

The time of a step is calculated: for the CPU from a product and a copy that are
timed here, for a card from its data sheet and the shares of it that an H200
reached. It depends on the lengths of completions, which --mean-tokens says. Take
it for an order of magnitude; small models take longer.

Examples:
  firebrick plan quickstart
  firebrick plan quickstart --device vulkan:0
  firebrick plan cards/16gb --memory 16GB
  firebrick plan my.toml --memory 24GiB --set 'model.lora={ rank = 16 }'
  firebrick plan my.toml --memory 24GiB --fit
  firebrick plan my.toml --engines --card h100 --mean-tokens 4000

Exit codes: 0 it fits, or the memory is unknown; 1 it does not fit, most cards
would not load it, or it could not be planned; 2 wrong arguments or recipe. With
--fit: 1 no completion fits.";

impl Plan {
    /// Returns exit code 1 if the recipe does not fit.
    pub(super) fn run(self) -> Result<u8, ProgramError> {
        let (Loaded { recipe, name, .. }, for_a_card) = self.load()?;
        if let UpdateEngine::Tinker(server) = &recipe.engine {
            let wire = Wire::new(&recipe);
            let text = match self.json {
                true => format!("{}\n", json!(wire)),
                false => on_the_wire(&wire, &name, &server.model),
            };
            super::print(&text)?;
            return Ok(0);
        }
        let sources = super::sources::alone();
        let models = build::model_sizes(&recipe, &sources)?;

        let mut tried = recipe.clone();
        if self.fit {
            // The answer is a length, so only the environment's texts have to leave room.
            tried.rollout.max_completion_tokens = 1;
        }
        models.check_context(&tried)?;

        let (compute, assumed) = compute(&recipe);
        let assumed = Assumed {
            compute: assumed && !for_a_card,
            card: self.memory.filter(|_| for_a_card),
            sizes: models.published,
        };
        let memory = match self.memory {
            Some(bytes) => {
                let card = if for_a_card { ", for a card" } else { "" };
                Memory { bytes: Some(bytes), words: format!("given with --memory{card}") }
            }
            None => Memory::of_device(recipe.device.name()),
        };

        let plan = Sums::new(&models, &recipe, compute, memory.bytes);
        if self.servers.engines {
            let engines = self.servers.plan(&plan.facts, &recipe);
            let text = if self.json {
                format!("{}\n", json!(engines))
            } else {
                engines::table(&engines, &name)
            };
            super::print(&text)?;
            return Ok(0);
        }

        let short = memory.bytes.filter(|&bytes| !plan.fits(bytes));
        // Smaller batches do not change what is learnt. If they are enough, nothing else is advised.
        let remedy = short.filter(|&bytes| !plan.least().fits(bytes));
        let remedy = remedy.and_then(|bytes| remedy_for(&models, &recipe, compute, bytes));

        let refused = too_large(&plan, &recipe);
        let has_room = if self.fit {
            memory.bytes.is_none_or(|bytes| plan.longest(bytes).is_some())
        } else {
            short.is_none()
        };
        let fits = refused.is_none() && has_room;

        let lengths = self.servers.lengths(&recipe);
        let times = || Times::new(&plan.facts, &recipe, self.servers.card, memory.bytes, lengths);

        let text = match (self.json, self.fit) {
            (true, _) => {
                let mut object =
                    as_json(&plan, remedy.as_ref(), &recipe, &memory, refused.is_none());
                object["time"] = times().as_json();
                object["published_sizes"] = models.published.into();
                format!("{object}\n")
            }
            (false, true) => refused.unwrap_or_default() + &fit(&plan, &memory),
            (false, false) => {
                let mut text = table(&plan, &name, &recipe, &assumed);
                text.extend(refused.clone());
                text += &verdict(&plan, &memory, refused.is_none());
                text.extend(remedy.as_ref().map(instead));
                text + &times().in_words(&recipe)
            }
        };

        super::print(&text)?;
        Ok(u8::from(!fits))
    }

    /// Loads the recipe. If a memory is given and nobody names a device, the plan is for a card, and the second value is
    /// true: nobody has to say the memory of a CPU.
    fn load(&self) -> Result<(Loaded, bool), ProgramError> {
        let load = |device| {
            let set = [self.set.clone(), super::device_settings(device)].concat();
            super::recipes::load(&self.recipe, &set)
        };

        let loaded = load(self.device)?;
        if self.memory.is_none() || self.device.is_some() || loaded.sets("device") {
            return Ok((loaded, false));
        }
        Ok((load(Some(CARD))?, true))
    }
}

/// Says what goes over the wire in a step. The memory is the server's.
fn on_the_wire(wire: &Wire, name: &str, model: &str) -> String {
    let megabytes = |count: u64| format!("{:.1} MB", count as f64 / 1e6);
    let mut text = format!(
        "{name}: {model} is on a server, whose memory is its own. Over the wire of a step go at most, if all {} texts have \
         {} tokens:\n\n{:<10} {:>10} {:>10}\n",
        wire.completions, wire.targets, "", "sent", "received"
    );
    let rows = [
        ("sampling", wire.sampling),
        ("forward", wire.forward),
        ("backward", wire.backward),
        ("all", wire.all()),
    ];
    for (row, [sent, received]) in rows {
        let _ = writeln!(text, "{row:<10} {:>10} {:>10}", megabytes(sent), megabytes(received));
    }
    text
}

/// Device that stands for a card that nobody named. CUDA and ROCm compute in bfloat16, as most cards can.
const CARD: Name = Name { kind: Kind::Cuda, index: 0 };

/// Assumptions of a plan, which its heading has to name.
struct Assumed {
    /// True if the device can't be asked whether it computes in this format.
    compute: bool,
    /// Memory of the card, if nobody named a device.
    card: Option<u64>,
    /// True if the model's sizes are built in.
    sizes: bool,
}

impl Assumed {
    /// Writes the assumptions about device and sizes, a line each.
    fn in_words(&self) -> String {
        let mut text = String::new();
        if let Some(bytes) = self.card {
            let _ = writeln!(
                text,
                "for a card with {}, as with --device {CARD}, because you name no device: --device vulkan:0 is for \
                 one that computes in float32, and --device cpu for a CPU",
                gibibytes(bytes)
            );
        }
        if self.sizes {
            text +=
                "the model's sizes are built in, because its config.json is not on this machine\n";
        }
        text
    }
}

/// Describes the longest completion that fits.
fn fit(plan: &Sums, memory: &Memory) -> String {
    let Some(bytes) = memory.bytes else {
        return format!(
            "the memory of the device is unknown: {}; give it, as in --memory 24GiB\n",
            memory.words
        );
    };

    let available = format!("{} ({})", gibibytes(bytes), memory.words);
    let work = plan.facts.work;

    match plan.longest(bytes) {
        Some(longest) => {
            let tokens = |number: u128| {
                if number == longest.model {
                    format!(
                        "{}, all that the model's context has room for",
                        thousands(number as u64)
                    )
                } else {
                    thousands(number as u64)
                }
            };
            let observed = match work.observed {
                0 => String::new(),
                observed => format!(
                    ", in addition to {} tokens of an environment",
                    thousands(observed as u64)
                ),
            };

            format!(
                "rollout.max_completion_tokens = {} is the longest that fits into {available}, after prompts of {} \
                 tokens{observed}\n  \
                 sampling one completion at a time (rollout.max_sequences): {}\n  \
                 sampling a group of {} at a time: {}\n  \
                 updating with one completion at a time (train.micro_batch_tokens): {}\n",
                longest.completion,
                thousands(work.prompt as u64),
                tokens(longest.rollout),
                work.group_size,
                tokens(longest.group),
                tokens(longest.update),
            )
        }
        None => {
            let (peak, moment) = plan.least().peak();
            format!(
                "no completion fits into {available}: the smallest batches need {} (peak, {})\n",
                gibibytes(peak),
                moment.in_words()
            )
        }
    }
}

/// Describes the change of settings with which the run would fit.
fn instead(remedy: &Remedy) -> String {
    let settings: Vec<String> =
        remedy.settings.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    let (peak, moment) = remedy.plan.peak();
    format!(
        "  or set {}, which needs {} (peak, {})\n",
        settings.join(", "),
        gibibytes(peak),
        moment.in_words()
    )
}

fn table(plan: &Sums, name: &str, recipe: &Recipe, assumed: &Assumed) -> String {
    let facts = &plan.facts;
    let on = match assumed.card {
        Some(_) => "a card".to_owned(),
        None => recipe.device.name().to_string(),
    };
    let unasked = if assumed.compute {
        " (assumed: the device can't be asked whether it computes in this format)"
    } else {
        ""
    };
    let active = match facts.active {
        all if all == facts.parameters => String::new(),
        active => format!(" of which a token goes through {}", thousands(active as u64)),
    };

    let mut text = format!(
        "{name}: {} parameters{active}, {} of them trained, {}, on {on}{unasked}\n\
         {}{}, prompts to {} and completions to {} tokens; \
         micro-batches to {} tokens, {} of {} layers kept whole\n{}\n",
        thousands(facts.parameters as u64),
        thousands(facts.trainable as u64),
        if facts.half {
            format!("float32 multiplied in {}", facts.compute)
        } else {
            facts.compute.clone()
        },
        assumed.in_words(),
        if facts.work.elsewhere {
            "sampled by servers".to_owned()
        } else {
            format!("{} sequences at once", facts.work.sequences)
        },
        facts.work.prompt,
        facts.work.completion,
        facts.tokens(),
        facts.work.whole_layers.min(facts.shape.layers),
        facts.shape.layers,
        recording(facts, recipe),
    );

    let line = |text: &mut String, name: &str, cells: [String; 6]| {
        let _ = write!(text, "{name:<28}");
        for cell in cells {
            let _ = write!(text, " {cell:>9}");
        }
        text.push('\n');
    };

    line(&mut text, "", Moment::ALL.map(|moment| moment.name().to_owned()));
    for part in &plan.parts {
        let mark = if part.exact { "  " } else { "~ " };
        let cells = part.bytes.map(|bytes| match bytes {
            0 => "-".into(),
            bytes if bytes < 1 << 19 => "<1 MiB".into(),
            bytes => gibibytes(bytes),
        });
        line(&mut text, &format!("{mark}{}", part.name), cells);
    }

    line(&mut text, "  together", Moment::ALL.map(|moment| gibibytes(plan.sum(moment))));
    text.push('\n');
    text
}

/// Says whether a GPU records the steps of decoding, and if not, why.
fn recording(facts: &Facts, recipe: &Recipe) -> String {
    let work = &facts.work;
    if work.on_host || work.elsewhere {
        return String::new();
    }

    let by_default = matches!(recipe.device.kind, Kind::Cuda | Kind::Rocm);
    let recorded = match recipe.rollout.graphs {
        _ if work.graphs => {
            "recorded and repeated, unless completions are short (rollout.graphs, true by default with cuda and rocm)"
        }
        _ if recipe.records_graphs() => {
            "not recorded, because the host takes part in them: the model has experts or recurrent layers, or \
             device.kernels is \"reference\""
        }
        None if by_default => {
            "not recorded, because the device has other work meanwhile: a reward model, or an update \
             (rollout.max_staleness)"
        }
        None => "not recorded (rollout.graphs, true by default with cuda and rocm alone)",
        Some(_) => "not recorded (rollout.graphs = false)",
    };
    format!("steps of decoding are {recorded}\n")
}

/// Says that the largest weight is too large for most cards, whatever their memory.
fn too_large(plan: &Sums, recipe: &Recipe) -> Option<String> {
    let bytes = plan.too_large_a_weight(recipe.device.kind)?;
    Some(format!(
        "the embedding or the head is one tensor of {} bytes, and Vulkan on Linux allows at most {} \
         bytes, except on NVIDIA's cards: with {} the model loads only on such a card\n",
        thousands(bytes),
        thousands(i32::MAX as u64),
        recipe.device.name()
    ))
}

/// Says whether the memory is enough. `loads` is false if most cards refuse the model, whatever their memory.
fn verdict(plan: &Sums, memory: &Memory, loads: bool) -> String {
    let (peak, moment) = plan.peak();
    let peak_text = format!("needs {} (peak, {})", gibibytes(peak), moment.in_words());
    let Some(bytes) = memory.bytes else {
        return format!(
            "{peak_text}; the memory of the device is unknown: {}; give it, as in --memory 24GiB\n",
            memory.words
        );
    };

    let summary = format!("{peak_text}, {} available ({})", gibibytes(bytes), memory.words);
    if plan.fits(bytes) {
        let fits = if loads { "fits" } else { "the memory is enough" };
        let more = plan.more_sequences(bytes).filter(|_| loads);
        return format!("{fits}: {summary}\n{}", more.as_ref().map(room).unwrap_or_default());
    }

    let mut text = format!("does not fit: {summary}\n");
    let smallest = plan.least();
    if !smallest.fits(bytes) {
        let (peak, moment) = smallest.peak();
        let remedy = match plan.longest(bytes) {
            Some(longest) => {
                let max_tokens = longest.completion;
                format!(
                    "completions of at most {max_tokens} tokens (rollout.max_completion_tokens)"
                )
            }
            None => "a smaller model".into(),
        };
        let _ = writeln!(
            text,
            "  the smallest batches still need {} (peak, {}): take {remedy}, \
             shorter prompts (data.max_prompt_tokens) or another device",
            gibibytes(peak),
            moment.in_words()
        );
        return text;
    }

    for advice in plan.advice(bytes) {
        let _ = writeln!(text, "  set {} = {} (now {})", advice.key, advice.to, advice.from);
    }
    text
}

/// Describes how many more sequences there is room for.
fn room(more: &MoreSequences) -> String {
    let (peak, moment) = more.plan.peak();
    format!(
        "  rollout.max_sequences may be raised to {} (now {}), which should sample faster and takes {} (peak, {})\n",
        more.to,
        more.from,
        gibibytes(peak),
        moment.in_words()
    )
}

fn as_json(
    plan: &Sums,
    remedy: Option<&Remedy>,
    recipe: &Recipe,
    memory: &Memory,
    loads: bool,
) -> Value {
    let (peak, moment) = plan.peak();
    let by_moment = |bytes: [u64; 6]| -> serde_json::Map<String, serde_json::Value> {
        let cells = Moment::ALL.into_iter().zip(bytes);
        cells.map(|(moment, bytes)| (moment.name().to_owned(), bytes.into())).collect()
    };

    let more = memory.bytes.filter(|_| loads).and_then(|bytes| plan.more_sequences(bytes));
    let parts: Vec<_> = plan
        .parts
        .iter()
        .map(|part| json!({"name": part.name, "exact": part.exact, "bytes": by_moment(part.bytes)}))
        .collect();
    let least_peak = plan.least().peak();

    json!({
        "device": recipe.device.name(),
        "facts": plan.facts,
        "parts": parts,
        "together": by_moment(Moment::ALL.map(|moment| plan.sum(moment))),
        "peak": { "bytes": peak, "moment": moment },
        "least": { "bytes": least_peak.0, "moment": least_peak.1 },
        "memory": { "bytes": memory.bytes, "from": memory.words },
        "fits": memory.bytes.map(|bytes| loads && plan.fits(bytes)),
        "advice": memory.bytes.map_or_else(Vec::new, |bytes| plan.advice(bytes)),
        "remedy": remedy.map(|remedy| {
            let settings = remedy.settings.iter().map(|(key, value)| format!("{key} = {value}"));
            json!({"set": settings.collect::<Vec<_>>(), "bytes": remedy.plan.peak().0})
        }),
        "more_sequences": more.map(|more| {
            json!({"from": more.from, "to": more.to, "bytes": more.plan.peak().0})
        }),
        "longest": memory.bytes.and_then(|bytes| plan.longest(bytes)),
    })
}

/// Reads a size with its unit, in capital or small letters. MB and GB are powers of 1000; M, MiB, G and GiB are
/// powers of 1024. A bare number is an error, because nobody means bytes by it.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: f64 = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => return Err(format!("{text} has no unit: say {text}GiB, or {text}GB")),
        "b" => 1.0,
        "mb" => 1e6,
        "gb" => 1e9,
        "m" | "mib" => f64::from(1 << 20),
        "g" | "gib" => f64::from(1 << 30),
        unit => return Err(format!("{unit:?} is no unit: expected GiB, MiB, GB, MB or B")),
    };

    // The bound keeps the product well within 64 bits.
    match digits.trim().parse::<f64>() {
        Ok(number) if number > 0.0 && number * factor < 9e18 => Ok((number * factor) as u64),
        _ => Err("expected a size such as 24GiB".into()),
    }
}
