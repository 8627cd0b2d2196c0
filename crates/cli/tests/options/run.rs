//! Cases for the run as a whole: name, seed, device, length and evaluation.

use crate::{
    bench::{Bench, CHECKPOINT, Case, LETTERS, TINY, case, default},
    made::{Run, assert_near},
};

#[test]
fn a_run_does_what_its_options_say() {
    Bench::new().try_all(CASES);
}

/// Every group is kept.
const ALL: &[&str] = &["sampling.dynamic=false"];

const MODEL: &str = "model.safetensors";

pub(crate) const CASES: &[Case] = &[
    case(&["name=kiln"], LETTERS, &[], |run| {
        assert_eq!(run.path("summary.json"), "runs/kiln/summary.json");
        run.assert_is(&run.without());
    }),
    case(&["seed=18"], LETTERS, &[], |run| {
        let texts = |run: &Run| -> Vec<String> {
            run.first_completions().into_iter().map(|completion| completion.text).collect()
        };
        assert_ne!(texts(run), texts(&run.without()));
        run.instead(&["seed=17"]).assert_is(&run.without());
    }),
    default(&["device.kind=cpu", "device.index=0"], LETTERS, &[], |run| {
        run.assert_is(&run.without());
    }),
    case(&["device.kernels=reference"], LETTERS, ALL, |run| {
        let norm = |run: &Run| run.first("update/grad_norm");
        assert_near(norm(run), norm(&run.without()));
        assert_ne!(norm(run), norm(&run.without()));
    }),
    default(&["device.kernels=fast"], LETTERS, ALL, |run| run.assert_is(&run.without())),
    case(&["device.index=1"], LETTERS, &[], |run| run.fails(2, "there is no device cpu:1")),
    case(&["device.kind=vulkan"], LETTERS, &[], not_in_this_build),
    case(&["device.kind=wgpu"], LETTERS, &[], not_in_this_build),
    case(&["device.kind=metal"], LETTERS, &[], not_in_this_build),
    case(&["device.kind=cuda"], LETTERS, &[], not_in_this_build),
    case(&["device.kind=rocm"], LETTERS, &[], not_in_this_build),
    case(&["train.steps=3"], LETTERS, &[], |run| {
        assert_eq!(run.values("update/count"), [1.0, 1.0, 1.0]);
        assert_eq!(run.summary()["steps"], 3);
    }),
    // A step draws four of the 80 prompts, because every group is trained on.
    case(&["train.epochs=0.1"], TINY, &["sft={}", "sampling.dynamic=false"], |run| {
        assert_eq!(run.summary()["stopped_because"], "epochs");
        assert_eq!(run.summary()["steps"], 2);
        assert_eq!(run.without().summary()["stopped_because"], "steps");
    }),
    case(&["train.mini_batch=4"], LETTERS, &["sampling.dynamic=false"], |run| {
        assert_eq!(run.values("update/count"), [4.0, 4.0]);
    }),
    // This option changes only memory and speed. A sequence is up to five tokens long.
    case(&["train.micro_batch_tokens=10"], LETTERS, &[], |run| {
        let whole = run.without();
        assert!(
            !run.is(&whole),
            "the work was cut nowhere, which no sum would leave without trace"
        );
        for metric in ["loss/total", "update/grad_norm", "loss/entropy"] {
            for (cut, whole) in run.values(metric).into_iter().zip(whole.values(metric)) {
                assert_near(cut, whole);
            }
        }
    }),
    // The computation is the same to the bit, whatever is kept of it.
    case(&["train.recompute=layers"], LETTERS, &[], |run| {
        assert_eq!(run.tensors(MODEL), run.without().tensors(MODEL));
        assert_eq!(run.values("update/whole_layers"), [0.0, 0.0]);
    }),
    case(&["train.recompute=none"], LETTERS, &["train.recompute=layers"], |run| {
        assert_eq!(run.tensors(MODEL), run.without().tensors(MODEL));
        assert_eq!(run.values("update/whole_layers"), [1.0, 1.0]);
    }),
    // Any machine has room for one layer of this size.
    default(&["train.recompute=auto"], LETTERS, &[], |run| {
        assert_eq!(run.values("update/whole_layers"), [1.0, 1.0]);
    }),
    case(&["train.offload=true"], LETTERS, &[], |run| {
        run.fails(2, "device.kind other than \"cpu\"");
    }),
    // The questions are longer than the eight tokens of an answer.
    default(&["train.share_prompts=auto"], CHECKPOINT, &[], |run| {
        assert!(run.first("update/tokens_shared") > 0.5);
    }),
    case(&["train.share_prompts=never"], CHECKPOINT, &[], |run| {
        assert_eq!(run.first("update/tokens_shared"), 0.0);
        assert_near(run.first("loss/total"), run.without().first("loss/total"));
        assert_near(run.first("update/grad_norm"), run.without().first("update/grad_norm"));
    }),
    case(&["train.share_prompts=always"], CHECKPOINT, &["train.share_prompts=never"], |run| {
        assert!(run.first("update/tokens_shared") > 0.5);
    }),
    // Sampler and trainer round alike on the CPU. If the log-probabilities are computed again, the update starts
    // from its own numbers.
    default(&["train.old_logprobs=auto"], LETTERS, &[], |run| {
        assert!(run.first("rollout/logprob_diff_max") < 1e-4);
        assert!(run.is(&run.instead(&["train.old_logprobs=sampled"])));
    }),
    case(&["train.old_logprobs=sampled"], LETTERS, &["model.dtype=bfloat16"], |run| {
        assert!(run.first("loss/logprob_change") > 0.0);
    }),
    case(
        &["train.old_logprobs=recomputed"],
        LETTERS,
        &["model.dtype=bfloat16", "train.old_logprobs=sampled"],
        |run| {
            assert_eq!(run.first("loss/logprob_change"), 0.0);
            assert!(run.first("rollout/logprob_diff_mean") > 0.0);
        },
    ),
    // An update with a bonus that is infinite in float16 is never finite.
    case(
        &["train.max_skipped=2"],
        LETTERS,
        &["loss.entropy_coef=1e9", "model.dtype=float16", "train.steps=4"],
        |run| {
            run.fails(
                3,
                "3 updates in a row were skipped, because their gradients were not finite",
            );
            assert_eq!(run.without().values("update/skipped").len(), 4);
        },
    ),
    // Nothing is learnt, so the first evaluation after a step stays the best.
    case(
        &["train.patience=2"],
        LETTERS,
        &["eval.every=1", "optim.lr=0.0", "train.steps=6"],
        |run| {
            assert_eq!(run.summary()["stopped_because"], "patience");
            assert_eq!(run.summary()["steps"], 3);
            assert_eq!(run.without().summary()["steps"], 6);
        },
    ),
    case(&["train.stop_at=0.0"], LETTERS, &["eval.every=1"], |run| {
        assert_eq!(run.summary()["stopped_because"], "stop_at");
        assert_eq!(
            (&run.summary()["steps"], &run.without().summary()["steps"]),
            (&1.into(), &2.into())
        );
    }),
    case(&["eval.every=2"], LETTERS, &["train.steps=5"], |run| {
        let measured: Vec<u64> = run
            .metrics()
            .iter()
            .filter(|step| step.get("eval/heldout_accuracy").is_some())
            .map(|step| step["step"].as_u64().unwrap())
            .collect();
        assert_eq!(measured, [2, 4, 5]);
    }),
    // There are two held-out prompts, so with one completion of each the accuracy is a multiple of one half.
    case(&["eval.samples=8"], LETTERS, &["eval.every=1"], |run| {
        assert!(run.card().contains("Completions of each: 8"), "{}", run.card());
        assert!(in_parts(run, 16) && !in_parts(run, 2) && in_parts(&run.without(), 2));
    }),
    // If the most likely token is always taken, all completions of a prompt are the same.
    case(&["eval.temperature=0.0"], LETTERS, &["eval.samples=8", "eval.every=1"], |run| {
        assert!(in_parts(run, 2) && !in_parts(&run.without(), 2));
    }),
    case(&["eval.top_p=0.01"], LETTERS, &["eval.samples=8", "eval.every=1"], |run| {
        assert!(in_parts(run, 2) && !in_parts(&run.without(), 2));
    }),
    case(&["observe.phrases=['a', 'BB']"], LETTERS, &["sampling.dynamic=false"], |run| {
        let done = run.first_completions();
        let share = |holds: fn(&str) -> bool| {
            done.iter().filter(|done| holds(&done.text)).count() as f64 / done.len() as f64
        };
        assert_near(run.first("observe/phrase/a"), share(|text| text.contains('a')));
        assert_near(run.first("observe/phrase/BB"), share(|text| text.contains("bb")));
        let total: usize = done.iter().map(|done| done.text.matches('a').count()).sum();
        assert_near(run.first("observe/count/a"), total as f64 / done.len() as f64);
    }),
    case(&["eval.prompts=3"], TINY, &["sft={}", "train.steps=1"], |run| {
        assert!(run.card().contains("Prompts: 3."), "{}", run.card());
        assert!(in_parts(run, 3));
    }),
];

/// Returns whether all held-out accuracies are multiples of 1 / `parts`.
fn in_parts(run: &Run, parts: u32) -> bool {
    let whole = |accuracy: f64| (accuracy * f64::from(parts)).fract().abs() < 1e-9;
    run.values("eval/heldout_accuracy").into_iter().all(whole)
}

/// Checks that a build for the CPU alone refuses the device. `tests/device.rs` tries devices on machines that have
/// one.
fn not_in_this_build(run: &Run) {
    let kinds = firebrick_device::compiled();
    if kinds.len() > 1 {
        eprintln!("SKIPPED: this build has {kinds:?}");
    } else {
        run.fails(2, "is not in this build, which has cpu only");
    }
}
