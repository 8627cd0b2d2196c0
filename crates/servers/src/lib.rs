//! Rollouts on inference servers that exist: vLLM and SGLang, many of them, some of them broken.
//!
//! [`ServerPool`] is a [`RolloutEngine`](firebrick_rollout::RolloutEngine). It sends token ids and takes token ids with
//! their log-probabilities, never text. A group goes to one server, which keeps its prompt in memory for all of its
//! completions. A group that is lost is asked for elsewhere, with the same seed.
//!
//! Weights reach the servers as a folder ([`Weights`]). A server samples with them only after it has shown that its
//! log-probabilities are the trainer's: some answer 200 to a reload and go on with other weights.
//!
//! An answer is a stranger's: its size, its counts, its ids and its numbers are checked before anyone uses them.
//!
//! The way of a request: `pool` chooses a server, `dialect` says it in the server's words, `http` carries it, `answer`
//! checks what comes back. `handshake` gives weights to one server.

mod answer;
mod dialect;
mod error;
mod handshake;
mod http;
mod member;
mod pool;
mod settings;
mod sglang;
mod vllm;
mod weights;

pub use dialect::Dialect;
pub use error::{PoolError, ServerError};
pub use pool::ServerPool;
pub use settings::Settings;
pub use weights::{Form, Weights};
