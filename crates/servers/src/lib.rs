//! Rollouts on a pool of inference servers, vLLM or SGLang, some of which may be broken.
//!
//! [`ServerPool`] is a [`RolloutEngine`](firebrick_rollout::RolloutEngine). It sends token ids and receives token ids
//! with their log-probabilities, never text. A group is sent to one server, which keeps the prompt in memory for all of
//! the group's completions. A group that is lost is requested elsewhere, with the same seed.
//!
//! Weights reach the servers as a folder ([`Weights`]). A server samples with them only after it has shown that its
//! log-probabilities are the trainer's, because some servers answer 200 to a reload and continue with other weights.
//!
//! Answers are untrusted, so their size, counts, ids and numbers are checked before they are used.
//!
//! [`TinkerModel`] is a policy that a server updates, and [`TinkerEngine`] samples from it.
//!
//! [`ChatJudge`] is a verifier: it asks a language model about a completion. [`Scorers`] ask servers of another model,
//! which is not trained, for the log-probabilities of given tokens.
//!
//! Each request passes through four modules: `pool` chooses a server, `dialect` translates the request to the server's
//! protocol, `http` sends it, and `answer` checks the reply. `handshake` transfers weights to one server.

mod answer;
mod connect;
mod dialect;
mod errands;
mod error;
mod handshake;
mod http;
mod judge;
mod member;
mod pool;
mod scorer;
mod settings;
mod sglang;
mod tinker;
mod vllm;
mod weights;

pub use dialect::Dialect;
pub use error::{PoolError, ServerError};
pub use judge::{AnswerForm, Answers, ChatJudge, JudgeSettings, Rubric, TRIAL, fence};
pub use pool::ServerPool;
pub use scorer::Scorers;
pub use settings::Settings;
pub use tinker::{
    Adam, AdapterFiles, Over, Reduction, ServerTraits, Text, TinkerEngine, TinkerError,
    TinkerModel, TinkerSession, TinkerSettings,
};
pub use weights::{Weights, WeightsKind};
