//! Extraction from any text, and from texts made of the pieces of answers.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    firebrick_math::fuzzing::extract(&String::from_utf8_lossy(bytes));
    firebrick_math::fuzzing::extract(&firebrick_fuzz::pieces(bytes));
});
