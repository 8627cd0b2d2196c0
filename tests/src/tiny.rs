//! A random model small enough for tests of everything around it.

use std::sync::Arc;

use burn::tensor::Device;
use firebrick_core::{Detokenizer, Prompt, Seed, TokenId};
use firebrick_models::{Decoder, DecoderConfig, Family, Sizes, random};
use firebrick_rollout::{GroupRequest, Sampling};

/// Number of tokens of [`policy`].
pub const VOCABULARY: usize = 61;

/// Makes a decoder of two layers with four heads on two key-value heads.
///
/// A new head makes all tokens nearly equally likely, so that the context hardly shows. At a temperature of
/// 0.05, likelihoods spread over some orders of magnitude.
///
/// # Panics
/// Never: the sizes fit together.
pub fn policy(seed: u64, device: &Device) -> Decoder {
    of_layers(2, seed, device)
}

/// Makes the decoder of [`policy`] with one layer.
///
/// # Panics
/// Never: the sizes fit together.
pub fn shallow(seed: u64, device: &Device) -> Decoder {
    of_layers(1, seed, device)
}

fn of_layers(layers: usize, seed: u64, device: &Device) -> Decoder {
    let config = DecoderConfig::new(Family::Qwen2, sizes(layers));
    random(&config, Seed::run(seed), device).expect("the sizes fit together")
}

/// Returns the sizes of [`policy`], but for the number of layers.
pub fn sizes(layers: usize) -> Sizes {
    Sizes {
        vocab_size: VOCABULARY,
        hidden_size: 32,
        layers,
        heads: 4,
        kv_heads: 2,
        head_dim: 8,
        intermediate_size: 48,
        max_position_embeddings: 512,
        rope_theta: 10000.0,
        tied: false,
    }
}

/// Writes each token as its number.
pub fn numbers() -> Arc<dyn Detokenizer> {
    struct Numbers;
    impl Detokenizer for Numbers {
        fn detokenize(&self, tokens: &[TokenId]) -> String {
            tokens.iter().map(TokenId::to_string).collect::<Vec<_>>().join(" ")
        }
    }
    Arc::new(Numbers)
}

/// Asks for completions of prompt `id`, whose tokens follow from the id. They are the likeliest ones, unless a
/// test changes the request's sampling.
pub fn request(id: u64, length: usize, group_size: usize) -> GroupRequest {
    let mut stream = Seed::run(id).derive("prompt", &[]).stream();
    let token = |position| (stream.uniform_at(position) * VOCABULARY as f64) as TokenId;
    let tokens = (0..length as u64).map(token).collect();
    let prompt = Prompt { id, tokens, ..Prompt::default() };
    let sampling = Arc::new(Sampling::greedy(16, Vec::new()));
    GroupRequest { id, prompt, draw: 1000 + id, step: 0, group_size, sampling, seed: Seed::run(9) }
}
