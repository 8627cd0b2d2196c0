//! Asks an environment for the replies to many turns at once.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

use firebrick_core::{Environment, EnvironmentFailed, Episode, Prompt, Reply, guard};

use super::{Place, WIDTH};

/// The time in which a game that is played in this process answers everything.
const A_MOMENT: Duration = Duration::from_millis(1);

/// A turn that waits for its reply.
pub(super) struct Spoken {
    pub(super) place: Place,
    /// The prompt of an episode that is to begin.
    pub(super) prompt: Option<Prompt>,
    pub(super) episode: Option<Box<dyn Episode>>,
    pub(super) action: String,
}

/// A turn with its reply.
pub(super) struct Answered {
    pub(super) place: Place,
    pub(super) episode: Option<Box<dyn Episode>>,
    pub(super) action: String,
    pub(super) reply: Result<Reply, EnvironmentFailed>,
}

/// Turns that wait for their replies together.
pub(super) struct Exchange {
    replies: Receiver<(usize, Answered)>,
    /// The replies that have come, in the order in which they were asked for.
    answered: Vec<Option<Answered>>,
    left: usize,
}

impl Exchange {
    /// Asks for all replies, on threads that end with the last reply. A single thread does it if that takes
    /// only a moment.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn begin(
        environment: &Arc<dyn Environment>,
        spoken: Vec<Spoken>,
    ) -> io::Result<Self> {
        let left = spoken.len();
        let asked = Arc::new(Mutex::new(spoken.into_iter().enumerate()));
        let (answer, replies) = channel();
        let answered = (0..left).map(|_| None).collect();
        let mut exchange = Exchange { replies, answered, left };
        for thread in 0..left.min(WIDTH) {
            let (asked, answer) = (asked.clone(), answer.clone());
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
                // Fewer threads do it too.
                Err(_) if thread > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(exchange)
    }

    /// Gives all replies, in the order in which they were asked for; `None` while one is missing.
    pub(super) fn wait(&mut self, at_most: Duration) -> Option<Vec<Answered>> {
        let complete = self.is_complete(at_most);
        complete.then(|| std::mem::take(&mut self.answered).into_iter().flatten().collect())
    }

    /// Takes in the replies that have come, and waits for the others for `at_most`.
    fn is_complete(&mut self, at_most: Duration) -> bool {
        let until = Instant::now() + at_most;
        while self.left > 0 {
            match self.replies.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok((index, answered)) => {
                    self.answered[index] = Some(answered);
                    self.left -= 1;
                }
                Err(RecvTimeoutError::Timeout) => return false,
                // Every thread answers all turns that it takes, so no reply is missing.
                Err(RecvTimeoutError::Disconnected) => self.left = 0,
            }
        }
        true
    }
}

/// Gives the environment's answer to a turn; a panic counts as an episode that failed.
fn reply(environment: &dyn Environment, spoken: Spoken) -> Answered {
    let Spoken { place, prompt, mut episode, action } = spoken;
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
        Err(EnvironmentFailed::Episode(format!("the environment panicked: {panic}")))
    });
    Answered { place, episode, action, reply }
}
