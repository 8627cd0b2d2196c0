//! Views of a run, made from its database alone: nothing is sampled or judged again.
//!
//! [`report`] makes one HTML file of curves and completions, and [`PageServer`] serves the same page while the run
//! continues. [`tensorboard`] and [`wandb`] write the numbers in files for other viewers.

mod charts;
mod comparison;
mod curves;
mod error;
mod examples;
mod findings;
mod glance;
mod html;
mod index;
mod live;
mod page;
mod records;
mod run;
mod server;
mod settings;
pub mod tensorboard;
pub mod wandb;

pub use error::ViewError;
pub use page::report;
pub use records::EventLog;
pub use run::{Run, TokenTexts};
pub use server::PageServer;
