//! Firebrick trains language models to reason, by reinforcement learning with verifiable rewards.
//!
//! This crate is the program, and the one place where a recipe is read and things are built from
//! it: [`recipe`] says what to do, [`source`] finds what it names, [`plan`] says what memory that takes,
//! [`wire`] builds it, [`run`] does it, [`card`] describes the result, [`resume`] says what it may do
//! otherwise the second time, [`compare`] puts runs beside each other, [`inspect`] says what a model
//! folder holds, [`commands`] are the program's.

pub mod bars;
pub mod card;
mod closing;
pub mod commands;
pub mod compare;
mod device;
mod error;
pub mod inspect;
mod message;
pub mod model;
pub mod plan;
pub mod resume;
pub mod run;
pub mod source;
pub mod terminal;
mod thousands;
pub mod train;
pub mod watch;
pub mod wire;

pub use burn;
pub use error::ProgramError;
pub use firebrick_recipe as recipe;
pub use message::Message;
pub use thousands::thousands;
