//! A data set of any bytes is read or refused: as Parquet if it begins as such, and as JSON Lines otherwise.
#![no_main]

use firebrick_data::{ColumnNames, read_problems};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    firebrick_fuzz::let_panics_be_caught();
    firebrick_fuzz::with_file("rows", bytes, |path| {
        for deduplicate in [false, true] {
            let files = [path.to_owned()];
            match read_problems(&files, &ColumnNames::default(), deduplicate) {
                Ok(set) => assert!(!set.problems.is_empty() || set.conflicting > 0),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    });
});
