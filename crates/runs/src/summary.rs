//! Summary of a run, written as `summary.json`.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{RunError, own::read_own, write_atomically};

/// Result of a run in a few numbers: `summary.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Accuracy on held-out prompts.
    pub heldout: Heldout,
    /// Last accuracy on each further set of the recipe (`eval.sets`), by the set's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sets: BTreeMap<String, f64>,
    /// Number of rollout steps that were done.
    pub steps: u64,
    /// Numbers of completions that were sampled and trained on.
    pub completions: Completions,
    /// Wall-clock seconds by phase.
    pub seconds: Seconds,
    /// Tokens per second, within a phase's own time.
    pub tokens_per_second: TokensPerSecond,
    /// Peak memory of the process, in bytes. It is the host's memory, not a GPU's.
    pub peak_rss_bytes: Option<u64>,
    /// Why the run ended, such as `steps` or `stop_at`.
    pub stopped_because: String,
    /// Last checkpoint of the run. It is not in the file, because folders are moved.
    #[serde(skip)]
    pub checkpoint: Option<PathBuf>,
    /// Folder of the run. It is not in the file either.
    #[serde(skip)]
    pub folder: Option<PathBuf>,
}

/// Accuracies and credits on held-out prompts, in [0, 1]; `None` if none was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Heldout {
    /// Accuracy before anything was learnt.
    pub initial: Option<f64>,
    /// Accuracy after SFT and before the first rollout step.
    pub after_sft: Option<f64>,
    /// Accuracy at the end.
    pub r#final: Option<f64>,
    /// Mean credit before anything was learnt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_credit: Option<f64>,
    /// Mean credit at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_credit: Option<f64>,
}

/// Numbers of completions that were sampled, and that taught something.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Completions {
    /// Completions that were sampled for training.
    pub generated: u64,
    /// Completions that were used in an update.
    pub trained: u64,
}

/// Wall-clock seconds by phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // Each is the phase of its name.
pub struct Seconds {
    pub sft: f64,
    pub rollout: f64,
    pub reward: f64,
    pub update: f64,
    pub eval: f64,
    /// Seconds for writing checkpoints.
    #[serde(default)]
    pub checkpoint: f64,
    /// Seconds from the start to the end, including the time between the phases.
    pub total: f64,
}

/// Throughput of the two long phases.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TokensPerSecond {
    /// Completion tokens sampled, per second.
    pub rollout: f64,
    /// Completion tokens trained on, per second.
    pub update: f64,
}

/// Limit on a summary, in bytes. It has an accuracy for each further set of the recipe.
const BYTES: u64 = 1 << 20;

impl Summary {
    /// Writes the summary as indented JSON, completely or not at all.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn write(&self, path: &Path) -> Result<(), RunError> {
        let summary_error = |error| RunError::Summary { path: path.to_owned(), error };
        let mut text = serde_json::to_string_pretty(self).map_err(summary_error)?;
        text.push('\n');
        write_atomically(path, text.as_bytes())
    }

    /// Reads a summary that [`Summary::write`] wrote.
    ///
    /// # Errors
    /// When it can't be read, or is not a summary.
    pub fn read(path: &Path) -> Result<Self, RunError> {
        let text = read_own(path, BYTES)?;
        serde_json::from_str(&text)
            .map_err(|error| RunError::Summary { path: path.to_owned(), error })
    }
}

/// Returns the peak memory of this process so far, in bytes, or `None` on systems other than Linux, which don't say.
pub fn peak_rss_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_reads_back_and_names_its_keys() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("summary.json");
        let mut summary =
            Summary { steps: 3, stopped_because: "steps".into(), ..Default::default() };
        summary.heldout.r#final = Some(0.5);

        summary.write(&path).unwrap();
        assert_eq!(Summary::read(&path).unwrap(), summary);

        let text = fs::read_to_string(&path).unwrap();
        for key in
            ["\"final\": 0.5", "\"initial\": null", "\"tokens_per_second\"", "\"trained\": 0"]
        {
            assert!(text.contains(key), "{key} is not in {text}");
        }

        fs::write(&path, "{}").unwrap();
        assert!(Summary::read(&path).unwrap_err().to_string().contains("missing field `heldout`"));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_peak_is_at_least_what_a_program_needs() {
        assert!(peak_rss_bytes().unwrap() > 100_000);
    }
}
