//! The limits that the system sets to the program, and what it does before it meets them.

use std::{env, thread::available_parallelism, time::SystemTime};

use firebrick::build;

use crate::ProgramError;

/// Looks at everything that every command needs, and makes it ready: the clock, memory, threads and signals. A limit
/// that is met later, in the midst of a library, ends the program without a word about its cause.
///
/// # Errors
/// Fails if the clock is wrong, or a limit is too narrow or too wide.
pub fn make_ready() -> Result<(), ProgramError> {
    if build::date_of(SystemTime::now()).is_none() {
        return Err(ProgramError::Clock);
    }
    check_memory()?;
    start_threads()?;
    heed_limit_of_files();
    firebrick_reward::adopt_orphans();
    Ok(())
}

/// The address space that the program needs to start its threads and to read a small model. The quickstart runs with
/// `ulimit -v 220000` on two cores, and gets no memory with 180000.
#[cfg(unix)]
const ADDRESS_SPACE: u64 = 256 << 20;

/// Fails if the address space is limited to less than any command needs. Without memory the program is aborted, and
/// can't say anything any more.
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

/// The largest number of threads that compute, for each one that the machine runs at once. With 64 a step of the
/// quickstart took three times as long as with one, and with 256 it did not end within a minute.
const THREADS: usize = 32;

/// Starts the threads that compute.
fn start_threads() -> Result<(), ProgramError> {
    // The second name is rayon's old one, which it still reads.
    for variable in ["RAYON_NUM_THREADS", "RAYON_RS_NUM_CPUS"] {
        let asked = env::var(variable).ok().and_then(|value| value.trim().parse().ok());
        let at_once = available_parallelism().map_or(1, usize::from);
        if let Some(threads) = asked.filter(|threads: &usize| *threads > THREADS * at_once) {
            let most = THREADS * at_once;
            return Err(ProgramError::ManyThreads { variable, threads, at_once, most });
        }
    }
    // Otherwise the first use of the pool would start it, and panic if it can't.
    let pool = rayon::ThreadPoolBuilder::new().build_global();
    pool.map_err(|error| ProgramError::NoThreads { problem: error.to_string() })
}

/// Keeps a limit on the size of files from ending the program. Batch systems set such limits. A write beyond it then
/// fails as on a full disk, and the run ends with words and a checkpoint.
///
/// A handler does this, and not that the signal is ignored: what the program starts would inherit that.
fn heed_limit_of_files() {
    #[cfg(unix)]
    {
        use signal_hook::{consts::SIGXFSZ, flag};

        // Nobody asks for the flag: the failed write tells everything. Without the handler, only the message is
        // missing.
        let _ = flag::register(SIGXFSZ, std::sync::Arc::default());
    }
}
