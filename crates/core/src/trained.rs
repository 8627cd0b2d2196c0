/// The part of a completion in the first update that counted it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trained {
    /// The mean advantage of the tokens that the policy wrote.
    pub advantage: f32,
    /// By token: how many times as likely it was when its update began as when it was sampled. It is 0 where the policy did not
    /// write the token; empty where the step was not looked at so closely.
    pub ratios: Vec<f32>,
    /// By token: the entropy of the policy's distribution there when the update began, in nats. 0 and empty as the ratios.
    pub entropies: Vec<f32>,
}
