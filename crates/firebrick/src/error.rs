//! Errors that end a run, with advice on each.

use std::{
    fmt, iter,
    path::{Path, PathBuf},
};

use firebrick_core::VerifierFailed;
use firebrick_data::{DataError, HubError, HubName, PromptReport, SftReport};
use firebrick_device::{Name, OpenError};
use firebrick_environments::OpenEnvError;
use firebrick_models::{CheckpointError, Compute};
use firebrick_reward::RewardError;
use firebrick_rollout::RolloutError;
use firebrick_runs::{RunError, path_word, resume_command};
use firebrick_servers::{PoolError, TinkerError};
use firebrick_train::TrainError;

use crate::recipe::RecipeError;

/// Any error that can end a run. Its message says once what was expected, what was found, and what to do.
///
/// A `main` that returns it prints its `Debug`, so that is readable text too: the message, followed by [`Error::help`].
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A fault of the recipe.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// Faulty data, or a faulty tokenizer.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A verifier that can't be built.
    #[error(transparent)]
    Reward(#[from] RewardError),
    /// A faulty model.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Training failed.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// A failure of the run's folder or record.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A pool of inference servers that can't be set up.
    #[error(transparent)]
    Servers(#[from] PoolError),
    /// A server that was to update the policy and can't.
    #[error(transparent)]
    Tinker(#[from] TinkerError),
    /// The recipe's policy is on a server, and was to be trained in this process.
    #[error("engine.kind is \"tinker\", so that the policy is on a server and not in this process")]
    OnServer,
    /// The recipe's policy is in this process, and was to be trained on a server.
    #[error("engine.kind is \"local\", so that the policy is in this process and not on a server")]
    NotOnServer,
    /// An environment that can't be set up.
    #[error(transparent)]
    Environment(#[from] OpenEnvError),
    /// The recipe names a program's own environment, and there is none.
    #[error("environment.kind is \"own\", but the program brings no environment")]
    NoEnvironment,
    /// No token ends with a text that is to end a turn.
    #[error("environment.stop has {text:?}, but no token of this model ends with this text")]
    Stop {
        /// Text.
        text: String,
    },
    /// An SFT example does not fit the environment's side of the conversation.
    #[error(
        "the worked solution of {prompt:?} does not fit a conversation with the environment: \
         {problem}"
    )]
    SftExample {
        /// Prompt.
        prompt: String,
        /// Text of the environment and that of the solution, or another fault.
        problem: String,
    },
    /// An environment does not say how many tasks it has.
    #[error("data.task: {0}")]
    Tasks(String),
    /// An episode that should become a prompt can't begin.
    #[error("episode {id} of the environment gives no prompt: {problem}")]
    Opening {
        /// Number of the episode.
        id: u64,
        /// Reason why there is none.
        problem: String,
    },
    /// The process's environment has no key for the servers.
    #[error(
        "{setting} is {variable:?}, but this environment variable is missing or empty: set it to \
         the servers' API key"
    )]
    NoKey {
        /// Key of the recipe that names the variable.
        setting: &'static str,
        /// Name of the variable.
        variable: String,
    },
    /// A device that can't be opened.
    #[error("{0}")]
    Device(#[from] OpenError),
    /// A device that failed while it was computing.
    #[error("{device} failed in {phase}: {problem}")]
    DeviceFailed {
        /// Device.
        device: Name,
        /// Work that it did, such as `step 12`.
        phase: String,
        /// Memory that was asked for and that there was, or the driver's message.
        problem: String,
        /// Change to make.
        remedy: String,
        /// Saved state from which the run can continue, as text.
        saved: String,
    },
    /// `model.path` does not exist.
    #[error(
        "model.path is {}, expected a folder with config.json, model.safetensors and tokenizer.json, or \
         a name on the Hugging Face Hub",
        folder.display()
    )]
    NoModel {
        /// Path in the recipe.
        folder: PathBuf,
    },
    /// An adapter whose model does not exist.
    #[error("{} is an adapter for the model {}, which does not exist", adapter.display(), base.display())]
    NoBase {
        /// Folder of the adapter.
        adapter: PathBuf,
        /// Model in the adapter's file.
        base: PathBuf,
    },
    /// A model that was not trained from another one, as far as its folder says.
    #[error("{} has no base model: {why}", model.display())]
    NoBaseModel {
        /// Folder of the model.
        model: PathBuf,
        /// Reason.
        why: &'static str,
    },
    /// A folder has no revisions.
    #[error("model.revision is set, but model.path is the folder {}", folder.display())]
    RevisionOfFolder {
        /// Folder in the recipe.
        folder: PathBuf,
    },
    /// A revision that is not valid.
    #[error("model.revision is {revision:?}, expected a branch, a tag or a commit")]
    NoRevision {
        /// Revision in the recipe.
        revision: String,
    },
    /// Update after update had a gradient that is not finite.
    #[error("{count} updates in a row were skipped, because their gradients were not finite; the last batch is in {}", batch.display())]
    Diverged {
        /// Number of updates.
        count: u64,
        /// File that has the last skipped batch.
        batch: PathBuf,
    },
    /// A verifier that finds most references wrong.
    #[error(
        "{key}: given the reference itself as the answer, reward.kind = \"{kind}\" judges {count} of {total} wrong, \
         such as {first}"
    )]
    References {
        /// Set, by its key or name.
        key: String,
        /// Kind of the verifier.
        kind: String,
        /// Number of references that are not right.
        count: usize,
        /// Number of references that were looked at.
        total: usize,
        /// First three of them.
        first: String,
    },
    /// A judge that could not judge the first row.
    #[error(
        "the judge gives no verdict on the first row, {question:?}, with {completion:?} as the completion: {problem}"
    )]
    Judge {
        /// The row's question.
        question: String,
        /// The completion that was to be judged.
        completion: String,
        /// What is wrong, in the judge's own words.
        problem: VerifierFailed,
    },
    /// A verifier that can read no reference of a set.
    #[error(
        "{key}: reward.kind = \"{kind}\" can read none of the {total} references, such as {first}: no answer could be \
         compared with them"
    )]
    Unreadable {
        /// Set, by its key or name.
        key: String,
        /// Kind of the verifier.
        kind: String,
        /// Number of references.
        total: usize,
        /// First three of them.
        first: String,
    },
    /// A file is not the batch of a skipped update, or is another model's.
    #[error("{} is not the batch of a skipped update: {problem}", path.display())]
    Batch {
        /// File.
        path: PathBuf,
        /// Fault of the file.
        problem: String,
    },
    /// A run can't continue, because none of its checkpoints is intact.
    #[error("no checkpoint of the run is intact; the newest: {newest}")]
    AllDamaged {
        /// Newest checkpoint, and its damage.
        newest: String,
    },
    /// `data.train` or `data.heldout` does not exist.
    #[error("there is no data at {}", path.display())]
    NoData {
        /// Path in the recipe.
        path: PathBuf,
    },
    /// A name is not a path here, and the Hub does not provide it either.
    #[error(
        "{key} is {name}, and there is no such path here; as a name on the Hugging Face Hub: \
         {error}"
    )]
    NotHere {
        /// Option that names it, such as `model.path`.
        key: &'static str,
        /// Name.
        name: HubName,
        /// Reason why the Hub does not provide it.
        error: Box<HubError>,
        /// A command that downloads it into the folder DIR.
        download: String,
    },
    /// The `path` of a reward model does not exist.
    #[error("the reward model's path is {}, expected a folder with config.json, model.safetensors and tokenizer.json", folder.display())]
    NoRewardModel {
        /// Path in the recipe.
        folder: PathBuf,
    },
    /// A reward model's folder has no chat template, and so no format for conversations.
    #[error("{} has no chat template, but a reward model reads conversations", folder.display())]
    RewardModelWithoutTemplate {
        /// Folder of the reward model.
        folder: PathBuf,
    },
    /// A new model has no tokenizer.
    #[error(
        "model.new has neither a tokenizer nor an alphabet, and there is no data.task to take one \
         from"
    )]
    NewModelNeedsAlphabet,
    /// `data.template = "chat"` is set, and there is no template.
    #[error("data.template is \"chat\", but {} has no chat template", model_at(folder))]
    NoChatTemplate {
        /// Folder of the model; empty for a new model.
        folder: PathBuf,
    },
    /// No template reads an option of `data.template_options`.
    #[error("{key} names `{name}`, which {place} does not read")]
    TemplateOption {
        /// Key under which it was given.
        key: &'static str,
        /// Option.
        name: String,
        /// File of the template, or a word for a plain prompt.
        place: String,
        /// Variables that the template reads.
        variables: Vec<String>,
    },
    /// A tokenizer with more tokens than the model.
    #[error(
        "{}: tokenizer.json has {tokenizer} tokens, but the vocab_size of config.json is {model}",
        folder.display()
    )]
    Vocabulary {
        /// Folder of the model.
        folder: PathBuf,
        /// Number of tokens in the tokenizer.
        tokenizer: usize,
        /// `vocab_size`.
        model: usize,
    },
    /// A new model's embedding has too few rows.
    #[error(
        "model.new.vocab_size is {vocab_size}, expected at least the tokenizer's {tokenizer} tokens"
    )]
    NewVocabulary {
        /// Number of tokens in the tokenizer.
        tokenizer: usize,
        /// `vocab_size` in the recipe.
        vocab_size: usize,
    },
    /// A program's own policy has too few rows for the tokenizer.
    #[error("the tokenizer has {tokenizer} tokens, but the policy's head has {policy} rows")]
    PolicyVocabulary {
        /// Number of tokens in the tokenizer.
        tokenizer: usize,
        /// Number of rows in the policy's head.
        policy: usize,
    },
    /// SFT has nothing to imitate.
    #[error("sft.steps is above 0, but there are no SFT examples to imitate")]
    NoSftExamples,
    /// Every row of `sft.data` is too long.
    #[error("no example of {} can be imitated ({report})", path.display())]
    LongSftExamples {
        /// File, folder or name of the rows.
        path: PathBuf,
        /// How many rows were read, and why they were left out.
        report: SftReport,
        /// Setting that would keep some.
        remedy: &'static str,
    },
    /// A setting has no effect, because the program brings that part itself.
    #[error("{key} is set, expected only if the recipe names the model, the data and the verifier")]
    Brought {
        /// Key of the setting, such as `model.dtype`.
        key: String,
    },
    /// A part was set that has no effect in this session.
    #[error("{part} is set, expected only {needs}")]
    NoEffect {
        /// Method that set it.
        part: &'static str,
        /// Condition under which it would have an effect.
        needs: &'static str,
    },
    /// A run whose step has failed was to be finished.
    #[error("a step of the run has failed, so there is no summary; its error came from the step")]
    StepFailed,
    /// A part that the program brings failed, with its own message.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
    /// A program's own policy can't learn, because its device has no autodiff.
    #[error("the policy is on a device without autodiff, expected a device with autodiff")]
    NoAutodiff,
    /// A device that does not compute in `model.dtype`.
    #[error("{device} does not compute in {dtype}, the format of model.dtype or --dtype")]
    NoFormat {
        /// Format.
        dtype: Compute,
        /// Device.
        device: Name,
    },
    /// A rubric that no judge can be asked by.
    #[error("{problem}")]
    Rubric {
        /// What is wrong.
        problem: String,
    },
    /// A teacher that is not there.
    #[error("teacher.path is {}, expected a folder with a model", folder.display())]
    NoTeacher {
        /// Path of the recipe.
        folder: PathBuf,
    },
    /// A teacher that is a run.
    #[error("teacher.path is {}, a run, expected one of its checkpoints", folder.display())]
    TeacherRun {
        /// Folder of the run.
        folder: PathBuf,
    },
    /// A teacher with another tokenizer.
    #[error(
        "the teacher {} does not have the policy's tokens: {token:?} is none of its own, or has another id there",
        folder.display()
    )]
    TeacherTokens {
        /// Folder of the teacher.
        folder: PathBuf,
        /// Token of the policy.
        token: String,
    },
    /// A teacher with fewer rows for tokens.
    #[error(
        "the teacher {} has {teacher} rows for tokens, expected at least the policy's {policy}",
        folder.display()
    )]
    TeacherVocabulary {
        /// Folder of the teacher.
        folder: PathBuf,
        /// Rows of the teacher.
        teacher: usize,
        /// Rows of the policy.
        policy: usize,
    },
    /// A teacher for shorter texts.
    #[error(
        "the teacher {} reads texts of {context} tokens, expected at least the {longest} of a prompt and a completion",
        folder.display()
    )]
    TeacherContext {
        /// Folder of the teacher.
        folder: PathBuf,
        /// Longest text of the teacher.
        context: usize,
        /// Longest text of the recipe.
        longest: usize,
    },
    /// The recipe has `[model.lora]`, and the model is an adapter already.
    #[error("{} is an adapter already, but [model.lora] asks for another one", folder.display())]
    TwoAdapters {
        /// Folder of the adapter.
        folder: PathBuf,
    },
    /// The recipe has `model.base`, and every weight of the model is trained.
    #[error(
        "model.base is set, expected only with model.lora, or with an adapter as model.path: {} is a \
         whole model, and all its weights are trained",
        folder.display()
    )]
    NoAdapter {
        /// Folder of the model.
        folder: PathBuf,
    },
    /// None of the model's projections is among the targets of `[model.lora]`.
    #[error(
        "model.lora.targets names no projection of this model that can have an adapter: nothing would be trained"
    )]
    NoTarget,
    /// `[model.lora]` asks for a part that the model does not have.
    #[error("model.lora: {problem}")]
    Adapters {
        /// Reason.
        problem: String,
    },
    /// `loss.router_aux_loss_coef` is set for a model without experts.
    #[error("loss.router_aux_loss_coef is for models with experts, but this model has none")]
    NoExperts,
    /// No prompt fits next to the completion.
    #[error(
        "completions of {completion} tokens leave no room for a prompt: the model's context is \
         {context} tokens"
    )]
    Context {
        /// Tokens of the longest completion in the recipe, with those of an environment.
        completion: usize,
        /// Tokens among them that the environment may say.
        observed: usize,
        /// `max_position_embeddings`.
        context: usize,
    },
    /// Every prompt is too long.
    #[error("no prompt of {place} is left ({report}); a prompt may have {limit} tokens")]
    NoPrompts {
        /// File, or the task.
        place: String,
        /// Number of prompts that were read, and the reasons why they were dropped.
        report: PromptReport,
        /// Limit that was applied.
        limit: usize,
        /// Key to change.
        remedy: &'static str,
    },
    /// A change to a resumed run's recipe that its checkpoints can't follow.
    #[error("{} can't continue with {}", run.display(), changes.join(", "))]
    Changed {
        /// Folder of the run.
        run: PathBuf,
        /// Each key with its two values.
        changes: Vec<String>,
    },
    /// A checkpoint to resume from that can't be used.
    #[error("{error}")]
    Damaged {
        /// Folder of the checkpoint.
        checkpoint: PathBuf,
        /// Fault of the checkpoint.
        error: Box<Error>,
    },
    /// The data differs from the data that the run began with.
    #[error("{} was trained on other prompts than the recipe gives now", checkpoint.display())]
    OtherPrompts {
        /// Checkpoint to resume from.
        checkpoint: PathBuf,
    },
    /// A checkpoint's record of the run's measurements can't be read.
    #[error("{} is not a run's progress: {problem}", path.display())]
    Progress {
        /// File.
        path: PathBuf,
        /// Fault of the file.
        problem: String,
    },
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// File.
        path: PathBuf,
        /// Reason.
        source: std::io::Error,
    },
}

fn template_options(variables: &[String]) -> String {
    match variables {
        [] => "leave the option out: without a template, nothing reads options".into(),
        all => format!("the template reads {}", all.join(", ")),
    }
}

impl From<RolloutError> for Error {
    fn from(error: RolloutError) -> Self {
        Error::Train(error.into())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{self}")?;
        match self.help() {
            Some(help) => write!(to, "\nhelp: {help}"),
            None => Ok(()),
        }
    }
}

impl Error {
    /// Returns advice on the error, if the message does not include it.
    pub fn help(&self) -> Option<String> {
        Some(match self {
            Error::Recipe(error) => return error.help(),
            Error::Other(_) => return None,
            Error::Reward(RewardError::Command { .. }) => {
                "reward.program is started without a shell; its first word is a program in PATH \
                 or a path; a further word that leads to a file next to the recipe means that file"
                    .into()
            }
            Error::Reward(_)
            | Error::NoKey { .. }
            | Error::Servers(_)
            | Error::Tinker(_)
            | Error::Environment(_) => return None,
            Error::OnServer => {
                "`firebrick train` and `plan` know servers, and in a program Session::run_anywhere; whatever else needs the weights needs them here"
                    .into()
            }
            Error::NotOnServer => "take Session::steps or Session::run".into(),
            Error::Stop { .. } => {
                "choose a text that a token ends with, such as a punctuation mark, or leave the \
                 text out: the model's own end of a message ends a turn too"
                    .into()
            }
            Error::NoEnvironment => {
                "give the Session an environment (Session::environment), or choose another \
                 environment.kind"
                    .into()
            }
            Error::SftExample { .. } => {
                "set environment.stop or environment.max_turn_tokens, so that a turn ends where \
                 the environment's reply begins in the solution; or leave SFT out"
                    .into()
            }
            Error::Tasks(_) => {
                "start the servers before the run; data.task.split and heldout_split are splits that \
                 the environment lists, and data.heldout_size may be smaller"
                    .into()
            }
            Error::Opening { .. } => {
                "start the servers before the run; environment.opening makes the prompt from an \
                 episode's first observation, and environment.reset chooses the episode"
                    .into()
            }

            Error::Device(error) => error.remedy(),
            Error::DeviceFailed { remedy, saved, .. } => format!("{remedy}; {saved}"),
            Error::NoModel { .. } => {
                "set model.path to the folder, or to a name such as Qwen/Qwen2.5-0.5B-Instruct, \
                 which is downloaded; a path in the recipe begins at the recipe's folder, a path \
                 of --set at the current directory"
                    .into()
            }
            Error::NoBase { adapter, .. } => format!(
                "put the model back, or set base_model_name_or_path in {} to the model's new path",
                adapter.join("adapter_config.json").display()
            ),
            Error::NoBaseModel { .. } => {
                "name the model to compare it with, instead of `base`".into()
            }
            Error::RevisionOfFolder { .. } => {
                "only models on the Hugging Face Hub have revisions: remove model.revision".into()
            }

            Error::NoData { .. } => {
                "name a file or folder of .jsonl, .csv or .parquet files, or a data set on the Hugging Face \
                 Hub, such as openai/gsm8k"
                    .into()
            }
            Error::NotHere { download, .. } => format!(
                "if you mean a path, correct it: a path in the recipe begins at the recipe's \
                 folder, a path of --set at the current directory. Without a network, run \
                 `{download}` on a machine that has one and give DIR instead of the name, or copy \
                 that machine's cache into HF_HOME and set HF_HUB_OFFLINE=1"
            ),

            Error::NoRewardModel { .. } => {
                "reward.path names a ...ForSequenceClassification checkpoint with one label; a \
                 path in the recipe begins at the recipe's folder, a path of --set at the current \
                 directory"
                    .into()
            }
            Error::RewardModelWithoutTemplate { .. } => {
                "the template is the key chat_template of tokenizer_config.json, or the file \
                 chat_template.jinja"
                    .into()
            }

            Error::NewModelNeedsAlphabet => {
                "set model.new.alphabet to the characters that prompts and completions are made of, or \
                 model.new.tokenizer to a folder with a tokenizer.json"
                    .into()
            }
            Error::NoChatTemplate { .. } => {
                "use an instruct model, or data.template = \"plain\"".into()
            }
            Error::TemplateOption { variables, .. } => template_options(variables),
            Error::Vocabulary { .. } => {
                "the two files belong to different models; download the folder again".into()
            }
            Error::NewVocabulary { .. } => {
                "raise model.new.vocab_size, or leave it out to get the tokenizer's size".into()
            }
            Error::PolicyVocabulary { .. } => {
                "make the policy with at least as many rows as the tokenizer has tokens".into()
            }

            Error::NoSftExamples => {
                "name a file of them in sft.data, supply some with Session::sft_examples, choose a task that has \
                 solutions, or set sft.steps = 0"
                    .into()
            }
            Error::LongSftExamples { remedy, .. } => (*remedy).into(),
            Error::NoEffect { .. } => "remove it: it would change nothing here".into(),
            Error::StepFailed => "continue the run from its last checkpoint with Session::resume".into(),
            Error::Brought { .. } => {
                "leave it out of Session::settings: policy, prompts and verifier are the program's own".into()
            }

            Error::NoAutodiff => {
                "make the policy on device.autodiff(), such as Device::flex().autodiff()".into()
            }
            Error::NoFormat { .. } => {
                "leave the format out: the device then decides".into()
            }

            Error::Diverged { batch, .. } => format!(
                "see which completions are to blame: firebrick replay {}; then lower optim.lr, or raise \
                 train.max_skipped to continue regardless",
                path_word(batch)
            ),
            Error::References { .. } | Error::Unreadable { .. } => {
                "set data.columns.reference to the column that has the answers, or reward.kind to a verifier that reads them"
                    .into()
            }
            Error::Judge { .. } => {
                "correct the judge; `firebrick try` shows what it says about a few completions".into()
            }
            Error::Batch { .. } => {
                "give a file such as runs/NAME/skipped-step-000012-0.json, and leave it in its \
                 run's folder"
                    .into()
            }

            Error::AllDamaged { .. } => {
                "start over under another name; or remove trainer/SHA256SUMS from a \
                 checkpoint to take that checkpoint as it is"
                    .into()
            }

            Error::Rubric { .. } => {
                "its variables are question, reference, completion and fence, each in two braces: {{ completion }}"
                    .into()
            }
            Error::NoTeacher { .. } => {
                "set teacher.path to a model's folder, a checkpoint, or a name on the Hub; a path in the recipe begins at the \
                 recipe's folder, a path of --set at the current directory"
                    .into()
            }
            Error::TeacherRun { folder } => {
                format!("take one of the folders in {}", path_word(&folder.join("checkpoints")))
            }
            Error::TeacherTokens { .. } | Error::TeacherVocabulary { .. } => {
                "the teacher judges the policy's own tokens: take a model of the same family".into()
            }
            Error::TeacherContext { .. } => {
                "lower data.max_prompt_tokens or rollout.max_completion_tokens, or take another teacher"
                    .into()
            }

            Error::TwoAdapters { folder } => format!(
                "remove [model.lora] to continue with that adapter, or merge it first: firebrick export \
                 {} OUT --merge",
                path_word(folder)
            ),
            Error::NoAdapter { .. } => {
                "remove model.base (`--set model.base=` does), or train adapters: --set \
                 model.lora.rank=16"
                    .into()
            }
            Error::NoTarget => {
                "add projections of the attention, such as q_proj; experts have no adapters".into()
            }
            Error::Adapters { .. } => "leave model.lora.modules_to_save out, or choose another adapter in model.path".into(),
            Error::NoExperts => "leave it out, or set it to 0".into(),

            Error::Context { observed: 0, .. } => "lower rollout.max_completion_tokens".into(),
            Error::Context { observed, .. } => format!(
                "lower rollout.max_completion_tokens or environment.max_observation_tokens, which lets the environment \
                 say {observed} of these tokens"
            ),
            Error::NoPrompts { remedy, .. } => (*remedy).to_owned(),

            Error::Changed { run, .. } => format!(
                "to continue with the old settings: `{}`; otherwise give the \
                 run another name to start over, or start a new run from this run's weights: \
                 model.path = \"{}\"",
                resume_command(run),
                run.join("checkpoints/…").display()
            ),
            Error::Damaged { checkpoint, .. } => format!(
                "to resume from the checkpoint before this one, remove the folder {}",
                checkpoint.display()
            ),
            Error::OtherPrompts { .. } => {
                "the checkpoint's position in the data means nothing in other data: restore the file, \
                 the prompt format, the limits on length and the reward that the run began with, \
                 or begin a new run"
                    .into()
            }

            Error::Train(TrainError::Verifier(_)) => {
                "fix the judge, and try it by itself: `firebrick try` asks it about a few completions. A program gets lines such as {\"id\": 0, \"question\": \"\", \
                 \"prompt\": \"\", \"reference\": \"\", \"completion\": \"\", \"finish\": \"stop\"}. A run then continues \
                 from its last checkpoint with --resume; reward.restarts is the number of failures in a row after \
                 which it is still started again"
                    .into()
            }

            Error::Data(_)
            | Error::Checkpoint(_)
            | Error::Train(_)
            | Error::Run(_)
            | Error::NoRevision { .. }
            | Error::Progress { .. }
            | Error::File { .. } => return of_system(&self.to_string()).map(String::from),
        })
    }

    /// Returns the exit code of the process: 2 for a fault of the arguments or the recipe, 3 for a policy that no
    /// longer computes finite values, 1 for any other fault.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Recipe(_)
            | Error::Device(_)
            | Error::Reward(_)
            | Error::NewModelNeedsAlphabet
            | Error::NewVocabulary { .. }
            | Error::RevisionOfFolder { .. }
            | Error::NoBaseModel { .. }
            | Error::NoRevision { .. }
            | Error::NoChatTemplate { .. }
            | Error::NoFormat { .. }
            | Error::Rubric { .. }
            | Error::NoTeacher { .. }
            | Error::TeacherRun { .. }
            | Error::TeacherTokens { .. }
            | Error::TeacherVocabulary { .. }
            | Error::TeacherContext { .. }
            | Error::TwoAdapters { .. }
            | Error::NoAdapter { .. }
            | Error::NoTarget
            | Error::NoExperts
            | Error::Adapters { .. }
            | Error::TemplateOption { .. }
            | Error::Context { .. }
            | Error::Changed { .. }
            | Error::OtherPrompts { .. }
            | Error::References { .. }
            | Error::Unreadable { .. }
            | Error::Judge { .. }
            | Error::Batch { .. }
            | Error::Brought { .. }
            | Error::NoKey { .. }
            | Error::Servers(PoolError::Address { .. })
            | Error::Tinker(TinkerError::Address(_) | TinkerError::Unfit { .. })
            | Error::OnServer
            | Error::NotOnServer
            | Error::Environment(
                OpenEnvError::Address { .. } | OpenEnvError::Key | OpenEnvError::Template(_),
            )
            | Error::NoEnvironment
            | Error::Stop { .. }
            | Error::SftExample { .. }
            | Error::LongSftExamples { .. }
            | Error::NoEffect { .. }
            | Error::Run(
                RunError::Name(_)
                | RunError::Exists { .. }
                | RunError::NothingToResume { .. }
                | RunError::NoCheckpoint { .. },
            ) => 2,

            Error::Diverged { .. }
            | Error::Train(
                TrainError::NotFinite { .. } | TrainError::Rollout(RolloutError::NotFinite { .. }),
            ) => 3,
            _ => 1,
        }
    }

    /// Blames `checkpoint`, from which a run continues, if the error is its fault: there may be an older one. Other
    /// folders are read with it, such as the model under an adapter and a reward model, but an error names the file at
    /// fault. A file that the system does not open may be intact, so it is not the checkpoint's fault.
    pub(crate) fn of_checkpoint(self, checkpoint: &Path) -> Self {
        let path = checkpoint.display().to_string();
        let names = |error: &dyn std::error::Error| error.to_string().contains(&path);
        if !iter::successors(Some(&self as &dyn std::error::Error), |error| error.source())
            .any(names)
            || of_system(&self.to_string()).is_some()
        {
            return self;
        }

        match self {
            Error::Checkpoint(_)
            | Error::Vocabulary { .. }
            | Error::Train(TrainError::Checkpoint { .. } | TrainError::Weights(_))
            | Error::Data(DataError::Tokenizer { .. } | DataError::Template { .. })
            | Error::Progress { .. } => {
                Error::Damaged { checkpoint: checkpoint.to_owned(), error: Box::new(self) }
            }
            other => other,
        }
    }
}

/// Returns advice for a refusal by the system, as far as its messages are known. Although not every error has the
/// system's error as a value, every one has its message in the text.
fn of_system(text: &str) -> Option<&'static str> {
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));

    // SQLite has one message for everything that the system refuses to write.
    if says(&["File too large"]) || says(&["disk I/O error"]) && limits_files() {
        Some(
            "a limit on the size of files was reached: raise it (`ulimit -f unlimited`, or the batch system's setting); a \
             run then continues with --resume",
        )
    } else if says(&["Resource temporarily unavailable"]) {
        Some(
            "the system allows no more threads: raise its limits (`ulimit -u` for threads, `ulimit -v` for memory, \
             `pids.max` of a container); a run then continues with --resume",
        )
    } else if says(&["No space left on device", "not enough space on the disk", "disk is full"]) {
        Some(
            "free some space; a run then continues with --resume. Each folder in a run's checkpoints/ is a \
             whole model, and checkpoint.keep says how many stay",
        )
    } else if says(&["Permission denied"]) && says(&["can't read", "cannot read", "cannot be read"])
    {
        Some(
            "have its owner let you read it (chmod -R a+rX FOLDER): nothing says that it is damaged, and \
             nothing was changed",
        )
    } else if says(&["Permission denied", "Read-only file system"]) {
        Some("choose a folder that you may write to; for a run, set --runs FOLDER")
    } else {
        None
    }
}

/// Tells whether the system limits the size of files.
fn limits_files() -> bool {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, getrlimit};

        getrlimit(Resource::Fsize).current.is_some()
    }
    #[cfg(not(unix))]
    false
}

/// Names the model of a folder, which is empty for a new model.
fn model_at(folder: &Path) -> String {
    if folder.as_os_str().is_empty() {
        "the new model of [model.new]".into()
    } else {
        folder.display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_has_a_next_command() {
        let help = |code| {
            let source = std::io::Error::from_raw_os_error(code);
            Error::File { path: "runs/a/summary.json".into(), source }.help()
        };

        if cfg!(target_os = "linux") {
            assert!(help(28).unwrap().contains("--resume"));
            assert!(help(13).unwrap().contains("--runs"));
            assert!(help(27).unwrap().contains("ulimit -f"));
            assert!(help(11).unwrap().contains("ulimit -u"));
            let error = std::io::Error::from_raw_os_error(13);
            let read =
                RunError::File { action: "read", path: "step-000003/state.json".into(), error };
            assert!(Error::from(read).help().unwrap().contains("let you read it"));
        }
        assert_eq!(help(5), None);
    }
}
