//! Settings of a pool of inference servers: addresses, loads and time limits.

use std::time::Duration;

use firebrick_core::{Key, TokenId};

use crate::Dialect;

/// Where the servers are, and how much work they get.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Protocol of all servers.
    pub dialect: Dialect,
    /// Addresses of the servers, such as `http://a:8000`; at least one.
    pub servers: Vec<String>,
    /// Key for access to the servers, if they ask for one.
    pub key: Option<Key>,
    /// Number of completions that a server works on concurrently, unless a single group has more. Further groups wait
    /// in the pool, and not in the server's queue.
    pub at_once: usize,
    /// How long a group may take. A group that is not answered by then is requested elsewhere.
    pub deadline: Duration,
    /// How long a server may take to load weights.
    pub load_deadline: Duration,
    /// How long a run waits while no server can be used, before it ends.
    pub patience: Duration,
    /// When a group that a server has not answered may be requested a second time, elsewhere. This happens if another
    /// server has nothing to do, and three times the time of the slowest answer so far has passed.
    pub silence: Duration,
    /// How long a server that failed gets no requests before its health is checked. The time doubles with each failure,
    /// up to a minute.
    pub pause: Duration,
    /// Largest distance of a server's log-probabilities from the trainer's for the same tokens, in nats: the mean over
    /// the tokens. 1e-3 is far for float32; bfloat16 needs some 0.02.
    pub tolerance: f64,
    /// Sequences, each of at least two tokens, whose log-probabilities show which weights a server has.
    pub probes: Vec<Vec<TokenId>>,
    /// Whether training samples are drawn at a temperature other than 1. Log-probabilities that come with samples are
    /// then checked at such a temperature.
    pub tempered: bool,
    /// Size of the policy's vocabulary: ids start at 0 and are below it.
    pub vocabulary: usize,
}
