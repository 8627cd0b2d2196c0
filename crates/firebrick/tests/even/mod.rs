//! A task that takes no file: a tiny model, sums to complete, and a verifier that counts letters.

use burn::tensor::Device;
use firebrick::{
    Completion, Prompt, Score, Seed, Verifier,
    data::Tokenizer,
    models::{Decoder, DecoderConfig, Family, Sizes, random},
};

pub(crate) const LETTERS: &str = "0123456789+=;";

/// A verifier for which an even number of characters is right.
pub(crate) struct Even;

impl Verifier for Even {
    fn score(&self, _: &Prompt, completion: &Completion) -> Score {
        let length = completion.text.chars().count();
        if length.is_multiple_of(2) { Score::right("") } else { Score::wrong("") }
    }
}

pub(crate) fn prompts(tokenizer: &Tokenizer, count: u64) -> Vec<Prompt> {
    let prompt = |id: u64| {
        let text = format!("{}+{}=", id % 7, id % 5);
        let tokens = tokenizer.encode(&text, false).unwrap();
        Prompt { id, tokens, text, ..Prompt::default() }
    };
    (0..count).map(prompt).collect()
}

pub(crate) fn policy(tokenizer: &Tokenizer, device: &Device) -> Decoder {
    let sizes = Sizes {
        vocab_size: tokenizer.rows(),
        hidden_size: 16,
        layers: 2,
        heads: 2,
        kv_heads: 2,
        head_dim: 8,
        intermediate_size: 32,
        max_position_embeddings: 64,
        rope_theta: 10_000.0,
        tied: true,
    };
    random(&DecoderConfig::new(Family::Qwen2, sizes), Seed::run(5), device).unwrap()
}
