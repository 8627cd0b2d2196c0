//! Firebrick trains language models to reason, by reinforcement learning with verifiable rewards.
//!
//! This crate is the one place where things are built from a recipe: [`recipe`] says what to do,
//! [`source`] finds what it names, [`plan`] says what memory that takes, [`wire`] builds it, [`train`]
//! begins it in its folder or goes on with it, [`run`] does it and tells a [`Watcher`] how it goes, [`card`]
//! describes the result, [`resume`] says what it may do otherwise the second time.
//!
//! It has no terminal, arguments or signals: those are the program's, in the crate `firebrick-cli`.

pub mod card;
pub mod device;
mod error;
pub mod model;
pub mod plan;
pub mod resume;
pub mod run;
pub mod source;
mod thousands;
pub mod train;
mod watch;
pub mod wire;

pub use burn;
pub use error::Error;
pub use firebrick_recipe as recipe;
pub use thousands::thousands;
pub use watch::{Stage, Watcher};
