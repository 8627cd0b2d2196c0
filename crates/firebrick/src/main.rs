//! The `firebrick` program: reads arguments, prints errors, chooses the exit code.

use std::process::ExitCode;

use clap::Parser;
use firebrick::{ProgramError, commands::Command};

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
  firebrick eval runs/quickstart/checkpoints/step-000100 --samples 8

Exit codes: 0 done, 1 failed, 2 wrong arguments or recipe, 130 interrupted after a clean save.";

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.command.run() {
        Ok(code) => ExitCode::from(code),
        Err(error) => fail(error),
    }
}

#[expect(clippy::print_stderr, reason = "the program's one place for errors")]
fn fail(error: ProgramError) -> ExitCode {
    let code = error.exit_code();
    eprintln!("{:?}", miette::Report::new(error));
    ExitCode::from(code)
}
