//! What a shell and `man` know of the program, made from its own arguments.

use std::{fs, path::PathBuf};

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::Arguments;
use crate::ProgramError;

/// The arguments of `firebrick completions`.
#[derive(Args)]
#[command(after_help = WHERE)]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

const WHERE: &str = "\
Examples:
  firebrick completions bash > ~/.local/share/bash-completion/completions/firebrick
  firebrick completions zsh > ~/.zfunc/_firebrick     # ~/.zfunc has to be in fpath
  firebrick completions fish > ~/.config/fish/completions/firebrick.fish
  firebrick completions powershell >> $PROFILE";

/// The arguments of `firebrick man`.
#[derive(Args)]
#[command(after_help = "Example:\n  firebrick man ~/.local/share/man/man1")]
pub struct Man {
    /// The folder that gets the pages, firebrick.1 and one for each command
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
        clap_mangen::generate_to(Arguments::command(), &folder).map_err(ProgramError::file(&folder))
    }
}
