//! Environments with which a policy talks between its turns.
//!
//! | environment | replies |
//! |---|---|
//! | [`Guessing`] | whether the secret number is larger or smaller than the policy's guess |
//! | [`Calculator`] | the value of the expression before `=` |
//! | [`OpenEnv`] | the words of a server elsewhere, which speaks OpenEnv over a WebSocket |
//!
//! The first two are examples, for users to read and for policies to learn on. A server's answers are untrusted, so
//! their sizes, their formats and the time that they take are bounded. A lost connection is opened again.

mod calculator;
mod guessing;
mod openenv;

pub use calculator::Calculator;
pub use guessing::Guessing;
pub use openenv::{OpenEnv, OpenEnvError, Settings, TaskSplits, Templates};
