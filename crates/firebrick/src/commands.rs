//! The subcommands, one file each.

mod eval;
mod metrics;
mod schema;
mod train;

use clap::Subcommand;

use crate::ProgramError;

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    /// Train the policy that a recipe describes
    Train(train::Train),
    /// Measure a checkpoint on the held-out prompts: pass@1, avg@k, pass@k, maj@k
    Eval(eval::Eval),
    /// Print a run's metrics as JSON lines, one object per step
    Metrics(metrics::Metrics),
    /// Print the JSON schema of recipes
    Schema,
}

impl Command {
    /// Runs the command; gives the exit code.
    ///
    /// # Errors
    /// What ended it.
    pub fn run(self) -> Result<u8, ProgramError> {
        match self {
            Command::Train(command) => command.run(),
            Command::Eval(command) => command.run().map(|()| 0),
            Command::Metrics(command) => command.run().map(|()| 0),
            Command::Schema => schema::run().map(|()| 0),
        }
    }
}

/// What chat templates may print as today's date. The one place that reads the clock's date.
fn now() -> firebrick_data::DateTime {
    jiff::Zoned::now().datetime()
}
