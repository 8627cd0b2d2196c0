//! Table `[data]` of a recipe: the prompts of training and evaluation.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use firebrick_core::is_data_file;
use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{SeqAccess, Visitor, value::SeqAccessDeserializer},
};

use super::{RewardKind, TeacherKind, bounds};

/// The prompts: a data set (`train`) or generated problems (`task`), one of the two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Data {
    /// Training prompts: a JSONL, CSV, TSV or Parquet file, a folder of them, or a data set on the Hugging Face
    /// Hub, as `owner/name` or `owner/name@revision`. Or a list of several, each a table with its `path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train: Option<TrainData>,
    /// The subset of `train`, if it has several. The Hub calls a subset a configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subset: Option<String>,
    /// The split of `train`. For a data set on the Hub it is `train` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// Generator of training and held-out problems.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
    /// Held-out prompts, named as in `train`. Without `heldout` and `heldout_split` they are split off the end of
    /// `train`, or come from the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heldout: Option<PathBuf>,
    /// The subset of `heldout`. If `heldout` is left out, the subset of `train` is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heldout_subset: Option<String>,
    /// The split of `heldout`, or of `train` if `heldout` is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heldout_split: Option<String>,
    /// True if rows with the same question become one row, and questions with different references are left out.
    /// This happens before anything is split off, and in each data set of a list for itself.
    pub deduplicate: bool,
    /// Number of training problems to generate. A task that has fewer gives all that it has.
    #[schemars(range(max = bounds::SIZE))]
    pub train_size: usize,
    /// Number of held-out prompts to generate or split off, if they don't have their own file or split.
    #[schemars(range(min = 1, max = bounds::SIZE))]
    pub heldout_size: usize,
    /// Names of the data's columns, for layouts that are not recognised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub columns: Option<Columns>,
    /// How a question becomes the text that the model reads.
    pub template: Template,
    /// Variables of the chat template, such as `enable_thinking = false` or `tools = [...]`. The template
    /// determines which ones there are.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    pub template_options: serde_json::Map<String, serde_json::Value>,
    /// System message of the chat template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Text around the question. The question replaces `{prompt}` in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Largest number of tokens in a prompt. Longer prompts are left out.
    #[schemars(range(min = 1, max = bounds::SIZE))]
    pub max_prompt_tokens: usize,
}

impl Default for Data {
    fn default() -> Self {
        Data {
            train: None,
            subset: None,
            split: None,
            task: None,
            heldout: None,
            heldout_subset: None,
            heldout_split: None,
            deduplicate: true,
            train_size: 20_000,
            heldout_size: 500,
            columns: None,
            template: Template::Auto,
            template_options: serde_json::Map::new(),
            system: None,
            prompt: None,
            max_prompt_tokens: 512,
        }
    }
}

/// The training prompts: one data set, or several.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum TrainData {
    /// One data set, of which `data.subset` and `data.split` choose a part.
    One(PathBuf),
    /// Several, which are drawn from together.
    Several(#[schemars(length(min = 1))] Vec<TrainSource>),
}

/// One of several data sets to train on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table such as { path = \"a.jsonl\" }")]
pub struct TrainSource {
    /// A file, a folder or a data set on the Hub, as in `data.train`.
    pub path: PathBuf,
    /// The subset of a folder or a data set on the Hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub subset: Option<String>,
    /// The split of a folder or a data set on the Hub. By default it is `train`, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub split: Option<String>,
    /// Names of its columns, in place of `data.columns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Columns>,
    /// Name of the source, of letters, digits, `-`, `_` and `.`, by default the last part of its path, without a
    /// file's ending. The metric `eval/data_source/NAME` is the accuracy on its held-out prompts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub name: Option<String>,
    /// Its share of the drawn prompts, relative to the other weights, at least a thousandth of their sum. Either every
    /// source has one or none has, and then every prompt is drawn equally often, as if all were one file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1e6), extend("exclusiveMinimum" = 0.0))]
    pub weight: Option<f64>,
    /// The verifier of its completions, with the options of `[reward]` for that kind; by default the one of `[reward]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward: Option<RewardKind>,
    /// The teacher of its completions, with the options of `[teacher]` for that kind; by default the one of `[teacher]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teacher: Option<TeacherKind>,
}

impl TrainData {
    /// Returns the sources if there are several, else none.
    pub fn several(&self) -> &[TrainSource] {
        match self {
            TrainData::One(_) => &[],
            TrainData::Several(sources) => sources,
        }
    }

    /// Returns where the data sets are: paths, or names on the Hub.
    pub fn paths(&self) -> Vec<&Path> {
        match self {
            TrainData::One(path) => vec![path],
            TrainData::Several(sources) => sources.iter().map(|source| &*source.path).collect(),
        }
    }
}

impl TrainSource {
    /// Returns the name, which is made from the path if the recipe gives none.
    pub fn name(&self) -> String {
        let of_path = || {
            // Only the last part counts, because it is the same in a relative and in an absolute path.
            let is_file = is_data_file(&self.path);
            let last = if is_file { self.path.file_stem() } else { self.path.file_name() };
            let last = last.unwrap_or_default().to_string_lossy();
            // A name on the Hub may end with a revision.
            let last = if is_file { &*last } else { last.split('@').next().unwrap_or_default() };

            let plain = |c: char| if is_name_letter(c) { c } else { '-' };
            last.chars().map(plain).collect()
        };
        self.name.clone().unwrap_or_else(of_path)
    }
}

/// Tells whether a name that becomes a part of a metric's name may have this letter.
pub(super) fn is_name_letter(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// By the type of the value, so that a fault within a list is reported for itself: with serde's derive it would only be
/// said that the value is neither of the two.
impl<'de> Deserialize<'de> for TrainData {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PathOrList;

        impl<'de> Visitor<'de> for PathOrList {
            type Value = TrainData;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a path, or a list of tables with a `path`")
            }

            fn visit_str<E>(self, path: &str) -> Result<TrainData, E> {
                Ok(TrainData::One(path.into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<TrainData, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(TrainData::Several)
            }
        }

        deserializer.deserialize_any(PathOrList)
    }
}

/// A generator of problems with known answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Task {
    /// Sums of two numbers.
    Addition {
        /// The maximum number of digits of a summand, 1 to 18.
        #[schemars(range(min = 1, max = 18))]
        digits: u32,
        /// True if the SFT examples write the intermediate steps.
        #[serde(default = "yes")]
        worked: bool,
        /// The share of those examples, in [0, 1], that are worked twice, with `?` between the workings. Half of
        /// them have a slip in the first working.
        #[serde(default, skip_serializing_if = "is_zero")]
        #[schemars(range(min = 0.0, max = 1.0))]
        second_look: f64,
    },
    /// Products of two numbers.
    Multiplication {
        /// The maximum number of digits of a factor, 1 to 9.
        #[schemars(range(min = 1, max = 9))]
        digits: u32,
        /// True if the SFT examples write the intermediate steps.
        #[serde(default = "yes")]
        worked: bool,
    },
    /// Expressions that reach a target from given numbers with + - * /.
    Countdown {
        /// Number of given numbers, 2 to 16.
        #[schemars(range(min = 2, max = 16))]
        numbers: u32,
        /// The largest number that may be given.
        #[serde(default = "default_max_number")]
        #[schemars(range(min = 1, max = 1_000_000_000))]
        max_number: u64,
        /// The largest target, from `max_number` to 10⁹.
        #[serde(default = "default_max_target")]
        #[schemars(range(min = 1, max = 1_000_000_000))]
        max_target: u64,
    },
    /// Sums of two numbers, asked in words: `What is 70 + 41?`
    Sums {
        /// Digits of each number, 1 to 9.
        #[schemars(range(min = 1, max = 9))]
        digits: u32,
        /// True if about every second problem is a difference instead: `What is 83 - 27?`
        #[serde(default)]
        differences: bool,
    },
    /// Stories about somebody's things, such as `Mia has 14 apples. She buys 3 bags with 6 apples in each. How
    /// many apples does Mia have now?`
    WordProblems {
        /// Operations that an answer takes, 1 to 10.
        #[schemars(range(min = 1, max = 10))]
        steps: u32,
        /// Minimum number of operations that an answer takes; by default `steps`. Every number from here to `steps` is
        /// equally likely, so that the harder stories can be learnt from easy ones.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 10))]
        fewest_steps: Option<u32>,
    },
    /// Functions of a whole number, such as `add 3, square:`, to be written in Python. The programs are run, by
    /// `reward.kind = "code"`.
    Functions {
        /// The largest number of operations of a function, 1 to 4.
        #[schemars(range(min = 1, max = 4))]
        operations: u32,
    },
    /// A number to guess in several turns, for `environment.kind = "guessing"`. The prompt `2-7:` hides one of
    /// these six numbers.
    Guessing {
        /// Size of the range, 2 to 10 numbers. They are counted from 0, so each is one digit.
        #[schemars(range(min = 2, max = 10))]
        numbers: u32,
    },
    /// The openings of an environment's own episodes, for `environment.kind = "openenv"`. Episode n is reset with
    /// `id` n and `seed` n. The numbers of the held-out episodes follow those of the training.
    Environment {
        /// Split of the environment's tasks, such as `train`, if the environment lists tasks. Episode n is then reset
        /// with `split` and `index` n too.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(length(min = 1, max = 200))]
        split: Option<String>,
        /// Split of the held-out tasks. Without one, the last tasks of `split` are held out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(length(min = 1, max = 200))]
        heldout_split: Option<String>,
    },
}

/// Names of a data set's columns. A column that is left out is recognised by its name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Columns {
    /// Column of the question: a string, or a list of chat messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Column of the reference answer: a text or a number, or also an object or a list if a function or a program of your
    /// own judges. It is `""` if the verifier needs no reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Column of a question's difficulty, such as `level`: a text or a number. Evaluations then give the accuracy
    /// of each difficulty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difficulty: Option<String>,
}

/// How a question becomes the text that the model reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Template {
    /// `chat` when the model has a chat template, else `plain`.
    #[default]
    Auto,
    /// The model's chat template, with the question as the user's message.
    Chat,
    /// The question, unchanged.
    Plain,
}

fn yes() -> bool {
    true
}

fn default_max_number() -> u64 {
    99
}

fn default_max_target() -> u64 {
    100
}

fn is_zero(share: &f64) -> bool {
    *share == 0.0
}
