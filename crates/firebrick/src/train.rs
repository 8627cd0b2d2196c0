//! A run in its folder: begun, or gone on with, and taken to its end.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};

use firebrick_core::Step;
use firebrick_models::{Compute, Decoder, parameters};
use firebrick_runs::{RunFolder, Store, write_atomically};

use crate::{
    Error,
    plan::warning,
    recipe::{Loaded, Recipe},
    resume::{Change, changes},
    run::{Ended, HELDOUT_PROMPTS, Progress, Run, read_progress},
    source::Sources,
    thousands,
    watch::Watcher,
    wire::{Wired, now, wire},
};

/// Begins the run of a recipe in a folder of its name in `runs`, or goes on with it if it is `resumed`,
/// and takes it to its end.
///
/// `warmup` is where runs that share a warm-up keep what it left: the first of them writes it, the others
/// begin there. `interrupted` is asked once everything is loaded, for the flag that ends the run after its
/// step: what it installs, such as a handler of Ctrl-C, is not in the way before.
///
/// # Errors
/// What ended the run early. What was done before the last checkpoint is on disk.
pub fn train(
    loaded: Loaded,
    runs: &Path,
    resumed: bool,
    warmup: Option<PathBuf>,
    sources: &Sources,
    mut watcher: Box<dyn Watcher>,
    interrupted: impl FnOnce() -> Arc<AtomicBool>,
) -> Result<Ended, Error> {
    let earlier = match resumed {
        true => Some(Earlier::find(runs, &loaded)?),
        false => RunFolder::check_free(runs, &loaded.name).map(|()| None)?,
    };
    let Loaded { recipe, text, name } = loaded;
    // Before anything is loaded, which takes of the memory that there is.
    let warning = warning(&recipe, sources);
    let checkpoint = earlier.as_ref().and_then(|earlier| earlier.checkpoint.clone());
    let warmed_up = warmup.clone().filter(|folder| folder.is_dir()).map(|folder| (0, folder));
    let checkpoint = checkpoint.or(warmed_up);
    let (wired, progress) = match &checkpoint {
        Some((_, path)) => {
            resume(&recipe, path, sources).map_err(|error| error.of_checkpoint(path))?
        }
        None => (wire(&recipe, None, sources, now())?, Progress::default()),
    };
    // A new folder is made last: whatever can be wrong before is found before.
    let (folder, changes) = match earlier {
        Some(earlier) => (earlier.folder, earlier.changes),
        None => (RunFolder::create(runs, &name)?, Vec::new()),
    };
    write_atomically(&folder.recipe(), text.as_bytes())?;
    let mut store = Store::open(&folder.database())?;
    store.set_info(HELDOUT_PROMPTS, &wired.heldout.len().to_string())?;
    watcher.note(&format!("{name}: {}; {}", size(&wired.trainer.policy), wired.report));
    for note in wired.notes.try_iter() {
        watcher.note(&note);
    }
    if let Some(device) = &wired.device {
        watcher.note(device);
    }
    if let Some(warning) = warning {
        watcher.note(&warning);
    }
    match &checkpoint {
        Some((step, path)) => {
            store.truncate_after(*step)?;
            watcher.note(&format!("resumed from {}", path.display()));
        }
        None if resumed => {
            store.truncate_after(0)?;
            watcher.note("no checkpoint yet: beginning anew");
        }
        None => {}
    }
    for change in changes {
        watcher.note(&format!("now with {change}"));
    }
    let interrupted = interrupted();
    let (clock, phase) = (Instant::now(), String::new());
    let run =
        Run { recipe, wired, folder, store, watcher, interrupted, progress, warmup, clock, phase };
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
    fn find(runs: &Path, loaded: &Loaded) -> Result<Self, Error> {
        let folder = RunFolder::resume(runs, &loaded.name)?;
        let checkpoint = folder.checkpoints()?.pop();
        let before = Recipe::load(&folder.recipe(), &[])?.recipe;
        let changes = changes(&before, &loaded.recipe);
        // Before the first checkpoint there is nothing that could not follow.
        let refused = changes.iter().filter(|change| change.refused() && checkpoint.is_some());
        let refused: Vec<String> = refused.map(Change::to_string).collect();
        match refused.is_empty() {
            true => Ok(Earlier { folder, checkpoint, changes }),
            false => Err(Error::Changed { run: folder.path().into(), changes: refused }),
        }
    }
}

fn resume(
    recipe: &Recipe,
    checkpoint: &Path,
    sources: &Sources,
) -> Result<(Wired, Progress), Error> {
    Ok((wire(recipe, Some(checkpoint), sources, now())?, read_progress(checkpoint)?))
}
