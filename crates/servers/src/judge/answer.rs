//! Reading a judge's answer.

use std::collections::BTreeMap;

/// What the last line of a judge's answer says.
#[derive(Clone, Debug, PartialEq)]
pub enum AnswerForm {
    /// `yes` for a credit of 1, `no` for 0, as its last word.
    YesNo,
    /// A number, the only one of the line, which becomes a credit: `min` is 0 and `max` is 1.
    Number {
        /// Smallest number that is allowed.
        min: f64,
        /// Largest number that is allowed, above `min`.
        max: f64,
    },
    /// One of several words or phrases, as its last words, each with its credit from 0 to 1.
    Label(BTreeMap<String, f64>),
}

/// How many characters of a line are looked at and kept, from its end.
const LINE: usize = 200;

impl AnswerForm {
    /// Returns the end of the last line of an answer that has something on it. What a model thinks before `</think>` is no
    /// answer.
    pub(crate) fn last_line(&self, answer: &str) -> String {
        let said = answer.rsplit_once("</think>").map_or(answer, |(_, said)| said);
        let last = said.lines().rev().find(|line| !words(line).is_empty()).unwrap_or_default();
        let start = last.char_indices().rev().nth(LINE - 1).map_or(0, |(index, _)| index);
        last[start..].to_owned()
    }

    /// Reads the credit, from 0 to 1, from the last line of an answer.
    ///
    /// # Errors
    /// Says what was expected and what came.
    pub(crate) fn read(&self, line: &str) -> Result<f64, String> {
        let (credit, expected) = match self {
            AnswerForm::YesNo => {
                let credit = match words(line).last().map(String::as_str) {
                    Some("yes") => Some(1.0),
                    Some("no") => Some(0.0),
                    _ => None,
                };
                (credit, "`yes` or `no` at its end".to_owned())
            }
            AnswerForm::Number { min, max } => {
                (number(line, *min, *max), format!("one number from {min} to {max}"))
            }
            AnswerForm::Label(labels) => {
                let names: Vec<&str> = labels.keys().map(String::as_str).collect();
                (label(line, labels), format!("one of {} at its end", names.join(", ")))
            }
        };
        credit.ok_or_else(|| {
            format!("the judge's answer is not understood: its last line is {line:?}, expected {expected}")
        })
    }
}

/// Returns the words of a line in small letters, without the signs between and around them.
fn words(line: &str) -> Vec<String> {
    let runs = line.split(|c: char| !c.is_alphanumeric() && c != '\'');
    let bare = runs.map(|run| run.trim_matches('\'').to_lowercase());
    bare.filter(|word| !word.is_empty()).collect()
}

/// Reads the only number of a line, or the first of two that are written as a fraction: 7/10 is 7 of 10.
fn number(line: &str, min: f64, max: f64) -> Option<f64> {
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '/');
    let mut found = line
        .split(|c: char| !is_part(c))
        .map(|run| run.trim_end_matches('.'))
        .filter(|run| run.contains(|c: char| c.is_ascii_digit()));
    let (first, more) = (found.next()?, found.next());
    if more.is_some() {
        return None;
    }

    let (numerator, denominator) = match first.split_once('/') {
        Some((numerator, denominator)) => (numerator, Some(denominator)),
        None => (first, None),
    };
    // Out of anything but the largest number it would be another number.
    let of_max = denominator.is_none_or(|it| it.parse() == Ok(max));
    let value: f64 = numerator.parse().ok()?;
    (of_max && (min..=max).contains(&value)).then(|| (value - min) / (max - min))
}

/// Finds the longest label that the line ends with.
fn label(line: &str, labels: &BTreeMap<String, f64>) -> Option<f64> {
    let said = words(line);
    let is_said = |label: &[String]| !label.is_empty() && said.ends_with(label);
    let found = labels.iter().map(|(label, credit)| (words(label), *credit));
    let found = found.filter(|(label, _)| is_said(label));
    found.max_by_key(|(label, _)| label.len()).map(|(_, credit)| credit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credit(form: &AnswerForm, answer: &str) -> Option<f64> {
        form.read(&form.last_line(answer)).ok()
    }

    #[test]
    fn the_last_line_is_the_answer() {
        for (answer, expected) in [
            ("yes", Some(1.0)),
            ("The sum is wrong.\n\n**No.**\n", Some(0.0)),
            ("<think>yes or no?</think>\nAnswer: 'yes'", Some(1.0)),
            ("no\n'''\n---", Some(0.0)),
            ("<think>yes</think>", None),
            ("No errors in the student's work.", None),
            ("yesterday", None),
            ("", None),
            ("\u{0}\u{202e}", None),
        ] {
            assert_eq!(credit(&AnswerForm::YesNo, answer), expected, "{answer:?}");
        }
        let long = format!("{} yes", "é".repeat(1000));
        assert_eq!(AnswerForm::YesNo.last_line(&long).chars().count(), LINE);
        assert_eq!(credit(&AnswerForm::YesNo, &long), Some(1.0));

        let number = AnswerForm::Number { min: 0.0, max: 10.0 };
        for (answer, expected) in [
            ("7", Some(0.7)),
            ("Score: 7.5.", Some(0.75)),
            ("8\nScore: **7/10**", Some(0.7)),
            ("7/5", None),
            ("between 6 and 7", None),
            ("11", None),
            ("-1", None),
            ("seven", None),
            ("1e999", None),
        ] {
            assert_eq!(credit(&number, answer), expected, "{answer:?}");
        }

        let labels = [("good", 1.0), ("not good", 0.0), ("so-so", 0.5)];
        let labels = AnswerForm::Label(labels.map(|(name, it)| (name.to_owned(), it)).into());
        for (answer, expected) in [
            ("Verdict: GOOD!", Some(1.0)),
            ("It is not good.", Some(0.0)),
            ("so so", Some(0.5)),
            ("good enough", None),
            ("goodness", None),
        ] {
            assert_eq!(credit(&labels, answer), expected, "{answer:?}");
        }
        let error = labels.read("bad").unwrap_err();
        assert!(
            error.ends_with("is \"bad\", expected one of good, not good, so-so at its end"),
            "{error}"
        );
    }
}
