//! The verifiers of the recipe's table `[reward]`, each with its options, and how each is built.
//!
//! As in `tables`, the doc comments are the descriptions in the JSON schema and in the book.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use firebrick_core::Verifier;
pub use firebrick_reward::{AnswerFork, CodeOptions, SandboxKind, math::Extraction};
use firebrick_reward::{
    AnswerLine, Choice, Code, Countdown, Exact, Format, FromEnvironment, Gsm8k, Gsm8kMode, Integer,
    Regex, RegexGroup, RegexOptions, RewardError, StrictBox, Weighted, math,
};
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::bounds;

/// A verifier and its options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[allow(clippy::large_enum_variant, reason = "a recipe has a few of them, and nothing copies them")]
pub enum RewardKind {
    /// The answer is found as a reader would find it, and compared with the reference as a value:
    /// numbers, formulas, sets, intervals, matrices.
    Math {
        /// Places after the point that have to agree if one side is a decimal number.
        #[serde(default = "default_precision")]
        #[schemars(range(max = 100))]
        precision: u32,
        /// Where the answer of a completion is searched. A completion that breaks off within its thoughts has no answer,
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
        /// The version of the rule. Versions differ in how they treat end tokens that are left in the text.
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
    /// Credit for form, whatever the answer is. The credit is the share of the wanted properties that a completion
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
        /// Tokens that are scored together, padding included. A longer text is scored alone.
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
    /// A language model, asked through OpenAI's protocol for chats: a service, or a server of vLLM, SGLang or llama.cpp.
    Judge {
        /// Addresses of servers of the same model, such as `"http://127.0.0.1:8000/v1"`.
        #[schemars(length(min = 1, max = 1024), inner(length(min = 1)))]
        servers: Vec<String>,
        /// The model's name there.
        #[schemars(length(min = 1))]
        model: String,
        /// Name of the environment variable that holds the servers' API key. The key is sent as a bearer token, and
        /// stored nowhere.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(length(min = 1))]
        key_variable: Option<String>,
        /// The question, a template of the variables `question`, `reference` and `completion`. A further one, `fence`, is
        /// a word that the completion can't foresee: between two lines of it, a completion can't be taken for the rubric.
        #[schemars(length(min = 1))]
        rubric: String,
        /// Message of the system before it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        system: Option<String>,
        /// What the last line of the answer has to say.
        #[serde(default)]
        answer: JudgeAnswer,
        /// The smallest credit at which a completion counts as right.
        #[serde(default = "half")]
        #[schemars(range(min = 0.0, max = 1.0))]
        threshold: f64,
        /// Temperature of the answer. By default the server decides.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 0.0))]
        temperature: Option<f64>,
        /// Further fields of the request, such as `{ reasoning_effort = "low" }`, or
        /// `{ chat_template_kwargs = { enable_thinking = false } }` for vLLM. With `max_completion_tokens` among them,
        /// `max_tokens` is not sent.
        #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
        extra_body: serde_json::Map<String, Value>,
        /// Limit of the answer's tokens, thoughts included.
        #[serde(default = "default_answer_tokens")]
        #[schemars(range(min = 1, max = bounds::SIZE))]
        max_tokens: usize,
        /// Number of completions that each server judges at the same time.
        #[serde(default = "default_at_once")]
        #[schemars(range(min = 1, max = bounds::PROCESSES))]
        at_once: usize,
        /// Seconds that an answer may take. After that, it is asked for again.
        #[serde(default = "default_deadline")]
        #[schemars(extend("exclusiveMinimum" = 0.0), range(max = 1e6))]
        deadline: f64,
        /// Tries more for an answer that is not understood. After them, there is no verdict.
        #[serde(default = "default_retries")]
        #[schemars(range(max = 100))]
        retries: u32,
        /// Seconds that a run waits while no server answers, before it ends.
        #[serde(default = "default_patience")]
        #[schemars(range(min = 0.0, max = 1e6))]
        patience: f64,
        /// Prices of a million tokens, of questions and of answers, in any currency: then `judge/cost` is in it.
        #[serde(default)]
        prices: [f64; 2],
    },
    /// Tests, which the completion's program is run on, in a sandbox. A reference has the tests.
    Code(CodeOptions),
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
        /// Copies of the program that run at the same time.
        #[serde(default = "one")]
        #[schemars(range(min = 1, max = bounds::PROCESSES))]
        processes: usize,
    },
    /// A function in Python of your own, which returns a score from 0 to 1 for each completion.
    Python {
        /// The file with the function. A path that is not absolute begins at the recipe's folder.
        file: PathBuf,
        /// The function's name. It is called with those of `question`, `completion`, `reference`, `prompt` and `finish`
        /// that are among its arguments.
        #[serde(default = "default_function")]
        #[schemars(length(min = 1))]
        function: String,
        /// The interpreter, such as `.venv/bin/python`. By default it is `python3`, and `python` on Windows.
        #[serde(default = "default_python")]
        #[schemars(length(min = 1))]
        python: String,
        /// Seconds that one completion may take; the first after a start includes the start.
        #[serde(default = "default_time_limit")]
        #[schemars(range(max = 86400.0), extend("exclusiveMinimum" = 0.0))]
        time_limit: f64,
        /// Failures in a row after which the function is still asked again. After one more it is given up, and the run
        /// ends with its finished steps saved.
        #[serde(default = "default_restarts")]
        #[schemars(range(max = bounds::STEPS))]
        restarts: u32,
        /// Copies of the interpreter that run at the same time.
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

/// Facts that a verifier takes from the generator of the recipe's problems.
#[derive(Clone, Copy, Debug)]
pub struct OfTask<'task> {
    /// Text in front of an answer.
    pub marker: Option<&'task str>,
}

impl RewardKind {
    /// Builds the verifier. `task` has the facts of the generator of the recipe's problems, if it has one. Kinds that
    /// need more than their options, judges of your own and a reward model, are left to `other`.
    ///
    /// # Errors
    /// Fails if a regular expression or a weight is not valid, if programs can't be run, or if `other` fails.
    pub fn build<E: From<RewardError>>(
        self,
        task: Option<OfTask<'_>>,
        other: &dyn Fn(RewardKind) -> Result<Box<dyn Verifier>, E>,
    ) -> Result<Box<dyn Verifier>, E> {
        Ok(match self {
            RewardKind::Math { precision, extraction, reduced_fractions, evaluated, budget } => {
                Box::new(math::Verifier {
                    precision,
                    extraction,
                    reduced_fractions,
                    evaluated: evaluated.unwrap_or(task.is_some()),
                    budget,
                    ..math::Verifier::default()
                })
            }
            RewardKind::Dapo { fork } => Box::new(AnswerLine { fork }),
            RewardKind::DapoStrictBox => Box::new(StrictBox),
            RewardKind::Gsm8k => Box::new(Gsm8k { mode: Gsm8kMode::Strict }),
            RewardKind::Gsm8kFlexible => Box::new(Gsm8k { mode: Gsm8kMode::Flexible }),
            RewardKind::Choice { letters, lowercase } => Box::new(Choice { letters, lowercase }),
            RewardKind::Exact { after, ignore_case, ignore_whitespace } => {
                Box::new(Exact { after, ignore_case, ignore_whitespace })
            }
            RewardKind::Regex { pattern, group, matches, tail } => {
                let group = group.map(RegexGroup::Number);
                Box::new(Regex::new(RegexOptions { pattern, group, matches, tail })?)
            }
            RewardKind::Format { think, boxed, answer_line, nothing_after } => {
                Box::new(Format { think, boxed, answer_line, nothing_after })
            }
            RewardKind::Countdown { use_all } => Box::new(Countdown { use_all }),
            RewardKind::Integer { marker } => {
                let of_task = task.and_then(|task| task.marker).map(str::to_owned);
                Box::new(Integer { marker: marker.or(of_task) })
            }
            RewardKind::Environment { scale, offset, threshold } => {
                Box::new(FromEnvironment { scale, offset, threshold })
            }

            RewardKind::Code(options) => {
                let bare = options.bare.or(Some(task.is_some()));
                Box::new(Code::new(CodeOptions { bare, ..options })?)
            }
            RewardKind::Weighted { parts } => {
                let part = |Part { name, weight, kind }| -> Result<_, E> {
                    let verifier = kind.build(task, other)?;
                    Ok(firebrick_reward::Part { name, weight: weight as f32, verifier })
                };
                let parts: Result<_, E> = parts.into_iter().map(part).collect();
                Box::new(Weighted::new(parts?)?)
            }
            kind @ (RewardKind::Model { .. }
            | RewardKind::Judge { .. }
            | RewardKind::Command { .. }
            | RewardKind::Python { .. }) => other(kind)?,
        })
    }

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

    /// Returns the name of the kind, as in a recipe.
    pub fn name(&self) -> String {
        let value = serde_json::to_value(self).unwrap_or_default();
        value["kind"].as_str().unwrap_or_default().to_owned()
    }

    /// Returns true if the environment's own reward counts, alone or as a part.
    pub fn asks_environment(&self) -> bool {
        match self {
            RewardKind::Environment { .. } => true,
            RewardKind::Weighted { parts } => parts.iter().any(|part| part.kind.asks_environment()),
            _ => false,
        }
    }

    /// Returns true if a program, a model or an environment judges, alone or as a part: it can fail, and costs something.
    pub fn asks_others(&self) -> bool {
        match self {
            RewardKind::Model { .. }
            | RewardKind::Judge { .. }
            | RewardKind::Environment { .. }
            | RewardKind::Code(_)
            | RewardKind::Command { .. }
            | RewardKind::Python { .. } => true,
            RewardKind::Weighted { parts } => parts.iter().any(|part| part.kind.asks_others()),
            _ => false,
        }
    }

    /// Returns true if a model judges, alone or as a part: a reward model, or a language model.
    pub fn asks_model(&self) -> bool {
        match self {
            RewardKind::Model { .. } | RewardKind::Judge { .. } => true,
            RewardKind::Weighted { parts } => parts.iter().any(|part| part.kind.asks_model()),
            _ => false,
        }
    }

    /// Returns the names of the environment variables with the keys of servers that judge.
    pub fn key_variables(&self) -> Vec<&str> {
        match self {
            RewardKind::Judge { key_variable, .. } => key_variable.as_deref().into_iter().collect(),
            RewardKind::Weighted { parts } => {
                parts.iter().flat_map(|part| part.kind.key_variables()).collect()
            }
            _ => Vec::new(),
        }
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

/// What a judge's answer has to say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum JudgeAnswer {
    /// `yes` for a credit of 1, `no` for 0.
    #[default]
    YesNo,
    /// A number, which becomes a credit.
    Number {
        /// The number of a credit of 0.
        #[serde(default)]
        min: f64,
        /// The number of a credit of 1, above `min`.
        max: f64,
    },
    /// One of several words or phrases.
    Label {
        /// The credit of each, from 0 to 1, such as `{ right = 1.0, nearly = 0.5, wrong = 0.0 }`.
        #[schemars(length(min = 2))]
        labels: BTreeMap<String, f64>,
    },
}

/// Removes `weighted` from the kinds of a part: a sum of sums is a sum, and an endless schema can't be
/// written into a page.
fn kind_is_not_weighted(schema: &mut Schema) {
    if let Some(Value::Array(variants)) = schema.get_mut("oneOf") {
        variants.retain(|variant| variant["properties"]["kind"]["const"] != "weighted");
    }
    schema.insert("unevaluatedProperties".into(), false.into());
}

fn default_answer_tokens() -> usize {
    4096
}

fn default_at_once() -> usize {
    8
}

fn default_deadline() -> f64 {
    120.0
}

fn default_retries() -> u32 {
    2
}

fn default_patience() -> f64 {
    600.0
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

pub(super) fn half() -> f64 {
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

fn default_function() -> String {
    "score".to_owned()
}

fn default_python() -> String {
    if cfg!(windows) { "python" } else { "python3" }.to_owned()
}

fn default_restarts() -> u32 {
    10
}

fn yes() -> bool {
    true
}
