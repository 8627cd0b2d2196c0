//! Subcommands, one file each.

mod bench;
mod chat;
mod compare;
mod diagnose;
mod doctor;
mod eval;
mod export;
mod generate;
mod help;
mod init;
mod inspect;
mod metrics;
mod plan;
mod recipes;
mod replay;
mod report;
mod sample;
mod schema;
pub mod score;
mod sources;
mod train;
mod tryout;
mod watch;

use std::{
    io::{ErrorKind, Write as _},
    path::{Path, PathBuf},
};

use clap::{
    Parser, Subcommand,
    builder::{PathBufValueParser, TypedValueParser},
};
use firebrick::{
    Error,
    source::{Need, Sources},
};
use firebrick_core::printable_lines;
use firebrick_models::{is_adapter, is_gguf};
use firebrick_runs::{RUNS, RunFolder};
use serde::Serialize;

use crate::{
    error::{ProgramError, STDOUT},
    json::line,
    version::version,
};

/// Firebrick trains language models to reason, by reinforcement learning with verifiable rewards.
#[derive(Parser)]
#[command(name = "firebrick", version = version(), after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Arguments {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  firebrick train quickstart
  firebrick train quickstart --set train.steps=20 --set name=short
  firebrick train quickstart --resume
  firebrick compare ablation/0-grpo ablation/5-dapo --seeds 3
  firebrick init my-task --model Qwen/Qwen3-0.6B
  firebrick try my-task/recipe.toml
  firebrick plan quickstart
  firebrick doctor
  firebrick bench 1m
  firebrick eval quickstart --samples 8
  firebrick generate quickstart 47+85=
  firebrick chat Qwen/Qwen2.5-0.5B-Instruct
  firebrick inspect runs/quickstart/checkpoints/step-000200
  firebrick score answers.jsonl
  firebrick watch runs/quickstart --web
  firebrick report runs/quickstart
  firebrick diagnose runs/quickstart

Exit codes: 0 done, 1 failed, 2 wrong arguments or recipe, 3 the weights
or gradients are no longer finite, 130 interrupted.";

/// A command of the program.
#[derive(Subcommand)]
pub enum Command {
    /// Train the policy that a recipe describes
    Train(train::Train),
    /// Begin a task of your own: a folder with a recipe, data, and a judge with its test
    Init(init::Init),
    /// Try a recipe before its run: prompts as the model reads them, answers, scores, and how long a step takes
    Try(tryout::Try),
    /// Run recipes over several seeds, and print one table of their results
    Compare(compare::Compare),
    /// Measure a checkpoint on the held-out prompts: pass@1, avg@k, pass@k, maj@k
    Eval(eval::Eval),
    /// Say how much memory a recipe takes, part by part, and whether it fits
    Plan(plan::Plan),
    /// Print a model's completion of a prompt, as the model writes it
    Generate(generate::Generate),
    /// Talk with a model, or with a trained model and its base side by side
    Chat(chat::Chat),
    /// Show the contents of a model folder, and anything unusual about them
    Inspect(inspect::Inspect),
    /// Write a checkpoint for other programs to open; with --merge, add an adapter into its model
    Export(export::Export),
    /// List the devices of this machine and their abilities, and test on request that they compute correctly
    Doctor(doctor::Doctor),
    /// Measure how fast a device samples and trains, compared with a plain matrix product and a plain copy
    Bench(bench::Bench),
    /// Judge responses against gold answers, and say how often the verdict is the expected one
    Score(score::Score),
    /// List findings on what may be wrong with a run, and which setting to change
    Diagnose(diagnose::Diagnose),
    /// Show a run while it is running: in the terminal, or as a page in the browser
    Watch(watch::Watch),
    /// Write one HTML file about one or several runs: curves, recipes, and a browser of completions
    Report(report::Report),
    /// Print the metrics of a run as JSON lines, CSV or a table, also while it is running
    Metrics(metrics::Metrics),
    /// Compute the batch of a skipped update again, and show which completions are to blame
    Replay(replay::Replay),
    /// Print the JSON schema of recipes
    Schema,
    /// List the built-in recipes, print one, or make one from another program's configuration
    #[command(alias = "recipe")]
    Recipes(recipes::Recipes),
    /// Print a script with which a shell completes the program's commands
    Completions(help::Completions),
    /// Write the manual pages
    Man(help::Man),
}

impl Command {
    /// Runs the command and returns the exit code.
    ///
    /// # Errors
    /// Returns the error that ended the command.
    pub fn run(self) -> Result<u8, ProgramError> {
        match self {
            Command::Train(command) => command.run(),
            Command::Init(command) => command.run().map(|()| 0),
            Command::Try(command) => command.run().map(|()| 0),
            Command::Compare(command) => command.run(),
            Command::Eval(command) => command.run().map(|()| 0),
            Command::Plan(command) => command.run(),
            Command::Generate(command) => command.run(),
            Command::Chat(command) => command.run().map(|()| 0),
            Command::Inspect(command) => command.run(),
            Command::Export(command) => command.run().map(|()| 0),
            Command::Doctor(command) => command.run(),
            Command::Bench(command) => command.run(),
            Command::Score(command) => command.run(),
            Command::Diagnose(command) => command.run().map(|()| 0),
            Command::Watch(command) => command.run().map(|()| 0),
            Command::Report(command) => command.run().map(|()| 0),
            Command::Metrics(command) => command.run().map(|()| 0),
            Command::Replay(command) => command.run().map(|()| 0),
            Command::Schema => schema::run().map(|()| 0),
            Command::Recipes(command) => command.run().map(|()| 0),
            Command::Completions(command) => command.run().map(|()| 0),
            Command::Man(command) => command.run().map(|()| 0),
        }
    }
}

/// Returns the `--set` arguments that `--device` stands for.
fn device_settings(device: Option<firebrick_device::Name>) -> Vec<String> {
    let set = |name: firebrick_device::Name| {
        [format!("device.kind={}", name.kind), format!("device.index={}", name.index)]
    };
    device.into_iter().flat_map(set).collect()
}

/// Finds the model folder that a command is given: the newest checkpoint of a run, a local folder or file, or the model
/// of that name on the Hub.
fn model_folder(name: &Path, sources: &Sources) -> Result<PathBuf, ProgramError> {
    if let Some(checkpoint) = sources.checkpoint_of_run(name)? {
        return Ok(checkpoint);
    }

    // The folder of runs is here, so the name is not that of a model on the Hub, which also has two parts.
    if name.parent() == Some(Path::new(RUNS)) && Path::new(RUNS).is_dir() && !name.exists() {
        return Err(ProgramError::NotARun { path: name.to_owned() });
    }

    let refuse = |problem| Err(ProgramError::NotAModel { path: name.to_owned(), problem });
    match sources.model_folder("the model", name, None, Need::Model) {
        Ok(folder)
            if folder.join("config.json").is_file() || is_adapter(&folder) || is_gguf(&folder) =>
        {
            Ok(folder)
        }
        Ok(_) => refuse("it has no config.json"),
        Err(Error::NoModel { .. }) if name.exists() => refuse("it is a file, and no GGUF file"),
        Err(Error::NoModel { .. }) => refuse("there is no such folder, and no run of that name"),
        Err(other) => Err(other.into()),
    }
}

/// Writes a note to standard error. A closed standard error is not a reason to fail, because nobody reads it.
fn warn(text: String) {
    print_note(&format!("{text}\n"));
}

/// Writes lines to standard error, with their own line ends.
fn print_note(text: &str) {
    let _ = std::io::stderr().write_all(printable_lines(text).as_bytes());
}

/// Writes a line of JSON to standard output. The line is flushed immediately and in one piece, so a program that is
/// killed has printed all that it knew.
///
/// A measurement that nobody reads any more would only hold the device, so a closed pipe ends the process. The exit
/// code is the shell's for SIGPIPE.
fn print_event(event: &str, rest: impl Serialize) -> Result<(), ProgramError> {
    match written(&line(event, rest)) {
        Err(source) if source.kind() == ErrorKind::BrokenPipe => std::process::exit(141),
        done => done.map_err(|source| not_written(source).into()),
    }
}

/// Writes to standard output. It is not an error if a reader such as head stops early.
fn print(text: &str) -> Result<(), ProgramError> {
    match written(text) {
        Err(source) if source.kind() != ErrorKind::BrokenPipe => Err(not_written(source).into()),
        _ => Ok(()),
    }
}

fn written(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    // Any text may contain untrusted input. JSON stays the same JSON.
    out.write_all(printable_lines(text).as_bytes())?;
    out.flush()
}

fn not_written(source: std::io::Error) -> Error {
    Error::File { path: STDOUT.into(), source }
}

/// Reads a run's folder, or its name in the folder of runs. What is there under the given path comes first.
fn run() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(|given| {
        let named = Path::new(RUNS).join(&given);
        let is_name = given.components().count() == 1 && !given.exists();
        if is_name && RunFolder::is_run(&named) { named } else { given }
    })
}
