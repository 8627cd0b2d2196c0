//! State of the trainer in a checkpoint, besides the weights.

use std::{
    fs::{self, File},
    io::{BufReader, BufWriter, Write as _},
    path::Path,
};

use burn::module::Module;
use firebrick_core::{RewardedGroup, Step};
use safetensors::tensor::TensorView;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    error::TrainError,
    learner::{local::LearnerState, optim::Optimizer},
    sampler::{
        curriculum::{PromptHistory, load_history, save_history},
        sampled::Prefetched,
    },
};

/// What a resumed run needs, besides the weights, to continue as if it had never stopped. It holds no random
/// numbers: they follow from the seed and the step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainerState {
    /// Steps done.
    pub step: Step,
    /// Prompts drawn.
    pub cursor: u64,
    /// Hash of all the prompts that the run draws from, to recognise them.
    pub prompts: u64,
    /// Groups with spread that no step has used yet.
    pub carried_over: Vec<RewardedGroup>,
    /// Records of the prompts that were sampled; empty without a curriculum. They have a separate file, because
    /// they may be larger than everything else.
    #[serde(skip)]
    pub history: PromptHistory,
    /// The next step's groups, if they were prefetched. They too have a separate file.
    #[serde(skip)]
    pub prefetched: Option<Prefetched>,
    /// Completions sampled so far, without those of `prefetched`.
    pub generated: u64,
    /// Completions that went into an update.
    pub trained: u64,
    /// Last mean difference between the log-probabilities of engine and updater on the same weights, in nats.
    #[serde(default)]
    pub logprob_diff: Option<f64>,
    /// Mini-batches in a row whose gradient was not finite.
    #[serde(default)]
    pub skipped_in_a_row: u64,
}

/// Writes the files of [`save_trainer`], and `optimizer.safetensors`.
///
/// # Errors
/// When a file cannot be written.
pub fn save_state<M: Module>(
    folder: &Path,
    state: &TrainerState,
    learner: &LearnerState,
    optimizer: &dyn Optimizer<M>,
) -> Result<(), TrainError> {
    save_trainer(folder, state, learner)?;
    optimizer.save(&folder.join(OPTIMIZER))
}

/// Writes `state.json` into `folder`, which exists; also `prompts.safetensors` if prompts have a history, and
/// `prefetched.json` if there are groups of the next step. `learner` is the state of a learner.
///
/// # Errors
/// When a file cannot be written.
pub fn save_trainer<L: Serialize>(
    folder: &Path,
    state: &TrainerState,
    learner: &L,
) -> Result<(), TrainError> {
    let path = folder.join(STATE);
    let written = Written { state, learner, remembered: state.history.len() };
    let text = serde_json::to_string(&written).expect("the state has only names as keys");
    fs::write(&path, text)
        .map_err(|error| TrainError::checkpoint(&path, format!("cannot be written: {error}")))?;

    save_history(folder, &state.history)?;
    save_prefetched(folder, state.prefetched.as_ref())
}

/// Reads the files of [`save_state`]; the optimizer's state is loaded into `optimizer`.
///
/// # Errors
/// When a file is missing, damaged, or belongs to another model or another state.
pub fn load_state<M: Module>(
    folder: &Path,
    module: &M,
    optimizer: &mut dyn Optimizer<M>,
) -> Result<(TrainerState, LearnerState), TrainError> {
    let (state, learner) = load_trainer(folder)?;
    let device = module.devices().into_iter().next().map(burn::tensor::Device::inner);
    if let Some(device) = device {
        optimizer.load(module, &folder.join(OPTIMIZER), &device)?;
    }
    Ok((state, learner))
}

/// Reads the files of [`save_trainer`].
///
/// # Errors
/// When a file is missing or damaged.
pub fn load_trainer<L: DeserializeOwned>(folder: &Path) -> Result<(TrainerState, L), TrainError> {
    let path = folder.join(STATE);
    let text = fs::read_to_string(&path)
        .map_err(|error| TrainError::checkpoint(&path, format!("cannot be read: {error}")))?;

    let fault = |error: serde_json::Error| {
        TrainError::checkpoint(&path, format!("is not a trainer's state: {error}"))
    };
    let mut state: TrainerState = serde_json::from_str(&text).map_err(fault)?;
    let Expected { learner, remembered } = serde_json::from_str(&text).map_err(fault)?;

    state.history = load_history(folder, remembered)?;
    state.prefetched = load_prefetched(folder)?;
    Ok((state, learner))
}

/// Content of `state.json`: the state of trainer and learner, and the number of records in the history's file. Without that number a
/// lost history would be read as an empty one, and the run would become another run.
#[derive(Serialize)]
struct Written<'a, L> {
    #[serde(flatten)]
    state: &'a TrainerState,
    #[serde(flatten)]
    learner: &'a L,
    /// Prompts with a record.
    remembered: usize,
}

/// What [`Written`] adds to the state.
#[derive(Deserialize)]
struct Expected<L> {
    #[serde(flatten)]
    learner: L,
    /// `None` in a checkpoint of an older version, which did not write the number.
    #[serde(default)]
    remembered: Option<usize>,
}

fn save_prefetched(folder: &Path, prefetched: Option<&Prefetched>) -> Result<(), TrainError> {
    let Some(prefetched) = prefetched else { return Ok(()) };
    let path = folder.join(PREFETCHED);
    let write = || {
        let mut file = BufWriter::new(File::create(&path)?);
        serde_json::to_writer(&mut file, prefetched)?;
        file.flush()
    };

    let fault = |error| TrainError::checkpoint(&path, format!("cannot be written: {error}"));
    write().map_err(fault)
}

/// Reads the groups of the next step; `None` if the folder has no file of them.
fn load_prefetched(folder: &Path) -> Result<Option<Prefetched>, TrainError> {
    let path = folder.join(PREFETCHED);
    if !path.exists() {
        return Ok(None);
    }

    let fault = |error: String| TrainError::checkpoint(&path, format!("cannot be read: {error}"));
    let file = File::open(&path).map_err(|error| fault(error.to_string()))?;
    let prefetched = serde_json::from_reader(BufReader::new(file));
    prefetched.map(Some).map_err(|error| fault(error.to_string()))
}

const STATE: &str = "state.json";
const PREFETCHED: &str = "prefetched.json";
const OPTIMIZER: &str = "optimizer.safetensors";

/// Writes a safetensors file with the permissions of every other file of a checkpoint, which are those that
/// the umask leaves. safetensors (0.8) writes a temporary file and renames it, and only its owner may read a
/// temporary file: nobody else could resume from such a checkpoint.
pub(crate) fn write_tensors<'a, S: AsRef<str> + Ord + std::fmt::Display>(
    tensors: impl IntoIterator<Item = (S, TensorView<'a>)>,
    path: &Path,
) -> Result<(), TrainError> {
    let fault =
        |problem: String| TrainError::checkpoint(path, format!("cannot be written: {problem}"));
    let made = File::create(path).and_then(|file| file.metadata());
    let rights = made.map_err(|error| fault(error.to_string()))?.permissions();

    safetensors::serialize_to_file(tensors, None, path)
        .map_err(|error| fault(error.to_string()))?;
    fs::set_permissions(path, rights).map_err(|error| fault(error.to_string()))
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use safetensors::Dtype;

    use super::*;

    #[test]
    fn a_file_of_tensors_has_the_rights_of_any_other() {
        let folder = tempfile::tempdir().unwrap();
        let rights = |name: &str| {
            fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777
        };
        fs::write(folder.path().join("any"), "").unwrap();

        let one = TensorView::new(Dtype::U8, vec![1], &[7]).unwrap();
        write_tensors([("one", one)], &folder.path().join("tensors")).unwrap();
        assert_eq!(rights("tensors"), rights("any"));
    }
}
