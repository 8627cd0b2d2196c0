//! Cases for prompts: data sets, tasks, and the way from a question to a prompt.

use std::{collections::BTreeSet, fs};

use serde_json::Value;

use crate::{
    bench::{Bench, CHECKPOINT, Case, LETTERS, TINY, case, default},
    made::{Run, assert_near},
};

#[test]
fn prompts_are_what_their_options_say() {
    let bench = Bench::new();
    for (file, letters) in [
        ("red/train", "ab"),
        ("red/test", "c"),
        ("blue/train", "ef"),
        ("blue/test", "def"),
        ("blue/validation", "defg"),
    ] {
        let rows: Vec<String> = letters.chars().map(String::from).collect();
        let rows: Vec<_> = rows.iter().map(|letter| (letter.as_str(), "a")).collect();
        bench.rows(&format!("set/{file}.jsonl"), &rows);
    }

    // One row is there twice, and two rows contradict each other.
    let twice =
        [("a", "a"), ("b", "a"), ("b", "a"), ("c", "a"), ("c", "d"), ("d", "a"), ("e", "a")];
    bench.rows("twice.jsonl", &twice);

    bench.scratch.write("red.csv", "question,answer\na,a\n\"b\",a\n");

    let columns = r#"{"question": "a", "back": "h", "answer": "c", "level": 1}
        {"question": "b", "back": "g", "answer": "d", "level": "hard"}"#;
    bench.scratch.write("columns.jsonl", columns);
    bench.try_all(CASES);
}

/// Settings for cases in which only the questions matter.
const ASK: &[&str] = &["sft={}", "train.steps=2", "sampling.dynamic=false"];

/// Like `ASK`, for programs that are not run.
const WRITE: &[&str] = &["sft={}", "train.steps=2", "sampling.dynamic=false", "reward.kind=exact"];

/// Like `ASK`, but with room for a story.
const TELL: &[&str] = &[
    "sft={}",
    "train.steps=2",
    "sampling.dynamic=false",
    "model.new.max_position_embeddings=1024",
    "train.micro_batch_tokens=4096",
];

/// Settings for a folder with the subsets `red` and `blue` of a data set.
const SET: &[&str] = &["data.train=set", "data.split=train", "sampling.dynamic=false"];

/// Two data sets with a judge each.
const JUDGED: &str = "data.train=[{path='set/red/train.jsonl',reward={kind='regex',pattern='.*',matches=true}},\
                      {path='set/blue/test.jsonl',name='blue',reward={kind='regex',pattern='z',matches=true}}]";

/// Two data sets in turns, the first with a judge of its own.
const MIXED: &str = "data.train=[{path='set/red/train.jsonl',weight=1,reward={kind='regex',pattern='.*',matches=true}},\
                     {path='set/blue/test.jsonl',weight=1,name='blue'}]";

pub(crate) const CASES: &[Case] = &[
    case(&["data.train=set/red/train.jsonl"], LETTERS, ASK, |run| asks(run, "ab")),
    case(&["data.train=red.csv"], LETTERS, ASK, |run| asks(run, "ab")),
    // The last letter of each is held out.
    case(
        &[
            "data.train=[{path='set/red/train.jsonl'},{path='set',subset='blue',split='validation'}]",
        ],
        LETTERS,
        ASK,
        |run| {
            asks(run, "adef");
            assert!(run.prompts().iter().any(|prompt| prompt == "a"));
            assert!(run.prompts().iter().any(|prompt| prompt != "a"));
            assert_eq!(run.evaluated()["data_source"]["train"]["prompts"], 1);

            let again = "data.train=[{path='set/red/train.jsonl'},{path='set/red/train.jsonl'}]";
            run.instead(&[again]).fails(2, "data.train has two sources named \"train\"");
        },
    ),
    // A weight counts prompts, whatever their number: three of four are the only one of its file.
    case(
        &[
            "data.train=[{path='set/red/train.jsonl',weight=3},{path='set/blue/test.jsonl',weight=1,name='blue'}]",
        ],
        LETTERS,
        ASK,
        |run| {
            let red = |run: &Run| {
                let completions = run.completions();
                let red = completions.iter().filter(|done| done.prompt == "a").count();
                (4 * red, 3 * completions.len())
            };
            let (quadruple, triple) = red(run);
            assert_eq!(quadruple, triple);

            let one =
                "data.train=[{path='set/red/train.jsonl',weight=3},{path='set/blue/test.jsonl'}]";
            run.instead(&[one]).fails(2, "1 of 2 sources with a `weight`");
        },
    ),
    // The first has columns of its own, so that a question is the letter of another column.
    case(
        &[
            "data.train=[{path='columns.jsonl',columns={prompt='back',reference='question',difficulty='level'}},{path='set/red/train.jsonl'}]",
        ],
        LETTERS,
        ASK,
        |run| {
            asks(run, "ah");
            assert!(!run.values("eval/difficulty/hard").is_empty());
        },
    ),
    // Of the first every answer is right, of the second none.
    case(&[JUDGED], LETTERS, ASK, |run| {
        for done in run.completions() {
            assert_eq!(done.verdict == "right", done.prompt == "a", "{}", done.prompt);
        }
        let last = |name: &str| run.values(&format!("eval/data_source/{name}")).pop();
        assert_eq!((last("train"), last("blue")), (Some(1.0), Some(0.0)));

        let file = [JUDGED, "data.heldout='letters.jsonl'", "reward={}"];
        run.instead(&file).fails(2, "data.heldout and eval.sets are judged by `[reward]`");
    }),
    // Every answer to the first is right, so dynamic sampling keeps none of its groups.
    case(&[MIXED], LETTERS, &[], |run| {
        let completions = run.first_completions();
        let credits = completions.iter().filter(|done| done.prompt != "a");
        let credits: Vec<f64> = credits.map(|done| done.credit).collect();
        let groups = |which: &str| {
            let of_blue = "SELECT count(*) FROM groups \
                           WHERE source = 'train' AND step = 1 AND prompt <> 'a'";
            run.asked(&format!("{of_blue}{which}")) as f64
        };

        let of = |name: &str| run.first(&format!("data_source/{name}"));
        assert_eq!((of("train/credit"), of("train/kept")), (1.0, 0.0));
        assert_eq!(of("train/completions"), (completions.len() - credits.len()) as f64);

        assert_eq!(of("blue/completions"), credits.len() as f64);
        assert_near(of("blue/credit"), credits.iter().sum::<f64>() / credits.len() as f64);
        let kept = groups(" AND status IN ('kept', 'surplus')");
        assert!(kept > 0.0);
        assert_near(of("blue/kept"), kept / groups(""));

        let one = run.instead(&["data.train=[{path='letters.jsonl'}]"]);
        assert!(by_data_set(&one).is_empty());
    }),
    case(&["data.subset=blue"], LETTERS, SET, |run| {
        asks(run, "ef");
        run.without().fails(1, "name the subset");
    }),
    case(
        &["eval.sets=[{name='red',data='set',subset='red',split='test',prompts=1,samples=4}]"],
        LETTERS,
        &["eval.every=1"],
        |run| {
            assert_eq!(run.values("eval/red/accuracy").len(), 2);
            assert_eq!(run.values("eval/red/pass_at_4").len(), 2);
            assert!(run.summary()["sets"]["red"].is_number());
            // One prompt is sampled before the first step and after each of two steps.
            let sampled = |what: &str| {
                run.asked(&format!(
                    "SELECT count({what}) FROM groups JOIN completions USING (group_id) WHERE source = 'red'"
                ))
            };
            assert_eq!((sampled("DISTINCT group_id"), sampled("*")), (3, 12));
            run.says("red: accuracy");
        },
    ),
    case(&["data.split=test"], LETTERS, &["data.train=set/red"], |run| asks(run, "c")),
    // Without the file, two of the prompts that are trained on would be held out.
    case(&["data={train='letters.jsonl',heldout='set/blue/test.jsonl'}"], LETTERS, ASK, |run| {
        held_out(run, 3);
        held_out(&run.without(), 2);
        assert_eq!(run.prompts(), letters("abcdefgh"));
    }),
    case(
        &["data.heldout_subset=blue"],
        LETTERS,
        &["data={train='letters.jsonl',heldout='set',heldout_split='test'}"],
        |run| {
            held_out(run, 3);
            run.without().fails(1, "name the subset");
        },
    ),
    case(
        &["data.heldout_split=validation"],
        LETTERS,
        &["data.train=set", "data.split=train", "data.subset=blue", "sampling.dynamic=false"],
        |run| {
            held_out(run, 4);
            asks(run, "ef");
            // A file has no splits, so a recipe for a data set holds out other rows of the file.
            let file = run.instead(&["data.train=letters.jsonl", "data.heldout_split=validation"]);
            file.says("has no split validation");
        },
    ),
    case(
        &["data.deduplicate=false"],
        LETTERS,
        &["data={train='twice.jsonl',heldout='set/blue/test.jsonl'}"],
        |run| {
            run.says("7 of 7 prompts kept");
            run.without().says("4 of 7 prompts kept");
        },
    ),
    case(&["data.train_size=5"], TINY, ASK, |run| {
        run.says("5 of 5 prompts kept");
        assert!(run.prompts().len() <= 5 && run.without().prompts().len() > 5);
    }),
    case(&["data.heldout_size=3"], TINY, ASK, |run| {
        held_out(run, 3);
        held_out(&run.without(), 10);
    }),
    case(&["data.columns.prompt=back"], LETTERS, &["data.train=columns.jsonl"], |run| {
        asks(run, "hg");
        asks(&run.without(), "ab");
    }),
    case(
        &["data.columns.reference=back"],
        LETTERS,
        &["data.train=columns.jsonl", "reward={kind='exact'}", "sampling.dynamic=false"],
        |run| {
            let expected = |run: &Run| -> BTreeSet<String> {
                run.completions().into_iter().map(|completion| completion.reference).collect()
            };
            assert!(expected(run).is_subset(&letters("hg")));
            assert!(expected(&run.without()).is_subset(&letters("cd")));
        },
    ),
    case(
        &["data.columns.difficulty=level"],
        LETTERS,
        &["data={train='columns.jsonl',heldout='columns.jsonl'}"],
        |run| {
            let levels = ["eval/difficulty/1", "eval/difficulty/hard"];
            for level in levels {
                assert!(!run.values(level).is_empty(), "{level}");
            }
            let by_level = run.evaluated()["difficulty"].clone();
            assert_eq!(
                (&by_level["hard"]["prompts"], &by_level["1"]["prompts"]),
                (&1.into(), &1.into())
            );
            let without = run.without();
            assert_eq!(without.evaluated()["difficulty"], serde_json::json!({}));
            assert!(without.metrics().iter().all(|step| step.get(levels[0]).is_none()));
        },
    ),
    // The model has a template.
    default(&["data.template=auto"], CHECKPOINT, &[], |run| {
        every_prompt(run, |prompt| prompt.contains("<|im_start|>user"));
        every_prompt(&run.bench.run(LETTERS, &[], &["data.template=auto"]), |prompt| {
            prompt.len() == 1
        });
    }),
    default(&["data.template=chat"], CHECKPOINT, &[], |run| {
        every_prompt(run, |prompt| prompt.contains("<|im_start|>user"));
        run.bench.run(LETTERS, &[], &["data.template=chat"]).fails(2, "has no chat template");
    }),
    case(&["data.template=plain"], CHECKPOINT, &[], |run| {
        every_prompt(run, |prompt| prompt.ends_with('?') && !prompt.contains("<|"));
    }),
    case(&["data.template_options={dated=true}"], CHECKPOINT, &["model.path=half"], |run| {
        every_prompt(run, |prompt| prompt.contains("It is "));
        every_prompt(&run.without(), |prompt| !prompt.contains("It is "));
    }),
    case(&["data.system=Be brief."], CHECKPOINT, &[], |run| {
        every_prompt(run, |prompt| prompt.contains("<|im_start|>system\nBe brief."));
    }),
    case(&["data.prompt=Now: {prompt} Well?"], CHECKPOINT, &["data.template=plain"], |run| {
        every_prompt(run, |prompt| prompt.starts_with("Now: ") && prompt.ends_with("? Well?"));
    }),
    case(&["data.max_prompt_tokens=4"], TINY, &["data.task.digits=2", "sft={}"], |run| {
        every_prompt(run, |prompt| prompt.len() <= 4);
        assert!(run.without().prompts().iter().any(|prompt| prompt.len() > 4));
    }),
    case(&["data.task={kind='addition',digits=3}"], TINY, ASK, |run| {
        every_prompt(run, |prompt| numbers(prompt, &['+', '=']).max() < Some(1000));
        assert!(run.prompts().iter().any(|prompt| numbers(prompt, &['+', '=']).max() > Some(99)));
    }),
    // The answer of a worked sum stands behind a mark.
    case(&["data.task={kind='addition',digits=1,worked=true}"], TINY, ASK, marked),
    // A second look begins with a sign that no other sum has.
    case(
        &["data.task={kind='addition',digits=1,worked=true,second_look=0.5}"],
        TINY,
        &["sft={}", "train.steps=2", "sampling.dynamic=false", "rollout.group_size=8"],
        |run| {
            let looks = |run: &Run| run.completions().iter().any(|done| done.text.contains('?'));
            let once = run.instead(&["data.task={kind='addition',digits=1,worked=true}"]);
            assert!(looks(run) && !looks(&once));
        },
    ),
    case(&["data.task={kind='multiplication',digits=2}"], TINY, ASK, |run| {
        every_prompt(run, |prompt| {
            prompt.contains('*') && numbers(prompt, &['*', '=']).count() == 2
        });
        assert!(run.prompts().iter().any(|prompt| numbers(prompt, &['*', '=']).max() > Some(9)));
    }),
    case(&["data.task={kind='multiplication',digits=1,worked=true}"], TINY, ASK, marked),
    case(&["data.task={kind='countdown',numbers=3,max_number=7,max_target=9}"], TINY, ASK, |run| {
        for prompt in run.prompts() {
            let (given, target) = prompt.trim_end_matches('=').split_once(':').unwrap();
            assert_eq!(given.split(' ').count(), 3, "{prompt}");
            assert!(numbers(given, &[' ']).max() <= Some(7), "{prompt}");
            assert!(target.parse::<u64>().unwrap() <= 9, "{prompt}");
        }
    }),
    case(&["data.task={kind='functions',operations=1}"], TINY, WRITE, |run| {
        every_prompt(run, |prompt| prompt.ends_with(':') && !prompt.contains(','));
        let other = run.instead(&["data.task={kind='functions',operations=3}"]);
        assert!(other.prompts().iter().any(|prompt| prompt.contains(',')));
    }),
    case(&["data.task={kind='sums',digits=3}"], TINY, ASK, |run| {
        every_prompt(run, |prompt| {
            let sum = prompt.strip_prefix("What is ").unwrap();
            numbers(sum, &[' ', '+', '?']).all(|number| (100..1000).contains(&number))
        });
    }),
    case(&["data.task={kind='sums',digits=1,differences=true}"], TINY, ASK, |run| {
        assert!(run.prompts().iter().any(|prompt| prompt.contains(" - ")))
    }),
    case(&["data.task={kind='word_problems',steps=4}"], TINY, TELL, |run| {
        // A problem of one operation never has bags of something.
        assert!(run.prompts().iter().any(|prompt| prompt.contains(" bags with ")));
    }),
    case(&["data.task={kind='word_problems',steps=1}"], TINY, TELL, |run| {
        every_prompt(run, |prompt| prompt.ends_with('?') && !prompt.contains(" bags with "));
    }),
    case(&["data.task={kind='word_problems',steps=3,fewest_steps=1}"], TINY, TELL, |run| {
        // A story of one operation has three sentences. A story of three operations has at least four.
        let sentences = |prompt: &String| prompt.matches(['.', '?']).count();
        assert!(run.prompts().iter().any(|prompt| sentences(prompt) == 3));
        assert!(run.prompts().iter().any(|prompt| sentences(prompt) > 3));
    }),
];

#[test]
fn a_resumed_run_reports_its_data_sets_alike() {
    let bench = Bench::new();
    bench.rows("set/red/train.jsonl", &[("a", "a"), ("b", "a")]);
    bench.rows("set/blue/test.jsonl", &[("d", "a"), ("e", "a"), ("f", "a")]);
    let sets = [MIXED, "checkpoint.every=1"];
    let run = bench.run(LETTERS, &sets, &["name=mixed"]);
    let whole = by_data_set(&run);
    assert!(!whole.is_empty());

    // Without its last checkpoint, the run has to make its last step again.
    fs::remove_dir_all(bench.scratch.path("runs/mixed/checkpoints/step-000002")).unwrap();
    let sets = sets.iter().chain(&["name=mixed"]).flat_map(|set| ["--set", set]);
    let arguments: Vec<&str> = ["train", LETTERS, "--resume"].into_iter().chain(sets).collect();
    bench.scratch.succeed(&arguments);
    assert_eq!(by_data_set(&run), whole);
}

/// Returns the metrics of each step that are of one data set.
fn by_data_set(run: &Run) -> Vec<(String, Value)> {
    let steps = run.metrics();
    let metrics = steps.iter().flat_map(|step| step.as_object().unwrap().clone());
    metrics.filter(|(name, _)| name.starts_with("data_source/")).collect()
}

fn letters(of: &str) -> BTreeSet<String> {
    of.chars().map(String::from).collect()
}

/// Checks that the questions are among these letters. It does not matter which of them are held out.
#[track_caller]
fn asks(run: &Run, of: &str) {
    assert!(run.prompts().is_subset(&letters(of)), "{:?}", run.prompts());
}

#[track_caller]
fn held_out(run: &Run, prompts: usize) {
    let words = format!("Prompts: {prompts}.");
    assert!(run.card().contains(&words), "{words} {}", run.card());
}

#[track_caller]
fn every_prompt(run: &Run, holds: fn(&str) -> bool) {
    let prompts = run.prompts();
    assert!(!prompts.is_empty() && prompts.iter().all(|prompt| holds(prompt)), "{prompts:?}");
}

fn numbers<'t>(text: &'t str, between: &'t [char]) -> impl Iterator<Item = u64> + 't {
    text.split(between).filter(|number| !number.is_empty()).map(|number| number.parse().unwrap())
}

/// Checks that a number alone is an answer to a problem that is not worked, and no answer to a worked one.
fn marked(run: &Run) {
    let bare = |run: &Run| -> Vec<String> {
        let done = run.completions().into_iter();
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
        done.filter(|done| digits(&done.text)).map(|done| done.verdict).collect()
    };

    let short = bare(&run.instead(&["data.task={kind='addition',digits=1,worked=false}"]));
    assert!(!short.is_empty() && short.iter().all(|verdict| verdict != "unparsable"), "{short:?}");

    let worked = bare(run);
    assert!(!worked.is_empty() && worked.iter().all(|verdict| verdict == "unparsable"));
}
