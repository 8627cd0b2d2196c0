//! Firebrick trains language models to reason, by reinforcement learning with verifiable rewards.
//!
//! [`Session`] is the entry point: it turns a recipe into a trained policy, and a program may replace any part with its
//! own. The program `firebrick train` is one caller of it.
//!
//! ```no_run
//! use firebrick::{Recipe, Session};
//!
//! let run = Session::new(Recipe::read("recipes/quickstart.toml")?).run()?;
//! println!("{:?}", run.summary.heldout);
//! # Ok::<(), firebrick::Error>(())
//! ```
//!
//! Only this crate builds things from a recipe. [`recipe`] says what to do, [`source`] finds the models and
//! data that it names, [`plan`] works out the memory, and [`build`] builds the run. [`Session`] begins the run
//! in its folder or continues it, and reports to a [`Watcher`]. [`card`] describes the result, and
//! [`resume`] says what a resumed run may change in its recipe.
//!
//! The crate has no terminal, arguments or signals: those belong to the program, in the crate `firebrick-cli`. The
//! crates that it is made of are modules here, so your program depends only on this crate. Traits that people implement
//! are at its root.

pub mod bench;
pub mod build;
mod cancellable;
pub mod card;
mod custom_parts;
pub mod device;
pub mod diagnose;
pub mod differences;
mod error;
mod files;
pub mod follow;
mod journal;
mod layout;
pub mod model;
pub mod plan;
mod publish;
mod published;
mod rates;
pub mod replay;
pub mod resume;
mod run;
mod session;
pub mod source;
mod thousands;
pub mod trial;
mod watch;

pub use burn;
pub use custom_parts::{CustomPart, OwnPolicy};
pub use error::Error;
pub use files::{FileFormat, HuggingFace, Parameters, PolicyFiles};
pub use run::{Finished, HELDOUT_PROMPTS, INTERRUPTED, Steps, is_done, reason};
pub use session::Session;
pub use source::recipe_of_run;
pub use thousands::thousands;
pub use watch::{Example, Stage, Watcher};

pub use firebrick_core::{
    AdvantageEstimator, Advantages, Completion, Detokenizer, Environment, EnvironmentFailed,
    Episode, FinishReason, Group, GroupFilter, Metrics, Outcome, Prompt, PromptSource, Reply,
    Reward, RewardScale, RewardShaper, RewardedGroup, Score, Seed, SftExample, Step, TokenId,
    TrackError, Tracker, Trained, Verdict, Verifier, Version,
};
pub use firebrick_data as data;
pub use firebrick_environments as environments;
pub use firebrick_models as models;
pub use firebrick_models::{DecodeCache, PolicyModel};
pub use firebrick_recipe as recipe;
pub use firebrick_recipe::Recipe;
pub use firebrick_reward as reward;
pub use firebrick_rollout as rollout;
pub use firebrick_rollout::RolloutEngine;
pub use firebrick_runs as runs;
pub use firebrick_runs::Summary;
pub use firebrick_servers as servers;
pub use firebrick_train as train;
pub use firebrick_train::{
    Learner,
    algorithm::{LrSchedule, PolicyLoss},
    learner::Optimizer,
};

/// Result of a session.
pub type Result<T, E = Error> = std::result::Result<T, E>;
