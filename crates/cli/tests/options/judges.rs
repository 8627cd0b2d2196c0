//! The verifiers that are not a rule: a reward model, a program, and a sum of several.

use std::{fs, process::Command};

use crate::{
    bench::{Bench, CHECKPOINT, Case, LETTERS, case, default},
    made::{Run, assert_near},
};

#[test]
fn judges_do_what_their_options_say() {
    let bench = Bench::new();
    bench.scratch.fixture("reward-qwen2-f32", "judge");
    bench.scratch.write("judge.sh", JUDGE);
    let row = |letter: char| {
        format!("{{\"question\": \"{letter}\", \"answer\": {{\"z\": [1], \"a\": 2}}}}\n")
    };
    bench.scratch.write("json.jsonl", ('a'..='h').map(row).collect::<String>());
    bench.try_all(CASES);
}

/// Needs Python, which is not on every machine.
#[test]
fn a_judge_in_python_does_what_its_options_say() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no python3 to run a judge with");
        return;
    }
    let bench = Bench::new();
    bench.scratch.write("judge.py", PYTHON_JUDGE);
    bench.scratch.write("slow.py", SLOW_JUDGE);
    bench.try_all(PYTHON_CASES);
}

/// Functions that judge.
const PYTHON_JUDGE: &str = r#"
import time

def score(question, completion):
    print("this is no answer", question)
    return (1.0 if "a" in completion else 0.5), question

def letter(completion, reference=None, **others):
    assert "prompt" in others
    return 0.25 * ("a" in completion)

def sleepy(completion):
    if "h" in completion:
        time.sleep(60)
    return 1

def failing(completion, finish):
    return 1 / (0 if "h" in completion else 1)
"#;

/// A function that takes its time, in a file that notes each process that reads it.
const SLOW_JUDGE: &str = r#"
import os, time
open(os.path.join(os.path.dirname(__file__), "starts"), "a").write("start\n")

def score(completion):
    time.sleep(0.05)
    return 0
"#;

/// A judge that notes each of its starts in a file of the name that it is given. A text with an `a` is worth 1,
/// and any other text a half. Under the name `sleepy` it falls asleep over an `h`. Under the name `taking` only the
/// reference counts.
const JUDGE: &str = r#"
echo start >> "$1"
[ "$1" = failing ] && exit 7
while read -r line; do
    id=${line#*:}; id=${id%%,*}
    text=${line#*'"completion":"'}; text=${text%%'"'*}
    case $1-$text in sleepy-*h*) sleep 60;; slow-*) sleep 0.02;; esac
    case $text in *a*) score=1;; *) score=0.5;; esac
    case $1-$line in taking-*'"reference":{"z":[1],"a":2},'*) score=1;; taking-*) score=0;; esac
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
    // A program takes references that are objects, and the record has them on one line. Other verifiers refuse them.
    case(
        &["reward={kind='command',program=['sh','judge.sh','taking']}"],
        LETTERS,
        &["data.train=json.jsonl", "sampling.dynamic=false", "train.steps=1"],
        |run| {
            for done in run.completions() {
                assert_eq!((done.credit, done.reference.as_str()), (1.0, "{\"z\":[1],\"a\":2}"));
            }
            run.instead(&["reward={kind='exact'}"]).fails(
                1,
                "column `answer` should hold a text or a number, but holds {\"z\":[1],\"a\":2}",
            );
        },
    ),
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

pub(crate) const PYTHON_CASES: &[Case] = &[
    case(&["reward={kind='python',file='judge.py'}"], LETTERS, FEW, |run| {
        for done in run.completions() {
            assert_eq!(done.credit, if done.text.contains('a') { 1.0 } else { 0.5 });
        }
        run.instead(&["reward={kind='python',file='none.py'}"]).fails(2, "none.py");
    }),
    case(&["reward={kind='python',file='judge.py',function='letter'}"], LETTERS, FEW, |run| {
        for done in run.completions() {
            assert_eq!(done.credit, if done.text.contains('a') { 0.25 } else { 0.0 });
        }
        run.instead(&["reward={kind='python',file='judge.py',function='leter'}"])
            .fails(2, "no function `leter`; its functions are: failing, letter, score");
    }),
    case(
        &["reward={kind='python',file='judge.py',python='no-such-python'}"],
        LETTERS,
        FEW,
        |run| {
            run.fails(2, "`no-such-python` can't be started");
        },
    ),
    case(
        &[
            "reward={kind='python',file='judge.py',function='sleepy',time_limit=1.5}",
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
            "reward={kind='python',file='judge.py',function='failing',restarts=0}",
            "reward.max_errors=1.0",
        ],
        LETTERS,
        FEW,
        |run| {
            run.fails(
                1,
                "judge.py, line 18: ZeroDivisionError: division by zero (for the completion",
            );
        },
    ),
    case(
        &["reward={kind='python',file='slow.py',processes=2}"],
        LETTERS,
        &["sampling.dynamic=false", "train.steps=1"],
        |run| {
            assert_eq!((starts(run, "starts"), run.first("reward/error")), (2, 0.0));
            fs::remove_file(run.bench.scratch.path("starts")).unwrap();
            let one = run.instead(&["reward={kind='python',file='slow.py'}"]);
            assert_eq!(starts(&one, "starts"), 1);
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
