use std::{
    io::IsTerminal as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use clap::Args;
use firebrick_core::Step;
use firebrick_device::Name;
use firebrick_models::{Compute, Decoder, parameters};
use firebrick_runs::{Bars, ProgressDrawTarget, RunFolder, Store, Terminal, write_atomically};

use crate::{
    ProgramError,
    inspect::thousands,
    recipe::{Loaded, Recipe},
    resume::{Change, changes},
    run::{Ended, HELDOUT_PROMPTS, Progress, Run, read_progress},
    source::Sources,
    wire::{Wired, wire},
};

/// The arguments of `firebrick train`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Train {
    /// The recipe, a TOML or YAML file
    recipe: PathBuf,
    /// Replace a value of the recipe, such as train.steps=20; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Compute on this device, whatever the recipe says: cpu, or one that `firebrick doctor` lists,
    /// such as vulkan:0
    #[arg(long, value_name = "KIND:INDEX")]
    device: Option<Name>,
    /// Go on from the last checkpoint of the run of that name
    #[arg(long)]
    resume: bool,
    /// Where run folders are
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    runs: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  firebrick train recipes/quickstart.toml
  firebrick train recipes/quickstart.toml --set train.steps=20 --set name=short
  firebrick train recipes/quickstart.toml --resume --set train.steps=400
  firebrick train my.toml --set 'model.lora={ rank = 16 }' --device vulkan:0

Exit codes: 0 done, 1 failed, 2 wrong arguments or recipe, 130 interrupted
after a clean save.";

impl Train {
    pub(super) fn run(self) -> Result<u8, ProgramError> {
        let set = [self.set, super::device_settings(self.device)].concat();
        let mut loaded = Recipe::load(&self.recipe, &set)?;
        if self.resume && loaded.recipe.name.is_none() {
            loaded.name = name_in(&self.runs, &self.recipe)?.unwrap_or(loaded.name);
        }
        let bars = Bars::new(ProgressDrawTarget::stderr());
        let interrupted = || interrupted(bars.clone());
        let ended = train(loaded, &self.runs, self.resume, None, &bars, interrupted)?;
        Ok(if ended.interrupted { 130 } else { 0 })
    }
}

/// The name of the run whose folder in `runs` holds this very recipe; none where the recipe is no
/// run's. Without a name in it, it would else be taken for the recipe of a run called "recipe".
fn name_in(runs: &Path, recipe: &Path) -> Result<Option<String>, ProgramError> {
    let Ok(file) = recipe.canonicalize() else { return Ok(None) };
    let Some(folder) = file.parent().filter(|folder| folder.join("run.db").is_file()) else {
        return Ok(None);
    };
    let (Some(name), Some(there)) = (folder.file_name(), folder.parent()) else { return Ok(None) };
    if !file.ends_with("recipe.toml") {
        return Ok(None);
    }
    match runs.canonicalize().is_ok_and(|runs| runs == there) {
        true => Ok(Some(name.to_string_lossy().into_owned())),
        false => Err(ProgramError::RunElsewhere {
            recipe: recipe.into(),
            runs: runs.into(),
            there: there.into(),
        }),
    }
}

/// Begins the run of a recipe in a folder of its name in `runs`, or goes on with it, and takes it to
/// its end. `warmup` is where runs that share a warm-up keep what it left: the first of them writes
/// it, the others begin there. The flag that Ctrl-C sets is asked for once everything is loaded.
pub(super) fn train(
    loaded: Loaded,
    runs: &Path,
    resumed: bool,
    warmup: Option<PathBuf>,
    bars: &Bars,
    interrupted: impl FnOnce() -> Arc<AtomicBool>,
) -> Result<Ended, ProgramError> {
    let earlier = match resumed {
        true => Some(Earlier::find(runs, &loaded)?),
        false => RunFolder::check_free(runs, &loaded.name).map(|()| None)?,
    };
    let Loaded { recipe, text, name } = loaded;
    let sources = super::sources::sources(bars);
    // Before anything is loaded, which takes of the memory that there is.
    let warning = super::plan::warning(&recipe, &sources);
    let checkpoint = earlier.as_ref().and_then(|earlier| earlier.checkpoint.clone());
    let warmed_up = warmup.clone().filter(|folder| folder.is_dir()).map(|folder| (0, folder));
    let checkpoint = checkpoint.or(warmed_up);
    let (wired, progress) = match &checkpoint {
        Some((_, path)) => {
            resume(&recipe, path, &sources).map_err(|error| error.of_checkpoint(path))?
        }
        None => (wire(&recipe, None, &sources, super::now())?, Progress::default()),
    };
    // A new folder is made last: whatever can be wrong before is found before.
    let (folder, changes) = match earlier {
        Some(earlier) => (earlier.folder, earlier.changes),
        None => (RunFolder::create(runs, &name)?, Vec::new()),
    };
    write_atomically(&folder.recipe(), text.as_bytes())?;
    let mut store = Store::open(&folder.database())?;
    store.set_info(HELDOUT_PROMPTS, &wired.heldout.len().to_string())?;
    let color = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let mut terminal =
        Terminal::new(Box::new(std::io::stderr()), bars.clone(), color, recipe.train.steps);
    say(&mut terminal, &format!("{name}: {}; {}", size(&wired.trainer.policy), wired.report));
    for note in wired.notes.try_iter() {
        say(&mut terminal, &note);
    }
    if let Some(device) = &wired.device {
        say(&mut terminal, device);
    }
    if let Some(warning) = warning {
        say(&mut terminal, &warning);
    }
    match &checkpoint {
        Some((step, path)) => {
            store.truncate_after(*step)?;
            say(&mut terminal, &format!("resumed from {}", path.display()));
        }
        None if resumed => {
            store.truncate_after(0)?;
            say(&mut terminal, "no checkpoint yet: beginning anew");
        }
        None => {}
    }
    for change in changes {
        say(&mut terminal, &format!("now with {change}"));
    }
    let interrupted = interrupted();
    let clock = Instant::now();
    let (bars, phase) = (bars.clone(), String::new());
    let run = Run {
        recipe,
        wired,
        folder,
        store,
        terminal,
        bars,
        interrupted,
        progress,
        warmup,
        clock,
        phase,
    };
    run.run()
}

/// How large the policy is, how much of it is trained, and what it is multiplied in.
fn size(policy: &Decoder) -> String {
    let mut text =
        format!("{} parameters", thousands(burn::module::Module::num_params(policy) as u64));
    if let Some(lora) = policy.lora() {
        let trained: usize = parameters(policy)
            .iter()
            .filter(|parameter| parameter.path.contains(".adapters."))
            .map(|parameter| parameter.shape.iter().product::<usize>())
            .sum();
        let trained = thousands(trained as u64);
        text += &format!(", {trained} of them trained (adapters of rank {})", lora.rank);
    }
    if policy.compute() == Compute::Bf16 {
        text += ", multiplied in bfloat16";
    }
    text
}

/// What is there of a run that is to go on.
struct Earlier {
    folder: RunFolder,
    /// The newest; none when the run ended before its first.
    checkpoint: Option<(Step, PathBuf)>,
    /// What the recipe says otherwise than the one in the folder.
    changes: Vec<Change>,
}

impl Earlier {
    fn find(runs: &Path, loaded: &Loaded) -> Result<Self, ProgramError> {
        let folder = RunFolder::resume(runs, &loaded.name)?;
        let checkpoint = folder.checkpoints()?.pop();
        let before = Recipe::load(&folder.recipe(), &[])?.recipe;
        let changes = changes(&before, &loaded.recipe);
        // Before the first checkpoint there is nothing that could not follow.
        let refused = changes.iter().filter(|change| change.refused() && checkpoint.is_some());
        let refused: Vec<String> = refused.map(Change::to_string).collect();
        match refused.is_empty() {
            true => Ok(Earlier { folder, checkpoint, changes }),
            false => Err(ProgramError::Changed { run: folder.path().into(), changes: refused }),
        }
    }
}

fn resume(
    recipe: &Recipe,
    checkpoint: &Path,
    sources: &Sources,
) -> Result<(Wired, Progress), ProgramError> {
    Ok((wire(recipe, Some(checkpoint), sources, super::now())?, read_progress(checkpoint)?))
}

/// A flag that the first Ctrl-C sets; the second ends the program at once.
pub(super) fn interrupted(bars: Bars) -> Arc<AtomicBool> {
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

/// What a closed terminal can't show is no reason to end a run.
fn say(terminal: &mut Terminal, text: &str) {
    let _ = terminal.say(text);
}
