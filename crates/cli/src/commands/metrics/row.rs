//! A finished run as one row of a table of time to result.

use std::path::Path;

use firebrick::{Error, Recipe, runs::Summary};

use crate::{
    ProgramError,
    closing::{bytes, duration},
    machine::machine,
};

const HEAD: &str = "\
| recipe | device | held-out accuracy | steps | completions | time | memory |
|---|---|---|---|---|---|---|";

/// Writes the row below the table's head, in Markdown. This machine is asked for the device that the recipe names, so the
/// row has to be made on the machine of the run.
///
/// # Errors
/// When the run is not finished, or its files can't be read.
pub(super) fn row(run: &Path) -> Result<String, ProgramError> {
    let summary = run.join("summary.json");
    if !summary.is_file() {
        return Err(ProgramError::NotFinished { run: run.to_owned() });
    }
    let summary = Summary::read(&summary).map_err(Error::from)?;
    let loaded = Recipe::read(run.join("recipe.toml")).map_err(Error::from)?;
    let device = machine([loaded.recipe.device.name()]);
    let heldout = &summary.heldout;
    let accuracies: Vec<String> = [heldout.initial, heldout.after_warmup, heldout.r#final]
        .into_iter()
        .flatten()
        .map(|accuracy| format!("{accuracy:.3}"))
        .collect();
    let memory = summary.peak_rss_bytes.map_or_else(|| "–".into(), bytes);
    Ok(format!(
        "{HEAD}\n| {} | {device} | {} | {} | {} | {} | {memory} |",
        loaded.name,
        accuracies.join(" → "),
        summary.steps,
        summary.completions.generated,
        duration(summary.seconds.total),
    ))
}
