//! A check of a data set's references: the verifier has to find them right as answers.

use std::sync::mpsc::Sender;

use firebrick_core::{Completion, Prompt, Verdict, Verifier};
use firebrick_train::TrainError;

use crate::{
    Error,
    recipe::{Recipe, RewardKind},
};

/// Leaves out the prompts whose references the verifier can't read, because no answer to them has a verdict.
/// Says how many there are.
pub(super) fn leave_out(
    key: &str,
    prompts: &mut Vec<Prompt>,
    recipe: &Recipe,
    verifier: &dyn Verifier,
    notes: &Sender<String>,
) -> Result<(), Error> {
    let forms = forms(&recipe.reward_kind()).filter(|_| recipe.data.task.is_none());
    let Some(forms) = forms.filter(|_| prompts.len() > HANDFUL) else { return Ok(()) };
    let mut unreadable = vec![false; prompts.len()];
    for form in &forms {
        // Any answer will do, because it is the reference that can't be read.
        let answer = Completion::of_text(form.replace(REFERENCE, "1"));
        let asked: Vec<_> = prompts.iter().map(|prompt| (prompt, &answer)).collect();
        let scores = verifier.score_all(&asked).map_err(TrainError::from)?;
        for (unreadable, score) in unreadable.iter_mut().zip(scores) {
            *unreadable |= score.verdict == Verdict::Error;
        }
    }
    // An answer that is the same text as the reference may still be right.
    for (unreadable, prompt) in unreadable.iter_mut().zip(&*prompts) {
        *unreadable = *unreadable && never_right(prompt, &forms, verifier);
    }
    let left_out = prompts.iter().zip(&unreadable).filter(|(_, unreadable)| **unreadable);
    let left_out: Vec<&Prompt> = left_out.map(|(prompt, _)| prompt).collect();
    let (count, of, first) = (left_out.len(), prompts.len(), first(&left_out));
    if count == of {
        return Err(Error::References { key: key.to_owned(), count, of, first });
    }
    if count > 0 {
        let _ = notes.send(format!(
            "{key}: the verifier can't read {count} of {of} references, such as {first}: their prompts are left out"
        ));
        let mut unreadable = unreadable.into_iter();
        prompts.retain(|_| !unreadable.next().unwrap_or(false));
    }
    Ok(())
}

/// Gives each reference to the verifier as an answer, and says how many of them are not right: training on them
/// teaches that nothing is right. It tries only a part of a large set. A task's answers are its own, and are
/// not checked.
///
/// # Errors
/// When most references are not right, and there are more than a handful.
pub(super) fn check(
    key: &str,
    prompts: &[Prompt],
    recipe: &Recipe,
    verifier: &dyn Verifier,
    notes: &Sender<String>,
) -> Result<(), Error> {
    let forms = forms(&recipe.reward_kind()).filter(|_| recipe.data.task.is_none());
    let Some(forms) = forms else { return Ok(()) };
    let every = prompts.len().div_ceil(LOOKED_AT).max(1);
    let looked_at: Vec<&Prompt> = prompts.iter().step_by(every).collect();
    let useless: Vec<&Prompt> =
        looked_at.iter().copied().filter(|prompt| never_right(prompt, &forms, verifier)).collect();
    let (count, of, first) = (useless.len(), looked_at.len(), first(&useless));
    if 2 * count > of && of > HANDFUL {
        return Err(Error::References { key: key.to_owned(), count, of, first });
    }
    if count > 0 {
        let _ = notes.send(format!(
            "{key}: the verifier rejects {count} of {of} references as answers to their own \
             prompts, such as {first}: these prompts teach nothing"
        ));
    }
    Ok(())
}

fn never_right(prompt: &Prompt, forms: &[String], verifier: &dyn Verifier) -> bool {
    let right = |form: &String| {
        let text = form.replace(REFERENCE, &prompt.reference);
        verifier.score(prompt, &Completion::of_text(text)).verdict == Verdict::Right
    };
    !forms.iter().any(right)
}

/// The most references that are tried.
const LOOKED_AT: usize = 1000;

/// So few prompts are for trying things: their faults are told and borne.
const HANDFUL: usize = 16;

/// Stands for the reference in a form.
const REFERENCE: &str = "{reference}";

/// Returns the ways to state an answer that a verifier of this kind may want. It is `None` if a reference is no
/// answer.
fn forms(kind: &RewardKind) -> Option<Vec<String>> {
    let own = match kind {
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
        _ => return None,
    };
    let usual = ["{reference}", "\\boxed{{reference}}", "Answer: {reference}", "#### {reference}"];
    Some(own.into_iter().chain(usual.map(String::from)).collect())
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
