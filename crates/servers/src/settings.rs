//! The settings of a pool of inference servers: addresses, loads and time limits.

use std::time::Duration;

use firebrick_core::{Key, TokenId};

use crate::Dialect;

/// The addresses of the servers, and the work that they are asked for.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The language that all servers speak.
    pub dialect: Dialect,
    /// The addresses of the servers, such as `http://a:8000`; at least one.
    pub servers: Vec<String>,
    /// The key that lets the trainer in, if the servers ask for one.
    pub key: Option<Key>,
    /// The number of completions that a server works on at once, unless a single group has more. Further
    /// groups wait in the pool, and not in the server's queue.
    pub at_once: usize,
    /// The time that a group may take. A group that is not answered by then is asked for elsewhere.
    pub deadline: Duration,
    /// The time that a server may take to load weights.
    pub load_deadline: Duration,
    /// The time that a run waits while no server can be used, before it ends.
    pub patience: Duration,
    /// The time after which a group that a server has not answered may be asked for a second time, elsewhere.
    /// This happens if another server has nothing to do, and three times the slowest answer so far would have
    /// come by then.
    pub silence: Duration,
    /// The time before a server that failed is asked whether it is well. It doubles with each failure, up to
    /// a minute.
    pub pause: Duration,
    /// The largest distance of a server's log-probabilities from the trainer's for the same tokens, in nats:
    /// the mean over the tokens. 1e-3 is far for float32; bfloat16 needs some 0.02.
    pub tolerance: f64,
    /// The sequences, each of at least two tokens, whose log-probabilities show which weights a server has.
    pub probes: Vec<Vec<TokenId>>,
    /// True if training samples are drawn at a temperature other than 1. Log-probabilities that come with
    /// samples are then checked at such a temperature.
    pub tempered: bool,
    /// The number of tokens that the policy knows: ids from 0 to below it.
    pub vocabulary: usize,
}
