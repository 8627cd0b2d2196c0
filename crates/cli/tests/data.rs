//! What a data file says reaches the policy, the judge and the record as the file has it.

#![allow(clippy::unwrap_used)]

mod scratch;

use rusqlite::Connection;
use scratch::Scratch;

const RECIPE: &str = r#"
[model]
path = "qwen2"

[data]
train = "rows.jsonl"
heldout = "heldout.jsonl"
max_prompt_tokens = 64

[rollout]
group_size = 2
max_completion_tokens = 4

[sampling]
dynamic = false
prompts_per_step = 5

[train]
steps = 1
mini_batch = 10

[reward]
kind = "exact"
"#;

/// Makes a run of `rows`, and returns its record and what it said.
fn run(scratch: &Scratch, rows: &[&str]) -> (Connection, String) {
    scratch.write("recipe.toml", RECIPE);
    scratch.write("rows.jsonl", rows.join("\n"));
    scratch.write("heldout.jsonl", "{\"prompt\": \"Is this new?\", \"answer\": 1}\n");

    let outcome = scratch.run(&["train", "recipe.toml"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let store = Connection::open(scratch.path("runs/recipe/run.db")).unwrap();
    (store, outcome.stdout + &outcome.stderr)
}

fn asked(store: &Connection) -> Vec<(String, String)> {
    let sql =
        "SELECT DISTINCT prompt, reference FROM groups WHERE source = 'train' ORDER BY reference";
    let mut query = store.prepare(sql).unwrap();
    let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.unwrap().map(Result::unwrap).collect()
}

#[test]
fn rows_are_asked_and_judged_as_they_are_written() {
    let scratch = Scratch::new();
    scratch.fixture("qwen2-f32", "qwen2");
    let long = format!("{{\"prompt\": \"{}\", \"answer\": 9}}", "word ".repeat(2_000_000));
    let (store, said) = run(
        &scratch,
        &[
            r#"{"prompt": "eight", "answer": 8.0}"#,
            r#"{"prompt": "many digits", "answer": 123456789012345678901234567890}"#,
            r#"{"prompt": "a price", "answer": 1.50}"#,
            r#"{"prompt": [{"role": "user", "content": "continue"},
                {"role": "assistant", "content": "The answer is"}], "answer": "is 5"}"#
                .replace('\n', " ")
                .as_str(),
            r#"{"prompt": "[{\"role\": \"user\", \"content\": \"as text\"}]", "answer": "text"}"#,
            &long,
        ],
    );

    let asked = asked(&store);
    let references: Vec<&str> = asked.iter().map(|(_, reference)| reference.as_str()).collect();
    assert_eq!(references, ["1.5", "123456789012345678901234567890", "8", "is 5", "text"]);

    // A message that the assistant began is not closed and opened again.
    assert!(asked[3].0.ends_with("assistant\nThe answer is"), "{:?}", asked[3].0);
    assert!(asked[4].0.contains("user\nas text<"), "{:?}", asked[4].0);
    assert!(said.contains("1 too long"), "{said}");
}

#[test]
fn questions_that_are_trained_on_and_evaluated_on_are_told() {
    let scratch = Scratch::new();
    scratch.fixture("qwen2-f32", "qwen2");
    let rows: Vec<String> =
        (0..5).map(|row| format!("{{\"prompt\": \"{row} + 1\", \"answer\": {row}}}")).collect();
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();

    let (_, said) = run(&scratch, &rows);
    assert!(!said.contains("training questions too"), "{said}");

    let same = ["train", "recipe.toml", "--set", "data.heldout=rows.jsonl", "--set"];
    let outcome = scratch.run(&[&same[..], &["name=same"]].concat());
    let warning = "data.heldout: 5 of 5 questions are training questions too";
    assert!((outcome.stdout + &outcome.stderr).contains(warning), "{warning}");
}

#[test]
fn a_run_is_not_resumed_on_other_references() {
    let scratch = Scratch::new();
    scratch.fixture("qwen2-f32", "qwen2");
    let rows = |answer: u32| -> Vec<String> {
        let row = |row| format!("{{\"prompt\": \"What is {row}?\", \"answer\": {}}}", row + answer);
        (0..5).map(row).collect()
    };

    let first = rows(0);
    run(&scratch, &first.iter().map(String::as_str).collect::<Vec<_>>());

    let resume = ["train", "recipe.toml", "--set", "train.steps=2", "--resume"];
    scratch.write("rows.jsonl", rows(1).join("\n"));
    let outcome = scratch.run(&resume);
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("other prompts"), "{}", outcome.stderr);
    scratch.write("rows.jsonl", first.join("\n"));
    scratch.succeed(&resume);
}

/// Some editors put a byte-order mark before a text, and some write UTF-16.
#[test]
fn a_byte_order_mark_is_skipped_and_utf_16_is_named() {
    let scratch = Scratch::new();
    scratch.fixture("qwen2-f32", "qwen2");
    let rows: Vec<String> =
        (0..5).map(|row| format!("{{\"prompt\": \"{row} + 1\", \"answer\": {row}}}")).collect();
    run(&scratch, &rows.iter().map(String::as_str).collect::<Vec<_>>());

    let files = [
        "recipe.toml",
        "rows.jsonl",
        "qwen2/config.json",
        "qwen2/tokenizer.json",
        "qwen2/tokenizer_config.json",
    ];
    for (number, file) in files.into_iter().enumerate() {
        let text = std::fs::read_to_string(scratch.path(file)).unwrap();
        let marked = format!("\u{feff}{text}");

        let utf16: Vec<u8> = marked.encode_utf16().flat_map(u16::to_le_bytes).collect();
        scratch.write(file, utf16);
        let outcome = scratch.run(&["train", "recipe.toml", "--set", &format!("name=run{number}")]);
        assert!(matches!(outcome.code, Some(1 | 2)), "{file}: {}", outcome.stderr);
        for words in [file, "it is UTF-16 text"] {
            assert!(outcome.stderr.contains(words), "{file}: {}", outcome.stderr);
        }

        scratch.write(file, marked);
    }

    scratch.succeed(&["train", "recipe.toml", "--set", "name=marked"]);
    assert_eq!(scratch.metrics("marked"), scratch.metrics("recipe"));
}

/// A tokenizer that splits words by dice would give a prompt other tokens in each process.
#[test]
fn dice_in_a_tokenizer_are_switched_off_and_reported() {
    let scratch = Scratch::new();
    scratch.fixture("qwen2-f32", "qwen2");
    let tokenizer = std::fs::read_to_string(scratch.path("qwen2/tokenizer.json")).unwrap();
    let dice = tokenizer.replacen("\"dropout\": null", "\"dropout\": 0.5", 1);
    assert_ne!(dice, tokenizer);
    scratch.write("qwen2/tokenizer.json", &dice);

    let rows: Vec<String> = (0..5)
        .map(|row| format!("{{\"prompt\": \"What is {row} + 1?\", \"answer\": {row}}}"))
        .collect();
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();

    let texts = |store: &Connection| -> Vec<String> {
        let mut query = store.prepare("SELECT text FROM completions ORDER BY rowid").unwrap();
        let rows = query.query_map([], |row| row.get(0));
        rows.unwrap().map(Result::unwrap).collect()
    };

    let (store, said) = run(&scratch, &rows);
    let first = texts(&store);
    assert!(said.contains("the tokenizer asks for BPE dropout of 0.5"), "{said}");

    // A checkpoint has the file that it was trained with.
    let saved = scratch.path("runs/recipe/checkpoints/step-000001/tokenizer.json");
    assert_eq!(std::fs::read_to_string(saved).unwrap(), dice);

    drop(store);
    std::fs::remove_dir_all(scratch.path("runs")).unwrap();
    assert_eq!(texts(&run(&scratch, &rows).0), first);
}
