//! `firebrick recipes`: lists, shows and imports recipes.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use firebrick::{
    Error,
    recipe::{Loaded, Recipe, likely, read_text},
};
use firebrick_gguf::is_gguf;
use firebrick_import::{Origin, import};
use firebrick_recipes::{ALL, BuiltIn};
use serde_json::json;

use crate::{error::ProgramError, terminal::for_stdout};

/// Arguments of `firebrick recipes`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub struct Recipes {
    #[command(subcommand)]
    action: Option<Action>,
    /// Print the list as one JSON object
    #[arg(long)]
    json: bool,
}

/// A command about recipes.
#[derive(Subcommand)]
enum Action {
    /// Print a built-in recipe, as a start for your own
    Show(Show),
    /// Translate a configuration of verl or SkyRL, and print the recipe
    Import(Import),
}

/// Arguments of `firebrick recipes show`.
#[derive(Args)]
struct Show {
    /// The recipe's name, such as quickstart
    name: PathBuf,
}

const EXAMPLES: &str = "\
Without a subcommand it lists the built-in recipes. `firebrick train` takes their
names.

Examples:
  firebrick recipes
  firebrick recipes show gsm8k > my.toml
  firebrick recipes import run_dapo_qwen2.5_32b.sh > dapo-32b.toml";

/// Arguments of `firebrick recipes import`.
#[derive(Args)]
#[command(after_help = OF_IMPORT)]
struct Import {
    /// The configuration: a YAML file, a shell script (.sh) that sets keys in hydra's form, or a file of key=value
    /// lines
    config: PathBuf,
    /// Further values, in the form of the other program's command line
    #[arg(value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The program that the configuration is for; by default recognised by the configuration's keys
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

const OF_IMPORT: &str = "\
The recipe goes to standard output. Keys that differ here, keys without a
counterpart and unknown keys are listed on standard error, and at the end of the
recipe. A script is read and not run: it knows only the variables that it sets
itself.

Examples:
  firebrick recipes import run_dapo_qwen2.5_32b.sh > dapo-32b.toml
  firebrick recipes import skyrl.yaml trainer.train_batch_size=64 > my.toml";

impl Recipes {
    pub(super) fn run(self) -> Result<(), ProgramError> {
        match self.action {
            None => super::print(&list(self.json)),
            Some(Action::Show(Show { name })) => {
                let recipe = built_in(&name).ok_or_else(|| no_recipe(name))?;
                super::print(&own(recipe))
            }
            Some(Action::Import(import)) => import.run(),
        }
    }
}

/// Returns the built-in recipe of this name.
fn built_in(name: &Path) -> Option<&'static BuiltIn> {
    firebrick_recipes::find(name.to_str()?)
}

/// Returns the file that a path means: in the folder of a task or a run, its recipe.
pub(super) fn recipe_file(path: &Path) -> PathBuf {
    let of_folder = path.join("recipe.toml");
    if path.is_dir() && of_folder.is_file() { of_folder } else { path.to_owned() }
}

/// Loads the recipe that a command is given: a file, the folder of a task, or else the name of a built-in recipe.
pub(super) fn load(name: &Path, set: &[String]) -> Result<Loaded, ProgramError> {
    let name = &recipe_file(name);
    if is_gguf(name) || name.join("config.json").is_file() {
        return Err(no_recipe(name.to_owned()));
    }
    if name.is_file() {
        return Ok(Recipe::load(name, set)?);
    }

    match built_in(name) {
        Some(recipe) => {
            // A built-in recipe belongs to no folder, so that its paths begin at the current folder.
            let file = format!("{}.toml", last_part(recipe.name));
            Ok(Recipe::load_text(file.as_ref(), recipe.text, set)?)
        }
        // The system's own error says why a file can't be read.
        None if name.exists() || is_file_name(name) => Ok(Recipe::load(name, set)?),
        None => Err(no_recipe(name.to_owned())),
    }
}

/// Returns whether a path has the ending of a recipe's file. A dot alone is not enough, because a recipe's name may
/// have one too.
pub(super) fn is_file_name(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ["toml", "yaml", "yml"].iter().any(|is| ending == *is))
}

/// Makes the error that no recipe is called `given`.
fn no_recipe(given: PathBuf) -> ProgramError {
    let query = if is_file_name(&given) { given.with_extension("") } else { given.clone() };
    let query = query.to_string_lossy().to_lowercase();
    let part = last_part(&query);

    // A whole word of a name is enough, such as `clip-higher` of `ablation/2-clip-higher`.
    let words = format!("-{part}-");
    let has_words = |name: &&str| format!("-{}-", last_part(name)).contains(&words);
    let names = || ALL.iter().map(|recipe| recipe.name);
    let with_words = || names().filter(has_words).min_by_key(|name| name.len());

    let near = likely(&query, names()).or_else(with_words);
    let near = near.or_else(|| {
        let last = likely(part, names().map(last_part))?;
        names().find(|name| last_part(name) == last)
    });
    ProgramError::NoRecipe { given, likely: near }
}

/// Returns a recipe's name without the folder that it is in.
fn last_part(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

fn list(json: bool) -> String {
    if json {
        let recipe = |recipe: &BuiltIn| json!({"name": recipe.name, "about": recipe.about});
        let recipes: Vec<_> = ALL.iter().map(recipe).collect();
        return format!("{:#}\n", json!({ "recipes": recipes }));
    }

    // The second column begins after the longest name.
    let width = ALL.iter().map(|recipe| recipe.name.len()).max().unwrap_or_default();
    let line = |recipe: &BuiltIn| format!("{:<width$}  {}\n", recipe.name, recipe.about);
    for_stdout(&ALL.iter().map(line).collect::<String>(), width + 2)
}

/// Returns the recipe as the start of a user's own, without the line about the schema, which is not next to it.
fn own(recipe: &BuiltIn) -> String {
    recipe.text.split_inclusive('\n').filter(|line| !line.starts_with("#:schema")).collect()
}

impl Import {
    fn run(self) -> Result<(), ProgramError> {
        let Import { config, set, from } = self;
        let text =
            read_text(&config).map_err(|source| Error::File { path: config.clone(), source })?;

        let origin = from.map(|from| match from {
            Program::Verl => Origin::Verl,
            Program::Skyrl => Origin::Skyrl,
        });

        let imported = import(&config, &text, &set, origin)?;
        // The recipe is printed even if standard error is closed and can't show the remarks.
        super::print_note(&imported.remarks);
        super::print(&imported.text)
    }
}
