//! Limits that the system sets, and what the program does before it reaches them.

use std::{env, thread::available_parallelism, time::SystemTime};

use firebrick::build;

use crate::ProgramError;

/// Checks and prepares what every command needs: the clock, memory, threads and signals. A limit that is reached later,
/// inside a library, ends the program without an explanation.
///
/// # Errors
/// Fails if the clock is wrong, or a limit is too narrow or too wide.
pub fn preflight() -> Result<(), ProgramError> {
    if build::date_of(SystemTime::now()).is_none() {
        return Err(ProgramError::Clock);
    }

    check_memory()?;
    start_threads()?;
    catch_file_size_limit();
    firebrick_reward::become_subreaper();
    Ok(())
}

/// Address space that the program needs to start its threads and to read a small model. The quickstart runs with
/// `ulimit -v 220000` on two cores, and fails to allocate with 180000.
#[cfg(unix)]
const ADDRESS_SPACE: u64 = 256 << 20;

/// Fails if the address space is limited to less than any command needs. A program without memory is aborted
/// before it can say anything.
fn check_memory() -> Result<(), ProgramError> {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, getrlimit};

        if let Some(limit) = getrlimit(Resource::As).current.filter(|it| *it < ADDRESS_SPACE) {
            return Err(ProgramError::Memory { limit, needed: ADDRESS_SPACE });
        }
    }
    Ok(())
}

/// Maximum number of compute threads per hardware thread. With 64 a step of the quickstart took three times as long as
/// with one, and with 256 it did not end within a minute.
const OVERSUBSCRIPTION: usize = 32;

/// Starts the compute threads.
fn start_threads() -> Result<(), ProgramError> {
    // The second name is rayon's old one, which it still reads.
    for variable in ["RAYON_NUM_THREADS", "RAYON_RS_NUM_CPUS"] {
        let requested = env::var(variable).ok().and_then(|value| value.trim().parse().ok());
        let parallelism = available_parallelism().map_or(1, usize::from);
        let most = OVERSUBSCRIPTION * parallelism;
        if let Some(threads) = requested.filter(|threads: &usize| *threads > most) {
            return Err(ProgramError::ManyThreads { variable, threads, parallelism, most });
        }
    }

    // Otherwise the first use of the pool would start it, and panic if it can't.
    let pool = rayon::ThreadPoolBuilder::new().build_global();
    pool.map_err(|error| ProgramError::NoThreads { problem: error.to_string() })
}

/// Handles `SIGXFSZ` so that it does not kill the program. Batch systems set limits on the size of files. A write beyond
/// such a limit then fails as on a full disk, and the run ends with a message and a checkpoint.
///
/// The signal is handled rather than ignored, because child processes would inherit `SIG_IGN`.
fn catch_file_size_limit() {
    #[cfg(unix)]
    {
        use signal_hook::{consts::SIGXFSZ, flag};

        // Nobody reads the flag, because the failed write says everything. If the handler can't be set, only the
        // message is missing.
        let _ = flag::register(SIGXFSZ, std::sync::Arc::default());
    }
}
