//! Reads `tokenizer.json`, switches off what would make runs differ, and tries the rest.

use std::collections::BTreeMap;

use firebrick_core::{guard, without_bom};
use tokenizers::{ModelWrapper, Tokenizer};

use super::growth;

/// A tokenizer that was read and tried.
pub(super) struct Read {
    pub(super) inner: Tokenizer,
    /// Settings of the file that are ignored, in words.
    pub(super) switched_off: Vec<String>,
    /// How many bytes one byte of a text may become before it is cut into tokens.
    pub(super) growth: usize,
}

/// Reads `tokenizer.json`.
///
/// # Errors
/// Fails if the file is damaged, asks for memory without bound, or its parts contradict each other.
pub(super) fn read(json: &[u8]) -> Result<Read, String> {
    let json = without_bom(json).map_err(|problem| problem.to_string())?;

    // The bounds are checked first, because the library makes room for whatever a file claims.
    let growth = growth::of_file(json)?;

    // If parts of a file contradict each other, the library (0.23.2) panics instead of failing: some when the file is
    // read, some at the first text that they process.
    let read = guard(|| {
        let mut inner = Tokenizer::from_bytes(json).map_err(|problem| problem.to_string())?;
        let switched_off = switch_off(&mut inner)?;
        try_out(&inner, growth.decoder)?;
        Ok(Read { inner, switched_off, growth: growth.encoder })
    });
    read.map_err(|panic| contradiction(&panic.to_string()))?
}

/// Says that parts of a tokenizer contradict each other, in the library's words.
pub(super) fn contradiction(words: &str) -> String {
    format!("its parts contradict each other: {words}")
}

/// Switches off what would cut a prompt silently, fill it up, or split it by random numbers without a seed.
fn switch_off(inner: &mut Tokenizer) -> Result<Vec<String>, String> {
    let mut switched_off = Vec::new();
    if inner.get_padding().is_some() {
        switched_off.push("padding".to_owned());
        inner.with_padding(None);
    }
    if inner.get_truncation().is_some() {
        switched_off.push("truncation".to_owned());
        inner.with_truncation(None).map_err(|problem| problem.to_string())?;
    }

    let dropout = match inner.get_model() {
        ModelWrapper::BPE(model) => model.dropout.filter(|dropout| *dropout > 0.0),
        _ => None,
    };
    if let Some(dropout) = dropout
        && let ModelWrapper::BPE(mut model) = inner.get_model().clone()
    {
        switched_off.push(format!("BPE dropout of {dropout}, which no seed repeats"));
        model.dropout = None;
        inner.with_model(model);
    }
    Ok(switched_off)
}

/// Tries a tokenizer in both directions.
fn try_out(inner: &Tokenizer, growth: usize) -> Result<(), String> {
    // If two tokens have one id, it depends on the process which of them the library takes as the id's text.
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
            return Err(format!("it adds the id {id} to texts, although no token has that id"));
        }
    }

    let bytes: usize = texts.values().map(String::len).sum();
    if bytes.saturating_mul(growth) > MOST_DECODED {
        return Err(format!(
            "its decoder may turn one byte into {growth}, which is too many for its {bytes} bytes"
        ));
    }

    // All tokens together, then some alone, since a decoder may treat the first token in its own way.
    let ids: Vec<u32> = texts.into_keys().collect();
    let _ = inner.decode(&ids, false);
    for chunk in ids.chunks(ids.len().div_ceil(ALONE).max(1)) {
        let _ = inner.decode(&chunk[..1], false);
    }
    let _ = inner.decode(&[], false);
    Ok(())
}

/// Texts that a tokenizer is tried with: words, a run of each kind of character, and nothing.
const TRIALS: [&str; 5] = [
    "hi",
    "1",
    " !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~\t\r\n",
    "aaaa  0000\n\n\u{e9}e\u{301}\u{3b1}\u{6f22}\u{5b57}\u{fb01}\u{ff11}\u{1f600}\u{200d}\u{2581}\u{120}\0",
    "",
];

/// How many tokens are decoded alone.
const ALONE: usize = 4096;

/// Limit on the bytes that a decoder may make of all tokens of the vocabulary.
const MOST_DECODED: usize = 256 << 20;
