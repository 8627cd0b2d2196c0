//! The sizes of the pieces into which a forward or backward pass is cut.

/// The sizes of the pieces into which a pass through a [`Decoder`](crate::Decoder) is cut. They change memory and
/// speed, and the result by rounding at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grain {
    /// The number of tokens that go through a projection at once.
    pub tokens: usize,
    /// The number of attention scores that are in memory at once, about.
    pub scores: usize,
}

impl Grain {
    /// Returns pieces half as large, or `None` if they are small already.
    pub(crate) fn halved(self) -> Option<Self> {
        let halve = |number: usize, least: usize| (number / 2).max(number.min(least));
        let half = Grain { tokens: halve(self.tokens, 64), scores: halve(self.scores, 1 << 14) };
        (half != self).then_some(half)
    }
}

impl Default for Grain {
    /// Returns sizes for a CPU and a small model. There are few portions, because a gradient's matrices are laid
    /// out anew for each, and the scores stay in a core's cache.
    fn default() -> Self {
        Grain { tokens: 4096, scores: 1 << 18 }
    }
}
