//! A check of a data set's references: the verifier has to read them, and to find them right as answers.

use std::sync::mpsc::Sender;

use firebrick_core::{Completion, Prompt, Verdict, Verifier};
use firebrick_reward::math;
use firebrick_train::TrainError;

use crate::{
    Error,
    recipe::{Extraction, RewardKind},
};

/// Tries a verifier on the reference of a prompt ([`Verifier::probe`]).
pub(super) fn probe(verifier: &dyn Verifier, prompt: &Prompt) -> Result<(), Error> {
    let completion = Completion::of_text(prompt.reference.clone());
    verifier.probe(prompt, &completion).map_err(|problem| Error::Judge {
        question: shortened(prompt.question_text()),
        completion: shortened(&prompt.reference),
        problem,
    })
}

/// Cuts a text to what fits into a message.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Leaves out the prompts whose references the verifier can't read, because no answer to them has a verdict, and says
/// how many there are. An answer of the same text as the reference would be right, but any other answer an error, so
/// that a policy could only lose its prompt.
///
/// # Errors
/// When the verifier can read none of the references.
pub(super) fn leave_out(
    key: &str,
    prompts: &mut Vec<Prompt>,
    kind: &RewardKind,
    verifier: &dyn Verifier,
    notes: &Sender<String>,
) -> Result<(), Error> {
    let forms = match kind {
        // Without a program nothing is run, and the tests are read all the same.
        RewardKind::Code(_) => vec![String::new()],
        kind => match Forms::for_kind(kind, prompts) {
            Some(forms) => forms.forms,
            None => return Ok(()),
        },
    };
    let mut unreadable = vec![false; prompts.len()];
    for form in &forms {
        // Any answer works, because it is the reference that can't be read.
        let answer = Completion::of_text(form.replace(REFERENCE, "1"));
        let pairs: Vec<_> = prompts.iter().map(|prompt| (prompt, &answer)).collect();
        let scores = verifier.score_all(&pairs).map_err(TrainError::from)?;
        for (unreadable, score) in unreadable.iter_mut().zip(scores) {
            *unreadable |= score.verdict == Verdict::Error;
        }
    }

    let left_out = prompts.iter().zip(&unreadable).filter(|(_, unreadable)| **unreadable);
    let left_out: Vec<&Prompt> = left_out.map(|(prompt, _)| prompt).collect();
    let count = left_out.len();
    let of = prompts.len();
    let first = first(&left_out);
    if count == 0 {
        return Ok(());
    }
    let kind = kind.name();
    if count == of {
        return Err(Error::Unreadable { key: key.to_owned(), kind, total: of, first });
    }
    let _ = notes.send(format!(
        "{key}: reward.kind = \"{kind}\" can't read {count} of {of} references, such as {first}: their prompts are \
         left out"
    ));
    let mut unreadable = unreadable.into_iter();
    prompts.retain(|_| !unreadable.next().unwrap_or(false));
    Ok(())
}

/// Asks the verifier about each reference as an answer, and reports how many of them are not right: training on them
/// teaches that nothing is right. Only a part of a large set is tried.
///
/// # Errors
/// When no reference is right, or most are not and there are more than a handful.
pub(super) fn check(
    key: &str,
    prompts: &[Prompt],
    kind: &RewardKind,
    verifier: &dyn Verifier,
    notes: &Sender<String>,
) -> Result<(), Error> {
    let Some(forms) = Forms::for_kind(kind, prompts) else { return Ok(()) };

    let every = prompts.len().div_ceil(LOOKED_AT).max(1);
    let looked_at: Vec<&Prompt> = prompts.iter().step_by(every).collect();
    let useless: Vec<&Prompt> =
        looked_at.iter().copied().filter(|prompt| forms.never_right(prompt, verifier)).collect();

    let count = useless.len();
    let of = looked_at.len();
    let first = first(&useless);
    let kind = kind.name();
    let most = 2 * count > of && of > HANDFUL;
    // A single reference may be the odd one.
    let all = count == of && of > 1;
    if most || all {
        return Err(Error::References { key: key.to_owned(), kind, count, total: of, first });
    }
    if count > 0 {
        let _ = notes.send(format!(
            "{key}: given the reference itself as the answer, reward.kind = \"{kind}\" judges {count} of {of} \
             wrong, such as {first}: these prompts teach nothing"
        ));
    }
    Ok(())
}

/// Limit of the references that are tried.
const LOOKED_AT: usize = 1000;

/// A set of at most this many prompts is for trying things out: answers that are not right are only reported.
const HANDFUL: usize = 16;

/// Placeholder for the reference in a form.
const REFERENCE: &str = "{reference}";

/// Ways to state an answer that a verifier may want.
struct Forms {
    /// Texts with [`REFERENCE`] in place of the answer.
    forms: Vec<String>,
    /// True if a reference may be a worked solution, whose own answer is the one to state.
    of_solutions: bool,
}

impl Forms {
    /// Returns the forms for a verifier of this kind. `None` if a reference is not an answer.
    fn for_kind(kind: &RewardKind, prompts: &[Prompt]) -> Option<Forms> {
        let marked_form = match kind {
            RewardKind::Exact { after: Some(marker), .. }
            | RewardKind::Integer { marker: Some(marker) } => Some(format!("{marker}{REFERENCE}")),
            RewardKind::Math { .. }
            | RewardKind::Dapo { .. }
            | RewardKind::DapoStrictBox
            | RewardKind::Gsm8k
            | RewardKind::Gsm8kFlexible
            | RewardKind::Choice { .. }
            | RewardKind::Exact { .. }
            | RewardKind::Integer { .. } => None,
            // The verdict is that of the first part. Rules are free to ask, and other kinds cost something.
            RewardKind::Weighted { parts } => {
                let first = parts.first().filter(|_| !kind.asks_others());
                return Forms::for_kind(&first?.kind, prompts);
            }
            // Their references are not answers, or there are none.
            RewardKind::Regex { .. }
            | RewardKind::Format { .. }
            | RewardKind::Countdown { .. }
            | RewardKind::Model { .. }
            | RewardKind::Judge { .. }
            | RewardKind::Environment { .. }
            | RewardKind::Code(_)
            | RewardKind::Command { .. }
            | RewardKind::Python { .. } => return None,
        };
        let usual =
            ["{reference}", "\\boxed{{reference}}", "Answer: {reference}", "#### {reference}"];
        let mut forms: Vec<String> =
            marked_form.into_iter().chain(usual.map(String::from)).collect();

        // If an answer has thoughts before it, they have to end.
        let after_thinking =
            matches!(kind, RewardKind::Math { extraction: Extraction::AfterThinking, .. });
        if after_thinking
            || prompts.iter().any(|prompt| prompt.text.trim_end().ends_with("<think>"))
        {
            let thoughtful: Vec<String> =
                forms.iter().map(|form| format!("</think>\n{form}")).collect();
            forms.extend(thoughtful);
        }
        Some(Forms { forms, of_solutions: matches!(kind, RewardKind::Math { .. }) })
    }

    fn never_right(&self, prompt: &Prompt, verifier: &dyn Verifier) -> bool {
        let own = math::Verifier::default().gold_answer(&prompt.reference);
        let answer = own.filter(|_| self.of_solutions);
        let answer = answer.as_deref().unwrap_or(&prompt.reference);
        let right = |form: &String| {
            let text = form.replace(REFERENCE, answer);
            verifier.score(prompt, &Completion::of_text(text)).verdict == Verdict::Right
        };
        !self.forms.iter().any(right)
    }
}

/// Writes the first three references, for a message.
fn first(prompts: &[&Prompt]) -> String {
    let first: Vec<String> =
        prompts.iter().take(3).map(|prompt| shown(&prompt.reference)).collect();
    first.join(", ")
}

/// Writes a reference for a message: short, and without characters that move a cursor.
fn shown(reference: &str) -> String {
    let short: String = reference.chars().take(40).collect();
    format!("{short:?}{}", if short.len() < reference.len() { "…" } else { "" })
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::mpsc::channel};

    use firebrick_reward::{Choice, Code, CodeOptions, Integer, Part, SandboxKind, Weighted};

    use super::*;
    use crate::recipe::Recipe;

    /// Checks the references of prompts that end in `prompt`. Returns those that are left, and the notes.
    fn checked(
        (reward, verifier): (&str, &dyn Verifier),
        prompt: &str,
        references: &[&str],
    ) -> Result<(Vec<String>, Vec<String>), Error> {
        let text =
            format!("model.path = \"model\"\ndata.train = \"a.jsonl\"\n[reward]\n{reward}\n");
        let recipe = Recipe::parse(Path::new("recipe.toml"), &text, &[]).unwrap().recipe;
        let mut prompts: Vec<Prompt> = references
            .iter()
            .map(|reference| Prompt {
                text: prompt.into(),
                reference: (*reference).into(),
                ..Prompt::default()
            })
            .collect();

        let (notes, received) = channel();
        leave_out("data.train", &mut prompts, &recipe.reward_kind(), verifier, &notes)?;
        check("data.train", &prompts, &recipe.reward_kind(), verifier, &notes)?;
        drop(notes);

        let left = prompts.into_iter().map(|prompt| prompt.reference).collect();
        Ok((left, received.iter().collect()))
    }

    #[test]
    fn a_reference_that_no_other_answer_could_be_compared_with_is_left_out() {
        let math: (&str, &dyn Verifier) = ("kind = 'math'", &math::Verifier::default());
        // The same text is right, and every other answer would be an error.
        let integral = "\\int_0^1 x\\,dx";
        let (left, notes) = checked(math, "?", &["5", integral, "\\text{June 5}"]).unwrap();
        assert_eq!(left, ["5", "\\text{June 5}"]);
        assert!(notes[0].contains("can't read 1 of 3 references, such as"), "{notes:?}");

        let none = checked(math, "?", &[integral]).unwrap_err();
        assert!(matches!(none, Error::Unreadable { total: 1, .. }), "{none}");

        let letters: (&str, &dyn Verifier) = ("kind = 'choice'", &Choice::default());
        assert_eq!(checked(letters, "?", &["(B)", "E=mc^2"]).unwrap().0, ["(B)"]);
        let numbers: (&str, &dyn Verifier) = ("kind = 'integer'", &Integer::default());
        assert_eq!(checked(numbers, "?", &["8", "8.5"]).unwrap().0, ["8"]);

        let options = CodeOptions { sandbox: SandboxKind::None, ..CodeOptions::default() };
        let code: (&str, &dyn Verifier) =
            ("kind = 'code'\nsandbox = 'none'", &Code::new(options).unwrap());
        let tests = ["assert f(1) == 2", r#"{"inputs": ["1"], "outputs": []}"#];
        let (left, notes) = checked(code, "?", &tests).unwrap();
        assert_eq!(left, [tests[0]]);
        assert!(notes[0].contains("can't read 1 of 2 references"), "{notes:?}");

        let name = "number".to_owned();
        let part = Part { name, weight: 1.0, verifier: Box::new(Integer::default()) };
        let weighted = Weighted::new(vec![part]).unwrap();
        let parts =
            "kind = 'weighted'\nparts = [{ name = 'number', weight = 1, kind = 'integer' }]";
        assert_eq!(checked((parts, &weighted), "?", &["8", "8.5"]).unwrap().0, ["8"]);
    }

    #[test]
    fn every_extraction_finds_its_references() {
        let references: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        let references: Vec<&str> = references.iter().map(String::as_str).collect();
        for (name, extraction) in [
            ("auto", math::Extraction::Auto),
            ("boxed", math::Extraction::Boxed),
            ("after_thinking", math::Extraction::AfterThinking),
            ("bare", math::Extraction::Bare),
            ("latex", math::Extraction::Latex),
            ("plain", math::Extraction::Plain),
        ] {
            let verifier = math::Verifier { extraction, ..math::Verifier::default() };
            let reward = format!("kind = 'math'\nextraction = '{name}'");
            for prompt in ["?", "?<think>\n"] {
                let (left, notes) = checked((&reward, &verifier), prompt, &references).unwrap();
                assert_eq!((left.len(), notes), (20, vec![]), "{name} {prompt}");
            }
        }

        // The answer of a solution is what is stated in a box.
        let boxed = math::Extraction::Boxed;
        let verifier = math::Verifier { extraction: boxed, ..math::Verifier::default() };
        let solution = ["So $x=3$. The final answer is $3$."];
        let (_, notes) =
            checked(("kind = 'math'\nextraction = 'boxed'", &verifier), "?", &solution).unwrap();
        assert_eq!(notes, [""; 0]);
    }
}
