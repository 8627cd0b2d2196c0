//! The `firebrick` program: reads arguments, prints errors, chooses the exit code.

use std::{
    io::{IsTerminal as _, Write as _},
    process::ExitCode,
};

use clap::Parser;
use firebrick_cli::{Message, ProgramError, commands::Command};
use miette::MietteHandlerOpts;

/// Firebrick trains language models to reason, by reinforcement learning with verifiable rewards.
#[derive(Parser)]
#[command(version, after_help = EXAMPLES, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  firebrick train recipes/quickstart.toml
  firebrick train recipes/quickstart.toml --set train.steps=20 --set name=short
  firebrick train recipes/quickstart.toml --resume
  firebrick compare recipes/ablation/*.toml --seeds 3
  firebrick plan recipes/quickstart.toml
  firebrick doctor
  firebrick eval runs/quickstart/checkpoints/step-000200 --samples 8
  firebrick generate runs/quickstart/checkpoints/step-000200 --prompt 47+85=
  firebrick inspect runs/quickstart/checkpoints/step-000200
  firebrick score answers.jsonl

Exit codes: 0 done, 1 failed, 2 wrong arguments or recipe, 130 interrupted
after a clean save.";

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    firebrick_device::keep_panics_quiet();
    match arguments.command.run() {
        Ok(code) => ExitCode::from(code),
        Err(error) => fail(error),
    }
}

fn fail(error: ProgramError) -> ExitCode {
    let code = error.exit_code();
    // Set once and before any other report, so it can't fail.
    let _ = miette::set_hook(Box::new(|_| Box::new(look(std::io::stderr().is_terminal()).build())));
    // A closed standard error, as of `2>&1 | head`, must not turn an error into a panic.
    let _ = writeln!(std::io::stderr(), "{:?}", miette::Report::new(Message::from(&error)));
    ExitCode::from(code)
}

/// How errors look. Every message is complete, so causes would say it twice. Only a terminal has a
/// width to wrap lines at: a log is searched for paths, and a path should be in one piece.
fn look(terminal: bool) -> MietteHandlerOpts {
    MietteHandlerOpts::new().without_cause_chain().wrap_lines(terminal)
}
