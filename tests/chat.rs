//! Chat templates render our conversations as transformers does. The templates are our own, and published ones
//! from the folders in `FIREBRICK_FIXTURES_DIR`. `chat/render.py` wrote the expected texts, as digests.

#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

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
    now: String,
}

#[derive(Deserialize)]
struct Rendered {
    templates: BTreeMap<String, Expected>,
}

/// Texts that transformers renders from every conversation with one template.
#[derive(Deserialize)]
struct Expected {
    /// Family, or the file of one of our own templates.
    name: String,
    /// Digest of the tokenizer that the `ids` are from.
    tokenizer: Option<String>,
    rendered: BTreeMap<String, Outcome>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Outcome {
    Text {
        text: String,
        characters: usize,
        ids: Option<String>,
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
fn templates_render_as_in_transformers() {
    let Rendered { templates } = read("rendered.json");
    let Conversations { conversations } = read("conversations.json");
    let published: Vec<(ChatTemplate, PathBuf)> = folders()
        .into_iter()
        .filter_map(|folder| Some((ChatTemplate::from_folder(&folder).unwrap()?, folder)))
        .collect();

    let mut differences = String::new();
    for (template_digest, expected) in &templates {
        let name = &expected.name;
        assert_eq!(expected.rendered.len(), conversations.len(), "run chat/render.py again");
        // A published template is recognised by its digest.
        let is_it = |(template, _): &&(ChatTemplate, PathBuf)| {
            digest(template.source()) == *template_digest
        };
        let (template, tokenizer) = match published.iter().find(is_it) {
            _ if name.ends_with(".jinja") => (own(name), None),
            Some((template, folder)) => {
                let theirs = fs::read(folder.join("tokenizer.json")).ok().map(digest);
                // Tokens are compared only if the tokenizer is the very one that they are from.
                let same = theirs.is_some() && theirs == expected.tokenizer;
                let tokenizer = same.then(|| Tokenizer::from_folder(folder).unwrap());
                (template.clone(), tokenizer)
            }
            None => {
                aloud(&format!("skipped: the published template of {name} is not there"));
                continue;
            }
        };

        for conversation in &conversations {
            let rendered = render(&template, conversation);
            let outcome = &expected.rendered[&conversation.name];
            if let Err(difference) = compare(rendered, outcome, tokenizer.as_ref()) {
                writeln!(differences, "{name}, {:?}: {difference}", conversation.name).unwrap();
            }
        }
    }

    assert!(differences.is_empty(), "{differences}");
}

fn compare(
    rendered: Result<String, DataError>,
    expected: &Outcome,
    tokenizer: Option<&Tokenizer>,
) -> Result<(), String> {
    match (rendered, expected) {
        (Ok(text), Outcome::Text { text: theirs, characters, ids }) => {
            if digest(&text) != *theirs {
                let ours = text.chars().count();
                return Err(format!("{ours} characters in place of {characters}: {text:?}"));
            }
            let Some(tokenizer) = tokenizer else { return Ok(()) };
            let tokens = tokenizer.encode(&text, false).unwrap();
            let tokens: Vec<String> = tokens.iter().map(ToString::to_string).collect();
            let same = *ids == Some(digest(tokens.join(" ")));
            if same { Ok(()) } else { Err(format!("other tokens: {tokens:?}")) }
        }

        // Our message contains theirs, before the line of the template.
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

fn own(name: &str) -> ChatTemplate {
    let special = [("bos_token", "<s>"), ("eos_token", "</s>")];
    let special = special.map(|(name, token)| (name.to_owned(), Value::from(token)));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("chat/templates").join(name);
    ChatTemplate::new(&fs::read_to_string(path).unwrap(), special.into_iter().collect()).unwrap()
}

fn render(template: &ChatTemplate, conversation: &Conversation) -> Result<String, DataError> {
    let template = template.clone().with_date(conversation.now.parse().unwrap());
    let Conversation { messages, add_generation_prompt, kwargs, .. } = conversation;
    if conversation.continue_final_message {
        template.render_unfinished(messages, kwargs)
    } else {
        template.render(messages, *add_generation_prompt, kwargs)
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
