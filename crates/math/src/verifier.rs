//! The verifier: its options, and the four steps of a judgement in their order.

use std::{borrow::Cow, collections::HashMap, slice};

use num_integer::Integer as _;
use num_rational::BigRational;
use num_traits::One as _;
use serde::{Deserialize, Serialize};

use crate::{
    algebra::{Decision, UndecidedReason},
    budget::Budget,
    compare,
    decimal::Decimal,
    expr::Expr,
    extract::{self, Extraction},
    judgement::{Certainty, Judgement, Verdict},
    parse::{self, ParseError},
    value::Value,
};

/// Judges mathematical answers. A verifier extracts exactly one answer from a response, reads it completely or not
/// at all, and compares it with the gold answer as a value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Verifier {
    /// Where a response has its answer.
    pub extraction: Extraction,
    /// Where a gold text has its answer.
    pub gold: Gold,
    /// Digits after the point that have to agree if one side is a decimal number.
    pub precision: u32,
    /// True if the names of variables count. Otherwise variables are matched by their order.
    pub strict_names: bool,
    /// True if an inequality may answer for an interval or a set. A set may always answer for an inequality.
    pub relation_for_set: bool,
    /// True if a fraction has to be in lowest terms.
    pub reduced_fractions: bool,
    /// True if an answer has to be evaluated when the gold answer is a number: `25 + 59` is then not `84`, but
    /// `25 + 59 = 84` is. Without this, a question that spells out an expression holds its own answer.
    pub evaluated: bool,
    /// Operations that one judgement may take.
    pub budget: u64,
}

impl Default for Verifier {
    fn default() -> Self {
        Verifier {
            extraction: Extraction::Auto,
            gold: Gold::Bare,
            precision: 6,
            strict_names: true,
            relation_for_set: true,
            reduced_fractions: false,
            evaluated: false,
            budget: 2_000_000,
        }
    }
}

/// Where a gold text has its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gold {
    /// The whole gold text is the answer, without a box or dollars around it. If the text has a box or an answer
    /// marker (`####`, `Answer:`, “the answer is”), it is a solution, and the answer is the one that it marks.
    #[default]
    Bare,
    /// The gold text is a solution. The answer is extracted from it as from a response.
    Solution,
}

impl Verifier {
    /// Judges `response` against `gold`.
    pub fn judge(&self, gold: &str, response: &str) -> Judgement {
        let Some(answer) = extract::extract(response, self.extraction) else {
            return Judgement::none(Verdict::Unparsable, "the response has no answer");
        };
        let Some(gold) = self.gold_answer(gold) else {
            return Judgement {
                extracted: Some(answer.span),
                ..Judgement::none(Verdict::Error, "the gold text has no answer")
            };
        };

        let text = answer.span.text.clone();
        let finding = self.compare(&gold, &text);

        Judgement {
            verdict: finding.verdict,
            certainty: finding.certainty,
            extracted: Some(answer.span),
            canonical: finding.canonical,
            gold: finding.gold,
            why: format!("{}: {}", answer.why, finding.why),
        }
    }

    /// Returns the answer in a gold text, with which responses are compared, or `None` if there is none.
    pub fn gold_answer(&self, gold: &str) -> Option<String> {
        let extraction = match self.gold {
            Gold::Bare if extract::marks_an_answer(gold) => Extraction::Auto,
            Gold::Bare => Extraction::Bare,
            Gold::Solution => self.extraction,
        };
        extract::extract(gold, extraction).map(|answer| answer.span.text)
    }

    /// Judges pairs of a gold text and a response on all cores. The judgements are in the order of the pairs, and do
    /// not depend on the number of cores.
    pub fn judge_all(&self, pairs: &[(&str, &str)]) -> Vec<Judgement> {
        use rayon::prelude::*;
        pairs.par_iter().map(|(gold, response)| self.judge(gold, response)).collect()
    }

    /// Tells whether `other` is right if `one` is the gold answer. Both must be extracted already.
    pub fn are_same(&self, one: &str, other: &str) -> bool {
        self.compare(one, other).verdict == Verdict::Right
    }

    /// Compares two answers that are extracted already.
    fn compare(&self, gold: &str, response: &str) -> TextComparison {
        // Equal numbers and whole numbers need no parser. Unequal decimals may still agree once they are rounded.
        if let (Some(a), Some(b)) = (Decimal::parse(gold), Decimal::parse(response)) {
            let integers = !gold.contains('.') && !response.contains('.');
            if a == b || integers {
                return TextComparison::texts(
                    a == b,
                    gold,
                    response,
                    "numbers compared digit by digit",
                );
            }
        }

        let mut budget = Budget::new(self.budget);
        let reading = parse::Reading { decimal_comma: self.extraction == Extraction::Plain };

        // The letter of a choice answers for the choice with its text, which no comparison of values would find.
        let mut names = |one, labelled| is_letter_of(one, labelled, reading, &mut budget);
        if names(gold, response) || names(response, gold) {
            return TextComparison::texts(true, gold, response, "both name the same choice");
        }

        let gold_value = parse::parse(gold, reading, &mut budget);
        let value = parse::parse(response, reading, &mut budget);
        let (mut gold_value, mut value) = match (gold_value, value) {
            (Ok(gold), Ok(value)) => (gold, value),
            (gold_value, value) => {
                return judge_unparsed(gold, response, gold_value.err(), value.err());
            }
        };

        // These two options judge how the answer is written.
        if self.reduced_fractions && value.any(&|expr| is_unreduced(expr)) {
            return TextComparison::texts(
                false,
                gold,
                response,
                "a fraction is not in lowest terms",
            );
        }
        if self.evaluated && is_number(&gold_value) && !self.says(&gold_value, &value, &mut budget)
        {
            return TextComparison::texts(
                false,
                gold,
                response,
                "the value is not written as a number",
            );
        }

        let mut decision = self.decide(&gold_value, &value, &mut budget);
        let mut reason = "the same value";

        // A `log` without a base was read as the natural one. Only if that fails is the common one tried.
        if let Decision::Different(_) = decision
            && (is_number(&gold_value) || is_number(&value))
            && let Some((gold, response)) = to_base_ten(gold, response)
            && let Ok(gold) = parse::parse(&gold, reading, &mut budget)
            && let Ok(response) = parse::parse(&response, reading, &mut budget)
            && let equal @ Decision::Equal(_) = self.decide(&gold, &response, &mut budget)
        {
            gold_value = gold;
            value = response;
            decision = equal;
            reason = "the same value, with base ten for the logarithm";
        }

        // A word may be read as text on one side and as letters on the other, so the texts count too.
        let same_words = matches!(gold_value, Value::Text(_)) != matches!(value, Value::Text(_))
            && words_of(gold).is_some_and(|words| Some(words) == words_of(response));

        let (verdict, certainty, why) = match decision {
            _ if same_words => (Verdict::Right, Certainty::Proved, "the same words"),
            Decision::Equal(certainty) => (Verdict::Right, certainty, reason),
            Decision::Different(certainty) => (Verdict::Wrong, certainty, "a different value"),
            Decision::Undefined => (Verdict::Wrong, Certainty::Proved, "a side has no value"),
            Decision::Undecided(UndecidedReason::OverBudget) => (
                Verdict::OverBudget,
                Certainty::Undecided,
                "the budget ran out before it was decided",
            ),
            Decision::Undecided(UndecidedReason::OutOfReach) => (
                Verdict::Wrong,
                Certainty::Undecided,
                "no method could decide; the answer counts as wrong",
            ),
        };

        // The canonical forms have a separate budget, because their cost must not change the verdict.
        let mut budget = Budget::new(self.budget / 10);
        TextComparison {
            verdict,
            certainty,
            canonical: Some(value.canonical(&mut budget)),
            gold: Some(gold_value.canonical(&mut budget)),
            why: format!("{} against {}, {why}", value.kind(), gold_value.kind()),
        }
    }

    pub(crate) fn decide(&self, gold: &Value, value: &Value, budget: &mut Budget) -> Decision {
        let rules =
            compare::Rules { precision: self.precision, relation_for_set: self.relation_for_set };

        if !self.strict_names {
            return compare::compare(
                &by_order(gold.clone()),
                &by_order(value.clone()),
                rules,
                budget,
            );
        }

        compare::compare(gold, value, rules, budget)
    }

    /// Tells whether a value is the number `gold`, or has that number as one of its sides: `25 + 59 = 84`, but not
    /// `25 + 59 ≈ 80`.
    fn says(&self, gold: &Value, value: &Value, budget: &mut Budget) -> bool {
        let terms = match value {
            Value::Chain { terms, .. } => terms,
            value => slice::from_ref(value),
        };

        let mut numbers = terms.iter().filter(|term| is_number(term));
        numbers.any(|term| matches!(self.decide(gold, term, budget), Decision::Equal(_)))
    }
}

/// Tells whether an expression is a fraction of whole numbers with a common factor.
fn is_unreduced(expr: &Expr) -> bool {
    let Expr::Quotient(parts) = expr else { return false };
    let [Expr::Number(above), Expr::Number(below)] = parts.as_ref() else { return false };
    above.is_integer() && below.is_integer() && !above.numer().gcd(below.numer()).is_one()
}

/// Tells whether nothing is left to compute, as in a number, a fraction in lowest terms or a percentage.
fn is_number(value: &Value) -> bool {
    fn is(expr: &Expr) -> bool {
        match expr {
            Expr::Number(_) | Expr::Decimal(_) => true,
            Expr::Negate(expr) => is(expr),
            Expr::Quotient(parts) => match parts.as_ref() {
                // The parser turns a percentage into a division by 100. If the result is a whole number, the text could
                // have been either.
                [Expr::Number(above) | Expr::Decimal(above), Expr::Number(below)]
                    if *below == BigRational::from_integer(100.into()) =>
                {
                    !(above / below).is_integer()
                }
                [Expr::Number(above), Expr::Number(below)] => {
                    let whole = below.numer().magnitude().is_one();
                    above.is_integer() && below.is_integer() && !whole && !is_unreduced(expr)
                }
                _ => false,
            },
            _ => false,
        }
    }

    matches!(value, Value::Scalar(expr) | Value::Quantity(expr, ..) if is(expr))
}

/// Result of comparing two texts.
struct TextComparison {
    verdict: Verdict,
    certainty: Certainty,
    canonical: Option<String>,
    gold: Option<String>,
    why: String,
}

impl TextComparison {
    fn texts(same: bool, gold: &str, response: &str, why: &str) -> TextComparison {
        TextComparison {
            verdict: if same { Verdict::Right } else { Verdict::Wrong },
            certainty: Certainty::Proved,
            canonical: Some(response.to_owned()),
            gold: Some(gold.to_owned()),
            why: why.to_owned(),
        }
    }
}

/// Judges two texts of which one or both could not be read. They are the same only if they are written the same.
fn judge_unparsed(
    gold: &str,
    response: &str,
    of_gold: Option<ParseError>,
    of_response: Option<ParseError>,
) -> TextComparison {
    let written = |text: &str| text.split_whitespace().collect::<String>().to_lowercase();
    let a = written(gold);
    let b = written(response);

    // `C)` and `C` differ only in punctuation.
    let same_words = words_of(gold).is_some_and(|words| Some(words) == words_of(response));
    let both_unparsed = of_gold.is_some() && of_response.is_some();
    let are_same = !bare_text(gold).is_empty() && (both_unparsed && a == b || same_words);

    let over_budget =
        [&of_gold, &of_response].iter().any(|error| **error == Some(ParseError::OverBudget));

    // A gold text that can't be read is an error in the data, not in the response.
    let verdict = match (&of_gold, &of_response) {
        _ if are_same => Verdict::Right,
        (Some(ParseError::Empty), _) => Verdict::Error,
        _ if over_budget => Verdict::OverBudget,
        (_, Some(_)) => Verdict::Unparsable,
        _ => Verdict::Error,
    };

    let why = match (are_same, of_gold, of_response) {
        (true, ..) => {
            "one or both could not be read as mathematics, but they are written alike".to_owned()
        }
        (_, _, Some(why)) => format!("the answer could not be read: {why}"),
        (_, Some(why), _) => format!("the gold answer could not be read: {why}"),
        (_, None, None) => String::new(),
    };

    let certainty = if are_same { Certainty::Proved } else { Certainty::Undecided };
    TextComparison { verdict, certainty, canonical: None, gold: None, why }
}

/// Tells whether `other` is only the letter of the choice in front of the answer `labelled`: `B` for `(B) 5`.
fn is_letter_of(other: &str, labelled: &str, reading: parse::Reading, budget: &mut Budget) -> bool {
    let mut letters = other.chars().filter(char::is_ascii_uppercase);
    let Some(letter) = letters.next().filter(|_| bare_text(other).chars().count() == 1) else {
        return false;
    };

    parse::labelled(labelled, reading, budget).is_some_and(|(label, _)| label == letter)
}

/// Turns `log` into a logarithm to base ten, if just one of the two texts has a `log` without a base and the other has
/// no decimal point.
///
/// The parser takes it for the natural logarithm, although contests mean the common one. A decimal could be the rounded
/// value of either.
fn to_base_ten<'a>(gold: &'a str, response: &'a str) -> Option<(Cow<'a, str>, Cow<'a, str>)> {
    match (with_lg(gold), with_lg(response)) {
        (Some(gold), None) if !response.contains('.') => Some((gold.into(), response.into())),
        (None, Some(response)) if !gold.contains('.') => Some((gold.into(), response.into())),
        _ => None,
    }
}

/// Replaces each `log` without a base by `lg`. Returns `None` if there is none.
fn with_lg(text: &str) -> Option<String> {
    let mut changed = String::new();
    let mut end = 0;
    for (at, log) in text.match_indices("log") {
        let before = &text[..at];
        let after = &text[at + log.len()..];
        let word =
            !before.ends_with(char::is_alphabetic) && !after.starts_with(char::is_alphabetic);

        // `log_2` has a base, and `catalog` is a word.
        if word && !after.trim_start().starts_with('_') {
            changed += &text[end..at];
            changed += "lg";
            end = at + log.len();
        }
    }

    (end > 0).then(|| changed + &text[end..])
}

/// Returns the letters of a text that has only letters apart from layout, as `\text{odd}` and `odd` do. `NaN` is not a
/// word, because it equals nothing.
fn words_of(text: &str) -> Option<String> {
    let bare = bare_text(text);
    let words = !bare.is_empty() && bare != "nan" && bare.chars().all(char::is_alphabetic);
    words.then_some(bare)
}

/// Returns the text without layout, in lower case.
fn bare_text(text: &str) -> String {
    // Longer names precede their prefixes: `\textbf` before `\text`.
    const LAYOUT: [&str; 18] = [
        "\\textnormal",
        "\\textbf",
        "\\textsf",
        "\\textsc",
        "\\texttt",
        "\\emph",
        "\\mathsf",
        "\\mathit",
        "\\textit",
        "\\textrm",
        "\\text",
        "\\mathrm",
        "\\mathbf",
        "\\mbox",
        "\\left",
        "\\right",
        "\\displaystyle",
        "\\operatorname",
    ];

    let mut bare = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if c == '\\'
            && let Some(name) = LAYOUT.iter().find(|name| rest.starts_with(**name))
        {
            rest = &rest[name.len()..];
            continue;
        }

        if !(c.is_whitespace() || matches!(c, '{' | '}' | '$' | '(' | ')' | '.' | '~' | '"')) {
            bare.extend(c.to_lowercase());
        }
        rest = &rest[c.len_utf8()..];
    }

    bare
}

/// Renames the variables by the order in which they appear.
fn by_order(value: Value) -> Value {
    let mut names = HashMap::new();
    value.map(&mut |expr| expr.renamed(&mut names))
}

#[cfg(test)]
mod tests;
