//! How the passes of a run are cut into pieces, from the memory of its device.

use firebrick_device::{Kind, Name};
use firebrick_models::Grain;
use serde::Serialize;

/// How much is there at once of the tensors that are never whole. It changes no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pieces {
    /// Tokens that go through a projection together, where its result is not kept.
    pub tokens: usize,
    /// Attention scores.
    pub scores: usize,
    /// Logits.
    pub logits: usize,
}

impl Pieces {
    /// For a device with so many bytes of memory, as far as that is known, and a model whose MLPs are `inner` wide.
    ///
    /// On the CPU tokens are those of which gate and up have eight million numbers, from 1,024 to 4,096: they decide the bits
    /// of a gradient, and so must not depend on the memory that is there. Logits may take a fortieth of the memory, and 256 MiB at most: those of a micro-batch wait for its
    /// backward pass, if they have room. On a GPU scores and logits, of which up to five are there in f32, take a fortieth
    /// of the memory each. No GPU has been asked which size is fastest.
    pub fn of(name: Name, memory: Option<u64>, inner: usize) -> Self {
        let fortieth = usize::try_from(memory.unwrap_or(8 << 30) / 40).unwrap_or(usize::MAX);
        let Grain { tokens, scores } = Grain::default();
        if name.kind == Kind::Cpu {
            let logits = (fortieth / 4).clamp(1 << 21, 1 << 26);
            return Pieces {
                tokens: ((1 << 22) / inner.max(1)).clamp(1024, tokens),
                scores,
                logits,
            };
        }
        let numbers = (fortieth / 5 / 4).clamp(1 << 22, 1 << 28);
        Pieces { tokens, scores: numbers, logits: numbers }
    }

    /// As a decoder takes them.
    pub fn grain(self) -> Grain {
        Grain { tokens: self.tokens, scores: self.scores }
    }
}
