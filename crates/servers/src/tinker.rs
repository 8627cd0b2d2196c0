//! Updates and rollouts on servers that speak Tinker's API: SkyRL, and others like it.
//!
//! Such a server has a base model and adapters. It computes log-probabilities, adds up gradients, takes steps of Adam,
//! and samples. [`TinkerModel`] is one adapter there, and [`TinkerEngine`] samples from it.
//!
//! The same call means different gradients on different servers, so nothing is believed that can be measured: before a
//! run, [`ServerTraits::measure`] moves adapters that nobody needs and looks where they went.
//!
//! A loss is never sent. [`TinkerModel::ascend`] takes a coefficient for each token, and sends it as
//! `importance_sampling` at a ratio of 1, whose gradient is −Σ cₜ · ∇log pₜ and which no clip bounds.
//!
//! Each request passes through three modules: `wire` has the messages, `client` posts them, repeats them and waits for
//! their results, and `session` keeps the server from forgetting.

mod archive;
mod client;
mod engine;
mod error;
mod handshake;
mod model;
mod session;
mod traits;
mod wire;

pub use archive::AdapterFiles;
pub use engine::TinkerEngine;
pub use error::TinkerError;
pub use model::{Adam, TinkerModel};
pub use session::{TinkerSession, TinkerSettings};
pub use traits::{Over, Reduction, ServerTraits};
pub use wire::Text;
