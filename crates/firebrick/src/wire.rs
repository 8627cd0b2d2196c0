//! From a recipe to the things it names: the only place that builds them.

mod algorithm;
mod critic;
mod data;
mod reward;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
};

use burn::tensor::Device;
use firebrick_core::{Prompt, PromptSource as _, Seed, Verifier, WorkedExample};
use firebrick_data::{DateTime, PromptReport, Prompts, Tokenizer};
use firebrick_device::Kind;
use firebrick_models::{AdapterBase, Decoder, RewardModel, WeightDtype};
use firebrick_rollout::{LocalEngine, SampleOn, Sampling};
use firebrick_train::{Phrases, Trainer, TrainerState, load_state};

use crate::{
    Error, device,
    model::{self, Folders, Policy},
    plan::Models,
    recipe::Recipe,
    source::{Need, Sources},
};
use algorithm::{eval_sampling, optimizer, schedule, task, train_config, train_sampling, updater};
use data::{Data, fingerprint, text_folder, tokenizer};

pub use critic::critic;
pub use data::known_options;

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
) -> Result<Wired, Error> {
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

    let mut optimizer = optimizer(&recipe.optim);
    let prompts = fingerprint(&data.train);
    let mut source = Prompts::new(data.train, seed)?;
    let mut state = TrainerState { prompts, ..TrainerState::default() };
    let mut critic = None;
    if let Some(checkpoint) = resume {
        state = device::unsaved(
            recipe,
            &device,
            "loading the optimizer",
            device::smaller_model(),
            || Ok(load_state(&checkpoint.join(TRAINER), &policy, &mut *optimizer)?),
        )?;
        if state.prompts != prompts {
            return Err(Error::OtherPrompts { checkpoint: checkpoint.to_owned() });
        }
        source.seek(state.cursor);
        // Before the first step there is none: it begins with the weights that the warm-up leaves.
        if state.step > 0 {
            critic = device::unsaved(
                recipe,
                &device,
                "loading the critic",
                device::smaller_model(),
                || Ok(critic::resumed(recipe, &policy, &checkpoint.join(TRAINER))?),
            )?;
        }
    }
    let engine = engine(recipe, &policy, &data.tokenizer);
    let trainer = Trainer {
        policy,
        reference: None,
        critic,
        engine: Box::new(engine),
        source: Box::new(source),
        task: task(recipe, verifier),
        phrases: Phrases::new(recipe.observe.phrases.clone()),
        updater: updater(recipe, vocab),
        optimizer,
        schedule: schedule(&recipe.optim, recipe.optim.lr),
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
) -> Result<Evaluation, Error> {
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
) -> Result<Box<dyn Verifier>, Error> {
    let compute = model::compute(recipe.model.dtype, recipe.device.name(), device)?;
    device::unsaved(recipe, device, "loading the reward", device::smaller_model(), || {
        reward::verifier(recipe, &reward::Place { device, compute, sources, now, notes: said })
    })
}

/// What chat templates may print as today's date. The one place that reads the clock's date.
pub fn now() -> DateTime {
    jiff::Zoned::now().datetime()
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

/// The sizes of the recipe's models, from their `config.json` or from the recipe alone. A reward model
/// that is not on this machine counts as nothing.
///
/// # Errors
/// When a model is nowhere, or its `config.json` can't be read.
pub fn model_sizes(recipe: &Recipe, sources: &Sources) -> Result<Models, Error> {
    let folders = Folders::of_recipe(recipe, None, sources, Need::Sizes)?;
    let policy = match (&folders, &recipe.model.new) {
        (Some(folders), _) => folders.sizes()?,
        (None, Some(new)) => model::new_model(new, &tokenizer(recipe, text_folder(recipe, None))?)?,
        (None, None) => return Err(Error::NoModel { folder: PathBuf::new() }),
    };
    let begun = folders.map(|folders| folders.lora()).transpose()?.flatten();
    let lora = begun.or(recipe.model.lora.as_ref().map(model::adapters));
    let mut reward = 0;
    for folder in recipe.reward_kind().models().into_iter().filter(|folder| folder.is_dir()) {
        reward += RewardModel::count(folder)?;
    }
    Ok(Models { policy, lora, reward })
}
