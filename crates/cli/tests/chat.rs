//! Conversations with models, and runs that are named instead of their checkpoints.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

mod scratch;

use std::{fs, io::Write as _, process::Stdio};

use scratch::{Outcome, Scratch, repository};

/// Pipes lines into a conversation.
fn chat(scratch: &Scratch, arguments: &[&str], lines: &str) -> Outcome {
    let mut command = scratch.command(&[&["chat"], arguments].concat());
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    Outcome::of(child.wait_with_output().unwrap())
}

/// Returns the answers of a conversation with one model.
fn answers(outcome: Outcome) -> Vec<String> {
    outcome.success().stdout.split_terminator("\n\n").map(str::to_owned).collect()
}

const GREEDY: [&str; 4] = ["--temperature", "0", "--max-tokens", "6"];

#[test]
fn a_model_reads_the_conversation_until_a_new_one_begins() {
    let scratch = Scratch::new();
    scratch.fixture("qwen2-bf16", "model");
    let model = [&["model"], &GREEDY[..]].concat();

    let said =
        answers(chat(&scratch, &model, "What is 2 + 2?\n\nWhat is 2 + 2?\n/new\nWhat is 2 + 2?"));
    assert_eq!(said.len(), 3, "{said:?}");
    assert_ne!(said[0], said[1], "the second answer does not depend on the first");
    assert_eq!(said[0], said[2]);

    let generate = [&["generate", "model", "What is 2 + 2?"], &GREEDY[..]].concat();
    assert_eq!(scratch.succeed(&generate).stdout, format!("{}\n", said[0]));

    // The same seed draws the same, and each question has its own.
    let sampled = ["model", "--max-tokens", "6", "--top-k", "50"];
    let questions = "1 + 1?\n/new\n1 + 1?\n";
    let first = answers(chat(&scratch, &sampled, questions));
    assert_eq!(first, answers(chat(&scratch, &sampled, questions)));
    assert_ne!(first[0], first[1]);
}

#[test]
fn a_full_context_is_said_once() {
    let scratch = Scratch::new();
    scratch.fixture("qwen2-bf16", "model");
    let config = fs::read_to_string(scratch.path("model/config.json")).unwrap();
    let small =
        config.replace("\"max_position_embeddings\": 32768", "\"max_position_embeddings\": 48");
    assert_ne!(config, small);
    scratch.write("model/config.json", small);

    let outcome = chat(&scratch, &["model"], "What is 2 + 2?\nAnd then?\nAnd then?\n");
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    assert!(
        outcome.said().contains("the model's context takes 48, answer included"),
        "{}",
        outcome.stderr
    );
    assert!(outcome.said().contains("/new begins a new conversation"), "{}", outcome.stderr);
}

/// Ctrl-C is a signal on Unix.
#[cfg(unix)]
#[test]
fn ctrl_c_ends_an_answer_and_then_the_program() {
    use std::io::Read as _;

    let scratch = Scratch::new();
    scratch.fixture("qwen2-bf16", "model");
    // An answer without an end token of its own would take minutes.
    let mut command = scratch.command(&["chat", "model", "--max-tokens", "20000", "--top-k", "3"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = child.stdout.take().unwrap();
    let interrupt = || {
        let id = child.id().to_string();
        let mut kill = std::process::Command::new("kill");
        assert!(kill.args(["-INT", &id]).status().unwrap().success());
    };

    let mut read = [0; 1];
    input.write_all(b"Go on for ever.\n").unwrap();
    output.read_exact(&mut read).unwrap();
    interrupt();
    let mut said = String::from_utf8_lossy(&read).into_owned();
    while !said.ends_with("\n\n") {
        output.read_exact(&mut read).unwrap();
        said.push(read[0] as char);
    }

    // The program waits for the next question. Without an answer to end, it ends itself.
    interrupt();
    let code = child.wait().unwrap().code();
    drop(input);
    assert_eq!(code, Some(130));
}

/// Trains adapters on the model in `model` for two steps.
fn train_adapters(scratch: &Scratch, name: &str) {
    let data = format!("data.train={}", repository("crates/cli/tests/data/gsm8k-style.jsonl"));
    let name = format!("name={name}");
    let mut arguments = vec!["train".to_owned(), repository("recipes/gsm8k-tiny.toml")];
    for set in [
        "model.path=model",
        "model.lora={rank=4}",
        &data,
        &name,
        "rollout.max_completion_tokens=8",
        "reward={kind=\"regex\",pattern=\"e\",matches=true}",
        "optim.lr=0.05",
        "optim.warmup_steps=0",
        "sampling.max_rounds=1",
        "data.heldout_size=4",
        "data.system=Be brief.",
        "data.prompt=Q: {prompt}",
    ] {
        arguments.extend(["--set".into(), set.into()]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    scratch.succeed(&arguments);
}

#[test]
fn a_trained_model_answers_beside_its_base() {
    let scratch = Scratch::new();
    scratch.fixture("qwen2-bf16", "model");
    train_adapters(&scratch, "mine");

    let beside = [&["mine", "--beside", "base"], &GREEDY[..]].concat();
    let said = chat(&scratch, &beside, "What is 2 + 2?\n").success();
    let alone = |model: &[&str], question| {
        answers(chat(&scratch, &[model, &GREEDY].concat(), question)).remove(0)
    };
    // A run's model is asked as in the run, and so is the base beside it.
    let trained = alone(&["runs/mine"], "What is 2 + 2?\n");
    let base = alone(&["model", "--system", "Be brief."], "Q: What is 2 + 2?\n");
    assert_ne!(base, trained);
    assert_eq!(said.stdout, format!("[base]\n{base}\n\n[mine]\n{trained}\n\n"));

    // An adapter that left its run has the model under it as its base.
    scratch.succeed(&["export", "mine", "adapter"]);
    let card = fs::read_to_string(scratch.path("adapter/README.md")).unwrap();
    assert!(!card.contains("`trainer`"), "{card}");
    let exported = ["adapter", "--beside", "base", "--system", "Be brief."];
    let exported = [&exported, &GREEDY[..]].concat();
    let exported = chat(&scratch, &exported, "Q: What is 2 + 2?\n").success();
    assert_eq!(exported.stdout, said.stdout.replace("[mine]", "[adapter]"));

    scratch.train_tiny("new", &["train.steps=1"]).success();
    let refused = chat(&scratch, &["new", "--beside", "base"], "1+1=\n");
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.said().contains("its run began with random weights"), "{}", refused.stderr);
}

#[test]
fn a_run_stands_for_its_newest_checkpoint() {
    let scratch = Scratch::new();
    scratch.train_tiny("mine", &["checkpoint.keep=0"]).success();
    let newest = "runs/mine/checkpoints/step-000006";

    let generate = |model: &str| scratch.succeed(&["generate", model, "1+1=", "--json"]);
    let by_name = generate("mine");
    assert!(by_name.said().contains(&format!("mine is {newest}")), "{}", by_name.stderr);
    assert_eq!(by_name.stdout, generate(newest).stdout);
    assert_eq!(by_name.stdout, generate("runs/mine").stdout);
    for arguments in [&["inspect", "mine"][..], &["eval", "mine"], &["export", "mine", "out"]] {
        scratch.succeed(arguments);
    }
    for arguments in
        [&["metrics", "mine"][..], &["diagnose", "mine"], &["watch", "--plain", "mine"]]
    {
        scratch.succeed(arguments);
    }

    // An older one takes the place of one that lost a file, and a folder that of a run.
    fs::remove_file(scratch.path(&format!("{newest}/model.safetensors"))).unwrap();
    let older = generate("mine");
    assert!(older.said().contains("step-000004; "), "{}", older.stderr);
    fs::create_dir(scratch.path("mine")).unwrap();
    let refused = scratch.run(&["generate", "mine", "1+1="]);
    assert!(
        refused.code == Some(2) && refused.said().contains("no config.json"),
        "{}",
        refused.stderr
    );

    fs::remove_dir_all(scratch.path("runs/mine/checkpoints")).unwrap();
    for command in [&["generate", "runs/mine", "1+1="][..], &["eval", "runs/mine"]] {
        let refused = scratch.run(command);
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        let words = "`firebrick train runs/mine/recipe.toml --resume`";
        assert!(refused.said().contains(words), "{}", refused.stderr);
    }
}
