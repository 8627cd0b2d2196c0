//! Tokenizers of model folders, with their special tokens and their files.

mod characters;
mod facts;
mod gguf;
mod growth;
mod reading;
mod room;
mod streamer;
mod up_to;

pub use facts::TokenizerFacts;
pub use streamer::Streamer;
pub use up_to::tokens_up_to;

use std::{collections::BTreeMap, fs, path::Path};

use firebrick_core::{Detokenizer, TokenId, guard};
use serde_json::{Map, Value};

use crate::{DataError, folder};

/// Files of a model folder that make its tokenizer. [`Tokenizer::save`] writes them back.
const FILES: [&str; 9] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "generation_config.json",
];

/// Special tokens that end a turn or a text, by their names in published vocabularies. A model may use one that its
/// configuration does not call an end.
const ENDS: [&str; 8] = [
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<｜end▁of▁sentence｜>",
    "<end_of_turn>",
    "</s>",
];

/// Turns text into tokens and back, and knows the ids of the special tokens.
#[derive(Clone)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    bos: Option<TokenId>,
    eos: TokenId,
    pad: TokenId,
    stop: Vec<TokenId>,
    /// Special tokens that begin, end or fill up a text, and are not part of its text.
    wordless: Vec<TokenId>,
    /// See [`Tokenizer::switched_off`].
    switched_off: Vec<String>,
    /// How many bytes one byte of a text may become before it is cut into tokens.
    growth: usize,
    files: BTreeMap<&'static str, Vec<u8>>,
}

/// Limit on what a text becomes before it is cut into tokens, in bytes. The library takes some 400 bytes of memory for
/// each token, and a token may be one byte.
const LONGEST: usize = 8 << 20;

/// Texts that are being encoded, by whichever thread and tokenizer, have no more room together than one of them.
static ROOM: room::Room = room::Room::new(LONGEST);

impl Tokenizer {
    /// Reads the tokenizer of a Hugging Face model folder.
    ///
    /// `tokenizer.json` must be there. Special tokens come from `tokenizer_config.json`, else
    /// `special_tokens_map.json`. More stop tokens come from `generation_config.json`, else `config.json`. Truncation
    /// and padding that the file asks for are switched off, so that a prompt is never cut silently. So is BPE dropout,
    /// which would give the same text different tokens each time ([`Tokenizer::switched_off`]).
    ///
    /// # Errors
    /// Fails if a file is missing or broken, or nothing says which token ends a text.
    pub fn from_folder(folder: impl AsRef<Path>) -> Result<Self, DataError> {
        let folder = folder.as_ref();
        let mut files = BTreeMap::new();
        for name in FILES {
            if let Some(bytes) = folder::read(&folder.join(name))? {
                files.insert(name, bytes);
            }
        }

        let generation = folder::read_object(&folder.join("generation_config.json"))?;
        let model = folder::read_object(&folder.join("config.json"))?;
        let special_tokens = folder::special_tokens(folder)?;
        let origin = folder.join("tokenizer.json").display().to_string();
        let stop = match eos_ids(&generation) {
            ids if ids.is_empty() => eos_ids(&model),
            ids => ids,
        };

        Self::assemble(origin, files, &special_tokens, stop)
    }

    fn assemble(
        origin: String,
        files: BTreeMap<&'static str, Vec<u8>>,
        special_tokens: &Map<String, Value>,
        mut stop: Vec<TokenId>,
    ) -> Result<Self, DataError> {
        let error = |problem: String| DataError::Tokenizer { origin: origin.clone(), problem };
        let json = files.get("tokenizer.json").ok_or_else(|| {
            error(
                "there is no such file; `transformers` writes it with \
                 AutoTokenizer.from_pretrained(…).save_pretrained(…)"
                    .into(),
            )
        })?;
        let reading::Read { inner, switched_off, growth } =
            reading::read(json).map_err(|problem| {
                error(format!("the tokenizer cannot be read ({problem}); download it again"))
            })?;

        // Configurations are copied from model to model. An id that this vocabulary lacks would index beyond the
        // embedding.
        stop.retain(|&id| inner.id_to_token(id).is_some());
        let id = |name: &str| {
            special_tokens.get(name)?.as_str().and_then(|token| inner.token_to_id(token))
        };
        let eos = id("eos_token").or(stop.first().copied()).ok_or_else(|| {
            error(
                "no file says which token ends a text; set `eos_token` in \
                 tokenizer_config.json, or `eos_token_id` in generation_config.json"
                    .into(),
            )
        })?;

        // SFT teaches the tokenizer's own end token, so generation has to stop there too, even if
        // generation_config.json lists only other tokens.
        stop.retain(|&id| id != eos);
        stop.insert(0, eos);
        let bos = id("bos_token");
        let pad = id("pad_token").unwrap_or(eos);

        let ends = ENDS.iter().filter_map(|name| inner.token_to_id(name));
        let mut wordless: Vec<TokenId> =
            stop.iter().copied().chain(bos).chain([pad]).chain(ends).collect();

        // A model may stop at a word, which remains part of its text.
        let added = inner.get_added_vocabulary();
        wordless.retain(|&id| {
            inner.id_to_token(id).is_some_and(|token| added.is_special_token(&token))
        });

        Ok(Tokenizer { inner, bos, eos, pad, stop, wordless, switched_off, growth, files })
    }

    /// Returns the tokens of a text.
    ///
    /// With `add_special_tokens`, these include the tokens that the tokenizer puts around every text, such as a
    /// beginning-of-text token. A chat template has written them already. Special tokens spelt out in the text
    /// become tokens either way.
    ///
    /// # Errors
    /// Fails if the text has a character that the vocabulary cannot write, or may become more than 8 MiB when it is
    /// normalised, or if the tokenizer's parts contradict each other.
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<TokenId>, DataError> {
        let failed = |problem| DataError::Tokenizer { origin: of_text(text), problem };
        let max_bytes = LONGEST / self.growth;
        if text.len() > max_bytes {
            let bytes = text.len();
            let growth = self.growth;
            return Err(failed(format!(
                "the text has {bytes} bytes, expected at most {max_bytes}, since the tokenizer may make {growth} of each; \
                 shorten it"
            )));
        }

        let _room = ROOM.take(text.len() * self.growth);
        match guard(|| self.inner.encode_fast(text, add_special_tokens)) {
            Ok(Ok(encoding)) => Ok(encoding.get_ids().to_vec()),
            Ok(Err(problem)) => Err(self.explain(text, problem.to_string())),
            Err(panic) => Err(failed(reading::contradiction(&panic.to_string()))),
        }
    }

    /// Returns the text of `tokens`. With `skip_special_tokens`, the special tokens among them are left out.
    ///
    /// Ids outside the vocabulary are skipped, and bytes that are not text become `�`.
    pub fn decode(&self, tokens: &[TokenId], skip_special_tokens: bool) -> String {
        // Decoders only rewrite strings, so none of them fails.
        self.inner.decode(tokens, skip_special_tokens).unwrap_or_default()
    }

    /// Returns the settings of the tokenizer's file that are ignored, in words: padding, truncation, BPE dropout.
    pub fn switched_off(&self) -> &[String] {
        &self.switched_off
    }

    /// Returns the token before every text, if the tokenizer has one.
    pub fn bos(&self) -> Option<TokenId> {
        self.bos
    }

    /// Returns the token that ends a completion.
    pub fn eos(&self) -> TokenId {
        self.eos
    }

    /// Returns the token that fills up a batch. It is the end token if the tokenizer names no other.
    pub fn pad(&self) -> TokenId {
        self.pad
    }

    /// Returns every token that ends generation: [`Tokenizer::eos`], then the tokens of the model's configuration.
    pub fn stop_tokens(&self) -> &[TokenId] {
        &self.stop
    }

    /// Returns the number of tokens, added tokens included. A model's vocabulary is often padded to a larger round
    /// number.
    #[allow(clippy::len_without_is_empty, reason = "a tokenizer without tokens cannot be made")]
    pub fn len(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// Returns the number of rows that an embedding needs for every token to have one. It is the largest id plus
    /// one, which is more than [`Tokenizer::len`] if ids have holes.
    pub fn rows(&self) -> usize {
        let ids = self.inner.get_vocab(true).into_values();
        ids.max().map_or(0, |largest| largest as usize + 1)
    }

    /// Returns the token of the smallest id that `other` lacks, or has under another id. `None` if it has them all.
    pub fn lacking_in(&self, other: &Tokenizer) -> Option<String> {
        let theirs = other.inner.get_vocab(true);
        let own = self.inner.get_vocab(true).into_iter();
        let lacking = own.filter(|(token, id)| theirs.get(token) != Some(id));
        lacking.min_by_key(|(_, id)| *id).map(|(token, _)| token)
    }

    /// Writes the tokenizer's files into an existing folder.
    ///
    /// Files that came from a folder are written back byte for byte, chat template and generation settings
    /// included, so what is switched off here stays in them. The files of a made tokenizer are a folder that
    /// `transformers` opens.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub fn save(&self, folder: impl AsRef<Path>) -> Result<(), DataError> {
        for (name, bytes) in &self.files {
            let path = folder.as_ref().join(name);
            fs::write(&path, bytes).map_err(|source| DataError::Write { path, source })?;
        }
        Ok(())
    }

    /// Returns the special tokens that end or begin a text, and those in `form`, as they are spelt.
    pub(crate) fn control_tokens(&self, form: &str) -> Vec<String> {
        let of_form = self.encode(form, false).unwrap_or_default();
        let named_tokens = self.stop.iter().copied().chain(self.bos).chain([self.pad]);

        let mut tokens: Vec<String> =
            named_tokens.chain(of_form).filter_map(|id| self.inner.id_to_token(id)).collect();
        tokens.retain(|token| self.inner.get_added_vocabulary().is_special_token(token));
        tokens.sort_unstable();
        tokens.dedup();
        tokens
    }

    /// Finds the character that made an encoding fail, if a character did.
    fn explain(&self, text: &str, problem: String) -> DataError {
        let mut buffer = [0; 4];
        // Each character is encoded alone, to see which of them fails.
        let unknown_character = text.chars().take(EXPLAINED).find(|c| {
            let fails_alone =
                guard(|| self.inner.encode_fast(&*c.encode_utf8(&mut buffer), false).is_err());
            fails_alone == Ok(true)
        });

        match unknown_character {
            Some(character) => {
                let text = text.chars().take(80).collect();
                DataError::Character { character, text }
            }
            None => DataError::Tokenizer { origin: of_text(text), problem },
        }
    }
}

impl Detokenizer for Tokenizer {
    /// Returns the text of `tokens`. Although a tokenizer may call a tag such as `<think>` special, a
    /// verifier has to see it, so only the tokens that begin, end or fill up a text are left out.
    fn detokenize(&self, tokens: &[TokenId]) -> String {
        let words = tokens.iter().copied().filter(|token| !self.wordless.contains(token));
        self.decode(&words.collect::<Vec<_>>(), false)
    }
}

/// How many characters are searched for the one that made an encoding fail.
const EXPLAINED: usize = 1 << 16;

/// Says which text an error is about.
fn of_text(text: &str) -> String {
    format!("encoding {:?}", text.chars().take(80).collect::<String>())
}

/// Returns the end tokens of a model or generation configuration, which names one number or a list.
fn eos_ids(config: &Map<String, Value>) -> Vec<TokenId> {
    let id = |value: &Value| value.as_u64().and_then(|id| TokenId::try_from(id).ok());
    match config.get("eos_token_id") {
        Some(Value::Array(list)) => list.iter().filter_map(id).collect(),
        Some(value) => id(value).into_iter().collect(),
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_tokenizer_is_loaded_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let made = Tokenizer::characters("0123456789+=").unwrap();
        made.save(folder.path()).unwrap();
        let loaded = Tokenizer::from_folder(folder.path()).unwrap();
        assert_eq!(loaded.encode("1+2=", false).unwrap(), [3, 12, 4, 13]);
        assert_eq!((loaded.pad(), loaded.eos(), loaded.bos(), loaded.len()), (0, 1, None, 14));
        assert_eq!(loaded.stop_tokens(), [1]);

        assert_eq!(loaded.detokenize(&[3, 12, 4, 13, 1, 0, 999]), "1+2=");
        assert_eq!(loaded.files, made.files);
    }

    /// Many published tokenizers make the tags of thoughts and tools special tokens.
    #[test]
    fn special_tokens_that_are_words_are_in_the_text() {
        let folder = tempfile::tempdir().unwrap();

        Tokenizer::characters("7x").unwrap().save(folder.path()).unwrap();
        let path = folder.path().join("tokenizer.json");
        let mut json: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let tags = ["<think>", "</think>", "<tool_call>", "####", "<|im_end|>", "<bos>"];
        for (index, tag) in tags.into_iter().enumerate() {
            json["added_tokens"].as_array_mut().unwrap().push(serde_json::json!({
                "id": 4 + index, "content": tag, "special": true,
                "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            }));
        }
        fs::write(&path, json.to_string()).unwrap();

        let config = folder.path().join("tokenizer_config.json");
        let mut json: Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
        json["bos_token"] = "<bos>".into();
        fs::write(&config, json.to_string()).unwrap();

        let tokenizer = Tokenizer::from_folder(folder.path()).unwrap();
        let text = "<bos><think>x</think>####7<tool_call><|im_end|>";
        let mut tokens = tokenizer.encode(text, false).unwrap();
        tokens.extend([tokenizer.eos(), tokenizer.pad(), 999]);
        let words = "<think>x</think>####7<tool_call>";
        assert_eq!(tokenizer.detokenize(&tokens), words);
        assert_eq!(tokenizer.decode(&tokens, true), "x7");

        // Streaming shows the same text that is judged.
        let mut streamer = tokenizer.streamer();
        let shown: String = tokens.iter().map(|&token| streamer.push(token)).collect();
        assert_eq!(shown + &streamer.finish(), words);
    }

    #[test]
    fn what_cannot_be_written_is_named() {
        let tokenizer = Tokenizer::characters("0123456789").unwrap();
        assert_eq!(
            tokenizer.encode("12 30", false).unwrap_err().to_string(),
            "the tokenizer has no token for ' ', in \"12 30\"; add the character to the \
             alphabet, or take it out of the text"
        );
        let problem = |alphabet| Tokenizer::characters(alphabet).err().unwrap().to_string();
        assert!(problem("abca").contains("\"a\" occurs twice"));
        assert!(problem("").contains("the alphabet is empty"));

        let folder = tempfile::tempdir().unwrap();
        let missing = Tokenizer::from_folder(folder.path()).err().unwrap().to_string();
        assert!(missing.contains("tokenizer.json: there is no such file"), "{missing}");
    }

    #[test]
    fn a_broken_tokenizer_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        Tokenizer::characters("abc").unwrap().save(folder.path()).unwrap();
        let path = folder.path().join("tokenizer.json");

        let whole = fs::read_to_string(&path).unwrap();
        for (good, bad) in [
            (
                "\"decoder\": {\n    \"type\": \"ByteLevel",
                "\"decoder\": {\n    \"type\": \"Confuse",
            ),
            ("BPE", "Wordy"),
            ("[\\\\s\\\\S]", "["),
            ("{", ""),
            // A growth that has no bound.
            (
                "\"normalizer\": null",
                "\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \"\"}, \"content\": \"z\"}",
            ),
        ] {
            assert!(whole.contains(good), "{good}");
            fs::write(&path, whole.replace(good, bad)).unwrap();
            let message = Tokenizer::from_folder(folder.path()).err().unwrap().to_string();
            assert!(message.contains("the tokenizer cannot be read"), "{message}");
        }
    }

    #[test]
    fn a_panic_of_the_library_is_an_error() {
        let length = serde_json::json!({"pre_tokenizer": {"type": "FixedLength", "length": 0}});
        let error = with(length).err().unwrap().to_string();
        assert!(error.contains("its parts contradict each other"), "{error}");
    }

    #[test]
    fn two_tokens_have_two_ids_and_texts_get_only_ids_of_tokens() {
        let vocab = serde_json::json!({"<pad>": 0, "<eos>": 1, "a": 2, "b": 2, "h": 3});
        let error = with(serde_json::json!({"model": {"vocab": vocab}})).err().unwrap().to_string();
        assert!(error.contains("have the id 2"), "{error}");

        let sequence = |id: &str| serde_json::json!({"Sequence": {"id": id, "type_id": 0}});
        let around = serde_json::json!({"post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "z", "type_id": 0}}, sequence("A")],
            "pair": [sequence("A"), sequence("B")],
            "special_tokens": {"z": {"id": "z", "ids": [4_000_000_000_u32], "tokens": ["z"]}},
        }});
        let error = with(around).err().unwrap().to_string();
        assert!(error.contains("it adds the id 4000000000 to texts"), "{error}");
    }

    /// Makes a character tokenizer, with some parts or some fields of its model replaced.
    fn with(parts: Value) -> Result<Tokenizer, DataError> {
        let folder = tempfile::tempdir().unwrap();
        Tokenizer::characters("abh ").unwrap().save(folder.path()).unwrap();
        let path = folder.path().join("tokenizer.json");
        let mut json: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();

        for (name, part) in parts.as_object().unwrap() {
            match json[name].as_object_mut().filter(|_| name == "model") {
                Some(fields) => fields.extend(part.as_object().unwrap().clone()),
                None => json[name] = part.clone(),
            }
        }

        fs::write(&path, json.to_string()).unwrap();
        Tokenizer::from_folder(folder.path())
    }

    #[test]
    fn what_no_seed_repeats_is_switched_off_and_said() {
        // Without a merge, dropout changes nothing.
        let merged = serde_json::json!({
            "dropout": 0.5, "merges": [["a", "b"]], "ignore_merges": false,
            "vocab": {"<pad>": 0, "<eos>": 1, "a": 2, "b": 3, "ab": 4},
        });

        let text = "ab".repeat(40);
        let whole = serde_json::json!({"model": merged, "pre_tokenizer": null});
        let tokenizer = with(whole).unwrap();
        assert_eq!(tokenizer.switched_off(), ["BPE dropout of 0.5, which no seed repeats"]);
        for _ in 0..4 {
            assert_eq!(tokenizer.encode(&text, false).unwrap(), [4; 40]);
        }

        // A saved tokenizer is the file that the run began with, and reads as that file did.
        let folder = tempfile::tempdir().unwrap();
        tokenizer.save(folder.path()).unwrap();
        let saved = fs::read(folder.path().join("tokenizer.json")).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&saved).unwrap()["model"]["dropout"], 0.5);
        let again = Tokenizer::from_folder(folder.path()).unwrap();
        assert_eq!(again.files, tokenizer.files);
        assert_eq!(again.switched_off(), tokenizer.switched_off());
        assert_eq!(again.encode(&text, false).unwrap(), [4; 40]);

        let padding = serde_json::json!({
            "strategy": {"Fixed": 1_000_000_000_u64}, "direction": "Right", "pad_to_multiple_of": null,
            "pad_id": 0, "pad_type_id": 0, "pad_token": "<pad>",
        });
        let truncation = serde_json::json!({
            "direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0,
        });
        let tokenizer =
            with(serde_json::json!({"padding": padding, "truncation": truncation})).unwrap();
        assert_eq!(tokenizer.switched_off(), ["padding", "truncation"]);
        assert_eq!(tokenizer.encode("ab", false).unwrap().len(), 2);

        assert_eq!(
            with(serde_json::json!({"model": {"dropout": 0.0}})).unwrap().switched_off().len(),
            0
        );
    }

    #[test]
    fn a_text_that_would_grow_beyond_memory_is_refused() {
        let normalizer = |times: usize, growth: usize| {
            let replace = serde_json::json!({
                "type": "Replace", "pattern": {"String": "h"}, "content": "h".repeat(growth),
            });
            with(serde_json::json!({
                "normalizer": {"type": "Sequence", "normalizers": vec![replace; times]},
            }))
        };

        let error = normalizer(3, 100).err().unwrap().to_string();
        assert!(
            error.contains("it may turn one byte into 3000000, expected at most 16384"),
            "{error}"
        );

        let tokenizer = normalizer(2, 10).unwrap();
        assert_eq!(tokenizer.encode("h", false).unwrap().len(), 100);
        let error = tokenizer.encode(&"h".repeat(1 << 20), false).unwrap_err().to_string();
        let expected = format!("has 1048576 bytes, expected at most {}, since", (8 << 20) / 300);
        assert!(error.contains(&expected), "{error}");
    }

    #[test]
    fn stop_tokens_start_with_the_tokenizers_own() {
        let folder = tempfile::tempdir().unwrap();
        Tokenizer::characters("abc").unwrap().save(folder.path()).unwrap();

        let stop = |file: &str, text: &str| {
            fs::write(folder.path().join(file), text).unwrap();
            Tokenizer::from_folder(folder.path()).unwrap().stop_tokens().to_vec()
        };

        assert_eq!(stop("config.json", r#"{"eos_token_id": 4}"#), [1]);
        assert_eq!(stop("generation_config.json", r#"{"eos_token_id": [3, 1, 2, 99]}"#), [1, 3, 2]);
        assert_eq!(stop("generation_config.json", "{}"), [1, 4]);
    }
}
