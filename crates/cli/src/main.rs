//! The `firebrick` program: reads arguments, prints errors, chooses the exit code.

use std::{
    io::{ErrorKind, IsTerminal as _, Write as _},
    process::ExitCode,
};

use clap::Parser;
use firebrick_cli::{Message, ProgramError, commands::Arguments, limits};
use firebrick_core::printable_lines;
use miette::MietteHandlerOpts;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return print_usage(&error),
    };

    firebrick_device::silence_panics();

    // A panic is a bug, or a limit of the system that a library did not expect. It is reported like any other error.
    let run = || limits::preflight().and_then(|()| arguments.command.run());
    match firebrick_device::guard(run) {
        Ok(Ok(code)) => ExitCode::from(code),
        Ok(Err(error)) => fail(error),
        Err(panic) => fail(ProgramError::Panic(panic)),
    }
}

/// Prints the help or the version that was asked for, or the error in the arguments.
fn print_usage(error: &clap::Error) -> ExitCode {
    let code = ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));

    // An argument may be untrusted, such as a file's name. If one has control characters, the text is printed without
    // colors.
    let is_plain = |argument: std::ffi::OsString| {
        let argument = argument.to_string_lossy().into_owned();
        printable_lines(&argument) == argument
    };

    let text = printable_lines(&error.render().to_string());
    let printed = if std::env::args_os().all(is_plain) {
        error.print()
    } else if error.use_stderr() {
        std::io::stderr().write_all(text.as_bytes())
    } else {
        std::io::stdout().write_all(text.as_bytes())
    };

    match printed.and_then(|()| std::io::stdout().flush()) {
        // It is not an error if a reader such as head stops early.
        Err(source) if source.kind() != ErrorKind::BrokenPipe && !error.use_stderr() => {
            fail(firebrick::Error::File { path: "standard output".into(), source }.into())
        }
        _ => code,
    }
}

fn fail(error: ProgramError) -> ExitCode {
    let code = error.exit_code();

    // The hook is set once and before any other report, so this can't fail.
    let _ =
        miette::set_hook(Box::new(|_| Box::new(style(std::io::stderr().is_terminal()).build())));

    // A closed standard error, as with `2>&1 | head`, must not turn an error into a panic.
    let _ = writeln!(std::io::stderr(), "{:?}", miette::Report::new(Message::from(&error)));
    ExitCode::from(code)
}

/// Sets how errors look. Every message is complete, so a list of causes would repeat it. Lines are wrapped on a
/// terminal only: a log is searched for paths, and a path should be in one piece.
fn style(terminal: bool) -> MietteHandlerOpts {
    MietteHandlerOpts::new().without_cause_chain().wrap_lines(terminal)
}
