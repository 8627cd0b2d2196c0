//! Reads `tokenizer.json`, switches off what would make runs differ, and tries the rest.

use firebrick_core::guard;
use serde::Deserialize;
use serde_json::Value;
use tokenizers::{ModelWrapper, Tokenizer};

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
    let parts: Parts = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    let before = growth(&parts.normalizer)?.saturating_mul(growth(&parts.pre_tokenizer)?);
    for growth in [before, growth(&parts.decoder)?] {
        if growth > GROWTH {
            return Err(format!("it may make {growth} bytes of one, expected at most {GROWTH}"));
        }
    }

    // If parts of a file contradict each other, the library (0.23.2) panics instead of failing: some when the file
    // is read, some at the first text that they meet.
    let read = guard(|| {
        let mut inner = Tokenizer::from_bytes(json).map_err(|problem| problem.to_string())?;
        let switched_off = switch_off(&mut inner)?;
        // It does not matter whether the tokenizer has tokens for these texts.
        for text in TRIALS {
            let _ = inner.encode_fast(text, true);
        }
        let ids: Vec<u32> = inner.get_vocab(true).into_values().collect();
        let _ = inner.decode(&ids, false);
        Ok(Read { inner, switched_off, growth: before })
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
    let mut model = inner.get_model().clone();
    if let ModelWrapper::BPE(model) = &mut model
        && let Some(dropout) = model.dropout.take().filter(|dropout| *dropout > 0.0)
    {
        said.push(format!("BPE dropout of {dropout}, which no seed repeats"));
        inner.with_model(model.clone());
    }
    Ok(said)
}

/// The texts that a tokenizer is tried with: words, a run of each kind of character, and nothing.
const TRIALS: [&str; 4] = [
    "hi",
    "1",
    " !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~\t\r\n",
    "aaaa  0000\n\n\u{e9}e\u{301}\u{3b1}\u{6f22}\u{5b57}\u{fb01}\u{ff11}\u{1f600}\u{200d}\u{2581}\u{120}\0",
];

/// The most bytes that a tokenizer may make of one. A chain of normalisations that is in use makes some hundreds.
const GROWTH: usize = 1 << 14;

/// The parts of `tokenizer.json` that rewrite texts.
#[derive(Deserialize)]
struct Parts {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    decoder: Value,
}

/// Returns an upper bound of the bytes that a part makes of one byte.
fn growth(part: &Value) -> Result<usize, String> {
    let text = |field: &str| part[field].as_str().unwrap_or_default();
    Ok(match part["type"].as_str().unwrap_or_default() {
        "Sequence" => {
            let lists = ["normalizers", "pretokenizers", "decoders"];
            let parts = lists.iter().filter_map(|list| part[*list].as_array()).flatten();
            let mut product: usize = 1;
            for part in parts {
                product = product.saturating_mul(growth(part)?);
            }
            product
        }
        "Replace" => {
            let replaced = match part["pattern"]["String"].as_str() {
                Some("") => return Err("it replaces an empty text".into()),
                Some(pattern) => pattern.len(),
                None => 1,
            };
            text("content").len().div_ceil(replaced).max(1)
        }
        "Prepend" => 1 + text("prepend").len(),
        "Metaspace" => 4,
        "Precompiled" => {
            check_charsmap(text("precompiled_charsmap"))?;
            64
        }
        // The longest decompositions of Unicode: U+FDFA in 33 bytes for 3, and U+0390 in 6 for 2.
        "NFKC" | "NFKD" => 11,
        "NFC" | "NFD" => 3,
        // Spaces are put around a Chinese character, and an accent may become a character of its own.
        "BertNormalizer" => 4,
        // Half of all bytes are written as characters of two bytes.
        "ByteLevel" | "Lowercase" => 2,
        _ => 1,
    })
}

/// Checks the size that a table of SentencePiece's normalisation says of itself, in its first four bytes: the library
/// makes room for it before it looks.
fn check_charsmap(base64: &str) -> Result<(), String> {
    let digit = |letter: u8| match letter {
        b'A'..=b'Z' => Some(letter - b'A'),
        b'a'..=b'z' => Some(letter - b'a' + 26),
        b'0'..=b'9' => Some(letter - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let bytes = base64.len() as u64 * 3 / 4;
    let said = base64.as_bytes().get(..6).and_then(|letters| {
        let digits: Option<Vec<u8>> = letters.iter().map(|&letter| digit(letter)).collect();
        let bits = digits?.iter().fold(0_u64, |bits, &digit| bits << 6 | u64::from(digit));
        Some(u64::from(u32::swap_bytes((bits >> 4) as u32)))
    });
    match said {
        Some(said) if said <= bytes => Ok(()),
        Some(said) => {
            Err(format!("its precompiled_charsmap says that it has {said} bytes, and has {bytes}"))
        }
        None => Err("its precompiled_charsmap is no table in base64".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_text_may_grow_to_is_known_before_it_does() {
        let replace = |pattern: &str, content: &str| json!({"type": "Replace", "pattern": {"String": pattern}, "content": content});
        let regex = json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "ab"});
        let long = "h".repeat(100);
        let all = |parts: Vec<Value>| json!({"type": "Sequence", "normalizers": parts});
        for (part, expected) in [
            (Value::Null, 1),
            (json!({"type": "Strip"}), 1),
            (replace(" ", "\u{2581}"), 3),
            (replace("``", "\""), 1),
            (regex, 2),
            (json!({"type": "Prepend", "prepend": "\u{2581}"}), 4),
            (all(vec![json!({"type": "NFC"}), replace("h", "hh")]), 6),
            (all(vec![replace("h", &long), replace("h", &long), replace("h", &long)]), 1_000_000),
            (
                json!({"type": "Sequence", "pretokenizers": vec![json!({"type": "ByteLevel"}); 60]}),
                1 << 60,
            ),
            (json!({"type": "Sequence", "decoders": vec![replace("a", &long); 40]}), usize::MAX),
            // Sequences nest.
            (all(vec![all(vec![replace("h", &long)]), replace("h", &long)]), 10_000),
        ] {
            assert_eq!(growth(&part), Ok(expected), "{part}");
        }
        assert_eq!(growth(&replace("", "x")).unwrap_err(), "it replaces an empty text");
        let charsmap =
            |text: &str| growth(&json!({"type": "Precompiled", "precompiled_charsmap": text}));
        assert_eq!(charsmap("AAAAAGE="), Ok(64));
        assert_eq!(charsmap("BAAAAAEAAABhAA=="), Ok(64));
        for lie in ["/////w==", "AAAAgAAA", "EAAAAGE="] {
            assert!(charsmap(lie).unwrap_err().contains("says that it has"), "{lie}");
        }
        for none in ["", "AA==", "\u{e9}\u{e9}\u{e9}\u{e9}"] {
            assert!(charsmap(none).unwrap_err().contains("is no table"), "{none}");
        }
    }
}
