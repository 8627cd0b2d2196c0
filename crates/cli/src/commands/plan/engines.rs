//! `firebrick plan --engines`: computes how many inference servers keep the trainer busy.

use std::fmt::Write as _;

use clap::Args;
use firebrick::{
    plan::{Card, Engines, Facts, Lengths, Load},
    recipe::Recipe,
    thousands,
};

/// Facts about servers, and about the completions of a step, that a recipe lacks.
#[derive(Args)]
pub(super) struct Servers {
    /// Instead of the memory, say how many inference servers keep the trainer busy, and how long a step takes. The
    /// numbers come from data sheets, with guesses of the share that is reached
    #[arg(long)]
    pub(super) engines: bool,
    /// The card that the time of a step is calculated for; with --engines that of the servers, h100 by default
    #[arg(long, value_name = "CARD", value_parser = card)]
    pub(super) card: Option<Card>,
    /// The card of the trainer, with --engines; by default the same as the servers'
    #[arg(long, value_name = "CARD", value_parser = card, requires = "engines")]
    trainer_card: Option<Card>,
    /// The mean number of tokens of a completion, for the time of a step; by default half of
    /// rollout.max_completion_tokens
    #[arg(long, value_name = "TOKENS")]
    mean_tokens: Option<u32>,
    /// The number of groups sampled for each group that is trained on, for the time of a step; by default 2 with
    /// dynamic sampling, else 1
    #[arg(long, value_name = "NUMBER", value_parser = at_least_one)]
    sampled: Option<f64>,
}

impl Servers {
    /// Computes the plan for a recipe.
    pub(super) fn plan(&self, facts: &Facts, recipe: &Recipe) -> Engines {
        let Lengths { mean_tokens, sampled } = self.lengths(recipe);
        let server = self.card.unwrap_or(Card::ALL[0]);
        let load = Load {
            mean_tokens,
            sampled,
            trainer: self.trainer_card.unwrap_or(server),
            trainers: recipe.device.count as f64,
            server,
        };
        Engines::new(facts, recipe, load)
    }

    /// Returns what completions of a recipe are taken to be like.
    pub(super) fn lengths(&self, recipe: &Recipe) -> Lengths {
        let most = recipe.rollout.max_completion_tokens as f64;
        let likely = Lengths::likely(recipe);
        Lengths {
            mean_tokens: self.mean_tokens.map_or(likely.mean_tokens, f64::from).clamp(1.0, most),
            sampled: self.sampled.unwrap_or(likely.sampled),
        }
    }
}

/// Writes the plan in words.
pub(super) fn table(engines: &Engines, name: &str) -> String {
    let Engines { load, .. } = engines;
    let integer = |number: f64| thousands(number.round() as u64);
    let cards = |count: f64, card: &Card| match count as u64 {
        1 => format!("one {}", card.name),
        count => format!("{count} × {}", card.name),
    };

    let mut text = format!(
        "{name}: a step trains on {} tokens and samples {}, {} a completion\n\n",
        integer(engines.trained),
        integer(engines.sampled),
        integer(load.mean_tokens),
    );

    let recomputed = match engines.old_logprobs_seconds {
        0.0 => String::new(),
        seconds => format!(", {} of them for old log-probabilities", duration(seconds)),
    };

    let _ = writeln!(
        text,
        "trainer    {}: {} for a step{recomputed}",
        cards(load.trainers, &load.trainer),
        duration(engines.train_seconds())
    );
    let _ = writeln!(
        text,
        "server     {}: {} tokens/s, {} sequences at once",
        cards(engines.cards, &load.server),
        integer(engines.tokens_per_second),
        integer(engines.sequences)
    );
    let _ = writeln!(
        text,
        "longest    the longest completion alone takes {}, however many servers there are",
        duration(engines.longest_seconds)
    );

    let gigabytes = engines.published / 1e9;
    let _ = writeln!(text, "weights    {gigabytes:.1} GB are published after each step\n");
    let _ = writeln!(
        text,
        "{:>8} {:>10} {:>10} {:>22} {:>22}",
        "servers", "sampling", "weights", "step, max_staleness 0", "step, max_staleness 1"
    );

    let balanced = engines.balanced();
    for servers in counts(balanced) {
        let [apart, together] = engines.step_seconds(servers);
        let mark = if servers == balanced { "  sampling as long as training" } else { "" };
        let _ = writeln!(
            text,
            "{servers:>8} {:>10} {:>10} {:>22} {:>22}{mark}",
            duration(engines.sample_seconds(servers)),
            duration(engines.publish_seconds(servers)),
            duration(apart),
            duration(together)
        );
    }

    text += "\nCalculated, not measured: with 40 % of a card's peak operations in an update and 60 % of its \
             peak bandwidth in decoding. A model of less than a billion parameters is slower, \
             because launches are not counted.\n";
    text
}

/// Returns the numbers of servers to compare: the balanced number, half of it, twice as many, and a single server.
fn counts(balanced: f64) -> Vec<f64> {
    let mut counts = vec![1.0, (balanced / 2.0).ceil(), balanced, 2.0 * balanced];
    counts.dedup();
    counts
}

fn duration(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 10.0 => format!("{seconds:.1} s"),
        seconds if seconds < 600.0 => format!("{seconds:.0} s"),
        seconds if seconds < 36_000.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.0} h", seconds / 3600.0),
    }
}

fn card(name: &str) -> Result<Card, String> {
    Card::named(&name.to_lowercase()).ok_or_else(|| {
        let known: Vec<&str> = Card::ALL.iter().map(|card| card.name).collect();
        format!("expected one of {}", known.join(", "))
    })
}

fn at_least_one(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    number
        .filter(|number| (1.0..=1000.0).contains(number))
        .ok_or("expected a number from 1 to 1000".into())
}
