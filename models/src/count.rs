//! How many parameters a decoder has, from its sizes alone.

use crate::DecoderConfig;

/// Numbers of parameters, before any of them is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterCount {
    /// All of them.
    pub total: u64,
    /// Those of the embedding, and of the head where it is not the embedding.
    pub embedding: u64,
    /// Those of one layer.
    pub layer: u64,
    /// Those of the largest single parameter.
    pub largest: u64,
    /// Those of the largest parameter of a layer.
    pub largest_in_layer: u64,
}

impl DecoderConfig {
    /// Counts the parameters of a decoder of these sizes, as it holds them: q, k and v are one
    /// parameter, and so are the MLP's gate and up.
    pub fn parameters(&self) -> ParameterCount {
        let size = |rows: usize, columns: usize| rows as u64 * columns as u64;
        let hidden = self.hidden_size;
        let qkv_width = self.query_width() + 2 * self.key_width();
        let qkv_bias = if self.qkv_bias { qkv_width as u64 } else { 0 };
        let matrices = [
            size(hidden, qkv_width),
            size(self.query_width(), hidden),
            size(hidden, 2 * self.intermediate_size),
            size(self.intermediate_size, hidden),
        ];
        let layer = matrices.iter().sum::<u64>() + qkv_bias + 2 * hidden as u64;
        let lookup = size(self.vocab_size, hidden);
        let embedding = if self.tied { lookup } else { 2 * lookup };
        let largest_in_layer = matrices.into_iter().max().unwrap_or(0);
        ParameterCount {
            total: embedding + self.layers as u64 * layer + hidden as u64,
            embedding,
            layer,
            largest: lookup.max(largest_in_layer),
            largest_in_layer,
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use firebrick_core::Seed;

    use super::*;
    use crate::{Family, parameters, random};

    #[test]
    fn counts_are_those_of_a_decoder() {
        let config = DecoderConfig {
            family: Family::Qwen2,
            vocab_size: 11,
            hidden_size: 12,
            layers: 3,
            heads: 3,
            kv_heads: 1,
            head_dim: 6,
            intermediate_size: 7,
            max_position_embeddings: 32,
            rope_theta: 10_000.0,
            norm_epsilon: 1e-6,
            tied: true,
            qkv_bias: true,
        };
        let variants = [
            config.clone(),
            DecoderConfig { tied: false, vocab_size: 40, ..config.clone() },
            DecoderConfig { qkv_bias: false, layers: 1, ..config },
        ];
        for config in variants {
            let decoder = random(&config, Seed::run(1), &Device::flex()).unwrap();
            let sizes: Vec<(String, u64)> = parameters(&decoder)
                .iter()
                .map(|found| (found.path.clone(), found.shape.iter().product::<usize>() as u64))
                .collect();
            let sum = |wanted: &dyn Fn(&str) -> bool| -> u64 {
                sizes.iter().filter(|(path, _)| wanted(path)).map(|(_, size)| size).sum()
            };
            let most = |wanted: &dyn Fn(&str) -> bool| -> u64 {
                let sizes = sizes.iter().filter(|(path, _)| wanted(path)).map(|(_, size)| *size);
                sizes.max().unwrap()
            };
            let in_layer = |path: &str| path.starts_with("layers.");
            let expected = ParameterCount {
                total: sum(&|_| true),
                embedding: sum(&|path| matches!(path, "embedding" | "head")),
                layer: sum(&|path| path.starts_with("layers.0.")),
                largest: most(&|_| true),
                largest_in_layer: most(&in_layer),
            };
            assert_eq!(config.parameters(), expected, "{config:?}");
        }
    }
}
