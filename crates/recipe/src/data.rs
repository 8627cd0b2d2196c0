//! Table `[data]` of a recipe: the prompts of training and evaluation.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bounds;

/// The prompts: a data set (`train`) or generated problems (`task`), one of the two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Data {
    /// Training prompts: a JSONL, CSV, TSV or Parquet file, a folder of them, or a data set on the Hugging Face
    /// Hub, as `owner/name` or `owner/name@revision`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train: Option<PathBuf>,
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
    /// This happens before anything is split off.
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
    /// A number to guess in several turns, for `environment.kind = "guessing"`. The prompt `2-7:` hides one of
    /// these six numbers.
    Guessing {
        /// Size of the range, 2 to 10 numbers. They are counted from 0, so each is one digit.
        #[schemars(range(min = 2, max = 10))]
        numbers: u32,
    },
    /// The openings of an environment's own episodes, for `environment.kind = "openenv"`. Episode n is reset with
    /// `id` n and `seed` n. The numbers of the held-out episodes follow those of the training.
    Environment,
}

/// Names of a data set's columns. A column that is left out is recognised by its name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Columns {
    /// Column of the question: a string, or a list of chat messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Column of the reference answer: a text or a number, or also an object or a list with a program of your own as
    /// the verifier. It is `""` if the verifier needs no reference.
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
