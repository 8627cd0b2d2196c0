//! Views of a run, made from its database alone: nothing is sampled or judged again.
//!
//! [`report`] makes one HTML file of curves and completions, and [`PageServer`] serves the same page while the run
//! continues. [`tensorboard`] and [`wandb`] write the numbers in files for other viewers.

mod charts;
mod curves;
mod draw;
mod error;
mod html;
mod index;
mod live;
mod page;
mod records;
mod run;
mod server;
pub mod tensorboard;
pub mod wandb;

pub use error::ViewError;
pub use page::report;
pub use records::EventLog;
pub use run::{Run, TokenTexts};
pub use server::PageServer;
