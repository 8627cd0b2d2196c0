//! Rollouts on a pool of inference servers, vLLM or SGLang, some of which may be broken.
//!
//! [`ServerPool`] is a [`RolloutEngine`](firebrick_rollout::RolloutEngine). It sends token ids and takes
//! token ids with their log-probabilities, never text. A group goes to one server, which keeps the prompt in
//! memory for all of the group's completions. A group that is lost is asked for elsewhere, with the same
//! seed.
//!
//! Weights reach the servers as a folder ([`Weights`]). A server samples with them only after it has shown
//! that its log-probabilities are the trainer's. Some servers answer 200 to a reload and continue with other
//! weights.
//!
//! An answer comes from a stranger: its size, its counts, its ids and its numbers are checked before anyone
//! uses them.
//!
//! A request goes this way: `pool` chooses a server, `dialect` says it in the server's words, `http` carries
//! it, and `answer` checks the reply. `handshake` gives weights to one server.

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
