use std::{
    fs::{self, File},
    io::{BufReader, BufWriter, Write as _},
    path::Path,
};

use burn::module::Module;
use firebrick_core::{RewardedGroup, Step};
use serde::{Deserialize, Serialize};

use crate::{
    Ahead, LossScale, Optimizer, PromptMemory, Room, TrainError,
    memory::{load_memory, save_memory},
};

/// What a resumed run needs to go on as if it had never stopped, besides the weights. Random
/// numbers are not among it: they follow from the seed and the step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainerState {
    /// Steps done.
    pub step: Step,
    /// Prompts drawn.
    pub cursor: u64,
    /// Which prompts they were drawn from: a number made from all of them.
    pub prompts: u64,
    /// Groups with spread that no step has used yet.
    pub surplus: Vec<RewardedGroup>,
    /// What is remembered of the prompts that were sampled; empty without a memory. In a file of its
    /// own, because it may be larger than everything else.
    #[serde(skip)]
    pub memory: PromptMemory,
    /// The next step's groups, where it was sampled before its turn. In a file of its own, too.
    #[serde(skip)]
    pub ahead: Option<Ahead>,
    /// Completions sampled so far, but for those.
    pub generated: u64,
    /// Completions that went into an update.
    pub trained: u64,
    /// The room that the device has, as far as that was found out.
    #[serde(default)]
    pub room: Room,
    /// By how much log-probabilities of engine and updater differed last, on the same weights: the mean, in nats.
    #[serde(default)]
    pub logprob_diff: Option<f64>,
    /// Mini-batches in a row whose gradient was not finite.
    #[serde(default)]
    pub skipped_in_a_row: u64,
    /// For products in f16.
    #[serde(default)]
    pub loss_scale: LossScale,
}

/// Writes `state.json` and `optimizer.safetensors`, with a prompt memory `prompts.safetensors`, and with groups of the next
/// step `ahead.json` into `folder`, which exists.
///
/// # Errors
/// When a file cannot be written.
pub fn save_state<M: Module>(
    folder: &Path,
    state: &TrainerState,
    optimizer: &dyn Optimizer<M>,
) -> Result<(), TrainError> {
    let path = folder.join(STATE);
    let written = Written { state, remembered: state.memory.len() };
    let text = serde_json::to_string(&written).expect("the state has only names as keys");
    fs::write(&path, text)
        .map_err(|error| TrainError::checkpoint(&path, format!("cannot be written: {error}")))?;
    save_memory(folder, &state.memory)?;
    save_ahead(folder, state.ahead.as_ref())?;
    optimizer.save(&folder.join(OPTIMIZER))
}

/// Reads what [`save_state`] wrote; the optimizer's state goes to `optimizer`.
///
/// # Errors
/// When a file is missing, damaged, or belongs to another model or another state.
pub fn load_state<M: Module>(
    folder: &Path,
    module: &M,
    optimizer: &mut dyn Optimizer<M>,
) -> Result<TrainerState, TrainError> {
    let path = folder.join(STATE);
    let text = fs::read_to_string(&path)
        .map_err(|error| TrainError::checkpoint(&path, format!("cannot be read: {error}")))?;
    let fault = |error: serde_json::Error| {
        TrainError::checkpoint(&path, format!("is not a trainer's state: {error}"))
    };
    let mut state: TrainerState = serde_json::from_str(&text).map_err(fault)?;
    let Expected { remembered } = serde_json::from_str(&text).map_err(fault)?;
    state.memory = load_memory(folder, remembered)?;
    state.ahead = load_ahead(folder)?;
    let device = module.devices().into_iter().next().map(burn::tensor::Device::inner);
    if let Some(device) = device {
        optimizer.load(module, &folder.join(OPTIMIZER), &device)?;
    }
    Ok(state)
}

/// What `state.json` holds: the state, and what is in the other file for it. Without the number a lost
/// memory would be an empty one, and the run another one.
#[derive(Serialize)]
struct Written<'a> {
    #[serde(flatten)]
    state: &'a TrainerState,
    /// Prompts with a record.
    remembered: usize,
}

/// The part of [`Written`] that is no part of the state.
#[derive(Deserialize)]
struct Expected {
    /// Unknown of a checkpoint from before it was written down.
    #[serde(default)]
    remembered: Option<usize>,
}

fn save_ahead(folder: &Path, ahead: Option<&Ahead>) -> Result<(), TrainError> {
    let Some(ahead) = ahead else { return Ok(()) };
    let path = folder.join(AHEAD);
    let write = || {
        let mut file = BufWriter::new(File::create(&path)?);
        serde_json::to_writer(&mut file, ahead)?;
        file.flush()
    };
    let fault = |error| TrainError::checkpoint(&path, format!("cannot be written: {error}"));
    write().map_err(fault)
}

/// The groups of the next step; none where the folder has no file of them.
fn load_ahead(folder: &Path) -> Result<Option<Ahead>, TrainError> {
    let path = folder.join(AHEAD);
    if !path.exists() {
        return Ok(None);
    }
    let fault = |error: String| TrainError::checkpoint(&path, format!("cannot be read: {error}"));
    let file = File::open(&path).map_err(|error| fault(error.to_string()))?;
    let ahead = serde_json::from_reader(BufReader::new(file));
    ahead.map(Some).map_err(|error| fault(error.to_string()))
}

const STATE: &str = "state.json";
const AHEAD: &str = "ahead.json";
const OPTIMIZER: &str = "optimizer.safetensors";
