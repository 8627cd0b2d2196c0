//! Asks an environment for the replies to many turns at the same time.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

use firebrick_core::{Environment, EnvironmentFailed, Episode, Prompt, Reason, Reply, guard};

use super::{Position, WIDTH};

/// Within this time, an environment in this process answers all turns.
const A_MOMENT: Duration = Duration::from_millis(1);

/// A turn that waits for its reply.
pub(super) struct Spoken {
    pub(super) position: Position,
    /// Prompt of an episode that is to start.
    pub(super) prompt: Option<Prompt>,
    pub(super) episode: Option<Box<dyn Episode>>,
    pub(super) action: String,
}

/// A turn with its reply.
pub(super) struct Answered {
    pub(super) position: Position,
    pub(super) episode: Option<Box<dyn Episode>>,
    pub(super) action: String,
    pub(super) reply: Result<Reply, EnvironmentFailed>,
}

/// Turns that wait for their replies together.
pub(super) struct Exchange {
    replies: Receiver<(usize, Answered)>,
    /// Replies that were received, in the order in which they were asked for.
    answered: Vec<Option<Answered>>,
    missing: usize,
}

impl Exchange {
    /// Asks for all replies, on threads that end with the last reply; on a single thread if all are there within
    /// [`A_MOMENT`].
    ///
    /// # Errors
    /// Fails if no thread can be started.
    pub(super) fn begin(
        environment: &Arc<dyn Environment>,
        spoken: Vec<Spoken>,
    ) -> io::Result<Self> {
        let count = spoken.len();
        // The threads take turns from one list, so a slow reply holds up only the thread that waits for it.
        let asked = Arc::new(Mutex::new(spoken.into_iter().enumerate()));
        let (answer, replies) = channel();
        let answered = (0..count).map(|_| None).collect();
        let mut exchange = Exchange { replies, answered, missing: count };

        for thread in 0..count.min(WIDTH) {
            let asked = asked.clone();
            let answer = answer.clone();
            let environment = environment.clone();
            let next = move || asked.lock().unwrap_or_else(PoisonError::into_inner).next();
            let work = move || {
                while let Some((index, spoken)) = next() {
                    if answer.send((index, reply(&*environment, spoken))).is_err() {
                        break;
                    }
                }
            };

            match thread::Builder::new().name("environment".into()).spawn(work) {
                Ok(_) if thread == 0 && exchange.is_complete(A_MOMENT) => break,
                Ok(_) => {}
                // The threads that were started are enough: they also take the turns of those that were not.
                Err(_) if thread > 0 => break,
                Err(error) => return Err(error),
            }
        }

        Ok(exchange)
    }

    /// Returns all replies, in the order in which they were asked for; `None` while one is missing.
    pub(super) fn wait(&mut self, at_most: Duration) -> Option<Vec<Answered>> {
        let complete = self.is_complete(at_most);
        complete.then(|| std::mem::take(&mut self.answered).into_iter().flatten().collect())
    }

    /// Receives replies for at most this time, and tells whether all are there.
    fn is_complete(&mut self, at_most: Duration) -> bool {
        let until = Instant::now() + at_most;
        while self.missing > 0 {
            match self.replies.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok((index, answered)) => {
                    self.answered[index] = Some(answered);
                    self.missing -= 1;
                }
                Err(RecvTimeoutError::Timeout) => return false,
                // Every thread answers the turns that it takes before it ends, so no reply is missing.
                Err(RecvTimeoutError::Disconnected) => self.missing = 0,
            }
        }
        true
    }
}

/// Asks the environment for its answer to a turn; a panic counts as an episode that failed.
fn reply(environment: &dyn Environment, spoken: Spoken) -> Answered {
    let Spoken { position, prompt, mut episode, action } = spoken;
    let answered = guard(|| {
        if let Some(prompt) = prompt {
            episode = Some(environment.begin(&prompt)?);
        }
        match &mut episode {
            Some(episode) => episode.step(&action),
            None => Err(EnvironmentFailed::Episode("the episode is over".into())),
        }
    });

    let reply = answered.unwrap_or_else(|panic| {
        Err(EnvironmentFailed::Episode(Reason::with_source(
            format!("the environment panicked: {panic}"),
            panic,
        )))
    });
    Answered { position, episode, action, reply }
}
