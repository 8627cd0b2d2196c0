//! How the passes of a run are cut into pieces, from the memory of its device.

use firebrick_device::{Kind, Name};
use firebrick_models::Grain;
use serde::Serialize;

/// How much is there at once of the tensors that are never whole. It changes results by rounding at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pieces {
    /// Tokens that go through a projection together, where its result is not kept.
    pub tokens: usize,
    /// Attention scores.
    pub scores: usize,
    /// Logits.
    pub logits: usize,
    /// The most logits of a micro-batch that wait for its backward pass.
    pub waiting_logits: usize,
}

impl Pieces {
    /// For a device with so many bytes of memory, as far as that is known, and a model whose MLPs are `inner` wide.
    ///
    /// What decides the bits of a result must not depend on the memory that happens to be free. So on the CPU tokens are
    /// those of which gate and up have eight million numbers, from 1,024 to 4,096; scores and logits are a fixed number;
    /// and memory decides alone which logits wait, a fortieth of it and 256 MiB at most. On a GPU, whose memory is its own,
    /// scores and logits, of which up to five are there in f32, take a fortieth of it each. No GPU has been asked which
    /// size is fastest.
    pub fn of(name: Name, memory: Option<u64>, inner: usize) -> Self {
        let fortieth = usize::try_from(memory.unwrap_or(8 << 30) / 40).unwrap_or(usize::MAX);
        let Grain { tokens, scores } = Grain::default();
        if name.kind == Kind::Cpu {
            return Pieces {
                tokens: ((1 << 22) / inner.max(1)).clamp(1024, tokens),
                scores,
                logits: 1 << 21,
                waiting_logits: (fortieth / 4).min(1 << 26),
            };
        }
        let numbers = (fortieth / 5 / 4).clamp(1 << 22, 1 << 28);
        Pieces { tokens, scores: numbers, logits: numbers, waiting_logits: numbers }
    }

    /// As a decoder takes them.
    pub fn grain(self) -> Grain {
        Grain { tokens: self.tokens, scores: self.scores }
    }
}
