//! A stub's policy that is a real model.

use std::{path::Path, sync::Arc};

use burn::tensor::Device;
use firebrick_core::{Completion, Detokenizer, FinishReason, Prompt, Seed, TokenId};
use firebrick_models::{Decoder, load, load_adapter};
use firebrick_rollout::{GroupRequest, LocalEngine, SampleOn, Sampling, generate};
use firebrick_train::{
    Sample,
    algorithm::Objective,
    learner::{CrossEntropy, Updater},
};

use crate::{StubModel, Wanted, Written};

/// Serves the decoder in a folder: an inference server made of the local engine.
pub struct Served {
    /// Model under an adapter.
    base: Option<Decoder>,
    now: Option<Decoder>,
}

impl Served {
    /// Makes a server that has no weights until it is given a whole model.
    pub fn new() -> Self {
        Served { base: None, now: None }
    }

    /// Makes a server that has this policy.
    pub(crate) fn now_of(policy: Decoder) -> Self {
        Served { base: None, now: Some(policy) }
    }

    /// Makes a server that begins with the model in `folder`, as a server for adapters does.
    ///
    /// # Panics
    /// If there is no model.
    pub fn of(folder: &Path) -> Self {
        let base = load(folder, &Device::flex()).expect("a model to begin with");
        Served { now: Some(base.clone()), base: Some(base) }
    }

    fn now(&self) -> &Decoder {
        self.now.as_ref().expect("whoever is asked was given weights")
    }
}

impl Default for Served {
    fn default() -> Self {
        Served::new()
    }
}

impl StubModel for Served {
    fn load(&mut self, folder: &Path) -> Result<(), String> {
        let adapter = folder.join("adapter_config.json").is_file();
        let loaded = match (&self.base, adapter) {
            (Some(base), true) => load_adapter(base.clone(), folder),
            _ => load(folder, &Device::flex()),
        };
        self.now = Some(loaded.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn write(&mut self, prompt: &[TokenId], wanted: &Wanted) -> Vec<Written> {
        let sampling = Sampling {
            temperature: wanted.temperature,
            top_k: 0,
            top_p: 1.0,
            max_completion_tokens: wanted.most,
            stop: wanted.stop.clone(),
        };
        let sampling = Arc::new(sampling);

        // Each completion is a request of its own, because it has a seed of its own.
        let request = |(id, seed): (u64, &u64)| GroupRequest {
            id,
            prompt: Prompt { tokens: prompt.to_vec(), ..Prompt::default() },
            draw: 0,
            step: 0,
            group_size: 1,
            sampling: sampling.clone(),
            seed: Seed::run(*seed),
        };
        let requests = (0..).zip(&wanted.seeds).map(request).collect();

        let policy = self.now();
        let limit = policy.config().max_position_embeddings;
        let mut engine =
            LocalEngine::new(policy, Arc::new(Wordless), wanted.seeds.len(), limit, SampleOn::Host);
        let groups = generate::<Decoder>(&mut engine, requests, &mut |_| {});
        let groups = groups.expect("the local engine samples");

        let written = |Completion { tokens, logprobs, finish, .. }: Completion| Written {
            tokens,
            logprobs,
            stopped: finish == FinishReason::Stop,
        };
        groups.into_iter().flat_map(|group| group.completions).map(written).collect()
    }

    fn score(&mut self, tokens: &[TokenId]) -> Vec<f32> {
        let updater = Updater::new(Objective::new(Box::new(CrossEntropy)));

        let (first, others) = tokens.split_at(1);
        let unknown = vec![0.0; others.len()];
        let completion = Completion::written(others.to_vec(), unknown, FinishReason::Length);
        let samples = [Sample::new(first, &completion, 0)];

        let logprobs = updater.logprobs(self.now(), &samples).expect("the device computes");
        logprobs.into_iter().flatten().collect()
    }
}

/// A detokenizer that writes nothing: nobody reads a stub's texts.
pub struct Wordless;

impl Detokenizer for Wordless {
    fn detokenize(&self, _: &[TokenId]) -> String {
        String::new()
    }
}
