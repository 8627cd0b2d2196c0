use std::borrow::Cow;

use firebrick_core::{Completion, Prompt, Score, Verdict, Verifier};
use serde::{Deserialize, Serialize};

use crate::decimal::Decimal;

/// Grade-school maths answers, in the manner of GSM8K (Cobbe et al. 2021).
///
/// The reference is the data set's `answer` field, whole (it ends in `#### 72`) or already cut to
/// the number. Numbers are compared by value: `72.0` and `72` are equal, and so are `1,072` and
/// `1072` wherever they stand, where verl's scorer compares text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Gsm8k {
    /// Where the answer is looked for.
    pub mode: Gsm8kMode,
    /// Judge as verl's scorer does, to compare with published numbers: only the last 300
    /// characters are read, and the answer's text must equal the reference's. Commas are dropped
    /// in strict mode only.
    pub published: bool,
}

/// Where a completion's answer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gsm8kMode {
    /// After the last `#### ` that a number follows, so that the form is taught along.
    #[default]
    Strict,
    /// The last number in the text.
    Flexible,
}

impl Verifier for Gsm8k {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        if self.published {
            return self.score_as_published(&prompt.reference, &completion.text);
        }
        let reference = after_hashes(&prompt.reference).unwrap_or(prompt.reference.trim());
        let Some(expected) = number(reference) else {
            return Score::none(Verdict::Error);
        };
        let found = match self.mode {
            Gsm8kMode::Strict => after_hashes(&completion.text),
            Gsm8kMode::Flexible => {
                runs(&completion.text).filter(|run| number(run).is_some()).last()
            }
        };
        match found.map(|text| (text, number(text))) {
            None | Some((_, None)) => Score::none(Verdict::Unparsable),
            Some((text, Some(value))) if value == expected => Score::right(text),
            Some((text, Some(_))) => Score::wrong(text),
        }
    }
}

impl Gsm8k {
    fn score_as_published(self, reference: &str, text: &str) -> Score {
        // Preparing the data set drops the commas; a bare reference is taken as it is.
        let expected = match after_hashes(reference) {
            Some(number) => without_commas(number),
            None => Cow::Borrowed(reference),
        };
        let text = last_characters(text, 300);
        let found = match self.mode {
            Gsm8kMode::Strict => after_hashes(text).map(without_commas),
            Gsm8kMode::Flexible => runs(text).filter(|run| *run != ".").last().map(Cow::Borrowed),
        };
        match found {
            None => Score::none(Verdict::Unparsable),
            Some(answer) if answer == expected => Score::right(answer),
            Some(answer) => Score::wrong(answer),
        }
    }
}

/// What the expression `#### (-?[0-9.,]+)` matches last.
fn after_hashes(text: &str) -> Option<&str> {
    text.rmatch_indices("#### ").find_map(|(at, hashes)| run_at(&text[at + hashes.len()..]))
}

/// The matches of `-?[0-9.,]+`, from left to right and without overlap.
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
                // A minus sign that no number follows.
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

/// The value of a run, in which commas do not count, nor the full stop of its sentence.
fn number(run: &str) -> Option<Decimal> {
    Decimal::parse(&run.trim_end_matches(['.', ',']).replace(['$', ','], ""))
}

fn without_commas(text: &str) -> Cow<'_, str> {
    if text.contains(',') { Cow::Owned(text.replace(',', "")) } else { Cow::Borrowed(text) }
}

fn last_characters(text: &str, count: usize) -> &str {
    match text.char_indices().rev().nth(count.saturating_sub(1)) {
        Some((start, _)) => &text[start..],
        None => text,
    }
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
            ("#### 71\n#### 72.00", Right),
            ("#### 72\n#### none", Right),
            ("#### 72 clips", Right),
            ("#### 72\n#### 71", Wrong),
            ("The answer is 72", Unparsable),
            ("####72", Unparsable),
            ("#### ...", Unparsable),
        ] {
            assert_eq!(verdict(&strict, SOLUTION, text), expected, "{text:?}");
            assert_eq!(verdict(&strict, "72", text), expected, "{text:?}");
        }
        assert_eq!(verdict(&strict, "1,072", "#### 1072"), Right);
        assert_eq!(verdict(&strict, "seventy", "#### 70"), Error);
    }

    #[test]
    fn flexible_takes_the_last_number() {
        let flexible = Gsm8k { mode: Gsm8kMode::Flexible, published: false };
        assert_eq!(verdict(&flexible, SOLUTION, "So it is $72."), Right);
        assert_eq!(verdict(&flexible, SOLUTION, "72, or, well..."), Right);
        assert_eq!(verdict(&flexible, "-72", "0--72"), Right);
        assert_eq!(verdict(&flexible, SOLUTION, "72 of 100"), Wrong);
        assert_eq!(verdict(&flexible, SOLUTION, "no idea -"), Unparsable);
    }

    #[test]
    fn the_published_rule_compares_text_at_the_end() {
        let strict = Gsm8k { mode: Gsm8kMode::Strict, published: true };
        assert_eq!(verdict(&strict, SOLUTION, "#### 72,"), Right);
        assert_eq!(verdict(&strict, SOLUTION, "#### 72.0"), Wrong);
        assert_eq!(verdict(&strict, SOLUTION, &format!("#### 72{}", "é".repeat(293))), Right);
        assert_eq!(verdict(&strict, SOLUTION, &format!("#### 72{}", "é".repeat(294))), Unparsable);
        let flexible = Gsm8k { mode: Gsm8kMode::Flexible, published: true };
        assert_eq!(verdict(&flexible, "1072", "1,072"), Wrong);
        assert_eq!(verdict(&flexible, "1,072", "1,072"), Right);
    }
}
