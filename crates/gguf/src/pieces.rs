//! Rules by which tokenizers of GGUF files cut texts into pieces.

use serde_json::{Value, json};

/// Rules by which a text is cut before its bytes are merged. These are the rules that the format has names
/// for, in the families that are read (`llama-vocab.cpp` of llama.cpp lists them all).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pieces {
    /// A piece is a word with the blank before it, a number, or a run of other characters.
    Gpt2,
    /// As `Gpt2`, and each digit is a piece by itself.
    SmolLm,
    /// A piece of a number has up to three digits.
    Llama3,
    /// As `Llama3`, although no piece is a token before it is merged.
    Dbrx,
    /// Each digit is a piece by itself.
    Qwen2,
    /// Each digit is a piece by itself, and marks are parts of words.
    Qwen35,
    /// Words are cut where small letters become large.
    Tekken,
    /// Words are cut where small letters become large, and end with an apostrophe and its letters. A piece of a number
    /// has up to three digits.
    Gpt4o,
}

/// Parts of a `tokenizer.json` around the model.
pub(crate) struct Steps {
    pub(crate) normalizer: Value,
    pub(crate) pre_tokenizer: Value,
    pub(crate) decoder: Value,
}

/// Names of the rules in the format. The first name of each is the one that is written.
const NAMES: [(&str, Pieces); 17] = [
    ("gpt-2", Pieces::Gpt2),
    ("gpt2", Pieces::Gpt2),
    ("olmo", Pieces::Gpt2),
    ("exaone4", Pieces::Gpt2),
    ("smollm", Pieces::SmolLm),
    ("llama-bpe", Pieces::Llama3),
    ("llama3", Pieces::Llama3),
    ("llama-v3", Pieces::Llama3),
    ("lfm2", Pieces::Llama3),
    ("dbrx", Pieces::Dbrx),
    ("smaug-bpe", Pieces::Dbrx),
    ("qwen2", Pieces::Qwen2),
    ("deepseek-r1-qwen", Pieces::Qwen2),
    ("qwen35", Pieces::Qwen35),
    ("tekken", Pieces::Tekken),
    ("gpt-4o", Pieces::Gpt4o),
    ("minimax-m2", Pieces::Gpt4o),
];

impl Pieces {
    const ALL: [Pieces; 8] = [
        Pieces::Gpt2,
        Pieces::SmolLm,
        Pieces::Llama3,
        Pieces::Dbrx,
        Pieces::Qwen2,
        Pieces::Qwen35,
        Pieces::Tekken,
        Pieces::Gpt4o,
    ];

    pub(crate) fn of(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, pieces)| *pieces)
    }

    /// Finds the rules of a `tokenizer.json` by its pre-tokenizer, and by whether pieces that are tokens are merged.
    pub(crate) fn of_steps(pre_tokenizer: &Value, whole_tokens: bool) -> Option<Self> {
        let actual = cuts(pre_tokenizer);
        Pieces::ALL.into_iter().find(|pieces| {
            pieces.whole_tokens() == whole_tokens && cuts(&pieces.steps().pre_tokenizer) == actual
        })
    }

    /// Returns the name of the rules in the format.
    pub(crate) fn name(self) -> &'static str {
        let known = NAMES.iter().find(|(_, pieces)| *pieces == self);
        known.map(|(name, _)| *name).expect("the list has all rules")
    }

    /// Lists the rules by their names.
    pub(crate) fn names() -> String {
        Pieces::ALL.map(Pieces::name).join(", ")
    }

    /// Tells whether a piece that is itself a token becomes that token, whatever the merges would make of it.
    pub(crate) fn whole_tokens(self) -> bool {
        matches!(self, Pieces::Llama3 | Pieces::Tekken)
    }

    /// Tells whether texts begin with a special token if the file is silent.
    pub(crate) fn begins(self) -> bool {
        matches!(self, Pieces::Llama3 | Pieces::Tekken)
    }

    pub(crate) fn steps(self) -> Steps {
        const WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+";
        const REST: &str = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
        const CASES: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
        const MARKS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
        const ENDINGS: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

        // GPT-2's rules are part of this step, which applies them if `words` is true.
        let bytes = |words: bool| {
            json!({
                "type": "ByteLevel",
                "add_prefix_space": false,
                "trim_offsets": true,
                "use_regex": words,
            })
        };
        let split = |pattern: &str| {
            json!({
                "type": "Split",
                "pattern": { "Regex": pattern },
                "behavior": "Isolated",
                "invert": false,
            })
        };

        let steps = match self {
            Pieces::Gpt2 => vec![bytes(true)],
            Pieces::SmolLm => {
                vec![json!({ "type": "Digits", "individual_digits": true }), bytes(true)]
            }
            Pieces::Llama3 | Pieces::Dbrx => {
                vec![split(&format!(r"{WORDS}|\p{{N}}{{1,3}}|{REST}")), bytes(false)]
            }
            Pieces::Qwen2 => vec![split(&format!(r"{WORDS}|\p{{N}}|{REST}")), bytes(false)],
            Pieces::Qwen35 => vec![split(MARKS), bytes(false)],
            Pieces::Tekken => vec![split(CASES), bytes(false)],
            Pieces::Gpt4o => vec![split(ENDINGS), bytes(false)],
        };

        Steps {
            normalizer: match self {
                Pieces::Qwen2 | Pieces::Qwen35 => json!({ "type": "NFC" }),
                _ => Value::Null,
            },
            pre_tokenizer: json!({ "type": "Sequence", "pretokenizers": steps }),
            decoder: bytes(true),
        }
    }
}

/// Returns the steps of a pre-tokenizer, each with all that decides where it cuts, and with what a silent file means.
fn cuts(pre_tokenizer: &Value) -> Vec<Value> {
    let steps = match pre_tokenizer["pretokenizers"].as_array() {
        Some(steps) => steps.clone(),
        None => vec![pre_tokenizer.clone()],
    };

    let cut = |step: Value| match step["type"].as_str() {
        Some("ByteLevel") => json!([
            step.get("add_prefix_space").unwrap_or(&Value::Bool(true)),
            step.get("use_regex").unwrap_or(&Value::Bool(true)),
        ]),
        _ => step,
    };
    steps.into_iter().map(cut).collect()
}
