//! A data set of any bytes is read or refused: as Parquet if it begins as such, and as JSON Lines and as CSV
//! otherwise.
#![no_main]

use firebrick_data::{ColumnNames, SftColumns, read_problems, read_sft_rows};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    firebrick_fuzz::let_panics_be_caught();
    for (name, json_reference) in [("rows", false), ("rows", true), ("rows.csv", false)] {
        firebrick_fuzz::with_file(name, bytes, |path| {
            for deduplicate in [false, true] {
                let files = [path.to_owned()];
                let names = ColumnNames { json_reference, ..ColumnNames::default() };
                match read_problems(&files, &names, deduplicate) {
                    Ok(set) => assert!(!set.problems.is_empty() || set.conflicting > 0),
                    Err(error) => assert!(!error.to_string().is_empty()),
                }
            }

            match read_sft_rows(&[path.to_owned()], &SftColumns::default()) {
                Ok(rows) => assert!(!rows.is_empty()),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        });
    }
});
