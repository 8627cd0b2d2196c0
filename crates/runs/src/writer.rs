//! Writes a run's database on a separate thread.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
};

use crate::{RunError, Store};

/// Writes a [`Store`] on a separate thread, so that a run does not wait for the disk. Jobs are done one after the
/// other, in the order in which they were given. Dropping the writer waits until all are done.
#[derive(Debug)]
pub struct Writer {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
    lines: Arc<Mutex<Vec<String>>>,
}

/// A job on the store, which may return a line for a person to read.
type Job = Box<dyn FnOnce(&mut Store) -> Option<String> + Send>;

/// How many jobs may wait. If the disk is too slow for the run, the run waits for it, so that memory does not fill.
const WAITING: usize = 16;

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system has no room for a thread.
    pub fn new(mut store: Store) -> Result<Self, RunError> {
        let (jobs, waiting) = sync_channel::<Job>(WAITING);
        let lines = Arc::new(Mutex::new(Vec::new()));
        let added = Arc::clone(&lines);

        let work = move || {
            while let Ok(job) = waiting.recv() {
                if let Some(line) = job(&mut store) {
                    let mut added = added.lock().unwrap_or_else(PoisonError::into_inner);
                    // A full disk fails every job with the same message.
                    if !added.contains(&line) {
                        added.push(line);
                    }
                }
            }
        };

        let thread = thread::Builder::new().name("run.db".into()).spawn(work);
        let thread = thread.map_err(RunError::Thread)?;
        Ok(Writer { jobs: Some(jobs), thread: Some(thread), lines })
    }

    /// Queues a job after all jobs that were given before. It may return a line for a person to read, such as a failure
    /// to write, which [`Writer::told`] then returns.
    pub fn later(&self, job: impl FnOnce(&mut Store) -> Option<String> + Send + 'static) {
        if let Some(jobs) = &self.jobs {
            // Sending fails if the thread has ended, and `now` reports that.
            let _ = jobs.send(Box::new(job));
        }
    }

    /// Queues a job after all jobs that were given before, and waits for its result.
    ///
    /// # Errors
    /// The job's own errors, and when the thread has ended.
    pub fn now<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Store) -> Result<T, RunError> + Send + 'static,
    ) -> Result<T, RunError> {
        let (answer, answered) = sync_channel(1);
        self.later(move |store| {
            let _ = answer.send(job(store));
            None
        });
        answered.recv().map_err(|_| RunError::Thread(std::io::Error::other("it has ended")))?
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    /// When the thread has ended.
    pub fn settle(&self) -> Result<(), RunError> {
        self.now(|_| Ok(()))
    }

    /// Takes the lines for a person that have come up since the last call.
    pub fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Without a sender the thread ends, as soon as it has done all jobs.
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::{Metrics, Tracker as _};

    use super::*;

    #[test]
    fn what_was_given_is_written_in_order_before_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.db");
        let writer = Writer::new(Store::open(&path).unwrap()).unwrap();

        for step in 1..=100 {
            let metrics = Metrics([("reward/mean".to_owned(), step as f64)].into());
            writer.later(move |store| store.log(1, &metrics).err().map(|error| error.to_string()));
        }

        assert_eq!(writer.now(|store| store.metrics("reward/mean")).unwrap(), [(1, 100.0)]);

        for _ in 0..3 {
            writer.later(|_| Some("the disk is full".to_owned()));
        }
        writer.settle().unwrap();
        assert_eq!((writer.told().len(), writer.told().len()), (1, 0));

        writer
            .later(|store| store.set_info("last", "written").err().map(|error| error.to_string()));
        drop(writer);

        let store = Store::open_read_only(&path).unwrap();
        assert_eq!(store.info("last").unwrap().as_deref(), Some("written"));
    }
}
