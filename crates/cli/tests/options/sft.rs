//! Cases for SFT.

use crate::{
    bench::{Bench, Case, LETTERS, case},
    made::Run,
};

#[test]
fn a_warm_up_does_what_its_options_say() {
    let bench = Bench::new();
    bench.rows("half-right.jsonl", &[("b", "a"), ("c", "h")]);
    bench.try_all(CASES);
}

/// A short SFT phase, with one step after it.
const SHORT: &[&str] = &["sft={steps=6,batch=8,lr=0.01,every=1}", "train.steps=1"];

pub(crate) const CASES: &[Case] = &[
    case(&["sft.steps=5", "sft.lr=0.05"], LETTERS, &["sampling.dynamic=false"], |run| {
        assert!(run.card().contains("5 supervised steps"), "{}", run.card());
        // SFT teaches the right answer.
        assert!(run.first("reward/credit") > run.without().first("reward/credit"));
    }),
    // All examples have the same answer, so batches differ only in the letters that ask for it.
    case(&["sft.batch=1"], LETTERS, SHORT, |run| {
        assert_ne!(losses(run), losses(&run.without()));
        run.instead(&["sft.batch=8"]).assert_is(&run.without());
    }),
    case(&["sft.lr=0.0"], LETTERS, SHORT, |run| {
        let weights = |run: &Run| run.tensors_at(0, "model.safetensors");
        let untrained = run.bench.run(LETTERS, &["train.steps=1"], &[]);
        for (name, tensor) in weights(&untrained) {
            assert!(weights(run)[&name].values == tensor.values, "{name} has moved");
        }
        assert!(losses(&run.without()).last() < losses(run).last());
    }),
    case(&["sft.stop_at=0.0"], LETTERS, &["sft={steps=6,every=4}"], |run| {
        assert!(run.card().contains("4 supervised steps"), "{}", run.card());
        assert!(run.without().card().contains("6 supervised steps"));
    }),
    case(&["sft.every=4"], LETTERS, &["sft.steps=9"], |run| {
        assert_eq!(losses(run).len(), 3);
    }),
    // SFT teaches the answer to one of the two held-out prompts.
    case(
        &["sft.samples=1"],
        LETTERS,
        &[
            "sft={steps=30,batch=8,lr=0.05,every=30}",
            "data={train='letters.jsonl',heldout='half-right.jsonl'}",
            "reward={kind='exact'}",
            "eval.temperature=0.0",
            "train.steps=1",
            "sampling.max_rounds=1",
        ],
        |run| {
            run.says("accuracy 1.000\n");
            run.without().says("accuracy 0.500\n");
        },
    ),
];

/// Returns the lines that SFT printed about its steps.
fn losses(run: &Run) -> Vec<String> {
    run.said().lines().filter(|line| line.starts_with("SFT ")).map(str::to_owned).collect()
}
