//! The sizes of the chunks in which a forward or backward pass is computed.

/// Sizes of the chunks in which a pass through a [`Decoder`](crate::Decoder) is computed. They change memory and speed,
/// and the result by rounding at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkSizes {
    /// How many tokens go through a projection together.
    pub tokens: usize,
    /// About how many attention scores are in memory at the same time.
    pub scores: usize,
}

impl ChunkSizes {
    /// Returns chunks half as large, or `None` if they are small already.
    pub(crate) fn halved(self) -> Option<Self> {
        let halve = |number: usize, least: usize| (number / 2).max(number.min(least));
        let half =
            ChunkSizes { tokens: halve(self.tokens, 64), scores: halve(self.scores, 1 << 14) };
        (half != self).then_some(half)
    }
}

impl Default for ChunkSizes {
    /// Returns sizes for a CPU and a small model: few chunks, because a gradient's matrices are laid out again for
    /// each, and scores that stay in a core's cache.
    fn default() -> Self {
        ChunkSizes { tokens: 4096, scores: 1 << 18 }
    }
}
