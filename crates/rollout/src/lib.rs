//! Prompts in, groups of completions out.
//!
//! [`RolloutEngine`] is the seam: requests are submitted and groups polled for. [`Flight`] keeps the account
//! of what is asked, for whoever asks for more meanwhile; [`generate`] waits for all of them. [`LocalEngine`] samples with the weights that are being trained, in the same process;
//! [`Conversing`] lets the completions of
//! either talk with an environment; [`stream`] samples one completion for a listener; [`ScriptedEngine`] says what a test tells it to.
//!
//! To publish the weights, sample with them and then update them, one after the other, is the
//! trainer's way to use an engine, and one scheduler among possible ones. An engine knows no steps:
//! it may be asked for more while it decodes, and every completion is told by the version of its
//! weights.

mod conversation;
mod engine;
mod error;
mod flight;
mod generate;
mod local;
mod sampler;
mod scripted;
mod stream;

pub use conversation::{Conversing, Hearing, Turns, WIDTH};
pub use engine::{GroupRequest, RequestId, RolloutEngine, Wait};
pub use error::RolloutError;
pub use flight::{Flight, RETRIES};
pub use generate::generate;
pub use local::LocalEngine;
pub use sampler::{SampleOn, Sampling};
pub use scripted::ScriptedEngine;
pub use stream::{Streamed, stream};
