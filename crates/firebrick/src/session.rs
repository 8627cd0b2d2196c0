//! Runs a complete training from your own program.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};

use burn::tensor::Device;
use firebrick_core::{
    AdvantageEstimator, Environment, GroupFilter, Prompt, PromptSource, RewardShaper, SftExample,
    Step, Tracker, Verifier,
};
use firebrick_data::DateTime;
use firebrick_device::{Name, name_of};
use firebrick_models::{Decoder, PolicyModel};
use firebrick_rollout::RolloutEngine;
use firebrick_runs::{RunFolder, Store, Summary, checkpoints, find_damage, write_atomically};
use firebrick_train::{
    LocalLearner,
    algorithm::{LrSchedule, PolicyLoss},
    learner::{Optimizer, RemoteLearner},
};

use crate::{
    Error, Result,
    build::{
        BuiltRun, RunLearner, ServerPolicy, build_on_server, build_own_policy, build_with_parts,
        now,
    },
    custom_parts::{CustomParts, OwnPolicy},
    diagnose::ENDED,
    journal::Journal,
    plan,
    recipe::{Loaded, Recipe, TrainData, UpdateEngine},
    resume::{Change, changes},
    run::{Finished, HELDOUT_PROMPTS, Progress, Run, Steps, is_done, read_progress},
    source::{Sources, recipe_of_run},
    watch::{Stage, Watcher},
};

/// A complete run in your own program. It does all that `firebrick train` does with a recipe: it samples, judges and
/// updates, evaluates, writes checkpoints, keeps the record of the run, and continues a run that was ended.
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
///     let run = Session::new(Recipe::read("my.toml")?).verifier(Ends).run()?;
///     println!("{:?}", run.summary.heldout);
///     Ok(())
/// }
/// ```
///
/// A part that is replaced is never built: with your own verifier, no judge's process is started and no reward model is
/// read. A session prints nothing and handles no signal. To see its progress, give it a [`Watcher`]; to end it early,
/// give it a flag ([`Session::interrupted_by`]).
pub struct Session<M: PolicyModel = Decoder> {
    loaded: Loaded,
    parts: CustomParts<M>,
    build_from: BuildFrom<M>,
    runs: PathBuf,
    resume: bool,
    sft: Option<PathBuf>,
    trackers: Vec<Box<dyn Tracker>>,
    watcher: Box<dyn Watcher>,
    interrupted: Box<dyn FnOnce() -> Arc<AtomicBool> + Send>,
}

type BuildFn<M> = fn(
    &Recipe,
    CustomParts<M>,
    Option<&Path>,
    &Sources,
    DateTime,
) -> Result<BuiltRun<LocalLearner<M>>>;

/// Where policy, tokenizer and device come from.
enum BuildFrom<M: PolicyModel> {
    /// From the recipe, with the sources of its models and data, and the date that chat templates print as today's.
    Recipe(BuildFn<M>, Sources, DateTime),
    /// From the program.
    OwnPolicy(Box<OwnPolicy<M>>),
}

impl Session<Decoder> {
    /// Makes the session of a recipe, which [`Recipe::read`] returns. The models and data that it names are paths of
    /// this machine, or names on the Hub, whose address, cache and token come from the environment as they do for
    /// Python ([`Sources::of_environment`]).
    pub fn new(recipe: impl Into<Loaded>) -> Self {
        Session::with_sources(recipe, Sources::of_environment(), now())
    }

    /// Makes the session of a recipe whose models and data are found in `sources`, and whose chat templates print
    /// `today` as the date. With [`Sources::here`] a session reads no environment and looks up no name.
    pub fn with_sources(recipe: impl Into<Loaded>, sources: Sources, today: DateTime) -> Self {
        Session::from_loaded(recipe.into(), BuildFrom::Recipe(build_with_parts, sources, today))
    }
}

impl Session<Decoder> {
    /// Runs to the end, wherever the recipe says that the policy is, and returns the summary.
    ///
    /// # Errors
    /// As for [`Session::run`].
    pub fn run_anywhere(self) -> Result<Summary> {
        match self.loaded.recipe.engine {
            UpdateEngine::Local => Ok(self.run()?.summary),
            UpdateEngine::Tinker(_) => Ok(run_all(self.steps_on_server()?)?.summary),
        }
    }

    /// Prepares the run of a recipe whose policy is on a server (`engine.kind = "tinker"`), and returns its steps, as
    /// [`Session::steps`] does for a policy of this process. Optimizer and engine are the server's.
    ///
    /// # Errors
    /// As for [`Session::steps`]; also when the server can't be reached, or can't do what the recipe asks for.
    pub fn steps_on_server(self) -> Result<Steps<RemoteLearner<ServerPolicy>>> {
        if self.loaded.recipe.engine.is_local() {
            return Err(Error::NotOnServer);
        }
        self.start(|build_from, recipe, parts, path| match build_from {
            BuildFrom::Recipe(_, sources, today) => {
                build_on_server(recipe, parts, path, &sources, today)
            }
            // Its settings have no engine, or they were refused.
            BuildFrom::OwnPolicy(_) => Err(Error::NotOnServer),
        })
    }
}

impl<M: PolicyModel> Session<M> {
    /// Makes a session without a recipe file: the policy learns from the prompts of `source`, tokenized by its
    /// tokenizer, and from the verdicts of `verifier` on its completions. All settings have a recipe's
    /// defaults ([`Session::settings`] changes them), and the run is called `run` ([`Session::name`]). The
    /// parts that the program brings have no settings: settings of the model, the data and the verifier are
    /// refused.
    pub fn with_policy(
        own: OwnPolicy<M>,
        source: impl PromptSource + 'static,
        verifier: impl Verifier + 'static,
    ) -> Self {
        let build_from = BuildFrom::OwnPolicy(Box::new(own));
        Session::from_loaded(without_a_file().into(), build_from).source(source).verifier(verifier)
    }

    fn from_loaded(loaded: Loaded, build_from: BuildFrom<M>) -> Self {
        Session {
            loaded,
            parts: CustomParts::default(),
            build_from,
            runs: "runs".into(),
            resume: false,
            sft: None,
            trackers: Vec::new(),
            watcher: Box::new(()),
            interrupted: Box::new(Arc::default),
        }
    }

    /// Changes settings of the recipe. [`Session::run`] checks them as it checks those of a file.
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

    /// Sets the verifier that judges completions.
    pub fn verifier(mut self, verifier: impl Verifier + 'static) -> Self {
        self.parts.verifier = Some(Box::new(verifier));
        self
    }

    /// Adds a shaper of rewards, after those that were added before. The first one replaces all shapers of the
    /// recipe.
    pub fn shaper(mut self, shaper: impl RewardShaper + 'static) -> Self {
        self.parts.shapers.get_or_insert_default().push(Box::new(shaper));
        self
    }

    /// Sets the filter that decides which groups are trained on.
    pub fn filter(mut self, filter: impl GroupFilter + 'static) -> Self {
        self.parts.filter = Some(Box::new(filter));
        self
    }

    /// Sets the estimator that makes advantages of rewards. A critic that the recipe asks for is then not made.
    pub fn advantage(mut self, advantage: impl AdvantageEstimator + 'static) -> Self {
        self.parts.advantage = Some(Box::new(advantage));
        self
    }

    /// Sets the loss to minimise. The KL penalty and the entropy bonus stay the recipe's.
    pub fn loss(mut self, loss: impl PolicyLoss + 'static) -> Self {
        self.parts.loss = Some(Box::new(loss));
        self
    }

    /// Sets the optimizer, which turns gradients into weights.
    pub fn optimizer(mut self, optimizer: impl Optimizer<M> + 'static) -> Self {
        self.parts.optimizer = Some(Box::new(optimizer));
        self
    }

    /// Sets the schedule of the policy's learning rate.
    pub fn schedule(mut self, schedule: impl LrSchedule + 'static) -> Self {
        self.parts.schedule = Some(Box::new(schedule));
        self
    }

    /// Sets the engine that samples completions. If it has other numerics or older weights than the trainer,
    /// set `loss.tis_cap` too.
    pub fn engine(mut self, engine: impl RolloutEngine<M> + 'static) -> Self {
        self.parts.engine = Some(Box::new(engine));
        self
    }

    /// Sets the environment that talks with the policy between its turns. The recipe's `[environment]` needs
    /// `kind = "own"`, and has the limits. A verifier finds the environment's part in
    /// [`Completion::outcome`](firebrick_core::Completion).
    pub fn environment(mut self, environment: impl Environment + 'static) -> Self {
        self.parts.environment = Some(Arc::new(environment));
        self
    }

    /// Sets the source of the prompts to train on, tokenized for the policy.
    pub fn source(mut self, source: impl PromptSource + 'static) -> Self {
        self.parts.source = Some(Box::new(source));
        self
    }

    /// Sets the prompts to evaluate on. If `eval.prompts` is set, only that many of the first ones are used.
    /// None of them may be trained on.
    pub fn heldout(mut self, prompts: Vec<Prompt>) -> Self {
        self.parts.heldout = Some(prompts);
        self
    }

    /// Sets the examples that SFT imitates.
    pub fn sft_examples(mut self, examples: Vec<SftExample>) -> Self {
        self.parts.sft_examples = Some(examples);
        self
    }

    /// Adds a tracker that records the run's numbers, besides the run's database and the trackers that were
    /// added before.
    pub fn tracker(mut self, tracker: impl Tracker + 'static) -> Self {
        self.trackers.push(Box::new(tracker));
        self
    }

    /// Sets the watcher that receives the run's progress. By default there is none.
    pub fn watcher(mut self, watcher: impl Watcher + 'static) -> Self {
        self.watcher = Box::new(watcher);
        self
    }

    /// Sets the folder of the run folders. The default is `runs` in the current directory.
    pub fn runs(mut self, folder: impl Into<PathBuf>) -> Self {
        self.runs = folder.into();
        self
    }

    /// Continues from the last checkpoint of the run of that name, if `resume` is true.
    pub fn resume(mut self, resume: bool) -> Self {
        self.resume = resume;
        self
    }

    /// Sets a folder that runs with the same SFT share: the first of them writes the state after
    /// SFT there, and the others begin with it.
    pub fn share_sft(mut self, folder: impl Into<PathBuf>) -> Self {
        self.sft = Some(folder.into());
        self
    }

    /// Sets the flag that ends the run. Once the flag is set, the run ends in a second or two. It writes a checkpoint
    /// of the last finished step if there is none. The completions of the step after it are in the database, and a
    /// resumed run continues with them. `flag` is called once everything is loaded, so whatever it sets up, such as a
    /// handler of Ctrl-C, does not interfere before.
    pub fn interrupted_by(
        mut self,
        flag: impl FnOnce() -> Arc<AtomicBool> + Send + 'static,
    ) -> Self {
        self.interrupted = Box::new(flag);
        self
    }

    /// Runs to the end, and returns the policy and the summary.
    ///
    /// # Errors
    /// When the settings do not agree with each other, a part cannot be built, or something fails on the way.
    /// The work before the last checkpoint is on disk, and a resumed session continues from it.
    pub fn run(self) -> Result<Finished<M>> {
        run_all(self.steps()?)
    }

    /// Prepares the run, and returns its steps, so that the loop is yours.
    ///
    /// ```no_run
    /// # fn main() -> firebrick::Result<()> {
    /// use firebrick::{Recipe, Session};
    ///
    /// let mut steps = Session::new(Recipe::read("my.toml")?).steps()?;
    /// for step in &mut steps {
    ///     let reward = step?.metrics.get("reward/mean");
    ///     if reward.is_some_and(|reward| reward > 0.9) {
    ///         break;
    ///     }
    /// }
    /// println!("{:?}", steps.finish()?.summary.checkpoint);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the settings do not agree with each other, or a part cannot be built.
    pub fn steps(self) -> Result<Steps<LocalLearner<M>>> {
        if !self.loaded.recipe.engine.is_local() {
            return Err(Error::OnServer);
        }
        self.start(|build_from, recipe, parts, path| match build_from {
            BuildFrom::Recipe(build, sources, today) => build(recipe, parts, path, &sources, today),
            BuildFrom::OwnPolicy(own) => build_own_policy(recipe, parts, *own, path),
        })
    }

    /// Begins or continues the run that `build` builds.
    fn start<L: RunLearner>(
        self,
        build: impl FnOnce(BuildFrom<M>, &Recipe, CustomParts<M>, Option<&Path>) -> Result<BuiltRun<L>>,
    ) -> Result<Steps<L>> {
        let Session { loaded, parts, build_from, runs, resume, sft, .. } = self;
        let mut trackers = self.trackers;
        let interrupted = self.interrupted;
        let mut watcher = self.watcher;

        let (loaded, own_policy) = match &build_from {
            BuildFrom::Recipe(..) => (loaded, false),
            BuildFrom::OwnPolicy(own) => (of_program(loaded, &own.policy.device())?, true),
        };

        // The settings are checked as a file is, because a program may have changed them.
        Recipe::parse(Path::new("settings.toml"), &loaded.recipe.to_toml(), &[])?;
        let takes_over = !resume && made_no_step(&runs.join(&loaded.name));
        let earlier = if resume {
            Some(EarlierRun::find(&runs, &loaded)?)
        } else if takes_over {
            Some(EarlierRun::replaced(&runs, &loaded.name)?)
        } else {
            RunFolder::check_free(&runs, &loaded.name).map(|()| None)?
        };
        // A policy and data that the program brings have no path.
        let settled = if own_policy { loaded } else { loaded.with_absolute_text() };
        let Loaded { recipe, text, name } = settled;

        // Warnings come before anything is loaded, because that takes some of the memory.
        let warnings = match &build_from {
            BuildFrom::Recipe(..) if !recipe.engine.is_local() => [None, None],
            BuildFrom::Recipe(_, sources, _) => {
                [plan::warning(&recipe, sources), plan::long_steps(&recipe, sources)]
            }
            BuildFrom::OwnPolicy(_) => [None, None],
        };
        let checkpoint = earlier.as_ref().and_then(|earlier| earlier.checkpoint.clone());
        let shared = sft.clone().filter(|folder| folder.is_dir()).map(|folder| (0, folder));
        let checkpoint = checkpoint.or(shared);
        let path = checkpoint.as_ref().map(|(_, path)| path.as_path());
        watcher.begin(Stage::Load, 0);
        let mut parts = parts;
        parts.run_folder = std::path::absolute(runs.join(&name)).ok();
        let built = build(build_from, &recipe, parts, path);
        let progress = || path.map_or(Ok(Progress::default()), read_progress);
        let (mut built, progress) =
            built.and_then(|built| Ok((built, progress()?))).map_err(|error| match path {
                Some(path) => error.of_checkpoint(path),
                None => error,
            })?;
        watcher.end();

        // A new folder is made last, so that it is not made if anything before is wrong.
        let (mut folder, damaged, changes) = match earlier {
            Some(earlier) => (earlier.folder, earlier.damaged, earlier.changes),
            None => (RunFolder::create(&runs, &name)?, Vec::new(), Vec::new()),
        };
        // The reductions of another run, whose SFT this run shares, are not this run's.
        let forget = !resume || changes.iter().any(Change::makes_room);
        built.trainer.learner.restore_limits(forget);

        write_atomically(&folder.recipe(), text.as_bytes())?;
        let had_record = folder.database().exists();
        let mut store = Store::open(&folder.database())?;
        folder.guard_record();
        store.set_info(HELDOUT_PROMPTS, &built.heldout.len().to_string())?;
        // Empty while a process is running.
        store.set_info(ENDED, "")?;

        let read = built.report.as_ref().map(|report| format!("; {report}")).unwrap_or_default();
        let mut notes = vec![format!("{name}: {}{read}", built.size)];
        notes.extend(built.notes.try_iter());
        notes.extend(built.device.iter().chain(warnings.iter().flatten()).cloned());

        for (step, problem) in damaged {
            // Under its own name it would count as the newest checkpoint, and intact ones would be removed for
            // it.
            let aside = folder.set_aside(step)?;
            notes.push(format!("{problem}; the checkpoint is in {} now", aside.display()));
        }
        if resume && !had_record {
            notes.push(format!(
                "{} is missing: the record starts over, without the earlier steps",
                folder.database().display()
            ));
        }

        match &checkpoint {
            Some((step, path)) => {
                store.truncate_after(*step)?;
                for tracker in &mut trackers {
                    if let Err(error) = tracker.resume(*step) {
                        notes.push(format!(
                            "a tracker could not continue from step {step}: {error}"
                        ));
                    }
                }
                notes.push(format!("resumed from {}", path.display()));
            }
            None if resume => {
                store.truncate_after(0)?;
                notes.push("no checkpoint yet: starting over".into());
            }
            None => {}
        }
        if takes_over {
            store.clear()?;
            let folder = folder.path().display();
            notes.push(format!(
                "the run in {folder} ended before its first step: this one takes its place"
            ));
        }

        notes.extend(changes.iter().map(|change| format!("now with {change}")));
        for note in &notes {
            watcher.note(note);
            store.event(built.trainer.state.step, note)?;
        }

        let journal = Journal::new(store, &recipe)?;
        let interrupted = interrupted();
        let built = built.with_interrupt(journal.clone(), &interrupted);
        let clock = Instant::now();
        let phase = String::new();
        Ok(Steps::new(Run {
            recipe,
            built,
            folder,
            journal,
            trackers,
            watcher,
            interrupted,
            progress,
            sft,
            clock,
            phase,
        }))
    }
}

/// Makes all steps of a run, and ends it.
fn run_all<L: RunLearner>(mut steps: Steps<L>) -> Result<Finished<L::Policy>> {
    for step in &mut steps {
        step?;
    }
    steps.finish()
}

/// Returns the recipe of a session that has none.
fn without_a_file() -> Recipe {
    const OWN: &str = "(the program's own)";
    let mut recipe = Recipe::default();
    // A recipe has to name both. This one is kept with the run, and is read again when the run continues.
    recipe.model.path = Some(OWN.into());
    recipe.data.train = Some(TrainData::One(OWN.into()));
    recipe
}

/// Refuses settings of the parts that the program brings itself, and sets the device that its policy is on.
fn of_program(loaded: Loaded, device: &Device) -> Result<Loaded> {
    const BROUGHT: [&str; 8] = [
        "engine.",
        "model.",
        "data.",
        "sft.data",
        "reward.kind",
        "teacher",
        "rollout.engine",
        "eval.sets",
    ];
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

/// A run that is to continue, as it is on the disk.
struct EarlierRun {
    folder: RunFolder,
    /// Newest intact checkpoint; `None` if the run ended before its first.
    checkpoint: Option<(Step, PathBuf)>,
    /// Newer checkpoints that are damaged, each with its fault as text.
    damaged: Vec<(Step, String)>,
    /// Settings of the recipe that differ from those in the folder.
    changes: Vec<Change>,
}

impl EarlierRun {
    /// Takes the folder of a run that made no step.
    fn replaced(runs: &Path, name: &str) -> Result<Self> {
        let folder = RunFolder::take_over(runs, name, made_no_step)?;
        Ok(EarlierRun { folder, checkpoint: None, damaged: Vec::new(), changes: Vec::new() })
    }

    fn find(runs: &Path, loaded: &Loaded) -> Result<Self> {
        let folder = RunFolder::resume(runs, &loaded.name)?;
        let mut checkpoints = folder.checkpoints()?;
        let mut damaged = Vec::new();

        // The loop looks for the newest intact checkpoint.
        let checkpoint = loop {
            let Some((step, path)) = checkpoints.pop() else { break None };
            match find_damage(&path)? {
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

        let before = recipe_of_run(folder.path())?.recipe;
        let changes = changes(&before, &loaded.recipe);
        // Before the first checkpoint any change can be followed.
        let refused = changes.iter().filter(|change| change.refused() && checkpoint.is_some());
        let refused: Vec<String> = refused.map(Change::to_string).collect();
        if !refused.is_empty() {
            return Err(Error::Changed { run: folder.path().into(), changes: refused });
        }

        Ok(EarlierRun { folder, checkpoint, damaged, changes })
    }
}

/// Tells whether the run in `folder` ended before its first step, supervised ones included. Its checkpoint of step 0 is
/// then the model that it began with, so that nothing is lost with it. A record that can't be read may hold anything.
fn made_no_step(folder: &Path) -> bool {
    let is_initial = |(step, path): &(Step, PathBuf)| {
        *step == 0 && read_progress(path).is_ok_and(|progress| progress.is_initial())
    };
    let has_no_steps = |database: &Path| {
        let store = Store::open_to_ask(database)?;
        // A run of no steps that was complete has measured the model.
        let is_complete = store.info(ENDED)?.is_some_and(|why| is_done(&why));
        Ok::<_, Error>(!is_complete && store.last_step()? == 0)
    };

    let database = folder.join("run.db");
    folder.join("recipe.toml").is_file()
        && database.is_file()
        && has_no_steps(&database).unwrap_or(false)
        && checkpoints(folder).is_ok_and(|all| all.iter().all(is_initial))
}
