//! Builds a run from a recipe: the model, the data, the verifier and the engine that it names.

mod algorithm;
mod critic;
mod data;
mod environment;
mod judges;
mod learner;
mod problems;
mod references;
mod reward;
mod servers;
mod sft;
mod teacher;
mod tinker;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::AtomicBool,
        mpsc::{Receiver, Sender, channel},
    },
    time::SystemTime,
};

use burn::tensor::Device;
use firebrick_core::{Prompt, PromptSource, Seed, SftExample, Verifier};
use firebrick_data::{DateTime, PromptFormat, PromptReport, Tokenizer};
use firebrick_device::Kind;
use firebrick_models::{Decoder, DecoderConfig, PolicyModel, RewardModel};
use firebrick_rollout::{LocalEngine, RolloutEngine, SampleOn, Sampling};
use firebrick_train::{
    LocalLearner, Phrases, Sampler, Trainer, TrainerState,
    algorithm::LrSchedule,
    checkpoint::load_state,
    learner::{LearnerState, Replicas},
    sampler::Task,
};

pub(crate) use self::data::{first_of_each, room_for_a_prompt};
use crate::{
    CustomPart, Error, HuggingFace, PolicyFiles,
    cancellable::CancellableVerifier,
    custom_parts::{CustomParts, OwnPolicy},
    device,
    journal::{Journal, JournaledEngine},
    model::{self, Folders, Policy, trained_weights},
    plan::{self, Models, micro_batching},
    published,
    rates::Rates,
    recipe::{BaseType, PolicyOrigin, Recipe, TeacherKind},
    source::{Need, Sources, model_name},
};
use algorithm::{
    eval_sampling, optimizer, sampler_config, schedule, task, train_config, train_sampling, updater,
};
use data::{Data, text_folder, tokenizer};
use environment::ConversationSetup;
use judges::Judges;
use problems::DataRequest;

pub use crate::layout::{TRAINER, WEIGHTS};
pub use critic::CriticPlan;
pub use data::{EvalSet, known_options, prompt_format};
pub use learner::RunLearner;
pub use tinker::ServerPolicy;
pub(crate) use tinker::build_on_server;

/// A run that was built and can begin or continue.
pub struct BuiltRun<L: RunLearner = LocalLearner<Decoder>> {
    /// Training loop with its policy.
    pub trainer: Trainer<L>,
    /// Critic to begin with at the first step, if the run has one.
    pub critic: Option<CriticPlan>,
    /// File format in which the policy is written and read.
    pub files: Box<dyn PolicyFiles<L::Policy>>,
    /// Description of the policy's size.
    pub size: String,
    /// Description of the device; `None` for the CPU.
    pub device: Option<String>,
    /// Prompts to evaluate on; empty if the recipe has none.
    pub heldout: Vec<Prompt>,
    /// Further sets to evaluate on.
    pub sets: Vec<EvalSet>,
    /// Examples that SFT imitates; empty without SFT.
    pub sft_examples: Vec<SftExample>,
    /// Learning rate of SFT.
    pub sft_lr: f64,
    /// How held-out completions are drawn.
    pub eval_sampling: Sampling,
    /// Encodes and decodes text. Every checkpoint has it.
    pub tokenizer: Arc<Tokenizer>,
    /// Parts of the run that the program brings instead of the recipe's.
    pub replaced: Vec<CustomPart>,
    /// Report on the training problems; `None` for a program's own source.
    pub report: Option<PromptReport>,
    /// Notes of data, model and verifier for the user, as they arise.
    pub notes: Receiver<String>,
}

impl<L: RunLearner> BuiltRun<L> {
    /// Puts a journal around the engine, and makes everything that takes long check the flag.
    pub(crate) fn with_interrupt(
        mut self,
        journal: Arc<Mutex<Journal>>,
        interrupted: &Arc<AtomicBool>,
    ) -> Self {
        let flag = || interrupted.clone();
        self.trainer.learner.updater_mut().interrupted = flag().into();
        self.files.interrupted_by(interrupted);

        let Sampler { engine, task, .. } = self.trainer.sampler;
        let journaled = JournaledEngine::new(engine, L::fingerprint, journal, flag());
        self.trainer.sampler.engine = Box::new(journaled);
        let verifier = task.verifier;
        self.trainer.sampler.task = Task {
            verifier: Box::new(CancellableVerifier { verifier, interrupted: flag() }),
            ..task
        };
        self
    }
}

/// Builds the run of `recipe`. With `resume`, weights, optimizer and the position in the data come from that
/// checkpoint. `sources` find the models and data that the recipe names; `now` is the date that chat templates may
/// print.
///
/// # Errors
/// When a file is missing or damaged, or the parts do not fit each other.
pub fn build_run(
    recipe: &Recipe,
    resume: Option<&Path>,
    sources: &Sources,
    now: DateTime,
) -> Result<BuiltRun, Error> {
    build_with_parts(recipe, CustomParts::default(), resume, sources, now)
}

/// Builds the run as `build_run` does, but with `parts` that are not built from the recipe.
pub(crate) fn build_with_parts(
    recipe: &Recipe,
    mut parts: CustomParts<Decoder>,
    resume: Option<&Path>,
    sources: &Sources,
    now: DateTime,
) -> Result<BuiltRun, Error> {
    if !recipe.engine.is_local() {
        return Err(Error::OnServer);
    }
    let seed = Seed::run(recipe.seed);
    let device = device::of_recipe(recipe)?;
    let introduction = device::introduce(recipe.device.name(), &device)?;
    let (notes_tx, notes) = channel();
    let replaced = parts.replaced();
    let environment = environment::environment(recipe, parts.environment.take(), &notes_tx)?;
    parts.environment = environment;
    let environment = parts.environment.clone();

    let own_verifier = parts.verifier.is_some();
    let judges = match parts.verifier.take() {
        Some(verifier) => Judges::one(verifier),
        None => judges(recipe, &device, sources, now, parts.run_folder.as_deref(), &notes_tx)?,
    };

    let has_hint = recipe.teacher.as_ref().is_some_and(|teacher| teacher.hint.is_some());
    if has_hint && parts.source.is_some() {
        return Err(Error::NoEffect { part: "teacher.hint", needs: "with prompts of the recipe" });
    }
    let request = DataRequest {
        train: parts.source.is_none(),
        heldout: parts.heldout.is_none(),
        sft_examples: parts.sft_examples.is_none(),
        messages: own_verifier || !recipe.reward_models().is_empty(),
        judges: &judges,
        environment: environment.as_deref(),
    };

    let folders = Folders::of_recipe(recipe, resume, sources, Need::Model)?;
    let mut data = Data::read(recipe, request, folders.as_ref(), sources, seed, now, &notes_tx)?;
    if !own_verifier {
        data.check_references(recipe, &judges, &notes_tx)?;
    }
    let verifier = judges.into_verifier();

    // Only the policy needs autodiff: a reward model is on the plain device.
    let device = device.autodiff();

    let formats = model::checkpoint_formats(recipe, resume, folders.as_ref())?;
    // The chunk sizes are chosen before the weights take their share of the memory.
    let micro_batching = micro_batching(recipe, Some(sources));
    let replicas = device::replicas(recipe)?;
    let Policy { decoder: policy, config, base } =
        Policy::read(recipe, folders.as_ref(), &data.tokenizer, seed, &device, &notes_tx)?;
    let policy = policy.with_unpacked_sampler(micro_batching.unpacks_once);
    let adapter = policy.lora().is_some();
    let origin = if adapter { PolicyOrigin::Adapters } else { recipe.origin() };
    let own_rate = parts.optimizer.is_some() || parts.schedule.is_some();
    let unusual = Rates::of(origin).unusual(recipe.optim.learning_rate(origin));
    if let Some(unusual) = unusual.filter(|_| !own_rate) {
        let _ = notes_tx.send(unusual);
    }
    let size = model::size(&policy);
    let context = policy.config().max_position_embeddings;
    let smaller = device::smaller_model();
    let teachers = device::unsaved(recipe, &device, "loading the teacher", smaller, || {
        let context = teacher::TeacherContext {
            policy: policy.config(),
            tokenizer: &data.tokenizer,
            device: &device.clone().inner(),
            compute: policy.compute(),
            prompt: data.train.first().map(|prompt| &*prompt.tokens),
            sources,
            notes: &notes_tx,
        };
        teacher::teachers(recipe, &context)
    })?;

    let source = match parts.source.take() {
        Some(source) => source,
        None => Box::new(data::source(recipe, data.train, seed)?),
    };
    parts.heldout.get_or_insert(data.heldout);
    let talking = parts.environment.take().map(|environment| {
        ConversationSetup::new(recipe, environment, &data.tokenizer, data.format.clone())
    });
    let talking = talking.transpose()?;
    if let (Some(talking), None) = (&talking, &parts.sft_examples) {
        talking.play(&mut data.sft_examples, &data.sft_prompts)?;
    }
    parts.sft_examples.get_or_insert(data.sft_examples);

    let files = HuggingFace { config, base, adapter, formats };
    if parts.engine.is_none() {
        let run_folder = parts.run_folder.clone().unwrap_or_default();
        let server_inputs = servers::ServerInputs {
            policy: &policy,
            files: files.clone(),
            tokenizer: &data.tokenizer,
            updater: updater(recipe, micro_batching),
            folder: run_folder.join("weights"),
            run: run_folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            notes_tx: notes_tx.clone(),
        };
        parts.engine = servers::engine(recipe, server_inputs)?;
    }

    let tokenizer = data.tokenizer;
    let own_engine = parts.engine.take();
    let engine =
        own_engine.unwrap_or_else(|| Box::new(engine(recipe, &policy, &tokenizer, context)));
    let mut built = local_learner(
        recipe,
        &mut parts,
        (policy, origin),
        (micro_batching, replicas),
        (source.fingerprint(), resume),
    )?;
    built.learner.teachers = teachers;
    let inputs = RunInputs {
        engine,
        origin,
        files: Box::new(files),
        size,
        tokenizer,
        source,
        verifier,
        talking,
        notes: (notes_tx, notes),
    };

    let built = assemble(recipe, parts, inputs, built)?;
    Ok(BuiltRun { device: introduction, replaced, report: data.report, sets: data.sets, ..built })
}

/// Builds the run of a policy that a program brings, with its source and its verifier among `parts`.
pub(crate) fn build_own_policy<M: PolicyModel>(
    recipe: &Recipe,
    mut parts: CustomParts<M>,
    own_policy: OwnPolicy<M>,
    resume: Option<&Path>,
) -> Result<BuiltRun<LocalLearner<M>>, Error> {
    let OwnPolicy { policy, tokenizer, files, context } = own_policy;
    if !policy.device().is_autodiff() {
        return Err(Error::NoAutodiff);
    }

    let replaced = [vec![CustomPart::Policy], parts.replaced()].concat();
    let (Some(source), Some(verifier)) = (parts.source.take(), parts.verifier.take()) else {
        unreachable!("a session with an own policy is built with source and verifier");
    };
    let policy = match resume {
        Some(checkpoint) => files.read(policy, &trained_weights(checkpoint))?,
        None => policy,
    };

    // A token without a row would index past the head.
    let token_rows = tokenizer.rows();
    let vocab = policy.head().dims()[0];
    if token_rows > vocab {
        return Err(Error::PolicyVocabulary { tokenizer: token_rows, policy: vocab });
    }

    let size = model::parameters_in_words(&policy);
    let micro_batching = micro_batching(recipe, None);
    let replicas = device::replicas(recipe)?;
    let (notes_tx, notes) = channel();
    let environment = environment::environment(recipe, parts.environment.take(), &notes_tx)?;
    let talking = environment.map(|environment| {
        ConversationSetup::new(recipe, environment, &tokenizer, PromptFormat::default())
    });
    let talking = talking.transpose()?;

    // Nobody else has it, so nothing is known of its weights.
    let origin = PolicyOrigin::New;
    let own_engine = parts.engine.take();
    let engine =
        own_engine.unwrap_or_else(|| Box::new(engine(recipe, &policy, &tokenizer, context)));
    let built = local_learner(
        recipe,
        &mut parts,
        (policy, origin),
        (micro_batching, replicas),
        (source.fingerprint(), resume),
    )?;
    let inputs = RunInputs {
        engine,
        origin,
        files,
        size,
        tokenizer,
        source,
        verifier,
        talking,
        notes: (notes_tx, notes),
    };

    let built = assemble(recipe, parts, inputs, built)?;
    Ok(BuiltRun { replaced, ..built })
}

/// What a run is assembled from besides its learner, wherever its policy comes from.
struct RunInputs<P> {
    engine: Box<dyn RolloutEngine<P>>,
    origin: PolicyOrigin,
    files: Box<dyn PolicyFiles<P>>,
    size: String,
    tokenizer: Arc<Tokenizer>,
    source: Box<dyn PromptSource>,
    verifier: Box<dyn Verifier>,
    /// `None` if a completion is a single turn.
    talking: Option<ConversationSetup>,
    /// Notes for the user, and where they arrive.
    notes: (Sender<String>, Receiver<String>),
}

/// A learner, and what continues with it.
struct BuiltLearner<L> {
    learner: L,
    /// State of a run that continues.
    state: Option<TrainerState>,
    critic: Option<CriticPlan>,
}

/// Builds the learner of a policy in this process, with its state if the run is to continue.
fn local_learner<M: PolicyModel>(
    recipe: &Recipe,
    parts: &mut CustomParts<M>,
    (policy, origin): (M, PolicyOrigin),
    (micro_batching, replicas): (plan::MicroBatchPlan, Replicas),
    (prompts, resume): (u64, Option<&Path>),
) -> Result<BuiltLearner<LocalLearner<M>>, Error> {
    let device = policy.device();
    let mut optimizer = parts.optimizer.take().unwrap_or_else(|| optimizer(&recipe.optim));
    let plan = CriticPlan::from_recipe(recipe, origin).filter(|_| parts.advantage.is_none());

    let mut state = None;
    let mut learner_state = LearnerState::default();
    let mut critic = None;
    if let Some(checkpoint) = resume {
        let trainer = checkpoint.join(TRAINER);
        let smaller = device::smaller_model;
        let loaded = device::unsaved(recipe, &device, "loading the optimizer", smaller(), || {
            Ok(load_state(&trainer, &policy, optimizer.as_mut())?)
        });
        let (loaded, of_learner) = loaded?;
        let loaded = same_prompts(loaded, prompts, checkpoint)?;
        learner_state = of_learner;
        // Before the first step there is no critic: it begins with the weights that SFT leaves.
        if loaded.step > 0 {
            critic = device::unsaved(recipe, &device, "loading the critic", smaller(), || {
                let resumed = plan.as_ref().map(|plan| plan.resumed(&policy, &trainer));
                Ok(resumed.transpose()?)
            })?;
        }
        state = Some(loaded);
    }

    let mut updater = updater(recipe, micro_batching);
    updater.replicas = replicas;
    let schedule = policy_schedule(recipe, origin, parts.schedule.take());
    let mut learner = LocalLearner::new(policy, updater, optimizer, schedule);
    learner.critic = critic;
    learner.state = learner_state;
    Ok(BuiltLearner { learner, state, critic: plan })
}

/// Checks that a checkpoint's position refers to the same prompts, which their fingerprint tells.
fn same_prompts(
    state: TrainerState,
    prompts: u64,
    checkpoint: &Path,
) -> Result<TrainerState, Error> {
    if state.prompts == prompts {
        Ok(state)
    } else {
        Err(Error::OtherPrompts { checkpoint: checkpoint.to_owned() })
    }
}

/// Returns the program's schedule, or builds that of the recipe.
fn policy_schedule(
    recipe: &Recipe,
    origin: PolicyOrigin,
    own: Option<Box<dyn LrSchedule>>,
) -> Box<dyn LrSchedule> {
    own.unwrap_or_else(|| {
        schedule(&recipe.optim, recipe.optim.learning_rate(origin), recipe.policy_steps())
    })
}

/// Assembles the loop around a learner.
fn assemble<L: RunLearner>(
    recipe: &Recipe,
    parts: CustomParts<L::Policy>,
    inputs: RunInputs<L::Policy>,
    built: BuiltLearner<L>,
) -> Result<BuiltRun<L>, Error> {
    let RunInputs { engine, origin, files, size, tokenizer, mut source, verifier, .. } = inputs;
    let BuiltLearner { mut learner, state, critic } = built;
    let (notes_tx, notes) = inputs.notes;

    let seed = Seed::run(recipe.seed);
    let prompts = source.fingerprint();
    let state = state.unwrap_or_else(|| TrainerState { prompts, ..TrainerState::default() });
    source.seek(state.cursor);

    let sft_examples = parts.sft_examples.unwrap_or_default();
    if recipe.sft.steps > 0 && sft_examples.is_empty() {
        return Err(Error::NoSftExamples);
    }
    let mut heldout = parts.heldout.unwrap_or_default();
    if recipe.eval.prompts > 0 {
        heldout.truncate(recipe.eval.prompts); // A program brings as many as it likes.
    }

    let (engine, verifier) = match inputs.talking {
        Some(talking) => (talking.engine(engine), environment::sound(verifier, notes_tx)),
        None => (engine, verifier),
    };

    let mut task = task(recipe, verifier);
    task.shapers = parts.shapers.unwrap_or(task.shapers);
    task.filter = parts.filter.unwrap_or(task.filter);
    task.advantage = parts.advantage.or(task.advantage);
    if let Some(loss) = parts.loss {
        learner.updater_mut().objective.policy = loss;
    }

    let sampling = train_sampling(recipe, &tokenizer);
    let sampler = Sampler { engine, source, task, config: sampler_config(recipe, sampling) };

    let mut trainer = Trainer::new(sampler, learner, train_config(recipe), seed);
    trainer.tracked_phrases = Phrases::new(recipe.observe.phrases.clone());
    trainer.state = state;

    Ok(BuiltRun {
        trainer,
        critic,
        files,
        size,
        device: None,
        heldout,
        sets: Vec::new(),
        sft_examples,
        sft_lr: recipe.sft.learning_rate(origin),
        eval_sampling: eval_sampling(recipe, &tokenizer),
        tokenizer,
        replaced: Vec::new(),
        report: None,
        notes,
    })
}

/// Everything that measures a checkpoint.
pub struct Evaluation {
    /// Device that computes.
    pub device: Device,
    /// Engine that samples from the checkpoint's policy.
    pub engine: Box<dyn RolloutEngine<Decoder>>,
    /// Verifier of the completions.
    pub verifier: Box<dyn Verifier>,
    /// Prompts to evaluate on.
    pub heldout: Vec<Prompt>,
    /// Further sets of prompts.
    pub sets: Vec<EvalSet>,
    /// How completions are drawn.
    pub sampling: Sampling,
    /// Notes of data, model and verifier for the user, as they arise.
    pub notes: Receiver<String>,
}

/// Builds the evaluation of the policy in `checkpoint`, any model folder, on the recipe's held-out prompts.
///
/// # Errors
/// As for [`build_run`].
pub fn evaluation(
    recipe: &Recipe,
    checkpoint: &Path,
    sources: &Sources,
    now: DateTime,
) -> Result<Evaluation, Error> {
    let seed = Seed::run(recipe.seed);
    let device = device::of_recipe(recipe)?;
    let (notes_tx, notes) = channel();
    let judges = judges(recipe, &device, sources, now, None, &notes_tx)?;
    let folders = Folders::find(checkpoint, sources, Need::Model)?;
    let environment = environment::environment(recipe, None, &notes_tx)?;

    let request = DataRequest {
        train: false,
        heldout: true,
        sft_examples: false,
        messages: !recipe.reward_models().is_empty(),
        judges: &judges,
        environment: environment.as_deref(),
    };
    let mut data = Data::read(recipe, request, Some(&folders), sources, seed, now, &notes_tx)?;
    data.check_references(recipe, &judges, &notes_tx)?;
    let verifier = judges.into_verifier();

    let tokenizer = &data.tokenizer;
    let policy = Policy::read(recipe, Some(&folders), tokenizer, seed, &device, &notes_tx)?.decoder;
    let context = policy.config().max_position_embeddings;
    let engine = Box::new(engine(recipe, &policy, tokenizer, context));

    let (engine, verifier): (Box<dyn RolloutEngine<Decoder>>, _) = match environment {
        Some(environment) => {
            let talking =
                ConversationSetup::new(recipe, environment, tokenizer, data.format.clone())?;
            (talking.engine(engine), environment::sound(verifier, notes_tx))
        }
        None => (engine, verifier),
    };

    Ok(Evaluation {
        device,
        engine,
        verifier,
        heldout: data.heldout,
        sets: data.sets,
        sampling: eval_sampling(recipe, &data.tokenizer),
        notes,
    })
}

/// A recipe's verifier alone.
pub struct Judge {
    /// The verifier.
    pub verifier: Box<dyn Verifier>,
    /// Its notes for the user, as they arise.
    pub notes: Receiver<String>,
}

/// Builds the verifier of a recipe, to judge answers that no run has sampled.
///
/// # Errors
/// When a part of the verifier is missing or can't be started.
pub fn judge(recipe: &Recipe, sources: &Sources, now: DateTime) -> Result<Judge, Error> {
    let device = device::of_recipe(recipe)?;
    let (notes_tx, notes) = channel();
    let verifier = judges(recipe, &device, sources, now, None, &notes_tx)?.into_verifier();
    Ok(Judge { verifier, notes })
}

/// Builds the verifiers. A reward model is put on `device`, which is a device without autodiff.
fn judges(
    recipe: &Recipe,
    device: &Device,
    sources: &Sources,
    now: DateTime,
    run_folder: Option<&Path>,
    notes_tx: &Sender<String>,
) -> Result<Judges, Error> {
    let compute = model::compute(recipe.model.dtype, recipe.device.name(), device)?;
    device::unsaved(recipe, device, "loading the reward", device::smaller_model(), || {
        reward::judges(
            recipe,
            &reward::VerifierContext { device, compute, sources, now, notes: notes_tx, run_folder },
        )
    })
}

/// Returns today's date, which chat templates may print. Only this function reads the clock's date. If the clock is
/// beyond all dates, this is the last date.
pub fn now() -> DateTime {
    date_of(SystemTime::now()).unwrap_or(DateTime::MAX)
}

/// Returns the local date at a time; `None` if no date is so late or so early.
pub fn date_of(time: SystemTime) -> Option<DateTime> {
    let time = jiff::Timestamp::try_from(time).ok()?;
    Some(time.to_zoned(jiff::tz::TimeZone::system()).datetime())
}

/// Builds the engine of this process. `context` limits the tokens of prompt and completion together.
fn engine<M: PolicyModel>(
    recipe: &Recipe,
    policy: &M,
    tokenizer: &Arc<Tokenizer>,
    context: usize,
) -> LocalEngine<M> {
    LocalEngine::new(
        policy,
        tokenizer.clone(),
        recipe.rollout.max_sequences,
        context,
        // If logits are on another device, only tokens and their log-probabilities are read back.
        match recipe.device.kind {
            Kind::Cpu => SampleOn::Host,
            _ => SampleOn::Device,
        },
    )
    .graphs(recipe.records_graphs())
}

/// Reads the sizes of the recipe's models, from their `config.json` or from the recipe alone. A published model whose
/// sizes are built in is not looked up on the Hub, though its `config.json` on this machine or in the Hub's cache comes
/// first. A reward model that is not on this machine counts as zero bytes. A local teacher has to be found.
///
/// # Errors
/// When a model is not found, or its `config.json` can't be read.
pub fn model_sizes(recipe: &Recipe, sources: &Sources) -> Result<Models, Error> {
    let known = published_sizes(recipe);
    let folders = match &known {
        Some(_) => Folders::of_recipe(recipe, None, &sources.cached(), Need::Sizes),
        None => Folders::of_recipe(recipe, None, sources, Need::Sizes),
    };

    let (policy, folders, published) = match (folders, known, &recipe.model.new) {
        (Err(Error::NotHere { .. } | Error::NoModel { .. }), Some(sizes), _) => (sizes, None, true),
        (folders, _, new) => match (folders?, new) {
            (Some(folders), _) => (folders.sizes()?, Some(folders), false),
            (None, Some(new)) => {
                let tokenizer = tokenizer(recipe, text_folder(recipe, None))?;
                (model::new_model(new, &tokenizer)?, None, false)
            }
            (None, None) => return Err(Error::NoModel { folder: PathBuf::new() }),
        },
    };

    let begun = folders.map(|folders| folders.lora()).transpose()?.flatten();
    let lora = begun.or(recipe.model.lora.as_ref().map(model::adapters));
    if let Some(Err(problem)) = lora.as_ref().map(|lora| lora.fits(&policy)) {
        return Err(Error::Adapters { problem });
    }

    let mut reward = 0;
    for folder in recipe.reward_models().into_iter().filter(|folder| folder.is_dir()) {
        reward += RewardModel::count(&folder)?;
    }

    let mut teachers = Vec::new();
    for kind in recipe.teacher_kinds() {
        let TeacherKind::Local { path, base } = kind else { continue };
        teachers.push((teacher::folders(path, sources, Need::Sizes)?.sizes()?, *base));
    }
    Ok(Models { policy, lora, reward, teachers, published })
}

/// Returns the built-in sizes of the recipe's model, if it is the name of a published one. They are no adapter's, and a
/// recipe that rounds a model without adapters is refused where its folder is read.
fn published_sizes(recipe: &Recipe) -> Option<DecoderConfig> {
    let model = &recipe.model;
    if model.revision.is_some() || (model.lora.is_none() && model.base != BaseType::Auto) {
        return None;
    }
    published::sizes(&model_name(model.path.as_deref()?)?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_clock_that_is_beyond_all_dates_gives_none() {
        let at = |seconds| date_of(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(1_795_824_000).unwrap().date().year(), 2026);
        assert_eq!(at(253_402_000_000).unwrap().date().year(), 9999);
        for beyond in [253_402_500_000, 1 << 40, i64::MAX as u64 / 4] {
            assert_eq!(at(beyond), None);
        }
    }
}
