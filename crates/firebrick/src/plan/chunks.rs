//! Sizes of the chunks in which a run computes, from the memory of its device.

use firebrick_device::{Kind, Name};
use firebrick_models::ChunkSizes;
use serde::Serialize;

/// Chunk sizes of the tensors that never exist as a whole. They change results by rounding at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ChunkPlan {
    /// Tokens that pass through a projection together, if its result is not kept.
    pub tokens: usize,
    /// Attention scores that exist at the same time.
    pub scores: usize,
    /// Logits that exist at the same time.
    pub logits: usize,
    /// Limit of a micro-batch's logits that wait for its backward pass.
    pub waiting_logits: usize,
}

impl ChunkPlan {
    /// Chooses the chunk sizes for a device with `memory` bytes, if that is known, and a model whose MLPs are `inner`
    /// wide.
    ///
    /// The memory that happens to be free must not change the bits of a result. So on the CPU a chunk has as many
    /// tokens, from 1,024 to 4,096, as give gate and up eight million values. The numbers of scores and logits are
    /// fixed, and memory decides only how many logits wait: a fortieth of it, and 256 MiB at most. On a GPU, which has
    /// its own memory, scores and logits take a fortieth of it each, counted five times in f32. No GPU has been
    /// measured for the fastest size.
    pub fn for_device(name: Name, memory: Option<u64>, inner: usize) -> Self {
        let fortieth = usize::try_from(memory.unwrap_or(8 << 30) / 40).unwrap_or(usize::MAX);
        let ChunkSizes { tokens, scores } = ChunkSizes::default();

        if name.kind == Kind::Cpu {
            return ChunkPlan {
                tokens: ((1 << 22) / inner.max(1)).clamp(1024, tokens),
                scores,
                logits: 1 << 21,
                waiting_logits: (fortieth / 4).min(1 << 26),
            };
        }

        let numbers = (fortieth / 5 / 4).clamp(1 << 22, 1 << 28);
        ChunkPlan { tokens, scores: numbers, logits: numbers, waiting_logits: numbers }
    }

    /// Returns the sizes in the form that a decoder takes.
    pub fn chunk_sizes(self) -> ChunkSizes {
        ChunkSizes { tokens: self.tokens, scores: self.scores }
    }
}
