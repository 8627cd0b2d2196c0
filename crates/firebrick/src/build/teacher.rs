//! Builds the teachers that a recipe names.

use std::{collections::BTreeMap, path::Path, sync::mpsc::Sender, time::Duration};

use burn::tensor::Device;
use firebrick_core::TokenId;
use firebrick_data::Tokenizer;
use firebrick_models::{Compute, DecoderConfig};
use firebrick_servers::{Dialect, PoolError, Scorers, TRIAL};
use firebrick_train::{
    Sample, TrainError,
    algorithm::Distillation,
    learner::{LocalTeacher, Teacher, TeacherModel, Teachers, Updater},
};

use super::environment::key;
use crate::{
    Error,
    model::{self, Folders},
    recipe::{self, BaseType, Recipe, TeacherKind, TeacherServers},
    source::{Need, Sources},
};

/// What teachers are built with besides the recipe.
pub(super) struct TeacherContext<'a> {
    /// Sizes of the policy.
    pub(super) policy: &'a DecoderConfig,
    /// Tokenizer of the policy.
    pub(super) tokenizer: &'a Tokenizer,
    /// Device of local teachers; without autodiff.
    pub(super) device: &'a Device,
    /// Matmul precision of local teachers.
    pub(super) compute: Compute,
    /// Tokens of a training prompt, if there is one.
    pub(super) prompt: Option<&'a [TokenId]>,
    /// Finder of the models.
    pub(super) sources: &'a Sources,
    /// Sender of notes for the user.
    pub(super) notes: &'a Sender<String>,
}

/// Builds the teachers. `None` if the recipe has none.
///
/// # Errors
/// When a model is missing or damaged, or its tokens are not the policy's.
pub(super) fn teachers(
    recipe: &Recipe,
    context: &TeacherContext,
) -> Result<Option<Teachers>, Error> {
    let Some(recipe::Teacher { kind, loss, weight, task_weight, max_log_ratio, .. }) =
        &recipe.teacher
    else {
        return Ok(None);
    };
    let distillation = Distillation {
        loss: *loss,
        weight: *weight,
        task_weight: *task_weight,
        max_log_ratio: *max_log_ratio,
    };

    let mut models = vec![teacher(recipe, kind, context)?];
    let mut built = vec![kind];
    let mut own = BTreeMap::new();
    for source in recipe.train_sources() {
        let Some(kind) = &source.teacher else { continue };
        // Data sets with the same teacher share it.
        let index = match built.iter().position(|other| *other == kind) {
            Some(index) => index,
            None => {
                built.push(kind);
                models.push(teacher(recipe, kind, context)?);
                models.len() - 1
            }
        };
        own.insert(source.name(), index);
    }
    Ok(Some(Teachers { distillation, models, own }))
}

fn teacher(
    recipe: &Recipe,
    kind: &TeacherKind,
    context: &TeacherContext,
) -> Result<TeacherModel, Error> {
    Ok(TeacherModel::Other(match kind {
        TeacherKind::Policy => return Ok(TeacherModel::Policy),
        TeacherKind::Local { path, base } => local(recipe, path, *base, context)?,
        TeacherKind::Vllm(servers) => remote(Dialect::Vllm, servers, context)?,
        TeacherKind::Sglang(servers) => remote(Dialect::Sglang, servers, context)?,
    }))
}

/// Makes a teacher on servers, and tries it on a prompt, so that a wrong address or key shows before the first step.
fn remote(
    dialect: Dialect,
    servers: &TeacherServers,
    context: &TeacherContext,
) -> Result<Box<dyn Teacher>, Error> {
    let TeacherServers { servers, key_variable, deadline, patience } = servers;
    let key = key_variable.as_ref().map(|name| key("teacher.key_variable", name)).transpose()?;
    let [deadline, patience] = [*deadline, *patience].map(Duration::from_secs_f64);
    let notes = context.notes.clone();
    // A run that is over receives nothing.
    let tell = move |note| drop(notes.send(note));
    let mut scorers =
        Scorers::new(dialect, servers, key.as_ref(), deadline, patience.min(TRIAL), tell)?;

    let prompt = context.prompt.filter(|prompt| prompt.len() > 1).map(<[TokenId]>::to_vec);
    let failed = |error: PoolError| TrainError::Teacher(error.into());
    let scored = prompt.map(|prompt| scorers.score(vec![prompt], &|| false).map_err(failed));
    let scored = scored.transpose()?.flatten().and_then(|mut scored| scored.pop());
    if let Some(logprobs) = scored {
        let mean = logprobs.iter().sum::<f32>() / logprobs.len() as f32;
        let by_chance = -(context.policy.vocab_size as f32).ln();
        if mean < by_chance {
            let _ = context.notes.send(format!(
                "the teacher at {} finds a prompt of this run less likely ({mean:.1} nats per token) than tokens drawn at \
                 random ({by_chance:.1}): is it a model with the policy's tokenizer?",
                servers.join(", ")
            ));
        }
    }
    scorers.patience = patience;
    Ok(Box::new(ServedTeacher(scorers)))
}

/// A teacher on servers.
struct ServedTeacher(Scorers);

impl Teacher for ServedTeacher {
    fn logprobs(&self, updater: &Updater, samples: &[Sample]) -> Result<Vec<Vec<f32>>, TrainError> {
        let counts = |sample: &&Sample| sample.loss_tokens() > 0;
        let text = |sample: &Sample| [&sample.prompt[..], &sample.completion].concat();
        let texts: Vec<Vec<TokenId>> = samples.iter().filter(counts).map(text).collect();
        let scored = self.0.score(texts, &|| updater.interrupted.is_set());
        let scored = scored.map_err(|error| TrainError::Teacher(error.into()))?;

        // Of each text, the numbers of the completion count.
        let mut scored = scored.ok_or(TrainError::Interrupted)?.into_iter();
        let own = |sample: &Sample| match counts(&sample) {
            true => scored.next().map(|all| all[sample.prompt.len() - 1..].to_vec()),
            false => None,
        };
        Ok(samples.iter().map(own).map(Option::unwrap_or_default).collect())
    }
}

/// Finds the folders of a local teacher.
///
/// # Errors
/// When there is no model at `path`.
pub(super) fn folders(path: &Path, sources: &Sources, need: Need) -> Result<Folders, Error> {
    let folder = sources.model_folder("teacher.path", path, None, need);
    let folder = folder.map_err(|error| match error {
        Error::NoModel { folder } => Error::NoTeacher { folder },
        other => other,
    })?;
    if folder.join("checkpoints").is_dir() {
        return Err(Error::TeacherRun { folder });
    }
    Folders::find(&folder, sources, need)
}

/// Reads a model onto the device.
fn local(
    recipe: &Recipe,
    path: &Path,
    base: BaseType,
    context: &TeacherContext,
) -> Result<Box<dyn Teacher>, Error> {
    let TeacherContext { policy, tokenizer, device, compute, sources, notes, .. } = *context;
    let folders = folders(path, sources, Need::Model)?;
    let folder = folders.adapter.clone().unwrap_or_else(|| folders.weights.clone());

    let own = Tokenizer::from_folder(&folders.text)?;
    if let Some(token) = tokenizer.lacking_in(&own) {
        return Err(Error::TeacherTokens { folder, token });
    }
    let sizes = folders.sizes()?;
    if sizes.vocab_size < policy.vocab_size {
        let (teacher, policy) = (sizes.vocab_size, policy.vocab_size);
        return Err(Error::TeacherVocabulary { folder, teacher, policy });
    }
    let longest = recipe.longest_text().min(policy.max_position_embeddings);
    if sizes.max_position_embeddings < longest {
        let context = sizes.max_position_embeddings;
        return Err(Error::TeacherContext { folder, context, longest });
    }

    // A run that is over receives nothing.
    let note = |note| drop(notes.send(note));
    let decoder = folders.load(model::base_of(base, compute), device, note)?;
    let decoder = model::sized(decoder.with_compute(compute), recipe);
    Ok(Box::new(LocalTeacher(decoder)))
}
