//! Writes a tokenizer and a chat template as keys of a file.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use serde::Deserialize;
use serde_json::Value;

use super::new_keys::NewKeys;
use crate::{
    error::quoted,
    pieces::Pieces,
    tokenizer::{ENDS, TOKENS_KEY, kind},
};

/// The tokenizer and the chat template of a model that is to be written.
#[derive(Clone, Debug)]
pub struct Vocabulary<'a> {
    /// Content of `tokenizer.json`.
    pub tokenizer: &'a [u8],
    /// Chat template, if the model has one.
    pub template: Option<&'a str>,
    /// Token before a text, if the tokenizer names one.
    pub bos: Option<u32>,
    /// True if the tokenizer puts that token before every text.
    pub adds_bos: bool,
    /// True if the tokenizer puts an end after every text.
    pub adds_eos: bool,
    /// Token that fills up a batch, if it is not an end.
    pub pad: Option<u32>,
    /// Every token that ends a text or a turn, the tokenizer's own first.
    pub ends: &'a [u32],
}

/// `tokenizer.json`, as far as a file holds it.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    model: Value,
}

/// A token that is found in a text before the text is cut.
#[derive(Deserialize)]
struct Added {
    id: usize,
    content: String,
    special: bool,
}

/// A model of merges.
#[derive(Deserialize)]
struct Model {
    vocab: HashMap<String, usize>,
    merges: Vec<Merge>,
    #[serde(default)]
    unk_token: Option<String>,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
}

/// A pair of tokens that are merged: two texts, or in older files one with a blank between them.
#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Pair([String; 2]),
    Text(String),
}

/// Writes the keys of the tokenizer of a model whose embedding has `rows` rows.
pub(super) fn write(
    vocabulary: &Vocabulary<'_>,
    rows: usize,
    keys: &mut NewKeys,
) -> Result<(), String> {
    let unreadable = |error| format!("its tokenizer.json can't be read ({error})");
    let json = vocabulary.tokenizer;
    let json = json.strip_prefix(b"\xef\xbb\xbf").unwrap_or(json);
    let mut file: File = serde_json::from_slice(json).map_err(unreadable)?;
    // Older files leave the kind out.
    let kind = &file.model["type"];
    if !kind.is_null() && kind != "BPE" {
        return Err(format!(
            "its tokenizer is of the kind {kind}, expected one of merges, \"BPE\""
        ));
    }
    let model: Model = serde_json::from_value(file.model.take()).map_err(unreadable)?;

    let tokens = Tokens::new(&file, &model, rows)?;
    if model.byte_fallback {
        keys.text("tokenizer.ggml.model", "llama");
        keys.text("tokenizer.ggml.pre", "default");
        keys.floats("tokenizer.ggml.scores", &tokens.scores(&model.merges));
        keys.flag("tokenizer.ggml.add_space_prefix", adds_prefix(&file));
    } else {
        let pieces = pieces(&file, &model)?;
        keys.text("tokenizer.ggml.model", "gpt2");
        keys.text("tokenizer.ggml.pre", pieces.name());
        let merges: Vec<Cow<'_, str>> = model.merges.iter().map(Merge::text).collect();
        keys.texts("tokenizer.ggml.merges", merges.iter().map(|merge| merge.as_ref()));
    }
    keys.texts(TOKENS_KEY, tokens.list.iter().map(|(text, _)| text.as_ref()));
    let kinds: Vec<i32> = tokens.list.iter().map(|(_, kind)| *kind as i32).collect();
    keys.integers("tokenizer.ggml.token_type", &kinds);

    let unknown = model.unk_token.as_ref().and_then(|token| model.vocab.get(token));
    if let Some(&id) = unknown.filter(|_| model.byte_fallback) {
        keys.number("tokenizer.ggml.unknown_token_id", id as u64);
    }
    special_tokens(vocabulary, &tokens, keys)?;

    if let Some(template) = vocabulary.template {
        keys.text("tokenizer.chat_template", template);
    }
    Ok(())
}

/// Writes which tokens begin, end and fill up a text.
fn special_tokens(
    vocabulary: &Vocabulary<'_>,
    tokens: &Tokens<'_>,
    keys: &mut NewKeys,
) -> Result<(), String> {
    if let Some(id) = vocabulary.bos {
        keys.number("tokenizer.ggml.bos_token_id", id.into());
    }
    if let Some(id) = vocabulary.pad {
        keys.number("tokenizer.ggml.padding_token_id", id.into());
    }
    keys.flag("tokenizer.ggml.add_bos_token", vocabulary.adds_bos);
    keys.flag("tokenizer.ggml.add_eos_token", vocabulary.adds_eos);

    let Some((own, others)) = vocabulary.ends.split_first() else { return Ok(()) };
    keys.number("tokenizer.ggml.eos_token_id", (*own).into());

    // Programs know these by their texts.
    let known = |id: &&u32| {
        tokens.list.get(**id as usize).is_some_and(|(text, _)| ENDS.contains(&text.as_ref()))
    };
    let mut others: Vec<u32> = others.iter().filter(|id| !known(id)).copied().collect();
    others.sort_unstable();
    for (key, id) in ["eot", "eom"].into_iter().zip(&others) {
        keys.number(&format!("tokenizer.ggml.{key}_token_id"), (*id).into());
    }

    if others.len() > 2 {
        let count = others.len();
        return Err(format!(
            "{count} tokens besides its own end a text, and the format has keys for two: remove some from \
             generation_config.json"
        ));
    }
    Ok(())
}

/// Finds the rules by which texts are cut.
fn pieces(file: &File, model: &Model) -> Result<Pieces, String> {
    // llama.cpp composes no characters. Most texts are composed already, so NFC is no reason to refuse a tokenizer.
    let composes_at_most = match &file.normalizer["type"] {
        Value::Null => true,
        Value::String(kind) if kind == "NFC" => true,
        Value::String(kind) if kind == "Sequence" => {
            file.normalizer["normalizers"].as_array().is_none_or(Vec::is_empty)
        }
        _ => false,
    };
    // A piece that is a token needs no merges in many a tokenizer that was converted, such as those made of tiktoken's.
    // The rules without that are the same if merges make every token.
    let found = Pieces::of_steps(&file.pre_tokenizer, model.ignore_merges).or_else(|| {
        let merged = Pieces::of_steps(&file.pre_tokenizer, false);
        merged.filter(|_| model.merges_make_every_token(&file.added_tokens))
    });
    found.filter(|_| composes_at_most).ok_or_else(|| {
        format!(
            "its tokenizer cuts texts by rules that have no name in the format; expected those of {}",
            Pieces::names()
        )
    })
}

/// Tells whether a text gets a blank in front.
fn adds_prefix(file: &File) -> bool {
    let all = |value: &Value, list: &str| match value[list].as_array() {
        Some(steps) => steps.clone(),
        None => vec![value.clone()],
    };
    all(&file.normalizer, "normalizers").iter().any(|step| step["type"] == "Prepend")
        || all(&file.pre_tokenizer, "pretokenizers").iter().any(|step| {
            step["type"] == "Metaspace"
                && step["prepend_scheme"] != "never"
                && step["add_prefix_space"] != false
        })
}

/// Tokens by their ids, with their kinds.
struct Tokens<'a> {
    list: Vec<(Cow<'a, str>, u64)>,
}

impl<'a> Tokens<'a> {
    /// Lists a token for each of `rows` rows. Rows without a token get one that nobody writes.
    fn new(file: &'a File, model: &'a Model, rows: usize) -> Result<Self, String> {
        let mut list: Vec<Option<(Cow<'a, str>, u64)>> = vec![None; rows];
        let mut set = |id: usize, text: Cow<'a, str>, kind: u64| match list.get_mut(id) {
            Some(token) => {
                *token = Some((text, kind));
                Ok(())
            }
            None => Err(format!(
                "its tokenizer has the token {} with the id {id}, and its embedding {rows} rows",
                quoted(&text)
            )),
        };

        for (text, &id) in &model.vocab {
            let kind = match text {
                text if model.byte_fallback && is_byte(text) => kind::BYTE,
                text if model.byte_fallback && Some(text) == model.unk_token.as_ref() => {
                    kind::UNKNOWN
                }
                _ => kind::NORMAL,
            };
            set(id, text.into(), kind)?;
        }

        for added in &file.added_tokens {
            let text = added.content.as_str();
            // The unknown token has its kind already.
            if model.byte_fallback && Some(&added.content) == model.unk_token.as_ref() {
                continue;
            }

            if added.special || looks_special(text) {
                set(added.id, text.into(), kind::CONTROL)?;
            } else if model.byte_fallback {
                // Programs look for such a token before they replace blanks.
                set(added.id, text.replace('▁', " ").into(), kind::USER_DEFINED)?;
            } else {
                set(added.id, text.into(), kind::USER_DEFINED)?;
            }
        }

        let list: Vec<_> = list
            .into_iter()
            .enumerate()
            .map(|(id, token)| token.unwrap_or_else(|| (format!("[PAD{id}]").into(), kind::UNUSED)))
            .collect();

        // llama.cpp ends its process if one occurs twice.
        let mut texts = HashSet::new();
        match list.iter().find(|(text, _)| !texts.insert(text.as_ref())) {
            Some((text, _)) => Err(format!("its tokenizer has the token {} twice", quoted(text))),
            None => Ok(Tokens { list }),
        }
    }

    /// Makes a score for each token: the earlier it is merged, the higher.
    fn scores(&self, merges: &[Merge]) -> Vec<f32> {
        let mut first = HashMap::new();
        for (rank, merge) in merges.iter().enumerate() {
            first.entry(merge.token()).or_insert(rank);
        }

        // Ranks are below 2²⁴, so an f32 holds each.
        let score = |(text, kind): &(Cow<'_, str>, u64)| match first.get(text.as_ref()) {
            Some(&rank) => -(rank as f32),
            None if *kind == kind::NORMAL => -(merges.len() as f32),
            None => 0.0,
        };
        self.list.iter().map(score).collect()
    }
}

impl Model {
    /// Tells whether merging the characters of each token makes that token. Those that are found before a text is cut do
    /// not count.
    fn merges_make_every_token(&self, added: &[Added]) -> bool {
        let mut ranks = HashMap::new();
        for (rank, merge) in self.merges.iter().enumerate() {
            if let Some(pair) = merge.pair() {
                ranks.entry(pair).or_insert(rank);
            }
        }

        let added: HashSet<&str> = added.iter().map(|token| token.content.as_str()).collect();
        let mut cut = self.vocab.keys().map(String::as_str).filter(|token| !added.contains(token));
        cut.all(|token| is_made(token, &ranks))
    }
}

/// Tells whether a token is made of its characters by merges, each of which is of the pair with the lowest rank.
fn is_made(token: &str, ranks: &HashMap<(&str, &str), usize>) -> bool {
    // Where the parts begin, and where the last one ends.
    let mut bounds: Vec<usize> = token.char_indices().map(|(at, _)| at).collect();
    bounds.push(token.len());

    while bounds.len() > 2 {
        let rank = |index: usize| {
            let [begin, middle, end] = [bounds[index], bounds[index + 1], bounds[index + 2]];
            ranks.get(&(&token[begin..middle], &token[middle..end]))
        };
        let pairs = (0..bounds.len() - 2).filter_map(|index| Some((rank(index)?, index)));
        let Some((_, first)) = pairs.min() else { return false };
        bounds.remove(first + 1);
    }
    true
}

impl Merge {
    /// Returns the two tokens. `None` if a text has no blank between them.
    fn pair(&self) -> Option<(&str, &str)> {
        match self {
            Merge::Pair([left, right]) => Some((left.as_str(), right.as_str())),
            Merge::Text(text) => text.split_once(' '),
        }
    }

    fn text(&self) -> Cow<'_, str> {
        match self {
            Merge::Pair([left, right]) => format!("{left} {right}").into(),
            Merge::Text(text) => text.into(),
        }
    }

    /// Returns the token that the pair becomes.
    fn token(&self) -> String {
        match self {
            Merge::Pair(pair) => pair.concat(),
            Merge::Text(text) => text.replacen(' ', "", 1),
        }
    }
}

/// Tells whether a token stands for a byte, as `<0x0A>` does.
fn is_byte(text: &str) -> bool {
    let digits = text.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
    digits.is_some_and(|digits| digits.len() == 2 && u8::from_str_radix(digits, 16).is_ok())
}

/// Tells whether a token that is not called special is one by its looks. llama.cpp would take such a token as special
/// in any case, and complain.
fn looks_special(text: &str) -> bool {
    [("<|", "|>"), ("<｜", "｜>")]
        .iter()
        .any(|(begin, end)| text.starts_with(begin) && text.ends_with(end))
}
