//! Transfer of weights to one server, and the check that it has them.

use std::{path::PathBuf, time::Duration};

use firebrick_core::{TokenId, Version};
use firebrick_rollout::Sampling;

use crate::{
    ServerError, WeightsKind,
    dialect::{LoadRequest, SampleRequest, ServerApi},
};

/// Weights that servers are to sample with.
#[derive(Debug)]
pub(crate) struct Publication {
    pub(crate) version: Version,
    /// Name of the folder, which no other weights have.
    pub(crate) label: String,
    /// Path of the folder as servers see it.
    pub(crate) folder: PathBuf,
    /// Path of the folder as the trainer sees it.
    pub(crate) here: PathBuf,
    pub(crate) kind: WeightsKind,
    pub(crate) probes: Vec<Probe>,
    /// Largest mean distance that is allowed, in nats.
    pub(crate) tolerance: f64,
    pub(crate) vocabulary: usize,
    /// Whether samples are drawn at a temperature other than 1.
    pub(crate) tempered: bool,
    pub(crate) load_deadline: Duration,
    pub(crate) deadline: Duration,
}

impl Publication {
    /// Returns the name of the adapter, if the weights are one.
    pub(crate) fn adapter(&self) -> Option<&str> {
        (self.kind == WeightsKind::Adapter).then_some(self.label.as_str())
    }
}

/// Tokens, and the trainer's log-probabilities of the tokens after the first.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) now: Vec<f32>,
    /// Log-probabilities under the weights that were published before; equal to `now` if there were none.
    pub(crate) before: Vec<f32>,
}

/// Loads weights into a server and checks them, without taking its word for anything.
///
/// The server is paused while it loads, and continues whatever happens. It is not asked for samples before this has
/// succeeded. `rounding` is the smallest distance that the server has had before. Returns its current distance.
///
/// # Errors
/// When the server does not load the weights, or computes with others.
pub(crate) fn load(
    server: &dyn ServerApi,
    publication: &Publication,
    rounding: Option<f64>,
) -> Result<f64, ServerError> {
    let Publication { folder, label, kind, load_deadline, .. } = publication;
    let weights = LoadRequest { folder, label, kind: *kind };

    server.health()?;
    match kind {
        // The server keeps its other adapters and continues to use them. It refuses a name that it already has, and may
        // have this one from a failed attempt.
        WeightsKind::Adapter => {
            let _ = server.unload(label);
            server.load(&weights, *load_deadline)?;
        }
        WeightsKind::Model => {
            let paused = PausedServer::begin(server)?;
            server.load(&weights, *load_deadline)?;
            paused.end()?;
        }
    }

    let distance = compare(server, publication, rounding)?;
    compare_samples(server, publication)?;
    Ok(distance)
}

/// A server that accepts no work. Dropping this lets the server continue: a server that stays paused for ever looks
/// like a slow one.
struct PausedServer<'a>(Option<&'a dyn ServerApi>);

impl<'a> PausedServer<'a> {
    fn begin(server: &'a dyn ServerApi) -> Result<Self, ServerError> {
        // This must exist before the answer, because the server may be paused although the answer was lost.
        let paused = PausedServer(Some(server));
        server.pause()?;
        Ok(paused)
    }

    fn end(mut self) -> Result<(), ServerError> {
        self.0.map_or(Ok(()), ServerApi::resume)?;
        self.0 = None;
        Ok(())
    }
}

impl Drop for PausedServer<'_> {
    fn drop(&mut self) {
        let Some(server) = self.0 else { return };
        for _ in 0..3 {
            if server.resume().is_ok() {
                return;
            }
        }
    }
}

/// Compares the server's log-probabilities of the probes with the trainer's, and returns the mean distance.
fn compare(
    server: &dyn ServerApi,
    publication: &Publication,
    rounding: Option<f64>,
) -> Result<f64, ServerError> {
    let Publication { probes, tolerance, version, .. } = publication;
    let mut logprobs = Vec::new();

    for probe in probes {
        let deadline = publication.deadline;
        let there = server.score(publication.adapter(), &probe.tokens, deadline)?;
        let triples = there.into_iter().zip(&probe.now).zip(&probe.before);
        let exact = |number: f32| f64::from(number);
        logprobs.extend(
            triples.map(|((there, now), before)| (exact(there), exact(*now), exact(*before))),
        );
    }

    let mean = |of: fn(&(f64, f64, f64)) -> f64| {
        logprobs.iter().map(of).sum::<f64>() / logprobs.len().max(1) as f64
    };

    let now = mean(|(there, now, _)| (there - now).abs());
    let before = mean(|(there, _, before)| (there - before).abs());
    let step = mean(|(_, now, before)| (now - before).abs());

    if is_old(&logprobs) {
        return Err(ServerError::OldWeights { before, now, version: *version });
    }
    // The server strays if it was closer once, and is not close in comparison with the step that its weights should
    // have made. vLLM's build for CPUs takes a new embedding, but keeps the head that was packed from the old one.
    // After the first step of a policy of tied embeddings, that was a distance of 1e-3, where rounding is 6e-7.
    let strays = rounding.is_some_and(|rounding| now > 10.0 * rounding && now > step / 50.0);
    if now <= *tolerance && !strays {
        Ok(now)
    } else {
        let distance = now;
        Err(ServerError::OtherWeights { distance, tolerance: *tolerance, version: *version })
    }
}

/// Tells whether a server's numbers, `(there, now, before)`, are those of the previous weights, as far as rounding
/// allows.
///
/// The server's numbers are at `share` of the step from before (0) to now (1). Rounding moves `share` by the size of
/// the remainder, divided by the length of the step. If half the step is less than four times the remainder, the answer
/// is unknown.
fn is_old(logprobs: &[(f64, f64, f64)]) -> bool {
    let sum = |of: &dyn Fn(f64, f64, f64) -> f64| {
        logprobs.iter().map(|&(there, now, before)| of(there, now, before)).sum::<f64>()
    };
    let step = sum(&|_, now, before| (now - before).powi(2));
    if step == 0.0 {
        return false;
    }

    let share = sum(&|there, now, before| (there - before) * (now - before)) / step;
    let left = sum(&|there, now, before| (there - before - share * (now - before)).powi(2));
    let rounding = (left / logprobs.len() as f64).sqrt();
    share < 0.5 && step.sqrt() > 8.0 * rounding
}

/// Compares the log-probabilities of the server's samples with those that it returns for the same tokens. A server may
/// be set up to return log-probabilities from before the temperature.
fn compare_samples(server: &dyn ServerApi, publication: &Publication) -> Result<(), ServerError> {
    let Some(probe) = publication.probes.first() else { return Ok(()) };

    // At temperature 1, both kinds are the same.
    let temperature = if publication.tempered { 0.5 } else { 1.0 };
    let sampling = Sampling {
        temperature,
        top_k: 0,
        top_p: 1.0,
        max_completion_tokens: SAMPLED,
        stop: Vec::new(),
    };

    let ask = SampleRequest {
        name: &format!("{}-probe", publication.label),
        prompt: &probe.tokens[..1],
        count: 2,
        sampling: &sampling,
        seed: 1,
        label: &publication.label,
        adapter: publication.adapter(),
        vocabulary: publication.vocabulary,
        deadline: publication.deadline,
    };

    let mut distance = 0.0;
    let mut count = 0;
    for sampled in server.sample(&ask)? {
        let whole = [&probe.tokens[..1], &sampled.tokens].concat();
        let plain = server.score(publication.adapter(), &whole, publication.deadline)?;

        // A nearly certain token is nearly certain at any temperature.
        let tells = |plain: f32| !publication.tempered || plain < UNCERTAIN;

        for (reported, plain) in
            sampled.logprobs.iter().zip(plain).filter(|(_, plain)| tells(*plain))
        {
            distance += f64::from((reported - plain).abs());
            count += 1;
        }
    }
    if count < FEWEST {
        return Ok(());
    }

    distance /= f64::from(count);
    let tolerance = publication.tolerance;

    let hint = match publication.tempered {
        true if distance <= tolerance => {
            "they were computed before the temperature was applied; start vLLM with --logprobs-mode processed_logprobs, and SGLang \
             without SGLANG_RETURN_ORIGINAL_LOGPROB"
        }
        false if distance > tolerance => "it samples from different numbers than it scores with",
        _ => return Ok(()),
    };

    Err(ServerError::OtherLogprobs { distance, hint })
}

/// How many tokens of a sample are drawn for the check.
const SAMPLED: usize = 16;

/// Log-probability below which a token is much likelier, or less likely, at half the temperature.
const UNCERTAIN: f32 = -0.2;

/// Minimum number of tokens for a mean to be meaningful.
const FEWEST: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the numbers of a server whose weights lie at `share` of the step, rounded by up to `rounding`.
    fn at(share: f64, step: f64, rounding: f64) -> Vec<(f64, f64, f64)> {
        let logprobs = (0..96).map(|index| {
            let wave = |by: f64| (f64::from(index) * by).sin();
            let before = -3.0 + wave(0.7);
            let now = before + step * wave(1.3);
            (before + share * (now - before) + rounding * wave(2.9), now, before)
        });
        logprobs.collect()
    }

    #[test]
    fn old_weights_are_told_from_new_ones_where_rounding_allows_it() {
        // A step of 10⁻⁴ nats, far below any tolerance, with float32's rounding.
        assert!(is_old(&at(0.0, 1e-4, 3e-6)));
        assert!(!is_old(&at(1.0, 1e-4, 3e-6)));

        // In bfloat16, such a step can't be noticed; a step of 0.3 nats can.
        assert!(!is_old(&at(0.0, 1e-4, 1e-2)));
        assert!(is_old(&at(0.0, 0.3, 1e-2)));

        // Weights that are published twice are not old.
        assert!(!is_old(&at(0.0, 0.0, 3e-6)));
    }
}
