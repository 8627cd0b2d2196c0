//! A judge's line of any bytes is a verdict with a credit from 0 to 1, or an error in words.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| firebrick_reward::fuzzing::judge(bytes));
