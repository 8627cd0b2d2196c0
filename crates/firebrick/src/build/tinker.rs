//! Builds the run of a policy on a server that speaks Tinker's API.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::AtomicBool,
        mpsc::{Sender, channel},
    },
    time::Duration,
};

use firebrick_core::Seed;
use firebrick_data::DateTime;
use firebrick_models::{AdapterBase, WeightDtype};
use firebrick_runs::{read_own, write_atomically};
use firebrick_servers::{
    Adam, Over, ServerTraits, Text, TinkerEngine, TinkerError, TinkerModel, TinkerSession,
    TinkerSettings,
};
use firebrick_train::{
    Sample, TrainError,
    checkpoint::load_trainer,
    learner::{RemoteLearner, RemotePolicy, StepOutcome, Uphill},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    BuiltLearner, BuiltRun, RunInputs, assemble,
    data::{self, Data},
    environment::{self, ConversationSetup, key},
    judges,
    judges::Judges,
    policy_schedule,
    problems::DataRequest,
    same_prompts,
    servers::probes,
    updater,
};
use crate::{
    Error, FileFormat, PolicyFiles,
    custom_parts::CustomParts,
    device,
    layout::{TRAINER, WEIGHTS},
    model::{Folders, check_vocabulary},
    plan::micro_batching,
    recipe::{OptimKind, PolicyOrigin, Recipe, TinkerServer, UpdateEngine},
    source::{Need, Sources},
};

/// A policy on a server: an adapter there, and how it is moved.
#[derive(Clone)]
pub struct ServerPolicy {
    model: TinkerModel,
    traits: ServerTraits,
    /// Settings of a step, but for its rate.
    adam: Adam,
    vocabulary: usize,
    /// What the weights have come from: the adapter's beginning, and every step since.
    lineage: Seed,
}

impl AsRef<TinkerModel> for ServerPolicy {
    fn as_ref(&self) -> &TinkerModel {
        &self.model
    }
}

fn text(sample: &Sample) -> Text<'_> {
    Text { prompt: &sample.prompt, completion: &sample.completion }
}

fn of_train(error: TinkerError) -> TrainError {
    match error {
        TinkerError::Interrupted => TrainError::Interrupted,
        error => TrainError::Other(Box::new(error)),
    }
}

impl RemotePolicy for ServerPolicy {
    fn vocab(&self) -> usize {
        self.vocabulary
    }

    fn fingerprint(&self) -> Option<[u8; 32]> {
        Some(self.lineage.bytes())
    }

    fn logprobs(&mut self, samples: &[&Sample]) -> Result<Vec<Vec<f32>>, TrainError> {
        let texts: Vec<Text<'_>> = samples.iter().map(|sample| text(sample)).collect();
        self.model.logprobs(&texts).map_err(of_train)
    }

    fn ascend(&mut self, uphill: &[Uphill<'_>], lr: f64) -> Result<StepOutcome, TrainError> {
        let texts: Vec<_> =
            uphill.iter().map(|it| (text(it.sample), it.logprobs, it.coefficients)).collect();
        let adam = Adam { learning_rate: lr, ..self.adam };
        // What the weights were before shows in the log-probabilities.
        for (text, logprobs, coefficients) in &texts {
            let tokens = text.prompt.iter().chain(text.completion).map(|&token| u64::from(token));
            let numbers = logprobs.iter().chain(*coefficients);
            let numbers = numbers.map(|number| u64::from(number.to_bits()));
            self.lineage = self.lineage.derive("text", &tokens.chain(numbers).collect::<Vec<_>>());
        }
        let Adam { learning_rate, beta1, beta2, eps, weight_decay, grad_clip_norm } = adam;
        let clip = grad_clip_norm.unwrap_or(0.0);
        let settings = [learning_rate, beta1, beta2, eps, weight_decay, clip].map(f64::to_bits);
        self.lineage = self.lineage.derive("step", &settings);
        let norm = self.model.ascend(&texts, &self.traits, &adam).map_err(of_train)?;
        let grad_norm = norm.unwrap_or(f64::NAN);
        Ok(StepOutcome { grad_norm, grad_scale: 1.0, skipped: false })
    }
}

/// Builds the run of `recipe`, whose policy is on a server, as [`build_run`](super::build_run) does for one of this
/// process.
pub(crate) fn build_on_server(
    recipe: &Recipe,
    parts: CustomParts<firebrick_models::Decoder>,
    resume: Option<&Path>,
    sources: &Sources,
    now: DateTime,
) -> Result<BuiltRun<RemoteLearner<ServerPolicy>>, Error> {
    let UpdateEngine::Tinker(server) = &recipe.engine else { return Err(Error::NotOnServer) };
    let seed = Seed::run(recipe.seed);
    let device = device::of_recipe(recipe)?;
    let introduction = device::introduce(recipe.device.name(), &device)?;
    let (notes_tx, notes) = channel();
    let replaced = parts.replaced();
    let mut parts: CustomParts<ServerPolicy> = parts.of_another_policy()?;
    let environment = environment::environment(recipe, parts.environment.take(), &notes_tx)?;

    let own_verifier = parts.verifier.is_some();
    let judges = match parts.verifier.take() {
        Some(verifier) => Judges::one(verifier),
        None => judges(recipe, &device, sources, now, parts.run_folder.as_deref(), &notes_tx)?,
    };
    let request = DataRequest {
        train: parts.source.is_none(),
        heldout: parts.heldout.is_none(),
        sft_examples: parts.sft_examples.is_none(),
        messages: own_verifier || !recipe.reward_models().is_empty(),
        judges: &judges,
        environment: environment.as_deref(),
    };

    // The weights are the server's, so that only tokenizer and sizes are read.
    let folders = Folders::of_recipe(recipe, None, sources, Need::Text)?;
    let folders = folders.ok_or_else(|| Error::NoModel { folder: PathBuf::new() })?;
    let mut data = Data::read(recipe, request, Some(&folders), sources, seed, now, &notes_tx)?;
    if !own_verifier {
        data.check_references(recipe, &judges, &notes_tx)?;
    }
    let verifier = judges.into_verifier();

    let sizes = folders.sizes()?;
    check_vocabulary(&data.tokenizer, &sizes, &folders.text)?;
    let session = open(server, sizes.vocab_size, &notes_tx)?;
    let rank = recipe.model.lora.as_ref().map_or(0, |lora| lora.rank);
    // The run's own adapter comes first: some servers let go of the base model with their last adapter.
    let (model, lineage) = begin(server, &session, rank, seed, resume)?;
    let traits = measure(recipe, &session, rank, &data.tokenizer, &notes_tx)?;
    check_alpha(recipe, &model, resume)?;
    let vocabulary = sizes.vocab_size;
    let policy = ServerPolicy { model, traits, adam: adam(recipe), vocabulary, lineage };

    let source = match parts.source.take() {
        Some(source) => source,
        None => Box::new(data::source(recipe, data.train, seed)?),
    };
    parts.heldout.get_or_insert(data.heldout);
    let talking = environment.map(|environment| {
        ConversationSetup::new(recipe, environment, &data.tokenizer, data.format.clone())
    });
    let talking = talking.transpose()?;
    if let (Some(talking), None) = (&talking, &parts.sft_examples) {
        talking.play(&mut data.sft_examples, &data.sft_prompts)?;
    }
    parts.sft_examples.get_or_insert(data.sft_examples);

    let origin = PolicyOrigin::Adapters;
    let state = match resume {
        Some(checkpoint) => {
            let (state, NoState {}) = load_trainer(&checkpoint.join(TRAINER))?;
            Some(same_prompts(state, source.fingerprint(), checkpoint)?)
        }
        None => None,
    };
    let at_once = recipe.rollout.max_sequences;
    let engine = TinkerEngine::new(data.tokenizer.clone(), at_once, server.tolerance);
    let schedule = policy_schedule(recipe, origin, parts.schedule.take());
    let updater = updater(recipe, micro_batching(recipe, None));
    let size = format!("{} at {}, adapters of rank {rank}", server.model, session.url());
    let files = ServerFiles { session, rank, seed, base: folders.base };
    let inputs = RunInputs {
        engine: Box::new(engine),
        origin,
        files: Box::new(files),
        size,
        tokenizer: data.tokenizer,
        source,
        verifier,
        talking,
        notes: (notes_tx, notes),
    };

    let learner = RemoteLearner::new(policy, updater, schedule, device.autodiff());
    let built = BuiltLearner { learner, state, critic: None };
    let built = assemble(recipe, parts, inputs, built)?;
    Ok(BuiltRun { device: introduction, replaced, report: data.report, sets: data.sets, ..built })
}

/// State of a learner that has none.
#[derive(Deserialize)]
struct NoState {}

fn open(
    server: &TinkerServer,
    vocabulary: usize,
    notes_tx: &Sender<String>,
) -> Result<Arc<TinkerSession>, Error> {
    let key = match &server.key_variable {
        None => None,
        Some(name) => Some(key("engine.key_variable", name)?),
    };
    let settings = TinkerSettings {
        url: server.url.clone(),
        base_model: server.model.clone(),
        key,
        deadline: Duration::from_secs_f64(server.deadline),
        patience: Duration::from_secs_f64(server.patience),
        vocabulary,
    };
    let notes_tx = notes_tx.clone();
    Ok(TinkerSession::open(settings, move |line| drop(notes_tx.send(line)))?)
}

/// The largest limit of a gradient's norm, which is none.
const NO_LIMIT: f64 = 1e9;

/// Returns Adam's settings, but for the rate of a step.
fn adam(recipe: &Recipe) -> Adam {
    let optim = &recipe.optim;
    let (beta1, beta2, eps) = match optim.kind {
        OptimKind::AdamW { beta1, beta2, epsilon }
        | OptimKind::Muon { beta1, beta2, epsilon, .. } => (beta1, beta2, epsilon),
    };
    let grad_clip_norm = Some(optim.max_grad_norm).filter(|&norm| norm < NO_LIMIT);
    let weight_decay = optim.weight_decay;
    Adam { learning_rate: 0.0, beta1, beta2, eps, weight_decay, grad_clip_norm }
}

/// Measures the server, says what was found, and refuses what the recipe asks for and the server does not do.
fn measure(
    recipe: &Recipe,
    session: &Arc<TinkerSession>,
    rank: usize,
    tokenizer: &firebrick_data::Tokenizer,
    notes_tx: &Sender<String>,
) -> Result<ServerTraits, Error> {
    let base = session.url().to_owned();
    let unfit = |problem: &str| TinkerError::Unfit { base: base.clone(), problem: problem.into() };
    let probe = probes(tokenizer).into_iter().next().filter(|probe| probe.len() >= 8);
    let probe =
        probe.ok_or_else(|| unfit("the tokenizer has no text of 8 words to try it with"))?;
    let traits = ServerTraits::measure(session, rank, &probe)?;

    let of_text = if traits.reduction.per_text { "the mean over each text" } else { "the sum" };
    let of_texts = match traits.reduction.over {
        Over::One => "added up",
        Over::Step => "averaged over the texts of a step",
        Over::Request => "averaged over the texts of a request",
        Over::StepTargets => "divided by all tokens of a step",
        Over::RequestTargets => "divided by all tokens of a request",
    };
    let yes = |does: bool, what: &str| format!("{} {what}", if does { "takes" } else { "ignores" });
    let _ = notes_tx.send(format!(
        "the server at {base}, by measurement: its gradients are {of_text} of tokens, {of_texts}; it {}, {} and {}",
        yes(traits.takes_adam, "Adam's settings"),
        yes(traits.clips, "a limit on the gradient's norm"),
        yes(traits.numbered, "the numbers of requests"),
    ));

    if !traits.clips && recipe.optim.max_grad_norm < NO_LIMIT {
        return Err(unfit(&format!(
            "it ignores a request's limit on the gradient's norm, and optim.max_grad_norm is {}: set optim.max_grad_norm = 1e9, \
             which is no limit, and the limit where the server is started",
            recipe.optim.max_grad_norm
        ))
        .into());
    }
    let defaults = Recipe::default();
    let others = adam(recipe).beta1 != adam(&defaults).beta1
        || adam(recipe).beta2 != adam(&defaults).beta2
        || adam(recipe).eps != adam(&defaults).eps;
    if !traits.takes_adam && (others || recipe.optim.weight_decay != 0.0) {
        return Err(unfit(
            "it has its own settings of Adam: set optim.weight_decay = 0.0, leave the others of [optim] out, and set all of \
             them where the server is started",
        )
        .into());
    }
    Ok(traits)
}

/// Makes the adapter of a new run, or the one that a checkpoint continues with.
fn begin(
    server: &TinkerServer,
    session: &Arc<TinkerSession>,
    rank: usize,
    seed: Seed,
    resume: Option<&Path>,
) -> Result<(TinkerModel, Seed), Error> {
    let Some(checkpoint) = resume else {
        let beginning = seed.derive(&server.model, &[rank as u64]);
        return Ok((TinkerModel::create(session, rank, seed_of(seed))?, beginning));
    };
    let saved = Saved::read(&checkpoint.join(TRAINER).join(WEIGHTS))?;
    // An ended process may have left its adapter, and the server may have room for few.
    session.unload_model(&saved.model_id);
    Ok((saved.load(session, seed)?, saved.lineage))
}

/// Returns the seed of an adapter, in the 31 bits that servers take.
fn seed_of(seed: Seed) -> u64 {
    let [a, b, c, d, ..] = seed.derive("lora", &[]).bytes();
    u64::from(u32::from_le_bytes([a, b, c, d]) >> 1)
}

/// Checks that the server's adapters are as strong as the recipe says, if it does.
fn check_alpha(recipe: &Recipe, model: &TinkerModel, resume: Option<&Path>) -> Result<(), Error> {
    let Some(expected) = recipe.model.lora.as_ref().and_then(|lora| lora.alpha) else {
        return Ok(());
    };
    if resume.is_some() {
        return Ok(());
    }
    let files = model.adapter_files()?;
    let config = files.and_then(|files| serde_json::from_slice::<Value>(&files.config).ok());
    let actual = config.and_then(|config| config["lora_alpha"].as_f64());
    if actual == Some(expected) {
        return Ok(());
    }

    let found =
        actual.map_or("it does not tell what it has".into(), |it| format!("the server's is {it}"));
    let problem = format!(
        "model.lora.alpha is {expected}, and {found}: leave it out, because no request sets it"
    );
    Err(TinkerError::Unfit { base: model.session().url().to_owned(), problem }.into())
}

/// What a checkpoint knows of its weights on the server.
#[derive(Serialize, Deserialize)]
struct Saved {
    /// Path of weights and optimizer there.
    path: String,
    /// The adapter that they were saved from.
    model_id: String,
    rank: usize,
    lineage: Seed,
}

/// Name of the file with [`Saved`].
const SAVED: &str = "server.json";

impl Saved {
    fn read(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(SAVED);
        let text = read_own(&path, 1 << 16)?;
        serde_json::from_str(&text)
            .map_err(|error| Error::Progress { path, problem: error.to_string() })
    }

    /// Makes an adapter with these weights.
    fn load(&self, session: &Arc<TinkerSession>, seed: Seed) -> Result<TinkerModel, TinkerError> {
        // If an answer is lost, another adapter is made, because loading is an adapter's first request.
        let load = || {
            let model = TinkerModel::create(session, self.rank, seed_of(seed))?;
            model.load(&self.path).map(|()| model)
        };
        let again = |error| match error {
            TinkerError::Unsure { .. } => load(),
            error => Err(error),
        };
        load().or_else(again).or_else(again)
    }
}

/// Files of a policy on a server: its adapter, if the server offers it for download, and where its weights and its
/// optimizer are there.
struct ServerFiles {
    session: Arc<TinkerSession>,
    rank: usize,
    seed: Seed,
    base: AdapterBase,
}

impl PolicyFiles<ServerPolicy> for ServerFiles {
    fn write(&self, policy: &ServerPolicy, folder: &Path) -> Result<(), Error> {
        let Some(files) = policy.model.adapter_files()? else { return Ok(()) };
        let mut config: Value = serde_json::from_slice(&files.config).unwrap_or_default();
        if let Some(config) = config.as_object_mut() {
            // The server's own path of its model helps nobody else.
            config.insert("base_model_name_or_path".into(), self.base.name.clone().into());
            // SkyRL does not say what its adapters adapt.
            if config.get("target_modules").is_none_or(Value::is_null) {
                config.insert("target_modules".into(), files.targets().into());
            }
        }
        let config = serde_json::to_vec_pretty(&config).unwrap_or_default();
        for (name, bytes) in
            [("adapter_config.json", &config), ("adapter_model.safetensors", &files.weights)]
        {
            let path = folder.join(name);
            fs::write(&path, bytes).map_err(|source| Error::File { path, source })?;
        }
        Ok(())
    }

    fn rounds(&self) -> bool {
        // The adapter alone has no optimizer, which is on the server.
        true
    }

    fn write_trained(&self, policy: &ServerPolicy, folder: &Path) -> Result<(), Error> {
        let model = &policy.model;
        let path = model.save()?;
        let (model_id, lineage) = (model.id().to_owned(), policy.lineage);
        let saved = Saved { path, model_id, rank: self.rank, lineage };
        let bytes = serde_json::to_vec_pretty(&saved).unwrap_or_default();
        Ok(write_atomically(&folder.join(SAVED), &bytes)?)
    }

    fn read(&self, policy: ServerPolicy, folder: &Path) -> Result<ServerPolicy, Error> {
        let saved = Saved::read(folder)?;
        let model = saved.load(&self.session, self.seed)?;
        Ok(ServerPolicy { model, lineage: saved.lineage, ..policy })
    }

    fn frozen(&self, policy: ServerPolicy, folder: &Path) -> Result<ServerPolicy, Error> {
        // A copy would be the same adapter, and move with it.
        self.read(policy, folder)
    }

    fn interrupted_by(&self, flag: &Arc<AtomicBool>) {
        self.session.interrupted_by(flag.clone());
    }

    fn format(&self) -> FileFormat<'_> {
        FileFormat::HuggingFace { base: &self.base, adapter: true, dtype: WeightDtype::F32 }
    }
}
