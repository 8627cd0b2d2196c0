/// How a pass through a [`Decoder`](crate::Decoder) is cut: changes memory and speed, and the result by
/// rounding at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grain {
    /// Tokens that go through a projection at once, where the result is not kept.
    pub tokens: usize,
    /// Attention scores that are there at once, about.
    pub scores: usize,
}

impl Grain {
    /// Half as large, if it is still worth it.
    pub(crate) fn halved(self) -> Option<Self> {
        let halve = |number: usize, least: usize| (number / 2).max(number.min(least));
        let half = Grain { tokens: halve(self.tokens, 64), scores: halve(self.scores, 1 << 14) };
        (half != self).then_some(half)
    }
}

impl Default for Grain {
    /// For a CPU and a small model: few portions, because a gradient's matrices are laid out anew for each, and scores that
    /// stay in a core's cache.
    fn default() -> Self {
        Grain { tokens: 4096, scores: 1 << 18 }
    }
}
