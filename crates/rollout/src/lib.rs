//! Rollouts: engines that take prompts and return groups of completions.
//!
//! [`RolloutEngine`] is the interface: requests are submitted and groups polled for. [`InFlight`] keeps track of the
//! requests if you submit more meanwhile, and [`generate`] waits for all of them. [`LocalEngine`] samples with the
//! weights that are being trained, in the same process. [`MultiTurnEngine`] lets the completions of any engine talk
//! with an environment. [`stream`] samples one completion for a listener. [`ScriptedEngine`] returns the completions
//! of a test.
//!
//! The trainer publishes the weights, samples with them and then updates them, one after the other. That is only one
//! possible scheduler. An engine knows no steps: it may get more requests while it decodes, and every completion
//! has the version of its weights.

mod conversation;
mod engine;
mod error;
mod generate;
mod in_flight;
mod local;
mod request;
mod sampler;
mod sampling;
mod scripted;
mod stream;

pub use conversation::{MultiTurnEngine, Renderer, Turns, WIDTH};
pub use engine::{RolloutEngine, Wait};
pub use error::RolloutError;
pub use generate::generate;
pub use in_flight::{InFlight, RETRIES};
pub use local::LocalEngine;
pub use request::{GroupRequest, RequestId};
pub use sampler::SampleOn;
pub use sampling::Sampling;
pub use scripted::ScriptedEngine;
pub use stream::{Streamed, stream};
