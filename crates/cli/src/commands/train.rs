//! `firebrick train`: trains a recipe, or resumes its run.

use std::{
    io::IsTerminal as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use clap::Args;
use firebrick::{INTERRUPTED, Session, Watcher, build::now, recipe::Loaded};
use firebrick_core::Step;
use firebrick_device::Name;
use firebrick_runs::RunFolder;

use crate::{
    ProgramError,
    bars::Bars,
    json::JsonLines,
    terminal::{Terminal, wants_color},
    width::Width,
};

/// Arguments of `firebrick train`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Train {
    /// The recipe: a TOML or YAML file, the folder of a task, or a name that `firebrick recipes` lists
    recipe: PathBuf,
    /// Replace a value of the recipe, as in train.steps=20, or remove it, as in sampling.max_rounds=; may be given
    /// several times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Compute on this device instead of the recipe's: cpu, or a device that `firebrick doctor` lists, such as
    /// vulkan:0
    #[arg(long, value_name = "KIND:INDEX")]
    device: Option<Name>,
    /// Continue from the last checkpoint of the run that has the recipe's name
    #[arg(long)]
    resume: bool,
    /// The folder that holds the run folders
    #[arg(long, value_name = "FOLDER", default_value = firebrick_runs::RUNS)]
    runs: PathBuf,
    /// Show a dashboard over the whole terminal: curves, phases, memory, completions. Without a terminal, print
    /// lines
    #[arg(long, conflicts_with_all = ["quiet", "json"])]
    tui: bool,
    /// Print nothing but errors
    #[arg(long, conflicts_with = "json")]
    quiet: bool,
    /// Print the progress as JSON to standard output, one object per line
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  firebrick train quickstart
  firebrick train quickstart --set train.steps=20 --set name=short
  firebrick train quickstart --tui
  firebrick train quickstart --resume --set train.steps=400
  firebrick train my.toml --set 'model.lora={ rank = 16 }' --device vulkan:0

Exit codes: 0 done, 1 failed, 2 wrong arguments or recipe, 3 the weights
or gradients are no longer finite, 130 interrupted; then the last line
says how to continue.";

impl Train {
    pub(super) fn run(self) -> Result<u8, ProgramError> {
        refuse_ranks()?;

        let set = [self.set, super::device_settings(self.device)].concat();
        let file = super::recipes::recipe_file(&self.recipe);
        let mut loaded = super::recipes::load(&file, &set)?;

        // The recipe in a run's own folder resumes that run, even if it names none.
        if self.resume
            && let Some(name) = name_in(&self.runs, &file)?
            && loaded.recipe.name.is_none()
        {
            loaded.name = name;
        }

        let show = match () {
            () if self.quiet => Show::Nothing,
            () if self.json => Show::Json,
            () if self.tui && has_dashboard() => Show::Dashboard,
            () => Show::Lines,
        };

        // A dashboard would be drawn over, and JSON and silence allow no bars.
        let bars = if show == Show::Lines { Bars::on_stderr() } else { Bars::hidden() };
        let (steps, device) = (loaded.recipe.train.steps, loaded.recipe.device.name());
        let terminal = terminal(&bars, steps).with_next_commands(device);
        let own = (show == Show::Lines).then(|| bars.clone());

        let stop = Arc::new(AtomicBool::new(false));
        let screen = screen(show, terminal, &loaded.name, device.to_string(), Some(LEAVE), &stop);
        let screen: Box<dyn Watcher> = if show == Show::Lines && stdout_is_a_log() {
            let log = Terminal::new(Box::new(std::io::stdout()), Bars::hidden(), false, steps);
            Box::new((screen, log.with_next_commands(device)))
        } else {
            screen
        };
        let interrupted = move || watch_for_interrupts(stop, own);

        let session = session(loaded, &self.runs, screen, &bars, interrupted);
        let summary = session.resume(self.resume).run_anywhere()?;
        Ok(if summary.stopped_because == INTERRUPTED { 130 } else { 0 })
    }
}

/// Refuses to be one of several trainers, as launchers of other programs start them. burn does not join processes, so
/// each trainer would train a separate policy.
fn refuse_ranks() -> Result<(), ProgramError> {
    for variable in ["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"] {
        let value = std::env::var(variable).unwrap_or_default();
        if value.trim().parse::<u64>().is_ok_and(|count| count > 1) {
            return Err(ProgramError::SeveralTrainers { variable, value });
        }
    }
    Ok(())
}

/// Returns the name of the run whose folder in `runs` holds this very recipe; `None` if the recipe belongs to no
/// run. A recipe without a name in it would otherwise be taken for that of a run called "recipe".
fn name_in(runs: &Path, recipe: &Path) -> Result<Option<String>, ProgramError> {
    let Ok(file) = recipe.canonicalize() else { return Ok(None) };
    let Some(folder) = file.parent().filter(|folder| RunFolder::is_run(folder)) else {
        return Ok(None);
    };
    let (Some(name), Some(there)) = (folder.file_name(), folder.parent()) else { return Ok(None) };
    if !file.ends_with("recipe.toml") {
        return Ok(None);
    }

    if runs.canonicalize().is_ok_and(|runs| runs == there) {
        Ok(Some(name.to_string_lossy().into_owned()))
    } else {
        Err(ProgramError::RunElsewhere {
            recipe: recipe.into(),
            runs: runs.into(),
            there: there.into(),
        })
    }
}

/// What a dashboard says last if its reader ends the run at once.
const LEAVE: &str = "the run was ended at once; the same command with --resume continues it";

/// How a run is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Show {
    /// One line for each step, and bars.
    Lines,
    /// A dashboard over the whole terminal.
    Dashboard,
    /// JSON, one object per line.
    Json,
    /// Nothing.
    Nothing,
}

/// Returns whether there is a terminal for a dashboard, and the program was built with the dashboard.
pub(super) fn has_dashboard() -> bool {
    cfg!(feature = "tui") && std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// Makes the watcher that shows the run `name` on `device`. A dashboard asks a reader who leaves, if that ends the run,
/// with the words of `leave`, and sets `stop` when the reader does. It passes notes and the end on to `lines`.
pub(super) fn screen(
    show: Show,
    lines: Terminal,
    name: &str,
    device: String,
    leave: Option<&'static str>,
    stop: &Arc<AtomicBool>,
) -> Box<dyn Watcher> {
    match show {
        #[cfg(feature = "tui")]
        Show::Dashboard => {
            Box::new(crate::dashboard::Dashboard::new(name, device, leave, stop.clone(), lines))
        }
        #[cfg(not(feature = "tui"))]
        Show::Dashboard => {
            // `has_dashboard` rules this out. These arguments are for the dashboard alone.
            let _ = (name, device, leave, stop);
            Box::new(lines)
        }
        Show::Lines => Box::new(lines),
        Show::Json => Box::new(JsonLines::new(Box::new(std::io::stdout()))),
        Show::Nothing => Box::new(()),
    }
}

/// Makes the view that writes a run's lines to standard error, between `bars`.
pub(super) fn terminal(bars: &Bars, steps: Step) -> Terminal {
    let color = std::io::stderr().is_terminal() && wants_color();
    Terminal::new(Box::new(std::io::stderr()), bars.clone(), color, steps).within(Width::Terminal)
}

/// Tells whether standard output is a file, and not the one that standard error writes already. Such a file gets the
/// lines that the terminal gets.
fn stdout_is_a_log() -> bool {
    #[cfg(unix)]
    {
        use std::os::{fd::AsFd, unix::fs::MetadataExt as _};

        let metadata = |stream: &dyn AsFd| {
            let file = std::fs::File::from(stream.as_fd().try_clone_to_owned()?);
            file.metadata()
        };
        let file = |metadata: &std::fs::Metadata| (metadata.dev(), metadata.ino());
        let Ok(out) = metadata(&std::io::stdout()) else { return false };
        let error = metadata(&std::io::stderr());
        out.is_file() && error.map_or(true, |error| file(&error) != file(&out))
    }
    // Elsewhere nothing tells whether both are the same file, in which each line would come twice.
    #[cfg(not(unix))]
    false
}

/// Makes a [`Session`] with the Hub as the environment has it. `watcher` shows the session.
pub(super) fn session(
    loaded: Loaded,
    runs: &Path,
    watcher: impl Watcher + 'static,
    bars: &Bars,
    interrupted: impl FnOnce() -> Arc<AtomicBool> + Send + 'static,
) -> Session {
    Session::with_sources(loaded, super::sources::sources(bars), now())
        .runs(runs)
        .watcher(watcher)
        .interrupted_by(interrupted)
}

/// Time within which two signals count as one request, because `timeout` and others signal a program and its
/// group.
const TWICE: Duration = Duration::from_millis(500);

/// Returns a flag that the first Ctrl-C sets. A second Ctrl-C, not at the same moment, ends the program immediately. A
/// line between `bars` announces the first one; without `bars` nothing does.
pub(super) fn interrupted(bars: Option<Bars>) -> Arc<AtomicBool> {
    watch_for_interrupts(Arc::new(AtomicBool::new(false)), bars)
}

fn watch_for_interrupts(flag: Arc<AtomicBool>, bars: Option<Bars>) -> Arc<AtomicBool> {
    // A limit on processor time ends the program as well, but leaves it a moment to stop cleanly.
    #[cfg(unix)]
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXCPU, flag.clone());

    let handler_flag = flag.clone();
    let mut terminal = bars.map(Terminal::plain);
    let mut first_signal = None;

    // Without a handler Ctrl-C ends the run immediately, and the run can still continue from a checkpoint.
    let _ = ctrlc::set_handler(move || {
        let first_signal = *first_signal.get_or_insert_with(Instant::now);
        if !handler_flag.swap(true, Ordering::Relaxed) {
            if let Some(terminal) = &mut terminal {
                terminal.note("ending the run; Ctrl-C again ends it at once");
            }
        } else if first_signal.elapsed() > TWICE {
            #[cfg(feature = "tui")]
            crate::dashboard::give_back();
            std::process::exit(130);
        }
    });

    flag
}
