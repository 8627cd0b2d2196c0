//! `Integer`, a verifier for exact integers of any size.

use firebrick_core::{Completion, Prompt, Score, Verdict, Verifier};
use firebrick_math::Decimal;
use serde::{Deserialize, Serialize};

/// Compares integers of any size, which must be exactly equal.
///
/// The answer is the text after the last occurrence of `marker`. If there is no marker to find, it is the whole
/// completion. White space around the answer is ignored. The answer must be one integer and nothing else: an optional
/// sign, then digits, with commas only as thousands separators (`1,234`). Leading zeros and the sign of zero are
/// ignored. Any other answer is unparsable, and more than 4096 digits are over budget.
///
/// The reference is read in the same way, except that it may lack the marker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Integer {
    /// Announces the answer, as `=>` or `####` do. Without a marker, or with an empty one, the whole text is
    /// the answer.
    pub marker: Option<String>,
}

impl Verifier for Integer {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        let reference = self.answer(&prompt.reference).unwrap_or(&prompt.reference);
        let Some(expected) = parse_integer(reference.trim()) else {
            return Score::none(Verdict::Error);
        };

        let Some(answer) = self.answer(&completion.text).map(str::trim) else {
            return Score::none(Verdict::Unparsable);
        };

        // A number that is too long is over budget, and not unparsable like a text that is not a number.
        if is_too_long(answer) {
            return Score::none(Verdict::OverBudget);
        }

        match parse_integer(answer) {
            None => Score::none(Verdict::Unparsable),
            Some(found) if found == expected => Score::right(answer),
            Some(_) => Score::wrong(answer),
        }
    }
}

impl Integer {
    /// Returns the text after the last marker. Returns `None` if the marker does not occur.
    fn answer<'text>(&self, text: &'text str) -> Option<&'text str> {
        match self.marker.as_deref() {
            None | Some("") => Some(text),
            Some(marker) => text.rfind(marker).map(|at| &text[at + marker.len()..]),
        }
    }
}

fn parse_integer(text: &str) -> Option<Decimal> {
    if text.contains('.') || !commas_are_well_placed(without_sign(text)) {
        return None;
    }
    Decimal::parse(&text.replace(',', ""))
}

/// Returns true if the text is only a number, and has more digits than are compared.
fn is_too_long(text: &str) -> bool {
    let digits = without_sign(text);
    digits.len() > Decimal::MAX_DIGITS
        && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b',')
        && digits.bytes().filter(|byte| *byte != b',').count() > Decimal::MAX_DIGITS
}

fn without_sign(text: &str) -> &str {
    text.strip_prefix(['+', '-', '−']).unwrap_or(text)
}

/// Returns true if commas, if any, separate groups of three digits from the right: `12,345` but not `1,23`.
fn commas_are_well_placed(digits: &str) -> bool {
    let mut groups = digits.split(',');
    let first = groups.next().map_or(0, str::len);
    let mut rest = groups.peekable();
    rest.peek().is_none() || ((1..=3).contains(&first) && rest.all(|group| group.len() == 3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::verdict;
    use Verdict::*;

    #[test]
    fn the_whole_text_is_the_answer_when_there_is_no_marker() {
        let plain = Integer::default();
        for (text, expected) in [
            (" 132\n", Right),
            ("+00132", Right),
            ("133", Wrong),
            ("−132", Wrong),
            ("132.", Unparsable),
            ("132 apples", Unparsable),
            ("1,32", Unparsable),
            ("--132", Unparsable),
            ("+-132", Unparsable),
            ("", Unparsable),
            ("-", Unparsable),
            ("１３２", Unparsable),
        ] {
            assert_eq!(verdict(&plain, "132", text), expected, "{text:?}");
        }

        assert_eq!(verdict(&plain, "1234567", "1,234,567"), Right);
        assert_eq!(verdict(&plain, "0", "-0"), Right);
        assert_eq!(verdict(&plain, "what?", "132"), Error);
    }

    #[test]
    fn the_last_marker_announces_the_answer() {
        let marked = Integer { marker: Some(";".into()) };
        assert_eq!(verdict(&marked, "132", "7+5+0=12,4+8+1=13;132"), Right);
        assert_eq!(verdict(&marked, "132", "131;132"), Right);
        assert_eq!(verdict(&marked, "132", "132;131"), Wrong);
        assert_eq!(verdict(&marked, "132", "132"), Unparsable);
        assert_eq!(verdict(&marked, "so;132", ";132"), Right);
    }

    #[test]
    fn size_is_bounded() {
        let plain = Integer::default();
        let long = "9".repeat(Decimal::MAX_DIGITS);

        assert_eq!(verdict(&plain, &long, &format!("0{long}")), OverBudget);
        assert_eq!(verdict(&plain, &long, &format!("-{long},999")), OverBudget);
        assert_eq!(verdict(&plain, &long, &long), Right);
    }
}
