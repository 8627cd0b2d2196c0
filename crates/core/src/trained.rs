//! The advantage, ratios and entropies that an update records of a completion.

/// The part of a completion in the first update that counted it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trained {
    /// The mean advantage of the tokens that the policy wrote.
    pub advantage: f32,
    /// One ratio per token: the token's probability when its update began, divided by its probability when it was
    /// sampled. It is 0 if the policy did not write the token. The list is empty if the step did not record
    /// ratios.
    pub ratios: Vec<f32>,
    /// One entropy per token, in nats: the entropy of the policy's distribution when the update began. It is 0,
    /// and the list empty, in the same cases as for the ratios.
    pub entropies: Vec<f32>,
}
