use std::{io::ErrorKind, path::PathBuf};

use clap::Args;
use firebrick_runs::{RunError, Store};

use crate::ProgramError;

/// The arguments of `firebrick metrics`.
#[derive(Args)]
pub struct Metrics {
    /// The run's folder, such as runs/quickstart; the run may still be going
    run: PathBuf,
}

impl Metrics {
    pub(super) fn run(self) -> Result<(), ProgramError> {
        let database = self.run.join("run.db");
        if !database.is_file() {
            return Err(ProgramError::NotARun { path: self.run });
        }
        let store = Store::open_read_only(&database)?;
        match store.export_jsonl(&mut std::io::stdout().lock()) {
            // A reader that has seen enough, such as head, is no problem.
            Err(RunError::Export(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            exported => Ok(exported?),
        }
    }
}
