//! Programs that judge, and what they leave behind: nothing, in whatever way they end.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

use std::{
    fs::{self, OpenOptions},
    process::{Command as System, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use firebrick_core::{Completion, Prompt, Score, Verdict, Verifier as _};
use firebrick_reward::{Command, CommandOptions, become_subreaper};

/// Limit of a judgement, in seconds.
const LIMIT: f64 = 1.0;

/// Keeps tests that count threads and files from each other.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn judge(script: &str) -> Command {
    let program = ["sh", "-c", script].map(str::to_owned).to_vec();
    let options =
        CommandOptions { program, time_limit: LIMIT, restarts: 1000, ..CommandOptions::default() };
    Command::new(options).unwrap()
}

fn score(judge: &Command) -> Score {
    judge.score(&Prompt::default(), &Completion::of_text("x"))
}

/// Returns the running processes that are a nap of this length.
fn naps(nap: &str) -> Vec<u32> {
    let arguments = nap.replace(' ', "\0") + "\0";

    let ids = fs::read_dir("/proc").unwrap().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|id: &u32| {
        fs::read(format!("/proc/{id}/cmdline")).is_ok_and(|it| it == arguments.as_bytes())
    })
    .collect()
}

/// Waits until `done`, for at most five seconds.
fn wait_until(mut done: impl FnMut() -> bool) -> bool {
    let clock = Instant::now();
    while !done() {
        if clock.elapsed() > Duration::from_secs(5) {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Counts the threads of verifiers and the open files of this process.
fn held() -> (usize, usize) {
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
    let of_verifiers = threads.filter(|thread| {
        fs::read_to_string(thread.path().join("comm"))
            .is_ok_and(|name| name.starts_with("verifier"))
    });

    (of_verifiers.count(), fs::read_dir("/proc/self/fd").unwrap().count())
}

/// Ways in which a judgement does not come. `NAP` is a sleep that can be found.
const ENDS: [(&str, &str); 24] = [
    ("it ends", "exit 0"),
    ("it fails", "exit 3"),
    ("it fails at the request", "read line; exit 3"),
    ("it is killed", "kill -KILL $$"),
    ("it is asked to end", "kill -TERM $$"),
    ("it aborts", "kill -ABRT $$"),
    ("it has lost its terminal", "kill -HUP $$"),
    ("it hangs", "read line; NAP"),
    ("it hangs and ignores signals", "trap '' TERM INT HUP PIPE; read line; NAP; NAP"),
    ("it is stopped", "kill -STOP $$"),
    ("it becomes another program", "exec NAP"),
    ("it becomes a program that ends", "exec true"),
    ("it closes its stdout", "exec >&-; NAP"),
    ("it closes all pipes", "exec <&- >&- 2>&-; NAP"),
    ("it writes half a line and ends", "read line; printf '{\"id\": 0, \"sc'"),
    ("it writes half a line, and a child holds the pipe", "printf '{\"id\": 0'; NAP & exit 1"),
    ("a child holds its pipes", "NAP & exit 1"),
    ("a child of a child holds its pipes", "(NAP & exit 0) & exit 1"),
    ("a child in a session of its own holds its pipes", "setsid NAP & sleep 0.1; exit 1"),
    ("a child in a session of its own while it hangs", "setsid NAP & NAP"),
    ("a child of a session leader that has ended", "setsid sh -c 'NAP & exit 0'; exit 1"),
    ("a child without environment", "env -i PATH=\"$PATH\" setsid NAP & sleep 0.1; NAP"),
    (
        "an orphan without environment, pipes and terminal",
        "env -i PATH=\"$PATH\" setsid sh -c 'NAP >/dev/null 2>&1 </dev/null & exit 0'; kill -KILL $$",
    ),
    (
        "a family that keeps starting others",
        "setsid sh -c 'while :; do setsid NAP & sleep 0.02; done' & sleep 0.2; exit 1",
    ),
];

#[test]
fn a_judge_that_ends_in_any_way_gives_no_verdict_and_leaves_nothing() {
    let _alone = alone();
    become_subreaper();
    for (index, (end, script)) in ENDS.into_iter().enumerate() {
        let nap = format!("sleep 97{index:02}3.5");
        let judge = judge(&script.replace("NAP", &nap));
        let before = held();

        let clock = Instant::now();
        assert_eq!(score(&judge), Score::none(Verdict::Error), "{end}");
        let took = clock.elapsed().as_secs_f64();
        assert!(took < LIMIT + 2.0, "{end}: {took} s");
        assert!(naps(&nap).is_empty(), "{end}: {:?}", naps(&nap));

        // The system may need an instant for a thread that has ended.
        assert!(
            wait_until(|| held().0 <= before.0 && held().1 <= before.1),
            "{end}: {before:?}, {:?}",
            held()
        );
    }

    // Nothing that has ended is left to be waited for.
    let children = fs::read_to_string(format!("/proc/self/task/{}/children", std::process::id()));
    assert_eq!(children.unwrap_or_default().trim(), "");
}

#[test]
fn what_a_judge_started_ends_with_the_verifier() {
    let _alone = alone();
    let answer =
        r#"while read -r line; do id=${line#*:}; echo "{\"id\": ${id%%,*}, \"score\": 1}"; done"#;
    for helpers in ["NAP &", "setsid NAP &", "setsid sh -c 'NAP & exit 0'"] {
        for end in ["", "NAP"] {
            let nap = "sleep 98123.5";
            let judge = judge(&format!("{helpers}\n{answer}\n{end}").replace("NAP", nap));
            assert_eq!(score(&judge).verdict, Verdict::Right);
            assert!(wait_until(|| !naps(nap).is_empty()));

            drop(judge);
            assert!(naps(nap).is_empty(), "{helpers} {end}: {:?}", naps(nap));
        }
    }
}

#[test]
fn of_several_copies_the_last_takes_the_orphans_of_all() {
    let _alone = alone();
    become_subreaper();
    let nap = "sleep 98173.5";
    let script = r#"env -i PATH="$PATH" setsid sh -c 'NAP >/dev/null 2>&1 </dev/null & exit 0'
        while read -r line; do
            id=${line#*:}
            sleep 0.3
            echo "{\"id\": ${id%%,*}, \"score\": 1}"
        done"#;
    let program = ["sh", "-c", &script.replace("NAP", nap)].map(str::to_owned).to_vec();

    let options = CommandOptions { program, processes: 2, ..CommandOptions::default() };
    let judge = Command::new(options).unwrap();

    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| assert_eq!(score(&judge).verdict, Verdict::Right));
            thread::sleep(Duration::from_millis(50));
        }
    });

    assert!(wait_until(|| !naps(nap).is_empty()));
    drop(judge);
    assert!(naps(nap).is_empty(), "{:?}", naps(nap));
}

#[test]
fn an_answer_before_the_end_is_an_answer() {
    let _alone = alone();
    for end in ["exit 1", "kill -KILL $$", "sleep 98223.5 & exit 1"] {
        let judge = judge(&format!(r#"read line; echo '{{"id": 0, "score": 1}}'; {end}"#));
        assert_eq!(score(&judge).verdict, Verdict::Right, "{end}");
        assert_eq!(score(&judge).verdict, Verdict::Error, "{end}");
    }
}

#[test]
fn nobody_who_holds_a_pipe_holds_a_thread() {
    let _alone = alone();
    let before = held();

    let script =
        r#"read line; echo "{\"id\": 0, \"score\": 1, \"extracted\": \"$$\"}"; sleep 98323.5"#;
    let judge = judge(script);
    let program = score(&judge).extracted;

    // This process can't be ended with the judge, as one of another user.
    let end = |number: u32, writes: bool| {
        let path = format!("/proc/{program}/fd/{number}");
        OpenOptions::new().read(!writes).write(writes).open(path).unwrap()
    };
    let ends = [end(0, false), end(1, true), end(2, true)];

    // The request does not fit into the pipe, so its writer waits too.
    let long = Completion::of_text("long ".repeat(1 << 20));
    assert_eq!(judge.score(&Prompt::default(), &long).verdict, Verdict::Error);

    drop(judge);
    let after = (before.0, before.1 + ends.len());
    assert!(wait_until(|| held() == after), "{after:?}, {:?}", held());
}

#[test]
fn a_judge_gets_no_variable_that_is_kept_from_it() {
    let _alone = alone();
    let script = r#"read line
        echo "{\"id\": 0, \"score\": 1, \"extracted\": \"${HOME+set} ${PATH+set}\"}"; read line"#;
    let judge = judge(script).without(["HOME".into()]);
    assert_eq!(score(&judge).extracted, " set");
}

/// Makes `run_to_be_killed` a run. It holds the script of the run's judge.
const RUN: &str = "FIREBRICK_TEST_RUN";

#[test]
fn what_a_judge_started_ends_with_a_killed_run() {
    let _alone = alone();
    let nap = "sleep 98423.5";
    for (count, script) in [
        (1, "NAP"),
        (3, "NAP & setsid NAP & NAP"),
        (2, "setsid sh -c 'NAP & exit 0'; NAP"),
        (2, "env -i PATH=\"$PATH\" setsid NAP & trap '' TERM; NAP; NAP"),
        // It ends with its stdin, and so with the run, at the same time as the guard looks.
        (
            2,
            "setsid NAP & env -i PATH=\"$PATH\" setsid NAP & while read -r line; do :; done; sleep 0.001",
        ),
    ] {
        let mut run = System::new(std::env::current_exe().unwrap())
            .args(["--exact", "run_to_be_killed", "--ignored"])
            .env(RUN, script.replace("NAP", nap))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();

        assert!(wait_until(|| naps(nap).len() == count), "{script}: {:?}", naps(nap));
        run.kill().unwrap();
        run.wait().unwrap();
        assert!(wait_until(|| naps(nap).is_empty()), "{script}: {:?}", naps(nap));
    }
}

#[test]
#[ignore = "it is a run for another test"]
fn run_to_be_killed() {
    if let Ok(script) = std::env::var(RUN) {
        let judge = judge(&script);
        judge.start().unwrap();
        thread::sleep(Duration::from_secs(60));
    }
}
