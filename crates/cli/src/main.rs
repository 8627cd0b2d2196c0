//! The `firebrick` program: reads arguments, prints errors, chooses the exit code.

use std::{
    io::{IsTerminal as _, Write as _},
    process::ExitCode,
};

use clap::Parser;
use firebrick_cli::{Message, ProgramError, commands::Arguments};
use miette::MietteHandlerOpts;

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
