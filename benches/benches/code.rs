//! Times the verifier that runs programs: how many does it judge in a second?
//!
//! ```text
//! cargo bench -p firebrick-benches --bench code
//! ```
//!
//! Each measurement judges 64 right programs, on all threads. `calls` and `asserts` have four tests of a function in
//! Python, and `streams` has one input. `bwrap` has the sandbox, and `none` has not. `FIREBRICK_PYTHON` names another
//! interpreter.

#![expect(clippy::print_stderr, reason = "a bench says what it skips")]

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use firebrick_core::{Completion, Prompt, Verdict, Verifier as _};
use firebrick_reward::{Code, CodeOptions, SandboxKind};

criterion_group! {
    name = code;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(5));
    targets = programs
}
criterion_main!(code);

const CASES: [(&str, &str, &str); 3] = [
    (
        "calls",
        r#"{"inputs": [[0], [1], [2], [5]], "outputs": [1, 3, 5, 11], "fn_name": "f"}"#,
        "def f(x): return 2*x+1",
    ),
    (
        "asserts",
        r#"["assert f(0) == 1", "assert f(1) == 3", "assert f(2) == 5", "assert f(5) == 11"]"#,
        "def f(x): return 2*x+1",
    ),
    ("streams", r#"{"inputs": ["5"], "outputs": ["11"]}"#, "print(2*int(input())+1)"),
];

fn programs(criterion: &mut Criterion) {
    const COUNT: usize = 64;
    let python = std::env::var("FIREBRICK_PYTHON").unwrap_or_else(|_| "python3".into());
    for (sandbox, name) in [(SandboxKind::Bwrap, "bwrap"), (SandboxKind::None, "none")] {
        let options = CodeOptions {
            python: python.clone(),
            bare: Some(true),
            sandbox,
            ..CodeOptions::default()
        };
        let code = match Code::new(options) {
            Ok(code) => code,
            Err(why) => {
                eprintln!("skipped: {name}: {why}");
                continue;
            }
        };

        let mut group = criterion.benchmark_group(name);
        for (case, tests, program) in CASES {
            let prompt = Prompt { reference: tests.into(), ..Prompt::default() };
            // Equal programs would be run once.
            let different = |index| Completion::of_text(format!("{program} # {index}"));
            let completions: Vec<Completion> = (0..COUNT).map(different).collect();
            let pairs: Vec<_> =
                completions.iter().map(|completion| (&prompt, completion)).collect();
            group.throughput(Throughput::Elements(COUNT as u64));
            group.bench_function(BenchmarkId::from_parameter(case), |bencher| {
                bencher.iter(|| {
                    let scores = code.score_all(&pairs).expect("programs can be run");
                    assert!(scores.iter().all(|score| score.verdict == Verdict::Right));
                });
            });
        }
        group.finish();
    }
}
