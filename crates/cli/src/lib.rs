//! Commands of the program `firebrick`, and their output: lines, bars, tables and figures.
//!
//! [`commands`] has the program's commands, one file each. [`compare`] puts runs next to each other, [`inspect`]
//! describes a model folder, [`terminal`] shows a run while it is running, and [`Message`] shows an error. The
//! library, the crate `firebrick`, does all the training. It does the same in a program of your own, which may
//! show its runs with [`terminal::Terminal`] too:
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
pub mod limits;
mod machine;
mod message;
mod names;
mod out;
pub mod terminal;
mod version;
mod width;

pub use error::ProgramError;
pub use message::Message;
