//! Options of the algorithm, defined and documented once: data, and what follows from the data alone.
//!
//! A recipe is composed of these types, and the algorithm computes by them. Their doc comments are the descriptions in
//! the recipe's JSON schema (feature `schema`) and in the book, so each one says what a user has to know and nothing
//! about the code.

mod adaptive;
mod curriculum;
mod family;
mod loss;
mod optim;
mod sampling;
mod update;

pub use adaptive::AdaptiveUpdates;
pub use curriculum::{CurriculumRule, PosteriorRule, VarianceRule};
pub use family::Family;
pub use loss::{Aggregation, DistillationLoss, GateLevel, KlEstimator, TisGate, TokenDivergence};
pub use optim::Moments;
pub use sampling::{Dynamic, OnCap};
pub use update::{OldLogprobs, SharePrompts};

/// Largest number of steps that an option may have.
pub const MAX_STEPS: u32 = 1_000_000_000;

/// Largest length in tokens that an option may have, and largest size of a list.
pub const MAX_SIZE: u32 = 1 << 24;
