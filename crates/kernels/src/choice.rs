//! The choice of a token: temperature, top-k and top-p.

/// How a token is drawn from logits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Divisor of the logits; 0 takes the likeliest token.
    pub temperature: f64,
    /// Only the `top_k` likeliest tokens can be drawn; 0 means all.
    pub top_k: usize,
    /// Only the smallest set of likeliest tokens with at least this probability can be drawn; in `(0, 1]`.
    pub top_p: f64,
}

impl Choice {
    pub(crate) fn truncates(&self, vocab: usize) -> bool {
        self.top_p < 1.0 || (1..vocab).contains(&self.top_k)
    }

    /// Returns the divisor of the logits. Greedy log-probabilities are reported at temperature 1.
    pub(crate) fn divisor(&self) -> f64 {
        if self.temperature == 0.0 { 1.0 } else { self.temperature }
    }
}
