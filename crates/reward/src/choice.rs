//! `Choice`, a verifier for the letter of a multiple-choice question.

mod formula;
mod marker;

use firebrick_core::{Completion, Prompt, Score, Verdict, Verifier};
use serde::{Deserialize, Serialize};

use crate::text::{after_thoughts, boxes};

/// Maximum length, in bytes, of a last line that counts as a statement of the answer.
const MAX_LINE: usize = 1024;

/// Judges the letter of a multiple-choice question.
///
/// The answer is searched in three positions after the thoughts. The first that names a letter decides:
///
/// 1. the last `\boxed{…}` that holds the letter alone or with its mark (`B`, `(B) 42`, `\text{B. Paris}`);
/// 2. the text after the last answer marker, such as `Answer:`, `the correct option is`, `答案：` or `Respuesta:`, in any
///    markup (`**(B)**`, `\text{B}`, `Option B`);
/// 3. the last line that isn't blank, if it is short, has no such marker, and names just one letter.
///
/// A letter stands alone: the `B` of `Bob` does not count as a letter, nor does the `A` of `A triangle`, nor the `E` of
/// `E=mc^2`. A completion that names two letters (`Answer: A or B`) has named none. Full-width letters count as the
/// corresponding Latin letters, and so do the Arabic and Bengali letters that translated questions use.
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
    /// Names of the choices. They need not be letters.
    pub letters: Vec<String>,
    /// True if a completion may write the letters in lower case. In the last line, a lower-case letter must then be in
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
        match after_thoughts(prompt, &completion.text).and_then(|text| letters.find(text)) {
            None => Score::none(Verdict::Unparsable),
            Some(found) if found.choice == expected.choice => Score::right(found.text),
            Some(found) => Score::wrong(found.text),
        }
    }
}

/// Letters to find.
#[derive(Clone, Copy)]
struct Letters<'names> {
    names: &'names [String],
    lowercase: bool,
}

/// A letter in a text.
#[derive(Clone, Copy, Debug, PartialEq)]
struct FoundLetter<'text> {
    /// Index of the letter among the names.
    choice: usize,
    /// The letter as it is written in the text.
    text: &'text str,
    /// The text after the letter.
    rest: &'text str,
}

impl Letters<'_> {
    fn find<'text>(self, text: &'text str) -> Option<FoundLetter<'text>> {
        let boxed = boxes(text).into_iter().rev().find_map(|inside| self.in_box(&text[inside]));
        if boxed.is_some() {
            return boxed;
        }

        let last = marker::ends(text).filter_map(|end| self.leading(&text[end..])).last();
        match last {
            Some(found) => self.only(found),
            None => self.in_last_line(text),
        }
    }

    /// Finds the letter that a text begins with, apart from markup and words like `option`.
    fn leading(self, text: &str) -> Option<FoundLetter<'_>> {
        let bare = marker::without_markup(text);
        let markup = &text[..text.len() - bare.len()];
        let found = self.at(bare)?;

        let in_maths = ["$", r"\(", r"\["].iter().any(|open| markup.contains(open));
        let named = !in_maths || formula::is_alone_or_marked(markup, found.rest);
        (named && !formula::continues(markup, found.rest)).then_some(found)
    }

    /// Finds the letter that a box holds. Most boxes hold mathematics, whose first letter is not a choice.
    fn in_box(self, text: &str) -> Option<FoundLetter<'_>> {
        let found = self.leading(text)?;
        let markup = &text[..text.len() - found.text.len() - found.rest.len()];
        self.only(found).filter(|found| formula::is_alone_or_marked(markup, found.rest))
    }

    /// Returns the letter, unless another letter follows as an alternative.
    fn only<'text>(self, found: FoundLetter<'text>) -> Option<FoundLetter<'text>> {
        let rest =
            found.rest.trim_start_matches(|c: char| c.is_whitespace() || ")]}*$）".contains(c));
        let joined = [",", "/", "&", "、", "or ", "and ", "或", "和"]
            .iter()
            .find_map(|joint| self.leading(rest.strip_prefix(joint)?));
        joined.is_none_or(|other| other.choice == found.choice).then_some(found)
    }

    /// Finds the one letter that the last line names.
    fn in_last_line(self, text: &str) -> Option<FoundLetter<'_>> {
        let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
        // Otherwise any mention of an answer there would count: `The answer is not B.`
        if line.len() > MAX_LINE || marker::ends(line).next().is_some() {
            return None;
        }
        let alone = line.trim_matches(|c: char| !c.is_alphanumeric());
        if let Some(found) = self.at(alone).filter(|found| found.rest.is_empty()) {
            return Some(found);
        }

        // In the middle of a line a letter may be a word or belong to a formula, so each one is checked.
        let mut only: Option<FoundLetter<'_>> = None;
        for (position, _) in line.char_indices() {
            let before = &line[..position];
            let lowercase = self.lowercase && before.ends_with('(');
            let letter = Letters { lowercase, ..self }.at(&line[position..]);
            let is_named = |letter: &FoundLetter<'_>| match formula::around(line, position) {
                Some(inside) => {
                    let following = line.len() - inside.end;
                    let opening = self.in_box(&line[inside]);
                    opening.is_some_and(|first| first.rest.len() + following == letter.rest.len())
                }
                None => {
                    !before.ends_with(continues)
                        && !formula::leads_to(before)
                        && !formula::continues(before, letter.rest)
                }
            };

            if let Some(letter) = letter.filter(is_named) {
                if only.is_some_and(|other| other.choice != letter.choice) {
                    return None;
                }
                only = Some(letter);
            }
        }

        only
    }

    /// Finds the letter at the very start of a text. The longest name that fits wins.
    fn at(self, text: &str) -> Option<FoundLetter<'_>> {
        let fitting = self.names.iter().enumerate().filter_map(|(choice, name)| {
            let length = self.length_of(name, text).filter(|length| *length > 0)?;
            let (text, rest) = text.split_at(length);
            let stands_alone = !rest.chars().next().is_some_and(continues) && !is_word(text, rest);
            stands_alone.then_some(FoundLetter { choice, text, rest })
        });

        // Names may begin alike: `no` and `not sure`.
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

/// Returns true if a character continues the word before it. Chinese and Japanese, among others, are written without
/// spaces, so their characters do not.
fn continues(c: char) -> bool {
    let unspaced = matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7a3}');
    c.is_alphanumeric() && !unspaced
}

/// Returns true if an `A` is the article, or an `I` the pronoun: a lower-case word follows, other than a word that
/// continues about the answer.
fn is_word(letter: &str, rest: &str) -> bool {
    let word = word_after(rest);
    matches!(letter, "A" | "a" | "I") && !word.is_empty() && !CONTINUING.contains(&word)
}

/// Words that continue about the answer after its letter.
const CONTINUING: [&str; 14] = [
    "is", "as", "because", "since", "for", "which", "due", "where", "that", "and", "or", "but",
    "by", "with",
];

/// Returns the lower-case word after a space, empty if there is none.
fn word_after(rest: &str) -> &str {
    let rest = rest.strip_prefix(' ').unwrap_or_default();
    &rest[..rest.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(rest.len())]
}

/// Returns the Latin letter that corresponds to another script's letter, or the character itself.
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
            (r"Because \boxed{A=mc^2}, the answer is B.", Right),
            (r"\boxed{A \cup C} holds.\n\nAnswer: B", Right),
            (r"\boxed{B}, since \boxed{C_1 = 2} and \boxed{A(x)=2x}", Right),
            (r"Answer: B, as $\boxed{\text{A} \cap \text{C}}$", Right),
            (r"Answer: B. Check: \boxed{(A) \to (C)}, \boxed{\mathbf{A} x = b}, \boxed{D'}", Right),
            (r"\boxed{B \subset A}", Unparsable),
            (r"Answer: $B \in A$", Unparsable),
            (r"The answer is B = 2A.", Unparsable),
            (r"\boxed{B. 12}", Right),
            (r"\boxed{\text{(B) } 12\%}", Right),
            (r"\boxed{\textbf{(B)}\ \frac12}", Right),
            (r"\boxed{\textbf{(B)} -3}", Right),
            (r"\boxed{\text{B: Paris}}", Right),
            (r"\boxed{\text{B is right}}", Right),
            (r"\boxed{\text{Option B}}", Right),
            (r"\boxed{B Major}", Unparsable),
            ("<answer>B</answer>", Right),
            ("<think>\\boxed{A}?</think>The answer is B.", Right),
            ("<think>The answer is B.", Unparsable),
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
            (r"\boxed{A \text{ or } C}", Unparsable),
            (r"The ends are \boxed{A, C}. The answer is B.", Right),
            (r"\boxed{\text{B, because } x=1}", Right),
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
            (r"It follows that $x \in A$ holds for B", Right),
            ("We get $P(A) = C/2$", Unparsable),
            (r"Here $E = mc^2$, so B", Right),
            (r"\boxed{B x + c}", Unparsable),
            (r"It is $2 B x$.", Unparsable),
            (r"It is $\text{B}$, not \(x A\).", Right),
            ("It costs $5, so B", Right),
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
