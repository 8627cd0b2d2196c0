use std::{
    io::IsTerminal as _,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use clap::Args;
use firebrick_runs::{Bars, ProgressDrawTarget, RunFolder, Store, Terminal, write_atomically};

use crate::{
    ProgramError,
    recipe::Recipe,
    resume::Change,
    run::{Progress, Run, read_progress},
    wire::wire,
};

/// The arguments of `firebrick train`.
#[derive(Args)]
pub struct Train {
    /// The recipe, a TOML file
    recipe: PathBuf,
    /// Replace a value of the recipe, such as train.steps=20; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Go on from the last checkpoint of the run of that name
    #[arg(long)]
    resume: bool,
    /// Where run folders are
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    runs: PathBuf,
}

impl Train {
    pub(super) fn run(self) -> Result<u8, ProgramError> {
        let loaded = Recipe::load(&self.recipe, &self.set)?;
        let recipe = loaded.recipe;
        let (resumed, changes) = match self.resume {
            true => {
                let folder = RunFolder::resume(&self.runs, &loaded.name)?;
                let changes = changes(&folder, &recipe)?;
                (Some(folder), changes)
            }
            false => {
                RunFolder::check_free(&self.runs, &loaded.name)?;
                (None, Vec::new())
            }
        };
        let checkpoint = match &resumed {
            Some(folder) => folder.checkpoints()?.pop(),
            None => None,
        };
        let from = checkpoint.as_ref().map(|(_, path)| path.as_path());
        let blame = |error: ProgramError| match from {
            Some(checkpoint) => error.of_checkpoint(checkpoint),
            None => error,
        };
        // A new folder is made last: whatever can be wrong before is found before.
        let wired = wire(&recipe, from, super::now()).map_err(blame)?;
        let progress = match from {
            Some(checkpoint) => read_progress(checkpoint).map_err(blame)?,
            None => Progress::default(),
        };
        let folder = match resumed {
            Some(folder) => folder,
            None => RunFolder::create(&self.runs, &loaded.name)?,
        };
        write_atomically(&folder.recipe(), loaded.text.as_bytes())?;
        let mut store = Store::open(&folder.database())?;
        let color = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let bars = Bars::new(ProgressDrawTarget::stderr());
        let mut terminal =
            Terminal::new(Box::new(std::io::stderr()), bars.clone(), color, recipe.train.steps);
        let parameters = burn::module::Module::num_params(&wired.trainer.policy);
        say(&mut terminal, &format!("{}: {parameters} parameters; {}", loaded.name, wired.report))?;
        match &checkpoint {
            Some((step, path)) => {
                store.truncate_after(*step)?;
                say(&mut terminal, &format!("resumed from {}", path.display()))?;
            }
            None if self.resume => {
                store.truncate_after(0)?;
                say(&mut terminal, "no checkpoint yet: beginning anew")?;
            }
            None => {}
        }
        for change in changes {
            say(&mut terminal, &format!("now with {}", change))?;
        }
        let interrupted = interrupted(bars.clone());
        let run = Run::new(recipe, wired, folder, store, terminal, bars, interrupted, progress);
        let ended = run.run()?;
        Ok(if ended.interrupted { 130 } else { 0 })
    }
}

/// What the recipe says otherwise than the one in the run's folder.
fn changes(folder: &RunFolder, recipe: &Recipe) -> Result<Vec<Change>, ProgramError> {
    let before = Recipe::load(&folder.recipe(), &[])?.recipe;
    let changes = crate::resume::changes(&before, recipe);
    let refused: Vec<_> = changes.iter().filter(|change| change.refused()).collect();
    if refused.is_empty() {
        return Ok(changes);
    }
    let changes = refused.into_iter().map(Change::to_string).collect();
    Err(ProgramError::Changed { run: folder.path().to_owned(), changes })
}

/// A flag that the first Ctrl-C sets; the second ends the program at once.
fn interrupted(bars: Bars) -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let seen = flag.clone();
    let mut terminal = Terminal::new(Box::new(std::io::stderr()), bars, false, 0);
    // Without a handler Ctrl-C ends the run at once, from which a checkpoint still recovers it.
    let _ = ctrlc::set_handler(move || {
        if seen.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        let _ = terminal.say("finishing this step, then saving; Ctrl-C again ends at once");
    });
    flag
}

fn say(terminal: &mut Terminal, text: &str) -> Result<(), ProgramError> {
    terminal.say(text).map_err(|source| ProgramError::File { path: "the terminal".into(), source })
}
