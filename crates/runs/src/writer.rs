//! The thread that writes a run's database.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
};

use crate::{RunError, Store};

/// A [`Store`] that a thread of its own writes, so that a run does not wait for the disk. It does one job after
/// the other, in the order in which they were given. When the writer is dropped, all jobs have been done.
#[derive(Debug)]
pub struct Writer {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
    told: Arc<Mutex<Vec<String>>>,
}

/// A job on the store. It returns a line for a person to read, if there is one.
type Job = Box<dyn FnOnce(&mut Store) -> Option<String> + Send>;

/// The number of jobs that may wait. A disk that is too slow for the run holds the run up, so that memory does
/// not fill.
const WAITING: usize = 16;

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system has no room for a thread.
    pub fn new(mut store: Store) -> Result<Self, RunError> {
        let (jobs, waiting) = sync_channel::<Job>(WAITING);
        let told = Arc::new(Mutex::new(Vec::new()));
        let lines = told.clone();
        let work = move || {
            while let Ok(job) = waiting.recv() {
                if let Some(line) = job(&mut store) {
                    let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
                    // A full disk fails every job in the same words.
                    if !lines.contains(&line) {
                        lines.push(line);
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("run.db".into()).spawn(work);
        let thread = thread.map_err(RunError::Thread)?;
        Ok(Writer { jobs: Some(jobs), thread: Some(thread), told })
    }

    /// Has the job done after all jobs that were given before. The job returns a line for a person to read,
    /// such as a failure to write; [`Writer::told`] then has the line.
    pub fn later(&self, job: impl FnOnce(&mut Store) -> Option<String> + Send + 'static) {
        if let Some(jobs) = &self.jobs {
            // Sending fails if the thread has ended, and `now` reports that.
            let _ = jobs.send(Box::new(job));
        }
    }

    /// Has the job done after all jobs that were given before, and waits for it.
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
        std::mem::take(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
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
