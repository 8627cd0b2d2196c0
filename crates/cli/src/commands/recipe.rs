use std::{
    fs::File,
    io::{Read as _, Write as _},
    path::PathBuf,
};

use clap::{Args, Subcommand, ValueEnum};
use firebrick::Error;
use firebrick_import::{Origin, import};

use crate::ProgramError;

/// The arguments of `firebrick recipe`.
#[derive(Args)]
pub struct Recipe {
    #[command(subcommand)]
    action: Action,
}

/// What to do with recipes.
#[derive(Subcommand)]
enum Action {
    /// Print the recipe that a configuration of verl or SkyRL amounts to
    Import(Import),
}

/// The arguments of `firebrick recipe import`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
struct Import {
    /// A YAML file; a shell script (.sh) that sets keys as hydra takes them; or lines of key=value
    config: PathBuf,
    /// Further values, as the other program takes them on its command line
    #[arg(value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Whose configuration it is; by default it shows in its keys
    #[arg(long, value_enum)]
    from: Option<Program>,
}

/// A program whose configurations can be translated.
#[derive(Clone, Copy, ValueEnum)]
enum Program {
    /// verl
    Verl,
    /// SkyRL
    Skyrl,
}

const EXAMPLES: &str = "\
The recipe goes to standard output. What is not the same here, what has no
counterpart and what is not known is listed on standard error, and at the end of
the recipe. A script is read and not run: of variables only those count that it
sets itself.

Examples:
  firebrick recipe import run_dapo_qwen2.5_32b.sh > dapo-32b.toml
  firebrick recipe import skyrl.yaml trainer.train_batch_size=64 > my.toml";

/// A script or a configuration has some thousand bytes.
const MOST_BYTES: u64 = 1 << 20;

impl Recipe {
    pub(super) fn run(self) -> Result<(), ProgramError> {
        let Action::Import(Import { config, set, from }) = self.action;
        let unread = |source| Error::File { path: config.clone(), source };
        let mut text = String::new();
        let file = File::open(&config).map_err(unread)?;
        file.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(unread)?;
        if text.len() as u64 > MOST_BYTES {
            return Err(unread(std::io::Error::other("it is larger than 1 MiB")).into());
        }
        let origin = from.map(|from| match from {
            Program::Verl => Origin::Verl,
            Program::Skyrl => Origin::Skyrl,
        });
        let imported = import(&config, &text, &set, origin)?;
        // What a closed terminal can't show is no reason to keep the recipe back.
        let _ = std::io::stderr().write_all(imported.remarks.as_bytes());
        super::print(&imported.text)
    }
}
