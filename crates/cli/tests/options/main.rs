//! Every option of the recipe's schema, and every choice of every option, does what it says in a run of
//! `firebrick train`.
//!
//! A case tries some options in a run of a fraction of a second, and shows their effect: by a formula over the
//! run's records, or against the same run without the options. A new option needs a case: `every_option_is_tried`
//! names the options of the schema that no case tries.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]
#![allow(clippy::print_stderr, reason = "a failing test shows it")]

mod adaptive;
mod bench;
mod checkpoint;
#[cfg(target_os = "linux")]
mod code;
mod critic;
mod curriculum;
mod data;
mod engine;
mod environment;
mod judge;
mod judges;
mod loss;
mod made;
mod model;
mod optim;
mod reward;
mod run;
mod sampling;
mod schema;
#[path = "../scratch/mod.rs"]
mod scratch;
mod sft;
mod teacher;
mod verifiers;

use std::collections::BTreeSet;

use bench::Case;

/// Returns the cases of all tables.
fn cases() -> impl Iterator<Item = &'static Case> {
    [
        run::CASES,
        checkpoint::CASES,
        model::CASES,
        #[cfg(target_os = "linux")]
        code::CASES,
        data::CASES,
        engine::CASES,
        environment::CASES,
        sft::CASES,
        sampling::CASES,
        curriculum::CASES,
        reward::CASES,
        judge::CASES,
        judges::CASES,
        judges::PYTHON_CASES,
        loss::CASES,
        critic::CASES,
        teacher::CASES,
        optim::CASES,
        adaptive::CASES,
    ]
    .into_iter()
    .flatten()
}

#[test]
fn every_option_is_tried() {
    let schema = firebrick::recipe::Recipe::schema();
    let verifiers = [
        verifiers::JUDGED,
        #[cfg(target_os = "linux")]
        code::CODE,
        #[cfg(target_os = "linux")]
        code::SANDBOXED,
    ];
    let verifiers = verifiers.into_iter().flatten().map(|judged| judged.tries);

    let tried: BTreeSet<String> = cases()
        .map(|case| case.tries)
        .chain(verifiers)
        .flat_map(|tries| schema::named(&schema, tries))
        .collect();

    let all = schema::all(&schema);
    let missing: Vec<&String> = all.difference(&tried).collect();
    assert!(missing.is_empty(), "no case in tests/options tries {missing:#?}");
    assert!(all.len() > 200, "the schema was not read: {all:?}");
}
