//! The vocabulary of Firebrick: prompts, completions, groups, rewards, metrics and seeds, the traits that people
//! implement, and the options of the algorithm ([`config`]).
//!
//! Nothing here uses tensors, files or the network. So a crate that adds a verifier depends only on this crate and
//! compiles in seconds.
//!
//! ```
//! use firebrick_core::{Completion, Prompt, Score, Verifier};
//!
//! /// Pays for brevity, whatever was said.
//! struct Brief;
//!
//! impl Verifier for Brief {
//!     fn score(&self, _: &Prompt, completion: &Completion) -> Score {
//!         if completion.count() <= 8 { Score::right("") } else { Score::wrong("") }
//!     }
//! }
//! ```

mod advantage;
mod completion;
pub mod config;
pub mod device;
mod environment;
mod example;
mod failure;
mod group;
mod hub_name;
mod key;
mod metrics;
mod printable;
mod prompt;
mod reason;
mod reward;
mod rewarded_group;
mod run_name;
mod seed;
mod source;
mod text;
mod tracker;
mod trained;

pub use advantage::{AdvantageEstimator, Advantages};
pub use completion::{Completion, Detokenizer, FinishReason};
pub use environment::{Ended, Environment, EnvironmentFailed, Episode, Outcome, Reply, TaskCounts};
pub use example::SftExample;
pub use failure::{Cause, Failure, guard, guard_memory, silence_panics};
pub use group::Group;
pub use hub_name::{hub_name, is_data_file, is_hub_revision};
pub use key::Key;
pub use metrics::Metrics;
pub use printable::{counted, is_unseen, printable, printable_lines, short_numbers};
pub use prompt::{Prompt, Step, TokenId, Version};
pub use reason::Reason;
pub use reward::{
    Reward, RewardScale, RewardShaper, Score, Verdict, Verifier, VerifierFailed, score_each,
};
pub use rewarded_group::{GroupFilter, GroupStatus, RewardedGroup};
pub use run_name::{RunNameError, check_run_name};
pub use seed::{RandomStream, Seed};
pub use source::PromptSource;
pub use text::{text_from, without_bom};
pub use tracker::{TrackError, Tracker};
pub use trained::Trained;
