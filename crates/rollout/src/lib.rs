//! Prompts in, groups of completions out.
//!
//! [`RolloutEngine`] is the seam; [`LocalEngine`] samples with the weights that are being trained,
//! in the same process; [`stream`] samples one completion for a listener; [`ScriptedEngine`] says
//! what a test tells it to.

mod engine;
mod local;
mod sampler;
mod scripted;
mod stream;

pub use engine::{GroupRequest, RolloutEngine, RolloutError};
pub use local::LocalEngine;
pub use sampler::{SampleOn, Sampling, sample_on_device, sample_on_host};
pub use scripted::ScriptedEngine;
pub use stream::{Streamed, stream};
