//! The advantage, ratios and entropies that an update records for a completion.

/// What the first update that included a completion recorded for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trained {
    /// Mean advantage of the tokens that the policy wrote.
    pub advantage: f32,
    /// One ratio per token: its probability when its update began, divided by its probability when it was sampled.
    /// 0 if the policy did not write the token; the list is empty if the step did not record ratios.
    pub ratios: Vec<f32>,
    /// One entropy per token, in nats, of the policy's distribution when the update began. It is 0, and the list
    /// empty, in the same cases as for the ratios.
    pub entropies: Vec<f32>,
}
