//! `firebrick chat`: a conversation with a model, or with two models that answer the same questions.

use std::{
    io::{self, BufRead, IsTerminal as _, Read as _, Write as _},
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use clap::Args;
use firebrick::{
    Error,
    model::Folders,
    source::{Need, Sources, run_of_checkpoint},
};
use firebrick_core::{FinishReason, Prompt, text_from};
use firebrick_data::Question;
use serde_json::{Value, json};

use super::sample::{Model, ModelText, Printer, SampleOptions};
use crate::ProgramError;

/// Arguments of `firebrick chat`.
#[derive(Args)]
#[command(allow_negative_numbers = true, after_help = NOTES)]
pub struct Chat {
    /// A run, by its name or folder: its newest checkpoint; or a checkpoint, a model folder, a GGUF file, or the name
    /// of a model on the Hugging Face Hub
    model: PathBuf,
    /// Answer each question with this model first, with the same seed; `base` is the model that the run began with
    #[arg(long, value_name = "MODEL")]
    beside: Option<PathBuf>,
    #[command(flatten)]
    options: SampleOptions,
}

const NOTES: &str = "\
Each line is a question, and the model reads the conversation before it. A run's
model is asked as in the run, by data.system, data.prompt and data.template_options
of its recipe. With --beside each of the two models has a conversation of its own.
The line /new begins a new conversation.

Ctrl-C ends an answer, and where no answer is being written the program. So does
Ctrl-D.

Examples:
  firebrick chat my-task
  firebrick chat my-task --beside base --temperature 0
  firebrick chat Qwen/Qwen3-0.6B --system 'Be brief.'
  firebrick chat runs/my-task/checkpoints/step-000200 < questions.txt

Exit codes: 0 done, 1 failed, 2 wrong arguments, 130 ended by Ctrl-C.";

/// Value of `--beside` that stands for the model that the run began with.
const BASE: &str = "base";

/// Line that begins a new conversation.
const NEW: &str = "/new";

impl Chat {
    pub(super) fn run(self) -> Result<(), ProgramError> {
        let mut speakers = self.speakers()?;
        let answering = until_interrupted();
        let mut lines = Lines::new();

        // The number of a question decides its seed, so that both models draw alike.
        let mut draw = 0;
        while let Some(line) = lines.next()? {
            if line == NEW {
                speakers.iter_mut().for_each(|speaker| speaker.messages.clear());
                continue;
            }

            // Both are asked, or none is.
            let asked: Result<Vec<_>, _> =
                speakers.iter().map(|speaker| speaker.prompt(&line)).collect();
            let prompts = match asked {
                Ok(prompts) => prompts,
                // Whoever types can go on with another line; a file of questions can't.
                Err(problem) if lines.are_typed => {
                    let help = problem.help().unwrap_or_default();
                    super::warn(format!("{problem}: {help}\n"));
                    continue;
                }
                Err(problem) => return Err(problem),
            };

            for (speaker, prompt) in speakers.iter_mut().zip(&prompts) {
                let answer = speaker.answer(&line, prompt, draw, &self.options, &answering)?;
                if answer.is_break() {
                    return Ok(());
                }
            }
            draw += 1;
        }
        Ok(())
    }

    /// Loads the model, and the one beside it first.
    fn speakers(&self) -> Result<Vec<Speaker>, ProgramError> {
        let sources = super::sources::alone();
        let folder = super::model_folder(&self.model, &sources)?;
        let mut models = Vec::new();

        let run = run_of_checkpoint(&folder);
        if let Some(beside) = &self.beside {
            models.push(if beside == Path::new(BASE) {
                // Both are asked in the same form.
                let folders = Folders::before_training(&folder, &sources)?;
                (Some(BASE.to_owned()), folders, run.clone())
            } else {
                let folder = super::model_folder(beside, &sources)?;
                let label = beside.display().to_string();
                (Some(label), find(&folder, &sources)?, run_of_checkpoint(&folder))
            });
        }
        let label = self.beside.as_ref().map(|_| self.model.display().to_string());
        models.push((label, find(&folder, &sources)?, run));

        // Whatever is wrong with either model is said before the first of them is loaded.
        let texts = models
            .into_iter()
            .map(|(label, folders, run)| {
                let text = ModelText::read(folders, run.as_deref(), &self.options, false)?;
                Ok((label, text))
            })
            .collect::<Result<Vec<_>, ProgramError>>()?;
        if texts.iter().any(|(_, text)| text.format.chat.is_none()) {
            super::warn(
                "a model without a chat template reads each question by itself, and not the conversation before it"
                    .into(),
            );
        }

        let load = |(label, text): (Option<String>, ModelText)| {
            Ok(Speaker { label, model: text.load(&self.options)?, messages: Vec::new() })
        };
        texts.into_iter().map(load).collect()
    }
}

fn find(folder: &Path, sources: &Sources) -> Result<Folders, Error> {
    Folders::find(folder, sources, Need::Model)
}

/// A model in a conversation.
struct Speaker {
    /// Name above its answers, if there are two.
    label: Option<String>,
    model: Model,
    /// The conversation so far, in the form of a chat template.
    messages: Vec<Value>,
}

impl Speaker {
    /// Makes the prompt of a question, the conversation before it included.
    fn prompt(&self, question: &str) -> Result<Prompt, ProgramError> {
        let text = &self.model.text;
        if text.format.chat.is_none() {
            return text.prompt(&Question::Text(question.to_owned()));
        }

        let mut messages = self.messages.clone();
        messages.push(self.asks(question));
        text.prompt(&Question::Messages(messages.into())).map_err(|error| match error {
            ProgramError::PromptLength { tokens, context } if !self.messages.is_empty() => {
                ProgramError::ConversationLength { tokens, context }
            }
            other => other,
        })
    }

    /// Makes the message of a question, in the pattern of the model's run.
    fn asks(&self, question: &str) -> Value {
        message("user", &self.model.text.format.text.replace("{prompt}", question))
    }

    /// Prints the answer while it is sampled, and keeps it. Breaks if nobody reads answers any more.
    fn answer(
        &mut self,
        question: &str,
        prompt: &Prompt,
        draw: u64,
        options: &SampleOptions,
        answering: &AtomicBool,
    ) -> Result<ControlFlow<()>, ProgramError> {
        if let Some(label) = &self.label {
            super::print(&format!("[{label}]\n"))?;
        }

        answering.store(true, Ordering::Relaxed);
        let mut printer = Printer::new(&self.model.text.tokenizer, false);
        let mut is_read = true;
        let streamed = self.model.stream(prompt, draw, options, &mut |token| {
            if !answering.load(Ordering::Relaxed) {
                return ControlFlow::Break(());
            }
            let said = printer.push(token);
            is_read = said.is_continue();
            said
        })?;
        answering.store(false, Ordering::Relaxed);

        // An answer that Ctrl-C ended is part of the conversation as far as it was read.
        let answer = printer.finish()?;
        self.messages.push(self.asks(question));
        self.messages.push(message("assistant", &answer));
        if !is_read {
            return Ok(ControlFlow::Break(()));
        }

        super::print("\n")?;
        if streamed.finish == Some(FinishReason::Length) {
            let full = prompt.tokens.len() + streamed.tokens.len() >= self.model.text.context;
            super::warn(if full {
                format!(
                    "(cut off, because the model's context is full: {NEW} begins a new conversation)\n"
                )
            } else {
                "(cut off: --max-tokens sets how long an answer may be)\n".into()
            });
        }
        Ok(ControlFlow::Continue(()))
    }
}

fn message(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

/// Longest line that is read, in bytes: far more than any context takes.
const LINE: u64 = 16 << 20;

/// Lines of standard input.
struct Lines {
    input: io::StdinLock<'static>,
    /// True if a person types them, who is then asked for each.
    are_typed: bool,
}

impl Lines {
    fn new() -> Self {
        let input = io::stdin();
        Lines { are_typed: input.is_terminal(), input: input.lock() }
    }

    /// Returns the next line that is not empty, without its end; `None` at the end of the input.
    fn next(&mut self) -> Result<Option<String>, ProgramError> {
        loop {
            self.ask(">>> ");
            let mut bytes = Vec::new();
            let read = (&mut self.input).take(LINE).read_until(b'\n', &mut bytes);
            let text = read.and_then(|length| match length as u64 {
                LINE => {
                    Err(io::Error::other(format!("a line of it is longer than {} MiB", LINE >> 20)))
                }
                _ => text_from(&bytes),
            });
            let text = text.map_err(ProgramError::file(Path::new("standard input")))?;

            if bytes.is_empty() {
                // The next prompt of the shell begins on a line of its own.
                self.ask("\n");
                return Ok(None);
            }
            let line = text.trim();
            if !line.is_empty() {
                return Ok(Some(line.to_owned()));
            }
        }
    }

    fn ask(&self, text: &str) {
        if self.are_typed {
            // Standard output is for the answers. A closed standard error is not a reason to fail.
            let _ = io::stderr().write_all(text.as_bytes());
        }
    }
}

/// Returns a flag that is to be set while an answer is written. Ctrl-C clears it, or, if it is not set, ends the
/// program.
fn until_interrupted() -> Arc<AtomicBool> {
    let answering = Arc::new(AtomicBool::new(false));
    let flag = answering.clone();
    // Without a handler Ctrl-C ends the program immediately, which loses nothing.
    let _ = ctrlc::set_handler(move || {
        if !flag.swap(false, Ordering::Relaxed) {
            let _ = io::stderr().write_all(b"\n");
            std::process::exit(130);
        }
    });
    answering
}
