//! The clock of the bench: seconds, busy cores and memory of repeated runs.

use std::{fs, time::Instant};

use burn::tensor::Device;
use firebrick_kernels::give_memory_back;
use firebrick_runs::peak_rss_bytes;
use firebrick_train::TrainError;

use crate::{Error, Result};

/// A clock that runs work once to warm up and then so many times, and keeps the time of each run.
pub(super) struct Clock<'a> {
    device: &'a Device,
    runs: usize,
    seconds: Vec<f64>,
    busy: Option<f64>,
    pub(super) kernels: Vec<(String, usize, f64)>,
}

impl<'a> Clock<'a> {
    pub(super) fn new(device: &'a Device, runs: usize) -> Self {
        Clock { device, runs, seconds: Vec::new(), busy: None, kernels: Vec::new() }
    }

    pub(super) fn time(&mut self, mut work: impl FnMut() -> Result<()>) -> Result<()> {
        // The memory of an earlier phase is given back, and the peak so far is forgotten, if the system allows
        // it.
        give_memory_back();
        let _ = fs::write("/proc/self/clear_refs", "5");
        let mut once = || {
            work()?;
            self.device.sync().map_err(|error| Error::Train(TrainError::Device(error.to_string())))
        };
        once()?;
        let before = processor_seconds();
        for _ in 0..self.runs.max(1) {
            let began = Instant::now();
            once()?;
            self.seconds.push(began.elapsed().as_secs_f64());
        }
        let after = processor_seconds();
        if *self.device != Device::flex() {
            let (done, seen) = firebrick_kernels::timed_launches(&mut once);
            done?;
            let short = |name: &str| name.split('<').next().unwrap_or(name).to_owned();
            let kernels = seen.iter().map(|(name, of)| (short(name), of.count, of.seconds));
            self.kernels = kernels.collect();
            self.kernels.sort_by(|a, b| b.2.total_cmp(&a.2));
        }
        self.busy = after.zip(before).map(|(after, before)| after - before);
        Ok(())
    }

    /// Returns the seconds of each run, ascending; the cores; and the peak of the memory.
    pub(super) fn read(mut self) -> (Vec<f64>, Option<f64>, Option<u64>) {
        let all: f64 = self.seconds.iter().sum();
        self.seconds.sort_by(f64::total_cmp);
        (self.seconds, self.busy.map(|busy| busy / all), peak_rss_bytes())
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
