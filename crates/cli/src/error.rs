use std::path::{Path, PathBuf};

use firebrick_view::ViewError;

use crate::commands::is_file_name;

/// Everything that can end a command, said once: what was expected, what came, what to do.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The library can't go on.
    #[error(transparent)]
    Library(firebrick::Error),
    /// A run can't be shown.
    #[error(transparent)]
    View(ViewError),
    /// A prompt that leaves nothing to generate.
    #[error(
        "the prompt has {tokens} tokens; the model's context takes {context}, completion included"
    )]
    PromptLength {
        /// Its tokens.
        tokens: usize,
        /// `max_position_embeddings`.
        context: usize,
    },
    /// The recipe in a run's folder is to be resumed, and that is not where runs are.
    #[error("{} is the recipe of a run, which is not in {}", recipe.display(), runs.display())]
    RunElsewhere {
        /// As given.
        recipe: PathBuf,
        /// Where runs are.
        runs: PathBuf,
        /// The folder that holds the run's.
        there: PathBuf,
    },
    /// A launcher has started several trainers.
    #[error(
        "{variable} is {value}: a launcher has started this program {value} times, expected once"
    )]
    SeveralTrainers {
        /// The variable of the environment that says so.
        variable: &'static str,
        /// Its value.
        value: String,
    },
    /// Two recipes of a comparison have the same name, so their runs would have the same folders.
    #[error("two of the recipes are called {name}")]
    SameName {
        /// The name.
        name: String,
    },
    /// A run of the comparison is there already, with other settings.
    #[error("{} was run with other settings: now {}", run.display(), changes.join(", "))]
    OtherSettings {
        /// The run's folder.
        run: PathBuf,
        /// Each key with its two values.
        changes: Vec<String>,
    },
    /// A model to evaluate is none of a run, whose recipe would say on what.
    #[error(
        "{} is not a checkpoint of a run: there is no recipe.toml two folders up",
        path.display()
    )]
    NotACheckpoint {
        /// As given.
        path: PathBuf,
    },
    /// A path that should be a model's folder is none.
    #[error("{} is not a model folder: {problem}", path.display())]
    NotAModel {
        /// As given.
        path: PathBuf,
        /// What is there, or is not.
        problem: &'static str,
        /// What to give instead.
        remedy: &'static str,
    },
    /// A path that should be a run's folder is none.
    #[error("{} holds no run: {}", path.display(), no_run(path))]
    NotARun {
        /// As given.
        path: PathBuf,
    },
    /// A folder for numbers that are printed.
    #[error("--out {} is for --form tensorboard and wandb", out.display())]
    NoOut {
        /// As given.
        out: PathBuf,
    },
    /// Several runs for a view that has room for one.
    #[error("several runs are seen beside each other on a page alone")]
    TooManyRuns,
    /// A run has no metric of that name.
    #[error("{} has no metric {name}", run.display())]
    NoMetric {
        /// The run's folder.
        run: PathBuf,
        /// As given, with its stars.
        name: String,
    },
    /// A task is to be begun where something is already.
    #[error("{} is not empty, expected a new or an empty folder", folder.display())]
    NotEmpty {
        /// As given.
        folder: PathBuf,
    },
    /// A recipe is neither a file nor built in.
    #[error("there is no recipe {}", given.display())]
    NoRecipe {
        /// As given.
        given: PathBuf,
        /// The name that it is most like, if one is.
        likely: Option<&'static str>,
    },
    /// The recipe has nothing to evaluate on.
    #[error("the recipe has no held-out prompts")]
    NoHeldout,
    /// Nothing can be exported like that.
    #[error("{}: {problem}", out.display())]
    Export {
        /// The folder that was to be made.
        out: PathBuf,
        /// Why not, and what to do.
        problem: &'static str,
    },
    /// No row is the one to be explained.
    #[error("no row has the id {id:?}")]
    NoSuchRow {
        /// As given.
        id: String,
    },
}

/// Whatever is an error of the library's.
impl<E> From<E> for ProgramError
where
    firebrick::Error: From<E>,
{
    fn from(error: E) -> Self {
        ProgramError::Library(error.into())
    }
}

impl ProgramError {
    /// The error of a system that refused to read or to write `path`.
    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| ProgramError::Library(firebrick::Error::File { path, source })
    }

    /// That no recipe is called `given`.
    pub(crate) fn no_recipe(given: PathBuf) -> Self {
        let asked = if is_file_name(&given) { given.with_extension("") } else { given.clone() };
        let asked = asked.to_string_lossy().to_lowercase();
        let last = |name: &str| name.rsplit('/').next().unwrap_or(name).to_owned();
        let part = last(&asked);
        // As close as clap wants misspelt commands to be; or a part of the name, such as `dapo` of `5-dapo`.
        let likeness = |name: &str| {
            let contained = part.len() > 2 && last(name).contains(&part);
            let alike = strsim::jaro_winkler(&asked, name);
            if contained {
                1.0 + alike
            } else {
                alike.max(strsim::jaro_winkler(&part, &last(name)))
            }
        };
        let names =
            firebrick_recipes::ALL.iter().map(|recipe| (likeness(recipe.name), recipe.name));
        let likely =
            names.filter(|(likeness, _)| *likeness > 0.7).max_by(|a, b| a.0.total_cmp(&b.0));
        ProgramError::NoRecipe { given, likely: likely.map(|(_, name)| name) }
    }

    /// What to do about it, where the message does not say so by itself.
    pub fn help(&self) -> Option<String> {
        Some(match self {
            ProgramError::Library(error) => return error.help(),
            ProgramError::PromptLength { .. } => {
                "give a prompt of at least one token that leaves room for a completion".into()
            }
            ProgramError::RunElsewhere { there, .. } => {
                format!("say where it is: --runs {}", there.display())
            }
            ProgramError::SeveralTrainers { .. } => {
                "one process drives all cards of its machine (device.count), and further machines sample for it \
                 (rollout.engine): start it once. Several would train as many policies, and write one run"
                    .into()
            }
            ProgramError::SameName { .. } => {
                "give one of them another file name or a `name` of its own; --set name=… would name \
                 them all"
                    .into()
            }
            ProgramError::OtherSettings { .. } => {
                "a table must not mix them: choose another folder with --out, or remove this run".into()
            }
            ProgramError::NotACheckpoint { .. } => {
                "say with --recipe what to measure a model on that no run made".into()
            }
            ProgramError::NotAModel { remedy, .. } => (*remedy).to_owned(),
            ProgramError::View(
                ViewError::Record(_)
                | ViewError::Page(_)
                | ViewError::WandbId { .. },
            ) => return None,
            ProgramError::NoOut { out } => {
                format!("the other forms are printed: for a file, end the command with > {}", out.display())
            }
            ProgramError::TooManyRuns => "add --web, or give one run".into(),
            ProgramError::View(ViewError::Listen { .. }) => {
                "choose another --port, or none for any that is free".into()
            }
            ProgramError::View(ViewError::NotARun { path }) | ProgramError::NotARun { path } => {
                runs_near(path)
            }
            ProgramError::NoMetric { run, .. } => format!(
                "`firebrick metrics {} --last 1` shows all that are there; a star stands for any letters",
                run.display()
            ),
            ProgramError::NotEmpty { .. } => "give the name of a folder that is not there yet".into(),
            ProgramError::NoRecipe { likely, .. } => {
                let built_in = "`firebrick recipes` lists the ones that are built in, and `firebrick init \
                                FOLDER` begins one of your own";
                match likely {
                    Some(name) => format!("did you mean {name}? {built_in}"),
                    None => format!("give the path of a TOML or YAML file, or a name: {built_in}"),
                }
            }
            ProgramError::NoHeldout => {
                "set data.heldout to a file, or data.heldout_size above 0".into()
            }
            ProgramError::NoSuchRow { .. } => {
                "a row without an id is called FILE:LINE, such as answers.jsonl:17".into()
            }
            ProgramError::Export { .. } => return None,
        })
    }

    /// 2 for what the arguments and the recipe ask for, 1 for what went wrong in doing it.
    pub fn exit_code(&self) -> u8 {
        match self {
            ProgramError::Library(error) => error.exit_code(),
            _ => 2,
        }
    }
}

/// Why there is no run at a path.
fn no_run(path: &Path) -> &'static str {
    match path {
        path if !path.exists() => "there is no such folder",
        path if path.is_file() => "it is a file, and a run is a folder",
        _ => "it has no run.db",
    }
}

/// Which run may have been meant.
fn runs_near(path: &Path) -> String {
    let is_run = |folder: &PathBuf| folder.join("run.db").is_file();
    if let Some(folder) =
        path.parent().map(Path::to_owned).filter(|_| path.is_file()).filter(is_run)
    {
        return format!("give its folder: {}", folder.display());
    }
    let there = std::fs::read_dir(path).into_iter().flatten();
    let mut runs: Vec<PathBuf> =
        there.filter_map(|entry| Some(entry.ok()?.path())).filter(is_run).collect();
    runs.sort();
    match runs.first() {
        Some(run) => format!("give one of the runs in it, such as {}", run.display()),
        None => "give the folder of a run, such as runs/quickstart".into(),
    }
}
