//! A GGUF file of any bytes is read or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    firebrick_fuzz::with_file("model.gguf", bytes, firebrick_gguf::fuzzing::open);
});
