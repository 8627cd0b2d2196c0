//! `firebrick init`: writes the files of a new task, which are in `commands/init/`.

mod model;

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use clap::Args;
use firebrick_device::Name;
use firebrick_runs::shell_word;

use self::model::{ModelRecipe, Written};
use crate::ProgramError;

/// Arguments of `firebrick init`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Init {
    /// The folder to make; if it exists already, it has to be empty
    folder: PathBuf,
    /// The model that learns: a folder, a GGUF file, or a name on the Hugging Face Hub; by default a tiny new model
    #[arg(long, value_name = "MODEL")]
    model: Option<PathBuf>,
    /// The device that the recipe is for, such as cpu or vulkan:0
    #[arg(long, value_name = "KIND:INDEX", requires = "model", default_value = "cpu")]
    device: Name,
    /// The memory of the device, such as 16GB; by default the device is asked
    #[arg(long, value_name = "SIZE", requires = "model", value_parser = super::plan::bytes)]
    memory: Option<u64>,
    /// Write the judge in Rust, as a crate, instead of Python
    #[arg(long, requires = "model")]
    rust: bool,
}

const EXAMPLES: &str = "\
The folder gets a recipe, twenty rows of data or a few more, and a judge with its
test: a function that gives each completion a score from 0 to 1. Replace the rows
and the function by your own. With --model, the recipe's numbers fit the model, the
device and its memory.

Examples:
  firebrick init my-task --model SmolLM2-135M-Instruct.Q4_1.gguf
  firebrick init my-task --model Qwen/Qwen3-0.6B --device cuda:0 --memory 16GB
  cd my-task
  firebrick try
  firebrick train recipe.toml";

/// A file of a task, by its name.
type File = (&'static str, String);

impl Init {
    pub(super) fn run(self) -> Result<(), ProgramError> {
        let Init { folder, model, device, memory, rust } = self;

        // The model is looked at before anything is written.
        let (files, decided) = match &model {
            None => (new_task(), String::new()),
            Some(model) => model_task(&ModelRecipe { model, device, memory, rust })?,
        };

        fs::create_dir_all(&folder).map_err(ProgramError::file(&folder))?;
        // Existing files may be somebody's work.
        if fs::read_dir(&folder).map_err(ProgramError::file(&folder))?.next().is_some() {
            return Err(ProgramError::NotEmpty { folder });
        }

        for (name, text) in &files {
            let path = folder.join(name);
            let text = if *name == "recipe.toml" { &named(text, &folder) } else { text };
            write(&path, text).map_err(ProgramError::file(&path))?;
        }

        // `cd` would take a name that begins with a dash for an option.
        let dashed = folder.to_string_lossy().starts_with('-');
        let path = if dashed { Path::new(".").join(&folder) } else { folder.clone() };
        let path = path.display().to_string();

        let names = files.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let steps = next_commands(model.is_some(), rust).join("\n  ");
        super::print(&format!(
            "{} has {names}\n{decided}\nnext:\n  cd {}\n  {steps}\n",
            folder.display(),
            shell_word(&path)
        ))
    }
}

/// Returns the files of a task for a tiny new model.
fn new_task() -> Vec<File> {
    vec![
        ("recipe.toml", include_str!("init/new/recipe.toml").to_owned()),
        ("rows.jsonl", include_str!("init/new/rows.jsonl").to_owned()),
        ("judge.py", include_str!("init/new/judge.py").to_owned()),
        ("test_judge.py", include_str!("init/new/test_judge.py").to_owned()),
    ]
}

/// Returns the files of a task for a published model, and what was decided about its recipe.
fn model_task(recipe: &ModelRecipe) -> Result<(Vec<File>, String), ProgramError> {
    let Written { text, decided } = recipe.text()?;
    let mut files = vec![
        ("recipe.toml", text),
        ("rows.jsonl", include_str!("init/model/rows.jsonl").to_owned()),
    ];
    if recipe.rust {
        files.push(("Cargo.toml", include_str!("init/rust/Cargo.toml.txt").to_owned()));
        files.push(("judge.rs", include_str!("init/rust/judge.rs").to_owned()));
    } else {
        files.push(("judge.py", include_str!("init/model/judge.py").to_owned()));
        files.push(("test_judge.py", include_str!("init/model/test_judge.py").to_owned()));
    }
    Ok((files, decided))
}

/// Returns the commands that come next.
fn next_commands(has_model: bool, rust: bool) -> Vec<&'static str> {
    let python = if cfg!(windows) { "python -m unittest" } else { "python3 -m unittest" };
    let test = if rust { "cargo test && cargo build --release" } else { python };
    let tries = has_model.then_some("firebrick try");
    [Some(test), tries, Some("firebrick train recipe.toml")].into_iter().flatten().collect()
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

fn write(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}
