//! Published chat templates, from the folders in `FIREBRICK_FIXTURES_DIR`: they render our
//! conversations as transformers does. `chat/render.py` wrote what to expect, as digests.

#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use firebrick_data::{ChatTemplate, DataError, Tokenizer};
use firebrick_tests::fixture::{aloud, folders};
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

#[derive(Deserialize)]
struct Conversations {
    conversations: Vec<Conversation>,
}

#[derive(Deserialize)]
struct Conversation {
    name: String,
    messages: Value,
    add_generation_prompt: bool,
    #[serde(default)]
    continue_final_message: bool,
    kwargs: Map<String, Value>,
    now: Option<String>,
}

#[derive(Deserialize)]
struct Rendered {
    templates: BTreeMap<String, Expected>,
}

/// What transformers makes of every conversation with one template.
#[derive(Deserialize)]
struct Expected {
    family: String,
    tokenizer: String,
    rendered: BTreeMap<String, Outcome>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Outcome {
    Text {
        text: String,
        characters: usize,
        ids: String,
    },
    /// The template's own complaint.
    Raises {
        raises: String,
    },
    /// Python's complaint, in its own words.
    Fails {
        fails: String,
    },
}

#[test]
fn published_templates_render_as_in_transformers() {
    let Rendered { templates } = read("rendered.json");
    let Conversations { conversations } = read("conversations.json");
    let found: Vec<(String, std::path::PathBuf)> = folders()
        .into_iter()
        .filter_map(|folder| {
            Some((digest(ChatTemplate::from_folder(&folder).unwrap()?.source()), folder))
        })
        .collect();
    let mut differences = String::new();
    for (template, expected) in &templates {
        let family = &expected.family;
        assert_eq!(expected.rendered.len(), conversations.len(), "run chat/render.py again");
        let Some((_, folder)) = found.iter().find(|(digest, _)| digest == template) else {
            aloud(&format!("skipped: the published template of {family} is not there"));
            continue;
        };
        let same_tokenizer =
            digest(fs::read(folder.join("tokenizer.json")).unwrap()) == expected.tokenizer;
        for conversation in &conversations {
            let outcome = &expected.rendered[&conversation.name];
            if let Err(difference) = compare(folder, conversation, outcome, same_tokenizer) {
                writeln!(differences, "{family}, {:?}: {difference}", conversation.name).unwrap();
            }
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

fn compare(
    folder: &Path,
    conversation: &Conversation,
    expected: &Outcome,
    same_tokenizer: bool,
) -> Result<(), String> {
    match (render(folder, conversation), expected) {
        (Ok(text), Outcome::Text { text: theirs, characters, ids }) => {
            if digest(&text) != *theirs {
                let ours = text.chars().count();
                return Err(format!("{ours} characters in place of {characters}: {text:?}"));
            }
            let tokens = Tokenizer::from_folder(folder).unwrap().encode(&text, false).unwrap();
            let tokens: Vec<String> = tokens.iter().map(ToString::to_string).collect();
            if same_tokenizer && digest(tokens.join(" ")) != *ids {
                return Err(format!("other tokens: {tokens:?}"));
            }
            Ok(())
        }
        // Our message has theirs in it, before the line of the template.
        (Err(DataError::Template { problem, .. }), Outcome::Raises { raises }) => {
            let ours = problem.strip_prefix("the template stops: ").unwrap_or(&problem);
            let ours = ours.rsplit_once(" (line ").map_or(ours, |(words, _)| words);
            if digest(ours) == *raises { Ok(()) } else { Err(format!("another error: {problem}")) }
        }
        (Err(_), Outcome::Fails { .. }) => Ok(()),
        (Ok(text), Outcome::Raises { .. }) => Err(format!("not refused: {text:?}")),
        (Ok(text), Outcome::Fails { fails }) => Err(format!("no {fails}: {text:?}")),
        (Err(error), _) => Err(error.to_string()),
    }
}

fn render(folder: &Path, conversation: &Conversation) -> Result<String, DataError> {
    let mut template = ChatTemplate::from_folder(folder)?.unwrap();
    if let Some(now) = &conversation.now {
        template = template.with_date(now.parse().unwrap());
    }
    let Conversation { messages, add_generation_prompt, kwargs, .. } = conversation;
    match conversation.continue_final_message {
        true => template.render_unfinished(messages, kwargs),
        false => template.render(messages, *add_generation_prompt, kwargs),
    }
}

fn digest(bytes: impl AsRef<[u8]>) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}

fn read<T: for<'a> Deserialize<'a>>(name: &str) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("chat").join(name);
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}
