//! Cases for a language model that judges.

use serde_json::Value;

use crate::{
    bench::{Bench, Case, JUDGED, case, default},
    made::{Run, assert_near},
};

#[test]
fn a_model_that_judges_does_what_its_options_say() {
    Bench::new().try_all(CASES);
}

/// What the server of [`JUDGED`] answers. The first line of the question is one word that says what about, and the rest
/// is the text to judge.
pub(crate) fn answer(body: &Value) -> String {
    let messages = body["messages"].as_array().unwrap();
    let question = messages.last().unwrap()["content"].as_str().unwrap();
    let (about, text) = question.split_once('\n').unwrap_or((question, ""));
    let hits = text.matches('a').count();
    let yes = match about {
        "number" => return format!("{}", hits.min(2)),
        "label" => return if hits > 0 { "It is good." } else { "bad" }.to_owned(),
        "moody" if text.contains('h') => return "It depends.".to_owned(),
        "long" => return format!("{}\nyes", "hm ".repeat(2000)),
        "system" => messages.len() == 2 && messages[0]["content"] == "Be kind.",
        "model" => body["model"] == "other",
        "temperature" => body["temperature"] == 0.5,
        "extra" => body["effort"] == "low" && body["max_tokens"].is_null(),
        _ => hits > 0,
    };
    if yes { "yes" } else { "no" }.to_owned()
}

/// Settings for a few completions, without a filter.
macro_rules! few {
    ($($set:literal),*) => {
        &[
            "sampling.dynamic=false", "sampling.prompts_per_step=2", "train.mini_batch=8",
            "train.steps=1", $($set),*
        ]
    };
}

const FEW: &[&str] = few![];
const NOBODY: &str = "reward.servers=['http://127.0.0.1:9/v1']";

pub(crate) const CASES: &[Case] = &[
    default(&["reward.kind=judge"], JUDGED, FEW, |run| {
        credits(run, |text| f64::from(u8::from(text.contains('a'))));
    }),
    case(
        &["reward.kind=judge", "reward.rubric=\"has\\n{{ question }}{{ completion }}\""],
        JUDGED,
        FEW,
        |run| {
            for done in run.completions() {
                let both = [&*done.prompt, &*done.text].concat();
                assert_eq!(done.credit == 1.0, both.contains('a'));
            }
            run.instead(&["reward.kind=judge", "reward.rubric=\"{{ answer }}\""])
                .fails(2, "undefined value");
            run.instead(&["reward.rubric=Is {completion} right?"])
                .fails(2, "does not have the completion in it");
            run.instead(&["reward.kind=judge", "reward.rubric=\"{{ \""])
                .fails(2, "reward.rubric: ");
        },
    ),
    default(&["reward.kind=judge", "reward.answer.kind=yes_no"], JUDGED, FEW, |run| {
        run.assert_is(&run.without())
    }),
    case(
        &["reward.kind=judge", "reward.answer={kind='number',min=-2.0,max=2.0}"],
        JUDGED,
        few!["reward.rubric=\"number\\n{{ completion }}\""],
        |run| {
            credits(run, |text| (text.matches('a').count().min(2) as f64 + 2.0) / 4.0);
            run.instead(&["reward.kind=judge", "reward.answer={kind='number',min=2.0,max=2.0}"])
                .fails(2, "expected min below max");
        },
    ),
    case(
        &["reward.kind=judge", "reward.answer={kind='label',labels={good=0.75,bad=0.25}}"],
        JUDGED,
        few!["reward.rubric=\"label\\n{{ completion }}\""],
        |run| {
            credits(run, |text| if text.contains('a') { 0.75 } else { 0.25 });
            run.instead(&[
                "reward.kind=judge",
                "reward.answer={kind='label',labels={good=2.0,bad=0.25}}",
            ])
            .fails(2, "a word of its own with a credit from 0 to 1");
        },
    ),
    case(&["reward.kind=judge", "reward.threshold=0.0"], JUDGED, FEW, |run| {
        assert!(run.completions().iter().all(|done| done.verdict == "right"));
    }),
    case(
        &["reward.kind=judge", "reward.system=Be kind."],
        JUDGED,
        few!["reward.rubric=\"system\\n{{ completion }}\""],
        all_right,
    ),
    case(
        &["reward.kind=judge", "reward.model=other"],
        JUDGED,
        few!["reward.rubric=\"model\\n{{ completion }}\""],
        all_right,
    ),
    case(
        &["reward.kind=judge", "reward.temperature=0.5"],
        JUDGED,
        few!["reward.rubric=\"temperature\\n{{ completion }}\""],
        all_right,
    ),
    case(
        &["reward.kind=judge", "reward.extra_body={effort='low',max_completion_tokens=9}"],
        JUDGED,
        few!["reward.rubric=\"extra\\n{{ completion }}\""],
        all_right,
    ),
    case(
        &["reward.kind=judge", "reward.max_tokens=20000"],
        JUDGED,
        few!["reward.rubric=\"long\\n{{ completion }}\""],
        all_right,
    ),
    case(
        &["reward.kind=judge", "reward.retries=0"],
        JUDGED,
        few!["reward.rubric=\"moody\\n{{ completion }}\"", "reward.max_errors=1.0"],
        |run| {
            assert_eq!(run.first("judge/retries"), 0.0);
            assert!(run.without().first("judge/retries") > 0.0);
            let done = run.completions();
            assert!(done.iter().all(|one| (one.verdict == "error") == one.text.contains('h')));
            assert!(done.iter().any(|one| one.verdict == "error"));
        },
    ),
    // This option changes only the time that it takes.
    default(&["reward.kind=judge", "reward.at_once=1"], JUDGED, FEW, |run| {
        run.assert_is(&run.without())
    }),
    case(
        &["reward.kind=judge", "reward.deadline=1e-6"],
        JUDGED,
        few!["reward.patience=0.3"],
        |run| {
            run.fails(2, "no complete answer within 0 s");
        },
    ),
    case(&["reward.kind=judge", NOBODY], JUDGED, few!["reward.patience=0.3"], |run| {
        run.fails(2, "the judge at http://127.0.0.1:9/v1 can't be asked: it does not answer");
    }),
    default(
        &["reward.kind=judge", "reward.patience=0.3"],
        JUDGED,
        few!["reward.servers=['http://127.0.0.1:9/v1']"],
        |run| {
            run.fails(2, "can't be asked");
        },
    ),
    case(
        &["reward.kind=judge", "reward.key_variable=FIREBRICK_NOBODY_SETS_THIS"],
        JUDGED,
        FEW,
        |run| {
            run.fails(2, "this environment variable is missing or empty");
        },
    ),
    case(&["reward.kind=judge", "reward.prices=[1e6,0.0]"], JUDGED, FEW, |run| {
        assert_near(run.first("judge/cost"), run.first("judge/prompt_tokens"));
        assert!(run.first("judge/cost") > 0.0);
    }),
];

fn all_right(run: &Run) {
    assert!(run.completions().iter().all(|done| done.verdict == "right"));
}

fn credits(run: &Run, credit: fn(&str) -> f64) {
    let done = run.completions();
    assert!(done.iter().any(|one| one.text.contains('a')) && done.len() == 8);
    for one in done {
        assert_near(one.credit, credit(&one.text));
    }
}

#[test]
fn a_resumed_run_asks_nothing_twice() {
    let bench = Bench::new();
    let sets = few!["checkpoint.every=1", "train.steps=3"];
    let run = bench.run(JUDGED, sets, &["name=asked"]);
    run.says("done");
    let asked = bench.judge.chats();
    assert!(asked > 0);

    // Without its last checkpoint, the run has to make its last step again.
    std::fs::remove_dir_all(bench.scratch.path("runs/asked/checkpoints/step-000003")).unwrap();
    let sets = sets.iter().chain(&["name=asked"]).flat_map(|set| ["--set", set]);
    let arguments: Vec<&str> = ["train", JUDGED, "--resume"].into_iter().chain(sets).collect();
    bench.scratch.succeed(&arguments);
    assert_eq!(bench.judge.chats(), asked);
}
