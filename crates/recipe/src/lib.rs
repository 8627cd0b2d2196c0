//! Recipe of a Firebrick run: one file that says what to train, on what, and how.
//!
//! Every setting has one key, a type and a default. The schema, the messages and the book are made from these
//! types, so a program can read, check and change recipes without anything that trains.
//!
//! ```
//! use firebrick_recipe::Recipe;
//!
//! let text = "model.path = \"qwen\"\ndata.train = \"train.jsonl\"\n[rollout]\ngroup_siz = 8\n";
//! let error = Recipe::parse("my.toml".as_ref(), text, &[]).unwrap_err();
//! assert_eq!(error.to_string(), "my.toml:4:1: unknown key `group_siz` in [rollout]");
//! assert_eq!(error.help().unwrap(), "did you mean `group_size`?");
//!
//! let set = ["rollout.group_size=8".to_owned()];
//! let loaded = Recipe::parse("my.toml".as_ref(), text.split("[r").next().unwrap(), &set).unwrap();
//! assert_eq!((loaded.name.as_str(), loaded.recipe.rollout.group_size), ("my", 8));
//! ```
//!
//! A recipe is read in passes: its syntax, TOML or YAML (`yaml`); the `--set` overrides (`overrides`); the
//! comparison with the schema (`schema_check`); and the checks across keys (`validate`). Each pass points to
//! the position in the text where it fails. The last two passes walk the same document for TOML and YAML.

mod bounds;
mod critic;
mod data;
mod engine;
mod environment;
mod error;
mod foreign_keys;
mod keys;
mod kind;
mod likely;
mod model;
mod observe;
mod overrides;
mod paths;
mod reward;
mod sampling;
mod schema_check;
mod sft;
mod tables;
mod teacher;
mod text;
mod unused;
mod validate;
mod verifier;
pub mod yaml;

use std::{
    fs::{self, File},
    io::Read as _,
    path::{Path, PathBuf},
};

use firebrick_core::{config::DistillationLoss, text_from};
use schemars::{JsonSchema, Schema, generate::SchemaSettings, transform::RecursiveTransform};
use serde::{Deserialize, Serialize};
use toml::{Spanned, de::DeTable};

use overrides::Override;

pub use critic::{Critic, CriticKind};
pub use data::{Columns, Data, Task, Template, TrainData, TrainSource};
pub use engine::{Engine, EngineKind, TinkerServer, UpdateEngine};
pub use environment::{Environment, EnvironmentKind, Role};
pub use error::{Invalid, Label, Problem, RecipeError};
pub use likely::likely;
pub use model::{BaseType, ComputeType, Lora, LoraTarget, Model, NewModel, WholeModule};
pub use observe::Observe;
pub use reward::{Overlong, Reward, Stop};
pub use sampling::Sampling;
pub use sft::{PolicyOrigin, Sft, SftColumns};
pub use tables::{
    Advantage, Checkpoint, CheckpointDtype, Device, Eval, EvalSet, Kernels, Kl, Loss, LossKind,
    Optim, OptimKind, Recompute, Record, Rollout, Schedule, Train,
};
pub use teacher::{Teacher, TeacherKind, TeacherServers};
pub use text::Text;
pub use verifier::{
    AnswerFork, CodeOptions, Extraction, JudgeAnswer, OfTask, Part, RewardKind, SandboxKind,
    Transform,
};

// The algorithm computes by these types, and a recipe is composed of them.
pub use firebrick_core::{
    config::{
        AdaptiveUpdates, Aggregation, CurriculumRule, Dynamic, Family, GateLevel, KlEstimator,
        Moments, OldLogprobs, OnCap, PosteriorRule, SharePrompts, VarianceRule,
    },
    device::Kind as DeviceKind,
};
pub use firebrick_reward::{LengthPenalty, PenaltyForm};

/// A Firebrick recipe: what to train, on what, and how. Only `model` and `data` are required.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Name of the run and of its folder. By default it is the recipe's file name without the ending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Seed of everything random: data order, new weights, sampling.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// The device to compute on.
    #[serde(default)]
    pub device: Device,
    /// Where the policy is updated and sampled: by default in this process.
    #[serde(
        default,
        deserialize_with = "kind::or_default",
        skip_serializing_if = "UpdateEngine::is_local"
    )]
    pub engine: UpdateEngine,
    /// The policy to start from.
    pub model: Model,
    /// The prompts to train and to evaluate on.
    pub data: Data,
    /// Supervised steps before the first rollout.
    #[serde(default)]
    pub sft: Sft,
    /// The sampling of completions for training.
    #[serde(default)]
    pub rollout: Rollout,
    /// The environment that the policy talks with between its turns, if it takes several.
    #[serde(default)]
    pub environment: Environment,
    /// The choice of the groups that a step trains on (dynamic sampling).
    #[serde(default)]
    pub sampling: Sampling,
    /// The verifier that judges completions, and the reward for its judgement.
    #[serde(default)]
    pub reward: Reward,
    /// The rule that turns the rewards of a step into advantages.
    #[serde(default, deserialize_with = "kind::or_default")]
    pub advantage: Advantage,
    /// The critic of `advantage.kind = "gae"`, which gives advantages token by token: PPO's value function.
    #[serde(default)]
    pub critic: Critic,
    /// A second model that judges each token of the policy's completions, in place of the reward or next to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teacher: Option<Teacher>,
    /// The policy loss.
    #[serde(default)]
    pub loss: Loss,
    /// The optimizer and its learning rate.
    #[serde(default)]
    pub optim: Optim,
    /// The length of the run, and how a step is split.
    #[serde(default)]
    pub train: Train,
    /// The measurement of held-out accuracy.
    #[serde(default)]
    pub eval: Eval,
    /// The checkpoints that the run saves.
    #[serde(default)]
    pub checkpoint: Checkpoint,
    /// Bounds on the run's database.
    #[serde(default)]
    pub record: Record,
    /// Phrases that are counted in completions.
    #[serde(default)]
    pub observe: Observe,
}

/// A recipe as it was read, overrides included.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// Checked values.
    pub recipe: Recipe,
    /// Effective recipe in TOML, as the run folder keeps it. It has the comments of a TOML file, although not
    /// those of a YAML file.
    pub text: String,
    /// Name of the run: the recipe's `name`, or the stem of the file's name.
    pub name: String,
}

impl Loaded {
    /// Tells whether the recipe or an override sets the key or table of this dotted name, such as `device.kind`, even
    /// if to its default. A recipe that was made without a text sets everything.
    pub fn sets(&self, key: &str) -> bool {
        let Ok(table) = self.text.parse::<toml::Table>() else { return false };
        let mut names = key.split('.');
        let first = names.next().and_then(|name| table.get(name));
        names.fold(first, |value, name| value?.get(name)).is_some()
    }
}

/// Stands for a program that brings its own policy and prompts. `model` and `data` are empty, which a recipe
/// file may not have.
impl Default for Recipe {
    fn default() -> Self {
        Recipe {
            name: None,
            seed: default_seed(),
            device: Device::default(),
            engine: UpdateEngine::default(),
            model: Model::default(),
            data: Data::default(),
            sft: Sft::default(),
            rollout: Rollout::default(),
            environment: Environment::default(),
            sampling: Sampling::default(),
            reward: Reward::default(),
            advantage: Advantage::default(),
            critic: Critic::default(),
            teacher: None,
            loss: Loss::default(),
            optim: Optim::default(),
            train: Train::default(),
            eval: Eval::default(),
            checkpoint: Checkpoint::default(),
            record: Record::default(),
            observe: Observe::default(),
        }
    }
}

/// Takes a recipe that a program made, without a file. Its values are not checked. The run is called `run` if
/// the recipe has no name.
impl From<Recipe> for Loaded {
    fn from(recipe: Recipe) -> Self {
        let text = recipe.to_toml();
        let name = recipe.name.clone().unwrap_or_else(|| "run".into());
        Loaded { recipe, text, name }
    }
}

impl Recipe {
    /// Reads the recipe at `path`, as [`Recipe::load`] does without overrides.
    ///
    /// # Errors
    /// When the file can't be read, or is not a valid recipe.
    pub fn read(path: impl AsRef<Path>) -> Result<Loaded, RecipeError> {
        Recipe::load(path.as_ref(), &[])
    }

    /// Reads the recipe at `path` and applies `overrides`, each of the form `table.key=value`.
    ///
    /// A file whose name ends in `.yaml` or `.yml` is read as YAML, any other file as TOML. Relative paths in the
    /// file begin at its folder, relative paths in `overrides` at the current folder. The loaded text has absolute
    /// paths. `owner/name` stays a name on the Hub unless that path exists.
    ///
    /// # Errors
    /// When the file can't be read, an override can't be applied, or the result is not a valid recipe.
    pub fn load(path: &Path, overrides: &[String]) -> Result<Loaded, RecipeError> {
        let text =
            read_text(path).map_err(|error| RecipeError::Read { path: path.to_owned(), error })?;
        Recipe::load_text(path, &text, overrides)
    }

    /// Reads `text` as [`Recipe::load`] would read it from a file at `path`. The file need not exist. Paths
    /// in the text are searched on the disk.
    ///
    /// # Errors
    /// When an override can't be applied, or the result is not a valid recipe.
    pub fn load_text(path: &Path, text: &str, overrides: &[String]) -> Result<Loaded, RecipeError> {
        let overrides = Override::all(overrides)?;
        let loaded = Recipe::from_text(path, text, &overrides)?;
        Ok(paths::resolve_paths(loaded, path, &overrides))
    }

    /// Reads a recipe from `text`. `path` names the recipe in errors and gives the run its default name, and
    /// its ending distinguishes TOML from YAML. Paths in the text stay as they are written.
    ///
    /// # Errors
    /// As for [`Recipe::load`], except that no file is read.
    pub fn parse(path: &Path, text: &str, overrides: &[String]) -> Result<Loaded, RecipeError> {
        Recipe::from_text(path, text, &Override::all(overrides)?)
    }

    fn from_text(path: &Path, text: &str, overrides: &[Override]) -> Result<Loaded, RecipeError> {
        if yaml::is_yaml(path) {
            Recipe::from_yaml(path, text, overrides)
        } else {
            Recipe::from_toml(path, text, overrides)
        }
    }

    fn from_toml(path: &Path, text: &str, overrides: &[Override]) -> Result<Loaded, RecipeError> {
        let file = Text::new(path.display().to_string(), text);
        // The file is read before the overrides, so that its own faults have its own positions.
        DeTable::parse(text).map_err(|error| {
            let is_yaml =
                yaml::parse(text).is_ok_and(|tree| tree.is_some_and(|it| it.is_mapping()));
            let help = is_yaml.then(|| "a recipe in YAML has a name that ends in .yaml".to_owned());
            let problem = Problem::syntax(&error, text);
            let help = help.or_else(|| error::backslash_help(text, problem.span.start));
            file.point(Problem { help, ..problem })
        })?;

        let effective = overrides::apply(text, overrides)?;
        let file = file.overridden(&effective, overrides);
        let document = DeTable::parse(&effective)
            .map_err(|error| file.point(Problem::syntax(&error, &effective)))?;

        let (recipe, name) = checked(path, document, &file)?;
        Ok(Loaded { recipe, text: effective, name })
    }

    fn from_yaml(path: &Path, text: &str, overrides: &[Override]) -> Result<Loaded, RecipeError> {
        let file = Text::new(path.display().to_string(), text);
        let tree = yaml::parse(text).map_err(|problem| file.point(problem))?;
        let mut document = yaml::document(tree.as_ref()).map_err(|problem| file.point(problem))?;

        let shown = overrides::below(text, overrides);
        overrides::insert(&mut document, overrides, &shown)?;
        let file = file.overridden(&shown, overrides);

        let effective = yaml::to_toml(&document);

        let (recipe, name) = checked(path, Spanned::new(0..0, document), &file)?;
        let origin = "# From a recipe in YAML, whose comments are not kept.\n\n";
        Ok(Loaded { recipe, text: format!("{origin}{effective}"), name })
    }

    /// Writes the recipe in TOML, with its defaults. Keys without effect are left out, because a recipe that
    /// sets one is refused.
    pub fn to_toml(&self) -> String {
        let Ok(mut table) = toml::Table::try_from(self) else { return String::new() };
        for unused in self.unused_keys() {
            remove(&mut table, &unused.key);
        }

        // A tool's own table would come after the tool's other keys.
        let data = table.get_mut("data").and_then(toml::Value::as_table_mut);
        let options = data.and_then(|data| data.remove("template_options"));
        let text = toml::to_string(&table).unwrap_or_default();

        match (options, text.parse::<toml_edit::DocumentMut>()) {
            (Some(options), Ok(mut document)) => {
                document["data"]["template_options"] = toml_edit::value(on_one_line(options));
                document.to_string()
            }
            _ => text,
        }
    }

    /// Returns the recipe with absolute paths, so that two recipes can be compared. Relative paths begin at
    /// the current folder.
    pub fn with_absolute_paths(&self) -> Recipe {
        paths::with_absolute_paths(self)
    }

    /// Returns the recipe without the folders of this machine and the addresses of its servers, for a reader
    /// elsewhere. An absolute path keeps only its last name, an address only its index in the list.
    pub fn without_folders(&self) -> Recipe {
        paths::without_folders(self)
    }

    /// Returns the number of steps that train the policy: the steps after the critic's warm-up.
    pub fn policy_steps(&self) -> u64 {
        let alone = if self.has_critic() { self.critic.warmup_steps } else { 0 };
        self.train.steps.saturating_sub(alone)
    }

    /// Returns what the trained weights are before the run, as far as the recipe says: `model.path` may lead to
    /// adapters too.
    pub fn origin(&self) -> PolicyOrigin {
        if self.model.lora.is_some() {
            PolicyOrigin::Adapters
        } else if self.model.new.is_some() {
            PolicyOrigin::New
        } else {
            PolicyOrigin::Trained
        }
    }

    /// Returns the policy's learning rate, as far as the recipe says ([`Recipe::origin`]).
    pub fn learning_rate(&self) -> f64 {
        self.optim.learning_rate(self.origin())
    }

    /// Returns the number of tokens in the longest text that a run may reach: a prompt and its completion.
    pub fn longest_text(&self) -> usize {
        self.data.max_prompt_tokens.saturating_add(self.longest_completion())
    }

    /// Returns the number of tokens in the longest completion: those that the policy writes, and those that
    /// it observes meanwhile.
    pub fn longest_completion(&self) -> usize {
        self.rollout.max_completion_tokens.saturating_add(self.environment.observation_tokens())
    }

    /// Returns true if a device records its decoding steps and repeats them.
    pub fn records_graphs(&self) -> bool {
        let alone = !self.rollout.engine.is_remote()
            && self.rollout.max_staleness == 0
            && self.reward_models().is_empty();
        // Other devices gain nothing from a recording by default.
        let gains = matches!(self.device.kind, DeviceKind::Cuda | DeviceKind::Rocm);
        self.rollout.graphs.unwrap_or(alone && gains)
    }

    /// Returns true if a critic estimates the advantages.
    pub fn has_critic(&self) -> bool {
        matches!(self.advantage, Advantage::Gae { .. })
    }

    /// Returns the verifier: the recipe's own, or the one that fits its data.
    pub fn reward_kind(&self) -> RewardKind {
        self.reward.kind.clone().unwrap_or(match self.data.task {
            Some(Task::Addition { .. } | Task::Multiplication { .. }) => {
                RewardKind::Integer { marker: None }
            }
            Some(Task::Countdown { .. }) => RewardKind::Countdown { use_all: true },
            Some(Task::Sums { .. } | Task::WordProblems { .. }) => RewardKind::math(),
            Some(Task::Functions { .. }) => RewardKind::Code(CodeOptions::default()),
            Some(Task::Guessing { .. } | Task::Environment { .. }) => RewardKind::environment(),
            None if self.environment.pays() => RewardKind::environment(),
            None => RewardKind::Gsm8k,
        })
    }

    /// Returns the verifier of the prompts of a data set of that name: its own, or that of `[reward]`.
    pub fn reward_kind_of(&self, source: &str) -> RewardKind {
        let mut sources = self.train_sources().iter();
        let own = sources.find(|one| one.name() == source).and_then(|one| one.reward.clone());
        own.unwrap_or_else(|| self.reward_kind())
    }

    /// Returns the verifiers of all prompts: that of `[reward]`, and those of sources with their own.
    pub fn reward_kinds(&self) -> Vec<RewardKind> {
        let own = self.train_sources().iter().filter_map(|source| source.reward.clone());
        std::iter::once(self.reward_kind()).chain(own).collect()
    }

    /// Returns the teachers, each once: that of `[teacher]`, and those of sources with their own.
    pub fn teacher_kinds(&self) -> Vec<&TeacherKind> {
        let own = self.train_sources().iter().filter_map(|source| source.teacher.as_ref());
        let all = self.teacher.iter().map(|teacher| &teacher.kind).chain(own);
        let mut kinds: Vec<&TeacherKind> = Vec::new();
        for kind in all {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds
    }

    /// Returns true if a divergence from a teacher is a loss.
    pub fn has_divergence(&self) -> bool {
        let samples = DistillationLoss::PolicyGradient;
        self.teacher.as_ref().is_some_and(|teacher| teacher.loss != samples)
    }

    /// Returns true if a teacher alone gives advantages, so that rewards teach nothing.
    pub fn rewards_only_measure(&self) -> bool {
        self.teacher.as_ref().is_some_and(|teacher| teacher.task_weight == 0.0)
    }

    /// Returns the verifiers that the recipe names itself, for changes.
    pub fn reward_kinds_mut(&mut self) -> impl Iterator<Item = &mut RewardKind> {
        let sources = match &mut self.data.train {
            Some(TrainData::Several(sources)) => &mut sources[..],
            _ => &mut [],
        };
        let own = sources.iter_mut().filter_map(|source| source.reward.as_mut());
        self.reward.kind.iter_mut().chain(own)
    }

    /// Returns the verifier that is most likely to fail or to be slow: one that asks a program or a model, if there is one.
    pub fn fallible_kind(&self) -> RewardKind {
        let mut kinds = self.reward_kinds().into_iter();
        kinds.find(RewardKind::asks_others).unwrap_or_else(|| self.reward_kind())
    }

    /// Returns the paths of the reward models that judge, alone or as parts.
    pub fn reward_models(&self) -> Vec<PathBuf> {
        let kinds = self.reward_kinds();
        kinds.iter().flat_map(RewardKind::models).map(Path::to_owned).collect()
    }

    /// Returns the sources of training prompts if there are several, else none.
    pub fn train_sources(&self) -> &[TrainSource] {
        self.data.train.as_ref().map_or(&[], TrainData::several)
    }

    /// Returns the JSON schema of a recipe. Editors complete from it, unknown keys are compared with it, and the
    /// book's table of options is made from it.
    pub fn schema() -> serde_json::Value {
        SchemaSettings::draft2020_12()
            .with_transform(RecursiveTransform(simplify_schema))
            .into_generator()
            .into_root_schema_for::<Recipe>()
            .to_value()
    }
}

/// Returns a value for one line of TOML, with its keys in their order.
fn on_one_line(value: toml::Value) -> toml_edit::Value {
    match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => number.into(),
        toml::Value::Boolean(value) => value.into(),
        toml::Value::Datetime(datetime) => datetime.into(),
        toml::Value::Array(items) => {
            items.into_iter().map(on_one_line).collect::<toml_edit::Array>().into()
        }
        toml::Value::Table(table) => {
            let pairs = table.into_iter().map(|(key, value)| (key, on_one_line(value)));
            pairs.collect::<toml_edit::InlineTable>().into()
        }
    }
}

/// Reads the text of a recipe or another configuration: an ordinary file of at most 1 MiB. A recipe has a few
/// thousand bytes.
///
/// # Errors
/// When it can't be read, is larger, is not UTF-8, or is not an ordinary file.
pub fn read_text(path: &Path) -> std::io::Result<String> {
    const MOST: u64 = 1 << 20;
    // The path is checked before it is opened, because opening a pipe waits for somebody to write into it.
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() && !metadata.is_dir() {
        let problem = "it is a pipe or a device, expected a file: write its text into one";
        return Err(std::io::Error::other(problem));
    }

    let mut bytes = Vec::new();
    File::open(path)?.take(MOST + 1).read_to_end(&mut bytes)?;

    if bytes.len() as u64 > MOST {
        return Err(std::io::Error::other("it is larger than 1 MiB"));
    }
    text_from(&bytes)
}

/// Returns the recipe that a document means and the name of its run, or else every fault of its form and of
/// its meaning.
fn checked(
    path: &Path,
    mut document: Spanned<DeTable<'_>>,
    file: &Text<'_>,
) -> Result<(Recipe, String), RecipeError> {
    let mut problems = schema_check::problems(document.get_ref(), &Recipe::schema());

    // Once the values of a wrong form are removed, the others can be compared with each other.
    schema_check::leave_out(document.get_mut(), &problems);
    let recipe = Recipe::deserialize(toml::Deserializer::from(document.clone()));
    let recipe = match recipe {
        Ok(recipe) => recipe,
        Err(error) => {
            let syntax = || file.point(Problem::syntax(&error, ""));
            return Err(file.point_all(problems).unwrap_or_else(syntax));
        }
    };

    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let name = recipe.name.clone().or(stem).unwrap_or_default();

    // What follows from a fault of form is not reported as another fault.
    let semantic_problems = validate::problems(&recipe, &name, document.get_ref());
    problems.extend(schema_check::unrelated(semantic_problems, &problems));

    match file.point_all(problems) {
        Some(error) => Err(error),
        None => Ok((recipe, name)),
    }
}

/// Removes the dotted `key` from a table.
fn remove(table: &mut toml::Table, key: &str) {
    let Some((outer, rest)) = key.split_once('.') else {
        table.remove(key);
        return;
    };

    match table.get_mut(outer) {
        Some(toml::Value::Table(inner)) => remove(inner, rest),
        Some(toml::Value::Array(items)) => {
            let (index, rest) = rest.split_once('.').unwrap_or((rest, ""));
            let item = index.parse::<usize>().ok().and_then(|index| items.get_mut(index));
            if let Some(toml::Value::Table(inner)) = item {
                remove(inner, rest);
            }
        }
        _ => {}
    }
}

/// Removes from a schema whatever is invalid in TOML or useless to its reader: `null`, which TOML lacks; Rust's number
/// formats; the defaults of whole tables, which repeat those of their keys; and the line breaks of the source.
fn simplify_schema(schema: &mut Schema) {
    schema.remove("format");
    if schema.get("default").is_some_and(serde_json::Value::is_object) {
        schema.remove("default");
    }

    // schemars keeps the line breaks of doc comments.
    if let Some(serde_json::Value::String(description)) = schema.get_mut("description") {
        *description = description.replace('\n', " ");
    }

    if let Some(kinds) = schema.get("type").and_then(serde_json::Value::as_array)
        && let [kind, null] = kinds.as_slice()
        && null == "null"
    {
        let kind = kind.clone();
        schema.insert("type".into(), kind);
    }

    if let Some(options) = schema.get("anyOf").and_then(serde_json::Value::as_array)
        && let [option, null] = options.as_slice()
        && null.get("type").is_some_and(|kind| kind == "null")
        && let Some(reference) = option.get("$ref").cloned()
    {
        schema.remove("anyOf");
        schema.insert("$ref".into(), reference);
    }
}

fn default_seed() -> u64 {
    17
}
