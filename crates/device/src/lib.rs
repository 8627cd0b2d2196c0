//! Devices by name, what they can do, and the suite that compares each with the CPU.
//!
//! A device has a name such as `vulkan:0`: its [`Kind`], and its number among the devices of that kind. [`list`] finds
//! the devices of this machine. [`open`] opens the device of a name and never another, and [`name_of`] returns a
//! device's name. [`describe`] reports what a device can do. [`suite`] runs the work of training on the device and on
//! the CPU, and compares the two.
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
    guard, silence_panics,
};
pub use open::{OpenError, compiled, list, missing, name_of, open};
pub use precision::{Precision, Tolerance};
pub use report::{CaseReport, Outcome, SuiteReport, Verdicts};
