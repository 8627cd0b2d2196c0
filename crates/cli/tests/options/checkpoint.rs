//! Cases for checkpoints.

use crate::{
    bench::{Bench, CHECKPOINT, Case, LETTERS, case, default},
    made::Run,
};

#[test]
fn a_run_is_saved_as_its_options_say() {
    Bench::new().try_all(CASES);
}

pub(crate) const CASES: &[Case] = &[
    case(&["checkpoint.every=2"], LETTERS, &["checkpoint.keep=0", "train.steps=5"], |run| {
        assert_eq!(run.checkpoints(), [0, 2, 4, 5]);
        assert_eq!(run.without().checkpoints(), [0, 5]);
    }),
    case(&["checkpoint.keep=1"], LETTERS, &["checkpoint.every=1"], |run| {
        assert_eq!(run.checkpoints(), [2]);
        assert_eq!(run.without().checkpoints(), [1, 2]);
        assert_eq!(run.instead(&["checkpoint.keep=0"]).checkpoints(), [0, 1, 2]);
    }),
    case(&["checkpoint.best=true"], LETTERS, WORSE, |run| {
        let accuracies = run.values("eval/heldout_accuracy");
        let best = accuracies.iter().copied().fold(0.0, f64::max);
        let first = accuracies.iter().position(|&accuracy| accuracy == best).unwrap() as u64 + 1;
        assert_eq!(run.checkpoints(), [first, 8]);
        assert_eq!(run.without().checkpoints(), [8]);
    }),
    default(&["checkpoint.dtype=auto"], CHECKPOINT, &["model.path=half"], |run| {
        saved_as(run, "BF16");
        saved_as(&run.bench.run(LETTERS, &[], &["checkpoint.dtype=auto"]), "F32");
    }),
    case(&["checkpoint.dtype=float32"], CHECKPOINT, &["model.path=half"], |run| {
        saved_as(run, "F32");
    }),
    case(&["checkpoint.dtype=bfloat16"], LETTERS, &[], |run| saved_as(run, "BF16")),
    case(&["checkpoint.dtype=float16"], LETTERS, &[], |run| saved_as(run, "F16")),
    case(&["record.tokens_every=2"], LETTERS, EACH, |run| {
        assert_eq!(steps_with_tokens(run), [2, 4]);
        assert_eq!(steps_with_tokens(&run.without()), [0; 0]);
        assert_eq!(steps_with_tokens(&run.instead(&["record.tokens_every=1"])), [1, 2, 3, 4, 5]);
    }),
    case(&["record.max_megabytes=1"], LETTERS, LARGE, |run| {
        run.says("run.db has more than 1 MB (record.max_megabytes): completions up to step");
        let kept = |run: &Run| run.asked("SELECT count(DISTINCT step) FROM groups WHERE step > 0");
        assert!(kept(run) < kept(&run.without()));
    }),
];

/// Steps that are too large, so that a good policy does not last to the end.
const WORSE: &[&str] =
    &["checkpoint.keep=1", "eval.every=1", "eval.samples=8", "optim.lr=0.3", "train.steps=8"];

const EACH: &[&str] = &["checkpoint.every=1", "train.steps=5"];

/// Settings that record a megabyte of tokens.
const LARGE: &[&str] = &[
    "checkpoint.every=1",
    "rollout.group_size=1000",
    "sampling.prompts_per_step=8",
    "record.tokens_every=1",
];

fn steps_with_tokens(run: &Run) -> Vec<i64> {
    let with = |step: &i64| {
        run.asked(&format!(
            "SELECT count(*) FROM sampled JOIN groups USING (group_id) \
             WHERE source = 'train' AND step = {step}"
        )) > 0
    };
    (1..=5).filter(with).collect()
}

/// Checks the format of the saved weights. A run trains in float32 whatever it saves, and keeps the float32
/// weights for itself.
fn saved_as(run: &Run, dtype: &str) {
    assert!(run.tensors("model.safetensors").values().all(|tensor| tensor.dtype == dtype));
    if dtype != "F32" {
        let trained = run.tensors("trainer/weights/model.safetensors");
        assert!(trained.values().all(|tensor| tensor.dtype == "F32"));
    }
}
