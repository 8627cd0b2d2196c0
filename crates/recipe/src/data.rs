//! The table of the prompts.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bounds;

/// The prompts: a data set (`train`) or generated problems (`task`), one of the two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Data {
    /// Training prompts: a JSONL or Parquet file, a folder of them, or a data set on the Hugging Face
    /// Hub, as `owner/name` or `owner/name@revision`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train: Option<PathBuf>,
    /// The subset of `train`, where it has several: what the Hub calls a configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subset: Option<String>,
    /// The split of `train`; for a data set on the Hub `train` when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// Generator of training and held-out problems.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
    /// Held-out prompts, named as in `train`; without them or `heldout_split` they are split off the
    /// end of `train`, or come from the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heldout: Option<PathBuf>,
    /// The subset of `heldout`; that of `train` when `heldout` is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heldout_subset: Option<String>,
    /// The split of `heldout`, or of `train` when `heldout` is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heldout_split: Option<String>,
    /// Whether rows with the same question become one, and questions with different references
    /// none, before anything is split off.
    pub deduplicate: bool,
    /// Number of training problems to generate; a task that has fewer gives what it has.
    #[schemars(range(max = bounds::SIZE))]
    pub train_size: usize,
    /// Number of held-out prompts to generate or split off, if they have no place of their own.
    #[schemars(range(min = 1, max = bounds::SIZE))]
    pub heldout_size: usize,
    /// Names of the data's columns, for layouts that are not recognised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub columns: Option<Columns>,
    /// How a question becomes what the model reads.
    pub template: Template,
    /// Variables of the chat template, such as `enable_thinking = false` or `tools = [...]`; which
    /// ones there are is the template's affair.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    pub template_options: serde_json::Map<String, serde_json::Value>,
    /// System message of the chat template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Text around the question, which stands where the pattern says `{prompt}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Prompts with more tokens than this are left out.
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
        /// The most digits of a summand, 1 to 18.
        #[schemars(range(min = 1, max = 18))]
        digits: u32,
        /// Whether the worked examples of the warm-up write the intermediate steps.
        #[serde(default = "yes")]
        worked: bool,
        /// The share of those examples, in [0, 1], that are worked twice with `?` between: half of
        /// them have a slip in the first working.
        #[serde(default, skip_serializing_if = "is_zero")]
        #[schemars(range(min = 0.0, max = 1.0))]
        second_look: f64,
    },
    /// Products of two numbers.
    Multiplication {
        /// The most digits of a factor, 1 to 9.
        #[schemars(range(min = 1, max = 9))]
        digits: u32,
        /// Whether the worked examples of the warm-up write the intermediate steps.
        #[serde(default = "yes")]
        worked: bool,
    },
    /// Reach a target from given numbers with + - * /.
    Countdown {
        /// How many numbers are given, 2 to 16.
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
        /// Whether every second one is a difference instead: `What is 83 - 27?`
        #[serde(default)]
        differences: bool,
    },
    /// Stories about somebody's things, such as `Mia has 14 apples. She buys 3 bags with 6 apples in
    /// each. How many apples does Mia have now?`
    WordProblems {
        /// Operations that an answer takes, 1 to 10.
        #[schemars(range(min = 1, max = 10))]
        steps: u32,
        /// With it an answer takes from this many operations to `steps` of them, and every number is equally
        /// likely: easy stories from which the harder ones can be learnt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 10))]
        fewest_steps: Option<u32>,
    },
    /// A number to guess in several turns, for `environment.kind = "guessing"`: `2-7:` hides one of the six.
    Guessing {
        /// How many numbers there are, 2 to 10, counted from 0: each is one digit.
        #[schemars(range(min = 2, max = 10))]
        numbers: u32,
    },
    /// The openings of an environment's own episodes, for `environment.kind = "openenv"`: episode n is reset with the `id` and
    /// `seed` n, and the held-out ones with those after the training's.
    Environment,
}

/// Which columns of a data set hold what; one that is left out is recognised by its name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Columns {
    /// Column of the question: a string, or a list of chat messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Column of the reference answer; `""` where the verifier needs none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Column that says how hard a question is, such as `level`: a text or a number. Evaluations then give the accuracy of each
    /// difficulty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difficulty: Option<String>,
}

/// How a question becomes what the model reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Template {
    /// `chat` when the model has a chat template, else `plain`.
    #[default]
    Auto,
    /// The model's chat template, with the question as the user's message.
    Chat,
    /// The question as it stands.
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
