//! `firebrick init`: writes the files of a new task, which are in `commands/init/`.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use clap::Args;
use firebrick_runs::shell_word;

use crate::ProgramError;

/// Arguments of `firebrick init`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Init {
    /// The folder to make; if it exists already, it has to be empty
    folder: PathBuf,
}

const EXAMPLES: &str = "\
The folder gets a recipe, twenty rows of data, a judge as a program with its test, and a
README. The judge is in Python; a judge may be any program.

Examples:
  firebrick init my-task
  cd my-task
  firebrick train recipe.toml";

const FILES: [(&str, &str); 5] = [
    ("recipe.toml", include_str!("init/recipe.toml")),
    ("rows.jsonl", include_str!("init/rows.jsonl")),
    ("judge.py", include_str!("init/judge.py")),
    ("test_judge.py", include_str!("init/test_judge.py")),
    ("README.md", include_str!("init/README.md")),
];

impl Init {
    pub(super) fn run(self) -> Result<(), ProgramError> {
        let Init { folder } = self;
        fs::create_dir_all(&folder).map_err(ProgramError::file(&folder))?;
        // Existing files may be somebody's work.
        if fs::read_dir(&folder).map_err(ProgramError::file(&folder))?.next().is_some() {
            return Err(ProgramError::NotEmpty { folder });
        }

        for (name, text) in FILES {
            let path = folder.join(name);
            let text = match name {
                "recipe.toml" => named(text, &folder),
                _ => text.to_owned(),
            };
            write(&path, &here(&text)).map_err(ProgramError::file(&path))?;
        }

        // `cd` would take a name that begins with a dash for an option.
        let dashed = folder.to_string_lossy().starts_with('-');
        let path = if dashed { Path::new(".").join(&folder) } else { folder.clone() };
        let path = path.display().to_string();

        let names = FILES.map(|(name, _)| name).join(", ");
        super::print(&format!(
            "{} has {names}\n\nnext:\n  cd {}\n  firebrick train recipe.toml\n",
            folder.display(),
            shell_word(&path)
        ))
    }
}

/// Names the recipe's run after the folder, if a run can have that name, so that two tasks trained from the same folder
/// have separate runs.
fn named(recipe: &str, folder: &Path) -> String {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match firebrick_core::check_run_name(name) {
        Ok(()) => recipe.replacen("seed = ", &format!("name = \"{name}\"\nseed = "), 1),
        Err(_) => recipe.to_owned(),
    }
}

/// Replaces `python3` by the name that Python has on this system.
fn here(text: &str) -> String {
    if cfg!(windows) { text.replace("python3", "python") } else { text.to_owned() }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}
