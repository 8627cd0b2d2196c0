//! Cases for SFT.

use serde_json::{Value, json};

use crate::{
    bench::{Bench, Case, LETTERS, case},
    made::Run,
};

#[test]
fn a_warm_up_does_what_its_options_say() {
    let bench = Bench::new();
    bench.rows("half-right.jsonl", &[("b", "a"), ("c", "h")]);

    // The data's own answer is `a`, and these rows show others.
    let write = |file: &str, row: fn(&str) -> Value| {
        let letters = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let lines = letters.map(|letter| row(letter).to_string() + "\n").concat();
        bench.scratch.write(file, &lines);
        lines
    };
    let shown = |letter: &str| json!({"prompt": letter, "completion": "h", "say": "g"});
    let rows = write("shown.jsonl", shown);
    write("unknown.jsonl", |letter| json!({"ask": letter, "say": "g"}));

    // Each `<end>` parts two tokens, so with the last end these are six, and a completion may have four.
    let long = |letter: &str| json!({"prompt": letter, "completion": "a<end>a<end>a"});
    let long = write("too-long.jsonl", long);
    bench.scratch.write("long.jsonl", rows + &long);

    write("shown/red/train.jsonl", shown);
    write("shown/blue/train.jsonl", |letter| json!({"prompt": letter, "completion": "g"}));
    write("shown/blue/test.jsonl", |letter| json!({"prompt": letter, "completion": "f"}));
    bench.try_all(CASES);
}

/// SFT that is long enough for one answer, and a step that samples after it.
const TAUGHT: &str = "sft={steps=40,batch=16,lr=0.02,every=40}";
const ONE: &str = "train.steps=1";
const ANY: &str = "sampling.dynamic=false";

/// Checks that most completions of the first step are this letter, which SFT alone can have taught.
fn answers(run: &Run, letter: &str) {
    let completions = run.first_completions();
    let taught = completions.iter().filter(|completion| completion.text == letter).count();
    assert!(2 * taught > completions.len(), "{taught} of {} are {letter}", completions.len());
}

/// A short SFT phase, with one step after it.
const SHORT: &[&str] = &["sft={steps=6,batch=8,lr=0.01,every=1}", "train.steps=1"];

pub(crate) const CASES: &[Case] = &[
    case(&["sft.steps=5", "sft.lr=0.05"], LETTERS, &["sampling.dynamic=false"], |run| {
        assert!(run.card().contains("5 supervised steps"), "{}", run.card());
        // SFT teaches the right answer.
        assert!(run.first("reward/credit") > run.without().first("reward/credit"));
    }),
    case(&["sft.data=shown.jsonl"], LETTERS, &[TAUGHT, ONE, ANY], |run| {
        answers(run, "h");
        run.says("sft.data: 8 of 8 examples kept");
        // The held-out prompts are letters too.
        run.says("data.heldout: 2 of 2 questions are questions of sft.data too");

        let long = run.instead(&["sft.data=long.jsonl"]);
        long.says("sft.data: 8 of 16 examples kept, 8 with a completion of more than 4 tokens");
        long.assert_is(run);
        let refused = run.instead(&["sft.data=too-long.jsonl"]);
        refused.fails(2, "no example of");
        refused.fails(2, "0 of 8 examples kept, 8 with a completion of more than 4 tokens");
    }),
    case(
        &["sft.subset=blue"],
        LETTERS,
        &[TAUGHT, ONE, ANY, "sft.data=shown", "sft.split=train"],
        |run| {
            answers(run, "g");
            run.without().fails(1, "name the subset");
        },
    ),
    case(
        &["sft.split=test"],
        LETTERS,
        &[TAUGHT, ONE, ANY, "sft.data=shown", "sft.subset=blue"],
        |run| {
            answers(run, "f");
            answers(&run.without(), "g");
        },
    ),
    case(
        &["sft.columns.completion=say"],
        LETTERS,
        &[TAUGHT, ONE, ANY, "sft.data=shown.jsonl"],
        |run| {
            answers(run, "g");
            answers(&run.without(), "h");
        },
    ),
    case(
        &["sft.columns.prompt=ask"],
        LETTERS,
        &[TAUGHT, ONE, ANY, "sft.data=unknown.jsonl", "sft.columns.completion=say"],
        |run| {
            answers(run, "g");
            run.without().fails(1, "no column for the prompt (prompt, question, problem)");
        },
    ),
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
