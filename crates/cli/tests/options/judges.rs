//! The verifiers that are not a rule: a reward model, a program, and a sum of several.

use std::fs;

use crate::{
    bench::{Bench, CHECKPOINT, Case, LETTERS, case, default},
    made::{Run, assert_near},
};

#[test]
fn judges_do_what_their_options_say() {
    let bench = Bench::new();
    bench.scratch.fixture("reward-qwen2-f32", "judge");
    bench.scratch.write("judge.sh", JUDGE);
    bench.try_all(CASES);
}

/// A judge that notes each of its starts in a file of the name that it is given. A text with an `a` is worth 1,
/// and any other text a half. Under the name `sleepy` it falls asleep over an `h`.
const JUDGE: &str = r#"
echo start >> "$1"
[ "$1" = failing ] && exit 7
while read -r line; do
    id=${line#*:}; id=${id%%,*}
    text=${line#*'"completion":"'}; text=${text%%'"'*}
    case $1-$text in sleepy-*h*) sleep 60;; slow-*) sleep 0.02;; esac
    case $text in *a*) score=1;; *) score=0.5;; esac
    echo "{\"id\": $id, \"score\": $score}"
done
"#;

/// Settings for a few completions, without a filter.
const FEW: &[&str] = &[
    "sampling.dynamic=false",
    "sampling.prompts_per_step=2",
    "train.mini_batch=8",
    "train.steps=1",
];

const MODEL: &[&str] = &["reward={kind='model',path='judge'}"];

pub(crate) const CASES: &[Case] = &[
    case(&["reward={kind='model',path='judge'}"], CHECKPOINT, &[], |run| {
        assert_ne!(run.first("reward/part/score"), 0.0);
        let done = run.completions();
        assert!(done.iter().all(|done| done.credit > 0.0 && done.credit < 1.0));
        run.instead(&["reward={kind='model',path='nowhere'}"]).fails(1, "nowhere");
    }),
    default(&["reward.kind=model", "reward.transform=sigmoid"], CHECKPOINT, MODEL, |run| {
        run.assert_is(&run.without());
    }),
    case(&["reward.kind=model", "reward.transform=linear"], CHECKPOINT, MODEL, |run| {
        of_score(run, |score| score.clamp(0.0, 1.0));
    }),
    case(&["reward.kind=model", "reward.scale=2.0"], CHECKPOINT, MODEL, |run| {
        of_score(run, |score| sigmoid(2.0 * score));
    }),
    case(&["reward.kind=model", "reward.offset=0.5"], CHECKPOINT, MODEL, |run| {
        of_score(run, |score| sigmoid(score + 0.5));
    }),
    case(&["reward.kind=model", "reward.threshold=0.0"], CHECKPOINT, MODEL, |run| {
        let right = |run: &Run, threshold: f64| {
            let done = run.completions();
            done.iter().all(|done| (done.verdict == "right") == (done.credit >= threshold))
        };
        assert!(right(run, 0.0) && right(&run.without(), 0.5) && !right(&run.without(), 0.0));
    }),
    // This option changes only memory and speed.
    default(&["reward.kind=model", "reward.batch_tokens=1"], CHECKPOINT, MODEL, |run| {
        of_score(run, sigmoid);
    }),
    case(&["reward={kind='command',program=['sh','judge.sh','plain']}"], LETTERS, FEW, |run| {
        for done in run.completions() {
            assert_eq!(done.credit, if done.text.contains('a') { 1.0 } else { 0.5 });
        }
    }),
    case(
        &[
            "reward={kind='command',program=['sh','judge.sh','sleepy'],time_limit=1.5}",
            "reward.restarts=1000",
            "reward.max_errors=1.0",
        ],
        LETTERS,
        FEW,
        |run| {
            let done = run.completions();
            assert!(done.iter().any(|done| done.text.contains('h')));
            for done in done {
                assert_eq!(done.verdict == "error", done.text.contains('h'), "{}", done.text);
            }
        },
    ),
    case(
        &[
            "reward={kind='command',program=['sh','judge.sh','failing'],restarts=2}",
            "reward.max_errors=1.0",
        ],
        LETTERS,
        FEW,
        |run| {
            run.fails(1, "failed 3 times in a row and is given up");
            assert_eq!(starts(run, "failing"), 3);
        },
    ),
    case(
        &["reward={kind='command',program=['sh','judge.sh','slow'],processes=2}"],
        LETTERS,
        &["sampling.dynamic=false", "train.steps=1"],
        |run| {
            assert_eq!((starts(run, "slow"), run.first("reward/error")), (2, 0.0));
            fs::remove_file(run.bench.scratch.path("slow")).unwrap();
            let one = run.instead(&["reward={kind='command',program=['sh','judge.sh','slow']}"]);
            assert_eq!(starts(&one, "slow"), 1);
        },
    ),
    case(
        &["reward={kind='weighted',parts=[\
           {name='left',weight=3,kind='regex',pattern='a',matches=true},\
           {name='right',weight=1,kind='regex',pattern='b',matches=true}]}"],
        LETTERS,
        &["sampling.dynamic=false"],
        |run| {
            let done = run.first_completions();
            let has = |text: &str, letter| f64::from(u8::from(text.contains(letter)));
            for done in &done {
                assert_near(done.credit, 0.75 * has(&done.text, 'a') + 0.25 * has(&done.text, 'b'));
            }
            let mean = |letter| {
                done.iter().map(|done| has(&done.text, letter)).sum::<f64>() / done.len() as f64
            };
            assert_near(run.first("reward/part/left"), mean('a'));
            assert_near(run.first("reward/part/right"), mean('b'));
        },
    ),
];

fn sigmoid(score: f64) -> f64 {
    1.0 / (1.0 + (-score).exp())
}

/// Checks that the credits are a function of the scores. The credits of the default reveal the scores.
#[track_caller]
fn of_score(run: &Run, credit: fn(f64) -> f64) {
    let by_default = run.without().first_completions();
    let now = run.first_completions();
    assert_eq!(now.len(), by_default.len());
    for (now, by_default) in now.iter().zip(&by_default) {
        assert_eq!(now.text, by_default.text);
        let score = (by_default.credit / (1.0 - by_default.credit)).ln();
        assert!((now.credit - credit(score)).abs() < 1e-3, "{} of {score}", now.credit);
    }
}

fn starts(run: &Run, file: &str) -> usize {
    fs::read_to_string(run.bench.scratch.path(file)).unwrap().lines().count()
}
