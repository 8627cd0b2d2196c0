//! Rules of `firebrick score`: the verifier that a row's mode names.

use std::{collections::BTreeMap, ops::Range};

use clap::ValueEnum;
use firebrick_core::{Completion, Prompt, Verdict, Verifier};
use firebrick_reward::{
    AnswerFork, AnswerLine, Choice, Gsm8k, Gsm8kMode, StrictBox,
    math::{self, Certainty, Extraction, Gold, Judgement},
};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny},
};

/// A rule: where the answer is, and how it is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(try_from = "String")]
#[value(rename_all = "snake_case")]
pub enum Mode {
    /// The answer is in the last box, after an answer marker, or in the last formula; it is compared as
    /// mathematics
    #[value(alias = "auto")]
    Math,
    /// Like math, but the answer is in the last box or nowhere
    Boxed,
    /// Like math, but the whole response is the answer
    Bare,
    /// Like boxed, but only after the end of the reasoning
    AfterThinkBoxed,
    /// Like math, but the gold text is a solution too; `targets` says what counts as an answer
    MathVerify,
    /// Like math_verify, but the gold text is the answer
    MathVerifyGoldBoxed,
    /// The published DAPO reward: the answer is after the last `Answer:`, compared as text
    Dapo,
    /// The other rule of the published DAPO reward: the answer is in the last box, compared as text
    DapoStrictBox,
    /// A fork of dapo whose answers end at `<`
    DapoStopAtLt,
    /// A fork of dapo that drops end markers
    DapoStripEos,
    /// The published GSM8K rule: the answer is after the last `####`, compared as text
    #[value(alias = "gsm8k_strict")]
    Gsm8k,
    /// The other mode of the published GSM8K rule: the answer is the last number, compared as text
    Gsm8kFlexible,
    /// The answer is one of the letters in `choices`
    Choice,
    /// Another name of choice
    ChoiceLine,
    /// A test of another program's options
    #[value(hide = true)]
    ExtractOnly,
}

/// A row's `config`. A key that is neither one of these options nor one of `ELSEWHERE` is refused.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Options {
    /// Rule that judges the row.
    pub mode: Option<Mode>,
    /// Kinds of answers for `math_verify`: formulas, bare numbers, or both.
    pub targets: Option<Vec<Target>>,
    /// Number of decimal places that have to agree.
    pub precision: Option<u32>,
    /// True if names of variables count.
    pub strict: Option<bool>,
    /// True if an inequality may answer for a set.
    pub allow_set_relation_comp: Option<bool>,
    /// True if a fraction has to be in lowest terms.
    pub require_reduced_fractions: Option<bool>,
    /// True if numbers have to be evaluated.
    pub evaluated: Option<bool>,
    /// Letters of a multiple-choice question.
    pub choices: Option<Vec<String>>,
    /// True if small letters name the same choices.
    pub lowercase: Option<bool>,
    /// True if either verdict is good, because judging only has to survive the row.
    pub any_verdict: Option<bool>,
    /// Keys that are for other programs.
    #[serde(flatten, deserialize_with = "elsewhere")]
    pub elsewhere: (),
}

/// Names of the options.
const OPTIONS: [&str; 10] = [
    "mode",
    "targets",
    "precision",
    "strict",
    "allow_set_relation_comp",
    "require_reduced_fractions",
    "evaluated",
    "choices",
    "lowercase",
    "any_verdict",
];

/// Keys of case files that change no verdict here: options of `extract_only` and of Math-Verify, the class of a row,
/// and the limits that another program is to set.
const ELSEWHERE: [&str; 7] = [
    "boxed_first",
    "boxed_priority",
    "cls",
    "first_match_only",
    "fix_malformed",
    "memory_limit_mb",
    "time_limit_ms",
];

/// Checks the keys that are no options. A misspelt option would otherwise leave its default in force.
fn elsewhere<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    let keys = BTreeMap::<String, IgnoredAny>::deserialize(deserializer)?;
    match keys.keys().find(|key| !ELSEWHERE.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(D::Error::custom(format!(
            "unknown key {key:?} in config, expected one of {}",
            OPTIONS.join(", ")
        ))),
    }
}

/// A kind of answer, by Math-Verify's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// A formula between LaTeX's delimiters.
    Latex,
    /// A bare number or expression.
    Expr,
}

/// A verifier, ready to judge.
pub enum Rule {
    /// Compares answers as mathematics.
    Math(math::Verifier),
    /// Compares answers as text.
    Text {
        /// Name of the rule.
        mode: Mode,
        /// Verifier that extracts and compares.
        verifier: Box<dyn Verifier>,
    },
}

/// A verdict with everything that a rule says about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// Verdict on the response.
    pub verdict: Verdict,
    /// Answer as the rule took it from the response.
    pub extracted: Option<String>,
    /// Bytes of the answer in the response, if the rule reports them.
    pub range: Option<Range<usize>>,
    /// Answer in canonical form.
    pub canonical: Option<String>,
    /// Gold answer in canonical form.
    pub gold: Option<String>,
    /// Certainty of the verdict; `None` from rules that compare texts.
    pub certainty: Option<Certainty>,
    /// Reason, in a sentence.
    pub why: String,
}

impl Rule {
    /// Makes the rule of `mode`, whatever mode `options` has; `None` if only another program has the rule.
    pub fn new(mode: Mode, options: &Options) -> Option<Rule> {
        let math = |extraction, gold| {
            let default = math::Verifier::default();
            Rule::Math(math::Verifier {
                extraction,
                gold,
                precision: options.precision.unwrap_or(default.precision),
                strict_names: options.strict.unwrap_or(default.strict_names),
                relation_for_set: options
                    .allow_set_relation_comp
                    .unwrap_or(default.relation_for_set),
                reduced_fractions: options
                    .require_reduced_fractions
                    .unwrap_or(default.reduced_fractions),
                evaluated: options.evaluated.unwrap_or(default.evaluated),
                ..default
            })
        };
        let text = |verifier| Rule::Text { mode, verifier };

        // Choices make a question one of multiple choice, which mathematics can't judge.
        if mode == Mode::Math && options.choices.is_some() {
            let lowercase = options.lowercase.or(Some(true));
            return Rule::new(Mode::Choice, &Options { lowercase, ..options.clone() });
        }

        Some(match mode {
            Mode::Math => math(Extraction::Auto, Gold::Bare),
            Mode::Boxed => math(Extraction::Boxed, Gold::Bare),
            Mode::Bare => math(Extraction::Bare, Gold::Bare),
            Mode::AfterThinkBoxed => math(Extraction::AfterThinking, Gold::Bare),
            Mode::MathVerify => math(options.extraction(), Gold::Solution),
            Mode::MathVerifyGoldBoxed => math(options.extraction(), Gold::Bare),
            Mode::Dapo => text(answer_line(AnswerFork::Published)),
            Mode::DapoStopAtLt => text(answer_line(AnswerFork::StopAtLt)),
            Mode::DapoStripEos => text(answer_line(AnswerFork::StripEos)),
            Mode::DapoStrictBox => text(Box::new(StrictBox)),
            Mode::Gsm8k => text(Box::new(Gsm8k { mode: Gsm8kMode::Strict })),
            Mode::Gsm8kFlexible => text(Box::new(Gsm8k { mode: Gsm8kMode::Flexible })),
            Mode::Choice | Mode::ChoiceLine => text(Box::new(options.choice())),
            Mode::ExtractOnly => return None,
        })
    }

    /// Judges `response` against `gold`.
    pub fn judge(&self, gold: &str, response: &str) -> Judged {
        match self {
            Rule::Math(verifier) => verifier.judge(gold, response).into(),
            Rule::Text { mode, verifier } => judge_text(*mode, verifier.as_ref(), gold, response),
        }
    }
}

impl Options {
    fn extraction(&self) -> Extraction {
        match self.targets.as_deref() {
            Some([Target::Latex]) => Extraction::Latex,
            Some([Target::Expr]) => Extraction::Plain,
            _ => Extraction::Auto,
        }
    }

    fn choice(&self) -> Choice {
        let default = Choice::default();
        Choice {
            letters: self.choices.clone().unwrap_or(default.letters),
            lowercase: self.lowercase.unwrap_or(default.lowercase),
        }
    }
}

impl Mode {
    /// Returns the mode's name in a row.
    pub fn name(self) -> String {
        let value = self.to_possible_value().expect("no mode is skipped");
        value.get_name().to_owned()
    }

    /// Says where a rule that compares texts looks for the answer.
    fn position(self) -> &'static str {
        match self {
            Mode::Dapo | Mode::DapoStopAtLt | Mode::DapoStripEos => {
                "after the last `Answer:` of the last 300 characters"
            }
            Mode::DapoStrictBox => r"in the last \boxed{} of the last 100 characters",
            Mode::Gsm8k => "after the last `#### ` of the last 300 characters",
            Mode::Gsm8kFlexible => "in the last number of the last 300 characters",
            Mode::Choice | Mode::ChoiceLine => {
                "in the last box, after the last answer marker or in the last line"
            }
            _ => "in the response",
        }
    }
}

impl TryFrom<String> for Mode {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        <Mode as ValueEnum>::from_str(&name, false).map_err(|_| {
            let names: Vec<String> =
                Mode::value_variants().iter().map(|mode| mode.name()).collect();
            format!("config.mode is {name:?}, expected one of {}", names.join(", "))
        })
    }
}

impl From<Judgement> for Judged {
    fn from(judgement: Judgement) -> Self {
        let (extracted, range) = judgement.extracted.map(|span| (span.text, span.range)).unzip();
        Judged {
            verdict: judgement.verdict.into(),
            extracted,
            range,
            canonical: judgement.canonical,
            gold: judgement.gold,
            certainty: Some(judgement.certainty),
            why: judgement.why,
        }
    }
}

fn answer_line(fork: AnswerFork) -> Box<dyn Verifier> {
    Box::new(AnswerLine { fork })
}

/// Judges by a rule that compares texts. It returns its verdict and the answer it took, from which the reason
/// follows.
fn judge_text(mode: Mode, verifier: &dyn Verifier, gold: &str, response: &str) -> Judged {
    let prompt = Prompt { reference: gold.to_owned(), ..Prompt::default() };
    let completion = Completion::of_text(response);
    let score = verifier.score(&prompt, &completion);

    let position = mode.position();
    let why = match score.verdict {
        Verdict::Right => format!("the answer {position} is the gold answer"),
        Verdict::Wrong => format!("the answer {position} is not the gold answer"),
        Verdict::Unparsable => format!("there is no answer {position}"),
        Verdict::OverBudget => "the budget ran out".to_owned(),
        Verdict::Error => "the gold answer can't be read".to_owned(),
    };

    Judged {
        verdict: score.verdict,
        extracted: Some(score.extracted).filter(|text| !text.is_empty()),
        range: None,
        canonical: None,
        gold: None,
        certainty: None,
        why,
    }
}
