//! Makes the files of a tokenizer and its chat template from the metadata.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    fs,
    path::PathBuf,
};

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::{
    Gguf, GgufError,
    error::quoted,
    pieces::{Pieces, Steps},
};

/// Files that hold a tokenizer and a template.
const FILES: [&str; 4] =
    ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"];

/// Tokens that end a text or a turn, whatever kind a file gives them.
pub(crate) const ENDS: [&str; 16] = [
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<turn|>",
    "<|tool_response>",
    "<eos>",
    "<end_of_utterance>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
];

/// Key of the tokens.
pub(crate) const TOKENS_KEY: &str = "tokenizer.ggml.tokens";

/// Limit on tokens. The largest vocabularies have some 260,000.
const TOKENS: usize = 1 << 19;

/// Limit on the pairs that are merged. A vocabulary of scores can have far more ways to make its tokens than tokens.
const MERGES: usize = 1 << 20;

/// Limit on a token that may be made of two others, in bytes. Only runs of blanks are longer in any vocabulary.
const MERGED: usize = 512;

/// Limit on the tokens that are made of others, in bytes, counted once for each way. Each way is written out.
const WRITTEN: usize = 64 << 20;

/// Limit on a file next to this one, in bytes.
const NEIGHBOUR: u64 = 256 << 20;

/// Kinds of tokens, as the format numbers them.
pub(crate) mod kind {
    pub(crate) const NORMAL: u64 = 1;
    pub(crate) const UNKNOWN: u64 = 2;
    pub(crate) const CONTROL: u64 = 3;
    pub(crate) const USER_DEFINED: u64 = 4;
    pub(crate) const UNUSED: u64 = 5;
    pub(crate) const BYTE: u64 = 6;
}

impl Gguf {
    /// Makes a file of the folder that the same model would have: `config.json`, `generation_config.json`,
    /// `tokenizer.json`, `tokenizer_config.json` and, if there is a template, `chat_template.jinja`. Returns
    /// `None` for any other name.
    ///
    /// If the GGUF file does not say enough about its tokenizer, the tokenizer's files are taken from the folder that
    /// the GGUF file is in.
    ///
    /// # Errors
    /// Fails if the file can't be read or is of no model that is known here.
    pub fn file(&self, name: &str) -> Result<Option<Vec<u8>>, GgufError> {
        match name {
            "config.json" => return Ok(Some(written(&self.config()?))),
            "generation_config.json" => return Ok(Some(written(&self.generation_config()?))),
            name if !FILES.contains(&name) => return Ok(None),
            _ => {}
        }

        // Where the rules are not known, the original model's files next to this one serve as well.
        let rules = match self.rules()? {
            Ok(rules) => rules,
            Err(why) => match self.neighbour(name, &why)? {
                None if name == "chat_template.jinja" && !self.neighbour_has_template(&why)? => {
                    return self.template();
                }
                neighbour => return Ok(neighbour),
            },
        };

        Ok(match name {
            "tokenizer.json" => Some(self.tokenizer(rules)?),
            "tokenizer_config.json" => Some(written(&self.tokenizer_config()?)),
            "chat_template.jinja" => self.template()?,
            _ => None,
        })
    }

    /// Tells whether the tokenizer's configuration in the folder has a template, which replaces the file's.
    fn neighbour_has_template(&self, why: &str) -> Result<bool, GgufError> {
        let config = self.neighbour("tokenizer_config.json", why)?.unwrap_or_default();
        // If it is broken, whoever reads the configuration next says so.
        let config = config.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&config);
        let config: Value = serde_json::from_slice(config).unwrap_or_default();
        Ok(config.get("chat_template").is_some())
    }

    fn template(&self) -> Result<Option<Vec<u8>>, GgufError> {
        let template = self.metadata().text("tokenizer.chat_template");
        let template = template.map_err(|problem| self.model(problem))?;
        Ok(template.map(|text| text.as_bytes().to_owned()))
    }

    /// Finds the rules by which texts become tokens. If they are not known, the inner error says why.
    fn rules(&self) -> Result<Result<Rules, String>, GgufError> {
        let text = |key| self.metadata().text(key).map_err(|problem| self.model(problem));
        let has = |key| self.metadata().get(key).is_some();
        let Some(model) = text("tokenizer.ggml.model")?.filter(|_| has(TOKENS_KEY)) else {
            return Ok(Err("it holds no tokenizer".into()));
        };

        Ok(match (model, text("tokenizer.ggml.pre")?) {
            ("llama", _) if has("tokenizer.ggml.scores") => Ok(Rules::Scores),
            ("gpt2", Some(pre)) if has("tokenizer.ggml.merges") => match Pieces::of(pre) {
                Some(pieces) => Ok(Rules::Merges(pieces)),
                None => Err(format!(
                    "its tokenizer cuts texts by the rules {}, which are not known",
                    quoted(pre)
                )),
            },
            ("gpt2", None) => Err("it does not say by which rules its tokenizer cuts texts".into()),
            ("llama", _) => Err("its tokenizer is of the kind llama, and has no scores".into()),
            ("gpt2", _) => Err("its tokenizer is of the kind gpt2, and has no merges".into()),
            (other, _) => Err(format!(
                "its tokenizer is of the kind {}, expected gpt2 or llama",
                quoted(other)
            )),
        })
    }

    /// Reads a file in the folder that this file is in.
    fn neighbour(&self, name: &str, why: &str) -> Result<Option<Vec<u8>>, GgufError> {
        let folder = self.path().parent().map(PathBuf::from).unwrap_or_default();
        let path = folder.join(name);
        let exists = path.is_file();

        if !exists && name == "tokenizer.json" {
            return Err(self.model(format!(
                "{why}: put tokenizer.json and tokenizer_config.json of the original model next to it"
            )));
        }
        if !exists {
            return Ok(None);
        }

        let unreadable = |source| GgufError::Read { path: path.clone(), source };
        if fs::metadata(&path).map_err(unreadable)?.len() > NEIGHBOUR {
            return Err(self.model(format!("{name} next to it has more than {NEIGHBOUR} bytes")));
        }
        fs::read(&path).map(Some).map_err(unreadable)
    }

    /// Makes `tokenizer.json`.
    fn tokenizer(&self, rules: Rules) -> Result<Vec<u8>, GgufError> {
        let tokens = self.texts(TOKENS_KEY)?;
        if tokens.is_empty() || tokens.len() > TOKENS {
            let count = tokens.len();
            return Err(self.model(format!("it has {count} tokens, expected 1 to {TOKENS}")));
        }

        let kinds = self.kinds(tokens.len())?;
        let mut ids = HashMap::new();
        let mut added_tokens = Vec::new();
        for (id, (token, &kind)) in tokens.iter().zip(&kinds).enumerate() {
            // A folder leaves out the tokens that only fill up the vocabulary.
            if kind == kind::UNUSED {
                continue;
            }
            if ids.insert(token.as_str(), id as u32).is_some() {
                return Err(self.model(format!("the token {} occurs twice", quoted(token))));
            }
            // A token that ends a text or a turn is special, even if the file calls it normal.
            let special =
                matches!(kind, kind::CONTROL | kind::UNKNOWN) || ENDS.contains(&token.as_str());
            if special || kind == kind::USER_DEFINED {
                added_tokens.push(Added::new(id, token, special));
            }
        }

        let unknown_token =
            self.token("unknown")?.and_then(|id| tokens.get(usize::try_from(id).ok()?));
        let of_scores = matches!(rules, Rules::Scores);
        let (pairs, steps, whole_tokens) = match rules {
            Rules::Merges(pieces) => (self.merges(&ids)?, pieces.steps(), pieces.whole_tokens()),
            Rules::Scores => {
                (self.merges_of_scores(&tokens, &kinds, &ids)?, self.steps_of_blanks()?, false)
            }
        };

        let file = File {
            version: "1.0",
            added_tokens,
            normalizer: steps.normalizer,
            pre_tokenizer: steps.pre_tokenizer,
            post_processor: self.around(rules, &tokens)?,
            decoder: steps.decoder,
            model: Model {
                kind: "BPE",
                unk_token: unknown_token.filter(|_| of_scores),
                fuse_unk: of_scores,
                byte_fallback: of_scores,
                ignore_merges: whole_tokens,
                // The vocabulary keeps the order of ids. A map by name would lose it.
                vocab: tokens.iter().zip(&kinds).enumerate().collect(),
                merges: Merges { tokens: &tokens, pairs },
            },
        };
        Ok(written(&file))
    }

    /// Reads the kind of each token.
    fn kinds(&self, count: usize) -> Result<Vec<u64>, GgufError> {
        const KEY: &str = "tokenizer.ggml.token_type";
        let Some(kinds) = self.numbers(KEY)? else { return Ok(vec![kind::NORMAL; count]) };
        if kinds.len() != count {
            let actual = kinds.len();
            return Err(self.model(format!("{KEY} has {actual} elements, for {count} tokens")));
        }
        Ok(kinds.into_iter().map(|kind| kind as u64).collect())
    }

    /// Reads the pairs of tokens that are merged, in their order.
    fn merges(&self, ids: &HashMap<&str, u32>) -> Result<Vec<[u32; 2]>, GgufError> {
        let pair = |merge: &str| {
            // Neither part is empty, and a blank may be the first character.
            let first = merge.chars().next()?.len_utf8();
            let blank = first + merge[first..].find(' ')?;
            let left = &merge[..blank];
            let right = &merge[blank + 1..];
            ids.get([left, right].concat().as_str()).filter(|_| !right.is_empty())?;
            Some([*ids.get(left)?, *ids.get(right)?])
        };

        let mut pairs = Vec::new();
        self.each_text("tokenizer.ggml.merges", |merge| {
            let none = || format!("the merge {} makes no token of two tokens", quoted(&merge));
            pairs.push(pair(&merge).ok_or_else(|| self.model(none()))?);
            Ok(())
        })?;
        Ok(pairs)
    }

    /// Makes the merges of a vocabulary that has a score for each token: all ways to make a token of two others, the
    /// best token first, in the order of `transformers`.
    fn merges_of_scores(
        &self,
        tokens: &[String],
        kinds: &[u64],
        ids: &HashMap<&str, u32>,
    ) -> Result<Vec<[u32; 2]>, GgufError> {
        const KEY: &str = "tokenizer.ggml.scores";
        let scores = self.numbers(KEY)?.unwrap_or_default();
        if scores.len() != tokens.len() {
            let actual = scores.len();
            let count = tokens.len();
            return Err(self.model(format!("{KEY} has {actual} elements, for {count} tokens")));
        }

        let mut merges = Vec::new();
        let mut written_bytes = 0;
        for (id, (token, &kind)) in tokens.iter().zip(kinds).enumerate() {
            if kind != kind::NORMAL || token.len() > MERGED {
                continue;
            }

            let first_merge = merges.len();
            for (at, _) in token.char_indices().skip(1) {
                let (left, right) = token.split_at(at);
                // A merge needs both of its parts as tokens.
                if let (Some(&left), Some(&right)) = (ids.get(left), ids.get(right)) {
                    merges.push((id as u32, [left, right]));
                }
            }

            written_bytes += (merges.len() - first_merge) * token.len();
            if merges.len() > MERGES || written_bytes > WRITTEN {
                return Err(self.model(if merges.len() > MERGES {
                    format!("its tokens can be made of each other in more than {MERGES} ways")
                } else {
                    format!(
                        "the ways to make its tokens of each other take more than {WRITTEN} bytes"
                    )
                }));
            }
            // Ways of one token are in the order of their ids, as in `transformers`.
            merges[first_merge..].sort_unstable_by_key(|&(_, pair)| pair);
        }

        let lengths: Vec<_> = tokens.iter().map(|token| Reverse(token.chars().count())).collect();
        merges.sort_by(|&(one, [left, right]), &(two, [other_left, other_right])| {
            let lengths = |left: u32, right: u32| (lengths[left as usize], lengths[right as usize]);
            let best = scores[two as usize].total_cmp(&scores[one as usize]);
            best.then_with(|| lengths(left, right).cmp(&lengths(other_left, other_right)))
        });

        Ok(merges.into_iter().map(|(_, pair)| pair).collect())
    }

    /// Returns the steps for texts whose blanks are written as `▁`. A text gets a `▁` in front unless the file forbids
    /// it.
    fn steps_of_blanks(&self) -> Result<Steps, GgufError> {
        // The blank in front of a text is added before encoding, and removed after decoding.
        let adds_prefix = self.metadata().flag("tokenizer.ggml.add_space_prefix");
        let adds_prefix = adds_prefix.map_err(|problem| self.model(problem))?.unwrap_or(true);
        let replace = |from: &str, to: &str| json!({ "type": "Replace", "pattern": { "String": from }, "content": to });

        let mut normalizers = vec![replace(" ", "▁")];
        let mut decoders =
            vec![replace("▁", " "), json!({ "type": "ByteFallback" }), json!({ "type": "Fuse" })];

        if adds_prefix {
            normalizers.insert(0, json!({ "type": "Prepend", "prepend": "▁" }));
            decoders.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
        }

        Ok(Steps {
            normalizer: json!({ "type": "Sequence", "normalizers": normalizers }),
            pre_tokenizer: Value::Null,
            decoder: json!({ "type": "Sequence", "decoders": decoders }),
        })
    }

    /// Makes the step that puts the beginning and the end token around every text. The file says which of the two
    /// are added. If it is silent, the rules decide.
    fn around(&self, rules: Rules, tokens: &[String]) -> Result<Value, GgufError> {
        let adds = |key: &str, default: bool| {
            let flag = self.metadata().flag(&format!("tokenizer.ggml.add_{key}_token"));
            flag.map_err(|problem| self.model(problem)).map(|flag| flag.unwrap_or(default))
        };

        let begins = match rules {
            Rules::Scores => true,
            Rules::Merges(pieces) => pieces.begins(),
        };

        let text = json!({ "Sequence": { "id": "A", "type_id": 0 } });
        let mut single = vec![text];
        let mut special = BTreeMap::new();
        for (name, default) in [("bos", begins), ("eos", false)] {
            let adds = adds(name, default)?;
            let id = self.token(name)?.filter(|&id| adds && (id as usize) < tokens.len());
            if let Some(id) = id {
                // The beginning goes in front of the text, the end after it.
                let token = &tokens[id as usize];
                let index = if name == "bos" { 0 } else { single.len() };
                single.insert(index, json!({ "SpecialToken": { "id": token, "type_id": 0 } }));
                special.insert(token, json!({ "id": token, "ids": [id], "tokens": [token] }));
            }
        }

        let second = json!({ "Sequence": { "id": "B", "type_id": 1 } });
        let pair: Vec<Value> = single.iter().cloned().chain([second]).collect();
        Ok(json!({
            "type": "TemplateProcessing",
            "single": single,
            "pair": pair,
            "special_tokens": special,
        }))
    }

    fn tokenizer_config(&self) -> Result<Value, GgufError> {
        let tokens = self.texts(TOKENS_KEY)?;
        let mut config = json!({
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": false,
        });

        for (field, name) in [
            ("bos_token", "bos"),
            ("eos_token", "eos"),
            ("unk_token", "unknown"),
            ("pad_token", "pad"),
        ] {
            let token = self.token(name)?.and_then(|id| tokens.get(usize::try_from(id).ok()?));
            if let Some(token) = token {
                config[field] = token.clone().into();
            }
        }

        Ok(config)
    }
}

/// Rules by which texts become tokens.
#[derive(Clone, Copy)]
enum Rules {
    /// A text is cut into pieces, and then pairs of tokens are merged.
    Merges(Pieces),
    /// Scores of tokens decide.
    Scores,
}

/// `tokenizer.json`, as the crate tokenizers reads it.
#[derive(Serialize)]
struct File<'a> {
    version: &'static str,
    added_tokens: Vec<Added<'a>>,
    normalizer: Value,
    pre_tokenizer: Value,
    post_processor: Value,
    decoder: Value,
    model: Model<'a>,
}

/// A model of merges.
#[derive(Serialize)]
struct Model<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    /// Token for text that bytes can't write, if bytes are tokens too.
    unk_token: Option<&'a String>,
    fuse_unk: bool,
    byte_fallback: bool,
    ignore_merges: bool,
    vocab: Vocab<'a>,
    merges: Merges<'a>,
}

/// A token that is found in a text before the text is cut.
#[derive(Serialize)]
struct Added<'a> {
    id: usize,
    content: &'a str,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
    normalized: bool,
    special: bool,
}

impl<'a> Added<'a> {
    fn new(id: usize, content: &'a str, special: bool) -> Self {
        let no = false;
        Added { id, content, single_word: no, lstrip: no, rstrip: no, normalized: no, special }
    }
}

/// Tokens and their ids, written as an object.
struct Vocab<'a>(Vec<(&'a str, usize)>);

impl<'a> FromIterator<(usize, (&'a String, &'a u64))> for Vocab<'a> {
    fn from_iter<T: IntoIterator<Item = (usize, (&'a String, &'a u64))>>(tokens: T) -> Self {
        let used = tokens.into_iter().filter(|(_, (_, kind))| **kind != kind::UNUSED);
        Vocab(used.map(|(id, (token, _))| (token.as_str(), id)).collect())
    }
}

impl Serialize for Vocab<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

/// Pairs of tokens by their ids, written as their texts.
struct Merges<'a> {
    tokens: &'a [String],
    pairs: Vec<[u32; 2]>,
}

impl Serialize for Merges<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = |id: u32| &self.tokens[id as usize];
        serializer.collect_seq(self.pairs.iter().map(|&[left, right]| [text(left), text(right)]))
    }
}

fn written(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("keys are texts, and a vector takes all bytes")
}
