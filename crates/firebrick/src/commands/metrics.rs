use std::path::PathBuf;

use clap::Args;
use firebrick_runs::Store;

use crate::ProgramError;

/// The arguments of `firebrick metrics`.
#[derive(Args)]
pub struct Metrics {
    /// The run's folder, such as runs/quickstart; the run may still be going
    run: PathBuf,
}

impl Metrics {
    pub(super) fn run(self) -> Result<(), ProgramError> {
        let store = Store::open_read_only(&self.run.join("run.db"))?;
        Ok(store.export_jsonl(&mut std::io::stdout().lock())?)
    }
}
