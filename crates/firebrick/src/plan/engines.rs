//! Works out how many inference servers keep a trainer busy, from sizes alone.
//!
//! Training is bound by the matmuls that a card computes, and sampling by the bytes that it reads: the weights once for
//! all sequences of a step, and the keys and values of each sequence. A step of sampling takes at least as long as its
//! longest completion, however many servers there are. The shares of a card's peaks that are reached are guesses
//! ([`REACHED`]). So the plan gives orders of magnitude and ratios.

use serde::Serialize;

use super::Facts;
use crate::recipe::{OldLogprobs, Recipe, Recompute};

/// A card, by its maker's data sheet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Card {
    /// Name of the card, as `--card` takes it.
    pub name: &'static str,
    /// Operations per second, multiplying in bf16 with sums in f32, without sparsity.
    pub flops: f64,
    /// Bytes that the card reads per second.
    pub bandwidth: f64,
    /// Bytes of memory.
    pub memory: f64,
}

impl Card {
    /// All known cards.
    pub const ALL: [Card; 14] = [
        Card { name: "h100", flops: 989e12, bandwidth: 3.35e12, memory: 80e9 },
        Card { name: "h200", flops: 989e12, bandwidth: 4.8e12, memory: 141e9 },
        Card { name: "h20", flops: 148e12, bandwidth: 4.0e12, memory: 96e9 },
        Card { name: "b200", flops: 2250e12, bandwidth: 8.0e12, memory: 180e9 },
        Card { name: "a100", flops: 312e12, bandwidth: 2.039e12, memory: 80e9 },
        Card { name: "mi300x", flops: 1307e12, bandwidth: 5.3e12, memory: 192e9 },
        Card { name: "l40s", flops: 362e12, bandwidth: 0.864e12, memory: 48e9 },
        Card { name: "rtx4060", flops: 30.2e12, bandwidth: 0.272e12, memory: 8e9 },
        Card { name: "rtx4070", flops: 58.3e12, bandwidth: 0.504e12, memory: 12e9 },
        Card { name: "rtx4080", flops: 97.5e12, bandwidth: 0.717e12, memory: 16e9 },
        Card { name: "rtx4090", flops: 165e12, bandwidth: 1.008e12, memory: 24e9 },
        Card { name: "rtx5090", flops: 209e12, bandwidth: 1.792e12, memory: 32e9 },
        Card { name: "rx7900xt", flops: 103e12, bandwidth: 0.8e12, memory: 20e9 },
        Card { name: "rx7900xtx", flops: 122.8e12, bandwidth: 0.96e12, memory: 24e9 },
    ];

    /// Returns the first two cards whose memory is this much, in GB or in GiB.
    pub fn with_memory(bytes: u64) -> impl Iterator<Item = Card> {
        let near = move |card: &Card| (0.9..1.02).contains(&(card.memory / bytes as f64));
        Card::ALL.into_iter().filter(near).take(2)
    }

    /// Finds the card of that name.
    pub fn named(name: &str) -> Option<Card> {
        Card::ALL.into_iter().find(|card| card.name == name)
    }
}

/// Shares of a card's peaks that software reaches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Reached {
    /// Share of its operations, in an update.
    pub update: f64,
    /// Share of its operations, for an engine that decodes many sequences.
    pub decode: f64,
    /// Share of its bandwidth, for such an engine.
    pub bandwidth: f64,
    /// Share of its memory that is used for weights and for the keys and values of sequences.
    pub memory: f64,
}

/// Shares that well-made software reaches: prime-rl and verl report 40 % of the operations for long
/// updates, and 60 % of the bandwidth is usual for vLLM.
pub const REACHED: Reached = Reached { update: 0.4, decode: 0.5, bandwidth: 0.6, memory: 0.9 };

/// Bytes per second at which the weights are written, and at which all machines together read them.
const DISK: (f64, f64) = (2e9, 10e9);

/// Cards of a machine with servers.
const CARDS_OF_A_MACHINE: f64 = 8.0;

/// Facts that are not in a recipe.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Load {
    /// Mean number of tokens of a completion.
    pub mean_tokens: f64,
    /// Number of groups that are sampled for each group that is trained on.
    pub sampled: f64,
    /// Card that trains.
    pub trainer: Card,
    /// Number of cards that train.
    pub trainers: f64,
    /// Card that samples.
    pub server: Card,
}

/// What a step costs trainer and servers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Engines {
    /// Facts that the cost was worked out from.
    pub load: Load,
    /// Tokens of completions that a step trains on.
    pub trained: f64,
    /// Tokens of completions that a step samples.
    pub sampled: f64,
    /// Seconds that the updates of a step take.
    pub update_seconds: f64,
    /// Seconds in which log-probabilities are computed again before the updates; 0 if they are not.
    pub old_logprobs_seconds: f64,
    /// Number of cards that a server needs for the weights.
    pub cards: f64,
    /// Number of sequences that a server decodes concurrently.
    pub sequences: f64,
    /// Tokens that a server samples per second.
    pub tokens_per_second: f64,
    /// Seconds that the longest completion takes if it is decoded alone.
    pub longest_seconds: f64,
    /// Bytes of the weights that are published.
    pub published: f64,
}

impl Engines {
    /// Works out the plan of a recipe whose facts are known.
    pub fn new(facts: &Facts, recipe: &Recipe, load: Load) -> Engines {
        let work = &facts.work;
        let number = |number: u128| number as f64;
        let mean = load.mean_tokens;
        let prompt = number(work.prompt).min(mean);
        let active = number(facts.active);
        let weights = 2.0 * number(facts.parameters);
        let remembered = cache_bytes(facts, 2.0);

        let trained = number(work.completions) * mean;
        let rate = load.trainer.flops * REACHED.update * load.trainers;
        let seconds = |passes: f64| trained * forward(facts, prompt + mean) * passes / rate;
        let recompute = if recipe.train.recompute == Recompute::None { 0.0 } else { 1.0 };

        let card = load.server;
        // The weights may take four fifths of that memory: keys and values need the rest.
        let cards = power_of_two(weights / (0.8 * REACHED.memory * card.memory));
        let room = REACHED.memory * card.memory * cards - weights;
        let most = (room / (remembered * (prompt + mean)).max(1.0)).floor();
        let sequences = most.clamp(1.0, recipe.rollout.max_sequences as f64);

        let read = (weights + sequences * remembered * (prompt + mean / 2.0))
            / (REACHED.bandwidth * card.bandwidth * cards);
        let multiplied = 2.0 * active * sequences / (REACHED.decode * card.flops * cards);
        // A completion that is decoded alone reads all weights for every token.
        let seconds_per_token = weights / (REACHED.bandwidth * card.bandwidth * cards);
        let adapter = 4.0 * number(facts.trainable);

        Engines {
            load,
            trained,
            sampled: trained * load.sampled,
            update_seconds: seconds(1.0 + backward(facts) + recompute),
            old_logprobs_seconds: seconds(logprobs(recipe)),
            cards,
            sequences,
            tokens_per_second: sequences / read.max(multiplied),
            longest_seconds: number(work.completion) * seconds_per_token,
            published: if facts.trainable < facts.parameters { adapter } else { weights },
        }
    }

    /// Returns the seconds in which the trainer computes.
    pub fn train_seconds(&self) -> f64 {
        self.update_seconds + self.old_logprobs_seconds
    }

    /// Returns the seconds in which this many servers sample a step.
    pub fn sample_seconds(&self, servers: f64) -> f64 {
        (self.sampled / (self.tokens_per_second * servers)).max(self.longest_seconds)
    }

    /// Returns the seconds until this many servers have the weights.
    pub fn publish_seconds(&self, servers: f64) -> f64 {
        let machines = (servers * self.cards / CARDS_OF_A_MACHINE).ceil();
        self.published / DISK.0 + self.published * machines / DISK.1
    }

    /// Returns the seconds of a step with this many servers: first if the step is sampled before it is trained on, then
    /// if it is sampled during training.
    pub fn step_seconds(&self, servers: f64) -> [f64; 2] {
        let sample = self.sample_seconds(servers) + self.publish_seconds(servers);
        let train = self.train_seconds();
        [sample + train, sample.max(train)]
    }

    /// Returns the number of servers that sample a step in the time that the trainer needs for one. More
    /// servers would wait. The longest completion may still take longer.
    pub fn balanced(&self) -> f64 {
        (self.sampled / (self.tokens_per_second * self.train_seconds())).ceil().max(1.0)
    }
}

/// Returns the operations of a forward pass for a token of a text of this many tokens: two for each weight, and
/// attention, which covers half of the text on average.
pub(super) fn forward(facts: &Facts, tokens: f64) -> f64 {
    2.0 * facts.active as f64 + 4.0 * facts.shape.queries as f64 * tokens / 2.0
}

/// Returns the bytes of a token's keys and values, of which each number takes `number` bytes.
pub(super) fn cache_bytes(facts: &Facts, number: f64) -> f64 {
    2.0 * number * facts.shape.keys as f64
}

/// Returns the operations of a backward pass by those of a forward pass: two, or one if the weights have no gradient.
pub(super) fn backward(facts: &Facts) -> f64 {
    if facts.frozen { 1.0 } else { 2.0 }
}

/// Returns the number of forward passes in which log-probabilities are computed again before the updates.
pub(super) fn logprobs(recipe: &Recipe) -> f64 {
    let recomputed =
        recipe.loss.tis_cap.is_some() || recipe.train.old_logprobs == OldLogprobs::Recomputed;
    if recomputed { 1.0 } else { 0.0 }
}

/// Returns the next power of two.
fn power_of_two(number: f64) -> f64 {
    number.max(1.0).log2().ceil().exp2()
}
