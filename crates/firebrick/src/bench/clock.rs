//! Clock of the bench: seconds, busy cores and memory of repeated runs.

use std::{fs, time::Instant};

use burn::tensor::Device;
use firebrick_kernels::give_memory_back;
use firebrick_runs::peak_rss_bytes;
use firebrick_train::TrainError;

use crate::{Error, Result};

/// Times of a phase.
pub(super) struct Times {
    /// Seconds of the warm-up run.
    pub(super) first: f64,
    /// Seconds of the other runs, ascending.
    pub(super) seconds: Vec<f64>,
    /// Number of cores that were busy, in the mean over the runs.
    pub(super) cores: Option<f64>,
    /// Peak of the process's memory, in bytes.
    pub(super) peak_bytes: Option<u64>,
}

/// A clock that runs work once to warm up and then `runs` times, and measures each run.
pub(super) struct Clock<'a> {
    device: &'a Device,
    runs: usize,
    timed: Box<dyn FnMut(usize, Times) + 'a>,
    pub(super) kernels: Vec<(String, usize, f64)>,
}

impl<'a> Clock<'a> {
    /// Makes a clock. `timed` gets the units of a run and the times, before the kernels are timed.
    pub(super) fn new(
        device: &'a Device,
        runs: usize,
        timed: impl FnMut(usize, Times) + 'a,
    ) -> Self {
        Clock { device, runs, timed: Box::new(timed), kernels: Vec::new() }
    }

    /// Runs `work`, which does `units` units each time.
    pub(super) fn time(
        &mut self,
        units: usize,
        mut work: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        // The memory of an earlier phase is given back, and the peak so far is forgotten, if the system allows
        // it.
        give_memory_back();
        let _ = fs::write("/proc/self/clear_refs", "5");

        let mut run_once = || {
            let began = Instant::now();
            work()?;
            let done = self.device.sync();
            done.map_err(|error| Error::Train(TrainError::Device(error.to_string())))?;
            Ok::<_, Error>(began.elapsed().as_secs_f64())
        };

        let first = run_once()?;
        let busy_before = processor_seconds();
        let mut seconds = Vec::new();
        for _ in 0..self.runs.max(1) {
            seconds.push(run_once()?);
        }

        let busy =
            processor_seconds().zip(busy_before).map(|(after, busy_before)| after - busy_before);
        let all: f64 = seconds.iter().sum();
        seconds.sort_by(f64::total_cmp);
        let cores = busy.map(|busy| busy / all);
        let peak_bytes = peak_rss_bytes();
        (self.timed)(units, Times { first, seconds, cores, peak_bytes });

        if *self.device != Device::flex() {
            let (done, seen) = firebrick_kernels::timed_launches(&mut run_once);
            done?;
            let short = |name: &str| name.split('<').next().unwrap_or(name).to_owned();
            let kernels = seen.iter().map(|(name, of)| (short(name), of.count, of.seconds));
            self.kernels = kernels.collect();
            self.kernels.sort_by(|a, b| b.2.total_cmp(&a.2));
        }
        Ok(())
    }
}

/// Returns the seconds that the processor's cores have worked for this process.
fn processor_seconds() -> Option<f64> {
    #[cfg(unix)]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Some(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
    }
    #[cfg(not(unix))]
    None
}
