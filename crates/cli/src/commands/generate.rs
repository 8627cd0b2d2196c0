//! `firebrick generate`: prints a model's completion of a prompt while it is sampled.

use std::{
    io::{Read as _, Write as _},
    ops::ControlFlow,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use clap::Args;
use firebrick::{
    Error,
    model::Folders,
    source::{Need, run_of_checkpoint},
};
use firebrick_core::{FinishReason, Prompt, counted, text_from};
use firebrick_data::Question;
use firebrick_rollout::Streamed;
use serde_json::{Value, json};

use super::sample::{ModelText, Printer, SampleOptions};
use crate::ProgramError;

/// Arguments of `firebrick generate`.
#[derive(Args)]
#[command(allow_negative_numbers = true, after_help = EXAMPLES)]
pub struct Generate {
    /// A run, by its name or folder: its newest checkpoint; or a checkpoint, a model folder, a GGUF file, or the name
    /// of a model on the Hugging Face Hub
    model: PathBuf,
    /// The question to answer, or the text to complete; - reads it from standard input. Write -- before a question
    /// that begins with a dash
    question: String,
    /// Pass the question to the model unchanged, without a chat template and the pattern of the model's run
    #[arg(long, conflicts_with_all = ["system", "option"])]
    plain: bool,
    #[command(flatten)]
    options: SampleOptions,
    /// Print one JSON object at the end instead of the text as it comes
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
A question to a run's checkpoint is put as in the run's prompts: by data.system,
data.prompt and data.template_options of its recipe.

Only these options decide the sampling: temperature, top_p and top_k of the
model's generation_config.json are not applied (firebrick inspect shows them).
A completion ends at the tokenizer's end token, and at the end tokens of
generation_config.json, or of config.json if that file has none.

Examples:
  firebrick generate quickstart 47+85=
  firebrick generate runs/quickstart/checkpoints/step-000200 47+85=
  firebrick generate qwen 'Why is the sky blue?' --system 'Be brief.'
  firebrick generate Qwen/Qwen3-0.6B '17 * 23?' --option enable_thinking=false
  echo 'Once upon a time' | firebrick generate model.gguf --plain -

Exit codes: 0 done, 1 failed, 2 wrong arguments, 130 interrupted.";

impl Generate {
    /// Returns exit code 130 if Ctrl-C ended the completion.
    pub(super) fn run(self) -> Result<u8, ProgramError> {
        let sources = super::sources::alone();
        let folder = super::model_folder(&self.model, &sources)?;
        let run = run_of_checkpoint(&folder);
        let folders = Folders::find(&folder, &sources, Need::Model)?;
        let text = ModelText::read(folders, run.as_deref(), &self.options, self.plain)?;
        let prompt = text.prompt(&Question::Text(self.question()?))?;

        let interrupted = interrupted();
        let began = Instant::now();
        let model = text.load(&self.options)?;
        let mut printer = Printer::new(&model.text.tokenizer, self.json);
        let streamed = model.stream(&prompt, 0, &self.options, &mut |token| {
            if interrupted.load(Ordering::Relaxed) {
                ControlFlow::Break(())
            } else {
                printer.push(token)
            }
        })?;

        let seconds = began.elapsed().as_secs_f64();
        let text = printer.finish()?;
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
        if self.question != "-" {
            return Ok(self.question.clone());
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
