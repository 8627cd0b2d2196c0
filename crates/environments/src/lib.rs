//! The environments that a policy talks with between its turns.
//!
//! | environment | replies |
//! |---|---|
//! | [`Guessing`] | whether the secret number is larger or smaller than the policy's guess |
//! | [`Calculator`] | the value of the expression before `=` |
//! | [`OpenEnv`] | the words of a server elsewhere, which speaks OpenEnv over a WebSocket |
//!
//! The first two are examples to learn from and to learn on. A server's answers come from a stranger: their
//! sizes, their forms and the time that they take are bounded, and a connection that is lost is made again.

mod calculator;
mod guessing;
mod openenv;

pub use calculator::Calculator;
pub use guessing::Guessing;
pub use openenv::{OpenEnv, OpenEnvError, Settings, Words};
