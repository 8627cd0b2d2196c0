//! An example of SFT has the tokens that `transformers` gives its conversation, whichever way its row is written.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    path::{Path, PathBuf},
};

use firebrick_core::SftExample;
use firebrick_data::{
    ChatTemplate, DateTime, Preparation, PromptFormat, SftColumns, Tokenizer, read_sft_rows,
};
use serde_json::{Value, json};

/// The block `chat` of each fixture has conversations, and what `apply_chat_template` makes of them.
#[test]
fn an_example_is_its_conversation_as_transformers_writes_it() {
    let mut compared = 0;
    for folder in fixtures() {
        let expected = fs::read_to_string(folder.join("expected.json")).unwrap();
        let expected: Value = serde_json::from_str(&expected).unwrap();
        let Some(chat) = ChatTemplate::from_folder(&folder).unwrap() else { continue };
        let tokenizer = Tokenizer::from_folder(&folder).unwrap();

        let entries = expected["chat"].as_array().into_iter().flatten();
        let answered = |entry: &&Value| {
            let last = entry["messages"].as_array().unwrap().last().unwrap();
            last["role"] == "assistant" && entry["add_generation_prompt"] == false
        };

        for entry in entries.filter(answered).filter(|entry| entry["ids"].is_array()) {
            let now: DateTime = entry["now"].as_str().unwrap_or("2026-03-09").parse().unwrap();
            let kwargs = entry["kwargs"].as_object().unwrap().clone();
            let chat = Some(chat.clone().with_date(now));
            let format = PromptFormat { chat, kwargs, ..PromptFormat::default() };
            let place = folder.display();

            let mut messages = entry["messages"].as_array().unwrap().clone();
            let whole = example(&json!({"messages": messages}), &format, &tokenizer);
            let answer = messages.pop().unwrap();
            let content = answer["content"].as_str().unwrap();

            for completion in [json!([answer]), json!(content)] {
                let row = json!({"prompt": messages, "completion": completion});
                assert_eq!(example(&row, &format, &tokenizer), whole, "{place}");
            }
            if let [question] = &messages[..] {
                let row = json!({"prompt": question["content"], "completion": content});
                assert_eq!(example(&row, &format, &tokenizer), whole, "{place}");
            }

            // Behind the end of the turn there may be a line feed, which the policy never writes.
            let SftExample { prompt, completion, .. } = whole;
            assert!(tokenizer.stop_tokens().contains(completion.last().unwrap()), "{place}");
            let ours = [prompt, completion].concat();
            let theirs: Vec<u32> = serde_json::from_value(entry["ids"].clone()).unwrap();

            let thoughts = content.split_once("</think>").map(|(thoughts, _)| thoughts);
            if thoughts.is_none_or(|thoughts| entry["text"].as_str().unwrap().contains(thoughts)) {
                assert!(theirs.starts_with(&ours), "{place}: {ours:?} in place of {theirs:?}");
                let behind = tokenizer.decode(&theirs[ours.len()..], false);
                assert!(behind.trim().is_empty(), "{place}: {behind:?}");
                compared += 1;
            } else {
                // This template drops thoughts from a conversation. An example without them would unteach thinking.
                assert!(tokenizer.decode(&ours, true).contains(content.trim_end()), "{place}");
            }
        }
    }

    assert!(compared > 5, "{compared} conversations were compared");
}

fn example(row: &Value, format: &PromptFormat, tokenizer: &Tokenizer) -> SftExample {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.jsonl");
    fs::write(&path, row.to_string()).unwrap();

    let rows = read_sft_rows(&[path], &SftColumns::default()).unwrap();
    let (mut examples, _) = Preparation::new(tokenizer, format).examples(&rows, 4096).unwrap();
    examples.pop().unwrap().0
}

fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> =
        entries.filter(|path| path.join("expected.json").exists()).collect();
    folders.sort();
    folders
}
