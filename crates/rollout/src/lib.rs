//! Prompts in, groups of completions out.
//!
//! [`RolloutEngine`] is the seam; [`LocalEngine`] samples with the weights that are being trained,
//! in the same process; [`ScriptedEngine`] says what a test tells it to.

mod engine;
mod local;
mod sampler;
mod scripted;

pub use engine::{GroupRequest, RolloutEngine, RolloutError};
pub use local::LocalEngine;
pub use sampler::{SampleOn, Sampling, sample_on_device, sample_on_host};
pub use scripted::ScriptedEngine;
