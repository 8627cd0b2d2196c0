//! Parsing of formulas, of pieces of formulas, and of any text.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    firebrick_math::fuzzing::parse(&String::from_utf8_lossy(bytes));
    firebrick_math::fuzzing::parse(&firebrick_fuzz::pieces(bytes));
    firebrick_math::fuzzing::parse(&firebrick_fuzz::formula(bytes));
});
