use std::path::PathBuf;

use firebrick_data::DataError;
use firebrick_models::CheckpointError;
use firebrick_rollout::RolloutError;
use firebrick_runs::RunError;
use firebrick_train::TrainError;
use miette::Diagnostic;

use crate::recipe::RecipeError;

/// Everything that can end a command, said once: what was expected, what came, what to do.
#[derive(Debug, thiserror::Error, Diagnostic)]
pub enum ProgramError {
    /// The recipe is wrong.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Recipe(#[from] RecipeError),
    /// The data or the tokenizer is wrong.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The model is wrong.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Training failed.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// The run folder failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The recipe names a device that this build does not contain.
    #[error("this program was built for the CPU; the recipe asks for device.kind = \"{kind}\"")]
    #[diagnostic(help("set device.kind = \"cpu\", or leave the table out"))]
    Device {
        /// As in the recipe.
        kind: String,
    },
    /// A new model has no tokenizer but the task's.
    #[error("model.new needs data.task: a model made from nothing gets its alphabet from a task")]
    #[diagnostic(help("set data.task, or model.path to a folder with a tokenizer"))]
    NewModelNeedsTask,
    /// `data.template = "chat"` without a template.
    #[error("data.template is \"chat\", but {} has no chat template", folder.display())]
    #[diagnostic(help("use an instruct model, or data.template = \"plain\""))]
    NoChatTemplate {
        /// The model's folder; empty for a new model.
        folder: PathBuf,
    },
    /// The tokenizer knows more tokens than the model.
    #[error(
        "{}: tokenizer.json has {tokenizer} tokens, but config.json makes a model of {model}",
        folder.display()
    )]
    #[diagnostic(help("the two files belong to different models; download the folder again"))]
    Vocabulary {
        /// The model's folder.
        folder: PathBuf,
        /// Tokens of the tokenizer.
        tokenizer: usize,
        /// `vocab_size`.
        model: usize,
    },
    /// No prompt fits beside the completion.
    #[error(
        "rollout.max_completion_tokens = {completion} leaves no room for a prompt: the model's \
         context is {context} tokens"
    )]
    #[diagnostic(help("lower rollout.max_completion_tokens"))]
    Context {
        /// As in the recipe.
        completion: usize,
        /// `max_position_embeddings`.
        context: usize,
    },
    /// A path that should be a checkpoint is none.
    #[error("{} is not a checkpoint of a run: it has no {missing}", path.display())]
    #[diagnostic(help("give a folder such as runs/quickstart/checkpoints/step-000100, or --recipe with a model folder"))]
    NotACheckpoint {
        /// As given.
        path: PathBuf,
        /// What was looked for.
        missing: String,
    },
    /// The recipe has nothing to evaluate on.
    #[error("the recipe has no held-out prompts")]
    #[diagnostic(help("set data.heldout to a file, or data.heldout_size above 0"))]
    NoHeldout,
    /// A file of the run could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl From<RolloutError> for ProgramError {
    fn from(error: RolloutError) -> Self {
        ProgramError::Train(error.into())
    }
}

impl ProgramError {
    /// 2 for what the user wrote, 1 for what went wrong.
    pub fn exit_code(&self) -> u8 {
        match self {
            ProgramError::Recipe(_) | ProgramError::NewModelNeedsTask => 2,
            _ => 1,
        }
    }
}
