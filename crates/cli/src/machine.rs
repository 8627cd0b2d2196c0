//! A description of the machine and its devices, for tables of measurements.

use std::collections::BTreeSet;

use firebrick_device::{Name, Precision, describe, guard, open};

/// Names the devices, with what their drivers say of them, and counts the processor's cores.
pub(crate) fn machine(devices: impl IntoIterator<Item = Name>) -> String {
    // A set, because several recipes may name the same device.
    let devices: BTreeSet<String> = devices
        .into_iter()
        .map(|name| {
            let about = open(name, Precision::F32).ok().and_then(|device| {
                guard(|| describe(name, &device)).ok().map(|about| about.headline())
            });
            let about = about.unwrap_or_else(|| "not on this machine".into());
            format!("{name} ({about})")
        })
        .collect();
    let devices: Vec<String> = devices.into_iter().collect();

    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {cores} cores", devices.join(", "))
}
