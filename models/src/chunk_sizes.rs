//! The sizes of the chunks in which a forward or backward pass is computed.

/// The sizes of the chunks in which a pass through a [`Decoder`](crate::Decoder) is computed. They change memory and
/// speed, and the result by rounding at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkSizes {
    /// The number of tokens that go through a projection at once.
    pub tokens: usize,
    /// The number of attention scores that are in memory at once, about.
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
    /// Returns sizes for a CPU and a small model. There are few chunks, because a gradient's matrices are laid out
    /// again for each, and the scores stay in a core's cache.
    fn default() -> Self {
        ChunkSizes { tokens: 4096, scores: 1 << 18 }
    }
}
