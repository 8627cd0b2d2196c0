//! Times the maths verifier: how long does one judgement take?
//!
//! ```text
//! FIREBRICK_VERIFIER_DIR=… cargo bench -p firebrick-cli -p firebrick-benches --bench verify
//! cargo bench -p firebrick-cli -p firebrick-benches --bench verify -- length      a part of it
//! ```
//!
//! `suite/…` is the mean of one judgement over the rows of a case file in the folder that the variable names.
//! The rows are those that `firebrick score` reads. They are judged one after the other on one core, each by
//! the rule of its `config.mode`. `length/…` is one judgement of a long response: linear growth shows as equal
//! bytes per second. `batch/…` is the mean of one judgement within a batch on several threads.

#![expect(clippy::print_stderr, reason = "a bench says what it skips")]

use std::{
    fmt::Write as _,
    fs,
    hint::black_box,
    path::Path,
    time::{Duration, Instant},
};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use firebrick_cli::commands::score::{Row, Rule};
use firebrick_reward::math::Verifier;

criterion_group! {
    name = verify;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3));
    targets = suites, length, batch
}
criterion_main!(verify);

fn suites(criterion: &mut Criterion) {
    let Some(folder) = std::env::var_os("FIREBRICK_VERIFIER_DIR") else {
        eprintln!("skipped: suite: FIREBRICK_VERIFIER_DIR names no folder of case files");
        return;
    };

    let entries = fs::read_dir(folder).expect("FIREBRICK_VERIFIER_DIR is a folder");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("it can be listed").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();

    let mut group = criterion.benchmark_group("suite");
    for file in &files {
        let cases = cases(file);
        let name = file.file_stem().unwrap_or_default().to_string_lossy();

        if cases.is_empty() {
            eprintln!("skipped: {name} has no row that a verifier can judge");
            continue;
        }

        group.bench_function(&*name, |bencher| {
            bencher.iter_custom(|passes| per_case(&cases, passes));
        });
    }
    group.finish();
}

/// Times `passes` judgements, each as long as the mean over the cases.
fn per_case(cases: &[(Rule, Row)], passes: u64) -> Duration {
    let began = Instant::now();
    for _ in 0..passes {
        for (rule, row) in cases {
            black_box(rule.judge(black_box(&row.gold), black_box(&row.response)));
        }
    }
    began.elapsed().div_f64(cases.len() as f64)
}

fn cases(file: &Path) -> Vec<(Rule, Row)> {
    let text = fs::read(file).expect("the case file can be read");
    let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let rows = lines.map(|line| Row::parse(line).expect("a case file holds rows"));
    rows.filter_map(|row| Some((row.rule(None)?, row))).collect()
}

fn length(criterion: &mut Criterion) {
    let verifier = Verifier::default();
    let mut group = criterion.benchmark_group("length");

    for (name, end) in [
        ("box", "So the answer is \\boxed{\\frac{3}{4}}."),
        ("marker", "**Answer:** 3/4"),
        ("formula", "Together that is $\\frac{3}{4}$ of it."),
        ("nothing", ""),
    ] {
        for bytes in [10_000, 100_000, 1_000_000] {
            // A response without an answer has no number either that could be taken for one.
            let mut response = if end.is_empty() { letters(bytes) } else { working(bytes) };
            response += end;

            group.throughput(Throughput::Bytes(response.len() as u64));
            group.bench_with_input(
                BenchmarkId::new(name, bytes),
                &response,
                |bencher, response| {
                    bencher.iter(|| black_box(verifier.judge("0.75", black_box(response))));
                },
            );
        }
    }

    group.finish();
}

/// Writes prose with formulas, as a model does on the way to an answer.
fn working(bytes: usize) -> String {
    let mut text = String::new();
    for step in 1.. {
        if text.len() >= bytes {
            break;
        }
        let sum = step * (step + 1) / 2;
        writeln!(
            text,
            "Step {step}: we add $x_{{{step}}} = {step}$, which makes \\(\\sum_{{k=1}}^{{{step}}} k = \
             {sum}\\), or ${sum}.00 in all; see \\[\\frac{{{step}\\cdot{}}}{{2}} = {sum}.\\]",
            step + 1
        )
        .expect("writing to a String cannot fail");
    }

    text
}

fn letters(bytes: usize) -> String {
    let prose = "Nobody knows how this ends; let us think about it once more. ";
    prose.chars().cycle().take(bytes).collect()
}

fn batch(criterion: &mut Criterion) {
    let rows: Vec<(String, String)> = (0..4096u64)
        .map(|number| {
            let answer = match number % 4 {
                0 => format!("\\boxed{{{number}}}"),
                1 => format!("**Answer:** $\\frac{{{}}}{{2}}$", 2 * number),
                2 => format!("The final answer is $\\sqrt{{{}}}$.", number * number),
                _ => format!("#### {}", number + 1),
            };
            (number.to_string(), working(1000) + &answer)
        })
        .collect();
    let rows: Vec<(&str, &str)> =
        rows.iter().map(|(gold, response)| (&**gold, &**response)).collect();

    let verifier = Verifier::default();
    let mut group = criterion.benchmark_group("batch");
    for threads in [1, 2] {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .expect("this machine can start two threads");

        group.bench_function(BenchmarkId::new("threads", threads), |bencher| {
            bencher.iter_custom(|passes| {
                let began = Instant::now();
                for _ in 0..passes {
                    black_box(pool.install(|| verifier.judge_all(black_box(&rows))));
                }
                began.elapsed().div_f64(rows.len() as f64)
            });
        });
    }

    group.finish();
}
