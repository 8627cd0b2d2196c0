//! Cases for the teachers.

use crate::{
    bench::{Bench, CHECKPOINT, Case, TAUGHT, case, default},
    made::{Run, assert_near},
};

#[test]
fn a_teacher_does_what_its_options_say() {
    Bench::new().try_all(CASES);
}

/// The teacher alone decides.
const ALONE: &[&str] = &["sampling.dynamic=false", "sampling.max_rounds="];
/// So does this one, which is the policy.
const SAME: &[&str] = &["sampling.dynamic=false", "sampling.max_rounds=", "teacher.path=base"];
/// It reads the answer.
const HINTED: &[&str] =
    &["sampling.dynamic=false", "sampling.max_rounds=", "teacher.hint={prompt}{reference}"];
/// So does this one, which is the policy with rounded weights.
const ROUNDED: &[&str] =
    &["sampling.dynamic=false", "sampling.max_rounds=", "teacher.path=base", "teacher.base=int4"];
/// Its server is asked in vain.
const IMPATIENT: &[&str] =
    &["sampling.dynamic=false", "sampling.max_rounds=", "teacher.patience=0.3"];
const NOBODY: &str = "teacher.servers=['http://127.0.0.1:9']";
const LONELY: &[&str] =
    &["sampling.dynamic=false", "sampling.max_rounds=", "teacher.servers=['http://127.0.0.1:9']"];
const KEY: &str = "teacher.key_variable=FIREBRICK_NOBODY_SETS_THIS";

pub(crate) const CASES: &[Case] = &[
    // A policy that is its own teacher has nothing to learn, whatever its rewards are.
    case(&["teacher.path=base"], CHECKPOINT, ALONE, |run| {
        assert!(distance(run).abs() < 1e-5, "{}", distance(run));
        assert!(norm(run) < 1e-3 * norm(&run.without()), "{}", norm(run));
    }),
    default(&["teacher.kind=local"], CHECKPOINT, ROUNDED, |run| run.assert_is(&run.without())),
    case(&["teacher={path='base',base='int4'}"], CHECKPOINT, ALONE, |run| {
        let wide = run.instead(&["teacher.path=base"]);
        assert!(distance(run) > 1e-3 && norm(run) > 10.0 * norm(&wide), "{}", distance(run));
    }),
    case(&["teacher.weight=2.0"], CHECKPOINT, ROUNDED, |run| {
        assert_near(norm(run), 2.0 * norm(&run.without()));
    }),
    // Twice the same: what the reward teaches, next to a teacher who has nothing to say.
    case(&["teacher={path='base',task_weight=0.5}"], CHECKPOINT, ALONE, |run| {
        assert!(distance(run).abs() < 1e-5);
        let [half, whole] = [norm(run), norm(&run.without())];
        assert!((half / whole - 0.5).abs() < 1e-3, "{half} {whole}");
        run.instead(&["teacher.path=base", "sampling.dynamic=filter"])
            .fails(2, "expected \"off\" for teacher.task_weight = 0.0");
    }),
    case(&["teacher.max_log_ratio=1e-4"], CHECKPOINT, ROUNDED, |run| {
        assert!(run.first("loss/total").abs() <= 1.001e-4);
        assert!(norm(run) < norm(&run.without()));
    }),
    default(&["teacher.loss=policy_gradient"], CHECKPOINT, ROUNDED, |run| {
        assert!(run.values("teacher/forward_kl").is_empty());
        assert!(distance(run).abs() > 1e-4);
    }),
    // A divergence has a gradient of its own, which is 0 where the two agree, whatever the rewards are.
    case(&["teacher.loss=forward_kl", "teacher.weight=0.5"], CHECKPOINT, ROUNDED, |run| {
        differs(run);
        assert_near(2.0 * run.first("loss/teacher"), run.first("teacher/forward_kl"));
    }),
    case(&["teacher.loss=reverse_kl", "teacher.weight=0.5"], CHECKPOINT, ROUNDED, |run| {
        differs(run);
        assert_near(2.0 * run.first("loss/teacher"), distance(run));
    }),
    case(&["teacher={path='base',loss='forward_kl'}"], CHECKPOINT, ALONE, agrees),
    case(&["teacher={path='base',loss='reverse_kl'}"], CHECKPOINT, ALONE, agrees),
    // What would the policy write if it knew the answer?
    case(&["teacher.hint={prompt}{reference}"], CHECKPOINT, SAME, |run| {
        assert!(distance(run) > 1e-2, "{}", distance(run));
        run.instead(&["teacher.hint={reference}"]).fails(2, "teacher.hint lacks the question");
    }),
    case(&["teacher.kind=policy"], CHECKPOINT, HINTED, |run| {
        // Before the first update it is the model that it began with.
        let same = run.instead(&["teacher.path=base"]);
        assert_near(distance(run), distance(&same));
        assert_near(norm(run), norm(&same));
        run.instead(&["teacher={kind='policy'}"]).fails(2, "expected teacher.hint with it");
    }),
    case(&["teacher.kind=policy", "teacher.loss=forward_kl"], CHECKPOINT, HINTED, |run| {
        assert!(run.first("teacher/forward_kl") > 1e-2);
    }),
    // Each format is another rounding of the same weights.
    default(&["teacher.path=base", "teacher.base=auto"], CHECKPOINT, ROUNDED, |run| {
        assert!(distance(run).abs() < 1e-5, "{}", distance(run));
    }),
    case(&["teacher.path=base", "teacher.base=float32"], CHECKPOINT, ROUNDED, |run| {
        assert!(distance(run).abs() < 1e-5, "{}", distance(run));
    }),
    case(&["teacher.path=base", "teacher.base=bfloat16"], CHECKPOINT, ROUNDED, |run| {
        nearer(run, &run.instead(&["teacher.path=base", "teacher.base=int4"]));
    }),
    case(&["teacher.path=base", "teacher.base=int8"], CHECKPOINT, ROUNDED, |run| {
        nearer(run, &run.instead(&["teacher.path=base", "teacher.base=int4"]));
    }),
    default(&["teacher.kind=vllm"], TAUGHT, ALONE, teaches_there),
    default(&["teacher.kind=sglang"], TAUGHT, ALONE, teaches_there),
    case(&["teacher.kind=vllm", NOBODY], TAUGHT, IMPATIENT, nobody_teaches),
    case(&["teacher.kind=sglang", NOBODY], TAUGHT, IMPATIENT, nobody_teaches),
    default(&["teacher.kind=vllm", "teacher.patience=0.3"], TAUGHT, LONELY, nobody_teaches),
    default(&["teacher.kind=sglang", "teacher.patience=0.3"], TAUGHT, LONELY, nobody_teaches),
    case(&["teacher.kind=vllm", "teacher.deadline=1e-6"], TAUGHT, IMPATIENT, too_late),
    case(&["teacher.kind=sglang", "teacher.deadline=1e-6"], TAUGHT, IMPATIENT, too_late),
    case(&["teacher.kind=vllm", KEY], TAUGHT, ALONE, lacks_its_key),
    case(&["teacher.kind=sglang", KEY], TAUGHT, ALONE, lacks_its_key),
    // The prompts of the second data set have the policy itself as teacher.
    case(
        &["data.train=[{path='sums.jsonl',name='one'},\
             {path='again.jsonl',name='two',teacher={kind='local',path='base'}}]"],
        CHECKPOINT,
        &[
            "sampling.dynamic=false",
            "sampling.max_rounds=",
            "teacher.path=base",
            "teacher.base=int4",
            "sampling.prompts_per_step=8",
            "train.mini_batch=32",
        ],
        |run| {
            let [both, rounded] = [distance(run), distance(&run.without())];
            assert!(both > 1e-4 && both < 0.9 * rounded, "{both} {rounded}");
        },
    ),
];

/// Checks that a divergence from a rounded copy of the policy is the loss.
fn differs(run: &Run<'_>) {
    let [forward, reverse] = [run.first("teacher/forward_kl"), distance(run)];
    assert!(forward > 1e-4 && reverse > 1e-4, "{forward} {reverse}");
    // The two are nearly one for models as near as these.
    assert!((forward / reverse - 1.0).abs() < 0.2, "{forward} {reverse}");
    assert_near(run.first("loss/total"), run.first("loss/teacher"));
}

fn agrees(run: &Run<'_>) {
    assert!(run.first("teacher/forward_kl").abs() < 1e-6);
    assert!(norm(run) < 1e-3 * norm(&run.without()), "{}", norm(run));
}

fn distance(run: &Run) -> f64 {
    run.first("teacher/reverse_kl")
}

fn norm(run: &Run) -> f64 {
    run.first("update/grad_norm")
}

/// Checks that a server's opinion is that of the same model here.
fn teaches_there(run: &Run<'_>) {
    assert!(distance(run).abs() < 1e-5, "{}", distance(run));
    assert!(run.bench.teacher.scored() > 0);
    run.instead(&["rollout.temperature=0.9"]).fails(2, "expected 1.0 for a teacher on servers");
}

fn nobody_teaches(run: &Run<'_>) {
    run.fails(1, "the teacher's servers refused a completion, or answered nothing for 0 s");
    run.fails(1, "it does not answer");
}

fn too_late(run: &Run<'_>) {
    run.fails(1, "no complete answer within 0 s");
}

fn lacks_its_key(run: &Run<'_>) {
    run.fails(2, "this environment variable is missing or empty");
}

/// Checks that this run's teacher is another policy than the run's own, though nearer than the `other` run's.
#[track_caller]
fn nearer(run: &Run<'_>, other: &Run<'_>) {
    let [near, far] = [run, other].map(norm);
    assert!(near > 0.0 && near < 0.5 * far, "{near} {far}");
}
