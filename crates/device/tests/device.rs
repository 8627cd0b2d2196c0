//! The suite on one device: the device of `FIREBRICK_TEST_DEVICE`, or the CPU.
//!
//! If a device was asked for and does not exist, the test fails. Silence would hide that nothing was tested.

#![allow(clippy::print_stderr)] // the report is what a run is for

use firebrick_device::{Name, Precision, open, suite};

#[test]
fn device_suite() {
    let name = std::env::var("FIREBRICK_TEST_DEVICE").unwrap_or_else(|_| "cpu".into());
    let name: Name = name.parse().unwrap_or_else(|error| panic!("FIREBRICK_TEST_DEVICE: {error}"));
    let device =
        open(name, Precision::F32).unwrap_or_else(|error| panic!("{error}; {}", error.remedy()));
    let report = suite::run(name, &device, &suite::cases(), &mut |case| eprintln!("{case}"))
        .unwrap_or_else(|failure| panic!("{name}: {failure}"));
    assert!(report.passed, "{report}");
}
