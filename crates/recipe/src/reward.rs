//! The table of the reward: every verifier with its options, and what is done to their credit.
//!
//! As in `tables`, the doc comments are the descriptions in the JSON schema and in the book.

use std::path::{Path, PathBuf};

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::{Value, json};

use super::bounds;

/// How a completion is judged and what the judgement is worth. The options of a verifier stand
/// beside its `kind`; without a kind it is the task's own, and for files `environment` where an
/// environment gives rewards, or `gsm8k`. Of the penalties,
/// `stop` comes first, then `length`, then `overlong`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(transform = kind_may_lack)]
pub struct Reward {
    /// The verifier, when it is chosen.
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
    /// What is done about completions that are too long.
    pub overlong: Overlong,
    /// What completions lose that did not end with a stop token; nothing by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
    /// What completions lose that are longer than a target; nothing by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<Length>,
    /// The largest share of a step's or an evaluation's completions that may be without a verdict, because the verifier
    /// failed or a reference can't be read; above it the run ends. Below it they are left out.
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
        /// Where one side is a decimal number, places after the point that have to agree.
        #[serde(default = "default_precision")]
        #[schemars(range(max = 100))]
        precision: u32,
        /// Where the answer of a completion is.
        #[serde(default)]
        extraction: Extraction,
        /// Whether a fraction has to be in lowest terms.
        #[serde(default)]
        reduced_fractions: bool,
        /// Whether an answer has to be evaluated where the reference is a number: `25 + 59` is then
        /// not `84`. Set it where a question writes the expression down that it asks for. By default
        /// on where the problems are those of `data.task`, and off elsewhere.
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
        /// Whose version of the rule; they differ in end tokens that are left in the text.
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
        /// What the choices are called.
        #[serde(default = "default_letters")]
        #[schemars(length(min = 1), inner(length(min = 1)))]
        letters: Vec<String>,
        /// Whether a completion may write them small.
        #[serde(default)]
        lowercase: bool,
    },
    /// The same text as the reference, and nothing else.
    Exact {
        /// What announces the answer, such as `####`; without it the whole text is the answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<String>,
        /// Whether capitals equal small letters.
        #[serde(default)]
        ignore_case: bool,
        /// Whether white space inside the answer does not count either.
        #[serde(default)]
        ignore_whitespace: bool,
    },
    /// What a regular expression finds last is the reference's text.
    Regex {
        /// The expression, in the syntax of Rust's crate `regex`.
        #[schemars(length(min = 1))]
        pattern: String,
        /// The number of the group that is the answer; 0 is the whole match. Without it the first
        /// group, or the whole match when there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(max = bounds::INDEX))]
        group: Option<usize>,
        /// Whether a completion is right when the pattern matches anywhere, whatever the reference.
        #[serde(default)]
        matches: bool,
        /// Bytes at the end of a completion in which the answer is looked for.
        #[serde(default = "default_tail")]
        #[schemars(range(min = 1, max = bounds::AT_ONCE))]
        tail: usize,
    },
    /// Marks for form, whatever the answer is: the share of what is asked for.
    Format {
        /// Whether to ask for one `<think>` and one `</think>`, with something after them.
        #[serde(default = "yes")]
        think: bool,
        /// Whether to ask for a box with something in it.
        #[serde(default = "yes")]
        boxed: bool,
        /// Whether to ask for a line that begins with `Answer:`.
        #[serde(default)]
        answer_line: bool,
        /// Whether to ask that nothing follows the box or the answer line.
        #[serde(default)]
        nothing_after: bool,
    },
    /// The expression uses the given numbers and gives the target.
    Countdown {
        /// Whether every given number has to be used.
        #[serde(default = "yes")]
        use_all: bool,
    },
    /// The reference's integer, of any size.
    Integer {
        /// The text that the answer follows, such as `=`; without it the task's, or the whole text
        /// is the answer.
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
        /// Folder of a `…ForSequenceClassification` checkpoint, with the tokenizer and the chat
        /// template that it reads conversations in.
        path: PathBuf,
        /// How its score, which is any number, becomes a credit from 0 to 1.
        #[serde(default)]
        transform: Transform,
        /// Multiplies the score before that.
        #[serde(default = "unit")]
        scale: f64,
        /// Is added to the score after `scale` and before `transform`.
        #[serde(default)]
        offset: f64,
        /// The credit from which on a completion counts as right.
        #[serde(default = "half")]
        #[schemars(range(min = 0.0, max = 1.0))]
        threshold: f64,
        /// Tokens that are scored at once, padding included; a longer text is scored alone.
        #[serde(default = "default_batch_tokens")]
        #[schemars(range(min = 1, max = bounds::AT_ONCE))]
        batch_tokens: usize,
    },
    /// What the environment gave: the sum of its rewards becomes a credit.
    Environment {
        /// Multiplies the sum.
        #[serde(default = "unit")]
        scale: f64,
        /// Is added after that; what is less than 0 then becomes 0, what is more than 1 becomes 1.
        #[serde(default)]
        offset: f64,
        /// The credit from which on a completion counts as right.
        #[serde(default = "unit")]
        #[schemars(range(min = 0.0, max = 1.0))]
        threshold: f64,
    },
    /// A program of your own, which reads and writes a line of JSON for each completion.
    Command {
        /// The program and its arguments, such as `["python3", "judge.py"]`; no shell reads them. A word
        /// after the first that leads to a file beside the recipe is that file.
        #[schemars(length(min = 1))]
        program: Vec<String>,
        /// Seconds that one completion may take; the first after a start includes the start.
        #[serde(default = "default_time_limit")]
        #[schemars(range(max = 86400.0), extend("exclusiveMinimum" = 0.0))]
        time_limit: f64,
        /// Failures in a row after which the program is started again; after one more it is given
        /// up, and the run ends, finished steps saved.
        #[serde(default = "default_restarts")]
        #[schemars(range(max = bounds::STEPS))]
        restarts: u32,
        /// Copies of the program that run at once.
        #[serde(default = "one")]
        #[schemars(range(min = 1, max = bounds::PROCESSES))]
        processes: usize,
    },
}

/// One of several verifiers: its `kind` with that verifier's options, all but `weighted`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = kind_is_not_weighted)]
pub struct Part {
    /// Its name: `reward/part/NAME` is the metric of its mean credit.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Its share of the credit, in relation to the other parts'.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub weight: f64,
    /// The verifier.
    #[serde(flatten)]
    pub kind: RewardKind,
}

/// How a reward model's score becomes a credit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Transform {
    /// By the logistic function: a score of 0 is worth a half.
    #[default]
    Sigmoid,
    /// Not at all: what is less than 0 becomes 0, what is more than 1 becomes 1.
    Linear,
}

/// Where the answer of a completion is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Extraction {
    /// In the last box; else after the last answer marker; else in the last formula or number.
    #[default]
    Auto,
    /// In the last box, or nowhere.
    Boxed,
    /// In the last box after the end of the reasoning (`</think>`), or nowhere.
    AfterThinking,
    /// The completion is the answer.
    Bare,
    /// As `auto`, but a formula has to stand in LaTeX's delimiters, and bare numbers don't count.
    Latex,
    /// As `auto`, but only bare numbers count.
    Plain,
}

/// A version of DAPO's rule, by what it makes of end tokens that are left in the text.
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
    /// Whether completions that were cut off are left out of the loss.
    pub filter: bool,
}

/// What a completion loses that did not end with a stop token: a share (`scale`) or all of its
/// reward (`replace`), one of the two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// Factor on its reward; 0.0 leaves nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub scale: Option<f64>,
    /// Reward that it gets in place of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replace: Option<f64>,
    /// What becomes of negative rewards.
    #[serde(default)]
    pub form: PenaltyForm,
}

/// What a completion loses that is longer than a target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Length {
    /// Tokens to aim at.
    #[schemars(range(min = 1, max = bounds::SIZE))]
    pub target: usize,
    /// Up to this multiple of the target nothing is lost.
    #[serde(default = "default_free_factor")]
    #[schemars(range(min = 0.0))]
    pub free_factor: f64,
    /// From there the loss grows in a straight line over this multiple of the target.
    #[serde(default = "half")]
    #[schemars(range(min = 0.0))]
    pub ramp_factor: f64,
    /// Share of the reward that is lost at the end of the line and beyond.
    #[serde(default = "half")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub max_cut: f64,
    /// Share of what is left that a completion loses besides when it was cut off.
    #[serde(default = "default_truncation_cut")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub truncation_cut: f64,
    /// What becomes of negative rewards.
    #[serde(default)]
    pub form: PenaltyForm,
}

/// How a factor on a reward is meant.
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
    /// Mathematics, with every option as it is by default.
    pub(crate) fn math() -> Self {
        RewardKind::Math {
            precision: default_precision(),
            extraction: Extraction::default(),
            reduced_fractions: false,
            evaluated: None,
            budget: default_budget(),
        }
    }

    /// The environment's own reward, with every option as it is by default.
    pub(crate) fn environment() -> Self {
        RewardKind::Environment { scale: unit(), offset: 0.0, threshold: unit() }
    }

    /// Whether a reward model judges, alone or as a part.
    pub fn reads_conversations(&self) -> bool {
        !self.models().is_empty()
    }

    /// The reward models that judge, alone or as parts.
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

/// What stands in `[reward]` beside the keys of every verifier.
///
/// Serde would take a fault in an optional flattened value for its absence, and the run would be
/// judged by another verifier than was asked for.
fn kind_with_options<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<RewardKind>, D::Error> {
    let rest = toml::Table::deserialize(deserializer)?;
    match rest.is_empty() {
        true => Ok(None),
        false => rest.try_into().map(Some).map_err(D::Error::custom),
    }
}

/// Makes one choice of a table with an optional kind: each variant, or no `kind`.
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

/// A sum of sums is a sum, and a schema without end can't be written into a page.
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
