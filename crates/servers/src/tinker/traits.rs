//! What is known of a server: how it makes one gradient of many, and what of a step can be set.

/// What was measured of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerTraits {
    /// How gradients become one.
    pub reduction: Reduction,
    /// True if Adam's settings are those of the request, and not the server's own.
    pub takes_adam: bool,
    /// True if a request can limit the norm of the gradient.
    pub clips: bool,
    /// True if a request with the number of another is taken for that other.
    pub numbered: bool,
}

/// How a server makes one gradient of those of all tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reduction {
    /// True if the gradient of each text is divided by the number of its targets.
    pub per_text: bool,
    /// What the sum over the texts is divided by.
    pub over: Over,
}

/// What a server divides a sum over texts by, or over all their tokens if it does not divide by the tokens of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Over {
    /// Nothing.
    #[default]
    One,
    /// The number of texts since the last step.
    Step,
    /// The number of texts of each request.
    Request,
    /// The number of targets since the last step.
    StepTargets,
    /// The number of targets of each request.
    RequestTargets,
}

impl Reduction {
    /// Returns the factor of the coefficients of a text of `targets` targets that makes the server's gradient their
    /// plain sum. `step` and `request` count the texts and the targets of the text's step and of its request.
    pub(super) fn scale(&self, targets: usize, step: [usize; 2], request: [usize; 2]) -> f64 {
        let targets = if self.per_text { targets as f64 } else { 1.0 };
        targets
            * match self.over {
                Over::One => 1.0,
                Over::Step => step[0] as f64,
                Over::Request => request[0] as f64,
                Over::StepTargets => step[1] as f64,
                Over::RequestTargets => request[1] as f64,
            }
    }
}
