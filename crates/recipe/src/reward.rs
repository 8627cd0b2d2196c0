//! The recipe's table `[reward]`: every verifier with its options, and the penalties.
//!
//! As in `tables`, the doc comments are the descriptions in the JSON schema and in the book.

use std::path::{Path, PathBuf};

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::{Value, json};

use super::bounds;

/// The verifier that judges completions, and the reward for its judgement. The options of a verifier stand next to
/// its `kind`. Without a `kind`, the verifier is that of `data.task`; for data files it is `environment` if an
/// environment gives rewards, else `gsm8k`. The penalty `stop` comes first, then `length`, then `overlong`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(transform = kind_may_lack)]
pub struct Reward {
    /// The verifier, if the recipe chooses one.
    #[serde(
        flatten,
        deserialize_with = "kind_with_options",
        skip_serializing_if = "Option::is_none"
    )]
    pub kind: Option<RewardKind>,
    /// Reward of a right answer.
    pub right: f64,
    /// Reward of any other completion.
    pub wrong: f64,
    /// Punishment and filtering of completions that are too long.
    pub overlong: Overlong,
    /// Penalty on completions that did not end with a stop token; by default there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
    /// Penalty on completions that are longer than a target; by default there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<Length>,
    /// The largest share of a step's or an evaluation's completions that may have no verdict, because the verifier
    /// failed or a reference can't be read. Above it the run ends, and so does `firebrick eval`. Otherwise these
    /// completions are left out.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub max_errors: f64,
}

impl Default for Reward {
    fn default() -> Self {
        Reward {
            kind: None,
            right: 1.0,
            wrong: -1.0,
            overlong: Overlong::default(),
            stop: None,
            length: None,
            max_errors: 0.1,
        }
    }
}

/// A verifier and its options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum RewardKind {
    /// The answer is found as a reader would find it, and compared with the reference as a value:
    /// numbers, formulas, sets, intervals, matrices.
    Math {
        /// Places after the point that have to agree if one side is a decimal number.
        #[serde(default = "default_precision")]
        #[schemars(range(max = 100))]
        precision: u32,
        /// The place of the answer in a completion. A completion that breaks off within its thoughts has no answer,
        /// except with `bare`.
        #[serde(default)]
        extraction: Extraction,
        /// True if a fraction has to be in lowest terms.
        #[serde(default)]
        reduced_fractions: bool,
        /// True if an answer has to be evaluated when the reference is a number: `25 + 59` is then not `84`. Set
        /// it if a question itself contains the expression that it asks for. By default it is true for the
        /// problems of `data.task`, and false for others.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        evaluated: Option<bool>,
        /// Operations that one judgement may take.
        #[serde(default = "default_budget")]
        #[schemars(range(min = 1, max = bounds::OPERATIONS))]
        budget: u64,
    },
    /// DAPO's published rule: the last `Answer:` line is the reference's text, after both are
    /// normalised.
    Dapo {
        /// The version of the rule. Versions differ in their treatment of end tokens that are left in the text.
        #[serde(default)]
        fork: AnswerFork,
    },
    /// DAPO's stricter rule: the last `\boxed{…}` near the end holds the reference's text.
    DapoStrictBox,
    /// GSM8K's published rule: the number after the last `####` is the reference's text.
    Gsm8k,
    /// GSM8K's lenient rule: the last number is the reference's text.
    Gsm8kFlexible,
    /// The letter of a multiple-choice question.
    Choice {
        /// The names of the choices.
        #[serde(default = "default_letters")]
        #[schemars(length(min = 1), inner(length(min = 1)))]
        letters: Vec<String>,
        /// True if a completion may write them in small letters.
        #[serde(default)]
        lowercase: bool,
    },
    /// The answer is the same text as the reference, and nothing else.
    Exact {
        /// The text in front of the answer, such as `####`. Without it the whole text is the answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<String>,
        /// True if capitals equal small letters.
        #[serde(default)]
        ignore_case: bool,
        /// True if white space inside the answer does not count either.
        #[serde(default)]
        ignore_whitespace: bool,
    },
    /// The last match of a regular expression is the reference's text.
    Regex {
        /// The expression, in the syntax of Rust's crate `regex`.
        #[schemars(length(min = 1))]
        pattern: String,
        /// Number of the group that is the answer; 0 is the whole match. By default it is the first group, or the
        /// whole match if the pattern has no group.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(max = bounds::INDEX))]
        group: Option<usize>,
        /// True if a completion is right when the pattern matches anywhere, whatever the reference.
        #[serde(default)]
        matches: bool,
        /// Number of bytes at the end of a completion that are searched for the answer.
        #[serde(default = "default_tail")]
        #[schemars(range(min = 1, max = bounds::AT_ONCE))]
        tail: usize,
    },
    /// Marks for form, whatever the answer is. The credit is the share of the wanted properties that a completion
    /// has.
    Format {
        /// True if one `<think>` and one `</think>` are wanted, with something after them.
        #[serde(default = "yes")]
        think: bool,
        /// True if a box with something in it is wanted.
        #[serde(default = "yes")]
        boxed: bool,
        /// True if a line that begins with `Answer:` is wanted.
        #[serde(default)]
        answer_line: bool,
        /// True if nothing may follow the box or the answer line.
        #[serde(default)]
        nothing_after: bool,
    },
    /// The answer is an expression that uses the given numbers and gives the target.
    Countdown {
        /// True if every given number has to be used.
        #[serde(default = "yes")]
        use_all: bool,
    },
    /// The answer is the reference's integer, of any size.
    Integer {
        /// The text in front of the answer, such as `=`. By default it is the task's; if there is none, the whole
        /// text is the answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        marker: Option<String>,
    },
    /// The weighted mean of several verifiers' credits, with the verdict of the first.
    Weighted {
        /// The verifiers.
        #[schemars(length(min = 1))]
        parts: Vec<Part>,
    },
    /// A reward model: a classifier with one label, whose score of the conversation becomes a credit.
    Model {
        /// Folder of a `…ForSequenceClassification` checkpoint, with the tokenizer and the chat template that it
        /// reads conversations with.
        path: PathBuf,
        /// The function that turns the model's score, which is any number, into a credit from 0 to 1.
        #[serde(default)]
        transform: Transform,
        /// Factor on the score before `transform`.
        #[serde(default = "unit")]
        scale: f64,
        /// Number that is added to the score after `scale` and before `transform`.
        #[serde(default)]
        offset: f64,
        /// The smallest credit at which a completion counts as right.
        #[serde(default = "half")]
        #[schemars(range(min = 0.0, max = 1.0))]
        threshold: f64,
        /// Tokens that are scored at once, padding included. A longer text is scored alone.
        #[serde(default = "default_batch_tokens")]
        #[schemars(range(min = 1, max = bounds::AT_ONCE))]
        batch_tokens: usize,
    },
    /// The environment's own rewards. Their sum becomes a credit.
    Environment {
        /// Factor on the sum.
        #[serde(default = "unit")]
        scale: f64,
        /// Number that is added after `scale`. A result below 0 then becomes 0, and one above 1 becomes 1.
        #[serde(default)]
        offset: f64,
        /// The smallest credit at which a completion counts as right.
        #[serde(default = "unit")]
        #[schemars(range(min = 0.0, max = 1.0))]
        threshold: f64,
    },
    /// A program of your own, which reads and writes a line of JSON for each completion.
    Command {
        /// The program and its arguments, such as `["python3", "judge.py"]`; no shell reads them. If a word after
        /// the first leads to a file next to the recipe, it means that file.
        #[schemars(length(min = 1))]
        program: Vec<String>,
        /// Seconds that one completion may take; the first after a start includes the start.
        #[serde(default = "default_time_limit")]
        #[schemars(range(max = 86400.0), extend("exclusiveMinimum" = 0.0))]
        time_limit: f64,
        /// Failures in a row after which the program is still started again. After one more it is given up, and
        /// the run ends with its finished steps saved.
        #[serde(default = "default_restarts")]
        #[schemars(range(max = bounds::STEPS))]
        restarts: u32,
        /// Copies of the program that run at once.
        #[serde(default = "one")]
        #[schemars(range(min = 1, max = bounds::PROCESSES))]
        processes: usize,
    },
}

/// One of several verifiers: its `kind`, any but `weighted`, with the options of that kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = kind_is_not_weighted)]
pub struct Part {
    /// Name of the part, without `/`, and neither `shaping` nor `credit`. The metric `reward/part/NAME` is its mean
    /// credit.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Its share of the credit, in relation to the other parts'.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub weight: f64,
    /// The verifier.
    #[serde(flatten)]
    pub kind: RewardKind,
}

/// A function that turns a reward model's score into a credit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Transform {
    /// The logistic function: a score of 0 is worth a half.
    #[default]
    Sigmoid,
    /// The score itself. A score below 0 becomes 0, and one above 1 becomes 1.
    Linear,
}

/// The place of the answer in a completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Extraction {
    /// The answer is in the last box, else after the last answer marker, else in the last formula or number.
    #[default]
    Auto,
    /// The answer is in the last box, or nowhere.
    Boxed,
    /// The answer is in the last box after the end of the reasoning (`</think>`), or nowhere.
    AfterThinking,
    /// The whole completion is the answer.
    Bare,
    /// As `auto`, but a formula has to stand in LaTeX's delimiters, and bare numbers don't count.
    Latex,
    /// As `auto`, but only bare numbers count.
    Plain,
}

/// A version of DAPO's rule. Versions differ in their treatment of end tokens that are left in the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnswerFork {
    /// DAPO's own, as in verl: end tokens are part of the answer.
    #[default]
    Published,
    /// SkyRL's: the answer ends before the first `<`.
    StopAtLt,
    /// slime's: `<|im_end|>` and `<|endoftext|>` are deleted.
    StripEos,
}

/// Soft punishment and filtering of completions that are too long.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Overlong {
    /// Tokens before `max_completion_tokens` at which the punishment begins to grow from 0.
    #[schemars(range(max = bounds::SIZE))]
    pub buffer: usize,
    /// The punishment at `max_completion_tokens`, taken off the reward; 0.0 is none.
    #[schemars(range(min = 0.0))]
    pub penalty: f64,
    /// True if completions that were cut off are left out of the loss.
    pub filter: bool,
}

/// Penalty on a completion that did not end with a stop token. It keeps a share of its reward (`scale`) or gets
/// another reward (`replace`), one of the two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// Factor on its reward; 0.0 leaves nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub scale: Option<f64>,
    /// Reward that the completion gets in place of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replace: Option<f64>,
    /// The treatment of negative rewards.
    #[serde(default)]
    pub form: PenaltyForm,
}

/// Penalty on a completion that is longer than a target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Length {
    /// Tokens to aim at.
    #[schemars(range(min = 1, max = bounds::SIZE))]
    pub target: usize,
    /// Multiple of the target up to which nothing is lost.
    #[serde(default = "default_free_factor")]
    #[schemars(range(min = 0.0))]
    pub free_factor: f64,
    /// Multiple of the target over which the loss then grows in a straight line.
    #[serde(default = "half")]
    #[schemars(range(min = 0.0))]
    pub ramp_factor: f64,
    /// Share of the reward that is lost at the end of that line and beyond.
    #[serde(default = "half")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub max_cut: f64,
    /// Share of the remaining reward that a completion also loses if it was cut off.
    #[serde(default = "default_truncation_cut")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub truncation_cut: f64,
    /// The treatment of negative rewards.
    #[serde(default)]
    pub form: PenaltyForm,
}

/// The treatment of negative rewards by a penalty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PenaltyForm {
    /// The reward never rises: half of −1 is −1.5.
    #[default]
    SignSafe,
    /// The reward is multiplied or replaced, as published: half of −1 is −0.5, which is a bonus.
    AsWritten,
}

impl RewardKind {
    /// Returns the verifier of mathematics, with its default options.
    pub(crate) fn math() -> Self {
        RewardKind::Math {
            precision: default_precision(),
            extraction: Extraction::default(),
            reduced_fractions: false,
            evaluated: None,
            budget: default_budget(),
        }
    }

    /// Returns the verifier of the environment's own reward, with its default options.
    pub(crate) fn environment() -> Self {
        RewardKind::Environment { scale: unit(), offset: 0.0, threshold: unit() }
    }

    /// Tells whether a reward model judges, alone or as a part.
    pub fn reads_conversations(&self) -> bool {
        !self.models().is_empty()
    }

    /// Returns the paths of the reward models that judge, alone or as parts.
    pub fn models(&self) -> Vec<&Path> {
        match self {
            RewardKind::Model { path, .. } => vec![path.as_path()],
            RewardKind::Weighted { parts } => {
                parts.iter().flat_map(|part| part.kind.models()).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Reads the verifier from the keys of `[reward]` that belong to its kind.
///
/// Serde would take a fault in an optional flattened value for its absence. Another verifier than the recipe's
/// would then judge the run.
fn kind_with_options<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<RewardKind>, D::Error> {
    let rest = toml::Table::deserialize(deserializer)?;
    match rest.is_empty() {
        true => Ok(None),
        false => rest.try_into().map(Some).map_err(D::Error::custom),
    }
}

/// Makes the schema of a table with an optional kind one choice: each variant, or no `kind`.
fn kind_may_lack(schema: &mut Schema) {
    let Some(Value::Array(choice)) = schema.remove("anyOf") else { return };
    let mut variants = choice.into_iter().find_map(|mut one| match one.get_mut("oneOf") {
        Some(Value::Array(variants)) => Some(std::mem::take(variants)),
        _ => None,
    });
    variants.get_or_insert_default().push(json!({ "not": { "required": ["kind"] } }));
    schema.insert("oneOf".into(), variants.into());
    schema.insert("unevaluatedProperties".into(), false.into());
}

/// Takes `weighted` out of the kinds of a part. A sum of sums is a sum, and a schema without end can't be written
/// into a page.
fn kind_is_not_weighted(schema: &mut Schema) {
    if let Some(Value::Array(variants)) = schema.get_mut("oneOf") {
        variants.retain(|variant| variant["properties"]["kind"]["const"] != "weighted");
    }
    schema.insert("unevaluatedProperties".into(), false.into());
}

fn one() -> usize {
    1
}

fn unit() -> f64 {
    1.0
}

fn default_batch_tokens() -> usize {
    4096
}

fn half() -> f64 {
    0.5
}

fn default_precision() -> u32 {
    6
}

fn default_budget() -> u64 {
    2_000_000
}

fn default_letters() -> Vec<String> {
    ["A", "B", "C", "D", "E"].map(str::to_owned).to_vec()
}

fn default_tail() -> usize {
    4096
}

fn default_time_limit() -> f64 {
    10.0
}

fn default_restarts() -> u32 {
    10
}

fn default_free_factor() -> f64 {
    1.5
}

fn default_truncation_cut() -> f64 {
    0.2
}

fn yes() -> bool {
    true
}
