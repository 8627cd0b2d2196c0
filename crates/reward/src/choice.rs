//! The verifier `Choice`, for the letter of a multiple-choice question.

mod marker;

use firebrick_core::{Completion, Prompt, Score, Verdict, Verifier};
use serde::{Deserialize, Serialize};

use crate::text::last_box;

/// The longest last line, in bytes, that is taken for a statement of the answer.
const MAX_LINE: usize = 1024;

/// The verifier for the letter of a multiple-choice question.
///
/// The answer is looked for in three places. The first place that names a letter decides:
///
/// 1. the last `\boxed{…}`, if it begins with the letter;
/// 2. the text behind the last answer marker, such as `Answer:`, `the correct option is`, `答案：` or `Respuesta:`,
///    in any dress (`**(B)**`, `\text{B}`, `Option B`);
/// 3. the last line that isn't blank, if it is short, has no such marker, and names just one letter.
///
/// A letter stands alone: the `B` of `Bob` is no letter, nor is the `A` of `A triangle`. A completion that names
/// two letters (`Answer: A or B`) has named none. Full-width letters count as the Latin letters in their place,
/// and so do the Arabic and Bengali letters that translated questions use.
///
/// The reference is the letter, bare or in any of these forms.
///
/// ```
/// use firebrick_core::{Completion, Prompt, Verdict, Verifier};
/// use firebrick_reward::Choice;
///
/// let prompt = Prompt { reference: "B".into(), ..Prompt::default() };
/// let completion = Completion::of_text("A is too small, and C too large.\n**Answer:** (B) 42");
/// assert_eq!(Choice::default().score(&prompt, &completion).verdict, Verdict::Right);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Choice {
    /// The names of the choices. They need not be letters.
    pub letters: Vec<String>,
    /// True if a completion may write the letters small. In the last line, a small letter must then stand in
    /// brackets or alone.
    pub lowercase: bool,
}

impl Default for Choice {
    fn default() -> Self {
        Choice { letters: ["A", "B", "C", "D", "E"].map(str::to_owned).to_vec(), lowercase: false }
    }
}

impl Verifier for Choice {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        let reference = prompt.reference.as_str();
        let lenient = Letters { names: &self.letters, lowercase: true };
        let Some(expected) = lenient.leading(reference).or_else(|| lenient.find(reference)) else {
            return Score::none(Verdict::Error);
        };
        let letters = Letters { names: &self.letters, lowercase: self.lowercase };
        match letters.find(&completion.text) {
            None => Score::none(Verdict::Unparsable),
            Some(found) if found.choice == expected.choice => Score::right(found.text),
            Some(found) => Score::wrong(found.text),
        }
    }
}

/// The letters that are looked for.
#[derive(Clone, Copy)]
struct Letters<'names> {
    names: &'names [String],
    lowercase: bool,
}

/// A letter in a text.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Found<'text> {
    /// The index of the letter among the names.
    choice: usize,
    /// The letter as it stands in the text.
    text: &'text str,
    /// The text behind the letter.
    rest: &'text str,
}

impl Letters<'_> {
    fn find<'text>(self, text: &'text str) -> Option<Found<'text>> {
        let boxed = last_box(text).and_then(|inside| self.leading(&text[inside]));
        if let Some(found) = boxed {
            return self.only(found);
        }
        let last = marker::places(text).filter_map(|place| self.leading(&text[place..])).last();
        match last {
            Some(found) => self.only(found),
            None => self.in_last_line(text),
        }
    }

    /// Finds the letter that a text begins with. Dress and words like `option` are left aside.
    fn leading(self, text: &str) -> Option<Found<'_>> {
        self.at(marker::undressed(text))
    }

    /// Returns the letter, unless another letter follows as an alternative.
    fn only<'text>(self, found: Found<'text>) -> Option<Found<'text>> {
        let rest =
            found.rest.trim_start_matches(|c: char| c.is_whitespace() || ")]}*$）".contains(c));
        let joined = [",", "/", "&", "、", "or ", "and ", "或", "和"]
            .iter()
            .find_map(|joint| self.leading(rest.strip_prefix(joint)?));
        joined.is_none_or(|other| other.choice == found.choice).then_some(found)
    }

    /// Finds the one letter that the last line names.
    fn in_last_line(self, text: &str) -> Option<Found<'_>> {
        let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
        // Otherwise anything said about an answer there would count: `The answer is not B.`
        if line.len() > MAX_LINE || marker::places(line).next().is_some() {
            return None;
        }
        let alone = line.trim_matches(|c: char| !c.is_alphanumeric());
        if let Some(found) = self.at(alone).filter(|found| found.rest.is_empty()) {
            return Some(found);
        }
        let mut only: Option<Found<'_>> = None;
        let mut before = ' ';
        for (place, c) in line.char_indices() {
            let lowercase = self.lowercase && before == '(';
            let found = Letters { lowercase, ..self }.at(&line[place..]);
            if let Some(found) = found.filter(|_| !continues(before)) {
                if only.is_some_and(|other| other.choice != found.choice) {
                    return None;
                }
                only = Some(found);
            }
            before = c;
        }
        only
    }

    /// Finds the letter that stands right at the start of a text. The longest name that fits wins.
    fn at(self, text: &str) -> Option<Found<'_>> {
        let fitting = self.names.iter().enumerate().filter_map(|(choice, name)| {
            let length = self.length_of(name, text).filter(|length| *length > 0)?;
            let (text, rest) = text.split_at(length);
            let stands_alone = !rest.chars().next().is_some_and(continues) && !is_word(text, rest);
            stands_alone.then_some(Found { choice, text, rest })
        });
        fitting.max_by_key(|found| found.text.len())
    }

    /// Returns how many bytes of a text spell `name`, if the text begins with it.
    fn length_of(self, name: &str, text: &str) -> Option<usize> {
        let mut characters = text.chars();
        for wanted in name.chars().map(latin) {
            let found = latin(characters.next()?);
            let same = found == wanted
                || (self.lowercase && found.to_lowercase().eq(wanted.to_lowercase()));
            if !same {
                return None;
            }
        }
        Some(text.len() - characters.as_str().len())
    }
}

/// Tells whether a character goes on with the word before it. Chinese and its neighbours are written without
/// spaces, so their characters do not.
fn continues(c: char) -> bool {
    let unspaced = matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7a3}');
    c.is_alphanumeric() && !unspaced
}

/// Tells whether an `A` is the article, or an `I` the pronoun: a word in small letters follows, and not a word
/// that goes on about the answer.
fn is_word(letter: &str, rest: &str) -> bool {
    const GOES_ON: [&str; 14] = [
        "is", "as", "because", "since", "for", "which", "due", "where", "that", "and", "or", "but",
        "by", "with",
    ];
    let word = rest
        .strip_prefix(' ')
        .map(|rest| &rest[..rest.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(rest.len())]);
    matches!(letter, "A" | "a" | "I")
        && word.is_some_and(|word| !word.is_empty() && !GOES_ON.contains(&word))
}

/// Returns the Latin letter that another script's letter stands for, or the character itself.
fn latin(c: char) -> char {
    match c {
        'Ａ'..='Ｚ' | 'ａ'..='ｚ' | '０'..='９' => {
            char::from_u32(c as u32 - 0xfee0).unwrap_or(c)
        }
        'أ' | 'অ' => 'A',
        'ب' | 'ব' => 'B',
        'ج' | 'ড' => 'C',
        'د' | 'ঢ' => 'D',
        _ => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::verdict;
    use Verdict::*;

    #[test]
    fn a_letter_is_found_where_it_is_announced() {
        let choice = Choice::default();
        for (text, expected) in [
            (r"A or C? $\boxed{\text{(B)}}$, as A: no", Right),
            (r"\boxed{42}, so the answer is (B).", Right),
            ("Answer: A\nNo.\n**Answer:** **B**", Right),
            ("Answer: A\nFinal answer is C", Wrong),
            ("The correct option is therefore option B: 42", Right),
            ("The answer is thus clearly the option B", Right),
            ("Answer:\n\n> B. Paris", Right),
            ("答案：Ｂ", Right),
            ("所以正确答案是B，而不是A", Right),
            ("故选：C。", Wrong),
            ("الإجابة الصحيحة هي: ب", Right),
            ("উত্তর: ব", Right),
            ("Antwort: B", Right),
            ("Answer: Bob", Unparsable),
            ("Answer: A or B", Unparsable),
            (r"\boxed{B, C}", Unparsable),
            ("The answer is not B.", Unparsable),
            ("The answer is: A triangle, B", Unparsable),
            ("To answer this: count.\n\n(B)", Right),
            (r"$\boxed{\textbf{(B)}\ 42}$", Right),
            ("Answer: B, because A is too small", Right),
            ("Answer: b", Unparsable),
            ("Answer: F", Unparsable),
        ] {
            assert_eq!(verdict(&choice, "B", text), expected, "{text:?}");
        }
        for reference in ["(b)", r"\boxed{B}", "B. Paris", "The answer is B"] {
            assert_eq!(verdict(&choice, reference, "Answer: B"), Right, "{reference}");
        }
        assert_eq!(verdict(&choice, "Paris", "Answer: B"), Error);
    }

    #[test]
    fn without_a_marker_the_last_line_names_it() {
        let choice = Choice { lowercase: true, ..Choice::default() };
        for (text, expected) in [
            ("Look at A.\n(B)\n", Right),
            ("b", Right),
            ("**b.**", Right),
            ("That leaves (b), of course", Right),
            ("That leaves b", Unparsable),
            ("So it must be B.", Right),
            ("A line through B", Right),
            ("Between A and B", Unparsable),
            ("B it is\nSee?", Unparsable),
            ("No valid answer here", Unparsable),
            ("", Unparsable),
        ] {
            assert_eq!(verdict(&choice, "B", text), expected, "{text:?}");
        }
    }

    #[test]
    fn choices_may_be_words() {
        let choice = Choice { letters: vec!["no".into(), "not sure".into()], lowercase: true };
        assert_eq!(verdict(&choice, "not sure", "Answer: Not sure."), Right);
        assert_eq!(verdict(&choice, "no", "Answer: nothing"), Unparsable);
    }
}
