//! `Gsm8k`, a verifier that follows the published rule of that data set, strict or flexible.

use std::borrow::Cow;

use firebrick_core::{Completion, Prompt, Score, Verdict, Verifier};
use serde::{Deserialize, Serialize};

use crate::text::last_characters;

/// Judges by GSM8K's published rule (Cobbe et al. 2021), as verl's scorer has it.
///
/// The reference is the whole `answer` field of the data set, or a number already cut from it. The whole field ends in
/// `#### 72`, and commas in its number are dropped, as when the data set is prepared. A cut number is not changed. Only
/// the last 300 characters of a completion are read. The answer must be the same text as the reference: `72.0` is not
/// `72`, and commas are dropped in strict mode only. To compare by value, use the maths verifier.
///
/// ```
/// use firebrick_core::{Completion, Prompt, Verdict, Verifier};
/// use firebrick_reward::Gsm8k;
///
/// let prompt = Prompt { reference: "48 + 24 = 72 clips.\n#### 1,072".into(), ..Prompt::default() };
/// let completion = Completion::of_text("She sold them all.\n#### 1072");
/// assert_eq!(Gsm8k::default().score(&prompt, &completion).verdict, Verdict::Right);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Gsm8k {
    /// Where the answer is searched.
    pub mode: Gsm8kMode,
}

/// Where a completion's answer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gsm8kMode {
    /// The answer follows the last `#### ` (one space) that precedes a number, so that the format is taught too.
    #[default]
    Strict,
    /// The answer is the last run of digits, points and commas in the text, with the minus sign before it, if there is
    /// one. A point alone is not an answer, unless there is nothing else.
    Flexible,
}

impl Verifier for Gsm8k {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        // A number cut from the field keeps its commas, as in the original.
        let expected = match after_hashes(&prompt.reference) {
            Some(number) => without_commas(number),
            None => Cow::Borrowed(prompt.reference.as_str()),
        };

        let text = last_characters(&completion.text, 300);
        let found = match self.mode {
            Gsm8kMode::Strict => after_hashes(text).map(without_commas),
            Gsm8kMode::Flexible => last_number(text).map(Cow::Borrowed),
        };

        match found {
            None => Score::none(Verdict::Unparsable),
            Some(answer) if answer == expected => Score::right(answer),
            Some(answer) => Score::wrong(answer),
        }
    }
}

/// Finds the last match of the expression `#### (-?[0-9.,]+)`.
fn after_hashes(text: &str) -> Option<&str> {
    text.rmatch_indices("#### ").find_map(|(at, hashes)| run_at(&text[at + hashes.len()..]))
}

/// Finds the last match of `-?[0-9.,]+` that is more than a point, or else the first match.
fn last_number(text: &str) -> Option<&str> {
    runs(text).filter(|run| *run != ".").last().or_else(|| runs(text).next())
}

/// Finds the matches of `-?[0-9.,]+`, from left to right and without overlap.
fn runs(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let start = rest.find(|c: char| c == '-' || is_run(c))?;
            rest = &rest[start..];
            match run_at(rest) {
                Some(run) => {
                    rest = &rest[run.len()..];
                    return Some(run);
                }
                // No number follows this minus sign.
                None => rest = &rest[1..],
            }
        }
    })
}

fn run_at(text: &str) -> Option<&str> {
    let sign = usize::from(text.starts_with('-'));
    let digits = text[sign..].find(|c: char| !is_run(c)).unwrap_or(text.len() - sign);
    (digits > 0).then(|| &text[..sign + digits])
}

fn is_run(c: char) -> bool {
    matches!(c, '0'..='9' | '.' | ',')
}

fn without_commas(text: &str) -> Cow<'_, str> {
    if text.contains(',') { Cow::Owned(text.replace(',', "")) } else { Cow::Borrowed(text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::verdict;
    use Verdict::*;

    const SOLUTION: &str = "48/2 = <<48/2=24>>24 clips in May.\n48+24 = 72 altogether.\n#### 72";

    #[test]
    fn strict_takes_the_last_hashes_that_a_number_follows() {
        let strict = Gsm8k::default();
        for (text, expected) in [
            ("#### 72", Right),
            ("#### 71\n#### 72", Right),
            ("#### 72\n#### none", Right),
            ("##### 7,2, clips", Right),
            ("#### 72\n#### 71", Wrong),
            ("#### 72.", Wrong),
            ("#### 72.0", Wrong),
            ("#### ...", Wrong),
            ("#### $72", Unparsable),
            ("####  72", Unparsable),
            ("####72", Unparsable),
            ("The answer is 72", Unparsable),
        ] {
            assert_eq!(verdict(&strict, SOLUTION, text), expected, "{text:?}");
            assert_eq!(verdict(&strict, "72", text), expected, "{text:?}");
        }

        assert_eq!(verdict(&strict, "#### 1,072", "#### 1072"), Right);
        assert_eq!(verdict(&strict, "1,072", "#### 1,072"), Wrong);
    }

    #[test]
    fn flexible_takes_the_last_number() {
        let flexible = Gsm8k { mode: Gsm8kMode::Flexible };
        for (text, expected) in [
            ("So it is $72", Right),
            ("72 clips .", Right),
            ("72 clips.", Right),
            ("So it is 72.", Wrong),
            ("72, well,", Wrong),
            ("-72", Wrong),
            ("72 of 100", Wrong),
            ("no idea -", Unparsable),
        ] {
            assert_eq!(verdict(&flexible, SOLUTION, text), expected, "{text:?}");
        }

        assert_eq!(verdict(&flexible, "-72", "0--72"), Right);
        assert_eq!(verdict(&flexible, "1072", "1,072"), Wrong);
        assert_eq!(verdict(&flexible, "1,072", "1,072"), Right);
        assert_eq!(verdict(&flexible, ".", "no . idea ."), Right);
    }

    #[test]
    fn only_the_end_is_read() {
        for (filler, expected) in [(293, Right), (294, Unparsable)] {
            let text = format!("#### 72{}", "é".repeat(filler));
            assert_eq!(verdict(&Gsm8k::default(), SOLUTION, &text), expected);
        }
    }
}
