//! Completions for a shell and pages for `man`, made from the program's own arguments.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man as Man1;

use super::Arguments;
use crate::{ProgramError, out::Out};

/// Arguments of `firebrick completions`.
#[derive(Args)]
#[command(after_help = WHERE)]
pub struct Completions {
    /// The shell to write the script for
    #[arg(value_enum)]
    shell: Shell,
}

const WHERE: &str = "\
Examples:
  firebrick completions bash > ~/.local/share/bash-completion/completions/firebrick
  firebrick completions zsh > ~/.zfunc/_firebrick     # ~/.zfunc has to be in fpath
  firebrick completions fish > ~/.config/fish/completions/firebrick.fish
  firebrick completions powershell >> $PROFILE";

/// Arguments of `firebrick man`.
#[derive(Args)]
#[command(after_help = "Example:\n  firebrick man ~/.local/share/man/man1")]
pub struct Man {
    /// The folder to write the pages into: firebrick.1, and one page for each command
    folder: PathBuf,
}

impl Completions {
    pub(super) fn run(self) -> Result<(), ProgramError> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Arguments::command(), "firebrick", &mut script);
        super::print(&String::from_utf8_lossy(&script))
    }
}

impl Man {
    pub(super) fn run(self) -> Result<(), ProgramError> {
        let Man { folder } = self;
        fs::create_dir_all(&folder).map_err(ProgramError::file(&folder))?;
        // Building gives subcommands their full names, which become the names of the pages.
        let mut program = Arguments::command().disable_help_subcommand(true);
        program.build();
        write_pages(program, &folder)
    }
}

/// Writes the page of a command and the pages of its subcommands.
fn write_pages(command: clap::Command, folder: &Path) -> Result<(), ProgramError> {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        write_pages(inner.clone(), folder)?;
    }

    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let after_help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let path = folder.join(format!("{name}.1"));

    // The version that `--version` prints has the commit and the features, and is too long for a footer.
    let page = Man1::new(
        command.version(env!("CARGO_PKG_VERSION")).after_help(clap::builder::Resettable::Reset),
    );

    let mut text = Vec::new();
    page.render(&mut text).map_err(ProgramError::file(&path))?;
    text.extend(notes(&after_help).bytes());
    Out::at_path(&path)?.write(&text)
}

/// Makes a section of the help text that follows the options, and keeps its lines.
fn notes(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }

    let line = |line: &str| {
        let escaped = line.replace('\\', r"\e").replace('-', r"\-");
        // A line that begins with a dot or an apostrophe would be a request to `man`.
        let guard = if escaped.starts_with(['.', '\'']) { r"\&" } else { "" };
        format!("{guard}{escaped}\n")
    };

    let lines: String = text.lines().map(line).collect();
    format!(".SH NOTES\n.nf\n{lines}.fi\n")
}
