//! A finished run as one row of a table of time to result.

use std::path::Path;

use firebrick::{Error, recipe_of_run, runs::Summary};
use firebrick_core::printable;

use crate::{
    ProgramError,
    closing::{bytes, duration},
    machine::machine,
};

const HEAD: &str = "\
| recipe | device | held-out accuracy | steps | completions | time | memory of the host |
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
    let loaded = recipe_of_run(run)?;
    let device = machine([loaded.recipe.device.name()]);
    let heldout = &summary.heldout;
    let accuracy = |value: Option<f64>| value.map_or("–".into(), |value| format!("{value:.3}"));
    let mut accuracies = vec![accuracy(heldout.initial), accuracy(heldout.r#final)];
    if heldout.after_sft.is_some() {
        accuracies.insert(1, accuracy(heldout.after_sft));
    }
    let memory = summary.peak_rss_bytes.map_or_else(|| "–".into(), bytes);
    Ok(format!(
        "{HEAD}\n| {} | {device} | {} | {} | {} | {} | {memory} |",
        printable(&loaded.name).replace('|', "\\|"),
        accuracies.join(" → "),
        summary.steps,
        summary.completions.generated,
        duration(summary.seconds.total),
    ))
}
