//! Runs the program from end to end, in a second.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

mod scratch;

use std::{thread, time::Duration};

use scratch::{Outcome, Scratch, assert_same, repository};
use serde_json::Value;

/// Returns the arguments that train the tiny recipe under the name `run`.
fn train(run: &str, more: &[&str]) -> Vec<String> {
    let mut arguments = vec!["train".to_owned(), repository("recipes/ci/tiny.toml")];
    arguments.extend(["--set".to_owned(), format!("name={run}")]);
    for argument in more {
        if *argument != "--resume" {
            arguments.push("--set".into());
        }
        arguments.push((*argument).to_owned());
    }
    arguments
}

/// Trains the tiny recipe under the name `run`, whatever the outcome.
fn run(scratch: &Scratch, run: &str, more: &[&str]) -> Outcome {
    let arguments = train(run, more);
    scratch.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

#[track_caller]
fn succeed(scratch: &Scratch, name: &str, more: &[&str]) -> Outcome {
    let outcome = run(scratch, name, more);
    assert_eq!(outcome.code, Some(0), "{more:?}: {}", outcome.stderr);
    outcome
}

/// Returns a metric's value at every step.
fn values(scratch: &Scratch, run: &str, metric: &str) -> Vec<f64> {
    scratch.metrics(run).iter().map(|step| step[metric].as_f64().unwrap()).collect()
}

/// The run that failed has a checkpoint of step 0, of a model of another size.
#[test]
fn a_run_that_made_no_step_gives_its_name_back() {
    let scratch = Scratch::new();
    let cap = ["sft={}", "sampling.max_rounds=1", "sampling.on_cap=error"];
    let failed = scratch.train_tiny("a", &cap);
    assert_eq!(failed.code, Some(1), "{}", failed.stderr);

    let other = ["sft={}", "sampling.dynamic=false", "model.new.hidden_size=16", "train.steps=2"];
    let taken = scratch.train_tiny("a", &other).success();
    assert!(taken.said().contains("this one takes its place"), "{}", taken.stderr);
    scratch.train_tiny("b", &other).success();
    assert_same(&scratch.result("a"), &scratch.result("b"));

    let refused = scratch.train_tiny("a", &other);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.said().contains("already holds a run"), "{}", refused.stderr);

    // Supervised steps are worth keeping.
    let trained = scratch.train_tiny("c", &cap[1..]);
    assert_eq!(trained.code, Some(1), "{}", trained.stderr);
    let refused = scratch.train_tiny("c", &other);
    assert!(refused.said().contains("already holds a run"), "{}", refused.stderr);
}

#[test]
fn a_seed_makes_a_run() {
    let scratch = Scratch::new();
    succeed(&scratch, "a", &[]);
    succeed(&scratch, "b", &[]);
    succeed(&scratch, "c", &["seed=18"]);

    let (a, b, c) = (scratch.result("a"), scratch.result("b"), scratch.result("c"));
    assert_same(&a, &b);
    assert_eq!(values(&scratch, "a", "step"), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_ne!(a[1], c[1], "{} does not depend on the seed", a[1].0);

    let exported = std::fs::read_to_string(scratch.path("runs/a/metrics.jsonl")).unwrap();
    assert_eq!(scratch.run(&["metrics", "runs/a"]).stdout, exported);

    let shown = |more: &[&str]| scratch.succeed(&[&["metrics", "runs/a"], more].concat()).stdout;
    let csv = shown(&["--form", "csv", "reward/right", "time/*"]);
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(
        lines[0],
        "step,reward/right,time/clock,time/record,time/reward,time/reward_wait,time/rollout,time/step,time/update"
    );
    assert_eq!((lines.len(), lines[6].split(',').count()), (7, 9));
    let table = shown(&["--form", "table", "--last", "2", "loss/entropy"]);
    assert_eq!(table.lines().count(), 3, "{table}");
    let columns = |more: &[&str]| {
        let table = shown(&[&["--form", "table"], more].concat());
        table.lines().next().unwrap().split_whitespace().count()
    };
    assert_eq!(columns(&[]), 9, "the step and eight metrics");
    assert!(columns(&["--all"]) > 30);
    let row = shown(&["--form", "row"]);
    let row: Vec<&str> = row.lines().last().unwrap().split(" | ").collect();
    assert!(row[0] == "| a" && row[1].starts_with("cpu (") && row[3] == "6", "{row:?}");
    let verl: Vec<Value> = shown(&["--verl", "--follow"])
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        verl[0]["response_length/mean"].as_f64().unwrap(),
        values(&scratch, "a", "rollout/length_mean")[0]
    );
    let unknown = scratch.run(&["metrics", "runs/a", "los/*"]);
    assert_eq!((unknown.code, unknown.stdout.as_str()), (Some(2), ""));
    assert!(unknown.stderr.contains("runs/a has no metric los/*"), "{}", unknown.stderr);

    let summary = scratch.json("runs/a/summary.json");
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        keys(&summary),
        [
            "heldout",
            "steps",
            "completions",
            "seconds",
            "tokens_per_second",
            "peak_rss_bytes",
            "stopped_because"
        ]
    );
    assert_eq!(
        keys(&summary["heldout"]),
        ["initial", "after_sft", "final", "initial_credit", "final_credit"]
    );
    assert_eq!(keys(&summary["completions"]), ["generated", "trained"]);
    assert_eq!(
        keys(&summary["seconds"]),
        ["sft", "rollout", "reward", "update", "eval", "checkpoint", "total"]
    );
    assert_eq!(keys(&summary["tokens_per_second"]), ["rollout", "update"]);
    assert_eq!((&summary["steps"], &summary["stopped_because"]), (&6.into(), &"steps".into()));
}

/// Each query asks something that this run has an answer to.
#[test]
fn the_queries_of_the_book_are_answered() {
    let scratch = Scratch::new();
    let parts = "reward={kind='weighted',parts=[{name='sum',weight=1.0,kind='integer'},{name='form',weight=1.0,kind='format',answer_line=true}]}";
    succeed(&scratch, "a", &["eval.sets=[]", "record.tokens_every=1", parts]);

    let store = rusqlite::Connection::open(scratch.path("runs/a/run.db")).unwrap();
    let page = std::fs::read_to_string(repository("book/src/survival.md")).unwrap();
    let queries: Vec<&str> =
        page.split("```sql\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();

    for query in &queries {
        let mut statement = store.prepare(query.trim().trim_end_matches(';')).unwrap();
        assert!(statement.exists([]).unwrap(), "no row answers {query}");
    }
    assert!(queries.len() > 6, "the page has no queries");
}

#[test]
fn a_run_of_a_recipe_in_yaml() {
    let scratch = Scratch::new();
    let text = std::fs::read_to_string(repository("recipes/ci/tiny.toml")).unwrap();
    let table: toml::Table = toml::from_str(&text).unwrap();

    // JSON is YAML.
    scratch.write("tiny.yaml", serde_json::to_string_pretty(&table).unwrap());
    let in_yaml = |more: &[&str]| scratch.succeed(&[&["train", "tiny.yaml"], more].concat());
    in_yaml(&["--set", "train.steps=3"]);
    let kept = std::fs::read_to_string(scratch.path("runs/tiny/recipe.toml")).unwrap();
    assert!(kept.contains("steps = 3\n"), "{kept}");
    assert!(in_yaml(&["--resume"]).stderr.contains("now with train.steps = 6 (was 3)"));

    // The run is the same as that of the TOML file, although it was stopped halfway.
    succeed(&scratch, "toml", &[]);
    assert_same(&scratch.result("tiny"), &scratch.result("toml"));

    scratch.succeed(&["eval", "runs/tiny/checkpoints/step-000006"]);
    scratch.succeed(&["plan", "tiny.yaml"]);
}

/// In this case the file's name says nothing about the run, but its folder does.
#[test]
fn a_run_continues_by_the_recipe_in_its_folder() {
    let scratch = Scratch::new();
    let tiny = std::fs::read(repository("recipes/ci/tiny.toml")).unwrap();
    scratch.write("y.toml", tiny);
    scratch.succeed(&["train", "y.toml", "--set", "train.steps=2"]);
    let resume = ["train", "runs/y/recipe.toml", "--resume"];
    let outcome = scratch.succeed(&[&resume[..], &["--set", "train.steps=3"]].concat());
    assert!(outcome.stderr.contains("resumed from runs/y/checkpoints/step-000002"), "{outcome:?}");
    assert!(!scratch.path("runs/recipe").exists());

    std::fs::rename(scratch.path("runs"), scratch.path("elsewhere")).unwrap();
    let resume = ["train", "elsewhere/y/recipe.toml", "--resume"];
    let refused = scratch.run(&resume);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("the run's folder: --runs"), "{}", refused.stderr);
    scratch.succeed(&[&resume[..], &["--runs", "elsewhere"]].concat());
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let scratch = Scratch::new();
    succeed(&scratch, "a", &["train.steps=1"]);
    let recipe = repository("recipes/ci/tiny.toml");
    for arguments in [&["metrics", "runs/a"][..], &["schema"], &["plan", &recipe]] {
        let mut child = scratch.command(arguments).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    }
}

#[test]
fn a_checkpoint_is_evaluated() {
    let scratch = Scratch::new();
    succeed(&scratch, "a", &[]);
    let checkpoint = "runs/a/checkpoints/step-000006";
    let table = scratch.succeed(&["eval", checkpoint, "--samples", "4"]).stdout;
    for word in ["pass@1 ", "avg@4 ", "pass@2 ", "pass@4 ", "maj@4 ", "10 prompts × 4"] {
        assert!(table.contains(word), "{word} is not in {table}");
    }

    let written = ["eval", checkpoint, "--samples", "4", "--completions", "answers.jsonl"];
    assert_eq!(scratch.succeed(&written).stdout, table);
    let lines = std::fs::read_to_string(scratch.path("answers.jsonl")).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 40);
    let right = lines.iter().filter(|line| line["verdict"] == "right").count();
    assert!(table.contains(&format!("verdicts {right} right")), "{table}");

    for line in &lines {
        let count = |key: &str| line[key].as_array().unwrap().len();
        assert_eq!(count("tokens"), count("logprobs"), "{line}");
        assert!(count("prompt_tokens") > 0 && line["reference"].is_string(), "{line}");
    }

    // The program reports a file that can't be written before it computes anything.
    let refused = scratch.run(&["eval", checkpoint, "--completions", "nowhere/answers.jsonl"]);
    assert!(refused.stderr.contains("nowhere/answers.jsonl"), "{}", refused.stderr);
    assert_eq!((refused.stdout.as_str(), refused.code), ("", Some(1)));

    // One sample per prompt is drawn as the run draws its held-out completions.
    let json = scratch.succeed(&["eval", checkpoint, "--samples", "1", "--json"]).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["pass@1"], scratch.json("runs/a/summary.json")["heldout"]["final"]);
    for key in ["avg@k", "pass@k", "maj@k", "standard_error", "verdicts", "truncated"] {
        assert!(!json[key].is_null(), "{key} is not in {json}");
    }

    // A sum is no letter, so no completion has a verdict, and there is nothing to take a mean of.
    for more in [&[][..], &["--set", "reward.max_errors=1.0"]] {
        let arguments = [&["eval", checkpoint, "--set", "reward.kind=choice"][..], more].concat();
        let nothing = scratch.run(&arguments);
        assert_eq!((nothing.stdout.as_str(), nothing.code), ("", Some(1)), "{}", nothing.stderr);
        assert!(nothing.said().contains("could be judged, so nothing"), "{}", nothing.stderr);
    }
}

/// Settings with twenty steps, so that there is time to kill the run.
const LONG: [&str; 2] = ["train.steps=20", "checkpoint.keep=0"];

/// When a run is stopped: so many milliseconds after `begun` holds for it.
struct Moment {
    begun: fn(&Scratch, &str) -> bool,
    milliseconds: u64,
}

/// Before the first checkpoint, in SFT after it, between steps, and in steps.
const MOMENTS: [Moment; 6] = [
    Moment {
        begun: |scratch, run| scratch.path(&format!("runs/{run}/run.db")).exists(),
        milliseconds: 0,
    },
    Moment { begun: |scratch, run| scratch.newest(run).is_some(), milliseconds: 0 },
    Moment { begun: |scratch, run| scratch.newest(run).is_some(), milliseconds: 40 },
    Moment { begun: |scratch, run| scratch.newest(run) >= Some(2), milliseconds: 0 },
    Moment { begun: |scratch, run| scratch.newest(run) >= Some(6), milliseconds: 5 },
    Moment { begun: |scratch, run| scratch.newest(run) >= Some(10), milliseconds: 17 },
];

/// Starts or resumes a run and ends it at `moment` with `signal`; `None` if the run was over before.
fn stop_at(
    scratch: &Scratch,
    name: &str,
    more: &[&str],
    moment: &Moment,
    signal: fn(&mut std::process::Child),
) -> Option<Outcome> {
    let arguments = train(name, more);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();

    let mut child = scratch.start_until(&arguments, || (moment.begun)(scratch, name))?;
    thread::sleep(Duration::from_millis(moment.milliseconds));
    signal(&mut child);
    Some(Outcome::of(child.wait_with_output().unwrap()))
}

fn kill(child: &mut std::process::Child) {
    child.kill().unwrap();
}

/// Kills the run at each moment, one after the other, and lets it end.
fn killed_and_resumed(scratch: &Scratch, name: &str, more: &[&str]) {
    let resume: Vec<&str> = more.iter().copied().chain(["--resume"]).collect();
    let mut kills = 0;
    for (index, moment) in MOMENTS.iter().enumerate() {
        let more = if index == 0 { more } else { &resume };
        let outcome = stop_at(scratch, name, more, moment, kill);
        kills += usize::from(outcome.is_some_and(|outcome| outcome.code != Some(0)));
    }

    // A machine that is busy with other things may be late for some moments.
    assert!(kills >= 3, "the run was over before it could be killed");
    succeed(scratch, name, &resume);
}

#[test]
fn a_killed_run_continues_as_if_nothing_had_happened() {
    let scratch = Scratch::new();
    succeed(&scratch, "whole", &LONG);

    let carried = values(&scratch, "whole", "sampling/groups_carried_over");
    let after_checkpoint = carried.iter().skip(2).step_by(2).sum::<f64>();
    assert!(after_checkpoint > 0.0, "no checkpoint has to keep a surplus group: {carried:?}");

    killed_and_resumed(&scratch, "killed", &LONG);
    assert_same(&scratch.result("whole"), &scratch.result("killed"));
}

#[test]
fn a_killed_run_keeps_its_reference_policy() {
    let scratch = Scratch::new();
    let kl: Vec<&str> = LONG.into_iter().chain(["loss.kl={kind=\"k3\",coef=0.1}"]).collect();
    succeed(&scratch, "whole", &kl);
    assert!(values(&scratch, "whole", "loss/kl").iter().all(|kl| kl.is_finite()));
    killed_and_resumed(&scratch, "killed", &kl);
    assert_same(&scratch.result("whole"), &scratch.result("killed"));
}

#[cfg(unix)]
fn interrupt(child: &mut std::process::Child) {
    let id = child.id().to_string();
    std::process::Command::new("kill").args(["-INT", &id]).status().unwrap();
}

#[test]
#[cfg(unix)]
fn ctrl_c_ends_a_run_at_once() {
    let scratch = Scratch::new();
    succeed(&scratch, "whole", &LONG);
    let resume: Vec<&str> = LONG.into_iter().chain(["--resume"]).collect();

    // The run is interrupted in SFT, and then between two checkpoints of the recipe.
    for (more, moment, step) in [(&LONG[..], &MOMENTS[1], 0..1), (&resume, &MOMENTS[3], 2..20)] {
        let outcome = stop_at(&scratch, "stopped", more, moment, interrupt).unwrap();
        assert_eq!(outcome.code, Some(130), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("Ctrl-C again ends it at once"), "{}", outcome.stderr);

        let summary = scratch.json("runs/stopped/summary.json");
        assert_eq!(summary["stopped_because"], "interrupted");
        assert!(step.contains(&summary["steps"].as_u64().unwrap()), "{summary}");
        // The updates of such a small step end within the second that they have, so no whole step is lost.
        assert_eq!(scratch.newest("stopped"), summary["steps"].as_u64());
    }

    succeed(&scratch, "stopped", &resume);
    assert_same(&scratch.result("whole"), &scratch.result("stopped"));
}

/// Interrupting the step of the measurement that ends SFT does not lose the measurement. Here this is the first step,
/// and a long evaluation before it leaves the time to interrupt.
#[test]
#[cfg(unix)]
fn ctrl_c_in_the_last_step_of_sft() {
    let scratch = Scratch::new();
    let more = [
        "sft.stop_at=0.0",
        "sft.every=1",
        "eval.samples=2000",
        "train.steps=1",
        "sampling.max_rounds=1",
    ];
    succeed(&scratch, "whole", &more);

    // This holds when the first evaluation is over and the next one has begun.
    let evaluated = |scratch: &Scratch, run: &str| {
        let store = rusqlite::Connection::open(scratch.path(&format!("runs/{run}/run.db")));
        let sql = "SELECT count(verdict) FROM completions";
        let judged = store.and_then(|store| store.query_row(sql, [], |row| row.get::<_, i64>(0)));
        judged.is_ok_and(|judged| judged > 0)
    };

    let moment = Moment { begun: evaluated, milliseconds: 20 };
    let outcome = stop_at(&scratch, "stopped", &more, &moment, interrupt).unwrap();
    assert_eq!(outcome.code, Some(130), "{}", outcome.stderr);

    let resume: Vec<&str> = more.into_iter().chain(["--resume"]).collect();
    succeed(&scratch, "stopped", &resume);
    assert_same(&scratch.result("whole"), &scratch.result("stopped"));
}

#[test]
fn a_resumed_run_may_change_how_it_continues() {
    let scratch = Scratch::new();
    succeed(&scratch, "a", &["train.steps=2"]);
    let outcome = succeed(&scratch, "a", &["train.steps=3", "optim.lr=0.5", "--resume"]);
    for change in ["now with optim.lr = 0.5 (was 0.001)", "now with train.steps = 3 (was 2)"] {
        assert!(outcome.stderr.contains(change), "{}", outcome.stderr);
    }
    assert_eq!(values(&scratch, "a", "update/lr")[2], 0.5);

    // A run that is over has nothing to do.
    let outcome = succeed(&scratch, "a", &["train.steps=3", "optim.lr=0.5", "--resume"]);
    assert!(!outcome.stderr.contains("now with"), "{}", outcome.stderr);
    assert_eq!(scratch.newest("a"), Some(3));
}

#[test]
fn every_variant_of_the_loop_runs() {
    let scratch = Scratch::new();
    let short = ["sft.steps=40", "train.steps=2", "checkpoint.every=100"];
    for (index, variant) in [
        &["sampling.dynamic=false"][..],
        &["sampling.carry_over=false", "sampling.max_rounds=0"],
        &["loss.clip_ratio_high=0.2"],
        &["loss.aggregation=prompt_mean"],
        &["loss.aggregation=sequence_mean"],
        &["loss.aggregation=constant", "loss.constant_length=4"],
        &["loss.kind=gspo"],
        &["loss.kind=cispo"],
        &["loss.kind=dppo_tv"],
        &["loss.kind=dppo_kl"],
        &["loss.kind=sapo"],
        &["loss.kl={kind=\"k1\",coef=0.01}"],
        &["loss.kl={kind=\"k2\",coef=0.01}"],
        &["loss.entropy_coef=0.01"],
        &["loss.dual_clip=10"],
        &["advantage.kind=mean_only"],
        &["advantage.kind=leave_one_out"],
        &["reward.overlong={buffer=3,penalty=1.0}"],
        &["reward.overlong={filter=true}", "rollout.max_completion_tokens=2"],
        &["reward.stop.scale=0.5", "reward.length={target=2}"],
        &[
            "reward.kind=weighted",
            "reward.parts=[{name='sum',weight=3,kind='integer'},{name='end',weight=1,kind='regex',\
             pattern='[0-9]$',matches=true}]",
        ],
        &["rollout.temperature=0.7", "rollout.top_k=5", "rollout.top_p=0.9"],
        &["data.task={kind=\"countdown\",numbers=2,max_number=9,max_target=18}"],
        &["checkpoint.dtype=float16"],
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("variant-{index}");
        let more: Vec<&str> = short.iter().chain(variant).copied().collect();
        succeed(&scratch, &name, &more);

        let steps = scratch.metrics(&name);
        assert_eq!(steps.len(), 2, "{variant:?}");
        for (metric, value) in steps.iter().flatten() {
            assert!(value.is_number(), "{variant:?}: {metric} is {value}");
        }
    }

    let losses = |run: &str| values(&scratch, run, "loss/total");
    assert_ne!(losses("variant-2"), losses("variant-4"), "the aggregation changes nothing");
    assert_eq!(values(&scratch, "variant-0", "sampling/groups_filtered"), [0.0, 0.0]);
}

#[test]
fn an_epoch_counts_what_is_drawn_and_continues_where_it_was() {
    let scratch = Scratch::new();

    // Half of 80 prompts at four per step would make ten steps, if no group were filtered.
    let epoch = ["train.epochs=0.5", "train.steps=30", "checkpoint.every=1"];
    succeed(&scratch, "whole", &epoch);
    succeed(&scratch, "parts", &["train.epochs=0.5", "train.steps=2", "checkpoint.every=1"]);
    let stderr = succeed(&scratch, "parts", &[&epoch[..], &["--resume"]].concat()).stderr;
    assert!(stderr.contains("all its epochs are done"), "{stderr}");

    let rewards = values(&scratch, "whole", "reward/mean");
    assert!((3..10).contains(&rewards.len()), "{rewards:?}");
    assert_eq!(rewards, values(&scratch, "parts", "reward/mean"));
    assert!(values(&scratch, "whole", "sampling/groups_filtered").iter().sum::<f64>() > 0.0);
}

#[test]
#[cfg(unix)]
fn a_program_of_the_user_s_own_judges() {
    let scratch = Scratch::new();
    let short = ["sft={}", "train.steps=2", "sampling.dynamic=false"];
    let judge = |script: &str| format!("reward.program=['sh','-c','{script}']");

    // This judge likes completions of more than five characters, and knows neither the sum nor its end.
    let script = "while read -r line; do id=${line#*:}; id=${id%%,*}; \
                  case $line in *completion*:*......*finish*) s=1;; *) s=0.25;; esac; \
                  echo \"{\\\"id\\\": $id, \\\"score\\\": $s}\"; done";
    let judged = ["reward.kind=command", "reward.processes=2", &judge(script)];

    succeed(&scratch, "judged", &[&short[..], &judged].concat());
    assert!(values(&scratch, "judged", "reward/credit").iter().all(|mean| *mean >= 0.25));
    assert_eq!(values(&scratch, "judged", "reward/error"), [0.0, 0.0]);

    // A judge that fails now and then is reported once, and its failures are counted.
    let clumsy = "read -r line || exit; id=${line#*:}; id=${id%%,*}; \
                  [ $((id % 5)) = 4 ] && { echo no idea >&2; exit 7; }; \
                  echo \"{\\\"id\\\": $id, \\\"score\\\": 1}\"";
    let clumsy = format!("while :; do {clumsy}; done");
    let clumsy = ["reward.kind=command", "reward.max_errors=0.5", &judge(&clumsy)];
    let outcome = succeed(&scratch, "clumsy", &[&short[..], &clumsy].concat());
    assert_eq!(outcome.stderr.matches("exit status: 7; its stderr ended with: no idea").count(), 1);
    let errors = values(&scratch, "clumsy", "reward/error");
    assert!(errors.iter().all(|&errors| errors >= 3.0), "{errors:?}");
    let reports = outcome.stderr.matches("of 16 completions could not be judged").count();
    assert_eq!(reports, 1, "{}", outcome.stderr);

    // A judge that only fails ends the run, because a step that learns from errors is worth nothing.
    let failing = ["reward.kind=command", "reward.restarts=1", &judge("echo no idea >&2; exit 7")];
    let outcome = run(&scratch, "failing", &[&short[..], &failing].concat());
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert_eq!(outcome.stderr.matches("is given up").count(), 1, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("exit status: 7; its stderr ended with: no idea"));

    // The steps before the failure are saved, so the run can continue with a judge that works.
    let late = "read -r line || exit; id=${line#*:}; id=${id%%,*}; [ $id -gt 20 ] && exit 7; \
                echo \"{\\\"id\\\": $id, \\\"score\\\": 1}\"";
    let late = format!("while :; do {late}; done");
    let late = ["reward.kind=command", "reward.restarts=1", "eval.prompts=2", &judge(&late)];
    let outcome = run(&scratch, "late", &[&short[..], &late].concat());
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(scratch.path("runs/late/checkpoints/step-000001").is_dir(), "{}", outcome.stderr);
}

#[test]
fn the_cap_on_sampling_ends_a_step_as_the_recipe_says() {
    let scratch = Scratch::new();
    // A step needs more groups than one round gives.
    let short = ["sampling.prompts_per_step=16", "train.steps=2"];
    let with = |more: &[&'static str]| -> Vec<&str> { short.iter().chain(more).copied().collect() };
    succeed(&scratch, "smaller", &with(&["sampling.max_rounds=1"]));
    let kept = values(&scratch, "smaller", "sampling/groups_kept");
    assert!(kept.iter().all(|&kept| 0.0 < kept && kept < 16.0), "{kept:?}");
    assert_eq!(values(&scratch, "smaller", "sampling/rounds"), [1.0, 1.0]);

    let stop = ["sampling.max_rounds=1", "sampling.on_cap=stop"];
    let stop = succeed(&scratch, "stop", &with(&stop));
    let reason = "sampling.max_rounds = 1 was reached with ";
    assert!(stop.stderr.contains(reason), "{}", stop.stderr);
    let summary = scratch.json("runs/stop/summary.json");
    assert!(summary["stopped_because"].as_str().unwrap().starts_with(reason), "{summary}");
    assert_eq!((&summary["steps"], &summary["completions"]["generated"]), (&0.into(), &64.into()));

    // A run that is resumed with a higher cap is the same as one that had this cap from the beginning.
    let higher = with(&["sampling.max_rounds=0"]);
    succeed(&scratch, "higher", &higher);
    let resume: Vec<&str> = higher.iter().copied().chain(["--resume"]).collect();
    succeed(&scratch, "stop", &resume);

    let weights = |run| scratch.result(run)[1].clone();
    assert!(weights("stop") == weights("higher"));
}

#[test]
fn a_step_that_failed_at_the_cap_can_be_done_again() {
    let scratch = Scratch::new();
    succeed(&scratch, "whole", &[]);
    let carried = values(&scratch, "whole", "sampling/groups_carried_over");
    let step = carried.iter().rposition(|&groups| groups > 0.0).unwrap();
    let steps = format!("train.steps={step}");
    succeed(&scratch, "failed", &[&steps]);

    let cap = ["sampling.max_rounds=1", "sampling.on_cap=error", "sampling.prompts_per_step=16"];
    let outcome = run(&scratch, "failed", &[&cap[..], &["--resume"]].concat());
    assert_eq!(outcome.code, Some(1));
    let message = format!("step {}: sampling yielded ", step + 1);
    assert!(outcome.stderr.contains(&message), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("raise sampling.max_rounds"), "{}", outcome.stderr);

    succeed(&scratch, "failed", &["--resume"]);
    assert!(scratch.result("whole")[1] == scratch.result("failed")[1]);
}

/// Without held-out prompts no evaluation comes between SFT and the first step, so only the
/// step itself can pass the new weights to the engine.
#[test]
fn the_first_rollout_is_the_policy_s_after_sft() {
    let scratch = Scratch::new();
    scratch.write("one.jsonl", "{\"question\": \"1+1?\", \"answer\": \"#### 2\"}\n");
    let recipe = repository("recipes/gsm8k-tiny.toml");
    let model = format!("model.path={}", repository("tests/fixtures/qwen2-f32"));
    let mut arguments = vec!["train", &recipe, "--set", &model];

    for set in [
        "name=unseen",
        "data.train=one.jsonl",
        "sft.steps=5",
        "sampling={prompts_per_step=4,dynamic=false}",
        "rollout.max_completion_tokens=8",
        "train.steps=1",
    ] {
        arguments.extend(["--set", set]);
    }

    scratch.succeed(&arguments);
    let difference = values(&scratch, "unseen", "rollout/logprob_diff_mean");
    assert!(difference[0] < 1e-4, "{difference:?}");
}

/// A position in the data is a number, which means other prompts in other data. A longer completion leaves less
/// room for prompts, so it makes other data.
#[test]
fn a_run_is_not_resumed_on_other_prompts() {
    let scratch = Scratch::new();
    let two_digits = ["data.task.digits=2", "train.steps=2"];
    succeed(&scratch, "prompts", &two_digits);
    let longer = ["rollout.max_completion_tokens=59", "--resume"];
    let outcome = run(&scratch, "prompts", &[&two_digits[..], &longer].concat());
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("other prompts"), "{}", outcome.stderr);
}

/// A model of random weights gets no answer right, whatever it is asked.
#[test]
fn a_run_that_learns_nothing_says_why_and_ends() {
    let scratch = Scratch::new();
    let recipe = repository("recipes/gsm8k-tiny.toml");
    let data = format!("data.train={}", repository("crates/cli/tests/data/gsm8k-style.jsonl"));
    for name in ["qwen2-f32", "qwen2-bf16"] {
        let model = format!("model.path={}", repository(&format!("tests/fixtures/{name}")));
        let start = |name: &str, more: &[&str]| {
            let name = format!("name={name}");
            let mut arguments = vec!["train", &recipe];
            let short =
                ["train.steps=2", "sampling.max_rounds=2", "rollout.max_completion_tokens=8"];
            for set in [model.as_str(), &data, &name].iter().chain(&short).chain(more) {
                arguments.extend(["--set", set]);
            }
            scratch.run(&arguments)
        };

        let outcome = start(name, &[]);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        assert!(
            outcome.stderr.contains("no group to train on after 2 of at most 2 rounds"),
            "{}",
            outcome.stderr
        );

        assert_eq!(values(&scratch, name, "update/count"), [0.0, 0.0]);
        assert_eq!(values(&scratch, name, "sampling/groups_kept"), [0.0, 0.0]);
        let summary = scratch.json(&format!("runs/{name}/summary.json"));
        assert_eq!(summary["steps"], 2);
        assert_eq!(summary["completions"]["trained"], 0);
        assert_eq!(summary["heldout"]["final"], 0.0);

        if name == "qwen2-f32" {
            let stopped = start("stop", &["sampling.on_cap=stop"]);
            assert_eq!(stopped.code, Some(0), "{}", stopped.stderr);
            let summary = scratch.json("runs/stop/summary.json");
            let reason = "sampling.max_rounds = 2 was reached with 0 of ";
            assert!(summary["stopped_because"].as_str().unwrap().starts_with(reason), "{summary}");
            let failed = start("error", &["sampling.on_cap=error"]);
            assert_eq!(failed.code, Some(1));
            assert!(failed.stderr.contains("sampling yielded 0 of"), "{}", failed.stderr);
        }
    }
}

/// A model is saved in the format it came in, which rounds its weights. A run that continued from the rounded
/// weights would be another run.
#[test]
fn a_run_of_a_bf16_model_continues_from_what_it_trained() {
    let scratch = Scratch::new();
    let recipe = repository("recipes/gsm8k-tiny.toml");
    let model = format!("model.path={}", repository("tests/fixtures/qwen2-bf16"));
    let data = format!("data.train={}", repository("crates/cli/tests/data/gsm8k-style.jsonl"));
    let train = |name: &str, steps: u64, resume: &[&str]| {
        let (name, steps) = (format!("name={name}"), format!("train.steps={steps}"));
        let mut arguments = vec!["train", &recipe];
        for set in [
            &model,
            &data,
            &name,
            &steps,
            "sft.steps=3",
            "rollout.max_completion_tokens=8",
            // Some completions of random weights have an e, and some have none.
            "reward={kind=\"regex\",pattern=\"e\",matches=true}",
            "optim.warmup_steps=0",
            "optim.lr=1e-4",
            "sampling.max_rounds=1",
            "eval.every=2",
        ] {
            arguments.extend(["--set", set]);
        }
        arguments.extend(resume);
        scratch.succeed(&arguments);
    };

    train("whole", 4, &[]);
    assert!(values(&scratch, "whole", "update/count").iter().all(|&count| count > 0.0));
    train("stopped", 2, &[]);
    train("stopped", 4, &["--resume"]);
    assert_same(&scratch.result("whole"), &scratch.result("stopped"));

    let read = |run: &str, name: &str| {
        std::fs::read(scratch.path(&format!("runs/{run}/checkpoints/step-000004/{name}"))).unwrap()
    };

    let (trained, saved) = ("trainer/weights/model.safetensors", "model.safetensors");
    assert!(read("whole", trained) == read("stopped", trained));
    let (half, full) = (read("whole", saved).len(), read("whole", trained).len());
    assert!(2 * half < full + 8192, "{half} bytes are not bf16, or {full} not f32");
    let config = scratch.json("runs/whole/checkpoints/step-000004/config.json");
    assert_eq!(config["dtype"], "bfloat16");

    // The low half of the trained weights is not all zeros, so there is something to lose.
    let words = read("whole", trained);
    assert!(words[words.len() - 4000..].as_chunks::<4>().0.iter().any(|word| word[..2] != [0, 0]));

    let card = String::from_utf8(read("whole", "README.md")).unwrap();
    assert!(card.starts_with("---\nlibrary_name: transformers\n"), "{card}");
    assert!(card.contains("3 supervised steps and 4 steps of DAPO"), "{card}");
    scratch.succeed(&["eval", "runs/whole/checkpoints/step-000004", "--samples", "1"]);
}

#[test]
fn weights_that_are_no_numbers_are_reported() {
    let scratch = Scratch::new();
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        let file = repository(&format!("tests/fixtures/qwen2-f32/{name}"));
        scratch.write(&format!("qwen2/{name}"), std::fs::read(file).unwrap());
    }

    let mut weights =
        std::fs::read(repository("tests/fixtures/qwen2-f32/model.safetensors")).unwrap();
    let last = weights.len() - 4;
    weights[last..].copy_from_slice(&f32::NAN.to_le_bytes());
    scratch.write("qwen2/model.safetensors", weights);

    let data = format!("data.train={}", repository("crates/cli/tests/data/gsm8k-style.jsonl"));
    let mut arguments = vec!["train".to_owned(), repository("recipes/gsm8k-tiny.toml")];
    for set in ["model.path=qwen2", &data, "rollout.max_completion_tokens=4", "train.steps=1"] {
        arguments.extend(["--set".to_owned(), set.to_owned()]);
    }

    let outcome = scratch.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(!outcome.stderr.contains("panicked"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("1 of its tensors hold NaN or infinite values"));
}

#[test]
fn a_reward_model_judges_alone_and_as_a_part() {
    let scratch = Scratch::new();
    let policy = format!("model.path={}", repository("tests/fixtures/qwen2-f32"));
    let data = format!("data.train={}", repository("crates/cli/tests/data/gsm8k-style.jsonl"));
    let model = repository("tests/fixtures/reward-qwen2-f32");
    let train = |name: &str, reward: &str| {
        let (name, reward) = (format!("name={name}"), format!("reward={reward}"));
        let mut arguments = vec!["train".to_owned(), repository("recipes/gsm8k-tiny.toml")];
        for set in [
            policy.as_str(),
            &data,
            &name,
            &reward,
            "train.steps=2",
            "rollout.max_completion_tokens=8",
            "sft={}",
        ] {
            arguments.extend(["--set".to_owned(), set.to_owned()]);
        }
        scratch.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };

    let outcome = train("alone", &format!("{{kind='model',path='{model}',threshold=0.9}}"));
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    for step in scratch.metrics("alone") {
        let value = |name: &str| step[name].as_f64().unwrap();
        assert_eq!(value("reward/error"), 0.0);
        assert_ne!(value("reward/part/score"), 0.0);
        // Right and wrong are 1 and -1, and no two completions are worth the same.
        assert!(value("reward/mean").abs() < 1.0, "{step:?}");
        // Groups without a spread would not be kept.
        assert!(value("sampling/groups_kept") > 0.0);
    }

    let parts = format!(
        "{{kind='weighted',parts=[{{name='rule',kind='math',weight=0.7}},\
         {{name='model',kind='model',path='{model}',weight=0.3}}]}}"
    );
    let outcome = train("part", &parts);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    for step in scratch.metrics("part") {
        let part = |name: &str| step[&format!("reward/part/{name}")].as_f64().unwrap();
        let credit = 0.7 * part("rule") + 0.3 * part("model");
        assert!((step["reward/mean"].as_f64().unwrap() - (2.0 * credit - 1.0)).abs() < 1e-5);
        assert!(part("model") > 0.0 && part("model/score") != 0.0);
    }

    let language_model = repository("tests/fixtures/qwen2-f32");
    let outcome = train("wrong", &format!("{{kind='model',path='{language_model}'}}"));
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains("Qwen2ForSequenceClassification"), "{}", outcome.stderr);
    let outcome = train("nowhere", "{kind='model',path='no-such-folder'}");
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains("no-such-folder"), "{}", outcome.stderr);
}

/// Threads share the work of every kernel, and no sum depends on how. The test `threads_change_nothing` of the
/// kernels has the shapes that this size does not reach.
#[test]
fn any_number_of_threads_gives_the_same_run() {
    let scratch = Scratch::new();
    let recipe = repository("recipes/ci/tiny.toml");
    for threads in ["1", "2", "5"] {
        let name = format!("name=on-{threads}");
        let mut command =
            scratch.command(&["train", &recipe, "--set", &name, "--set", "train.steps=4"]);
        let output = command.env("RAYON_NUM_THREADS", threads).output().unwrap();
        Outcome::of(output).success();
    }
    for threads in ["2", "5"] {
        assert_same(&scratch.result("on-1"), &scratch.result(&format!("on-{threads}")));
    }
}
