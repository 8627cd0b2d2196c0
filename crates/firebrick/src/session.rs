//! A whole run from a program of one's own.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};

use burn::tensor::Device;
use firebrick_core::{
    AdvantageEstimator, Environment, GroupFilter, Prompt, PromptSource, RewardShaper, Step,
    Tracker, Verifier, WorkedExample,
};
use firebrick_data::{DateTime, Tokenizer};
use firebrick_device::{Name, name_of};
use firebrick_models::{Decoder, PolicyModel};
use firebrick_rollout::RolloutEngine;
use firebrick_runs::{RunFolder, Store, Summary, find_damage, write_atomically};
use firebrick_train::{LrSchedule, Optimizer, PolicyLoss, Room};

use crate::{
    Error, Parameters, PolicyFiles, Result,
    diagnose::ENDED,
    journal::Journal,
    parts::Parts,
    plan,
    recipe::{Loaded, Recipe},
    resume::{Change, changes},
    run::{HELDOUT_PROMPTS, Progress, Run, read_progress},
    source::Sources,
    watch::{Stage, Watcher},
    wire::{Given, Wired, now, wire_given, wire_with},
};

/// Everything that `firebrick train` does with a recipe, in a program of one's own: it samples, judges
/// and updates, evaluates, writes checkpoints, keeps the record of the run, and goes on with a run that
/// was ended.
///
/// ```no_run
/// use firebrick::{Completion, Prompt, Recipe, Score, Session, Verifier};
///
/// /// Right is what ends with the reference.
/// struct Ends;
///
/// impl Verifier for Ends {
///     fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
///         match completion.text.ends_with(&prompt.reference) {
///             true => Score::right(&prompt.reference),
///             false => Score::wrong(""),
///         }
///     }
/// }
///
/// fn main() -> firebrick::Result<()> {
///     let summary = Session::new(Recipe::read("my.toml")?).verifier(Ends).run()?;
///     println!("{:?}", summary.heldout);
///     Ok(())
/// }
/// ```
///
/// A part that is replaced is never built: with an own verifier no judge's process is started and no
/// reward model read. A session prints nothing and handles no signal. Whoever wants to see it gives it a
/// [`Watcher`], and whoever wants to end it early a flag ([`Session::interrupted_by`]).
pub struct Session<M: PolicyModel = Decoder> {
    loaded: Loaded,
    parts: Parts<M>,
    wiring: Wiring<M>,
    runs: PathBuf,
    resume: bool,
    warmup: Option<PathBuf>,
    /// A method that means nothing to this session, and where it would.
    misplaced: Option<(&'static str, &'static str)>,
    sources: Sources,
    now: DateTime,
    trackers: Vec<Box<dyn Tracker>>,
    watcher: Box<dyn Watcher>,
    interrupted: Box<dyn FnOnce() -> Arc<AtomicBool> + Send>,
}

const OWN_POLICY: &str = "with a policy of the program's own";

type Wire<M> = fn(&Recipe, Parts<M>, Option<&Path>, &Sources, DateTime) -> Result<Wired<M>>;

/// Where policy, tokenizer and device come from.
enum Wiring<M: PolicyModel> {
    /// From the recipe.
    Recipe(Wire<M>),
    /// From the program.
    Given(Box<Given<M>>),
}

impl Session<Decoder> {
    /// The run of a recipe. [`Recipe::read`] gives one.
    pub fn new(recipe: impl Into<Loaded>) -> Self {
        Session::of(recipe.into(), Wiring::Recipe(wire_with))
    }
}

impl<M: PolicyModel> Session<M> {
    /// A run without a recipe file: `policy` learns from the prompts of `source`, tokenized by `tokenizer`,
    /// and what `verifier` says of its completions. All settings have a recipe's defaults
    /// ([`Session::settings`] changes them), and the run is called `run` ([`Session::name`]). What the program
    /// brings has no settings: those of the model, the data and the verifier are refused.
    ///
    /// The policy is on a device with autodiff, such as `Device::flex().autodiff()`, and the run computes there.
    pub fn builder(
        policy: M,
        tokenizer: Tokenizer,
        source: impl PromptSource + 'static,
        verifier: impl Verifier + 'static,
    ) -> Self {
        let given = Given {
            policy,
            tokenizer: Arc::new(tokenizer),
            files: Box::new(Parameters),
            context: usize::MAX / 2,
        };
        let wiring = Wiring::Given(Box::new(given));
        Session::of(without_a_file().into(), wiring).source(source).verifier(verifier)
    }

    fn of(loaded: Loaded, wiring: Wiring<M>) -> Self {
        Session {
            loaded,
            parts: Parts::default(),
            wiring,
            runs: "runs".into(),
            resume: false,
            warmup: None,
            misplaced: None,
            sources: Sources::of_environment(),
            now: now(),
            trackers: Vec::new(),
            watcher: Box::new(()),
            interrupted: Box::new(Arc::default),
        }
    }

    /// Changes settings of the recipe. They are checked by [`Session::run`], as those of a file are.
    pub fn settings(mut self, change: impl FnOnce(&mut Recipe)) -> Self {
        let name = std::mem::take(&mut self.loaded.name);
        change(&mut self.loaded.recipe);
        self.loaded.recipe.name.get_or_insert(name);
        self.loaded = Loaded::from(self.loaded.recipe);
        self
    }

    /// Names the run, and so its folder.
    pub fn name(self, name: impl Into<String>) -> Self {
        self.settings(|recipe| recipe.name = Some(name.into()))
    }

    /// Judges completions.
    pub fn verifier(mut self, verifier: impl Verifier + 'static) -> Self {
        self.parts.verifier = Some(Box::new(verifier));
        self
    }

    /// Shapes rewards, after the shapers that were given before it. The first one takes the place of all
    /// of the recipe's.
    pub fn shaper(mut self, shaper: impl RewardShaper + 'static) -> Self {
        self.parts.shapers.get_or_insert_default().push(Box::new(shaper));
        self
    }

    /// Decides which groups are trained on.
    pub fn filter(mut self, filter: impl GroupFilter + 'static) -> Self {
        self.parts.filter = Some(Box::new(filter));
        self
    }

    /// Makes advantages of rewards. A critic that the recipe asks for is then not made.
    pub fn advantage(mut self, advantage: impl AdvantageEstimator + 'static) -> Self {
        self.parts.advantage = Some(Box::new(advantage));
        self
    }

    /// Gives the loss to minimise; KL penalty and entropy bonus stay the recipe's.
    pub fn loss(mut self, loss: impl PolicyLoss + 'static) -> Self {
        self.parts.loss = Some(Box::new(loss));
        self
    }

    /// Turns gradients into weights.
    pub fn optimizer(mut self, optimizer: impl Optimizer<M> + 'static) -> Self {
        self.parts.optimizer = Some(Box::new(optimizer));
        self
    }

    /// Gives the policy's learning rate.
    pub fn schedule(mut self, schedule: impl LrSchedule + 'static) -> Self {
        self.parts.schedule = Some(Box::new(schedule));
        self
    }

    /// Samples completions. An engine with other numerics or older weights than the trainer's goes with
    /// `loss.importance_cap`.
    pub fn engine(mut self, engine: impl RolloutEngine<M> + 'static) -> Self {
        self.parts.engine = Some(Box::new(engine));
        self
    }

    /// Talks with the policy between its turns. The recipe's `[environment]` has `kind = "own"`, and the limits. A verifier finds
    /// its part in [`Completion::outcome`](firebrick_core::Completion).
    pub fn environment(mut self, environment: impl Environment + 'static) -> Self {
        self.parts.environment = Some(Arc::new(environment));
        self
    }

    /// Gives the prompts to train on, tokenized for the policy.
    pub fn source(mut self, source: impl PromptSource + 'static) -> Self {
        self.parts.source = Some(Box::new(source));
        self
    }

    /// The prompts to evaluate on, the first `eval.prompts` of them if that is set; none of them may be
    /// trained on.
    pub fn heldout(mut self, prompts: Vec<Prompt>) -> Self {
        self.parts.heldout = Some(prompts);
        self
    }

    /// The examples that the warm-up imitates.
    pub fn worked(mut self, examples: Vec<WorkedExample>) -> Self {
        self.parts.worked = Some(examples);
        self
    }

    /// Records the run's numbers, besides its database and whatever other trackers were given.
    pub fn tracker(mut self, tracker: impl Tracker + 'static) -> Self {
        self.trackers.push(Box::new(tracker));
        self
    }

    /// Hears of the run while it goes; nobody does otherwise.
    pub fn watcher(mut self, watcher: impl Watcher + 'static) -> Self {
        self.watcher = Box::new(watcher);
        self
    }

    /// Where run folders are; `runs` in the current directory otherwise.
    pub fn runs(mut self, folder: impl Into<PathBuf>) -> Self {
        self.runs = folder.into();
        self
    }

    /// Goes on from the last checkpoint of the run of that name, if `resume` is true.
    pub fn resume(mut self, resume: bool) -> Self {
        self.resume = resume;
        self
    }

    /// Where runs that begin with the same warm-up keep what it left: the first of them writes it, the
    /// others begin there.
    pub fn share_warmup(mut self, folder: impl Into<PathBuf>) -> Self {
        self.warmup = Some(folder.into());
        self
    }

    /// Finds the models and data that the recipe names. By default they are paths of this machine, or names on
    /// the Hub, whose address, cache and token the environment gives as it does to Python
    /// ([`Sources::of_environment`]). With [`Sources::here`] a session reads no environment and no name.
    pub fn sources(mut self, sources: Sources) -> Self {
        self.sources = sources;
        self.of_recipe("Session::sources")
    }

    /// Sets the date that chat templates print as today's.
    pub fn today(mut self, now: DateTime) -> Self {
        self.now = now;
        self.of_recipe("Session::today")
    }

    fn of_recipe(mut self, method: &'static str) -> Self {
        if let Wiring::Given(_) = self.wiring {
            self.misplaced = Some((method, "where a recipe names model and data"));
        }
        self
    }

    /// Gives the flag that ends the run when it is set: in a second or two, with a checkpoint of the last whole step
    /// where there is none. What was sampled of the step after it is in the database, and a resumed run goes on with it. It is
    /// asked for once everything is loaded, so what makes it, such as a handler of Ctrl-C, is not in the way before.
    pub fn interrupted_by(
        mut self,
        flag: impl FnOnce() -> Arc<AtomicBool> + Send + 'static,
    ) -> Self {
        self.interrupted = Box::new(flag);
        self
    }

    /// How a given policy is written and read; its parameters by name otherwise. A recipe's policy is a
    /// Hugging Face folder.
    pub fn files(mut self, files: impl PolicyFiles<M> + 'static) -> Self {
        match &mut self.wiring {
            Wiring::Given(given) => given.files = Box::new(files),
            Wiring::Recipe(_) => self.misplaced = Some(("Session::files", OWN_POLICY)),
        }
        self
    }

    /// The most tokens that a given policy takes, prompt and completion together; without end otherwise.
    pub fn context(mut self, tokens: usize) -> Self {
        match &mut self.wiring {
            Wiring::Given(given) => given.context = tokens,
            Wiring::Recipe(_) => self.misplaced = Some(("Session::context", OWN_POLICY)),
        }
        self
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// When the settings do not agree with each other, a part cannot be had, or something fails on the
    /// way. What was done before the last checkpoint is on disk, and a resumed session goes on from it.
    pub fn run(self) -> Result<Summary> {
        let Session { loaded, parts, wiring, runs, resume, warmup, sources, now, .. } = self;
        let (mut trackers, interrupted) = (self.trackers, self.interrupted);
        let mut watcher = self.watcher;
        if let Some((part, needs)) = self.misplaced {
            return Err(Error::NoEffect { part, needs });
        }
        let (loaded, own_policy) = match &wiring {
            Wiring::Recipe(_) => (loaded, false),
            Wiring::Given(given) => (of_program(loaded, &given.policy.device())?, true),
        };
        // As a file is checked: a program may have changed the settings.
        Recipe::parse(Path::new("settings.toml"), &loaded.recipe.to_toml(), &[])?;
        let earlier = match resume {
            true => Some(Earlier::find(&runs, &loaded)?),
            false => RunFolder::check_free(&runs, &loaded.name).map(|()| None)?,
        };
        // A policy and data of the program's own are at no path.
        let settled = if own_policy { loaded } else { loaded.with_absolute_text() };
        let Loaded { recipe, text, name } = settled;
        // Before anything is loaded, which takes of the memory that there is.
        let warning = if own_policy { None } else { plan::warning(&recipe, &sources) };
        let checkpoint = earlier.as_ref().and_then(|earlier| earlier.checkpoint.clone());
        let warmed_up = warmup.clone().filter(|folder| folder.is_dir()).map(|folder| (0, folder));
        let checkpoint = checkpoint.or(warmed_up);
        let path = checkpoint.as_ref().map(|(_, path)| path.as_path());
        watcher.begin(Stage::Load, 0);
        let mut parts = parts;
        parts.run_folder = std::path::absolute(runs.join(&name)).ok();
        let wired = match wiring {
            Wiring::Recipe(wire) => wire(&recipe, parts, path, &sources, now),
            Wiring::Given(given) => wire_given(&recipe, parts, *given, path),
        };
        let progress = || path.map_or(Ok(Progress::default()), read_progress);
        let (mut wired, progress) =
            wired.and_then(|wired| Ok((wired, progress()?))).map_err(|error| match path {
                Some(path) => error.of_checkpoint(path),
                None => error,
            })?;
        watcher.end();
        // A new folder is made last: whatever can be wrong before is found before.
        let (folder, damaged, changes) = match earlier {
            Some(earlier) => (earlier.folder, earlier.damaged, earlier.changes),
            None => (RunFolder::create(&runs, &name)?, Vec::new(), Vec::new()),
        };
        // Those of another run, whose warm-up this one shares, are not this one's.
        if !resume || changes.iter().any(Change::makes_room) {
            wired.trainer.state.room = Room::default();
        }
        wired.trainer.restore_room();
        write_atomically(&folder.recipe(), text.as_bytes())?;
        let mut store = Store::open(&folder.database())?;
        store.set_info(HELDOUT_PROMPTS, &wired.heldout.len().to_string())?;
        store.set_info(ENDED, "")?;
        let read = wired.report.as_ref().map(|report| format!("; {report}")).unwrap_or_default();
        let mut notes = vec![format!("{name}: {}{read}", wired.size)];
        notes.extend(wired.notes.try_iter());
        notes.extend(wired.device.iter().chain(&warning).cloned());
        for (step, problem) in damaged {
            // Under its name it would be taken for the newest, and whole ones removed for it.
            let aside = folder.set_aside(step)?;
            notes.push(format!("{problem}; it is in {} now", aside.display()));
        }
        match &checkpoint {
            Some((step, path)) => {
                store.truncate_after(*step)?;
                for tracker in &mut trackers {
                    if let Err(error) = tracker.resume(*step) {
                        notes.push(format!("a tracker could not go on from step {step}: {error}"));
                    }
                }
                notes.push(format!("resumed from {}", path.display()));
            }
            None if resume => {
                store.truncate_after(0)?;
                notes.push("no checkpoint yet: beginning anew".into());
            }
            None => {}
        }
        notes.extend(changes.iter().map(|change| format!("now with {change}")));
        for note in &notes {
            watcher.note(note);
            store.event(wired.trainer.state.step, note)?;
        }
        let journal = Journal::new(store, &recipe)?;
        let interrupted = interrupted();
        let wired = wired.heeding(journal.clone(), &interrupted);
        let (clock, phase) = (Instant::now(), String::new());
        let run = Run {
            recipe,
            wired,
            folder,
            journal,
            trackers,
            watcher,
            interrupted,
            progress,
            warmup,
            clock,
            phase,
        };
        run.run()
    }
}

/// The recipe of a session that was not given one.
fn without_a_file() -> Recipe {
    let own = || Some("(the program's own)".into());
    let mut recipe = Recipe::default();
    // A recipe has to name both; this one is kept with the run, and read again when it goes on.
    (recipe.model.path, recipe.data.train) = (own(), own());
    recipe
}

/// Refuses settings of what the program brings itself, and sets the device that its policy is on.
fn of_program(loaded: Loaded, device: &Device) -> Result<Loaded> {
    const BROUGHT: [&str; 5] = ["model.", "data.", "reward.kind", "rollout.engine", "eval.sets"];
    let Loaded { mut recipe, name, .. } = loaded;
    let changes = changes(&without_a_file(), &recipe);
    let brought = |change: &Change| BROUGHT.iter().any(|begin| change.key.starts_with(begin));
    if let Some(change) = changes.into_iter().find(brought) {
        return Err(Error::Brought { key: change.key });
    }
    crate::device::choose_kernels(&recipe);
    if let Some(Name { kind, index }) = name_of(device) {
        recipe.device = crate::recipe::Device { kind, index, ..recipe.device };
    }
    recipe.name.get_or_insert(name);
    Ok(recipe.into())
}

/// A run that is to go on, as it lies on the disk.
struct Earlier {
    folder: RunFolder,
    /// The newest; none when the run ended before its first.
    checkpoint: Option<(Step, PathBuf)>,
    /// Newer ones that are damaged, each with what is wrong, in words.
    damaged: Vec<(Step, String)>,
    /// The settings of the recipe that differ from those in the folder.
    changes: Vec<Change>,
}

impl Earlier {
    fn find(runs: &Path, loaded: &Loaded) -> Result<Self> {
        let folder = RunFolder::resume(runs, &loaded.name)?;
        let mut checkpoints = folder.checkpoints()?;
        let mut damaged = Vec::new();
        // The newest whole one.
        let checkpoint = loop {
            let Some((step, path)) = checkpoints.pop() else { break None };
            match find_damage(&path) {
                None => break Some((step, path)),
                Some((file, problem)) => {
                    let problem = format!("{} is damaged: {file} {problem}", path.display());
                    damaged.push((step, problem));
                }
            }
        };
        if let (None, Some((_, newest))) = (&checkpoint, damaged.first()) {
            return Err(Error::AllDamaged { newest: newest.clone() });
        }
        let before = Recipe::read(folder.recipe())?.recipe;
        let changes = changes(&before, &loaded.recipe);
        // Before the first checkpoint there is nothing that could not follow.
        let refused = changes.iter().filter(|change| change.refused() && checkpoint.is_some());
        let refused: Vec<String> = refused.map(Change::to_string).collect();
        match refused.is_empty() {
            true => Ok(Earlier { folder, checkpoint, damaged, changes }),
            false => Err(Error::Changed { run: folder.path().into(), changes: refused }),
        }
    }
}
