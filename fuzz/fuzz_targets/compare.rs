//! The comparison of two formulas is symmetric and reflexive, and the same by proof and by evaluation.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&cut, rest)) = bytes.split_first() else { return };
    let (a, b) = rest.split_at(usize::from(cut).min(rest.len()));
    let (a, b) = (firebrick_fuzz::formula(a), firebrick_fuzz::formula(b));
    firebrick_math::fuzzing::compare(&a, &b);
});
