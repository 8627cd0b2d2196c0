//! `Regex`, a verifier for answers that a regular expression finds.

use firebrick_core::{Completion, Prompt, Score, Verdict, Verifier};
use serde::{Deserialize, Serialize};

use crate::RewardError;

/// Maximum memory, in bytes, that a compiled pattern may take.
const MAX_COMPILED: usize = 1 << 22;

/// Judges answers that a regular expression finds.
///
/// The answer is a group of the pattern's last match that is not empty. It must be the same text as the reference,
/// apart from white space around both. A completion is unparsable if there is no match, or if the group did not
/// participate in the match. A blank reference is an error.
///
/// Patterns are those of the crate `regex`. It has no look-around and no back-references, and therefore searches in
/// linear time. Finding the last of many matches can still cost the square of the length, if a pattern reads far ahead.
/// So only the end of a completion is searched.
///
/// ```
/// use firebrick_core::{Completion, Prompt, Verdict, Verifier};
/// use firebrick_reward::{Regex, RegexOptions};
///
/// let regex = Regex::new(RegexOptions {
///     pattern: r"<answer>(.*?)</answer>".into(),
///     ..RegexOptions::default()
/// })?;
/// let prompt = Prompt { reference: "blue".into(), ..Prompt::default() };
/// let completion = Completion::of_text("Not <answer>red</answer>, but <answer> blue </answer>.");
/// assert_eq!(regex.score(&prompt, &completion).verdict, Verdict::Right);
/// # Ok::<(), firebrick_reward::RewardError>(())
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "RegexOptions", into = "RegexOptions")]
pub struct Regex {
    options: RegexOptions,
    pattern: regex::Regex,
    group: usize,
}

/// Pattern of a [`Regex`], and how it is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RegexOptions {
    /// Regular expression. `(?i)` in front ignores case, `(?s)` lets a dot match line ends.
    pub pattern: String,
    /// Group that is the answer. By default it is the first group, or the whole match in a pattern without
    /// groups.
    pub group: Option<RegexGroup>,
    /// True if any match decides. A completion is then right if the pattern matches anywhere in it, whatever the
    /// reference says, and wrong if it does not.
    pub matches: bool,
    /// How many bytes from the end matches count in. It has no effect if `matches` is set.
    pub tail: usize,
}

impl Default for RegexOptions {
    fn default() -> Self {
        RegexOptions { pattern: String::new(), group: None, matches: false, tail: 4096 }
    }
}

/// A group of a regular expression.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RegexGroup {
    /// Group by its number: 0 is the whole match, 1 the first opening bracket.
    Number(usize),
    /// Group by its name: `(?<name>…)`.
    Name(String),
}

impl Regex {
    /// Compiles the pattern.
    ///
    /// # Errors
    ///
    /// Fails with [`RewardError::Pattern`] if the pattern is empty, not well formed or too large (4 MiB when
    /// compiled), or has no such group.
    pub fn new(options: RegexOptions) -> Result<Self, RewardError> {
        let error = |problem: String| RewardError::Pattern {
            pattern: options.pattern.chars().take(80).collect(),
            problem,
        };

        if options.pattern.is_empty() {
            return Err(error("it is empty, and would match everything".into()));
        }

        let pattern = regex::RegexBuilder::new(&options.pattern)
            .size_limit(MAX_COMPILED)
            .dfa_size_limit(MAX_COMPILED)
            .build()
            .map_err(|problem| error(problem.to_string()))?;

        // The groups count the whole match as the first.
        let group = match &options.group {
            None => Some(usize::from(pattern.captures_len() > 1)),
            Some(RegexGroup::Number(number)) => {
                (*number < pattern.captures_len()).then_some(*number)
            }
            Some(RegexGroup::Name(name)) => {
                pattern.capture_names().position(|group| group == Some(name))
            }
        };

        let group = group
            .ok_or_else(|| error("it does not have the capture group that `group` names".into()))?;
        Ok(Regex { options, pattern, group })
    }

    /// Returns the text of the group in the last match near the end of `text`.
    fn last_answer<'text>(&self, text: &'text str) -> Option<&'text str> {
        let mut position = text.ceil_char_boundary(text.len().saturating_sub(self.options.tail));
        let mut last_start = None;
        while let Some(found) = self.pattern.find_at(text, position) {
            position = found.end();
            // An empty match is not an answer, and the search would never leave its position.
            if found.is_empty() {
                let Some(next) = text[position..].chars().next() else { break };
                position += next.len_utf8();
            } else {
                last_start = Some(found.start());
            }
        }

        let captures = self.pattern.captures_at(text, last_start?)?;
        captures.get(self.group).map(|group| group.as_str().trim())
    }
}

impl Verifier for Regex {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        if self.options.matches {
            return match self.pattern.find(&completion.text) {
                Some(found) => Score::right(found.as_str()),
                None => Score::wrong(""),
            };
        }

        let expected = prompt.reference.trim();
        if expected.is_empty() {
            return Score::none(Verdict::Error);
        }

        match self.last_answer(&completion.text) {
            None => Score::none(Verdict::Unparsable),
            Some(found) if found == expected => Score::right(found),
            Some(found) => Score::wrong(found),
        }
    }

    /// A pattern that only has to match reads no reference, so any will do.
    fn takes_json(&self) -> bool {
        self.options.matches
    }
}

impl TryFrom<RegexOptions> for Regex {
    type Error = RewardError;

    fn try_from(options: RegexOptions) -> Result<Self, RewardError> {
        Regex::new(options)
    }
}

impl From<Regex> for RegexOptions {
    fn from(regex: Regex) -> Self {
        regex.options
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::verdict;
    use Verdict::*;

    fn options(pattern: &str) -> RegexOptions {
        RegexOptions { pattern: pattern.into(), ..RegexOptions::default() }
    }

    #[test]
    fn the_group_of_the_last_match_is_the_answer() {
        let whole_match = Regex::new(options(r"\d+")).unwrap();

        let first = Regex::new(options(r"x=(\d+)|y=(\d+)")).unwrap();
        let named = RegexOptions {
            group: Some(RegexGroup::Name("y".into())),
            ..options(r"x=(?<x>\d+),y=(?<y>\d*)")
        };
        let named = Regex::new(named).unwrap();

        for (verifier, text, expected) in [
            (&whole_match, "7 or 72", Right),
            (&whole_match, "72 or 7", Wrong),
            (&whole_match, "none", Unparsable),
            (&first, "x=72", Right),
            (&first, "x=72 y=72", Unparsable),
            (&named, "x=7,y=72", Right),
            (&named, "x=72,y=", Wrong),
        ] {
            assert_eq!(verdict(verifier, "72", text), expected, "{text:?}");
        }

        assert_eq!(verdict(&Regex::new(options("é*")).unwrap(), "éé", "éééè"), Wrong);
        assert_eq!(verdict(&Regex::new(options("é*")).unwrap(), "éé", "èééè"), Right);
        assert_eq!(verdict(&whole_match, " ", "72"), Error);
    }

    #[test]
    fn only_the_end_is_read_unless_any_match_will_do() {
        let near = Regex::new(RegexOptions { tail: 5, ..options("7é*") }).unwrap();
        assert_eq!(verdict(&near, "7éé", "7éé"), Right);
        assert_eq!(verdict(&near, "7ééé", "7ééé"), Unparsable);

        let any = Regex::new(RegexOptions { tail: 0, matches: true, ..options("^7") }).unwrap();
        assert_eq!(verdict(&any, "", "7 and more"), Right);
        assert_eq!(verdict(&any, "7", "not 7"), Wrong);
    }

    #[test]
    fn unusable_patterns_are_refused() {
        let group = |group| RegexOptions { group: Some(group), ..options("(a)") };
        for bad in [
            options(""),
            options("(a"),
            options(r"(\w{1000}){1000}"),
            group(RegexGroup::Number(2)),
            group(RegexGroup::Name("a".into())),
        ] {
            assert!(matches!(Regex::new(bad), Err(RewardError::Pattern { .. })));
        }

        assert!(serde_json::from_str::<Regex>(r#"{"pattern": "a", "group": 1}"#).is_err());
        let read: Regex = serde_json::from_str(r#"{"pattern": "a", "group": 0}"#).unwrap();
        assert_eq!(verdict(&read, "a", "bab"), Right);
    }
}
