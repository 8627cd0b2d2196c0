//! `firebrick generate`: prints a model's completion of a prompt while it is sampled.

use std::{
    io::{ErrorKind, IsTerminal as _, Read as _, Write as _},
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use clap::{Args, ValueEnum};
use firebrick::{
    Error, Stage,
    build::{self, known_options},
    model::{self, Folders},
    plan::{ChunkPlan, Memory},
    recipe::{BaseType, ComputeType},
    source::Need,
};
use firebrick_core::{FinishReason, Prompt, Seed, counted, printable_lines, text_from};
use firebrick_data::{ChatTemplate, PromptFormat, Question, Tokenizer, parse_json};
use firebrick_device::{Kind, Name, Precision, guard};
use firebrick_models::Decoder;
use firebrick_rollout::{GroupRequest, SampleOn, Sampling, Streamed, stream};
use serde_json::{Map, Value, json};

use crate::{ProgramError, bars::Bars, error::STDOUT};

/// Arguments of `firebrick generate`.
#[derive(Args)]
#[command(allow_negative_numbers = true, after_help = EXAMPLES)]
pub struct Generate {
    /// A model folder, such as runs/quickstart/checkpoints/step-000200
    checkpoint: PathBuf,
    /// The text to complete, or the question to answer; - reads it from standard input
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: String,
    /// The system message of the chat template
    #[arg(long, value_name = "TEXT", conflicts_with = "plain")]
    system: Option<String>,
    /// Pass the prompt to the model unchanged, without the model's chat template
    #[arg(long)]
    plain: bool,
    /// Set a variable of the chat template, as in enable_thinking=false; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = option, conflicts_with = "plain")]
    option: Vec<(String, Value)>,
    /// The number of tokens after which the completion is cut off; fewer if the model's context has less room
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
    /// Print one JSON object at the end instead of the text as it comes
    #[arg(long)]
    json: bool,
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
enum Format {
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

const EXAMPLES: &str = "\
Only these options decide the sampling: temperature, top_p and top_k of the
model's generation_config.json are not applied (firebrick inspect shows them).
A completion ends at the tokenizer's end token, and at the end tokens of
generation_config.json, or of config.json if that file has none.

Examples:
  firebrick generate runs/quickstart/checkpoints/step-000200 --prompt 47+85=
  firebrick generate qwen --prompt 'Why is the sky blue?' --system 'Be brief.'
  firebrick generate qwen3 --prompt '17 * 23?' --option enable_thinking=false
  echo 'Once upon a time' | firebrick generate model --plain --prompt -

Exit codes: 0 done, 1 failed, 2 wrong arguments, 130 interrupted.";

impl Generate {
    /// Returns exit code 130 if Ctrl-C ended the completion.
    pub(super) fn run(self) -> Result<u8, ProgramError> {
        let sources = super::sources::alone();
        let folder = super::model_folder(&self.checkpoint, &sources)?;
        let folders = Folders::find(&folder, &sources, Need::Model)?;
        let config = folders.sizes()?;
        let tokenizer = Tokenizer::from_folder(&folders.text)?;
        model::check_vocabulary(&tokenizer, &config, &folders.text)?;

        let question = Question::Text(self.question()?);
        for what in tokenizer.switched_off() {
            super::warn(format!("the tokenizer asks for {what}: it is switched off"));
        }

        let context = config.max_position_embeddings;
        let format = self.format(&folders.text)?;
        let (text, tokens) = format.encode_up_to(&question, &tokenizer, context)?;
        // Prompt and completion share the context.
        let room = context.saturating_sub(tokens.len());
        if tokens.is_empty() || room == 0 {
            return Err(ProgramError::PromptLength { tokens: tokens.len(), context });
        }

        let sampling = Sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            max_completion_tokens: room.min(self.max_tokens as usize),
            stop: tokenizer.stop_tokens().to_vec(),
        };

        let prompt = Prompt { text, tokens, ..Prompt::default() };
        let interrupted = interrupted();
        let mut printer = Printer::new(&tokenizer, self.json);
        let began = Instant::now();
        let streamed = self.guarded(|| {
            let device = firebrick_device::open(self.device, Precision::F32)?;
            let compute = model::compute(self.dtype.into(), self.device, &device)?;
            let base = model::base_of(self.base.into(), compute);
            let loading = Bars::on_stderr().bar(Stage::Load.name(), 0);
            let policy = folders.load(base, &device, super::warn)?;
            drop(loading);

            let memory = Memory::of_device(self.device).bytes;
            let chunk_sizes =
                ChunkPlan::for_device(self.device, memory, policy.config().intermediate_size)
                    .chunk_sizes();

            let longest = prompt.tokens.len() + sampling.max_completion_tokens;
            let policy =
                policy.with_compute(compute).with_chunk_sizes(chunk_sizes).with_longest(longest);
            self.stream(&policy, &prompt, &sampling, context, &mut |token| {
                if interrupted.load(Ordering::Relaxed) {
                    ControlFlow::Break(())
                } else {
                    printer.push(token)
                }
            })
        })?;

        let seconds = began.elapsed().as_secs_f64();
        let (text, problem) = printer.finish();
        if let Some(source) = problem {
            return Err(Error::File { path: STDOUT.into(), source }.into());
        }

        if self.json {
            super::print(&format!("{}\n", as_json(&prompt, &text, &streamed)))?;
        }

        let ended_by = match streamed.finish {
            Some(FinishReason::Stop) => "a stop token",
            Some(FinishReason::Length) => "the limit of tokens",
            Some(other) => other.name(),
            None => "Ctrl-C or a closed pipe",
        };
        let count = streamed.tokens.len();

        // A closed standard error is not a reason to fail.
        let _ = writeln!(
            std::io::stderr(),
            "{}, ended by {ended_by}; {:.1} tokens/s, loading included",
            counted(count as u64, "token"),
            count as f64 / seconds
        );
        Ok(if interrupted.load(Ordering::Relaxed) { 130 } else { 0 })
    }

    fn question(&self) -> Result<String, ProgramError> {
        if self.prompt != "-" {
            return Ok(self.prompt.clone());
        }
        let mut bytes = Vec::new();

        // The limit is far more than any context, and ends a stream that has no end.
        let read = std::io::stdin().take(64 << 20).read_to_end(&mut bytes);
        match read.and_then(|_| text_from(&bytes)) {
            // `echo` writes a line break that is not part of the prompt.
            Ok(text) => {
                let line = text.strip_suffix('\n').unwrap_or(&text);
                Ok(line.strip_suffix('\r').unwrap_or(line).to_owned())
            }
            Err(source) => Err(Error::File { path: "standard input".into(), source }.into()),
        }
    }

    fn format(&self, folder: &Path) -> Result<PromptFormat, ProgramError> {
        let chat = if self.plain { None } else { ChatTemplate::from_folder(folder)? };
        let kwargs = self.option.iter().cloned().collect::<Map<String, Value>>();
        known_options("--option", &kwargs, chat.as_ref())?;

        Ok(PromptFormat {
            system: self.system.clone(),
            chat: chat.map(|chat| chat.with_date(build::now())),
            kwargs,
            ..PromptFormat::default()
        })
    }

    fn stream(
        &self,
        policy: &Decoder,
        prompt: &Prompt,
        sampling: &Sampling,
        context: usize,
        on_token: &mut dyn FnMut(u32) -> ControlFlow<()>,
    ) -> Result<Streamed, ProgramError> {
        // The completion is sampled like the first draw of a run with this seed.
        let asked = [(0, prompt.clone())];
        let request = &GroupRequest::of_prompts(asked, 1, sampling, Seed::run(self.seed))[0];

        let sample_on = match self.device.kind {
            Kind::Cpu => SampleOn::Host,
            _ => SampleOn::Device,
        };
        Ok(stream(
            policy,
            &prompt.tokens,
            sampling,
            request.completion_seed(0),
            context,
            sample_on,
            &mut |token, _| on_token(token),
        )?)
    }

    /// Does `work`. However a GPU fails in it, the result is an error rather than a panic.
    fn guarded<T>(
        &self,
        work: impl FnOnce() -> Result<T, ProgramError>,
    ) -> Result<T, ProgramError> {
        if self.device.kind == Kind::Cpu {
            return work();
        }

        guard(work).unwrap_or_else(|failure| {
            Err(Error::DeviceFailed {
                device: self.device,
                phase: "the completion".into(),
                problem: failure.to_string(),
                remedy: format!(
                    "`firebrick doctor --device {} --suite` tests whether it computes correctly",
                    self.device
                ),
                saved: "nothing was changed".into(),
            }
            .into())
        })
    }
}

/// A printer of tokens, which writes their text as soon as it is certain.
struct Printer<'a> {
    /// Turns tokens into text; `None` once the text has ended.
    streamer: Option<firebrick_data::Streamer<'a>>,
    text: String,
    /// True if the text is only kept, and not printed.
    quiet: bool,
    problem: Option<std::io::Error>,
}

impl<'a> Printer<'a> {
    fn new(tokenizer: &'a Tokenizer, quiet: bool) -> Self {
        Printer { streamer: Some(tokenizer.streamer()), text: String::new(), quiet, problem: None }
    }

    fn push(&mut self, token: u32) -> ControlFlow<()> {
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

    /// Ends the text, on standard output with a line break. Returns the whole text, and the error of standard
    /// output if there was one.
    fn finish(mut self) -> (String, Option<std::io::Error>) {
        let rest = self.streamer.take().map(firebrick_data::Streamer::finish).unwrap_or_default();
        let _ = self.say(&rest);
        let text = self.text.clone();
        if !text.ends_with('\n') {
            let _ = self.say("\n");
        }
        (text, self.problem)
    }
}

fn as_json(prompt: &Prompt, text: &str, streamed: &Streamed) -> Value {
    let sum: f64 = streamed.logprobs.iter().map(|&logprob| f64::from(logprob)).sum();
    json!({
        "prompt": prompt.text,
        "prompt_tokens": prompt.tokens.len(),
        "text": text,
        "tokens": streamed.tokens,
        "logprob_sum": sum,
        "finish": streamed.finish,
    })
}

/// Returns a flag that the first Ctrl-C sets. The second Ctrl-C ends the program immediately.
fn interrupted() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let seen = flag.clone();
    // Without a handler Ctrl-C ends the program immediately, which loses nothing.
    let _ = ctrlc::set_handler(move || {
        if seen.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    });
    flag
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
