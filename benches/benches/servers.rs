//! Measures the groups that a pool of servers samples in a second: when two of four misbehave, and when those
//! two are not there.
//!
//! ```text
//! cargo bench -p firebrick-benches --bench servers
//! ```
//!
//! The servers are stubs of this process. Each works on 4 groups at once, and a group takes it 20 ms. A faulty
//! one fails at every group, or at every fourth, in nineteen ways in turn, silence among them. Prints the
//! seconds of 1,000 groups, five times in turn, and the medians of the ratios.

#![expect(clippy::print_stdout, reason = "a bench prints its result")]

use std::{
    error::Error,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use firebrick_rollout::{RolloutEngine as _, generate};
use firebrick_servers::{Dialect, ServerPool, Settings, WeightsKind};
use firebrick_stub::{Fault, Hashed, HashedWeights, Options, Stub, Wordless, requests, settings};

const GROUPS: u64 = 1000;
const WORK: (Duration, usize) = (Duration::from_millis(20), 4);

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("firebrick-servers-{}", std::process::id()));
    let mut ratios = [Vec::new(), Vec::new()];

    for round in 0..5 {
        let two = seconds(&folder.join(format!("{round}-two")), &[good(), good()])?;
        for (every, ratios) in [1, 4].into_iter().zip(&mut ratios) {
            let stubs = [good(), faulty(1), good(), faulty(every)];
            let four = seconds(&folder.join(format!("{round}-{every}")), &stubs)?;
            println!(
                "{two:.2} s on two servers, {four:.2} s on these, one that always fails, and one that fails at one of {every}"
            );
            ratios.push(two / four);
        }
    }

    std::fs::remove_dir_all(&folder)?;
    for (every, mut ratios) in [1, 4].into_iter().zip(ratios) {
        // The median of five is the third.
        ratios.sort_by(f64::total_cmp);
        println!("throughput over that of the two, with one of {every} failing: {:.2}", ratios[2]);
    }
    Ok(())
}

fn good() -> Stub {
    Stub::start(Hashed::new(1.0), Options { work: WORK, ..Options::default() })
}

/// Starts a server that fails at one group of every `every`.
fn faulty(every: u64) -> Stub {
    let fault = move |asked: u64| {
        let index = (asked / every) as usize % Fault::ALL.len();
        asked.is_multiple_of(every).then_some(Fault::ALL[index])
    };
    let options = Options { work: WORK, faults: Box::new(fault), ..Options::default() };
    Stub::start(Hashed::new(1.0), options)
}

fn seconds(folder: &Path, stubs: &[Stub]) -> Result<f64, Box<dyn Error>> {
    std::fs::create_dir_all(folder)?;
    let mut pool = pool(folder, stubs)?;
    pool.publish(&Hashed::new(1.0), 0)?;
    // The first groups wait for the weights, whose time does not count.
    generate(&mut pool, requests(8), &mut |_| {})?;

    let began = Instant::now();
    let groups = generate(&mut pool, requests(GROUPS), &mut |_| {})?;
    assert_eq!(groups.len() as u64, GROUPS);
    Ok(began.elapsed().as_secs_f64())
}

fn pool(folder: &Path, stubs: &[Stub]) -> Result<ServerPool<Hashed>, Box<dyn Error>> {
    let settings = Settings {
        patience: Duration::from_secs(60),
        pause: Duration::from_millis(500),
        ..settings(Dialect::Vllm, stubs.iter().map(Stub::base).collect())
    };
    let weights = HashedWeights::new(folder, WeightsKind::Model);
    Ok(ServerPool::new(settings, weights, Arc::new(Wordless), |_| {})?)
}
