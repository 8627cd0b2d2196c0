//! A language model that judges, with the recipe's rubric.

use std::{
    sync::{Arc, mpsc::Sender},
    time::Duration,
};

use firebrick_core::{Completion, Prompt};
use firebrick_data::TextTemplate;
use firebrick_runs::AnswerLog;
use firebrick_servers::{AnswerForm, Answers, ChatJudge, JudgeSettings, Rubric};
use serde_json::json;

use super::super::environment::key;
use crate::{
    Error,
    recipe::{JudgeAnswer, RewardKind},
};

/// Builds the judge of a reward of that kind. `None` for any other kind.
///
/// # Errors
/// When the rubric is no template, an address is not valid, or the key is not in the environment.
pub(super) fn judge(
    kind: &RewardKind,
    answers: &Arc<AnswerLog>,
    notes: &Sender<String>,
) -> Result<Option<ChatJudge>, Error> {
    let RewardKind::Judge {
        servers,
        model,
        key_variable,
        rubric,
        system,
        answer,
        threshold,
        temperature,
        extra_body,
        max_tokens,
        at_once,
        deadline,
        retries,
        patience,
        prices,
    } = kind
    else {
        return Ok(None);
    };

    let key = key_variable.as_ref().map(|name| key("reward.key_variable", name)).transpose()?;
    let bad = |problem: String| Error::Rubric { problem };
    let template =
        TextTemplate::new("reward.rubric", rubric).map_err(|error| bad(error.to_string()))?;
    let rubric: Rubric = Box::new(move |prompt: &Prompt, completion: &Completion, fence: &str| {
        let variables = json!({
            "question": prompt.question_text(),
            "reference": prompt.reference,
            "completion": completion.text,
            "fence": fence,
        });
        let variables = variables.as_object().cloned().unwrap_or_default();
        template.fill(&variables).map_err(|error| error.to_string())
    });

    let of = |text: &str| rubric(&Prompt::default(), &Completion::of_text(text), "fence");
    if of("one").map_err(bad)? == of("another").map_err(bad)? {
        return Err(bad("reward.rubric does not have the completion in it".into()));
    }

    let settings = JudgeSettings {
        servers: servers.clone(),
        key,
        model: model.clone(),
        system: system.clone(),
        answer: match answer {
            JudgeAnswer::YesNo => AnswerForm::YesNo,
            JudgeAnswer::Number { min, max } => AnswerForm::Number { min: *min, max: *max },
            JudgeAnswer::Label { labels } => AnswerForm::Label(labels.clone()),
        },
        threshold: *threshold,
        temperature: *temperature,
        extra_body: extra_body.clone(),
        max_tokens: *max_tokens,
        at_once: *at_once,
        deadline: Duration::from_secs_f64(*deadline),
        retries: *retries,
        patience: Duration::from_secs_f64(*patience),
        prices: *prices,
    };
    let notes = notes.clone();
    // A run that is over receives nothing.
    let tell = move |note| drop(notes.send(note));
    Ok(Some(ChatJudge::new(settings, rubric, Arc::new(InLog(answers.clone())), tell)?))
}

struct InLog(Arc<AnswerLog>);

impl Answers for InLog {
    fn find(&self, question: &str) -> Option<String> {
        self.0.find(question)
    }

    fn keep(&self, question: &str, answer: &str) {
        self.0.keep(question, answer);
    }
}
