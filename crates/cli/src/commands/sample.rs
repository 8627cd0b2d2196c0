//! What `generate` and `chat` share: options of sampling, a model with its text, and a printer of its tokens.

use std::{
    io::{ErrorKind, IsTerminal as _, Write as _},
    ops::ControlFlow,
    path::Path,
};

use clap::{Args, ValueEnum};
use firebrick::{
    Error, Stage,
    build::{self, known_options, prompt_format},
    model::{self, Folders},
    plan::{ChunkPlan, Memory},
    recipe::{BaseType, ComputeType, Data, Template},
    recipe_of_run,
};
use firebrick_core::{Prompt, Seed, printable_lines};
use firebrick_data::{PromptFormat, Question, Tokenizer, parse_json};
use firebrick_device::{Kind, Name, Precision, guard};
use firebrick_models::Decoder;
use firebrick_rollout::{GroupRequest, SampleOn, Sampling, Streamed, stream};
use serde_json::Value;

use crate::{ProgramError, bars::Bars, error::STDOUT};

/// Options of the model and of its sampling.
#[derive(Args)]
pub(super) struct SampleOptions {
    /// The system message of the chat template; by default the one of the model's run
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Set a variable of the chat template, as in enable_thinking=false; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = option)]
    option: Vec<(String, Value)>,
    /// The number of tokens after which a completion is cut off; fewer if the model's context has less room
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: u32,
    /// Divide the logits by this number; 0 always takes the most likely token
    #[arg(long, default_value_t = 1.0, value_parser = at_least_0)]
    temperature: f64,
    /// Sample among the most likely tokens that together have this probability
    #[arg(long, default_value_t = 1.0, value_parser = probability)]
    top_p: f64,
    /// Sample among this number of most likely tokens; 0 means all tokens
    #[arg(long, default_value_t = 0)]
    top_k: usize,
    /// The seed of the sampling
    #[arg(long, default_value_t = 17)]
    seed: u64,
    /// Compute on this device, such as cpu or vulkan:0
    #[arg(long, value_name = "KIND:INDEX", default_value = "cpu")]
    device: Name,
    /// Multiply matrices in this format: auto, float32, bfloat16 or float16
    #[arg(long, value_enum, default_value_t)]
    dtype: Dtype,
    /// Keep the weights in this format: auto, float32, bfloat16, int8 or int4
    #[arg(long, value_enum, default_value_t)]
    base: Format,
}

/// Format that matrices are multiplied in.
#[derive(Clone, Copy, Default, ValueEnum)]
enum Dtype {
    /// `bfloat16` on a GPU that has it, else `float32`
    #[default]
    Auto,
    /// 32 bits
    Float32,
    /// 16 bits with the range of float32
    Bfloat16,
    /// 16 bits with values up to 65,504
    Float16,
}

/// Format that weights are kept in.
#[derive(Clone, Copy, Default, ValueEnum)]
pub(super) enum Format {
    /// The format that they are multiplied in
    #[default]
    Auto,
    /// 32 bits
    Float32,
    /// 16 bits with the range of float32
    Bfloat16,
    /// 8 bits and a scale for every 32 weights
    Int8,
    /// 4 bits and a scale for every 32 weights
    Int4,
}

impl From<Format> for BaseType {
    fn from(format: Format) -> Self {
        match format {
            Format::Auto => BaseType::Auto,
            Format::Float32 => BaseType::Float32,
            Format::Bfloat16 => BaseType::Bfloat16,
            Format::Int8 => BaseType::Int8,
            Format::Int4 => BaseType::Int4,
        }
    }
}

impl From<Dtype> for ComputeType {
    fn from(dtype: Dtype) -> Self {
        match dtype {
            Dtype::Auto => ComputeType::Auto,
            Dtype::Float32 => ComputeType::Float32,
            Dtype::Bfloat16 => ComputeType::Bfloat16,
            Dtype::Float16 => ComputeType::Float16,
        }
    }
}

/// Splits KEY=VALUE. The value is JSON if it can be read as JSON, and otherwise a text.
fn option(text: &str) -> Result<(String, Value), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    let value = parse_json(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    Ok((key.to_owned(), value))
}

fn at_least_0(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "expected a number of at least 0".into())
}

fn probability(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| *number > 0.0 && *number <= 1.0);
    number.ok_or_else(|| "expected a number above 0 and at most 1".into())
}

/// A model without its weights: what makes prompts of questions. Whatever is wrong with a question is known before
/// the weights are loaded.
pub(super) struct ModelText {
    folders: Folders,
    pub(super) tokenizer: Tokenizer,
    pub(super) format: PromptFormat,
    /// Number of tokens that prompt and completion share.
    pub(super) context: usize,
}

impl ModelText {
    /// Reads everything but the weights. Questions are put as in the prompts of `run`, whose model it is, if any. A
    /// `plain` prompt is the question itself.
    pub(super) fn read(
        folders: Folders,
        run: Option<&Path>,
        options: &SampleOptions,
        plain: bool,
    ) -> Result<Self, ProgramError> {
        let config = folders.sizes()?;
        let tokenizer = Tokenizer::from_folder(&folders.text)?;
        model::check_vocabulary(&tokenizer, &config, &folders.text)?;
        for what in tokenizer.switched_off() {
            super::warn(format!("the tokenizer asks for {what}: it is switched off"));
        }

        let data = if plain { plain_data() } else { data(run, options) };
        let mut format = prompt_format(&data, Some(&folders.text), build::now())?;
        let given = options.option.iter().cloned().collect();
        known_options("--option", &given, format.chat.as_ref())?;
        format.kwargs.extend(given);
        Ok(ModelText { folders, tokenizer, format, context: config.max_position_embeddings })
    }

    /// Makes the prompt of a question, which has at least one token and leaves room for a completion.
    pub(super) fn prompt(&self, question: &Question) -> Result<Prompt, ProgramError> {
        let context = self.context;
        let (text, tokens) = self.format.encode_up_to(question, &self.tokenizer, context)?;
        if tokens.is_empty() || tokens.len() >= context {
            return Err(ProgramError::PromptLength { tokens: tokens.len(), context });
        }
        Ok(Prompt { text, tokens, ..Prompt::default() })
    }

    pub(super) fn load(self, options: &SampleOptions) -> Result<Model, ProgramError> {
        let name = options.device;
        let policy = guarded(name, || {
            let device = firebrick_device::open(name, Precision::F32)?;
            let compute = model::compute(options.dtype.into(), name, &device)?;
            let base = model::base_of(options.base.into(), compute);

            let loading = Bars::on_stderr().bar(Stage::Load.name(), 0);
            let policy = self.folders.load(base, &device, super::warn)?;
            drop(loading);

            let memory = Memory::of_device(name).bytes;
            let chunk_sizes =
                ChunkPlan::for_device(name, memory, policy.config().intermediate_size)
                    .chunk_sizes();
            Ok(policy.with_compute(compute).with_chunk_sizes(chunk_sizes))
        })?;
        Ok(Model { text: self, policy })
    }
}

/// Returns what the recipe of `run` says about prompts, but for the system message that was given.
fn data(run: Option<&Path>, options: &SampleOptions) -> Data {
    let mut data = match run.map(recipe_of_run) {
        Some(Ok(run)) => run.recipe.data,
        Some(Err(problem)) => {
            super::warn(format!(
                "questions are not put as in the run, whose recipe can't be read: {problem}"
            ));
            Data::default()
        }
        None => Data::default(),
    };

    let keys = [
        ("data.system", data.system.is_some() && options.system.is_none()),
        ("data.prompt", data.prompt.is_some()),
        ("data.template_options", !data.template_options.is_empty()),
    ];
    let keys: Vec<&str> = keys.iter().filter(|(_, set)| *set).map(|(key, _)| *key).collect();
    if !keys.is_empty() {
        super::warn(format!("questions are put as in the run, by its {}", keys.join(", ")));
    }

    if let Some(system) = &options.system {
        data.system = Some(system.clone());
    }
    data
}

fn plain_data() -> Data {
    Data { template: Template::Plain, ..Data::default() }
}

/// A model that is ready to sample.
pub(super) struct Model {
    pub(super) text: ModelText,
    policy: Decoder,
}

impl Model {
    /// Samples the completion of a prompt, as the `draw`-th draw of a run with this seed would be.
    pub(super) fn stream(
        &self,
        prompt: &Prompt,
        draw: u64,
        options: &SampleOptions,
        on_token: &mut dyn FnMut(u32) -> ControlFlow<()>,
    ) -> Result<Streamed, ProgramError> {
        let context = self.text.context;
        let room = context.saturating_sub(prompt.tokens.len());
        let sampling = Sampling {
            temperature: options.temperature,
            top_k: options.top_k,
            top_p: options.top_p,
            max_completion_tokens: room.min(options.max_tokens as usize),
            stop: self.text.tokenizer.stop_tokens().to_vec(),
        };

        let asked = [(draw, prompt.clone())];
        let request = &GroupRequest::of_prompts(asked, 1, &sampling, Seed::run(options.seed))[0];
        let sample_on = match options.device.kind {
            Kind::Cpu => SampleOn::Host,
            _ => SampleOn::Device,
        };

        let longest = prompt.tokens.len() + sampling.max_completion_tokens;
        let policy = self.policy.clone().with_longest(longest);
        guarded(options.device, || {
            Ok(stream(&policy, request, context, sample_on, &mut |token, _| on_token(token))?)
        })
    }
}

/// Does `work`. However a GPU fails in it, the result is an error rather than a panic.
fn guarded<T>(
    device: Name,
    work: impl FnOnce() -> Result<T, ProgramError>,
) -> Result<T, ProgramError> {
    if device.kind == Kind::Cpu {
        return work();
    }

    guard(work).unwrap_or_else(|failure| {
        Err(Error::DeviceFailed {
            device,
            phase: "the completion".into(),
            problem: failure.to_string(),
            remedy: format!(
                "`firebrick doctor --device {device} --suite` tests whether it computes correctly"
            ),
            saved: "nothing was changed".into(),
        }
        .into())
    })
}

/// A printer of tokens, which writes their text as soon as it is certain.
pub(super) struct Printer<'a> {
    /// Turns tokens into text; `None` once the text has ended.
    streamer: Option<firebrick_data::Streamer<'a>>,
    text: String,
    /// True if the text is only kept, and not printed.
    quiet: bool,
    problem: Option<std::io::Error>,
}

impl<'a> Printer<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer, quiet: bool) -> Self {
        Printer { streamer: Some(tokenizer.streamer()), text: String::new(), quiet, problem: None }
    }

    pub(super) fn push(&mut self, token: u32) -> ControlFlow<()> {
        let piece = self.streamer.as_mut().map(|streamer| streamer.push(token));
        let piece = piece.unwrap_or_default();
        self.say(&piece)
    }

    fn say(&mut self, piece: &str) -> ControlFlow<()> {
        self.text += piece;
        if self.quiet || piece.is_empty() {
            return ControlFlow::Continue(());
        }

        let mut out = std::io::stdout();
        // A terminal would obey control characters in the model's text. A file gets the text as it is.
        let piece = if out.is_terminal() { &printable_lines(piece) } else { piece };
        match out.write_all(piece.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                // It is not an error if a reader such as head stops early.
                self.problem = Some(error).filter(|error| error.kind() != ErrorKind::BrokenPipe);
                self.quiet = true;
                ControlFlow::Break(())
            }
        }
    }

    /// Ends the text, on standard output with a line break. Returns the whole text.
    pub(super) fn finish(mut self) -> Result<String, ProgramError> {
        let rest = self.streamer.take().map(firebrick_data::Streamer::finish).unwrap_or_default();
        let _ = self.say(&rest);
        let text = self.text.clone();
        if !text.ends_with('\n') {
            let _ = self.say("\n");
        }

        match self.problem {
            Some(source) => Err(Error::File { path: STDOUT.into(), source }.into()),
            None => Ok(text),
        }
    }
}
