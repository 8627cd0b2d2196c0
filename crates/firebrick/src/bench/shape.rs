//! Models of the bench, with the operations and bytes that each phase takes at least.

use firebrick_models::{Compute, DecoderConfig, Family, FrozenFormat, Lora, Sizes as Widths};

use super::{Phase, Sizes};

/// A model to measure with.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// Name of the shape.
    pub name: String,
    /// Sizes of the model.
    pub config: DecoderConfig,
    /// Number of rows in a micro-batch of the update.
    pub micro_batch_rows: usize,
    /// Rank of adapters on all projections, which are then trained alone; 0 trains all weights.
    pub lora_rank: usize,
    /// Format of the weights. Other than f32 they are frozen, so that only adapters can be trained.
    pub base: FrozenFormat,
}

impl Shape {
    /// Returns the built-in shapes: some 1, 10 and 50 million parameters, and those of SmolLM2-135M,
    /// Qwen2.5-0.5B and -1.5B.
    pub fn built_in() -> Vec<Shape> {
        let shape = |name: &str, micro_batch_rows, family, widths| Shape {
            name: name.into(),
            config: DecoderConfig::new(family, widths),
            micro_batch_rows,
            lora_rank: 0,
            base: FrozenFormat::F32,
        };

        let small = |vocab_size, hidden_size, layers, heads, intermediate_size| Widths {
            vocab_size,
            hidden_size,
            layers,
            heads,
            kv_heads: 2,
            head_dim: hidden_size / heads,
            intermediate_size,
            max_position_embeddings: 2048,
            rope_theta: 1e6,
            tied: true,
        };

        let smollm2 = Widths {
            vocab_size: 49_152,
            hidden_size: 576,
            layers: 30,
            heads: 9,
            kv_heads: 3,
            head_dim: 64,
            intermediate_size: 1536,
            max_position_embeddings: 8192,
            rope_theta: 1e5,
            tied: true,
        };

        let qwen = |hidden_size, layers, heads, head_dim, intermediate_size| Widths {
            vocab_size: 151_936,
            hidden_size,
            layers,
            heads,
            kv_heads: 2,
            head_dim,
            intermediate_size,
            max_position_embeddings: 32_768,
            rope_theta: 1e6,
            tied: true,
        };

        vec![
            shape("1m", 16, Family::Qwen2, small(1024, 128, 4, 4, 448)),
            shape("10m", 16, Family::Qwen2, small(1024, 384, 6, 6, 1024)),
            shape("50m", 8, Family::Qwen2, small(32_768, 512, 12, 8, 1408)),
            shape("smollm2-135m", 8, Family::Llama, smollm2),
            shape("qwen2.5-0.5b", 8, Family::Qwen2, qwen(896, 24, 14, 64, 4864)),
            shape("qwen2.5-1.5b", 4, Family::Qwen2, qwen(1536, 28, 12, 128, 8960)),
        ]
    }

    /// Returns the inputs and outputs of the matrices that a token goes through: those of a layer with attention, and
    /// the head.
    pub(super) fn matrices(&self) -> [[usize; 2]; 5] {
        let config = &self.config;
        let of_heads = config.heads * config.head_dim;
        let across = of_heads + 2 * config.kv_heads * config.head_dim;
        let hidden = config.hidden_size;
        [
            [hidden, across],
            [of_heads, hidden],
            [hidden, 2 * config.intermediate_size],
            [config.intermediate_size, hidden],
            [hidden, config.vocab_size],
        ]
    }

    /// Returns adapters on all projections.
    pub(super) fn lora(&self) -> Lora {
        Lora {
            rank: self.lora_rank,
            alpha: 2.0 * self.lora_rank as f64,
            targets: Lora::PROJECTIONS.map(str::to_owned).to_vec(),
            ..Lora::default()
        }
    }

    /// Returns the floating-point operations of a run, and if it decodes also the bytes that it has to read.
    /// Without a model that computes, or if the costs are not known beforehand, it is `None`.
    pub(super) fn costs(
        &self,
        phase: Phase,
        sizes: Sizes,
        compute: Compute,
    ) -> Option<(f64, Option<f64>)> {
        let width_of_number = if compute == Compute::F32 { 4.0 } else { 2.0 };
        // Groups of codes have a scale in 16 bits.
        let [of_layers, of_head] = match self.base {
            FrozenFormat::F32 => [width_of_number; 2],
            FrozenFormat::Bf16 => [2.0; 2],
            FrozenFormat::Int8 => [8.5 / 8.0, 2.0],
            FrozenFormat::Int4 => [4.5 / 8.0, 2.0],
        };
        let config = &self.config;
        let rows = sizes.rows as f64;
        let prompt = sizes.prompt as f64;
        let completion = sizes.completion as f64;

        let head = (config.vocab_size * config.hidden_size) as f64;
        let count = config.parameters();
        // Only the experts that a token is routed to count.
        let layers = (count.active - count.embedding) as f64;
        let width = (config.heads * config.head_dim * config.layers) as f64;
        let kv_values = (2 * config.kv_heads * config.head_dim * config.layers) as f64;

        // Attention computes scores and the sum of values, over half of the tokens in the mean.
        let attention = |tokens: f64| 2.0 * width * tokens * tokens;
        let total = prompt + completion;

        match phase {
            Phase::Rollout | Phase::Groups => {
                let prompts = if phase == Phase::Groups { rows / 8.0 } else { rows };
                let tokens = prompts * prompt + rows * completion;
                let flops = 2.0 * layers * tokens
                    + 2.0 * head * rows * completion
                    + rows * (attention(total) - attention(prompt))
                    + prompts * attention(prompt);

                let weights = completion * (layers * of_layers + head * of_head);
                let cache =
                    rows * kv_values * width_of_number * completion * (prompt + completion / 2.0);
                Some((flops, Some(weights + cache)))
            }
            // Work that is done twice is counted once, so that both phases can be compared.
            Phase::Update | Phase::Recompute => {
                let products = 2.0 * layers * rows * total + 2.0 * head * rows * completion;
                // Frozen weights have no gradient, so a third of the matmuls is missing. Those of adapters are left
                // out.
                let passes = if self.lora_rank > 0 { 2.0 } else { 3.0 };
                Some((passes * products + 3.0 * rows * attention(total), None))
            }
            Phase::Spread | Phase::Tail | Phase::Step | Phase::Verify => None,
        }
    }
}
