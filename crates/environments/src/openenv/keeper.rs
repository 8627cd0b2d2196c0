//! Keeps connections to environments' servers open while the policy thinks.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError, TryLockError, Weak,
        mpsc::{RecvTimeoutError, Sender, channel},
    },
    thread,
    time::Duration,
};

use super::session::{Session, Socket};

/// Time between two checks of the connections. Servers send a ping every 20 s, and close the connection after another
/// 20 s without an answer.
const EVERY: Duration = Duration::from_secs(5);

/// Answers the pings of servers on connections that are not being read. Its thread ends when the keeper is dropped.
pub(super) struct Keeper {
    sockets: Arc<Mutex<Vec<Weak<Mutex<Socket>>>>>,
    _until: Sender<()>,
}

impl Keeper {
    pub(super) fn new() -> io::Result<Self> {
        let sockets = Arc::<Mutex<Vec<Weak<Mutex<Socket>>>>>::default();
        let (_until, ended) = channel::<()>();
        let all = sockets.clone();

        let work = move || {
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(EVERY) {
                let mut sockets = all.lock().unwrap_or_else(PoisonError::into_inner);
                sockets.retain(|socket| socket.strong_count() > 0);
                let live: Vec<_> = sockets.iter().filter_map(Weak::upgrade).collect();
                // The list is unlocked while connections are read, because `keep` needs it.
                drop(sockets);

                for socket in live {
                    // A locked connection is being read.
                    match socket.try_lock() {
                        Ok(mut socket) => socket.answer_pings(),
                        Err(TryLockError::Poisoned(socket)) => socket.into_inner().answer_pings(),
                        Err(TryLockError::WouldBlock) => {}
                    }
                }
            }
        };

        thread::Builder::new().name("environment's pings".into()).spawn(work)?;
        Ok(Keeper { sockets, _until })
    }

    /// Keeps a connection alive for as long as it exists.
    pub(super) fn keep(&self, session: &Session) {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.push(Arc::downgrade(session.shared()));
    }
}
