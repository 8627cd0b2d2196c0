//! The subcommands, one file each.

mod doctor;
mod eval;
mod metrics;
mod schema;
pub mod score;
mod sources;
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
    /// List the devices of this machine and try them: what they can do, and whether it is right
    Doctor(doctor::Doctor),
    /// Judge responses against gold answers, and say how often the verdict is the expected one
    Score(score::Score),
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
            Command::Doctor(command) => command.run(),
            Command::Score(command) => command.run(),
            Command::Metrics(command) => command.run().map(|()| 0),
            Command::Schema => schema::run().map(|()| 0),
        }
    }
}

/// The `--set` arguments that `--device` stands for.
fn device_settings(device: Option<firebrick_device::Name>) -> Vec<String> {
    let set = |name: firebrick_device::Name| {
        [format!("device.kind={}", name.kind), format!("device.index={}", name.index)]
    };
    device.into_iter().flat_map(set).collect()
}

/// What chat templates may print as today's date. The one place that reads the clock's date.
fn now() -> firebrick_data::DateTime {
    jiff::Zoned::now().datetime()
}
