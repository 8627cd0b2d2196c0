//! From a recipe to the things it names: the only place that builds them.

mod reward;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
};

use burn::tensor::Device;
use firebrick_core::{
    AdvantageEstimator, GroupFilter, Prompt, PromptSource as _, RewardScale, Seed, Verifier,
    WorkedExample,
};
use firebrick_data::{
    ChatTemplate, ColumnNames, DataError, DateTime, Part, Preparation, Problem, ProblemSet,
    PromptFormat, PromptReport, Prompts, Tokenizer, read_problems,
};
use firebrick_device::Kind;
use firebrick_models::{AdapterBase, Decoder, RewardModel, WeightDtype};
use firebrick_rollout::{LocalEngine, SampleOn, Sampling};
use firebrick_train::{
    AdamW, Cispo, ClipRange, Cut, Dapo, GroupNorm, Gspo, KeepAll, Kl, KlEstimator, LeaveOneOut,
    MeanOnly, Objective, OptimConfig, PolicyLoss, Spread, Task, TrainConfig, Trainer, TrainerState,
    Updater, load_state,
};
use rand::Rng as _;
use serde_json::{Map, Value};

use crate::{
    ProgramError, device,
    model::{self, Folders, Policy},
    plan::Models,
    recipe,
    recipe::Recipe,
    source::{Need, Sources},
};

/// A run, ready to begin or to go on.
pub struct Wired {
    /// The loop with its policy.
    pub trainer: Trainer<Decoder>,
    /// The device in words; none for the CPU.
    pub device: Option<String>,
    /// Prompts to evaluate on; empty when the recipe has none.
    pub heldout: Vec<Prompt>,
    /// What the warm-up imitates; empty without a warm-up.
    pub worked: Vec<WorkedExample>,
    /// How held-out completions are drawn.
    pub eval_sampling: Sampling,
    /// Encodes and decodes; saved with every checkpoint.
    pub tokenizer: Arc<Tokenizer>,
    /// The content of the checkpoints' `config.json`.
    pub config: serde_json::Value,
    /// What the file of an adapter calls the model that it is for.
    pub base: AdapterBase,
    /// The number format of the weights in checkpoints.
    pub dtype: WeightDtype,
    /// What became of the training problems.
    pub report: PromptReport,
    /// What data, model and verifier have to tell a person, as it comes up.
    pub notes: Receiver<String>,
}

/// Builds the run of `recipe`; with `resume`, weights, optimizer and place come from that
/// checkpoint. `sources` find what the recipe names; `now` is what chat templates may print.
///
/// # Errors
/// When a file is missing or damaged, or the parts do not fit each other.
pub fn wire(
    recipe: &Recipe,
    resume: Option<&Path>,
    sources: &Sources,
    now: DateTime,
) -> Result<Wired, ProgramError> {
    let seed = Seed::run(recipe.seed);
    let device = device::open(recipe)?;
    let introduction = device::introduce(recipe.device.name(), &device)?;
    let (said, notes) = channel();
    let verifier = verifier(recipe, &device, sources, now, &said)?;
    let device = device.autodiff();
    let folders = Folders::of_recipe(recipe, resume, sources, Need::Model)?;
    let data = Data::read(recipe, folders.as_ref(), sources, seed, now, &said)?;
    let dtype = model::checkpoint_dtype(recipe, resume, folders.as_ref())?;
    let tokenizer = &data.tokenizer;
    let Policy { decoder: policy, config, base } =
        Policy::read(recipe, folders.as_ref(), tokenizer, seed, &device, &said)?;
    let vocab = policy.config().vocab_size;

    let mut optimizer = AdamW::new(optim(&recipe.optim));
    let prompts = fingerprint(&data.train);
    let mut source = Prompts::new(data.train, seed)?;
    let mut state = TrainerState { prompts, ..TrainerState::default() };
    if let Some(checkpoint) = resume {
        state = device::unsaved(
            recipe,
            &device,
            "loading the optimizer",
            device::smaller_model(),
            || Ok(load_state(&checkpoint.join(TRAINER), &policy, &mut optimizer)?),
        )?;
        if state.prompts != prompts {
            return Err(ProgramError::OtherPrompts { checkpoint: checkpoint.to_owned() });
        }
        source.seek(state.cursor);
    }
    let engine = engine(recipe, &policy, &data.tokenizer);
    let trainer = Trainer {
        policy,
        reference: None,
        engine: Box::new(engine),
        source: Box::new(source),
        task: task(recipe, verifier),
        updater: updater(recipe, vocab),
        optimizer,
        config: train_config(recipe, train_sampling(recipe, &data.tokenizer)),
        seed,
        state,
        midway: false,
    };
    Ok(Wired {
        trainer,
        device: introduction,
        heldout: data.heldout,
        worked: data.worked,
        eval_sampling: eval_sampling(recipe, &data.tokenizer),
        tokenizer: data.tokenizer,
        config,
        base,
        dtype,
        report: data.report,
        notes,
    })
}

/// What measures a checkpoint.
pub struct Evaluation {
    /// Where it computes.
    pub device: Device,
    /// Samples from the checkpoint's policy.
    pub engine: LocalEngine<Decoder>,
    /// Judges.
    pub verifier: Box<dyn Verifier>,
    /// The questions.
    pub heldout: Vec<Prompt>,
    /// How completions are drawn.
    pub sampling: Sampling,
    /// What data, model and verifier have to tell a person, as it comes up.
    pub notes: Receiver<String>,
}

/// Builds what evaluates the policy in `checkpoint`, any model folder, on the recipe's held-out
/// prompts.
///
/// # Errors
/// As for [`wire`].
pub fn evaluation(
    recipe: &Recipe,
    checkpoint: &Path,
    sources: &Sources,
    now: DateTime,
) -> Result<Evaluation, ProgramError> {
    let seed = Seed::run(recipe.seed);
    let device = device::open(recipe)?;
    let (said, notes) = channel();
    let verifier = verifier(recipe, &device, sources, now, &said)?;
    let folders = Folders::of(checkpoint, sources, Need::Model)?;
    let data = Data::read(recipe, Some(&folders), sources, seed, now, &said)?;
    let tokenizer = &data.tokenizer;
    let policy = Policy::read(recipe, Some(&folders), tokenizer, seed, &device, &said)?.decoder;
    Ok(Evaluation {
        device,
        engine: engine(recipe, &policy, &data.tokenizer),
        verifier,
        heldout: data.heldout,
        sampling: eval_sampling(recipe, &data.tokenizer),
        notes,
    })
}

/// What judges; a reward model is put on `device`, which is one without autodiff.
fn verifier(
    recipe: &Recipe,
    device: &Device,
    sources: &Sources,
    now: DateTime,
    said: &Sender<String>,
) -> Result<Box<dyn Verifier>, ProgramError> {
    let compute = model::compute(recipe.model.dtype, recipe.device.name(), device)?;
    device::unsaved(recipe, device, "loading the reward", device::smaller_model(), || {
        reward::verifier(recipe, &reward::Place { device, compute, sources, now, notes: said })
    })
}

/// The folder inside a checkpoint that holds what is not the model.
pub const TRAINER: &str = "trainer";

/// The folder inside [`TRAINER`] that holds the weights as they were trained, in float32, when those of
/// the checkpoint are rounded: a resumed run must go on with the same bits.
pub const WEIGHTS: &str = "weights";

/// Logits made at once: 64 MB in f32, whatever the vocabulary.
pub(crate) const LOGITS_AT_ONCE: usize = 1 << 24;

fn engine(recipe: &Recipe, policy: &Decoder, tokenizer: &Arc<Tokenizer>) -> LocalEngine<Decoder> {
    LocalEngine::new(
        policy,
        tokenizer.clone(),
        recipe.rollout.max_sequences,
        policy.config().max_position_embeddings,
        // Where logits are on another device, only tokens and their log-probs are read back.
        match recipe.device.kind {
            Kind::Cpu => SampleOn::Host,
            _ => SampleOn::Device,
        },
    )
}

fn train_sampling(recipe: &Recipe, tokenizer: &Tokenizer) -> Sampling {
    Sampling {
        temperature: recipe.rollout.temperature,
        top_k: recipe.rollout.top_k,
        top_p: recipe.rollout.top_p,
        max_completion_tokens: recipe.rollout.max_completion_tokens,
        stop: tokenizer.stop_tokens().to_vec(),
    }
}

fn eval_sampling(recipe: &Recipe, tokenizer: &Tokenizer) -> Sampling {
    let (temperature, top_p) = (recipe.eval.temperature, recipe.eval.top_p);
    Sampling { temperature, top_k: 0, top_p, ..train_sampling(recipe, tokenizer) }
}

/// Prompts and tokenizer.
struct Data {
    tokenizer: Arc<Tokenizer>,
    train: Vec<Prompt>,
    heldout: Vec<Prompt>,
    worked: Vec<WorkedExample>,
    report: PromptReport,
}

impl Data {
    /// With the model in `folders`; what was left out of the data is said through `notes`.
    fn read(
        recipe: &Recipe,
        folders: Option<&Folders>,
        sources: &Sources,
        seed: Seed,
        now: DateTime,
        notes: &Sender<String>,
    ) -> Result<Self, ProgramError> {
        let limit = prompt_limit(recipe, folders)?;
        let text = text_folder(recipe, folders);
        let tokenizer = tokenizer(recipe, text)?;
        let format = format(&recipe.data, text, now)?;
        let mut preparation = Preparation::new(&tokenizer, &format);
        preparation.max_prompt_tokens = limit;
        preparation.keep_messages = recipe.reward_kind().reads_conversations();

        let ProblemSets { train, mut heldout, dropped } =
            problems(&recipe.data, sources, seed, notes)?;
        if recipe.eval.prompts > 0 {
            heldout.truncate(recipe.eval.prompts);
        }
        let data = &recipe.data;
        let lost = |file| move |error| no_prompts(data, file, error);
        let train_file = data.train.as_ref();
        let (prompts, mut report) = preparation.prompts(&train).map_err(lost(train_file))?;
        report.read += dropped.duplicates + dropped.conflicting;
        (report.duplicates, report.conflicting) = (dropped.duplicates, dropped.conflicting);
        let heldout = if heldout.is_empty() {
            Vec::new()
        } else {
            let file = data.heldout.as_ref().or(train_file);
            preparation.prompts(&heldout).map_err(lost(file))?.0
        };
        let worked = if recipe.warmup.steps > 0 {
            preparation.worked_examples(&train).map_err(lost(train_file))?.0
        } else {
            Vec::new()
        };
        Ok(Data { tokenizer: Arc::new(tokenizer), train: prompts, heldout, worked, report })
    }
}

/// Where the tokenizer is from; none for one that is made for a task.
fn text_folder<'a>(recipe: &'a Recipe, folders: Option<&'a Folders>) -> Option<&'a Path> {
    let of_new = recipe.model.new.as_ref().and_then(|new| new.tokenizer.as_deref());
    folders.map(|folders| folders.text.as_path()).or(of_new)
}

fn tokenizer(recipe: &Recipe, folder: Option<&Path>) -> Result<Tokenizer, ProgramError> {
    match (folder, &recipe.data.task) {
        (Some(folder), _) => Ok(Tokenizer::from_folder(folder)?),
        (None, Some(task)) => Ok(Tokenizer::characters(generator(task).alphabet())?),
        (None, None) => Err(ProgramError::NewModelNeedsTask),
    }
}

/// The sizes of the recipe's models, from their `config.json` or from the recipe alone. A reward model
/// that is not on this machine counts as nothing.
pub(crate) fn model_sizes(recipe: &Recipe, sources: &Sources) -> Result<Models, ProgramError> {
    let folders = Folders::of_recipe(recipe, None, sources, Need::Sizes)?;
    let policy = match (&folders, &recipe.model.new) {
        (Some(folders), _) => folders.sizes()?,
        (None, Some(new)) => model::new_model(new, &tokenizer(recipe, text_folder(recipe, None))?)?,
        (None, None) => return Err(ProgramError::NoModel { folder: PathBuf::new() }),
    };
    let begun = folders.map(|folders| folders.lora()).transpose()?.flatten();
    let lora = begun.or(recipe.model.lora.as_ref().map(model::adapters));
    let mut reward = 0;
    for folder in recipe.reward_kind().models().into_iter().filter(|folder| folder.is_dir()) {
        reward += RewardModel::count(folder)?;
    }
    Ok(Models { policy, lora, reward })
}

/// The longest prompt that is kept: what the recipe allows, as far as the model's context has room
/// for it beside a completion. A longer one would end the run at the step that draws it.
fn prompt_limit(recipe: &Recipe, folders: Option<&Folders>) -> Result<usize, ProgramError> {
    let context = match (folders, &recipe.model.new) {
        (Some(folders), _) => folders.sizes()?.max_position_embeddings,
        (None, Some(new)) => new.max_position_embeddings,
        // The recipe's check wants one of the two.
        (None, None) => usize::MAX,
    };
    let completion = recipe.rollout.max_completion_tokens;
    if completion >= context {
        return Err(ProgramError::Context { completion, context });
    }
    Ok(recipe.data.max_prompt_tokens.min(context - completion))
}

/// Says which file has no prompts left, and which key would bring them back.
fn no_prompts(data: &recipe::Data, file: Option<&PathBuf>, error: DataError) -> ProgramError {
    let DataError::NoPrompts { report, max_prompt_tokens: limit } = error else {
        return error.into();
    };
    let remedy = if limit < data.max_prompt_tokens {
        "lower rollout.max_completion_tokens: prompt and completion share the model's context"
    } else {
        "raise data.max_prompt_tokens"
    };
    let place = file.map_or_else(|| "the task".into(), |file| file.display().to_string());
    ProgramError::NoPrompts { place, report, limit, remedy }
}

/// Tells one list of prompts from another: the place in the data is a number that means other
/// prompts in other data.
fn fingerprint(prompts: &[Prompt]) -> u64 {
    let all = prompts.iter().fold(Seed::run(0), |seed, prompt| {
        let tokens = prompt.tokens.iter().map(|&token| u64::from(token));
        seed.derive("prompt", &std::iter::once(prompt.id).chain(tokens).collect::<Vec<u64>>())
    });
    all.rng().next_u64()
}

struct ProblemSets {
    train: Vec<Problem>,
    heldout: Vec<Problem>,
    /// What was left out of the training problems.
    dropped: ProblemSet,
}

/// Training and held-out problems.
fn problems(
    data: &recipe::Data,
    sources: &Sources,
    seed: Seed,
    notes: &Sender<String>,
) -> Result<ProblemSets, ProgramError> {
    let given = data.columns.clone().unwrap_or_default();
    let columns = ColumnNames { prompt: given.prompt, reference: given.reference };
    let read = |key: &'static str, path: &Path, part: &Part| -> Result<ProblemSet, ProgramError> {
        let files = sources.data_files(key, path, part)?;
        let set = read_problems(&files, &columns, data.deduplicate)?;
        if let Some(note) = &set.note {
            let _ = notes.send(format!("{key}: {note}"));
        }
        Ok(set)
    };
    let Some(path) = &data.train else {
        let task = generator(data.task.as_ref().ok_or(ProgramError::NewModelNeedsTask)?);
        let (train, heldout) =
            (task.train(seed, data.train_size)?, task.heldout(data.heldout_size)?);
        return Ok(ProblemSets { train, heldout, dropped: ProblemSet::default() });
    };
    let (subset, split) = (data.subset.clone(), data.split.clone());
    let part = Part { subset, split, default_split: "train" };
    let mut dropped = read("data.train", path, &part)?;
    let mut train = std::mem::take(&mut dropped.problems);
    // A file has no splits: held-out rows without a place of their own are its last ones.
    let splits = data.heldout.is_some() || !path.is_file();
    let heldout_split = data.heldout_split.clone().filter(|_| splits);
    let heldout = match (&data.heldout, heldout_split) {
        // At most half: a file of ten rows is for trying things, and must still train.
        (None, None) => train.split_off(train.len() - data.heldout_size.min(train.len() / 2)),
        (heldout, split) => {
            let subset = match heldout {
                Some(_) => &data.heldout_subset,
                None => &data.subset,
            };
            let part = Part { subset: subset.clone(), split, default_split: "test" };
            let set = read("data.heldout", heldout.as_ref().unwrap_or(path), &part)?;
            if set.duplicates > 0 {
                let (kept, left) = (set.problems.len(), set.duplicates);
                let _ =
                    notes.send(format!("data.heldout: {kept} prompts, {left} duplicates left out"));
            }
            set.problems
        }
    };
    Ok(ProblemSets { train, heldout, dropped })
}

fn generator(task: &recipe::Task) -> firebrick_data::Task {
    match *task {
        recipe::Task::Addition { digits, worked } => {
            firebrick_data::Task::Addition { digits, worked }
        }
        recipe::Task::Multiplication { digits, worked } => {
            firebrick_data::Task::Multiplication { digits, worked }
        }
        recipe::Task::Countdown { numbers, max_number, max_target } => {
            firebrick_data::Task::Countdown { numbers, max_number, max_target }
        }
    }
}

fn format(
    data: &recipe::Data,
    folder: Option<&Path>,
    now: DateTime,
) -> Result<PromptFormat, ProgramError> {
    let chat = match (data.template, folder) {
        (recipe::Template::Plain, _) | (_, None) => None,
        (_, Some(folder)) => ChatTemplate::from_folder(folder)?,
    };
    if data.template == recipe::Template::Chat && chat.is_none() {
        return Err(ProgramError::NoChatTemplate {
            folder: folder.map(Path::to_owned).unwrap_or_default(),
        });
    }
    known_options("data.template_options", &data.template_options, chat.as_ref())?;
    let default = PromptFormat::default();
    Ok(PromptFormat {
        text: data.prompt.clone().unwrap_or(default.text),
        system: data.system.clone(),
        chat: chat.map(|chat| chat.with_date(now)),
        kwargs: data.template_options.clone(),
    })
}

/// An option that no template reads is a misspelling that would go unnoticed: templates take what
/// they know, and leave the rest.
pub(crate) fn known_options(
    key: &'static str,
    options: &Map<String, Value>,
    chat: Option<&ChatTemplate>,
) -> Result<(), ProgramError> {
    let variables = chat.map(ChatTemplate::variables).unwrap_or_default();
    match options.keys().find(|name| !variables.contains(name)) {
        None => Ok(()),
        Some(name) => Err(ProgramError::TemplateOption {
            key,
            name: name.clone(),
            place: chat.map_or("a plain prompt".into(), |chat| chat.place().to_owned()),
            variables,
        }),
    }
}

fn task(recipe: &Recipe, verifier: Box<dyn Verifier>) -> Task {
    let recipe::Reward { right, wrong, .. } = recipe.reward;
    let scale = RewardScale { right: right as f32, wrong: wrong as f32 };
    let filter: Box<dyn GroupFilter> = if recipe.sampling.dynamic {
        Box::new(Spread { tolerance: recipe.sampling.tolerance as f32 })
    } else {
        Box::new(KeepAll)
    };
    let advantage: Box<dyn AdvantageEstimator> = match recipe.advantage.kind {
        recipe::AdvantageKind::GroupNorm => {
            Box::new(GroupNorm { epsilon: recipe.advantage.epsilon, unbiased: true })
        }
        recipe::AdvantageKind::MeanOnly => Box::new(MeanOnly),
        recipe::AdvantageKind::LeaveOneOut => Box::new(LeaveOneOut),
    };
    Task { verifier, scale, shapers: reward::shapers(recipe), filter, advantage }
}

fn updater(recipe: &Recipe, vocab_size: usize) -> Updater {
    let loss = &recipe.loss;
    let clip = ClipRange { low: loss.clip_ratio_low, high: loss.clip_ratio_high };
    let policy: Box<dyn PolicyLoss> = match loss.kind {
        recipe::LossKind::Dapo => Box::new(Dapo { clip, dual_clip: loss.dual_clip }),
        recipe::LossKind::Gspo => Box::new(Gspo { clip, max_log_ratio: 10.0 }),
        recipe::LossKind::Cispo => Box::new(Cispo { clip }),
    };
    let kl = loss.kl.as_ref().map(|kl| Kl {
        estimator: match kl.kind {
            recipe::KlKind::K1 => KlEstimator::K1,
            recipe::KlKind::K2 => KlEstimator::K2,
            recipe::KlKind::K3 => KlEstimator::K3,
        },
        gradient_of_k2: false,
        coef: kl.coef,
    });
    Updater {
        objective: Objective { policy, entropy_coef: loss.entropy_coef, kl },
        aggregation: match loss.aggregation {
            recipe::Aggregation::TokenMean => firebrick_train::Aggregation::TokenMean,
            recipe::Aggregation::PromptMean => firebrick_train::Aggregation::PromptMean,
            recipe::Aggregation::SequenceMean => firebrick_train::Aggregation::SequenceMean,
            recipe::Aggregation::SequenceSum => firebrick_train::Aggregation::SequenceSum,
            recipe::Aggregation::Constant => firebrick_train::Aggregation::Constant,
        },
        constant_length: loss.constant_length.unwrap_or(recipe.rollout.max_completion_tokens),
        temperature: recipe.rollout.temperature,
        cut: Cut {
            micro_batch_tokens: recipe.train.micro_batch_tokens,
            logits_chunk: (LOGITS_AT_ONCE / vocab_size).max(1),
        },
    }
}

/// The optimizer's settings, for training and for the warm-up.
pub fn optim(optim: &recipe::Optim) -> OptimConfig {
    OptimConfig {
        beta1: optim.beta1,
        beta2: optim.beta2,
        epsilon: optim.epsilon,
        weight_decay: optim.weight_decay,
        decay_vectors: false,
        max_grad_norm: optim.max_grad_norm,
    }
}

fn train_config(recipe: &Recipe, sampling: Sampling) -> TrainConfig {
    TrainConfig {
        group_size: recipe.rollout.group_size,
        prompts_per_step: recipe.sampling.prompts_per_step,
        max_rounds: recipe.sampling.max_rounds,
        on_cap: match recipe.sampling.on_cap {
            recipe::OnCap::TrainSmaller => firebrick_train::OnCap::TrainSmaller,
            recipe::OnCap::Stop => firebrick_train::OnCap::Stop,
            recipe::OnCap::Error => firebrick_train::OnCap::Error,
        },
        keep_surplus: recipe.sampling.surplus == recipe::Surplus::Keep,
        max_staleness: recipe.sampling.max_staleness,
        mini_batch: recipe.train.mini_batch,
        lr: recipe.optim.lr,
        lr_warmup_steps: recipe.optim.warmup_steps,
        sampling,
    }
}
