//! Devices by name, what they can do, and the suite that compares each with the CPU.
//!
//! A device is named as in `vulkan:0`: its [`Kind`], and which of that kind. [`list`] finds those
//! of this machine, [`open`] gives one of them and never another, [`describe`] says what it is, and
//! [`suite`] runs what training runs, on the device and on the CPU, and compares.

mod describe;
mod failure;
mod open;
mod precision;
mod report;
pub mod suite;

pub use describe::{Description, describe, gibibytes};
pub use failure::{Cause, Failure, guard, keep_panics_quiet};
pub use firebrick_core::device::{Kind, Name, ParseNameError};
pub use open::{OpenError, compiled, list, missing, open};
pub use precision::{Precision, Tolerance};
pub use report::{CaseReport, Outcome, SuiteReport};
