//! A training run from its first evaluation to its summary: everything around the steps.

mod explain;
mod measure;
mod record;
mod save;

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Instant, UNIX_EPOCH},
};

use firebrick_core::{Seed, SftExample, Step, Tracker};
use firebrick_device::{Cause, Failure};
use firebrick_runs::{
    Completions, HELDOUT, Heldout, Outcome, RunError, RunFolder, Seconds, Store, Summary, TRAIN,
    TokensPerSecond, peak_rss_bytes, read_own, write_atomically,
};
use firebrick_train::{SamplingReport, StepReport, TrainError, Trainer, UpdateTotals};
use rand::{Rng as _, seq::IndexedRandom as _};
use serde::{Deserialize, Serialize};

use record::keep_event;

use crate::{
    build::{BuiltRun, RunLearner},
    device,
    error::Error,
    journal::{Journal, lock},
    layout::TRAINER,
    recipe::Recipe,
    watch::{Phases, Stage, Watcher, examples},
};

/// A run that is under way.
pub(crate) struct Run<L: RunLearner> {
    /// Recipe of the run.
    pub(crate) recipe: Recipe,
    /// Trainer and its parts.
    pub(crate) built: BuiltRun<L>,
    /// Folder of the run.
    pub(crate) folder: RunFolder,
    /// Record, and the groups that the engine has sampled.
    pub(crate) journal: Arc<Mutex<Journal>>,
    /// Other receivers of the run's numbers.
    pub(crate) trackers: Vec<Box<dyn Tracker>>,
    /// Listener of the run.
    pub(crate) watcher: Box<dyn Watcher>,
    /// A flag that is set from outside: the run then saves its work and ends.
    pub(crate) interrupted: Arc<AtomicBool>,
    /// Work and the measurements so far, by earlier processes too.
    pub(crate) progress: Progress,
    /// Folder in which the state after SFT is kept for other runs, besides the run's own
    /// checkpoints.
    pub(crate) sft: Option<PathBuf>,
    /// Time up to which seconds have been added to the progress.
    pub(crate) clock: Instant,
    /// Current work, such as `step 12`, for the message of a device that fails.
    pub(crate) phase: String,
}

/// `stopped_because` of a run that Ctrl-C ended.
pub const INTERRUPTED: &str = "interrupted";

/// Limits that end a run, with their meaning.
const LIMITS: [(&str, &str); 4] = [
    ("steps", "all its steps are done"),
    ("epochs", "all its epochs are done"),
    ("stop_at", "held-out accuracy reached train.stop_at"),
    ("patience", "the last train.patience evaluations were no better than the best before"),
];

/// Returns the reason why a run ended, as text. `stopped_because` has the name of a limit, or a message, which is
/// returned unchanged.
pub fn reason(stopped_because: &str) -> &str {
    let limit = LIMITS.iter().find(|(name, _)| *name == stopped_because);
    limit.map_or(stopped_because, |(_, words)| words)
}

/// Tells whether a run that ended for this reason is complete.
pub fn is_done(stopped_because: &str) -> bool {
    LIMITS.iter().any(|(name, _)| *name == stopped_because)
}

/// Key in `run.db` of the number of prompts that an accuracy is measured on.
pub const HELDOUT_PROMPTS: &str = "heldout_prompts";

/// Measurements that a resumed run has to remember: part of every checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// Number of supervised steps that were done.
    sft_steps: Step,
    /// Loss of the last supervised step, if it was finite.
    #[serde(default)]
    sft_loss: Option<f64>,
    /// Last supervised step after which the policy was measured.
    #[serde(default)]
    sft_measured: Step,
    /// Number made from the examples of the first supervised step.
    #[serde(default)]
    sft_examples: Option<u64>,
    /// True if SFT is over.
    sft_done: bool,
    /// Last step after which the policy was evaluated.
    #[serde(default)]
    evaluated: Step,
    /// Step with the best held-out accuracy, and that accuracy. Of equals it is the one with the most credit, or else
    /// the first.
    #[serde(default)]
    best: Option<(Step, f64)>,
    /// Mean credit after that step.
    #[serde(default)]
    best_credit: Option<f64>,
    /// Number of evaluations since then.
    #[serde(default)]
    since_best: u64,
    /// Latest accuracy on each of the further sets.
    #[serde(default)]
    sets: BTreeMap<String, f64>,
    heldout: Heldout,
    seconds: Seconds,
    rollout_tokens: f64,
    update_tokens: f64,
}

impl Progress {
    /// Tells whether the weights are still those that the run began with, as far as supervised steps go.
    pub(crate) fn is_initial(&self) -> bool {
        self.sft_steps == 0
    }
}

/// File of a checkpoint's `trainer/` folder that holds the [`Progress`].
pub(crate) const PROGRESS: &str = "progress.json";

/// The steps of a run ([`Session::steps`](crate::Session::steps)), one after the other.
///
/// Before the first step, and between two, the run does all that belongs there: SFT, evaluations, checkpoints. If you
/// stop before the last step, [`Steps::finish`] ends the run as an interruption does, so that it can be resumed. Without
/// `finish`, the run has no summary and counts as one that still runs, and the steps after the last checkpoint are lost.
#[must_use = "the steps are made one by one, and `finish` ends the run"]
pub struct Steps<L: RunLearner> {
    run: Run<L>,
    /// True if the next thing to do is a step, or what comes between two.
    begun: bool,
    /// True once the user was warned that completions could not be judged: once is enough.
    warned: bool,
    /// A step's reason to end the run.
    stop: Option<String>,
    /// True if anything is new since the last checkpoint.
    unsaved: bool,
    ended: Option<Ending>,
}

/// How a run ended.
enum Ending {
    /// For this reason.
    Done(String),
    /// With an error, which the caller has.
    Failed,
}

/// What a run leaves.
pub struct Finished<P> {
    /// The policy, as the last update left it. If a step was interrupted between its updates, it is the policy of no
    /// checkpoint.
    pub policy: P,
    /// The summary, which is also in the run's folder.
    pub summary: Summary,
}

impl<P> fmt::Debug for Finished<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finished").field("summary", &self.summary).finish_non_exhaustive()
    }
}

impl<L: RunLearner> Steps<L> {
    pub(crate) fn new(run: Run<L>) -> Self {
        Steps { run, begun: false, warned: false, stop: None, unsaved: false, ended: None }
    }

    /// Returns the policy as the last update left it.
    pub fn policy(&self) -> &L::Policy {
        self.run.built.trainer.learner.policy()
    }

    /// Ends the run, and returns the policy and the summary.
    ///
    /// # Errors
    /// When a step has failed, or the summary can't be written.
    pub fn finish(mut self) -> Result<Finished<L::Policy>, Error> {
        // After the last step only what follows it is left.
        let is_over = self.stop.is_some() || self.run.over().is_some();
        if self.ended.is_none()
            && is_over
            && let Some(Err(error)) = self.next()
        {
            return Err(error);
        }

        let reason = match self.ended.take() {
            Some(Ending::Done(reason)) => reason,
            Some(Ending::Failed) => return Err(Error::StepFailed),
            None => {
                self.run.keep_steps();
                INTERRUPTED.to_owned()
            }
        };
        self.run.finish(reason)
    }

    /// Goes on to the end of the next step. Returns its report, or the reason for the run's end.
    fn advance(&mut self) -> Result<Result<StepReport, String>, Error> {
        if !self.begun {
            self.run.prepare()?;
            self.begun = true;
        }

        let step = self.run.built.trainer.state.step;
        if let Some(reason) = self.between()? {
            return Ok(Err(reason));
        }

        self.run.check_interrupted()?;
        let report = self.run.step(step + 1, &mut self.warned)?;
        self.stop.clone_from(&report.stop);
        self.unsaved = true;
        Ok(Ok(report))
    }

    /// Does what comes between two steps: evaluations and checkpoints. Returns the reason to end the run, if there is
    /// one.
    fn between(&mut self) -> Result<Option<String>, Error> {
        let run = &mut self.run;
        let step = run.built.trainer.state.step;
        let limit = run.over();
        let is_last = self.stop.is_some() || limit.is_some();
        let mut reached = None;

        // A run that ended during this evaluation repeats it when it continues. So does a run whose device failed
        // in its last evaluation.
        let measures = step > run.progress.evaluated
            && (is_last || step.is_multiple_of(run.recipe.eval.every.max(1)));
        if measures {
            run.measure_step(step)?;
            self.unsaved = true;
        }
        if step > 0 && step == run.progress.evaluated {
            reached = run.reached();
        }

        let improved = run.progress.best.is_some_and(|(best, _)| best == step);
        let best = run.recipe.checkpoint.best && measures && improved;
        let every = step.is_multiple_of(run.recipe.checkpoint.every.max(1));
        let due = is_last || reached.is_some() || every || best;
        if self.unsaved && due {
            run.checkpoint()?;
            self.unsaved = false;
        }

        let reached = reached.map(Into::into);
        Ok(self.stop.take().or(reached).or_else(|| limit.map(Into::into)))
    }
}

impl<L: RunLearner> Iterator for Steps<L> {
    type Item = Result<StepReport, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended.is_some() {
            return None;
        }

        let recipe = self.run.recipe.clone();
        let error = match device::guarded(&recipe, || self.advance()) {
            Ok(Ok(Ok(report))) => return Some(Ok(report)),
            Ok(Ok(Err(reason))) => {
                self.ended = Some(Ending::Done(reason));
                return None;
            }
            // The flag is the reason, whichever part stopped first.
            Ok(Err(_)) if self.run.interrupted.load(Ordering::Relaxed) => {
                self.run.keep_steps();
                self.ended = Some(Ending::Done(INTERRUPTED.to_owned()));
                return None;
            }
            Ok(Err(error)) => {
                // The verifier may have said why.
                self.run.pass_on_notes();
                self.run.keep_steps();
                error
            }
            Err(failure) => self.run.rescue(&failure),
        };

        self.run.end_with(&error.to_string());
        self.run.settle_record();
        self.ended = Some(Ending::Failed);
        Some(Err(error))
    }
}

impl<L: RunLearner> Run<L> {
    /// Does everything before the first step.
    fn prepare(&mut self) -> Result<(), Error> {
        let Progress { sft_done, sft_steps, heldout, .. } = &self.progress;
        let untouched = !sft_done && *sft_steps == 0 && self.built.trainer.state.step == 0;
        if untouched && heldout.initial.is_none() {
            // Another evaluation of the same step follows SFT, so the one before it has a different name.
            let has_sft = self.recipe.sft.steps > 0;
            let source = if has_sft { "initial" } else { HELDOUT };
            if let Some(report) = self.evaluate(source)? {
                self.progress.heldout.initial = Some(report.accuracy);
                self.progress.heldout.initial_credit = Some(report.credit);
                self.show_accuracy(0, &report);
            }
        }

        let mut is_pending = !self.progress.sft_done;
        if is_pending {
            self.run_sft()?;
        }

        // A run that ended during this evaluation repeats it when it continues.
        let Heldout { after_sft, .. } = self.progress.heldout;
        let measures = self.recipe.sft.steps > 0 && after_sft.is_none();
        if measures
            && self.built.trainer.state.step == 0
            && let Some(report) = self.evaluate(HELDOUT)?
        {
            self.progress.heldout.after_sft = Some(report.accuracy);
            self.show_accuracy(0, &report);
            is_pending = true;
        }

        if is_pending {
            self.checkpoint()?;
            self.keep_sft()?;
        }

        self.keep_reference()?;
        let BuiltRun { trainer, critic, .. } = &mut self.built;
        trainer.learner.begin_critic(critic.as_ref());

        if let Some(limit) = self.over() {
            self.note(&format!(
                "all {limit} of the run are done; --set train.{limit}=N makes it longer"
            ));
        } else {
            self.compare_epochs();
        }
        Ok(())
    }

    /// Tells whether there are finished steps that no checkpoint has. If a device fails in SFT, the
    /// moments may be half a step ahead of the weights; and step 0 is the state after SFT.
    fn has_unsaved_steps(&self) -> bool {
        let trainer = &self.built.trainer;
        let step = trainer.state.step;
        let sft_done = self.progress.sft_done;
        let ended = self.interrupted.load(Ordering::Relaxed) && self.progress.sft_steps > 0;
        let whole = (sft_done || ended) && !trainer.learner.is_mid_step();
        whole && (step == 0 || !self.folder.checkpoint(step).is_dir())
    }

    /// Saves the finished steps, whatever ended the run, such as an engine that died, or the cap on sampling.
    fn keep_steps(&mut self) {
        if self.has_unsaved_steps()
            && let Err(unsaved) = self.checkpoint()
        {
            // This is only a note: the error that ended the run is the one to fix.
            let step = self.built.trainer.state.step;
            self.note(&format!("step {step} could not be saved: {unsaved}"));
        }
    }

    /// Saves whatever a failed device left intact, and says where the run can continue.
    fn rescue(&mut self, failure: &Failure) -> Error {
        let trainer = &self.built.trainer;
        let step = trainer.state.step;
        let device = trainer.learner.device().inner();
        let mut unsaved = String::new();

        // The weights of a finished step can still be read if the device is not lost.
        if self.has_unsaved_steps() && failure.cause() != Cause::Lost {
            let recipe = self.recipe.clone();
            match device::guarded(&recipe, || self.checkpoint()) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => unsaved = format!(" (step {step} could not be saved: {error})"),
                Err(failure) => unsaved = format!(" (step {step} could not be saved: {failure})"),
            }
        }

        let saved = match self.folder.checkpoints().ok().and_then(|mut all| all.pop()) {
            Some((step, path)) => {
                format!("step {step} is saved in {}: --resume continues from it", path.display())
            }
            None => "no step was finished, so nothing is saved".into(),
        };

        let smaller = if self.phase.starts_with("the evaluation") {
            device::fewer_sequences(&self.recipe)
        } else {
            // By now an update has been split into the smallest possible parts.
            format!(
                "{} if the device was sampling, else rollout.max_completion_tokens (now {}); \
                 `firebrick plan` says what fits",
                device::fewer_sequences(&self.recipe),
                self.recipe.rollout.max_completion_tokens
            )
        };

        let phase = self.phase.clone();
        device::failed(&self.recipe, &device, phase, failure, smaller, saved + &unsaved)
    }

    /// Does supervised steps, until the recipe's number of them or its accuracy is reached.
    fn run_sft(&mut self) -> Result<(), Error> {
        let sft = self.recipe.sft.clone();
        self.compare_examples();
        self.watcher.begin(Stage::Sft, sft.steps);
        self.watcher.advance(self.progress.sft_steps);

        loop {
            let step = self.progress.sft_steps;
            let last = step >= sft.steps;
            let measures = step.is_multiple_of(sft.every.max(1)) || last;
            if measures && step > self.progress.sft_measured && self.measure_sft(step)? {
                break;
            }
            if last {
                break;
            }
            self.check_interrupted()?;
            if step > 0 && step.is_multiple_of(self.recipe.checkpoint.every.max(1)) {
                self.checkpoint()?;
            }
            self.sft_step(step + 1)?;
        }

        self.watcher.end();
        self.built.trainer.learner.end_sft();
        self.progress.sft_done = true;
        Ok(())
    }

    /// Warns the user if SFT continues with other examples than it began with.
    fn compare_examples(&mut self) {
        if self.built.sft_examples.is_empty() {
            return;
        }
        let examples = fingerprint(&self.built.sft_examples);
        let before = self.progress.sft_examples.replace(examples);
        if before.is_some_and(|before| before != examples) {
            self.note(
                "the examples of SFT are others than those it began with: the file of sft.data has changed, or a \
                 limit on its rows",
            );
        }
    }

    fn sft_step(&mut self, step: Step) -> Result<(), Error> {
        self.phase = format!("SFT step {step}");
        let began = Instant::now();

        let sft = &self.recipe.sft;
        // The rate rises over 50 steps or a tenth of them, whichever is shorter, because Adam's moments are unreliable
        // in its first steps.
        let rise = (sft.steps as f64 / 10.0).clamp(1.0, 50.0);
        let lr = self.built.sft_lr * (step as f64 / rise).min(1.0);
        let batch = sft.batch;

        let examples = self.examples(step, batch);
        let trainer = &mut self.built.trainer;
        let backoff = trainer.learner.limits();
        trainer.sampler.engine.sleep();
        let (loss, outcome) = trainer.learner.sft_step(&examples, lr)?;

        self.explain_oom_backoff(backoff);
        if outcome.skipped {
            self.note(&format!("SFT step {step} was skipped: its gradient was not finite"));
        }

        self.watcher.advance(1);
        self.progress.sft_loss = Some(loss).filter(|loss| loss.is_finite());
        self.progress.sft_steps = step;
        self.progress.seconds.sft += began.elapsed().as_secs_f64();
        Ok(())
    }

    fn examples(&self, step: Step, batch: usize) -> Vec<SftExample> {
        let mut rng = self.built.trainer.seed.derive("warmup", &[step]).rng();
        let sft_examples = &self.built.sft_examples;
        (0..batch).filter_map(|_| sft_examples.choose(&mut rng).cloned()).collect()
    }

    /// Does one rollout step.
    fn step(&mut self, step: Step, warned: &mut bool) -> Result<StepReport, Error> {
        self.folder.check()?;
        self.phase = format!("step {step}");
        let backoff = self.built.trainer.learner.limits();

        // Whatever arrives after this belongs to this step.
        lock(&self.journal).turn_to(Some((TRAIN, step)));
        let keep = |text: &str| keep_event(&self.journal, step, text);
        let watcher = self.watcher.as_mut();
        let notes = &self.built.notes;
        let phases = &mut Phases { watcher, notes, keep: &keep };
        let mut report = self.built.trainer.step(phases)?;
        let StepReport { sampling, update, metrics, .. } = &mut report;

        self.explain_oom_backoff(backoff);
        self.explain_journal(sampling.completions);
        self.count(sampling, update);
        metrics.set("time/record", lock(&self.journal).take_seconds());
        metrics.set("time/clock", UNIX_EPOCH.elapsed().unwrap_or_default().as_secs_f64());
        if let Some(bytes) = peak_rss_bytes() {
            metrics.set("memory/peak_bytes", bytes as f64);
        }

        let StepReport { sampling, update, metrics, groups, skipped, .. } = &report;
        self.watcher.metrics(step, metrics);
        let seed = Seed::run(self.recipe.seed).derive("sampled", &[step]);
        for example in examples(groups, seed) {
            self.watcher.sampled(step, &example);
        }
        self.pass_on_notes();
        *warned = *warned || self.explain_errors(step, metrics, sampling.completions);
        if !self.explain_refused(step, metrics) {
            self.explain_empty(sampling, update);
        }
        self.save_skipped(step, skipped)?;

        let began = Instant::now();
        // A step that ends the run did not train.
        let trains = report.stop.is_none();
        let statuses = if trains { report.statuses.clone() } else { BTreeMap::new() };
        let outcome = Outcome { statuses, trained: report.trained.clone() };
        self.record(step, metrics, groups.clone(), outcome);
        self.look_for_alarms(step);
        lock(&self.journal).spend(began);

        let count = self.built.trainer.state.skipped_in_a_row;
        let most = self.recipe.train.max_skipped;
        if most > 0 && count > most && !skipped.is_empty() {
            let batch = self.folder.skipped(step, skipped.len().saturating_sub(1));
            return Err(Error::Diverged { count, batch });
        }
        Ok(report)
    }

    fn check_interrupted(&self) -> Result<(), Error> {
        if self.interrupted.load(Ordering::Relaxed) {
            Err(TrainError::Interrupted.into())
        } else {
            Ok(())
        }
    }

    /// Returns the limit that the run has reached, by its key in `[train]`.
    fn over(&self) -> Option<&'static str> {
        let train = &self.recipe.train;
        let Trainer { state, sampler, .. } = &self.built.trainer;
        let size = sampler.source.size() as f64;
        let drawn = |epochs: f64| state.cursor as f64 >= (epochs * size).ceil();
        if state.step >= train.steps {
            Some("steps")
        } else {
            train.epochs.is_some_and(drawn).then_some("epochs")
        }
    }

    fn count(&mut self, sampling: &SamplingReport, update: &UpdateTotals) {
        let progress = &mut self.progress;
        progress.seconds.rollout += sampling.rollout_seconds;
        progress.seconds.reward += sampling.reward_seconds;
        progress.seconds.update += update.seconds;
        progress.rollout_tokens += sampling.tokens as f64;
        progress.update_tokens += update.tokens as f64;
    }

    fn read_clock(&mut self) {
        let now = Instant::now();
        self.progress.seconds.total += (now - self.clock).as_secs_f64();
        self.clock = now;
    }

    fn finish(mut self, stopped_because: String) -> Result<Finished<L::Policy>, Error> {
        self.read_clock();
        self.end_with(&stopped_because);
        self.settle_record();

        let Run { built, folder, journal, mut watcher, progress, .. } = self;
        let state = &built.trainer.state;
        let rate = |tokens: f64, seconds: f64| if seconds > 0.0 { tokens / seconds } else { 0.0 };
        let summary = Summary {
            heldout: progress.heldout,
            steps: state.step,
            completions: Completions { generated: state.generated, trained: state.trained },
            tokens_per_second: TokensPerSecond {
                rollout: rate(progress.rollout_tokens, progress.seconds.rollout),
                update: rate(progress.update_tokens, progress.seconds.update),
            },
            sets: progress.sets,
            seconds: progress.seconds,
            peak_rss_bytes: peak_rss_bytes(),
            stopped_because,
            checkpoint: folder.checkpoints()?.pop().map(|(_, path)| path),
            folder: Some(folder.path().to_owned()),
        };
        summary.write(&folder.summary())?;

        // A run that was interrupted judges its groups when it continues.
        if summary.stopped_because != INTERRUPTED
            && let Err(error) =
                lock(&journal).store.now(|store| store.forget_unjudged(Step::MAX / 2))
        {
            watcher.note(&format!(
                "groups that nobody judged could not be removed from run.db: {error}"
            ));
        }

        let path = folder.metrics();
        let exported = lock(&journal).store.now(move |store| Ok(export(store, &path)));
        // The checkpoint is there, so the run is a success.
        if let Err(error) = exported.map_err(Error::from).and_then(|exported| exported) {
            let help = error.help().map(|help| format!("; {help}")).unwrap_or_default();
            watcher.note(&format!("metrics.jsonl is not up to date: {error}{help}"));
        }

        watcher.finished(&summary);
        Ok(Finished { policy: built.trainer.learner.into_policy(), summary })
    }
}

/// Returns a number made from all tokens of the examples.
fn fingerprint(examples: &[SftExample]) -> u64 {
    let hash = examples.iter().fold(Seed::run(0), |seed, SftExample { prompt, completion, .. }| {
        let tokens = prompt.iter().chain(completion).map(|&token| u64::from(token));
        let numbers = std::iter::once(prompt.len() as u64).chain(tokens);
        seed.derive("example", &numbers.collect::<Vec<u64>>())
    });
    hash.rng().next_u64()
}

/// Limit of the bytes of a checkpoint's progress.
const PROGRESS_BYTES: u64 = 16 << 20;

/// Reads the progress of a checkpoint.
///
/// # Errors
/// When the file is missing or damaged.
pub(crate) fn read_progress(checkpoint: &Path) -> Result<Progress, Error> {
    let path = checkpoint.join(TRAINER).join(PROGRESS);
    let damaged = |problem| Error::Progress { path: path.clone(), problem };
    let text = read_own(&path, PROGRESS_BYTES).map_err(|error| match error {
        RunError::File { error, .. } => damaged(error.to_string()),
        other => damaged(other.to_string()),
    })?;
    serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))
}

/// Writes the metrics of `store` as JSON lines to `path`.
fn export(store: &Store, path: &Path) -> Result<(), Error> {
    let mut bytes = Vec::new();
    store.export_jsonl(&mut bytes)?;
    Ok(write_atomically(path, &bytes)?)
}
