//! How much a tokenizer may make of a text, by what its `tokenizer.json` says.
//!
//! A file of a few lines can make a million bytes of one, because a chain of replacements multiplies. The library has
//! no bound, so the growth is computed before the library gets the file, and the length of texts is limited by it.

use serde::Deserialize;
use serde_json::Value;

/// How many bytes each direction makes of one, at most.
pub(super) struct Growth {
    pub(super) encoder: usize,
    pub(super) decoder: usize,
}

/// Reads how much the parts of a `tokenizer.json` make of a text.
///
/// # Errors
/// Fails if it is too much, or a part is not known.
pub(super) fn of_file(json: &[u8]) -> Result<Growth, String> {
    let parts: Parts = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    let encoder = [&parts.normalizer, &parts.pre_tokenizer, &parts.post_processor];
    // Each part gets what the one before it has made, so their factors multiply.
    let mut product: usize = 1;
    for part in encoder {
        product = product.saturating_mul(of_part(part)?);
    }

    let growth = Growth { encoder: product, decoder: of_part(&parts.decoder)? };
    for bytes in [growth.encoder, growth.decoder] {
        if bytes > MOST {
            return Err(format!("it may turn one byte into {bytes}, expected at most {MOST}"));
        }
    }
    Ok(growth)
}

/// Limit on the bytes that a tokenizer may make of one. A chain that is in use makes some hundreds.
const MOST: usize = 1 << 14;

/// Limit on the special tokens that a tokenizer puts around a text.
const AROUND: usize = 1024;

/// Parts of `tokenizer.json` that rewrite texts.
#[derive(Deserialize)]
struct Parts {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
}

/// Returns a number g, such that a part makes at most g·(n + 1) − 1 bytes of n bytes.
fn of_part(part: &Value) -> Result<usize, String> {
    if part.is_null() {
        return Ok(1);
    }

    let text = |field: &str| part[field].as_str().unwrap_or_default();
    let begins_with_space = part["add_prefix_space"].as_bool().unwrap_or(true);
    Ok(match text("type") {
        "Sequence" => {
            let lists = ["normalizers", "pretokenizers", "processors", "decoders"];
            let parts = lists.iter().filter_map(|list| part[*list].as_array()).flatten();
            let mut product: usize = 1;
            for part in parts {
                product = product.saturating_mul(of_part(part)?);
            }
            product
        }
        "Replace" => {
            let content = text("content").len();
            match part["pattern"]["String"].as_str() {
                Some("") => return Err("it replaces an empty text".into()),
                Some(pattern) => content.div_ceil(pattern.len()).max(1),
                // An expression may match the empty text, between any two bytes.
                None => 1 + content,
            }
        }
        "Prepend" => 1 + text("prepend").len(),
        "Precompiled" => longest_entry(text("precompiled_charsmap"))?.max(1),
        // The longest decompositions of Unicode: U+FDFA in 33 bytes for 3, and U+0390 in 6 for 2.
        "NFKC" | "NFKD" => 11,
        "NFC" | "NFD" => 3,
        // Spaces are put around a Chinese character, and an accent may become a separate character.
        "BertNormalizer" => 4,
        "Lowercase" => 2,
        // Half of all bytes are written as characters of two bytes, while a decoder writes three for a byte that is not
        // text. Each piece of a text may get a space.
        "ByteLevel" => {
            if begins_with_space {
                6
            } else {
                3
            }
        }
        "Metaspace" => 6,
        "ByteFallback" => 3,
        "WordPiece" => 2,
        // An empty text is found, and replaced, between any two characters.
        "BPEDecoder" if text("suffix").is_empty() => {
            return Err("its decoder has an empty suffix".into());
        }
        "CTC" if text("word_delimiter_token").is_empty() => {
            return Err("its decoder has an empty word_delimiter_token".into());
        }
        "TemplateProcessing" => {
            check_template(part)?;
            1
        }
        "BPEDecoder" | "BertPreTokenizer" | "BertProcessing" | "CTC" | "CharDelimiterSplit"
        | "Digits" | "FixedLength" | "Fuse" | "Nmt" | "Punctuation" | "RobertaProcessing"
        | "Split" | "Strip" | "StripAccents" | "UnicodeScripts" | "Whitespace"
        | "WhitespaceSplit" => 1,
        other => return Err(format!("it has a part of type {other:?}, which is not known here")),
    })
}

/// Checks that a template has a text once, with a bounded number of tokens around it.
fn check_template(part: &Value) -> Result<(), String> {
    let pieces = part["single"].as_array().map(Vec::as_slice).unwrap_or_default();
    let texts = pieces.iter().filter(|piece| piece.get("Sequence").is_some()).count();
    let specials = part["special_tokens"].as_object();
    let ids = specials.into_iter().flatten().map(|(_, special)| special["ids"].as_array());
    let longest = ids.map(|ids| ids.map_or(0, Vec::len)).max().unwrap_or(0);
    let around = (pieces.len() - texts).saturating_mul(longest);

    if texts > 1 || around > AROUND {
        return Err(format!(
            "it repeats a text {texts} times, with {around} tokens around it; expected once, with at most {AROUND}"
        ));
    }
    Ok(())
}

/// Returns the length of the longest text in a table of SentencePiece's normalisation. It also checks the size that
/// the table claims in its first four bytes, because the library makes room for it before it reads on.
fn longest_entry(base64: &str) -> Result<usize, String> {
    let bytes = decoded(base64).ok_or("its precompiled_charsmap is not base64")?;

    let claimed = bytes.first_chunk::<4>().map(|size| u32::from_le_bytes(*size) as usize);
    let claimed = claimed.ok_or("its precompiled_charsmap is empty")?;

    let texts = bytes[4..].get(claimed..).ok_or_else(|| {
        format!(
            "its precompiled_charsmap says that it has {claimed} bytes, and has {}",
            bytes.len() - 4
        )
    })?;
    Ok(texts.split(|byte| *byte == 0).map(<[u8]>::len).max().unwrap_or(0))
}

/// Decodes base64.
fn decoded(base64: &str) -> Option<Vec<u8>> {
    let digit = |letter: u8| match letter {
        b'A'..=b'Z' => Some(letter - b'A'),
        b'a'..=b'z' => Some(letter - b'a' + 26),
        b'0'..=b'9' => Some(letter - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };

    let mut bytes = Vec::with_capacity(base64.len() / 4 * 3);
    for letters in base64.trim_end_matches('=').as_bytes().chunks(4) {
        let mut bits = 0_u32;
        for &letter in letters {
            bits = bits << 6 | u32::from(digit(letter)?);
        }
        // The last group may have fewer than four letters. Its bits move up to where those of four would be.
        bits <<= 6 * (4 - letters.len());
        bytes.extend_from_slice(&bits.to_be_bytes()[1..letters.len()]);
    }

    Some(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokenizers::{
        NormalizedString, Normalizer as _, NormalizerWrapper, PreTokenizedString,
        PreTokenizer as _, PreTokenizerWrapper,
    };

    use super::*;

    fn replace(pattern: &str, content: &str) -> Value {
        json!({"type": "Replace", "pattern": {"String": pattern}, "content": content})
    }

    #[test]
    fn what_multiplies_is_multiplied_and_what_has_no_bound_is_refused() {
        let long = "h".repeat(100);
        let all = |parts: Vec<Value>| json!({"type": "Sequence", "normalizers": parts});
        for (part, expected) in [
            (Value::Null, 1),
            (all(vec![replace("h", &long), replace("h", &long), replace("h", &long)]), 1_000_000),
            (json!({"type": "Sequence", "decoders": vec![replace("a", &long); 40]}), usize::MAX),
            // Sequences nest.
            (all(vec![all(vec![replace("h", &long)]), replace("h", &long)]), 10_000),
        ] {
            assert_eq!(of_part(&part), Ok(expected), "{part}");
        }

        for (part, words) in [
            (replace("", "x"), "an empty text"),
            (json!({"pattern": {"String": "h"}, "content": "hh"}), "a part of type \"\""),
            (json!({"type": "NFX"}), "a part of type \"NFX\""),
            (all(vec![json!({"normalizers": []})]), "a part of type \"\""),
            (json!({"type": "BPEDecoder", "suffix": ""}), "an empty suffix"),
            (json!({"type": "CTC", "word_delimiter_token": ""}), "an empty word_delimiter_token"),
            (
                json!({"type": "TemplateProcessing", "single": vec![json!({"Sequence": {"id": "A", "type_id": 0}}); 2]}),
                "it repeats a text 2 times",
            ),
            (
                json!({"type": "TemplateProcessing", "single": vec![json!({"SpecialToken": {"id": "b", "type_id": 0}}); 9],
                    "special_tokens": {"b": {"id": "b", "ids": vec![1; 200], "tokens": []}}}),
                "1800 tokens around it",
            ),
        ] {
            let error = of_part(&part).unwrap_err();
            assert!(error.contains(words), "{part}: {error}");
        }

        let charsmap =
            |text: &str| of_part(&json!({"type": "Precompiled", "precompiled_charsmap": text}));

        // Four bytes of a tree, and the texts "abc" and "d".
        assert_eq!(charsmap("BAAAAAAAAABhYmMAZAA="), Ok(3));
        for lie in ["/////w==", "AAAAgAAA", "EAAAAGE="] {
            assert!(charsmap(lie).unwrap_err().contains("says that it has"), "{lie}");
        }

        for none in ["", "AA==", "\u{e9}\u{e9}\u{e9}\u{e9}"] {
            assert!(charsmap(none).unwrap_err().contains("its precompiled_charsmap is"), "{none}");
        }
    }

    /// Compares the bounds with what the library makes of texts that grow.
    #[test]
    fn no_part_makes_more_of_a_text_than_is_said() {
        let regex = |pattern: &str, content: &str| json!({"type": "Replace", "pattern": {"Regex": pattern}, "content": content});
        let texts = [
            "",
            "h",
            "hhhh",
            "a b  c",
            "\u{fdfa}",
            "\u{390}\u{1fb7}",
            "\u{130}\u{130}",
            "\u{6f22}\u{5b57}",
            "\u{1f600}",
        ];

        for part in [
            replace("h", "hello"),
            replace("hh", "hum"),
            regex("(?=h)", "h"),
            regex("x*", "abc"),
            json!({"type": "Prepend", "prepend": "\u{2581}"}),
            json!({"type": "NFC"}),
            json!({"type": "NFD"}),
            json!({"type": "NFKC"}),
            json!({"type": "NFKD"}),
            json!({"type": "Lowercase"}),
            json!({"type": "ByteLevel"}),
            json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                "strip_accents": null, "lowercase": true}),
        ] {
            let normalizer: NormalizerWrapper = serde_json::from_value(part.clone()).unwrap();
            let growth = of_part(&part).unwrap();

            for text in texts {
                let mut made = NormalizedString::from(text);
                // What the library refuses, or panics at, has not grown.
                let done = firebrick_core::guard(|| normalizer.normalize(&mut made).is_ok());
                let most = growth * (text.len() + 1);
                assert!(
                    done != Ok(true) || made.get().len() < most,
                    "{part} of {text:?}: {}",
                    made.get()
                );
            }
        }

        let split = json!({"type": "Split", "pattern": {"Regex": "[\\s\\S]"}, "behavior": "Isolated", "invert": false});
        for last in [
            json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": false}),
            json!({"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "always", "split": true}),
        ] {
            let part = json!({"type": "Sequence", "pretokenizers": [split, last]});
            let pre: PreTokenizerWrapper = serde_json::from_value(part.clone()).unwrap();
            let growth = of_part(&part).unwrap();

            for text in texts {
                let mut made = PreTokenizedString::from(text);
                pre.pre_tokenize(&mut made).unwrap();

                let splits = made.get_splits(
                    tokenizers::OffsetReferential::Original,
                    tokenizers::OffsetType::Byte,
                );
                let bytes: usize = splits.iter().map(|(piece, ..)| piece.len()).sum();
                assert!(bytes < growth * (text.len() + 1), "{part} of {text:?}: {bytes}");
            }
        }
    }
}
