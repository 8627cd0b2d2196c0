//! Makes a new tokenizer that has one token for each character of an alphabet.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Tokenizer;
use crate::DataError;

impl Tokenizer {
    /// Makes a tokenizer from scratch, with one token for each character of `alphabet`.
    ///
    /// The ids are `<pad>` 0, `<eos>` 1, then the characters in the order given. Text goes to tokens and back
    /// unchanged, spaces and line ends included. A character outside the alphabet is an error.
    ///
    /// # Errors
    /// Fails if the alphabet is empty or has a character twice.
    pub fn characters(alphabet: &str) -> Result<Self, DataError> {
        let origin = format!("a character tokenizer over {alphabet:?}");
        let mut vocabulary = Map::new();
        for token in ["<pad>", "<eos>"]
            .map(String::from)
            .into_iter()
            .chain(alphabet.chars().map(String::from))
        {
            let id = vocabulary.len();
            if vocabulary.insert(byte_level(&token), id.into()).is_some() {
                let problem = format!("{token:?} occurs twice; name each character once");
                return Err(DataError::Tokenizer { origin, problem });
            }
        }

        if alphabet.is_empty() {
            let problem = "the alphabet is empty; name at least one character".to_owned();
            return Err(DataError::Tokenizer { origin, problem });
        }

        let special_tokens = Map::from_iter([
            ("eos_token".to_owned(), json!("<eos>")),
            ("pad_token".to_owned(), json!("<pad>")),
        ]);
        Self::assemble(origin, character_files(vocabulary), &special_tokens, vec![1])
    }
}

/// Makes the files of a character tokenizer, as `transformers` would write them.
///
/// The model is a byte-level BPE that is only ever asked for whole words, each of one character. It refuses an unknown
/// character, because the token that it would use instead is not in the vocabulary. A word list would do the same here,
/// but transformers 5 rebuilds the tokenizer of a `qwen2` folder from its vocabulary alone, as Qwen's own, and silently
/// dropped spaces and line ends, which a word list spells as they are. (transformers still drops characters beyond
/// ASCII, unless it is asked for a `PreTrainedTokenizerFast`.)
fn character_files(vocabulary: Map<String, Value>) -> BTreeMap<&'static str, Vec<u8>> {
    let special = |id: u32, content: &str| {
        json!({
            "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true,
        })
    };
    let byte_level = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false,
    });

    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [special(0, "<pad>"), special(1, "<eos>")],
        "normalizer": null,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split", "pattern": {"Regex": "[\\s\\S]"}, "behavior": "Isolated",
                    "invert": false,
                },
                byte_level,
            ],
        },
        "post_processor": null,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": "<unk>",
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
            "byte_fallback": false, "ignore_merges": true, "vocab": vocabulary, "merges": [],
        },
    });

    let config = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": "<pad>",
        "eos_token": "<eos>",
        "unk_token": null,
        "clean_up_tokenization_spaces": false,
        "model_input_names": ["input_ids", "attention_mask"],
    });

    let special_tokens = json!({"pad_token": "<pad>", "eos_token": "<eos>"});
    let generation = json!({"pad_token_id": 0, "eos_token_id": 1});
    [
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", config),
        ("special_tokens_map.json", special_tokens),
        ("generation_config.json", generation),
    ]
    .map(|(name, value)| (name, format!("{value:#}\n").into_bytes()))
    .into()
}

/// Spells `text` as a byte-level vocabulary does, with a character for each byte. The character is the byte itself if
/// Latin-1 has a visible character there, else the next one starting at U+0100 (Radford et al. 2019).
fn byte_level(text: &str) -> String {
    let visible = |byte: u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let spell = |byte: u8| {
        if visible(byte) {
            return char::from(byte);
        }
        let rank = (0..byte).filter(|&before| !visible(before)).count() as u32;
        char::from_u32(0x100 + rank).expect("68 bytes are not visible: U+0100 to U+0143")
    };

    text.bytes().map(spell).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn characters_round_trip(text in "[ab \n\t.é数]{0,40}") {
            let tokenizer = Tokenizer::characters("ab \n\t.é数").unwrap();
            let tokens = tokenizer.encode(&text, true).unwrap();
            prop_assert_eq!(tokens.len(), text.chars().count());
            prop_assert_eq!(tokenizer.decode(&tokens, false), text);
        }
    }
}
