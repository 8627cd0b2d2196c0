//! Memory that a test takes, if Linux tells.

use std::fs;

/// Resets the peak of the memory in use, and returns the memory in use now, in bytes.
pub fn reset_peak() -> Option<u64> {
    fs::write("/proc/self/clear_refs", "5").ok()?;
    peak()
}

/// Returns the most memory that was in use, in bytes.
pub fn peak() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? << 10)
}
