//! Errors that end a command, with their help and exit codes.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use firebrick_device::Failure;
use firebrick_runs::{path_word, resume_command};
use firebrick_view::ViewError;

/// Name of standard output in errors.
pub(crate) const STDOUT: &str = "standard output";

/// Everything that can end a command. A message says once what was expected, what was found instead, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// An error of the library.
    #[error(transparent)]
    Library(firebrick::Error),
    /// A run can't be shown.
    #[error(transparent)]
    View(ViewError),
    /// The prompt is empty, or leaves no room for a completion.
    #[error(
        "the prompt has {}{tokens} tokens; the model's context takes {context}, completion included",
        if tokens > context { "at least " } else { "" }
    )]
    PromptLength {
        /// Number of the prompt's tokens.
        tokens: usize,
        /// `max_position_embeddings` of the model.
        context: usize,
    },
    /// A conversation has become longer than the model's context.
    #[error(
        "with this question the conversation has {}{tokens} tokens, and the model's context takes {context}, \
         answer included",
        if tokens > context { "at least " } else { "" }
    )]
    ConversationLength {
        /// Number of the conversation's tokens.
        tokens: usize,
        /// `max_position_embeddings` of the model.
        context: usize,
    },
    /// A run's recipe was given to resume it, but the run is not in the folder of runs.
    #[error("{} is the recipe of a run outside {}", recipe.display(), runs.display())]
    RunElsewhere {
        /// Path of the recipe, as given.
        recipe: PathBuf,
        /// Folder of runs.
        runs: PathBuf,
        /// Folder that holds the run's folder.
        there: PathBuf,
    },
    /// A bench is asked to train weights that are frozen.
    #[error("{phase} trains, and weights in this --base are not trained")]
    NothingTrains {
        /// Name of the phase.
        phase: &'static str,
    },
    /// A launcher has started several trainers.
    #[error(
        "{variable} is {value}: a launcher has started this program {value} times, expected once"
    )]
    SeveralTrainers {
        /// Environment variable that says so.
        variable: &'static str,
        /// Value of the variable.
        value: String,
    },
    /// Two recipes of a comparison have the same name, so their runs would have the same folders.
    #[error("two of the recipes are called {name}")]
    SameName {
        /// Name that both have.
        name: String,
    },
    /// The baseline of a comparison is none of its recipes.
    #[error("there is no {name} to compare with, only {}", names.join(", "))]
    NoBaseline {
        /// Name as given.
        name: String,
        /// Names of the recipes.
        names: Vec<String>,
    },
    /// Two runs of a variant have the same seed, so neither is the partner of another variant's run.
    #[error("two runs of {name} have the seed {seed}: {} and {}", folders[0].display(), folders[1].display())]
    SameSeed {
        /// Name of the variant.
        name: String,
        /// Seed that both have.
        seed: u64,
        /// Folders of the runs.
        folders: [PathBuf; 2],
    },
    /// Two runs of a variant have different settings, so their mean would be that of none.
    #[error(
        "the runs of {name} have different settings: {} and {} differ in {}",
        runs[0].display(),
        runs[1].display(),
        keys.join(", ")
    )]
    MixedSettings {
        /// Name of the variant.
        name: String,
        /// Folders of the runs.
        runs: [PathBuf; 2],
        /// Keys in which they differ, but for the seed and the device.
        keys: Vec<String>,
    },
    /// A folder may stand for the recipes in it or for the runs in it.
    #[error("{} has recipes and runs", folder.display())]
    RecipesAndRuns {
        /// Its path, as given.
        folder: PathBuf,
    },
    /// An option of runs to be made was given for runs that are there.
    #[error("{option} is for runs to be made, and those in {} are there already", folder.display())]
    RunsAreThere {
        /// Name of the option.
        option: &'static str,
        /// Folder of the runs.
        folder: PathBuf,
    },
    /// No finished run of a comparison has a metric at its end.
    #[error("{} {name} in its last quarter", no_finished_run(*runs))]
    NoRunHasMetric {
        /// Number of finished runs.
        runs: usize,
        /// Name as given.
        name: String,
        /// Folder of one of the runs.
        run: PathBuf,
    },
    /// A run of the comparison exists already, with other settings.
    #[error("{} was run with other settings: now {}", run.display(), changes.join(", "))]
    OtherSettings {
        /// Folder of the run.
        run: PathBuf,
        /// Changed keys, each with its two values.
        changes: Vec<String>,
    },
    /// A model to evaluate belongs to no run, so no recipe says what to evaluate it on.
    #[error(
        "{} is not a checkpoint of a run: there is no recipe.toml two folders up",
        path.display()
    )]
    NotACheckpoint {
        /// Path of the model, as given.
        path: PathBuf,
    },
    /// No recipe of a model fits into a memory.
    #[error(
        "{} does not fit into {}, not even with adapters and weights of 4 bits",
        model.display(),
        firebrick_device::gibibytes(*memory)
    )]
    TooLarge {
        /// Path or name of the model, as given.
        model: PathBuf,
        /// Bytes of the memory.
        memory: u64,
    },
    /// A path is not a model, although it should be one.
    #[error("{} is not a model: {problem}", path.display())]
    NotAModel {
        /// Its path, as given.
        path: PathBuf,
        /// What is there instead, or what is missing.
        problem: &'static str,
    },
    /// A path is not a run's folder, although it should be one.
    #[error("{} holds no run: {}", path.display(), no_run(path))]
    NotARun {
        /// Its path, as given.
        path: PathBuf,
    },
    /// A folder was given for numbers that are only printed.
    #[error("--out {} is for --form tensorboard and wandb", out.display())]
    NoOut {
        /// Its path, as given.
        out: PathBuf,
    },
    /// A file to write is part of a run's record.
    #[error("{} is a file of the run {}, which must stay as the run wrote it", path.display(), run.display())]
    OwnFile {
        /// Its path, as given.
        path: PathBuf,
        /// Folder of the run.
        run: PathBuf,
    },
    /// A page would be written next to a run, and something is there that is not a page.
    #[error("{} is not an ordinary file, so no report is written over it", path.display())]
    NoPage {
        /// Where the report goes if no other path is given.
        path: PathBuf,
    },
    /// A run has no summary yet.
    #[error("{} is not finished: it has no summary.json", run.display())]
    NotFinished {
        /// Folder of the run.
        run: PathBuf,
    },
    /// Several runs were given for a view that shows only one.
    #[error("several runs can be watched together only on a page")]
    TooManyRuns,
    /// A run has no metric of that name.
    #[error("{} has no metric {name}", run.display())]
    NoMetric {
        /// Folder of the run.
        run: PathBuf,
        /// Name as given, with its stars.
        name: String,
    },
    /// A folder for a new task is not empty.
    #[error("{} is not empty, expected a new or an empty folder", folder.display())]
    NotEmpty {
        /// Its path, as given.
        folder: PathBuf,
    },
    /// A recipe is neither a file nor built in.
    #[error("there is no recipe {}", given.display())]
    NoRecipe {
        /// Path or name, as given.
        given: PathBuf,
        /// Most similar name of a built-in recipe, if one is similar.
        likely: Option<&'static str>,
    },
    /// A recipe has no prompts to evaluate on.
    #[error("the recipe has no held-out prompts")]
    NoHeldout,
    /// No completion of an evaluation has a verdict.
    #[error("none of the {completions} completions could be judged, so nothing was measured")]
    NothingJudged {
        /// Number of completions.
        completions: usize,
    },
    /// A clock whose year is outside the range of dates.
    #[error("the clock of this machine is after the year 9999")]
    Clock,
    /// Less memory than any command needs.
    #[error(
        "the address space is limited to {} MiB, expected at least {} MiB",
        limit >> 20,
        needed >> 20
    )]
    Memory {
        /// Limit in bytes.
        limit: u64,
        /// Bytes that are needed.
        needed: u64,
    },
    /// A variable asks for so many threads that nothing would get done.
    #[error(
        "{variable} asks for {threads} threads, and this machine runs {parallelism} at once: expected at most {most}"
    )]
    ManyThreads {
        /// Name of the environment variable.
        variable: &'static str,
        /// How many it asks for.
        threads: usize,
        /// How many the machine runs in parallel.
        parallelism: usize,
        /// Largest number that is allowed.
        most: usize,
    },
    /// No threads from the system.
    #[error("the threads that compute can't be started: {problem}")]
    NoThreads {
        /// What the system says.
        problem: String,
    },
    /// A case that the program does not know.
    #[error("the program failed: {0}")]
    Panic(Failure),
    /// An export is not possible.
    #[error("can't export to {}: {problem}", out.display())]
    Export {
        /// Folder that was to be made.
        out: PathBuf,
        /// Reason, and what to do.
        problem: &'static str,
    },
    /// No row has the id that was asked for.
    #[error("no row has the id {id:?}")]
    NoSuchRow {
        /// Id as given.
        id: String,
    },
}

/// Converts every error that is an error of the library.
impl<E> From<E> for ProgramError
where
    firebrick::Error: From<E>,
{
    fn from(error: E) -> Self {
        ProgramError::Library(error.into())
    }
}

impl ProgramError {
    /// Wraps the error of a system that refused to read or to write `path`.
    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| ProgramError::Library(firebrick::Error::File { path, source })
    }

    /// Returns advice on what to do, if the message does not say it by itself.
    pub fn help(&self) -> Option<String> {
        Some(match self {
            ProgramError::Library(firebrick::Error::File { path, source }) if path == Path::new(STDOUT) => {
                return (source.kind() == ErrorKind::StorageFull).then(|| {
                    "the file or device that standard output goes to is full: free some space there, or \
                     send the output elsewhere"
                        .into()
                });
            }
            ProgramError::Library(error) => return error.help(),
            ProgramError::OwnFile { .. } => "give --out, or the option that named it, another file".into(),
            ProgramError::NoPage { .. } => "remove it, or name another file with --out".into(),
            ProgramError::PromptLength { .. } => {
                "give a prompt of at least one token that leaves room for a completion".into()
            }
            ProgramError::ConversationLength { .. } => {
                "the line /new begins a new conversation".into()
            }
            ProgramError::RunElsewhere { there, .. } => {
                format!("give the folder that holds the run's folder: --runs {}", path_word(there))
            }

            ProgramError::SeveralTrainers { .. } => {
                "start the program once: one process drives all cards of its machine \
                 (device.count), and further machines sample for it (rollout.engine). Several \
                 processes would train a policy each, and write into one run"
                    .into()
            }
            ProgramError::SameName { .. } => {
                "give one of them another file name or a `name` of its own; --set name=… would name \
                 them all"
                    .into()
            }
            ProgramError::NoBaseline { .. } => "give one of these names to --baseline".into(),
            ProgramError::SameSeed { .. } => {
                "a variant is a folder of runs with different seeds: FOLDER/NAME/ANY, or FOLDER/NAME-seedSEED. Move one \
                 of the two elsewhere"
                    .into()
            }
            ProgramError::MixedSettings { .. } => {
                "put the runs of each setting into a folder of their own".into()
            }
            ProgramError::RecipesAndRuns { folder } => format!(
                "to make runs, name the recipes ({}/*.toml); to read runs, give a folder that has only runs",
                path_word(folder)
            ),
            ProgramError::RunsAreThere { .. } => {
                "leave it out; to make other runs, name the recipes in place of the folder".into()
            }
            ProgramError::OtherSettings { .. } => {
                "a table must not mix settings: choose another folder with --out, or remove this \
                 run"
                    .into()
            }
            ProgramError::NotACheckpoint { .. } => {
                "give --recipe with the recipe whose held-out prompts measure the model".into()
            }
            ProgramError::NotAModel { .. } => {
                "give the name of a run, a folder such as runs/quickstart/checkpoints/step-000200, a GGUF file, or \
                 the name of a model on the Hugging Face Hub"
                    .into()
            }

            ProgramError::View(
                ViewError::Record(_)
                | ViewError::Page(_)
                | ViewError::WandbId { .. },
            ) => return None,
            ProgramError::NoOut { out } => {
                format!("the other forms are printed: for a file, end the command with > {}", path_word(out))
            }
            ProgramError::NotFinished { run } => {
                format!("`{}` continues it", resume_command(run))
            }
            ProgramError::TooManyRuns => "add --web, or give one run".into(),

            ProgramError::View(ViewError::Listen { .. }) => {
                "choose another --port, or leave it out to get any free port".into()
            }
            ProgramError::View(ViewError::NotARun { path }) | ProgramError::NotARun { path } => {
                runs_near(path)
            }
            ProgramError::NoMetric { run, .. } | ProgramError::NoRunHasMetric { run, .. } => format!(
                "`firebrick metrics {} --form csv --last 1` names all metrics in its first line; a \
                 star stands for any letters",
                path_word(run)
            ),
            ProgramError::TooLarge { .. } => {
                "take a smaller model, or give the memory of a larger device with --device and --memory".into()
            }
            ProgramError::NotEmpty { .. } => "give the name of a folder that is not there yet".into(),

            ProgramError::NoRecipe { likely, .. } => {
                let built_in = "`firebrick recipes` lists the ones that are built in, and `firebrick init \
                                FOLDER --model MODEL` begins one of your own";
                match likely {
                    Some(name) => format!("did you mean {name}? {built_in}"),
                    None => format!("give the path of a TOML or YAML file, or a name: {built_in}"),
                }
            }

            ProgramError::NothingTrains { .. } => {
                "add adapters, such as --lora 16, or ask for --phases rollout".into()
            }
            ProgramError::NoHeldout => {
                "set data.heldout to a file, or data.heldout_size above 0".into()
            }
            ProgramError::NothingJudged { .. } => {
                "look at what the verifier was given with --completions FILE; it failed, or the references \
                 can't be read"
                    .into()
            }
            ProgramError::NoSuchRow { .. } => {
                "a row without an id is called FILE:LINE, such as answers.jsonl:17".into()
            }

            ProgramError::Clock => "set the clock, for example with `date`".into(),
            ProgramError::Memory { .. } => {
                "raise the limit (`ulimit -v unlimited`, or the memory that the batch system was asked for)".into()
            }
            ProgramError::ManyThreads { variable, parallelism, .. } => {
                format!("leave {variable} out, or set it to {parallelism}")
            }
            ProgramError::NoThreads { .. } => FEW_THREADS.into(),
            ProgramError::Panic(failure) if of_limits(&failure.message) => FEW_THREADS.into(),
            ProgramError::Panic(_) => {
                "this is a bug in the program: please report it with the command and its input. A run continues from \
                 its last checkpoint with --resume. RUST_BACKTRACE=1 shows where it happened"
                    .into()
            }
            ProgramError::Export { .. } => return None,
        })
    }

    /// Returns the exit code of the process: 2 for an error in the arguments or the recipe, and the library's code for
    /// an error of the library.
    pub fn exit_code(&self) -> u8 {
        match self {
            ProgramError::Library(error) => error.exit_code(),
            ProgramError::NothingJudged { .. }
            | ProgramError::Clock
            | ProgramError::Memory { .. }
            | ProgramError::NoThreads { .. }
            | ProgramError::Panic(_) => 1,
            _ => 2,
        }
    }
}

/// Advice for a system that gives no more threads or memory.
const FEW_THREADS: &str = "the system allows no more threads: raise its limits (`ulimit -u` for threads, `ulimit -v` for \
                           memory, `pids.max` of a container), or set RAYON_NUM_THREADS to fewer threads";

/// Returns whether a panic says that the system gave no thread. The text is that of the standard library and of rayon.
fn of_limits(panic: &str) -> bool {
    [
        "failed to spawn thread",
        "thread pool has not been initialized",
        "Resource temporarily unavailable",
    ]
    .iter()
    .any(|words| panic.contains(words))
}

/// Says that none of so many finished runs has what comes next.
fn no_finished_run(runs: usize) -> String {
    match runs {
        1 => "the finished run has no".into(),
        runs => format!("none of the {runs} finished runs has"),
    }
}

/// Tells why there is no run at a path.
fn no_run(path: &Path) -> &'static str {
    match path {
        path if !path.exists() => "there is no such folder",
        path if path.is_file() => "it is a file, and a run is a folder",
        _ => "it has no run.db",
    }
}

/// Suggests the run that may have been meant.
fn runs_near(path: &Path) -> String {
    let is_run = |folder: &PathBuf| folder.join("run.db").is_file();
    if let Some(folder) =
        path.parent().map(Path::to_owned).filter(|_| path.is_file()).filter(is_run)
    {
        return format!("give its folder: {}", folder.display());
    }

    // A mistyped name is that of a run beside it.
    let folder = if path.exists() { Some(path) } else { path.parent() };
    let there = folder.and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten();
    let mut runs: Vec<PathBuf> =
        there.filter_map(|entry| Some(entry.ok()?.path())).filter(is_run).collect();
    runs.sort();

    match runs.first() {
        Some(run) => format!("give one of the runs that are there, such as {}", run.display()),
        None => "give the folder of a run, such as runs/quickstart".into(),
    }
}
