//! `firebrick replay`: computes the batch of a skipped update again.

use std::path::PathBuf;

use clap::Args;
use firebrick::{
    build,
    replay::{Gradient, replay},
};
use firebrick_core::printable;
use serde_json::json;

use crate::{ProgramError, bars::Bars, terminal::for_stdout};

/// Arguments of `firebrick replay`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Replay {
    /// The file of a skipped batch in a run's folder, such as runs/quickstart/skipped-step-000012-0.json
    batch: PathBuf,
    /// Compute with this checkpoint instead of the run's newest one from before the batch
    #[arg(long, value_name = "FOLDER")]
    checkpoint: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  firebrick replay runs/quickstart/skipped-step-000012-0.json
  firebrick replay runs/quickstart/skipped-step-000012-0.json --json

The last line says what is to blame.";

/// Number of completions that are shown, those with the largest gradients.
const SHOWN: usize = 20;

impl Replay {
    pub(super) fn run(self) -> Result<(), ProgramError> {
        let bars = Bars::on_stderr();
        let sources = super::sources::sources(&bars);
        let computing = bars.bar("computing", 0);
        let replay = replay(&self.batch, self.checkpoint.as_deref(), &sources, build::now())?;
        drop(computing);

        let texts = |Gradient { loss, norm }: Gradient| (number(loss), number(norm));
        let conclusion = replay.conclusion();
        if self.json {
            let rows = replay.completions.iter().map(|row| {
                let (loss, norm) = texts(row.gradient);
                json!({
                    "text": row.text, "tokens": row.tokens, "advantage": number(row.advantage),
                    "logprob_change": number(row.change), "loss": loss, "grad_norm": norm,
                })
            });

            let (loss, norm) = texts(replay.whole);
            let object = json!({
                "checkpoint": replay.checkpoint, "loss": loss, "grad_norm": norm,
                "conclusion": conclusion, "completions": rows.collect::<Vec<_>>(),
            });
            return super::print(&format!("{object}\n"));
        }

        let mut rows = replay.completions;
        // A norm that is not a number counts as infinite, so that the culprits come first.
        let size = |norm: f64| if norm.is_finite() { norm } else { f64::INFINITY };
        rows.sort_by(|a, b| size(b.gradient.norm).total_cmp(&size(a.gradient.norm)));

        let (loss, norm) = texts(replay.whole);
        let mut text = format!(
            "{} with the policy of {}\n{} completions together: loss {loss}, gradient {norm}\n\n",
            self.batch.display(),
            replay.checkpoint.display(),
            rows.len()
        );

        text += "      loss   gradient  advantage  logprob change  tokens  text\n";
        for row in rows.iter().take(SHOWN) {
            let (loss, norm) = texts(row.gradient);
            let (advantage, change) = (number(row.advantage), number(row.change));
            let start: String = printable(&row.text).chars().take(60).collect();
            text += &format!(
                "{loss:>10}  {norm:>9}  {advantage:>9}  {change:>14}  {:>6}  {start}\n",
                row.tokens
            );
        }

        if rows.len() > SHOWN {
            text += &format!("not shown, with smaller gradients: {}\n", rows.len() - SHOWN);
        }
        super::print(&(text + "\n" + &for_stdout(&conclusion, 0) + "\n"))
    }
}

/// Writes a number for a person to read. The JSON object has the same text, because JSON has no numbers that are
/// not finite.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        1e-3..1e5 => format!("{value:.4}"),
        _ => format!("{value:.2e}"),
    }
}
