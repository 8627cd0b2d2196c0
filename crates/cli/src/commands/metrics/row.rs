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
| run | device | held-out accuracy | steps | completions | time | memory of the host |
|---|---|---|---|---|---|---|";

/// Writes the row below the table's head, in Markdown. The recipe's device is looked up on this machine, so the row
/// has to be made where the run was.
///
/// # Errors
/// Fails if the run is not finished, or its files can't be read.
pub(super) fn row(run: &Path) -> Result<String, ProgramError> {
    let summary = run.join("summary.json");
    if !summary.is_file() {
        return Err(ProgramError::NotFinished { run: run.to_owned() });
    }
    let summary = Summary::read(&summary).map_err(Error::from)?;
    let device = machine([recipe_of_run(run)?.recipe.device.name()]);

    let heldout = &summary.heldout;
    let accuracy = |value: Option<f64>| value.map_or("–".into(), |value| format!("{value:.3}"));
    let mut accuracies = vec![accuracy(heldout.initial), accuracy(heldout.r#final)];
    // In the order of time, SFT comes between the first and the last measurement.
    if heldout.after_sft.is_some() {
        accuracies.insert(1, accuracy(heldout.after_sft));
    }
    let memory = summary.peak_rss_bytes.map_or_else(|| "–".into(), bytes);

    // `.` has no name, but the folder that it stands for has one.
    let folder = std::path::absolute(run).unwrap_or_else(|_| run.to_owned());
    let name = folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy();

    Ok(format!(
        "{HEAD}\n| {} | {device} | {} | {} | {} | {} | {memory} |",
        printable(&name).replace('|', "\\|"),
        accuracies.join(" → "),
        summary.steps,
        summary.completions.generated,
        duration(summary.seconds.total),
    ))
}
