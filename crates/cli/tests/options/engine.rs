//! The options of `[engine]`, which choose who updates, and of `[rollout.engine]`, which choose who samples.

use firebrick_stub::Seen;

use crate::{
    bench::{Bench, CHECKPOINT, Case, LETTERS, SERVED, THERE, case, default},
    made::Run,
};

const NOBODY: &str = "rollout.engine.servers=[\"http://127.0.0.1:9\"]";
const IMPATIENT: &str = "rollout.engine.patience=0.3";

const NO_SERVER: &str = "engine.url=http://127.0.0.1:9";

pub(crate) const CASES: &[Case] = &[
    default(&["engine.kind=local"], CHECKPOINT, &[], |run| {
        run.said();
        assert!(run.values("update/grad_norm")[0] > 0.0);
    }),
    default(&["engine.kind=tinker"], THERE, &[], |run| {
        run.says("by measurement");
        run.says("done");
        assert!(run.bench.tinker.all_steps() > 0);
        let checkpoint = format!("runs/{}/checkpoints/step-000001", run.name);
        for file in ["adapter_model.safetensors", "tokenizer.json", "trainer/weights/server.json"] {
            assert!(run.bench.scratch.path(&format!("{checkpoint}/{file}")).exists(), "{file}");
        }
    }),
    case(&["engine.kind=tinker", NO_SERVER], THERE, &["engine.patience=0.3"], |run| {
        run.fails(1, "did not open a session: it does not answer");
    }),
    default(&["engine.kind=tinker", "engine.patience=0.3"], THERE, &[NO_SERVER], |run| {
        run.fails(1, "did not open a session");
    }),
    case(&["engine.kind=tinker", "engine.model=another"], THERE, &[], |run| {
        run.fails(2, "it has no model \"another\", but tiny");
    }),
    case(
        &["engine.kind=tinker", "engine.key_variable=FIREBRICK_NOBODY_SETS_THIS"],
        THERE,
        &[],
        |run| {
            run.fails(2, "this environment variable is missing or empty");
        },
    ),
    case(&["engine.kind=tinker", "engine.deadline=1e-6"], THERE, &[], |run| {
        run.fails(1, "(engine.deadline)")
    }),
    case(&["engine.kind=tinker", "engine.tolerance=1e-12"], THERE, &[], |run| {
        run.says("but engine.tolerance = 0.000000000001");
        assert!(run.first("rollout/refused") > 0.0);
    }),
    default(&["rollout.engine.kind=local"], CHECKPOINT, &[], |run| {
        run.said();
        assert!(!run.bench.scratch.path(&format!("runs/{}/weights", run.name)).exists());
    }),
    default(&["rollout.engine.kind=vllm"], SERVED, &[], |run| {
        samples_there(run, |seen| seen.version.starts_with('v'));
    }),
    default(&["rollout.engine.kind=sglang"], SERVED, &[], |run| {
        samples_there(run, |seen| seen.version.starts_with('v'));
    }),
    case(&[NOBODY], SERVED, &[IMPATIENT], |run| {
        run.fails(1, "no inference server could be used");
        run.fails(1, "http://127.0.0.1:9: it does not answer");
    }),
    default(&[IMPATIENT], SERVED, &[NOBODY], |run| run.fails(1, "could be used for 0 s")),
    case(&["rollout.engine.deadline=1e-6"], SERVED, &[IMPATIENT], |run| {
        run.fails(1, "no complete answer within 0 s");
    }),
    case(&["rollout.engine.tolerance=1e-12"], SERVED, &[], |run| {
        run.fails(1, "nats from the trainer's on average");
    }),
    case(&["rollout.engine.weights=published"], SERVED, &[], |run| {
        run.said();
        assert!(!run.bench.scratch.path(&format!("runs/{}/weights", run.name)).exists());
        let folder = run.bench.scratch.path(&format!("published/{}", run.name));
        let last = std::fs::read_dir(folder).unwrap().flatten().next().unwrap().path();
        let manifest = std::fs::read_to_string(last.join("manifest.json")).unwrap();
        let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
        let hash = manifest["sha256"]["model.safetensors"].as_str().unwrap();
        assert_eq!(hash.len(), 64);
    }),
    case(&["rollout.engine.weights_there=/nowhere"], SERVED, &[IMPATIENT], |run| {
        run.fails(1, "it failed at /collective_rpc with status 500");
    }),
    case(&["device.count=3"], LETTERS, &["train.steps=1", "train.mini_batch=16"], spread),
    case(
        &["rollout.max_staleness=1"],
        LETTERS,
        &["train.steps=3", "sampling.carry_over=false"],
        ahead,
    ),
    case(&["rollout.engine.key_variable=FIREBRICK_NOBODY_SETS_THIS"], SERVED, &[], |run| {
        run.fails(2, "this environment variable is missing or empty");
    }),
];

/// Checks that the update is the same up to rounding, wherever its parts are computed.
fn spread(run: &Run<'_>) {
    let alone = run.without();
    assert!(
        run.completions()
            .iter()
            .map(|it| &it.text)
            .eq(alone.completions().iter().map(|it| &it.text))
    );
    for name in ["loss/total", "update/grad_norm"] {
        let (here, there) = (run.first(name), alone.first(name));
        assert!((here - there).abs() < 1e-5 * there.abs().max(1e-3), "{name}: {here}, {there}");
        // One more sum means another rounding.
        assert!(here != there || name != "update/grad_norm", "{name} is the same to the bit");
    }
}

/// Checks that each step after the first is sampled by the weights that the step before it began with.
fn ahead(run: &Run<'_>) {
    let stale = |run: &Run<'_>| run.values("rollout/staleness_mean");
    assert_eq!(stale(run), [0.0, 1.0, 1.0], "{:?}", stale(run));

    // If the weights stand still, it makes no difference which weights sample.
    let still = ["optim.lr=0.0", "rollout.max_staleness=1"];
    let (ahead, after) = (run.instead(&still), run.instead(&still[..1]));

    let texts = |run: &Run<'_>| run.completions().into_iter().map(|it| it.text).collect::<Vec<_>>();
    assert_eq!(texts(&ahead), texts(&after));
    assert_eq!(ahead.values("loss/total"), after.values("loss/total"));
}

/// Checks that the run has finished, and that the server has sampled for it.
fn samples_there(run: &Run<'_>, holds: fn(&Seen) -> bool) {
    run.says("done");
    let Bench { server, .. } = run.bench;
    assert!(server.answered() > 0);
    assert!(holds(&server.seen()), "{:?}", server.seen());
}

/// What a server can't do, or does not let anyone choose, is refused with the reason.
#[test]
fn what_a_server_cannot_do_is_refused() {
    let bench = Bench::new();
    for (set, why) in [
        ("model.lora=", "expected adapters"),
        ("model.lora.targets=[\"q_proj\"]", "the server decides what its adapters adapt"),
        ("model.lora.alpha=7.0", "model.lora.alpha is 7, and the server's is 32"),
        (
            "rollout.engine={kind='vllm',servers=['http://a']}",
            "the engine that updates to sample too",
        ),
        ("rollout.temperature=0.9", "the server's log-probabilities are those at 1.0"),
        ("rollout.top_p=0.9", "cuts the distribution"),
        ("rollout.top_k=9", "cuts the distribution"),
        ("rollout.max_staleness=1", "would lose a step"),
        ("loss.entropy_coef=0.1", "needs the whole distribution"),
        ("loss.top_entropy_quantile=0.5", "needs the whole distribution"),
        ("loss.router_aux_loss_coef=0.1", "needs the router's numbers"),
        ("advantage.kind=gae", "the server has no critic"),
        (
            "teacher={path='base',task_weight=0.5}",
            "teachers compute next to a policy of this process",
        ),
        ("train.adaptive={kl_stop=1.0}", "needs the entropy"),
        ("optim.kind=muon", "the server has no other optimizer"),
    ] {
        bench.run(THERE, &[], &[set]).fails(2, why);
    }
}

#[test]
fn an_engine_does_what_its_options_say() {
    Bench::new().try_all(CASES);
}
