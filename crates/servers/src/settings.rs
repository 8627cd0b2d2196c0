use std::time::Duration;

use firebrick_core::{Key, TokenId};

use crate::Dialect;

/// Says where the servers are, and how much is asked of them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The language that all of them speak.
    pub dialect: Dialect,
    /// Their addresses, such as `http://a:8000`; at least one.
    pub servers: Vec<String>,
    /// The word that lets the trainer in, if they ask for one.
    pub key: Option<Key>,
    /// Completions that a server works on at once, if a group has no more. Further groups wait here, and not in its queue.
    pub at_once: usize,
    /// The time that a group may take. What is not answered by then is asked for elsewhere.
    pub deadline: Duration,
    /// The time that a server may take to load weights.
    pub load_deadline: Duration,
    /// The time that a run waits while no server can be used, before it ends.
    pub patience: Duration,
    /// The time after which a group that a server has not answered may be asked for a second time, elsewhere: it is so when
    /// a server has nothing to do, and three times the slowest answer so far would have come by then.
    pub silence: Duration,
    /// The time before a server that failed is asked whether it is well; it doubles with each failure, up to a minute.
    pub pause: Duration,
    /// How far a server's log-probabilities may be from the trainer's for the same tokens, in nats: the mean of their
    /// distances. 1e-3 is far for float32; bfloat16 needs some 0.02.
    pub tolerance: f64,
    /// Sequences, each of at least two tokens, whose log-probabilities show which weights a server has.
    pub probes: Vec<Vec<TokenId>>,
    /// True where training samples are drawn at a temperature other than 1: log-probabilities are then looked at that come
    /// with samples of such a one.
    pub tempered: bool,
    /// Tokens that the policy knows: ids from 0 to below it.
    pub vocabulary: usize,
}
