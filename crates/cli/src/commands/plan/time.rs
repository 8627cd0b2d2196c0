//! The time of a step, beside its memory.

use std::{fmt::Write as _, time::Duration};

use firebrick::{
    bench::Limits,
    plan::{Card, Facts, Lengths, Speed, StepTime},
    recipe::{Dynamic, Recipe},
    thousands,
};
use firebrick_device::{Kind, Precision, guard, open};
use serde_json::{Value, json};

use crate::closing::duration;

/// Times of a step on the devices that a plan is about.
pub(super) struct Times {
    lengths: Lengths,
    /// Name of each device, with its time.
    on: Vec<(String, StepTime)>,
}

impl Times {
    /// Measures this machine's CPU for a fraction of a second, if that is the device. For a GPU takes the data sheet of
    /// `card`, or those of up to two cards with `memory` bytes: in float32 their peaks are others, so there is no time.
    pub(super) fn new(
        facts: &Facts,
        recipe: &Recipe,
        card: Option<Card>,
        memory: Option<u64>,
        lengths: Lengths,
    ) -> Self {
        let speeds: Vec<(String, Speed)> = match (card, recipe.device.kind) {
            (None, Kind::Cpu) => this_cpu(recipe).into_iter().collect(),
            (card, _) => {
                let near = memory.into_iter().flat_map(Card::with_memory);
                let cards: Vec<Card> = card.map_or_else(|| near.collect(), |card| vec![card]);
                let cards = cards.into_iter().filter(|_| facts.half);
                cards.map(|card| (card.name.to_owned(), Speed::of_card(&card))).collect()
            }
        };

        let time = |(name, speed)| Some((name, StepTime::new(facts, recipe, speed, lengths)?));
        Times { lengths, on: speeds.into_iter().filter_map(time).collect() }
    }

    /// Writes the times in words, a device a line; nothing if there are none.
    pub(super) fn in_words(&self, recipe: &Recipe) -> String {
        if self.on.is_empty() {
            return String::new();
        }

        let Lengths { mean_tokens, sampled } = self.lengths;
        let filtered = match recipe.sampling.dynamic {
            Dynamic::Off => String::new(),
            _ => format!(", and {sampled} groups sampled for each that is kept"),
        };
        let mut text = format!(
            "\ntime, calculated with completions of {} tokens{filtered} (--mean-tokens, --sampled):\n",
            thousands(mean_tokens.round() as u64)
        );

        for (name, StepTime { rollout, update, step, run }) in &self.on {
            let _ = writeln!(
                text,
                "  {name}: about {} a step, {} of rollout and {} of update; {} for {} steps, without evaluations",
                duration(*step),
                duration(*rollout),
                duration(*update),
                duration(*run),
                recipe.train.steps,
            );
        }
        text
    }

    pub(super) fn as_json(&self) -> Value {
        let on = self.on.iter().map(|(name, time)| json!({"on": name, "seconds": time}));
        json!({"lengths": self.lengths, "steps": on.collect::<Vec<_>>()})
    }
}

/// Measures the CPU; `None` if it can't be opened.
fn this_cpu(recipe: &Recipe) -> Option<(String, Speed)> {
    let limits = guard(|| {
        let device = open(recipe.device.name(), Precision::F32).ok()?;
        Some(Limits::measure_within(&device, Duration::from_millis(100)))
    });
    let limits = limits.ok().flatten()?;
    let name = format!("this CPU, {:.0} GFLOP/s in a product", limits.flops / 1e9);
    Some((name, Speed::of_cpu(&limits)))
}
