use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{RunError, write_atomically};

/// The result of a run in a few numbers: `summary.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Accuracy on held-out prompts.
    pub heldout: Heldout,
    /// The last accuracy on each further set of the recipe (`eval.sets`), by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sets: BTreeMap<String, f64>,
    /// Rollout steps done.
    pub steps: u64,
    /// Completions that were sampled for training.
    pub completions: Completions,
    /// Wall-clock seconds by phase.
    pub seconds: Seconds,
    /// Tokens per second of a phase's own time.
    pub tokens_per_second: TokensPerSecond,
    /// The most memory the process held at any time, in bytes; of the host, not of a GPU.
    pub peak_rss_bytes: Option<u64>,
    /// Why the run ended, such as `steps` or `stop_at`.
    pub stopped_because: String,
    /// Its last checkpoint; not in the file, because folders are moved.
    #[serde(skip)]
    pub checkpoint: Option<PathBuf>,
    /// The run's folder; not in the file either.
    #[serde(skip)]
    pub folder: Option<PathBuf>,
}

/// Accuracies on held-out prompts, in [0, 1]; `None` where none was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Heldout {
    /// Before anything was learnt.
    pub initial: Option<f64>,
    /// After the warm-up and before the first rollout step.
    pub after_warmup: Option<f64>,
    /// At the end.
    pub r#final: Option<f64>,
}

/// How many completions were sampled, and how many of them taught something.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Completions {
    /// Sampled for training.
    pub generated: u64,
    /// Used in an update.
    pub trained: u64,
}

/// Wall-clock seconds by phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // Each is the phase of its name.
pub struct Seconds {
    pub warmup: f64,
    pub rollout: f64,
    pub reward: f64,
    pub update: f64,
    pub eval: f64,
    /// Writing checkpoints.
    #[serde(default)]
    pub checkpoint: f64,
    /// From the start to the end, what falls between the phases included.
    pub total: f64,
}

/// Throughput of the two long phases.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TokensPerSecond {
    /// Completion tokens sampled.
    pub rollout: f64,
    /// Completion tokens trained on.
    pub update: f64,
}

impl Summary {
    /// Writes the summary as indented JSON, whole or not at all.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn write(&self, path: &Path) -> Result<(), RunError> {
        let fault = |error| RunError::Summary { path: path.to_owned(), error };
        let mut text = serde_json::to_string_pretty(self).map_err(fault)?;
        text.push('\n');
        write_atomically(path, text.as_bytes())
    }

    /// Reads a summary that [`Summary::write`] wrote.
    ///
    /// # Errors
    /// When it can't be read, or is none.
    pub fn read(path: &Path) -> Result<Self, RunError> {
        let text = fs::read_to_string(path).map_err(|error| RunError::File {
            action: "read",
            path: path.to_owned(),
            error,
        })?;
        serde_json::from_str(&text)
            .map_err(|error| RunError::Summary { path: path.to_owned(), error })
    }
}

/// The most memory this process has held so far, in bytes; `None` where the system doesn't say,
/// which is everywhere but on Linux.
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
