/// Turns the rewards of one group into one advantage per completion.
pub trait AdvantageEstimator: Send + Sync {
    /// `rewards` are the shaped rewards of one group, of any length; the result has as many
    /// entries and is finite for finite input.
    fn advantages(&self, rewards: &[f32]) -> Vec<f32>;
}
