//! Devices by name, what they can do, and the suite that compares each with the CPU.
//!
//! A device is named as in `vulkan:0`: its [`Kind`], and which of that kind. [`list`] finds those
//! of this machine, [`open`] gives one of them and never another, [`name_of`] names it again, [`describe`] says what it is, and
//! [`suite`] runs what training runs, on the device and on the CPU, and compares.
//!
//! ```
//! use firebrick_device::{Name, Precision, describe, name_of, open};
//!
//! let name: Name = "cpu".parse()?;
//! let device = open(name, Precision::F32)?;
//! assert_eq!(name_of(&device), Some(name));
//! println!("{}", describe(name, &device).headline());
//! assert!("cpu:7".parse::<Name>().is_ok_and(|name| open(name, Precision::F32).is_err()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod describe;
pub mod drivers;
mod open;
mod precision;
mod report;
pub mod suite;

pub use describe::{Description, describe, gibibytes};
pub use firebrick_core::{
    Cause, Failure,
    device::{Kind, Name, ParseNameError},
    guard, keep_panics_quiet,
};
pub use open::{OpenError, compiled, list, missing, name_of, open};
pub use precision::{Precision, Tolerance};
pub use report::{CaseReport, Outcome, SuiteReport};
