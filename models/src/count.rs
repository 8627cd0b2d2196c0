//! How many parameters a decoder has, from its sizes alone.

use crate::{DecoderConfig, Lora, names};

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
        let (qkv_width, inner) =
            (self.query_width() + 2 * self.key_width(), self.intermediate_size);
        let when = |there: bool, count: usize| if there { count as u64 } else { 0 };
        let norms = usize::from(self.norms.before()) + usize::from(self.norms.behind());
        let vectors = (2 * norms * hidden) as u64
            + when(self.biases.qkv, qkv_width)
            + when(self.biases.output, hidden)
            + when(self.biases.mlp, 2 * inner + hidden)
            + self.look_norms().iter().sum::<usize>() as u64;
        let matrices = [
            size(hidden, qkv_width),
            size(self.query_width(), hidden),
            size(hidden, 2 * inner),
            size(inner, hidden),
        ];
        let layer = matrices.iter().sum::<u64>() + vectors;
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

    /// Counts the parameters of such adapters in one layer, and the largest of them: of a projection
    /// from `inputs` to `outputs` they have `rank · (inputs + outputs)`.
    pub fn adapter_parameters(&self, lora: &Lora) -> (u64, u64) {
        let lora = &lora.clone().named_in(self);
        let sides = |path: &str, inputs: usize| {
            let wanted = |(name, _): &(&str, usize)| {
                lora.targets.iter().any(|target| name.ends_with(&format!(".{target}")))
            };
            let parts = names::projections(path, self).into_iter().filter(wanted);
            parts.map(|(_, outputs)| [inputs, outputs]).collect::<Vec<_>>()
        };
        let all = [
            sides("attention.qkv", self.hidden_size),
            sides("attention.output", self.query_width()),
            sides("gate_up", self.hidden_size),
            sides("down", self.intermediate_size),
        ]
        .concat();
        let sizes = all.into_iter().flatten().map(|side| side as u64 * lora.rank as u64);
        (sizes.clone().sum(), sizes.max().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use firebrick_core::Seed;

    use super::*;
    use crate::{Biases, Family, Sizes, parameters, random};

    #[test]
    fn counts_are_those_of_a_decoder() {
        let sizes = Sizes {
            vocab_size: 11,
            hidden_size: 12,
            layers: 3,
            heads: 3,
            kv_heads: 1,
            head_dim: 6,
            intermediate_size: 7,
            max_position_embeddings: 32,
            rope_theta: 10_000.0,
            tied: true,
        };
        let config = DecoderConfig::new(Family::Qwen2, sizes.clone());
        let variants = [
            DecoderConfig { tied: false, vocab_size: 40, ..config.clone() },
            DecoderConfig { biases: Biases { qkv: false, output: true, mlp: true }, ..config },
        ];
        let families = Family::ALL.map(|family| DecoderConfig::new(family, sizes.clone()));
        let lora = Lora {
            rank: 2,
            alpha: 4.0,
            targets: ["k_proj", "o_proj", "down_proj"].map(String::from).to_vec(),
            rslora: false,
        };
        let variants: Vec<_> = variants.into_iter().chain(families).collect();
        for config in &variants {
            let decoder = random(config, Seed::run(1), &Device::flex()).unwrap();
            let adapted = parameters(&decoder.with_lora(lora.clone(), Seed::run(1))).into_iter();
            let adapters: Vec<u64> = adapted
                .filter(|found| found.path.contains("layers.0.") && found.path.contains("adapters"))
                .map(|found| found.shape.iter().product::<usize>() as u64)
                .collect();
            let expected = (adapters.iter().sum(), *adapters.iter().max().unwrap());
            assert_eq!(config.adapter_parameters(&lora), expected, "{config:?}");
        }
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
