//! The commands of the program `firebrick`, and what they show: lines, bars, tables and figures.
//!
//! [`commands`] are the program's, one file each; [`compare`] puts runs beside each other, [`inspect`] says
//! what a model folder holds, [`terminal`] shows a run while it goes, [`Message`] an error. Everything that
//! trains is the library's, the crate `firebrick`: it does the same in a program of one's own, which may show
//! its runs by [`terminal::Terminal`] too:
//!
//! ```no_run
//! use firebrick::{Recipe, Session};
//! use firebrick_cli::{bars::Bars, terminal::Terminal};
//!
//! let recipe = Recipe::read("recipes/quickstart.toml")?;
//! let screen = Box::new(std::io::stderr());
//! let terminal = Terminal::new(screen, Bars::on_stderr(), true, recipe.recipe.train.steps);
//! Session::new(recipe).watcher(terminal).run()?;
//! # Ok::<(), firebrick::Error>(())
//! ```

mod answer;
pub mod bars;
mod closing;
pub mod commands;
pub mod compare;
#[cfg(feature = "tui")]
mod dashboard;
mod error;
mod glob;
pub mod inspect;
mod json;
mod message;
mod names;
mod shell;
pub mod terminal;
mod version;

pub use error::ProgramError;
pub use message::Message;
