//! Weights on their way to one server, and the proof that it has them.

use std::{path::PathBuf, time::Duration};

use firebrick_core::{TokenId, Version};
use firebrick_rollout::Sampling;

use crate::{
    Form, ServerError,
    dialect::{Ask, Loadable, Speaks},
};

/// Weights that servers are to sample with.
#[derive(Debug)]
pub(crate) struct Publication {
    pub(crate) version: Version,
    /// The folder's name, which no other weights have.
    pub(crate) label: String,
    /// The folder as servers see it.
    pub(crate) folder: PathBuf,
    /// The folder as the trainer sees it.
    pub(crate) here: PathBuf,
    pub(crate) form: Form,
    pub(crate) probes: Vec<Probe>,
    /// The largest mean distance that is allowed, in nats.
    pub(crate) tolerance: f64,
    pub(crate) vocabulary: usize,
    /// True if samples are drawn at a temperature other than 1.
    pub(crate) tempered: bool,
    pub(crate) load_deadline: Duration,
    pub(crate) deadline: Duration,
}

impl Publication {
    /// Gives the name of the adapter, if the weights are one.
    pub(crate) fn adapter(&self) -> Option<&str> {
        (self.form == Form::Adapter).then_some(self.label.as_str())
    }
}

/// Tokens, and the trainer's log-probabilities of the tokens behind the first.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) now: Vec<f32>,
    /// The log-probabilities under the weights that were published before; equal to `now` if there were none.
    pub(crate) before: Vec<f32>,
}

/// Gives weights to a server, and takes its word for nothing.
///
/// The server is paused while it loads, and continues whatever happens. Nobody asks it for samples before this
/// has ended well. `rounding` is the smallest distance that the server has shown before. Gives the distance
/// that it shows now.
///
/// # Errors
/// When the server does not load the weights, or computes with others.
pub(crate) fn give(
    server: &dyn Speaks,
    publication: &Publication,
    rounding: Option<f64>,
) -> Result<f64, ServerError> {
    let Publication { folder, label, form, load_deadline, .. } = publication;
    let weights = Loadable { folder, label, form: *form };
    server.health()?;
    match form {
        // The server keeps its other adapters, and its work continues with them. It refuses a name that it
        // already has, and may have this name from an attempt that ended badly.
        Form::Adapter => {
            let _ = server.unload(label);
            server.load(&weights, *load_deadline)?;
        }
        Form::Model => {
            let paused = Paused::begin(server)?;
            server.load(&weights, *load_deadline)?;
            paused.end()?;
        }
    }
    let distance = compare(server, publication, rounding)?;
    compare_samples(server, publication)?;
    Ok(distance)
}

/// A server that takes nothing on. Dropping this lets the server continue: a server that stays paused for ever
/// looks like a slow one.
struct Paused<'a>(Option<&'a dyn Speaks>);

impl<'a> Paused<'a> {
    fn begin(server: &'a dyn Speaks) -> Result<Self, ServerError> {
        // This comes before the answer: the server may be paused although the answer got lost.
        let paused = Paused(Some(server));
        server.pause()?;
        Ok(paused)
    }

    fn end(mut self) -> Result<(), ServerError> {
        self.0.map_or(Ok(()), Speaks::resume)?;
        self.0 = None;
        Ok(())
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        let Some(server) = self.0 else { return };
        for _ in 0..3 {
            if server.resume().is_ok() {
                return;
            }
        }
    }
}

/// Compares the server's log-probabilities of the probes with the trainer's, and gives the mean distance.
fn compare(
    server: &dyn Speaks,
    publication: &Publication,
    rounding: Option<f64>,
) -> Result<f64, ServerError> {
    let Publication { probes, tolerance, version, .. } = publication;
    let mut numbers = Vec::new();
    for probe in probes {
        let deadline = publication.deadline;
        let there = server.score(publication.adapter(), &probe.tokens, deadline)?;
        let triples = there.into_iter().zip(&probe.now).zip(&probe.before);
        let exact = |number: f32| f64::from(number);
        numbers.extend(
            triples.map(|((there, now), before)| (exact(there), exact(*now), exact(*before))),
        );
    }
    let mean = |of: fn(&(f64, f64, f64)) -> f64| {
        numbers.iter().map(of).sum::<f64>() / numbers.len().max(1) as f64
    };
    let now = mean(|(there, now, _)| (there - now).abs());
    let before = mean(|(there, _, before)| (there - before).abs());
    let way = mean(|(_, now, before)| (now - before).abs());
    if is_old(&numbers) {
        return Err(ServerError::OldWeights { before, now, version: *version });
    }
    // The server strays if it was nearer once, and is not near in comparison with the step that it should
    // have made. vLLM's build for CPUs takes a new embedding, and keeps the head that was packed from the old
    // one. After the first step of a policy of tied embeddings that was a distance of 1e-3, where rounding is
    // 6e-7.
    let strays = rounding.is_some_and(|rounding| now > 10.0 * rounding && now > way / 50.0);
    match now <= *tolerance && !strays {
        true => Ok(now),
        false => {
            let (distance, tolerance, version) = (now, *tolerance, *version);
            Err(ServerError::OtherWeights { distance, tolerance, version })
        }
    }
}

/// Tells whether a server's numbers, `(there, now, before)`, come from the weights before, as far as rounding
/// lets one tell.
///
/// The server's numbers lie at `share` on the way from before (0) to now (1). Rounding moves `share` by the
/// size of the remainder, divided by the length of the way. If half the way is less than four times the
/// remainder, nobody can tell.
fn is_old(numbers: &[(f64, f64, f64)]) -> bool {
    let sum = |of: &dyn Fn(f64, f64, f64) -> f64| {
        numbers.iter().map(|&(there, now, before)| of(there, now, before)).sum::<f64>()
    };
    let way = sum(&|_, now, before| (now - before).powi(2));
    if way == 0.0 {
        return false;
    }
    let share = sum(&|there, now, before| (there - before) * (now - before)) / way;
    let left = sum(&|there, now, before| (there - before - share * (now - before)).powi(2));
    let rounding = (left / numbers.len() as f64).sqrt();
    share < 0.5 && way.sqrt() > 8.0 * rounding
}

/// Compares the log-probabilities that come with the server's samples with those that it gives for the same
/// tokens. A server may be set up to give log-probabilities from before the temperature.
fn compare_samples(server: &dyn Speaks, publication: &Publication) -> Result<(), ServerError> {
    let Some(probe) = publication.probes.first() else { return Ok(()) };
    // At temperature 1 both kinds are the same.
    let temperature = if publication.tempered { 0.5 } else { 1.0 };
    let sampling = Sampling {
        temperature,
        top_k: 0,
        top_p: 1.0,
        max_completion_tokens: SAMPLED,
        stop: Vec::new(),
    };
    let ask = Ask {
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
    let (mut distance, mut count) = (0.0, 0);
    for sampled in server.sample(&ask)? {
        let whole = [&probe.tokens[..1], &sampled.tokens].concat();
        let plain = server.score(publication.adapter(), &whole, publication.deadline)?;
        // A nearly certain token is nearly certain at any temperature.
        let tells = |plain: f32| !publication.tempered || plain < UNCERTAIN;
        for (said, plain) in sampled.logprobs.iter().zip(plain).filter(|(_, plain)| tells(*plain)) {
            distance += f64::from((said - plain).abs());
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
            "they are from before the temperature; start vLLM with --logprobs-mode processed_logprobs, and SGLang \
             without SGLANG_RETURN_ORIGINAL_LOGPROB"
        }
        false if distance > tolerance => "it samples from other numbers than it scores with",
        _ => return Ok(()),
    };
    Err(ServerError::OtherLogprobs { distance, hint })
}

/// The number of tokens of a sample that is drawn for the check.
const SAMPLED: usize = 16;

/// The log-probability below which a token is much likelier, or less likely, at half the temperature.
const UNCERTAIN: f32 = -0.2;

/// The number of tokens from which on a mean says something.
const FEWEST: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives numbers of a server whose weights lie at `share` of the way, rounded by up to `rounding`.
    fn at(share: f64, step: f64, rounding: f64) -> Vec<(f64, f64, f64)> {
        let numbers = (0..96).map(|index| {
            let wave = |by: f64| (f64::from(index) * by).sin();
            let before = -3.0 + wave(0.7);
            let now = before + step * wave(1.3);
            (before + share * (now - before) + rounding * wave(2.9), now, before)
        });
        numbers.collect()
    }

    #[test]
    fn old_weights_are_told_from_new_ones_where_rounding_allows_it() {
        // A step of 10⁻⁴ nats, far below any tolerance, with float32's rounding.
        assert!(is_old(&at(0.0, 1e-4, 3e-6)));
        assert!(!is_old(&at(1.0, 1e-4, 3e-6)));
        // In bfloat16 such a step can't be told; a step of 0.3 nats can.
        assert!(!is_old(&at(0.0, 1e-4, 1e-2)));
        assert!(is_old(&at(0.0, 0.3, 1e-2)));
        // Weights that are published twice are no old ones.
        assert!(!is_old(&at(0.0, 0.0, 3e-6)));
    }
}
