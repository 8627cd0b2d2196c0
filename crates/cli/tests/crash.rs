//! Runs that are killed, interrupted, or find their files damaged. They continue to the same result.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]
#![cfg(unix)]

mod scratch;

use std::{
    collections::BTreeSet,
    fs, mem,
    os::unix::fs::PermissionsExt as _,
    process::Child,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use firebrick_stub::{
    Fault, GameOptions, Games, Hashed, Options, Stub, Tinker, TinkerOptions, Trouble,
};
use rusqlite::Connection;
use scratch::{Outcome, Scratch, assert_same, repository};

/// Kinds of runs, each with something of its own that a resumed run has to find again.
const KINDS: [(&str, &[&str]); 8] = [
    ("plain", &["checkpoint.every=3"]),
    ("critic", &["advantage.kind=gae", "train.adaptive={kl_stop=100.0}"]),
    ("curriculum", &["sampling.curriculum.kind=posterior", "train.share_prompts=always"]),
    ("adapter", &["model.new=", "model.path=base", "model.lora={rank=2}", "sft.steps=0"]),
    (
        "4-bits",
        &["model.new=", "model.path=base", "model.lora={rank=2}", "model.base=int4", "sft.steps=0"],
    ),
    (
        "ahead",
        &["rollout.max_staleness=1", "sampling.curriculum.kind=posterior", "loss.tis_cap=2.0"],
    ),
    (
        "game",
        &[
            "data.task={kind='guessing',numbers=10}",
            "environment={kind='guessing',max_turn_tokens=1,max_observation_tokens=8}",
            "sft={}",
        ],
    ),
    ("muon", &["optim.kind=muon", "optim.moments=int8", "loss.kl={kind=\"k3\",coef=0.1}"]),
];

/// Returns how often each kind is killed. `FIREBRICK_KILLS` is the number of kills in all; without it each kind is
/// killed three times.
fn kills() -> usize {
    let asked = std::env::var("FIREBRICK_KILLS").ok().and_then(|text| text.parse::<usize>().ok());
    asked.map_or(3, |all| all.div_ceil(KINDS.len() + 1))
}

#[test]
fn a_run_that_is_killed_at_any_instant_ends_the_same() {
    let scratch = Scratch::new();
    scratch.train_tiny("base", &["train.steps=1"]).success();
    fs::rename(scratch.path("runs/base/checkpoints/step-000001"), scratch.path("base")).unwrap();

    // A server that updates is not killed with the run, and does not know of it.
    let server = Tinker::of(&scratch.path("base"), TinkerOptions::default());
    let engine = format!("engine={{kind='tinker',url='{}',model='tiny'}}", server.url());
    let there = ["model.new=", "model.path=base", "model.lora={rank=2}", "sft.steps=20", &engine];
    let kinds = KINDS.into_iter().chain([("server", &there[..])]);

    for (number, (kind, settings)) in (1..).zip(kinds) {
        let began = Instant::now();
        scratch.train_tiny(&format!("{kind}-whole"), settings).success();
        let mut whole = began.elapsed();

        let again = [settings, &["--resume"]].concat();
        let mut killed = 0;
        let mut tries = 0;
        let name = format!("{kind}-killed");
        while killed < kills() && tries < 4 * kills() {
            tries += 1;
            let begun = scratch.path(&format!("runs/{name}/recipe.toml")).exists();
            let mut child = spawn(&scratch, &name, if begun { &again } else { settings });

            // Steps by the golden ratio fall everywhere in the run's time, without chance.
            thread::sleep(whole.mul_f64((0.618 * (number * tries) as f64).fract()));

            // Every second time the run is asked to end, and may save its state.
            match tries % 2 {
                0 => _ = signal("TERM", child.id()),
                _ => child.kill().unwrap(),
            }

            match Outcome::of(child.wait_with_output().unwrap()).code {
                // The code is 143 if the signal came before there was a handler.
                None | Some(130 | 143) => killed += 1,
                // The run was over already: the machine was busier when the time was taken.
                Some(_) => whole = whole.mul_f64(0.7),
            }
        }

        assert!(killed > 0, "{kind} was over before it could be killed");
        let begun = scratch.path(&format!("runs/{name}/recipe.toml")).exists();
        scratch.train_tiny(&name, if begun { &again } else { settings }).success();
        assert_same(&scratch.result(&format!("{kind}-whole")), &scratch.result(&name));
        assert_eq!(sampled(&scratch, &format!("{kind}-whole")), sampled(&scratch, &name), "{kind}");
    }
}

/// Returns everything that the database says of completions, except the tokens, which a checkpoint may let go.
fn sampled(scratch: &Scratch, run: &str) -> Vec<String> {
    let store = Connection::open(scratch.path(&format!("runs/{run}/run.db"))).unwrap();
    let sql = "SELECT source, step, draw, prompt, completion, text, verdict, reward, in_loss, \
               policy_version, mean_logprob, spread \
               FROM groups JOIN completions USING (group_id) ORDER BY source, step, draw, prompt_id, completion";

    let mut query = store.prepare(sql).unwrap();
    let row = |row: &rusqlite::Row<'_>| {
        (0..12).map(|index| Ok(format!("{:?}", row.get_ref(index)?))).collect::<Result<Vec<_>, _>>()
    };

    let rows = query.query_map([], row).unwrap();
    rows.map(|row| row.unwrap().join(" ")).collect()
}

fn spawn(scratch: &Scratch, name: &str, settings: &[&str]) -> Child {
    let arguments = arguments(name, settings);
    scratch.command(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).spawn().unwrap()
}

fn arguments(name: &str, settings: &[&str]) -> Vec<String> {
    let mut arguments = vec!["train".to_owned(), repository("recipes/ci/tiny.toml")];
    arguments.extend(["--set".to_owned(), format!("name={name}")]);
    for &setting in settings {
        if setting != "--resume" {
            arguments.push("--set".to_owned());
        }
        arguments.push(setting.to_owned());
    }
    arguments
}

/// A judge. From its 11th line on it waits while there is a file `wait`. It writes its process id into
/// `judge.pid`.
const JUDGE: &str = r#"#!/bin/sh
echo $$ > judge.pid
lines=0
while IFS= read -r line; do
    lines=$((lines + 1))
    while [ -e wait ] && [ $lines -gt 10 ]; do sleep 0.05; done
    id=${line#*:}; id=${id%%,*}
    # Some are right and some wrong, whatever they say.
    case $line in *[02468]\",*finish*) score=1 ;; *) score=0 ;; esac
    echo "{\"id\": $id, \"score\": $score}"
done
"#;

/// Makes a scratch folder with this judge, and returns it with the settings that use the judge.
fn judged() -> (Scratch, [&'static str; 5]) {
    let scratch = Scratch::new();
    scratch.write("judge.sh", JUDGE);
    fs::set_permissions(scratch.path("judge.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let settings = [
        "reward={kind='command',program=['./judge.sh'],time_limit=600.0}",
        "train.steps=3",
        "checkpoint.every=1",
        "sft.steps=0",
        // This makes ten lines of the first evaluation. With more samples there are more lines than the judge
        // takes.
        "eval.samples=1",
    ];
    (scratch, settings)
}

/// Starts a run that hangs in the judgement of its first step, or of the evaluation before it.
fn hang(scratch: &Scratch, settings: &[&str]) -> Child {
    scratch.write("wait", "");
    let _ = fs::remove_file(scratch.path("judge.pid"));
    let child = spawn(scratch, "stopped", settings);

    // The evaluation has ten groups, and the step has four.
    let asked = if settings.contains(&"eval.samples=2") { 10 } else { 14 };
    until("a group in run.db", || {
        let store = Connection::open(scratch.path("runs/stopped/run.db")).ok()?;
        let sql = "SELECT count(*) FROM groups";
        store.query_row(sql, [], |row| row.get::<_, i64>(0)).ok().filter(|&groups| groups >= asked)
    });

    until("the judge", || {
        fs::read_to_string(scratch.path("judge.pid")).ok().filter(|id| !id.is_empty())
    });
    child
}

#[track_caller]
fn until<T>(what: &str, ready: impl Fn() -> Option<T>) -> T {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(60) {
        if let Some(found) = ready() {
            return found;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("{what} did not come");
}

fn signal(name: &str, id: impl ToString) -> bool {
    let mut command = std::process::Command::new("kill");
    command.args([format!("-{name}"), id.to_string()]).stderr(std::process::Stdio::null());
    command.status().unwrap().success()
}

#[test]
fn what_was_sampled_before_a_kill_is_not_sampled_again_and_no_judge_is_left() {
    let (scratch, settings) = judged();
    scratch.train_tiny("whole", &settings).success();

    let mut child = hang(&scratch, &settings);
    let judge = fs::read_to_string(scratch.path("judge.pid")).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();

    until("the judge's end", || (!signal("0", judge.trim())).then_some(()));
    fs::remove_file(scratch.path("wait")).unwrap();
    let outcome = scratch.train_tiny("stopped", &[&settings[..], &["--resume"]].concat()).success();
    let said = outcome.said();
    assert!(said.contains("completions were in run.db and not sampled again"), "{said}");
    assert_same(&scratch.result("whole"), &scratch.result("stopped"));
}

/// A language model judges. The requests that are under way when the run is killed may be made again, and there are at
/// most as many as the run makes at the same time. A question whose answer is in `judge.jsonl` by then is never asked
/// again.
#[test]
fn a_kill_costs_a_judge_only_the_requests_that_are_under_way() {
    const KILLS: usize = 6;
    const AT_ONCE: usize = 2;

    let questions: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = questions.clone();
    let answer = move |body: &serde_json::Value| {
        let question = body["messages"][0]["content"].as_str().unwrap().to_owned();
        // Some are right and some wrong, whatever they say.
        let sum: u32 = question.bytes().map(u32::from).sum();
        seen.lock().unwrap().push(question);
        if sum.is_multiple_of(2) { "yes" } else { "no" }.to_owned()
    };

    // An answer takes so long that kills fall between a question and its answer. There is none to a question beyond
    // `most`, so that no run ends before its kill, however busy the machine is.
    let most = Arc::new(AtomicUsize::new(usize::MAX));
    let (seen, last) = (questions.clone(), most.clone());
    let fault = move |_: u64| {
        let is_beyond = seen.lock().unwrap().len() > last.load(Ordering::Relaxed);
        Some(if is_beyond { Fault::Hang } else { Fault::Delay(Duration::from_millis(10)) })
    };
    let options =
        Options { chat: Box::new(answer), chat_faults: Box::new(fault), ..Options::default() };
    let judge = Stub::start(Hashed::new(1.0), options);
    let reward = format!(
        "reward={{kind='judge',servers=['{}/v1'],model='judge',at_once={AT_ONCE},\
         rubric='{{{{ question }}}}{{{{ completion }}}}'}}",
        judge.base()
    );

    // Without a checkpoint before the last step, a resumed run meets the questions of all steps again.
    let settings = [&*reward, "train.steps=3", "checkpoint.every=3", "sft.steps=0"];
    let again = [&settings[..], &["--resume"]].concat();

    let scratch = Scratch::new();
    scratch.train_tiny("whole", &settings).success();
    let whole = mem::take(&mut *questions.lock().unwrap());
    let different: BTreeSet<&String> = whole.iter().collect();
    assert_eq!(different.len(), whole.len(), "equal questions are one");
    assert!((whole.len() - 6) / KILLS > 2 * AT_ONCE, "each run asks something before its kill");

    let kept = || fs::read_to_string(scratch.path("runs/killed/judge.jsonl")).unwrap_or_default();
    for kill in 0..KILLS {
        // The first kill is in the ten questions of the evaluation before the first step, which are judged together.
        let enough = 6 + kill * (whole.len() - 6) / KILLS;
        most.store(enough + AT_ONCE, Ordering::Relaxed);
        let mut child = spawn(&scratch, "killed", if kill == 0 { &settings } else { &again });
        until("the question", || (questions.lock().unwrap().len() >= enough).then_some(()));
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().code(), None, "kill {kill} came after the run's end");

        let asked = questions.lock().unwrap().len();
        let answered = kept().lines().count();
        let lost = asked - answered;
        assert!(lost <= AT_ONCE * (kill + 1), "kill {kill}: {answered} of {asked} were kept");
    }

    most.store(usize::MAX, Ordering::Relaxed);
    scratch.train_tiny("killed", &again).success();
    // A resumed run counts only what it asks itself.
    let result = |run: &str| -> Vec<(String, Vec<u8>)> {
        let without = |(name, bytes): (String, Vec<u8>)| match serde_json::from_slice::<
            serde_json::Map<String, serde_json::Value>,
        >(&bytes)
        {
            Ok(mut metrics) => {
                metrics.retain(|name, _| !name.starts_with("judge/"));
                (name, serde_json::to_vec(&metrics).unwrap())
            }
            Err(_) => (name, bytes),
        };
        scratch.result(run).into_iter().map(without).collect()
    };
    assert_same(&result("whole"), &result("killed"));
    assert_eq!(sampled(&scratch, "whole"), sampled(&scratch, "killed"));

    let asked = questions.lock().unwrap();
    assert_eq!(asked.iter().collect::<BTreeSet<_>>(), different);
    let twice = asked.len() - different.len();
    assert!(twice <= AT_ONCE * KILLS, "{twice} of {} were asked again", different.len());

    // Equal questions have equal answers, and thus equal lines.
    let kept = kept();
    let lines: BTreeSet<&str> = kept.lines().collect();
    assert_eq!((kept.lines().count(), lines.len()), (different.len(), different.len()));
}

#[test]
fn a_signal_ends_a_run_whose_judge_hangs() {
    for (name, samples) in [("INT", "eval.samples=1"), ("TERM", "eval.samples=2")] {
        let (scratch, mut settings) = judged();
        settings[4] = samples;
        scratch.train_tiny("whole", &settings).success();

        let child = hang(&scratch, &settings);
        let judge = fs::read_to_string(scratch.path("judge.pid")).unwrap();

        let began = Instant::now();
        assert!(signal(name, child.id()));
        let outcome = Outcome::of(child.wait_with_output().unwrap());
        let took = began.elapsed();
        assert_eq!(outcome.code, Some(130), "{}", outcome.stderr);

        // The program promises two seconds, but a machine may be busy.
        assert!(took < Duration::from_secs(6), "{took:?}");
        assert!(!signal("0", judge.trim()), "the judge is left");

        // The last line is the command that continues, as it has to be typed.
        let last = outcome.stderr.trim_end().lines().last().unwrap().trim();
        assert_eq!(last, "firebrick train runs/stopped/recipe.toml --resume");

        fs::remove_file(scratch.path("wait")).unwrap();
        let arguments: Vec<&str> = last.split(' ').skip(1).collect();
        let outcome = scratch.succeed(&arguments);
        assert!(outcome.said().contains("not sampled again"), "{}", outcome.stderr);
        assert_same(&scratch.result("whole"), &scratch.result("stopped"));
    }
}

#[test]
fn a_run_that_rests_continues() {
    let scratch = Scratch::new();
    scratch.train_tiny("whole", &[]).success();
    let child = spawn(&scratch, "rested", &[]);
    for _ in 0..5 {
        thread::sleep(Duration::from_millis(60));
        signal("STOP", child.id());
        thread::sleep(Duration::from_millis(60));
        signal("CONT", child.id());
    }

    Outcome::of(child.wait_with_output().unwrap()).success();
    assert_same(&scratch.result("whole"), &scratch.result("rested"));
}

#[test]
fn two_programs_do_not_write_one_run() {
    let (scratch, settings) = judged();
    let mut child = hang(&scratch, &settings);
    let refused = scratch.train_tiny("stopped", &[&settings[..], &["--resume"]].concat());
    assert_eq!(refused.code, Some(1));
    assert!(refused.said().contains("runs/stopped is in use by another firebrick"), "{refused:?}");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Damages each file of the newest checkpoint in several ways. The run continues from the checkpoint before, to the
/// same result.
#[test]
fn a_damaged_checkpoint_is_passed_over() {
    let scratch = Scratch::new();
    scratch.train_tiny("whole", &[]).success();
    scratch.train_tiny("damaged", &["train.steps=4"]).success();
    scratch.train_tiny("damaged", &["train.steps=4", "--resume"]).success();
    let checkpoint = scratch.path("runs/damaged/checkpoints/step-000004");
    let files = ["model.safetensors", "trainer/state.json", "trainer/optimizer.safetensors"];
    let others = [
        "config.json",
        "tokenizer.json",
        "trainer/progress.json",
        "README.md",
        "trainer/SHA256SUMS",
    ];

    let saved = scratch.path("saved");
    copy(&scratch.path("runs/damaged"), &saved);
    for (index, file) in files.iter().chain(&others).enumerate() {
        let path = checkpoint.join(file);
        let whole = fs::read(&path).unwrap();

        for damage in 0..6 {
            let mut bytes = whole.clone();
            match damage {
                0 => bytes.clear(),
                1 => bytes.truncate(1),
                2 => bytes.truncate(whole.len() / 2),
                3 => bytes.truncate(whole.len() - 1),
                4 => bytes[whole.len() * 2 / 3] ^= 4,
                _ => {}
            }
            fs::write(&path, bytes).unwrap();
            if damage == 5 {
                fs::remove_file(&path).unwrap();
            }

            // The run notices every damage. It continues to the end only for some of them, because that takes time.
            let steps = if damage == index % 5 { "train.steps=6" } else { "train.steps=4" };
            let outcome = scratch.train_tiny("damaged", &[steps, "--resume"]).success();

            // A checkpoint without sums counts as one from before there were sums.
            if (*file, damage) != ("trainer/SHA256SUMS", 5) {
                let said = outcome.said();
                let damaged = "step-000004 is damaged:";
                assert!(said.contains(damaged), "{file} {damage}: {said}");
                let resumed = "resumed from runs/damaged/checkpoints/step-000002";
                assert!(said.contains(resumed), "{file} {damage}: {said}");
                // The damaged checkpoint is kept under another name, so that no whole checkpoint is removed for
                // it.
                assert!(scratch.path("runs/damaged/checkpoints/damaged-step-000004").is_dir());
            }

            if steps == "train.steps=6" {
                assert_same(&scratch.result("whole"), &scratch.result("damaged"));
            }

            fs::remove_dir_all(scratch.path("runs/damaged")).unwrap();
            copy(&saved, &scratch.path("runs/damaged"));
        }
    }

    for step in ["step-000002", "step-000004"] {
        let path = format!("runs/damaged/checkpoints/{step}/model.safetensors");
        scratch.write(&path, "");
    }

    let refused = scratch.train_tiny("damaged", &["--resume"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.said().contains("no checkpoint of the run is intact"), "{refused:?}");
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        if path.is_dir() { copy(&path, &to) } else { _ = fs::copy(&path, &to).unwrap() }
    }
}

/// Damages the database and its log in several ways. The run continues without them, or says what to do.
#[test]
fn a_damaged_database_is_told() {
    let scratch = Scratch::new();
    scratch.train_tiny("a", &["train.steps=3"]).success();
    let path = scratch.path("runs/a/run.db");
    let whole = fs::read(&path).unwrap();

    let mut flipped = whole.clone();
    flipped[1] ^= 4;
    let cut = |length: usize| whole[..length].to_vec();

    for bytes in [cut(0), cut(1), cut(whole.len() / 2), cut(whole.len() - 1), flipped] {
        fs::write(&path, &bytes).unwrap();
        let outcome = scratch.train_tiny("a", &["train.steps=3", "--resume"]);
        match outcome.code {
            Some(0) => {}
            Some(1) => assert!(outcome.said().contains("run.db is damaged"), "{outcome:?}"),
            _ => panic!("{outcome:?}"),
        }
        fs::write(&path, &whole).unwrap();
    }

    // The error's advice works, also with the run's own recipe, which has no name in it.
    fs::remove_file(&path).unwrap();
    scratch.train_tiny("a", &["train.steps=4", "--resume"]).success();
    assert_eq!(scratch.newest("a"), Some(4));

    fs::remove_file(&path).unwrap();
    scratch.succeed(&["train", "runs/a/recipe.toml", "--set", "train.steps=5", "--resume"]);
    assert_eq!(scratch.newest("a"), Some(5));
}

/// A checkpoint is not to be removed because the model under its adapter is damaged.
#[test]
fn a_damaged_base_is_not_the_checkpoint_s_fault() {
    let scratch = Scratch::new();
    scratch.fixture("qwen2-f32", "base");
    let settings = ["model.new=", "model.path=base", "model.lora={rank=2}", "sft.steps=0"];
    let train = |more: &[&str]| scratch.train_tiny("a", &[&settings[..], more].concat());
    train(&["train.steps=1"]).success();

    let weights = scratch.path("base/model.safetensors");
    let whole = fs::read(&weights).unwrap();
    fs::write(&weights, &whole[..whole.len() / 2]).unwrap();

    let failed = train(&["train.steps=2", "--resume"]);
    assert_eq!(failed.code, Some(1), "{}", failed.stderr);
    let said = failed.said();
    assert!(said.contains("base/model.safetensors"), "{said}");
    assert!(!said.contains("checkpoints/step-"), "{said}");

    fs::write(&weights, whole).unwrap();
    train(&["train.steps=2", "--resume"]).success();
}

/// A run whose checkpoints were removed starts over, and keeps near its new beginning.
#[test]
fn a_run_without_checkpoints_has_a_reference_of_its_own() {
    let scratch = Scratch::new();
    let settings = ["loss.kl={kind='k3',coef=0.1}", "train.steps=2"];
    let train = |name: &str, more: &[&str]| {
        scratch.train_tiny(name, &[&settings[..], more].concat()).success();
    };

    train("a", &["seed=1"]);
    fs::remove_dir_all(scratch.path("runs/a/checkpoints")).unwrap();
    train("a", &["seed=2", "--resume"]);
    train("b", &["seed=2"]);

    let reference = |name: &str| {
        fs::read(scratch.path(&format!("runs/{name}/reference/model.safetensors"))).unwrap()
    };
    assert!(reference("a") == reference("b"), "it is the policy of another beginning");
}

#[test]
fn a_judge_that_fails_is_no_judge() {
    let scratch = Scratch::new();
    let judge = r#"while read -r line; do id=${line#*:}; id=${id%%,*}
        case $line in *[0246]\",*finish*) echo "{\"id\": $id, \"score\": 1}" ;;
        *[135]\",*finish*) echo "{\"id\": $id, \"score\": 0}" ;;
        *) printf '{"id": %s, "verdict": "error"}\n' $id ;; esac; done"#;
    scratch.write("judge.sh", judge);
    let reward = |most: &str| {
        format!("reward={{kind='command',program=['sh','./judge.sh'],max_errors={most}}}")
    };

    let some = reward("0.1");
    let all = reward("1.0");
    let refused = scratch.train_tiny("some", &[&some]);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    let said = refused.said();
    assert!(
        said.contains("could not be judged, but reward.max_errors allows a share of 0.1"),
        "{said}"
    );

    let outcome = scratch.train_tiny("all", &[&all]).success();
    let said = outcome.said();
    assert!(said.contains("could not be judged (") && said.contains("are left out"), "{said}");
    assert!(scratch.values("all", "reward/error").iter().sum::<f64>() > 0.0);
    let store = Connection::open(scratch.path("runs/all/run.db")).unwrap();
    let ask = |sql: &str| store.query_row(sql, [], |row| row.get::<_, f64>(0)).unwrap();
    let credit = "SELECT avg(credit) FROM completions JOIN groups USING (group_id) \
                    WHERE source = 'train' AND step = 1 AND verdict <> 'error'";
    assert!((ask(credit) - scratch.values("all", "reward/credit")[0]).abs() < 1e-6);
    let in_loss = "SELECT count(*) FROM completions WHERE verdict = 'error' AND in_loss";
    assert_eq!(ask(in_loss), 0.0);
}

/// Completions of an environment that failed are not taken from the database when it is repaired.
#[test]
fn an_environment_that_is_repaired_is_asked_again() {
    let broken = Arc::new(AtomicBool::new(true));
    let fails = broken.clone();
    let games = Games::start(GameOptions {
        troubles: Box::new(move |_| fails.load(Ordering::Relaxed).then_some(Trouble::Failed)),
        ..GameOptions::default()
    });
    let game = game_of(&games);
    let short = ["train.steps=2", "sampling.dynamic=false"];

    let settings = [&game.each_ref().map(String::as_str)[..], &short].concat();
    let scratch = Scratch::new();
    let failed = scratch.train_tiny("repaired", &settings);
    assert_eq!(failed.code, Some(1), "{}", failed.stderr);
    assert!(failed.said().contains("could not be judged"), "{}", failed.stderr);

    broken.store(false, Ordering::Relaxed);
    scratch.train_tiny("repaired", &[&settings[..], &["--resume"]].concat()).success();
    scratch.train_tiny("whole", &settings).success();
    assert_same(&scratch.result("repaired"), &scratch.result("whole"));
}

/// A step whose failed conversations were tolerated is repeated with the same ones.
#[test]
fn tolerated_failures_are_the_same_after_a_crash() {
    let games = Games::start(GameOptions {
        troubles: Box::new(|asked| asked.is_multiple_of(7).then_some(Trouble::Failed)),
        ..GameOptions::default()
    });
    let game = game_of(&games);

    // The tokens stay although there was a later checkpoint.
    let kept = "record.tokens_every=1";
    let more = ["train.steps=3", "sampling.dynamic=false", "reward.max_errors=1.0", kept];
    let settings = [&game.each_ref().map(String::as_str)[..], &more].concat();

    let scratch = Scratch::new();
    scratch.train_tiny("a", &settings).success();
    assert!(
        scratch.values("a", "reward/error")[2] > 0.0,
        "no conversation of the last step failed"
    );

    // An evaluation is made again, with failures of its own.
    let trained = || {
        let mut result = scratch.result("a");
        result.retain(|(what, _)| what.starts_with("step Some(3): "));
        assert!(result.len() > 3, "{} files", result.len());
        result
    };

    let whole = trained();
    fs::remove_dir_all(scratch.path("runs/a/checkpoints/step-000003")).unwrap();
    scratch.train_tiny("a", &[&settings[..], &["--resume"]].concat()).success();
    assert_same(&trained(), &whole);
}

/// Settings of a game that a server plays.
fn game_of(games: &Games) -> [String; 4] {
    let environment = format!(
        "environment={{kind='openenv',servers=['{}'],sessions=8,max_turn_tokens=1,max_observation_tokens=16,\
         reset='{{\"secret\": {{{{ reference }}}}}}',observation='{{{{ observation.message }}}}'}}",
        games.address()
    );
    [
        environment,
        "data.task={kind='guessing',numbers=10}".into(),
        "model.new.alphabet=0123456789-:<>=?".into(),
        "sft={}".into(),
    ]
}

#[test]
fn a_policy_that_breaks_does_not_displace_a_good_one() {
    let scratch = Scratch::new();

    // The first moments are so large, and the second so small, that the next update is infinite. In the second run
    // they are no numbers. No sums are left that would show it.
    let large = |name: &str| if name.ends_with("moment_1") { f32::MAX } else { 0.0 };
    let none = |_: &str| f32::NAN;
    for (run, moments) in [("a", &large as &dyn Fn(&str) -> f32), ("b", &none)] {
        scratch.train_tiny(run, &["train.steps=2"]).success();
        let checkpoint = format!("runs/{run}/checkpoints/step-000002");
        fs::remove_file(scratch.path(&format!("{checkpoint}/trainer/SHA256SUMS"))).unwrap();

        let path = scratch.path(&format!("{checkpoint}/trainer/optimizer.safetensors"));
        let mut bytes = fs::read(&path).unwrap();
        let values = u64::from_le_bytes(*bytes.first_chunk::<8>().unwrap()) as usize + 8;
        let header: serde_json::Value = serde_json::from_slice(&bytes[8..values]).unwrap();

        for (name, tensor) in header.as_object().unwrap().iter().filter(|it| it.0 != "__metadata__")
        {
            let at = |end: usize| values + tensor["data_offsets"][end].as_u64().unwrap() as usize;
            for number in bytes[at(0)..at(1)].as_chunks_mut::<4>().0 {
                *number = moments(name).to_le_bytes();
            }
        }
        fs::write(&path, bytes).unwrap();

        let more = ["sampling.dynamic=false", "checkpoint.every=1", "--resume"];
        let broken = scratch.train_tiny(run, &more);
        assert!(matches!(broken.code, Some(1 | 3)), "{run}: {}", broken.stderr);
        assert_eq!(scratch.newest(run), Some(2), "{run}: {}", broken.stderr);
        assert!(scratch.path(&format!("{checkpoint}/model.safetensors")).exists(), "{run}");
    }
}

#[test]
fn a_skipped_update_is_computed_again() {
    let scratch = Scratch::new();
    // The entropy bonus is too large for any gradient in float16.
    let more = [
        "loss.entropy_coef=1e9",
        "model.dtype=float16",
        "train.max_skipped=1",
        "sampling.dynamic=false",
    ];

    let ended = scratch.train_tiny("a", &more);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    let said = ended.said();
    let (_, command) = said.split_once("are to blame: firebrick ").unwrap();
    let batch = command.split([';', ' ']).nth(1).unwrap();

    let shown = scratch.succeed(&["replay", batch]).stdout;
    assert!(
        shown.contains("completions together: loss") && shown.contains("gradient NaN"),
        "{shown}"
    );

    let json = scratch.succeed(&["replay", batch, "--json"]).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["grad_norm"], "NaN");
    assert!(json["completions"].as_array().unwrap().iter().all(|row| row["grad_norm"] == "NaN"));

    let refused = scratch.run(&["replay", "runs/a/recipe.toml"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.said().contains("is not the batch of a skipped update"), "{}", refused.stderr);
}

#[test]
fn references_that_are_no_answers_are_reported() {
    let scratch = Scratch::new();
    let rows = |useless: usize| -> String {
        let row = |index: usize| {
            if index < useless {
                format!("{{\"prompt\": \"{index}+1=\", \"answer\": \"no number\"}}\n")
            } else {
                format!("{{\"prompt\": \"{index}+1=\", \"answer\": \"{}\"}}\n", index + 1)
            }
        };
        (0..60).map(row).collect()
    };

    let train = |useless: usize, name: &str| {
        scratch.write("rows.jsonl", rows(useless));
        scratch.train_tiny(
            name,
            &[
                "data={train='rows.jsonl',heldout_size=20,columns={prompt='prompt',reference='answer'}}",
                "model.new.alphabet=0123456789+=",
                "sft={}",
                "reward.kind=gsm8k",
                "train.steps=1",
            ],
        )
    };

    let refused = train(50, "most");
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    let said = refused.said();
    assert!(said.contains("wrong, such as \"no number\""), "{said}");

    let said = train(4, "some").success().said();
    assert!(
        said.contains("data.train: given the reference itself as the answer, reward.kind = \"gsm8k\" judges 4 of 40 wrong"),
        "{said}"
    );
}

/// System calls that change a file, or make a change last.
const WRITES: &str =
    "write,pwrite64,ftruncate,fsync,fdatasync,rename,renameat,renameat2,mkdir,unlink,unlinkat";

/// Kills a run at its first write, then a new run at a later write, and so on. With `FIREBRICK_WRITES` it does so
/// at every such write up to the end; without it, at twelve writes at most.
#[test]
fn a_run_that_is_killed_at_a_write_ends_the_same() {
    let strace = |arguments: &[&str]| {
        let mut command = std::process::Command::new("strace");
        command.args(["-f", "-o", "/dev/null", "-e", &format!("trace={WRITES}")]).args(arguments);
        command
    };

    if !strace(&["true"]).status().is_ok_and(|status| status.success()) {
        return aloud("no strace that may trace: no run was killed at its writes");
    }

    let scratch = Scratch::new();
    let settings = ["sft.steps=20", "train.steps=3", "checkpoint.every=1", "checkpoint.keep=1"];
    scratch.train_tiny("whole", &settings).success();
    let whole = scratch.result("whole");

    let asked = std::env::var("FIREBRICK_WRITES").ok().and_then(|text| text.parse::<usize>().ok());
    let mut at = 1;
    let mut killed = 0;
    while asked.is_some() || killed < 12 {
        let name = format!("at-{at}");
        let arguments = arguments(&name, &settings);
        let inject = format!("inject={WRITES}:signal=KILL:when={at}");
        let mut command = strace(&["-e", &inject, env!("CARGO_BIN_EXE_firebrick")]);
        command.args(&arguments).current_dir(scratch.path(""));
        let outcome = Outcome::of(command.output().unwrap());

        if outcome.code == Some(0) {
            break;
        }
        killed += 1;

        let run = scratch.path(&format!("runs/{name}"));
        let again = [&settings[..], &["--resume"]].concat();
        let begun = run.join("recipe.toml").exists();
        scratch.train_tiny(&name, if begun { &again } else { &settings }).success();

        let result = scratch.result(&name);
        assert!(result == whole, "killed at write {at}: {:?}", differences(&result, &whole));
        assert_eq!(sampled(&scratch, &name), sampled(&scratch, "whole"), "killed at write {at}");
        fs::remove_dir_all(run).unwrap();
        at += asked.unwrap_or(61);
    }

    assert!(killed > 5, "killed at {killed} writes");
    if asked.is_some() {
        said(&format!("the run was killed at {killed} of about {at} writes"));
    }
}

fn differences(left: &[(String, Vec<u8>)], right: &[(String, Vec<u8>)]) -> Vec<String> {
    let differ = left.iter().zip(right).filter(|(left, right)| left != right);
    differ.map(|(left, _)| left.0.clone()).collect()
}

/// Reports past the test harness that a test could not be run.
fn aloud(text: &str) {
    said(&format!("SKIPPED: {text}"));
}

fn said(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[test]
fn a_full_disk_says_where_the_run_continues() {
    let scratch = Scratch::new();
    let disk = scratch.path("disk");
    fs::create_dir(&disk).unwrap();

    let mount = |arguments: &[&str]| {
        let mut command = std::process::Command::new(arguments[0]);
        command.args(&arguments[1..]).arg(&disk).stderr(std::process::Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };

    if !mount(&["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs"]) {
        return aloud("no file system can be mounted here: no disk was full");
    }

    let train = |more: &[&str]| {
        let arguments = arguments("a", &[&["checkpoint.keep=0", "train.steps=20"], more].concat());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        scratch.run(&[&arguments[..], &["--runs", "disk"]].concat())
    };

    let full = train(&[]);
    let larger = mount(&["mount", "-o", "remount,size=50m"]);
    let resumed = train(&["--resume"]);
    assert!(mount(&["umount"]) && larger);

    assert_eq!(full.code, Some(1), "{}", full.stderr);
    let said = full.said();
    assert!(said.contains("No space left on device") || said.contains("disk is full"), "{said}");
    assert!(said.contains("free some space") && said.contains("--resume"), "{said}");
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
}

#[test]
fn a_run_whose_folder_is_gone_ends() {
    let (scratch, settings) = judged();
    let child = hang(&scratch, &settings);

    fs::rename(scratch.path("runs/stopped"), scratch.path("runs/moved")).unwrap();
    fs::remove_file(scratch.path("wait")).unwrap();
    let outcome = Outcome::of(child.wait_with_output().unwrap());
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(outcome.said().contains("was removed, moved or replaced"), "{}", outcome.stderr);
    assert!(!scratch.path("runs/stopped").exists());
}
