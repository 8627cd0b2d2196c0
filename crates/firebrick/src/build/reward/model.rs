//! A reward model with the tokenizer and the chat template of its own folder.

use std::path::PathBuf;

use firebrick_core::{Completion, Prompt};
use firebrick_data::{ChatTemplate, Tokenizer};
use firebrick_models::{ModelVerifier, RewardModel, Transform};
use serde_json::{Map, Value, json};

use super::VerifierContext;
use crate::{Error, source::Need};

/// A recipe's options for a reward model.
pub(super) struct Options {
    pub(super) folder: PathBuf,
    pub(super) transform: Transform,
    pub(super) threshold: f32,
    pub(super) batch_tokens: usize,
}

/// Reads the reward model onto the device.
pub(super) fn verifier(
    options: Options,
    context: &VerifierContext,
) -> Result<ModelVerifier, Error> {
    let Options { folder, transform, threshold, batch_tokens } = options;
    let folder = context.sources.model_folder("reward.path", &folder, None, Need::Model).map_err(
        |error| match error {
            Error::NoModel { folder } => Error::NoRewardModel { folder },
            other => other,
        },
    )?;

    let tokenizer = Tokenizer::from_folder(&folder)?;
    let Some(template) = ChatTemplate::from_folder(&folder)? else {
        return Err(Error::RewardModelWithoutTemplate { folder });
    };
    let template = template.with_date(context.now);

    let model = RewardModel::load(&folder, context.device)?
        .with_compute(context.compute)
        .with_batch_tokens(batch_tokens);
    if tokenizer.rows() > model.config().vocab_size {
        let tokenizer = tokenizer.rows();
        let model = model.config().vocab_size;
        return Err(Error::Vocabulary { folder, tokenizer, model });
    }

    let notes = context.notes.clone();
    let say = move |note: &str| {
        let _ = notes.send(format!("{}: {note}", folder.display())); // A run that is over receives nothing.
    };
    if let Some(first) = model.nonfinite().first() {
        say(&format!("{first} holds NaN or infinite values"));
    }

    let conversation = move |prompt: &Prompt, completion: &Completion| {
        let messages = messages(prompt, completion)?;
        let text = template.render(&messages, false, &Map::new());
        let tokens = text.and_then(|text| tokenizer.encode(&text, false));
        tokens.map_err(|error| error.to_string())
    };
    Ok(ModelVerifier::new(model, Box::new(conversation), transform, threshold, say))
}

/// Returns the prompt's messages, with the completion as the assistant's answer.
fn messages(prompt: &Prompt, completion: &Completion) -> Result<Value, String> {
    let mut messages: Vec<Value> = if prompt.messages.is_empty() {
        vec![json!({"role": "user", "content": prompt.text})]
    } else {
        serde_json::from_str(&prompt.messages).map_err(|error| {
            format!("the messages of prompt {} are not a JSON list: {error}", prompt.id)
        })?
    };
    messages.push(json!({"role": "assistant", "content": completion.text}));
    Ok(messages.into())
}
