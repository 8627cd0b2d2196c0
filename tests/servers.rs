//! A pool of inference servers meets servers that misbehave: nothing is lost, nothing comes twice, and every
//! answer is what a good server would have said.

#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use firebrick_core::{Completion, Key, TokenId};
use firebrick_rollout::{GroupRequest, RolloutEngine, RolloutError, Wait, generate};
use firebrick_servers::{Dialect, PoolError, Scorers, ServerPool, Settings, WeightsKind};
use firebrick_stub::{Fault, Hashed, HashedWeights, Options, Stub, StubModel, requests, settings};
use firebrick_tests::tiny::numbers;
use tempfile::TempDir;

const POLICY: Hashed = Hashed { weights: 1.0, vocabulary: 32 };

#[test]
fn a_thousand_groups_come_once_each_although_two_of_four_servers_misbehave() {
    let work = (Duration::from_millis(4), 4);
    let good = || Stub::start(POLICY, Options { work, ..Options::default() });
    let faulty = |every: u64| {
        let fault = move |asked: u64| {
            let index = (asked / every) as usize % Fault::ALL.len();
            asked.is_multiple_of(every).then_some(Fault::ALL[index])
        };
        Stub::start(POLICY, Options { work, faults: Box::new(fault), ..Options::default() })
    };

    // One server fails at every group, in all ways. The other fails at every fourth, so it is hard to tell from a
    // good one.
    let stubs = [good(), faulty(1), good(), faulty(4)];
    let mut setup = Setup::new(&stubs, Dialect::Vllm);
    let mut heard = 0;
    let groups = setup.sample(requests(1000), &mut |count| heard += count);

    assert_eq!(groups.len(), 1000);
    assert_eq!(heard, 4000, "completions are told once");
    let alone = Setup::new(&[good()], Dialect::Vllm).sample(requests(1000), &mut |_| {});
    assert!(groups == alone, "a group is another where it comes from another server");
    let different: BTreeSet<&Vec<TokenId>> =
        groups.values().flatten().map(|completion| &completion.tokens).collect();
    assert!(different.len() > 3000, "{} different completions", different.len());

    let answered = stubs.each_ref().map(Stub::answered);
    assert!(answered[0] > 200 && answered[2] > 200, "groups by server: {answered:?}");
    assert!(stubs.iter().all(|stub| !stub.seen().paused));
    // A server may still work on what the pool no longer waits for. On a busy machine even a good one is
    // silent for too long at times.
    for stub in [&stubs[0], &stubs[2]] {
        let count = stub.seen().most_at_once;
        let ended = stub.seen().aborted.len();
        assert!((2..=8 + ended).contains(&count), "{count} at once, {ended} given up");
    }

    let notes = setup.notes();
    let aside = |line: &String| {
        line.contains(&stubs[1].base()) && line.contains(" is not used: ")
            || line.contains("is set aside for a while")
    };
    assert!(notes.iter().any(aside), "{notes:?}");
}

#[test]
fn texts_are_scored_in_order_although_a_server_misbehaves() {
    let texts: Vec<Vec<TokenId>> = (0..200u32)
        .map(|text| (0..2 + text % 30).map(|at| (text * 7 + at * at) % 32).collect())
        .collect();
    let right: Vec<Vec<f32>> = texts.iter().map(|text| { POLICY }.score(text)).collect();
    let scorers = |stubs: &[Stub], dialect, patience| {
        let servers: Vec<String> = stubs.iter().map(Stub::base).collect();
        let deadline = Duration::from_millis(500);
        Scorers::new(dialect, &servers, None, deadline, Duration::from_secs(patience), drop)
            .unwrap()
    };
    let start = |score_faults: fn(u64) -> Option<Fault>| {
        Stub::start(POLICY, Options { score_faults: Box::new(score_faults), ..Options::default() })
    };

    const FAULTS: [Fault; 6] = [
        Fault::Status(500),
        Fault::Status(429),
        Fault::Nonsense,
        Fault::NotANumber,
        Fault::Drop,
        Fault::Hang,
    ];
    for dialect in [Dialect::Vllm, Dialect::Sglang] {
        let stubs = [start(|_| None), start(|asked| Some(FAULTS[asked as usize % FAULTS.len()]))];
        let scored = scorers(&stubs, dialect, 60).score(texts.clone(), &|| false).unwrap().unwrap();
        assert!(scored == right, "{dialect:?}");
    }

    // A server that fails every second time is asked again.
    let stub = [start(|asked| asked.is_multiple_of(2).then_some(Fault::Status(500)))];
    assert_eq!(
        scorers(&stub, Dialect::Vllm, 60).score(texts[..3].to_vec(), &|| false).unwrap().unwrap(),
        right[..3]
    );

    // Nobody answers, or the text itself is refused, or the run is interrupted.
    let fails = |fault: fn(u64) -> Option<Fault>, patience| {
        let began = Instant::now();
        let failed =
            scorers(&[start(fault)], Dialect::Vllm, patience).score(texts.clone(), &|| false);
        let Err(PoolError::NotScored { source, .. }) = failed else { panic!("{failed:?}") };
        (source.to_string(), began.elapsed())
    };
    let (why, took) = fails(|_| Some(Fault::Status(500)), 1);
    assert!(why.contains("status 500") && took < Duration::from_secs(10), "{why} {took:?}");
    let (why, took) = fails(|_| Some(Fault::Status(400)), 600);
    assert!(why.contains("refuses") && took < Duration::from_secs(10), "{why} {took:?}");
    let stub = [start(|_| Some(Fault::Status(500)))];
    assert!(scorers(&stub, Dialect::Vllm, 600).score(texts.clone(), &|| true).unwrap().is_none());
}

#[test]
fn each_fault_is_survived_in_either_dialect() {
    for dialect in [Dialect::Vllm, Dialect::Sglang] {
        let alone = setup_of(vec![Options::default()], dialect).sample(requests(12), &mut |_| {});
        for fault in Fault::ALL {
            // SGLang's answers have no indices, so a double looks like one more completion.
            if dialect == Dialect::Sglang && fault == Fault::Duplicate {
                continue;
            }

            // The server is well while it is given weights, and never after that.
            let fault = move |asked| (asked >= PROBES).then_some(fault);
            let always = Options { faults: Box::new(fault), ..Options::default() };
            let mut setup = setup_of(vec![always, Options::default()], dialect);
            let groups = setup.sample(requests(12), &mut |_| {});
            assert!(groups == alone, "{dialect:?} with {:?}", fault(PROBES));
        }
    }
}

#[test]
fn a_server_without_its_token_endpoint_is_asked_for_completions() {
    let without = Options { without_tokens: true, ..Options::default() };
    let mut setup = setup_of(vec![without], Dialect::Vllm);
    let alone = setup_of(vec![Options::default()], Dialect::Vllm).sample(requests(5), &mut |_| {});
    assert!(setup.sample(requests(5), &mut |_| {}) == alone);
}

#[test]
fn a_server_that_answers_200_and_keeps_its_weights_is_not_used() {
    let keeps = || Options { keeps_weights: true, ..Options::default() };
    let mut setup = setup_of(vec![keeps(), Options::default()], Dialect::Vllm);
    setup.pool.publish(&Hashed::new(2.0), 1).unwrap();
    setup.sample_now(requests(20));
    assert_eq!(setup.stubs[0].answered(), 0);
    assert_eq!(setup.stubs[1].answered(), 20 + PROBES);

    let notes = setup.notes().join("\n");
    assert!(notes.contains("nats from the trainer's on average"), "{notes}");

    // No tolerance would see this step: the log-probabilities move by a thousandth of it.
    let mut setup = setup_of(vec![Options::default(), Options::default()], Dialect::Vllm);
    setup.sample(requests(5), &mut |_| {});
    setup.pool.publish(&Hashed::new(1.0 + 2e-5), 1).unwrap();
    setup.sample_now(requests(5));
    assert!(setup.notes().is_empty(), "{:?}", setup.notes());
}

#[test]
fn a_step_that_a_server_has_missed_is_seen_however_small_it_is() {
    let mut setup =
        setup_of(vec![Options { keeps_weights: true, ..Options::default() }], Dialect::Vllm);

    // The server happens to have these weights.
    setup.sample(requests(3), &mut |_| {});
    setup.pool.publish(&Hashed::new(1.0 + 2e-5), 1).unwrap();

    let error = setup.fail(requests(3));
    assert!(error.contains("are those of the weights before version 1"), "{error}");
    assert!(error.contains(&setup.stubs[0].base()), "{error}");
}

#[test]
fn log_probabilities_from_before_the_temperature_are_refused() {
    let raw = || Options { raw_logprobs: true, ..Options::default() };
    let mut setup = Setup::with(vec![raw()], Dialect::Vllm, |settings| settings.tempered = true);
    setup.pool.publish(&POLICY, 0).unwrap();
    let error = setup.fail(requests(3));
    assert!(error.contains("--logprobs-mode processed_logprobs"), "{error}");

    // At temperature 1 there is no difference.
    let mut setup = setup_of(vec![raw()], Dialect::Vllm);
    assert_eq!(setup.sample(requests(3), &mut |_| {}).len(), 3);
}

#[test]
fn a_key_opens_a_server_and_is_told_to_nobody() {
    let locked = || Options { key: Some("hush-hush".into()), ..Options::default() };
    let key = |key: Option<&str>| key.map(Key::new);
    let mut setup =
        Setup::with(vec![locked()], Dialect::Vllm, |it| it.key = key(Some("hush-hush")));
    assert_eq!(setup.sample(requests(3), &mut |_| {}).len(), 3);
    assert!(!format!("{:?}", setup.settings).contains("hush"));

    let mut setup =
        Setup::with(vec![locked()], Dialect::Vllm, |it| it.key = key(Some("wrong-word")));
    setup.pool.publish(&POLICY, 0).unwrap();
    let error = setup.fail(requests(3));
    assert!(error.contains("status 401") && !error.contains("wrong-word"), "{error}");
}

#[test]
fn an_adapter_is_loaded_beside_the_model_and_the_old_one_removed() {
    for dialect in [Dialect::Vllm, Dialect::Sglang] {
        let mut setup = Setup::of(vec![Options::default()], dialect, WeightsKind::Adapter, |_| {});
        for (version, weights) in [(0, 1.0), (1, 1.5), (2, 2.0)] {
            setup.pool.publish(&Hashed::new(weights), version).unwrap();
            let groups = setup.sample_now(requests(3));
            assert!(groups.values().flatten().all(|it| it.policy_version == version));
        }

        let seen = setup.stubs[0].seen();
        assert_eq!(seen.adapters, ["v2-3"], "{dialect:?}");
        assert!(!seen.paused);
    }
}

#[test]
fn the_same_weights_are_published_once_and_old_folders_are_removed() {
    let mut setup = setup_of(vec![Options::default()], Dialect::Vllm);
    for (version, weights) in [(0, 1.0), (0, 1.0), (1, 1.0), (2, 1.5)] {
        setup.pool.publish(&Hashed::new(weights), version).unwrap();
        setup.sample_now(requests(2));
    }

    // Version 1 has the weights of version 0, so it was not written.
    let loaded = setup.stubs[0].seen().loaded;
    assert_eq!(loaded, ["v0-1", "v2-2"].map(|name| setup.folder.path().join(name)));
    let left: Vec<_> = std::fs::read_dir(setup.folder.path()).unwrap().flatten().collect();
    assert_eq!(left.len(), 1);
}

#[test]
fn a_server_that_comes_back_is_given_the_weights_before_it_is_used() {
    // Nobody listens at this address. The server that comes back below is another one.
    let mut setup = Setup::with(vec![Options::default()], Dialect::Vllm, |settings| {
        settings.servers.push("http://127.0.0.1:9".into());
    });
    assert_eq!(setup.sample(requests(10), &mut |_| {}).len(), 10);
    let notes = setup.notes().join("\n");
    assert!(notes.contains("http://127.0.0.1:9 is not used: it does not answer"), "{notes}");

    let broken = Arc::new(AtomicBool::new(false));
    let switch = broken.clone();
    let fault = move |_| switch.load(Ordering::Relaxed).then_some(Fault::Status(500));
    let recovers = Options { faults: Box::new(fault), ..Options::default() };
    let mut setup = setup_of(vec![recovers, Options::default()], Dialect::Vllm);

    let began = Instant::now();
    // Samples until the pool has a note with these words.
    let until = |setup: &mut Setup, words: &str| {
        while !setup.notes().iter().any(|line| line.contains(words)) {
            setup.sample(requests(16), &mut |_| {});
            assert!(began.elapsed() < Duration::from_secs(60), "{:?}", setup.notes());
        }
    };

    setup.sample(requests(16), &mut |_| {});
    broken.store(true, Ordering::Relaxed);
    until(&mut setup, "is set aside for a while: it failed");
    broken.store(false, Ordering::Relaxed);
    until(&mut setup, "is used again");

    let loads = setup.stubs[0].seen().loaded.len();
    assert!(loads >= 2, "it was given the weights {loads} times");
}

#[test]
fn a_run_without_servers_ends_with_a_reason_for_each() {
    let down = |settings: &mut Settings| {
        settings.servers = vec!["http://127.0.0.1:9".into(), "http://127.0.0.1:10".into()];
        settings.patience = Duration::from_millis(400);
    };
    let mut setup = Setup::with(Vec::new(), Dialect::Vllm, down);
    setup.pool.publish(&POLICY, 0).unwrap();
    let error = setup.fail(requests(3));
    assert!(error.contains("no inference server could be used for"), "{error}");
    assert!(error.contains("127.0.0.1:9: ") && error.contains("127.0.0.1:10: "), "{error}");
    assert!(error.contains("--resume"), "{error}");

    for address in ["localhost:8000", "ftp://a", "http://", "http://a?b=c", "http://me:word@a"] {
        let setup = Setup::try_with(vec![], Dialect::Vllm, WeightsKind::Model, |settings| {
            settings.servers = vec![address.into()];
        });
        let error = setup.err().unwrap();
        assert!(error.contains("is not the address of an inference server"), "{address}: {error}");
        assert!(!error.contains("word"), "{error}");
    }
}

#[test]
fn a_request_that_servers_refuse_ends_the_run_with_their_words() {
    let refuses =
        || Options { faults: Box::new(|_| Some(Fault::Status(400))), ..Options::default() };
    let well_at_first = || Options {
        faults: Box::new(|asked| (asked >= PROBES).then_some(Fault::Status(400))),
        ..refuses()
    };
    let mut setup = setup_of(vec![well_at_first(), well_at_first()], Dialect::Vllm);
    setup.pool.publish(&POLICY, 0).unwrap();
    let error = setup.fail(requests(3));
    assert!(error.contains("with status 400: out of order"), "{error}");
}

#[test]
fn what_is_cancelled_is_ended_on_the_servers() {
    let hangs = Options {
        faults: Box::new(|asked| (asked >= PROBES).then_some(Fault::Hang)),
        ..Options::default()
    };
    let mut setup = setup_of(vec![hangs], Dialect::Vllm);
    setup.pool.publish(&POLICY, 0).unwrap();
    setup.pool.submit(requests(3)).unwrap();

    let began = Instant::now();

    // All three groups have to hang on the server first.
    while setup.stubs[0].seen().most_at_once < 3 {
        assert!(setup.pool.poll(Wait::Never, &mut |_| {}).unwrap().is_empty());
        assert!(began.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(5));
    }

    setup.pool.cancel();
    assert!(setup.pool.poll(Wait::ForGroup, &mut |_| {}).unwrap().is_empty());
    while setup.stubs[0].seen().aborted.len() < 3 {
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", setup.stubs[0].seen());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Groups that a server is asked for when it is given weights.
const PROBES: u64 = 1;

/// A pool with its servers.
struct Setup {
    stubs: Vec<Stub>,
    pool: ServerPool<Hashed>,
    settings: Settings,
    notes: Arc<Mutex<Vec<String>>>,
    folder: TempDir,
}

fn setup_of(options: Vec<Options>, dialect: Dialect) -> Setup {
    Setup::with(options, dialect, |_| {})
}

impl Setup {
    /// Makes a pool of servers that it does not own.
    fn new(stubs: &[Stub], dialect: Dialect) -> Setup {
        let servers: Vec<String> = stubs.iter().map(Stub::base).collect();
        Setup::with(Vec::new(), dialect, |settings| settings.servers = servers)
    }

    fn with(options: Vec<Options>, dialect: Dialect, change: impl FnOnce(&mut Settings)) -> Setup {
        Setup::of(options, dialect, WeightsKind::Model, change)
    }

    fn of(
        options: Vec<Options>,
        dialect: Dialect,
        kind: WeightsKind,
        change: impl FnOnce(&mut Settings),
    ) -> Setup {
        Setup::try_with(options, dialect, kind, change).unwrap_or_else(|error| panic!("{error}"))
    }

    fn try_with(
        options: Vec<Options>,
        dialect: Dialect,
        kind: WeightsKind,
        change: impl FnOnce(&mut Settings),
    ) -> Result<Setup, String> {
        // The servers begin with somebody else's weights.
        let stub = |options: Options| {
            let begins = if options.keeps_weights { POLICY } else { Hashed::new(9.0) };
            Stub::start(begins, options)
        };
        let stubs: Vec<Stub> = options.into_iter().map(stub).collect();
        let mut settings = settings(dialect, stubs.iter().map(Stub::base).collect());
        change(&mut settings);

        let folder = tempfile::tempdir().unwrap();
        let notes = Arc::new(Mutex::new(Vec::new()));
        let hears = notes.clone();
        let tell = move |line| hears.lock().unwrap().push(line);
        let weights = HashedWeights::new(folder.path(), kind);
        let pool = ServerPool::new(settings.clone(), weights, numbers(), tell);
        let pool = pool.map_err(|error| error.to_string())?;

        Ok(Setup { stubs, pool, settings, notes, folder })
    }

    fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap().clone()
    }

    /// Samples groups of the policy that every test begins with, and returns them by their draws.
    fn sample(
        &mut self,
        requests: Vec<GroupRequest>,
        finished: &mut dyn FnMut(usize),
    ) -> BTreeMap<u64, Vec<Completion>> {
        self.pool.publish(&POLICY, 0).unwrap();
        let groups = generate(&mut self.pool, requests, finished).unwrap();
        groups.into_iter().map(|group| (group.draw, group.completions)).collect()
    }

    /// Samples groups of the policy that was published last, and returns them by their draws.
    fn sample_now(&mut self, requests: Vec<GroupRequest>) -> BTreeMap<u64, Vec<Completion>> {
        let groups = generate(&mut self.pool, requests, &mut |_| {}).unwrap();
        groups.into_iter().map(|group| (group.draw, group.completions)).collect()
    }

    fn fail(&mut self, requests: Vec<GroupRequest>) -> String {
        match generate(&mut self.pool, requests, &mut |_| {}) {
            Ok(groups) => panic!("{} groups came", groups.len()),
            Err(error @ RolloutError::Engine { retryable: false, .. }) => error.to_string(),
            Err(error) => panic!("{error}"),
        }
    }
}
