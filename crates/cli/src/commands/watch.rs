//! `firebrick watch`: shows a run in the terminal or as a web page while it is running.

use std::{
    io::{self, IsTerminal as _, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use clap::Args;
use firebrick::{
    Step, Watcher,
    data::Tokenizer,
    follow::Follow,
    reason, recipe_of_run,
    runs::{RunFolder, Store, resume_command},
};
use firebrick_core::printable;
use firebrick_view::{PageServer, Run, TokenTexts};

use super::train::{Show, has_dashboard, interrupted, screen};
use crate::{
    ProgramError,
    bars::Bars,
    terminal::{Terminal, wants_color},
    width::Width,
};

/// Arguments of `firebrick watch`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Watch {
    /// One or several runs, by their names or folders; several need --web
    #[arg(required = true, value_name = "RUN", value_parser = super::run())]
    runs: Vec<PathBuf>,
    /// Serve a page for browsers on this machine
    #[arg(long)]
    web: bool,
    /// The port of the page; by default any free port
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        requires = "web",
        hide_default_value = true
    )]
    port: u16,
    /// Link the page's charts and findings to the book at this address
    #[arg(long, value_name = "ADDRESS", requires = "web")]
    book: Option<String>,
    /// Print a line for each step and evaluation to standard output, also on a terminal, instead of the dashboard
    #[arg(long, conflicts_with = "web")]
    plain: bool,
}

const EXAMPLES: &str = "\
Everything is read from the run's database, without disturbing the run.

The page has a random word in its address and is served on 127.0.0.1 alone. To
see it from another machine, forward the port:
ssh -L 8080:127.0.0.1:8080 HOST

Examples:
  firebrick watch runs/quickstart
  firebrick watch runs/first runs/second --web --port 8080";

/// Pause between two reads of the record.
const PAUSE: Duration = Duration::from_secs(1);

impl Watch {
    pub(super) fn run(self) -> Result<(), ProgramError> {
        // On a busy machine the run goes first.
        #[cfg(unix)]
        let _ = rustix::process::nice(19);

        match self.runs.len() {
            _ if self.web => self.serve(),
            1 => self.follow(),
            _ => Err(ProgramError::TooManyRuns),
        }
    }

    fn serve(self) -> Result<(), ProgramError> {
        let runs = open(&self.runs)?;
        let page_server =
            PageServer::listen(runs, self.port, self.book).map_err(ProgramError::View)?;

        let stop = interrupted(None);
        super::print(&format!(
            "{}\nCtrl-C stops watching; the run continues.\n",
            page_server.address()
        ))?;
        page_server.serve(&stop).map_err(ProgramError::View)
    }

    fn follow(mut self) -> Result<(), ProgramError> {
        let run = self.runs.remove(0);
        let database = run.join("run.db");
        if !database.is_file() {
            return Err(ProgramError::NotARun { path: run });
        }

        let store = Store::open_to_ask(&database)?;
        // Without a recipe that can be read, the record's last step counts as the end of the run.
        let recipe = recipe_of_run(&run).map(|loaded| loaded.recipe).ok();
        let steps = recipe.as_ref().map(|recipe| recipe.train.steps);
        let steps = steps.unwrap_or_else(|| store.last_step().unwrap_or(0));
        let device = recipe.map_or_else(String::new, |recipe| recipe.device.name().to_string());
        let name = run.file_name().unwrap_or(run.as_os_str()).to_string_lossy().into_owned();

        let bars = Bars::on_stderr();
        let show = if self.plain || !has_dashboard() { Show::Lines } else { Show::Dashboard };

        let stop = interrupted(None);
        let mut watcher = screen(show, lines(&bars, steps, &stop), &name, device, None, &stop);
        let mut follow = Follow::new();

        let ended = loop {
            // This is asked before the record is read, so that nothing that the process wrote is missed.
            let is_left = RunFolder::is_left(&run);
            let ended = follow.catch_up(&store, &mut watcher)?;
            let ended = ended.or_else(|| is_left.then(|| left(&run)));
            // A dashboard stays until its reader leaves.
            if stop.load(Ordering::Relaxed) || ended.is_some() && show == Show::Lines {
                break ended;
            }
            wait(&stop, &mut watcher);
        };

        drop(watcher);
        if let Some(why) = ended {
            super::warn(format!("{}: {}", run.display(), printable(reason(&why))));
        }
        Ok(())
    }
}

/// Says what to do about a run whose process wrote no reason for its end, such as one that was killed.
fn left(run: &Path) -> String {
    let command = resume_command(run);
    format!("no process writes it any more, and none said why it ended: `{command}` continues it")
}

/// Makes the view that writes a run's lines to standard output, between `bars`. Once nobody reads them, it sets `stop`.
fn lines(bars: &Bars, steps: Step, stop: &Arc<AtomicBool>) -> Terminal {
    let is_terminal = io::stdout().is_terminal();
    let width = if is_terminal { Width::Terminal } else { Width::Endless };
    let out = Box::new(StdoutUntilClosed { stop: stop.clone() });
    Terminal::new(out, bars.clone(), is_terminal && wants_color(), steps).within(width)
}

/// Standard output, whose reader may leave.
struct StdoutUntilClosed {
    stop: Arc<AtomicBool>,
}

impl Write for StdoutUntilClosed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = io::stdout().write(bytes);
        if matches!(&written, Err(error) if error.kind() == io::ErrorKind::BrokenPipe) {
            self.stop.store(true, Ordering::Relaxed);
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}

/// Waits until it is time to look again, or the reader leaves.
fn wait(stop: &Arc<AtomicBool>, watcher: &mut Box<dyn Watcher>) {
    let began = Instant::now();
    while began.elapsed() < PAUSE && !stop.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(50));
        // At this call a dashboard notices that its reader wants to leave.
        watcher.advance(0);
    }
}

/// Opens runs to view, with the texts of their tokens if there is a tokenizer.
pub(super) fn open(folders: &[PathBuf]) -> Result<Vec<Run>, ProgramError> {
    let open = |folder: &PathBuf| {
        let run = Run::open(folder).map_err(ProgramError::View)?;
        let folder = folder.clone();
        Ok(run.with_pieces(move || pieces(&folder)))
    };
    folders.iter().map(open).collect()
}

/// Returns the function that reads tokens with the tokenizer of the run's newest checkpoint that has one.
fn pieces(run: &Path) -> Option<TokenTexts> {
    let checkpoints = std::fs::read_dir(run.join("checkpoints")).ok()?;
    let mut checkpoints: Vec<PathBuf> =
        checkpoints.filter_map(|entry| Some(entry.ok()?.path())).collect();
    // A step in a folder's name has leading zeros, so the newest checkpoint sorts last.
    checkpoints.sort();
    let tokenizer =
        checkpoints.iter().rev().find_map(|folder| Tokenizer::from_folder(folder).ok())?;

    Some(Box::new(move |tokens| {
        let mut streamer = tokenizer.streamer();
        let piece = |token: &u32| match streamer.push(*token) {
            // A token that ends a text has no text itself, so its name is shown.
            piece if piece.is_empty() && tokenizer.decode(&[*token], true).is_empty() => {
                tokenizer.decode(&[*token], false)
            }
            piece => piece,
        };
        tokens.iter().map(piece).collect()
    }))
}
