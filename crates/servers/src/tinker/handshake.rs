//! What a server does with gradients and with Adam's settings, found out by steps of adapters that nobody needs.
//!
//! Adam does not care how large a gradient is, so a step does not tell whether a server adds up or takes means. But it
//! goes uphill or downhill, and two gradients can be given such weights that a sum goes one way and a mean the other.

use std::sync::{Arc, atomic::Ordering};

use firebrick_core::TokenId;

use super::{
    error::TinkerError,
    model::{Adam, TinkerModel},
    session::TinkerSession,
    traits::{Over, Reduction, ServerTraits},
    wire::{Datum, Text},
};

/// The learning rates of a probe's steps, of which the first that moves a log-probability by [`MOVED`] is used.
const RATES: [f64; 4] = [1e-4, 1e-3, 1e-2, 1e-1];

/// A change of a log-probability, in nats, that is a step and not rounding.
const MOVED: f64 = 0.03;

/// Factor of all coefficients, so that no server clips their gradient.
const SMALL: f64 = 0.01;

impl ServerTraits {
    /// Measures a server, by adapters of this rank. `tokens` is a text of any kind, of at least 8 tokens. It takes some
    /// ten steps on that text.
    ///
    /// # Errors
    /// If the server fails, or its gradients are not those of the coefficients that it was sent.
    pub fn measure(
        session: &Arc<TinkerSession>,
        rank: usize,
        tokens: &[TokenId],
    ) -> Result<ServerTraits, TinkerError> {
        let half = tokens.len() / 2;
        let mut probe = Probe {
            session,
            rank,
            // As many targets in the second as in the first, twice.
            short: Text { prompt: &tokens[..half - 1], completion: &tokens[half - 1..half] },
            long: Text { prompt: &tokens[..half - 1], completion: &tokens[half - 1..2 * half - 1] },
            rate: RATES[0],
        };
        let numbered = probe.with_model(|probe, model| model.knows_numbers(&probe.short))?;
        session.client.is_numbered.store(numbered, Ordering::Relaxed);

        let usual = probe.find_rate()?;
        let per_text = probe.is_uphill(&[&[(Length::Short, 1.0), (Length::Long, -1.5)]])?;
        let over = if !probe.is_mean()? {
            Over::One
        } else if probe.is_uphill(&[&[(Length::Short, 1.0)], &[(Length::Short, -0.6); 3]])? {
            // The same for two requests of one text each tells texts from their targets.
            let by_targets = !per_text
                && probe.is_uphill(&[&[(Length::Short, 1.0)], &[(Length::Long, -1.5)]])?;
            if by_targets { Over::RequestTargets } else { Over::Request }
        } else if !per_text && probe.is_second_lighter()? {
            Over::StepTargets
        } else {
            Over::Step
        };

        // A step that is divided by a million, or along a gradient of a trillionth, is none.
        let clips = probe.moves(|adam| adam.grad_clip_norm = Some(1e-12))? < usual / 10.0;
        let takes_adam = probe.moves(|adam| adam.eps = 1e6)? < usual / 10.0;
        let reduction = Reduction { per_text, over };
        Ok(ServerTraits { reduction, takes_adam, clips, numbered })
    }
}

#[derive(Clone, Copy)]
enum Length {
    Short,
    Long,
}

/// Two texts that begin alike, so that their first token after the prompt has the same gradient.
struct Probe<'a> {
    session: &'a Arc<TinkerSession>,
    rank: usize,
    short: Text<'a>,
    long: Text<'a>,
    rate: f64,
}

impl Probe<'_> {
    /// Does something with a new adapter.
    fn with_model<T>(
        &self,
        work: impl FnOnce(&Self, &TinkerModel) -> Result<T, TinkerError>,
    ) -> Result<T, TinkerError> {
        let model = TinkerModel::create(self.session, self.rank, 1)?;
        let result = work(self, &model);
        model.unload();
        result
    }

    fn adam(&self) -> Adam {
        Adam {
            learning_rate: self.rate,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-12,
            weight_decay: 0.0,
            grad_clip_norm: None,
        }
    }

    /// Settings of a step that Adam remembers, and that moves nothing. The adapter's output stays 0 then, so that its inner
    /// matrices have no gradient yet in the next step, whose sign would be another.
    fn standing(&self) -> Adam {
        Adam { learning_rate: 0.0, ..self.adam() }
    }

    fn logprob(&self, model: &TinkerModel) -> Result<f64, TinkerError> {
        Ok(f64::from(model.logprobs(&[self.short])?[0][0]))
    }

    /// Adds the gradients of requests, each of texts with the coefficient of their common token, and takes a step.
    /// Returns the change of that token's log-probability.
    fn step(
        &self,
        model: &TinkerModel,
        requests: &[&[(Length, f32)]],
        adam: &Adam,
    ) -> Result<f64, TinkerError> {
        let before = self.logprob(model)?;
        for request in requests {
            let datum = |(length, coefficient): &(Length, f32)| {
                let text = match length {
                    Length::Short => &self.short,
                    Length::Long => &self.long,
                };
                Datum::backward(text, &[before as f32], &[*coefficient], SMALL)
            };
            model.finish_backward(request.iter().map(datum).collect())?;
        }
        model.step(adam)?;
        Ok(self.logprob(model)? - before)
    }

    /// Finds a learning rate at which a step shows, and returns how far it goes.
    fn find_rate(&mut self) -> Result<f64, TinkerError> {
        let mut moved = 0.0;
        for rate in RATES {
            self.rate = rate;
            let uphill: &[&[(Length, f32)]] = &[&[(Length::Short, 1.0)]];
            moved = self.with_model(|probe, model| probe.step(model, uphill, &probe.adam()))?;
            if moved.abs() >= MOVED {
                break;
            }
        }
        if moved >= MOVED {
            return Ok(moved);
        }

        let rate = self.rate;
        Err(self.unfit(format!(
            "a step at the rate {rate} towards a token changed its log-probability by {moved:.1e}, expected a rise of at least \
             {MOVED}"
        )))
    }

    /// Returns true if a step along these gradients makes the token more likely.
    fn is_uphill(&self, requests: &[&[(Length, f32)]]) -> Result<bool, TinkerError> {
        let moved = self.with_model(|probe, model| probe.step(model, requests, &probe.adam()))?;
        self.clear(moved)
    }

    /// Returns true if the gradient is divided by the number of texts. One step is uphill by one text, and moves nothing. The next one
    /// goes downhill by four, whose sum outweighs what Adam remembers of the first, and whose mean does not.
    fn is_mean(&self) -> Result<bool, TinkerError> {
        let moved = self.with_model(|probe, model| {
            probe.step(model, &[&[(Length::Short, 1.0)]], &probe.standing())?;
            probe.step(model, &[&[(Length::Short, -0.45); 4]], &probe.adam())
        })?;
        self.clear(moved)
    }

    /// Returns true if a longer text weighs less in the second of two steps, the first of which is uphill by the
    /// shorter one and moves nothing, as it does if gradients are divided by the number of targets.
    fn is_second_lighter(&self) -> Result<bool, TinkerError> {
        let moved = self.with_model(|probe, model| {
            probe.step(model, &[&[(Length::Short, 1.0)]], &probe.standing())?;
            probe.step(model, &[&[(Length::Long, -1.35)]], &probe.adam())
        })?;
        self.clear(moved)
    }

    /// Returns how far a step uphill goes with other settings.
    fn moves(&self, change: impl Fn(&mut Adam)) -> Result<f64, TinkerError> {
        self.with_model(|probe, model| {
            let mut adam = probe.adam();
            change(&mut adam);
            probe.step(model, &[&[(Length::Short, 1.0)]], &adam).map(f64::abs)
        })
    }

    /// Tells a step uphill from one downhill.
    fn clear(&self, moved: f64) -> Result<bool, TinkerError> {
        if moved.abs() >= MOVED / 10.0 {
            return Ok(moved > 0.0);
        }
        Err(self.unfit(format!(
            "it is not clear how it adds up gradients: a step changed a log-probability by {moved:.1e}"
        )))
    }

    fn unfit(&self, problem: String) -> TinkerError {
        TinkerError::Unfit { base: self.session.url().to_owned(), problem }
    }
}
