//! Tests of verifier programs that crash, hang, or answer badly.

use std::{
    process::Stdio,
    sync::{Arc, mpsc::channel},
};

use super::*;
use Verdict::*;

/// A shell script that answers each completion as its text asks for.
const SCRIPT: &str = r#"
    while IFS= read -r line; do
        id=${line#*:}; id=${id%%,*}
        case $line in
            *right*) echo "{\"id\": $id, \"score\": 1, \"extracted\": \"$$\"}" ;;
            *wrong*) echo "{\"id\": $id, \"verdict\": \"wrong\"}" ;;
            *half*) echo "{\"id\": $id, \"score\": 0.5, \"note\": [\"so so\"]}" ;;
            *crash*) echo "oh dear" >&2; exit 3 ;;
            *hang*) sleep 60 ;;
            *garbage*) echo "wait, $id?" ;;
            *other*) echo "{\"id\": 12345, \"score\": 1}" ;;
            *giant*) while :; do printf %65536d 1; done ;;
        esac
    done
"#;

/// Limit in seconds, large enough for a program of three lines on a busy machine.
const LIMIT: f64 = 2.0;

fn command(program: &[&str], restarts: u32, processes: usize) -> Command {
    let program = program.iter().map(|&part| part.to_owned()).collect();
    Command::new(CommandOptions { program, time_limit: LIMIT, restarts, processes }).unwrap()
}

fn script(restarts: u32, processes: usize) -> Command {
    command(&["sh", "-c", SCRIPT], restarts, processes)
}

fn score(command: &Command, text: &str) -> Score {
    let prompt = Prompt { reference: "72".into(), ..Prompt::default() };
    let completion = Completion::of_text(text);
    command.score(&prompt, &completion)
}

/// Returns the reason why the verifier was given up, if it was.
fn failure(command: &Command) -> Option<String> {
    command.score_all(&[]).err().map(|why| why.to_string())
}

/// Returns the reason why the verifier gives up after scoring `text` once.
fn complaint(command: &Command, text: &str) -> String {
    assert_eq!(failure(command), None);
    score(command, text);
    failure(command).unwrap()
}

#[test]
fn an_answer_is_a_score_or_a_verdict() {
    for (line, expected) in [
        (r#"{"id": 7, "score": 1}"#, Ok((Right, 1.0, ""))),
        (r#"{"id": 7, "score": 0.25, "extracted": "x"}"#, Ok((Wrong, 0.25, "x"))),
        (r#"{"score": 0, "id": 7, "note": {"a": []}}"#, Ok((Wrong, 0.0, ""))),
        (r#"{"id": 7, "verdict": "right", "extracted": null}"#, Ok((Right, 1.0, ""))),
        (r#"{"id": 7, "verdict": "over_budget"}"#, Ok((OverBudget, 0.0, ""))),
        (r#"{"id": 7, "verdict": "right", "score": 0.5}"#, Ok((Right, 0.5, ""))),
        (r#"{"id": 7, "score": 1.01}"#, Err("from 0 to 1")),
        (r#"{"id": 7, "score": -0.1}"#, Err("from 0 to 1")),
        (r#"{"id": 7, "score": NaN}"#, Err("in JSON")),
        (r#"{"id": 7, "score": true}"#, Err("in JSON")),
        (r#"{"id": 7, "verdict": "rihgt"}"#, Err("unknown variant")),
        // The parser quotes the verdict, and its message must not move the cursor either.
        ("{\"id\": 7, \"verdict\": \"\u{7f}\"}", Err(r"`\u{7f}`, expected")),
        (r#"{"id": 7, "extracted": "x"}"#, Err("`score` or `verdict`")),
        (r#"{"id": 6, "score": 1}"#, Err("id 7")),
        (r#"{"score": 1}"#, Err("missing field `id`")),
        (r#"{"id": 7, "score": 1} {"id": 8, "score": 1}"#, Err("trailing")),
        ("", Err("EOF")),
        ("{'id': 7, 'score': 1}", Err("json.dumps")),
        ("\u{fffd}", Err("expected value")),
    ] {
        match (read(line.as_bytes(), 7), expected) {
            (Ok((score, _)), Ok((verdict, credit, extracted))) => {
                assert_eq!(score, Score::partial(verdict, credit, extracted));
            }
            (Err(message), Err(part)) => assert!(message.contains(part), "{line}: {message}"),
            (found, _) => panic!("{line}: {found:?}"),
        }
    }

    assert!(read(&[b'[', 0xff], 7).unwrap_err().contains("[\u{fffd}"));
    assert!(read("é".repeat(100_000).as_bytes(), 7).unwrap_err().len() < 300);
}

#[test]
fn a_reference_that_is_json_is_asked_about_as_json() {
    let ask = |reference: &str, json_reference: bool| {
        let reference = reference.to_owned();
        let text = "<|u|>2\n".to_owned();
        let prompt =
            Prompt { text, reference, json_reference, question: "2".into(), ..Prompt::default() };
        let line = String::from_utf8(request(7, &prompt, &Completion::of_text("a\u{2028}\"b\"\n")))
            .unwrap();
        let rest = line
            .strip_prefix(r#"{"id":7,"question":"2","prompt":"<|u|>2\n","reference":"#)
            .unwrap();
        let end = format!(
            "{},\"finish\":\"stop\"}}\n",
            r#","completion":"a@\"b\"\n""#.replace('@', "\u{2028}")
        );
        rest.strip_suffix(&end).unwrap().to_owned()
    };

    let long = r#"{"z":10000000000000000000000000000031,"a":["\n",1.50]}"#;
    assert_eq!(ask(long, true), long);
    // A text that looks like JSON is a text.
    assert_eq!(ask("[1]", false), r#""[1]""#);
    // A program of one's own may bring a reference that is not on one line.
    assert_eq!(ask("[\r\n  1\n]", true), "[    1 ]");
}

#[test]
fn every_failure_ends_a_copy_and_the_next_completion_has_a_new_one() {
    let command = script(0, 1);
    for (text, verdict) in [("wrong", Wrong), ("half", Wrong), ("right\n\"72\"", Right)] {
        assert_eq!(score(&command, text).verdict, verdict, "{text}");
    }

    let command = script(1, 1);
    for text in ["crash", "hang", "garbage", "other", "giant"] {
        let first = score(&command, "right").extracted;
        let clock = Instant::now();
        assert_eq!(score(&command, text), Score::none(Error), "{text}");
        assert!(clock.elapsed() < Duration::from_secs(5), "{text}");

        let second = score(&command, "right").extracted;
        assert_ne!(first, second, "{text}");
        assert!(!is_running(&first), "{text}");
    }
}

#[test]
fn the_reason_says_what_happened() {
    for (text, parts) in [
        ("crash", &["exit status: 3", "oh dear", "`sh -c"][..]),
        ("hang", &["no answer in 2 s"]),
        ("garbage", &["it wrote `wait, 0?`: expected an answer in JSON"]),
        ("other", &["expected the answer to id 0"]),
        ("giant", &["more than 1048576 bytes"]),
    ] {
        let reason = complaint(&script(0, 1), text);
        assert!(parts.iter().all(|part| reason.contains(part)), "{text}: {reason}");
    }

    let flood = "yes chatter | head -c 1000000 >&2; echo the end >&2; kill -9 $$";
    let reason = complaint(&command(&["sh", "-c", flood], 0, 1), "");
    assert!(reason.contains("signal: 9"), "{reason}");
    assert!(reason.ends_with("chatter\nthe end") && reason.len() < 6000, "{reason}");

    let reason = complaint(&command(&["sh", "-c", "kill -STOP $$"], 0, 1), "");
    // A stopped program neither answers nor ends.
    assert!(reason.ends_with("no answer in 2 s, a signal has stopped it"), "{reason}");

    // A child of the program holds the pipes of a program that has ended.
    let reason = complaint(&command(&["sh", "-c", "sleep 60 & exit 7"], 0, 1), "");
    assert!(reason.ends_with("it ended with exit status: 7"), "{reason}");
}

#[test]
fn a_program_that_does_not_read_or_does_not_wait_blocks_nobody() {
    let long = "long ".repeat(1_000_000);
    for program in [
        &["sleep", "60"][..],
        &["yes"],
        &["sh", "-c", "exec <&-; sleep 60"],
        &["sh", "-c", "exec >&-; sleep 60"],
        &["true"],
    ] {
        let clock = Instant::now();
        assert_eq!(score(&command(program, 5, 1), &long), Score::none(Error), "{program:?}");
        assert!(clock.elapsed() < Duration::from_secs(5), "{program:?}");
    }

    // The program answers before it is asked, and in time.
    let eager = r#"for id in 0 1 2; do echo "{\"id\": $id, \"score\": 1}"; done; sleep 60"#;
    let eager = command(&["sh", "-c", eager], 0, 1);
    assert!((0..3).all(|_| score(&eager, &long).verdict == Right));
}

#[test]
fn after_too_many_failures_in_a_row_the_program_is_given_up() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ear = heard.clone();
    let command =
        script(2, 1).on_message(move |reason| ear.lock().unwrap().push(reason.to_owned()));

    for text in ["crash", "crash", "right", "crash", "garbage"] {
        score(&command, text);
    }

    let heard = || heard.lock().unwrap().clone();
    assert!(matches!(&heard()[..], [first] if first.contains("oh dear")), "{:?}", heard());
    assert_eq!(score(&command, "right").verdict, Right, "two in a row are allowed");
    assert_eq!(failure(&command), None);

    for _ in 0..3 {
        assert_eq!(score(&command, "crash").verdict, Error);
    }

    assert_eq!(score(&command, "right").verdict, Error);
    assert!(failure(&command).unwrap().contains("failed 3 times in a row and is given up"));
    assert_eq!(heard().len(), 1);
}

#[test]
fn many_threads_share_few_copies() {
    let command = script(1000, 3);
    thread_scope(8, |thread| {
        for turn in 0..30 {
            let (text, verdict) = match (thread + turn) % 10 {
                0 => ("crash", Error),
                n if n % 2 == 0 => ("right", Right),
                _ => ("wrong", Wrong),
            };
            assert_eq!(score(&command, text).verdict, verdict);
        }
    });

    assert!(command.lock().running <= 3);
    // A copy that hangs does not delay the others.
    let clock = Instant::now();
    thread_scope(3, |thread| match thread {
        0 => assert_eq!(score(&command, "hang").verdict, Error),
        _ => {
            assert_eq!(score(&command, "right").verdict, Right);
            assert!(clock.elapsed() < Duration::from_secs_f64(LIMIT));
        }
    });

    // Many copies that hang are given up together, not one after the other.
    let command = script(0, 2);
    let clock = Instant::now();
    thread_scope(8, |_| assert_ne!(score(&command, "hang").verdict, Right));
    assert!(clock.elapsed() < Duration::from_secs(6), "{:?}", clock.elapsed());
}

fn thread_scope(threads: usize, work: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let work = &work;
            scope.spawn(move || work(thread));
        }
    });
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let missing = command(&["firebrick-no-such-program", "--fast"], 0, 1);
    let error = missing.start().unwrap_err().to_string();
    assert!(error.starts_with("the verifier `firebrick-no-such-program --fast`: "), "{error}");
    assert!(error.contains("can't be started: No such file"), "{error}");

    let reason = complaint(&missing, "right");
    assert!(reason.contains("can't be started: No such file"), "{reason}");

    for (program, time_limit, processes) in
        [(vec![], 1.0, 1), (vec!["true".into()], 0.0, 1), (vec!["true".into()], 1.0, 0)]
    {
        let options =
            CommandOptions { program, time_limit, processes, ..CommandOptions::default() };
        assert!(Command::new(options).is_err());
    }
}

#[test]
fn the_program_ends_with_the_verifier() {
    let stubborn = format!("{SCRIPT}\n while :; do sleep 1; done");
    for script in [SCRIPT, &stubborn] {
        let command = command(&["sh", "-c", script], 0, 2);
        let process = score(&command, "right").extracted;
        assert!(is_running(&process));

        let clock = Instant::now();
        drop(command);
        assert!(clock.elapsed() < Duration::from_secs(2));
        assert!(!is_running(&process));
    }
}

fn is_running(process: &str) -> bool {
    let mut kill = std::process::Command::new("sh");
    kill.args(["-c", "kill -0 \"$1\"", "sh", process]).stderr(Stdio::null());
    kill.status().unwrap().success()
}

/// A judge that starts another program, which waits for input, and a pool of processes.
const PYTHON: &str = r#"
import subprocess, sys
from concurrent.futures import ProcessPoolExecutor

def half(number):
    return number / 2

def score(completion, reference):
    print("judging", completion)
    reads = [sys.executable, "-c", "import sys; print(len(sys.stdin.read()))"]
    heard = subprocess.run(reads, capture_output=True, text=True, timeout=60).stdout
    with ProcessPoolExecutor(1) as pool:
        return list(pool.map(half, [reference["worth"]]))[0], completion + heard + "\ud800"
"#;

#[test]
#[allow(clippy::print_stderr, reason = "what is skipped is said aloud")]
fn a_function_in_python_may_print_and_start_programs_and_has_no_library_replaced() {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no python3 to run the judge with");
        return;
    }

    let folder = tempfile::tempdir().unwrap();
    // Python's own modules are asked for before those next to the judge are found.
    std::fs::write(folder.path().join("tokenize.py"), "raise ValueError('not the library')")
        .unwrap();
    let file = folder.path().join("judge.py");
    std::fs::write(&file, PYTHON).unwrap();
    let function = PythonFunction { python: "python3".into(), file, function: "score".into() };
    let options = CommandOptions { time_limit: 120.0, ..CommandOptions::default() };
    let (said, heard) = channel();
    let judge = Command::python(function, options)
        .unwrap()
        .on_message(move |message| said.send(message.to_owned()).unwrap());

    let prompt =
        Prompt { reference: r#"{"worth": 1.0}"#.into(), json_reference: true, ..Prompt::default() };
    for _ in 0..2 {
        let score = judge.score(&prompt, &Completion::of_text("yes"));
        assert_eq!((score.credit, score.extracted.as_str()), (0.5, "yes0\n?"));
    }
    assert_eq!(heard.try_iter().collect::<Vec<_>>(), ["judge.py printed: judging yes"; 2]);
    // Nothing is left next to the judge.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}
