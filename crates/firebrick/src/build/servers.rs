//! Builds the pool of inference servers that a recipe names.

use std::{
    path::{PathBuf, absolute},
    sync::{Arc, mpsc::Sender},
    time::Duration,
};

use firebrick_core::{Seed, TokenId};
use firebrick_data::Tokenizer;
use firebrick_models::{Decoder, PolicyModel as _};
use firebrick_rollout::RolloutEngine;
use firebrick_servers::{Dialect, ServerPool, Settings};
use firebrick_train::learner::Updater;

use super::environment::key;
use crate::{
    Error, HuggingFace,
    publish::PublishedWeights,
    recipe::{Engine, EngineKind, Recipe},
};

/// Number of tokens of a probe, and the number of probes.
const PROBE: (u64, u64) = (48, 2);

/// Limit of the tokens that are drawn for a probe. Tokens that are not words are dropped, so a vocabulary without words
/// has no probes.
const DRAWS: u64 = 1000;

/// Parts of a run that the pool of servers is built with.
pub(super) struct ServerInputs<'a> {
    pub(super) policy: &'a Decoder,
    pub(super) files: HuggingFace,
    pub(super) tokenizer: &'a Arc<Tokenizer>,
    pub(super) updater: Updater,
    /// The run's folder for weights.
    pub(super) folder: PathBuf,
    /// Name of the run.
    pub(super) run: String,
    pub(super) notes_tx: Sender<String>,
}

/// Builds the engine that asks the recipe's servers. `None` if this process samples.
///
/// # Errors
/// When an address is not valid, or the key is not in the environment.
pub(super) fn engine(
    recipe: &Recipe,
    server_inputs: ServerInputs<'_>,
) -> Result<Option<Box<dyn RolloutEngine<Decoder>>>, Error> {
    let Engine {
        servers,
        weights,
        weights_there,
        key_variable,
        deadline,
        patience,
        tolerance,
        kind,
    } = recipe.rollout.engine.clone();

    let dialect = match kind {
        EngineKind::Local => return Ok(None),
        EngineKind::Vllm => Dialect::Vllm,
        EngineKind::Sglang => Dialect::Sglang,
    };
    let key = match key_variable {
        None => None,
        Some(name) => Some(key("rollout.engine.key_variable", &name)?),
    };
    let ServerInputs { policy, files, tokenizer, updater, folder, run, notes_tx } = server_inputs;

    let rollout = &recipe.rollout;
    let seconds = Duration::from_secs_f64;
    let settings = Settings {
        dialect,
        servers,
        key,
        at_once: rollout.max_sequences,
        deadline: seconds(deadline),
        load_deadline: seconds(deadline),
        patience: seconds(patience),
        silence: Duration::from_secs(5),
        pause: Duration::from_secs(1),
        tolerance,
        probes: probes(tokenizer),
        tempered: rollout.temperature != 1.0,
        vocabulary: policy.head().dims()[0],
    };

    // A server starts relative paths elsewhere, so the path is made absolute. Several runs may share one
    // folder, so each has its own folder in it.
    let of_run = |weights: PathBuf| weights.join(&run);
    let folder = weights.and_then(|weights| absolute(weights).ok()).map_or(folder, of_run);
    let weights_there = weights_there.map(of_run);
    let weights = PublishedWeights::new(folder, weights_there, files, tokenizer.clone(), updater);

    let tell = move |line: String| drop(notes_tx.send(line));
    Ok(Some(Box::new(ServerPool::new(settings, weights, tokenizer.clone(), tell)?)))
}

/// Draws tokens at random for the probes. None of them is special, because a server may interpret special tokens.
pub(super) fn probes(tokenizer: &Tokenizer) -> Vec<Vec<TokenId>> {
    let rows = tokenizer.rows() as f64;
    let probe = |index| {
        let mut numbers = Seed::run(index).derive("probe", &[]).stream();
        let tokens = (0..DRAWS).map(|at| (numbers.uniform_at(at) * rows) as TokenId);
        let words = tokens.filter(|token| !tokenizer.decode(&[*token], true).is_empty());
        words.take(PROBE.0 as usize).collect::<Vec<TokenId>>()
    };
    (0..PROBE.1).map(probe).filter(|probe| probe.len() > 1).collect()
}
