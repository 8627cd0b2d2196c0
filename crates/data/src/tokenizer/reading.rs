//! Reads `tokenizer.json`, switches off what would make runs differ, and tries the rest.

use std::collections::BTreeMap;

use firebrick_core::guard;
use tokenizers::{ModelWrapper, Tokenizer};

use super::growth;

/// A tokenizer that was read and tried.
pub(super) struct Read {
    pub(super) inner: Tokenizer,
    /// What the file asks for and does not get, in words.
    pub(super) switched_off: Vec<String>,
    /// The most bytes that one byte of a text becomes before it is cut into tokens.
    pub(super) growth: usize,
}

/// Reads `tokenizer.json`.
///
/// # Errors
/// Fails if the file is damaged, asks for memory without bound, or its parts contradict each other.
pub(super) fn read(json: &[u8]) -> Result<Read, String> {
    // The bounds are checked first: the library makes room for what a file says.
    let growth = growth::of_file(json)?;

    // If parts of a file contradict each other, the library (0.23.2) panics instead of failing: some when the file
    // is read, some at the first text that they meet.
    let read = guard(|| {
        let mut inner = Tokenizer::from_bytes(json).map_err(|problem| problem.to_string())?;
        let switched_off = switch_off(&mut inner)?;
        try_out(&inner, growth.decoder)?;
        Ok(Read { inner, switched_off, growth: growth.encoder })
    });
    read.map_err(|panic| contradiction(&panic.to_string()))?
}

/// Says that parts of a tokenizer contradict each other, in words of the library.
pub(super) fn contradiction(words: &str) -> String {
    format!("its parts contradict each other: {words}")
}

/// Switches off what would cut a prompt in silence, fill it up, or split it by dice that no seed rules.
fn switch_off(inner: &mut Tokenizer) -> Result<Vec<String>, String> {
    let mut said = Vec::new();
    if inner.get_padding().is_some() {
        said.push("padding".to_owned());
        inner.with_padding(None);
    }
    if inner.get_truncation().is_some() {
        said.push("truncation".to_owned());
        inner.with_truncation(None).map_err(|problem| problem.to_string())?;
    }

    let dropout = match inner.get_model() {
        ModelWrapper::BPE(model) => model.dropout.filter(|dropout| *dropout > 0.0),
        _ => None,
    };
    if let Some(dropout) = dropout
        && let ModelWrapper::BPE(mut model) = inner.get_model().clone()
    {
        said.push(format!("BPE dropout of {dropout}, which no seed repeats"));
        model.dropout = None;
        inner.with_model(model);
    }
    Ok(said)
}

/// Tries a tokenizer in both directions.
fn try_out(inner: &Tokenizer, growth: usize) -> Result<(), String> {
    // Of two tokens with one id, the library takes another as the id's text in each process.
    let mut texts: BTreeMap<u32, String> = BTreeMap::new();
    for (text, id) in inner.get_vocab(true) {
        if let Some(other) = texts.insert(id, text) {
            let text = &texts[&id];
            return Err(format!("two of its tokens, {other:?} and {text:?}, have the id {id}"));
        }
    }

    for text in TRIALS {
        // It does not matter whether the tokenizer has tokens for these texts.
        let Ok(encoding) = inner.encode_fast(text, true) else { continue };
        if let Some(id) = encoding.get_ids().iter().find(|id| !texts.contains_key(id)) {
            return Err(format!("it puts the id {id} into texts, which no token has"));
        }
    }

    let bytes: usize = texts.values().map(String::len).sum();
    if bytes.saturating_mul(growth) > MOST_DECODED {
        return Err(format!(
            "its decoder may make {growth} bytes of one, which is too many for its {bytes}"
        ));
    }
    let ids: Vec<u32> = texts.into_keys().collect();
    let _ = inner.decode(&ids, false);
    for alone in ids.chunks(ids.len().div_ceil(ALONE).max(1)) {
        let _ = inner.decode(&alone[..1], false);
    }
    let _ = inner.decode(&[], false);
    Ok(())
}

/// The texts that a tokenizer is tried with: words, a run of each kind of character, and nothing.
const TRIALS: [&str; 5] = [
    "hi",
    "1",
    " !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~\t\r\n",
    "aaaa  0000\n\n\u{e9}e\u{301}\u{3b1}\u{6f22}\u{5b57}\u{fb01}\u{ff11}\u{1f600}\u{200d}\u{2581}\u{120}\0",
    "",
];

/// The number of tokens that are decoded alone.
const ALONE: usize = 4096;

/// The most bytes that a decoder may make of the whole vocabulary.
const MOST_DECODED: usize = 256 << 20;
