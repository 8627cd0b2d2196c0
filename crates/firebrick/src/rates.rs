//! Learning rates that are usual for what is trained.

use crate::recipe::PolicyOrigin;

/// Learning rates with which weights of one kind have learnt.
pub(crate) struct Rates {
    /// Whose rates they are.
    what: &'static str,
    /// The usual rates, in words.
    usual: &'static str,
    /// The smallest and the largest that is not far from them.
    range: [f64; 2],
}

impl Rates {
    /// All of them, for a remedy.
    pub(crate) const USUAL: &str = "1e-6 is usual for all weights of a large model, 5e-6 to 3e-4 for adapters, 1e-4 to \
                                    1e-3 for a model of a few million parameters";

    /// Returns the rates for a policy that began as `origin`.
    pub(crate) fn of(origin: PolicyOrigin) -> Rates {
        match origin {
            PolicyOrigin::New => {
                Rates { what: "a new model", usual: "1e-4 to 1e-3", range: [1e-5, 1e-1] }
            }
            PolicyOrigin::Adapters => {
                Rates { what: "adapters", usual: "5e-6 to 3e-4", range: [2e-6, 3e-3] }
            }
            PolicyOrigin::Trained => {
                Rates { what: "all weights of a model", usual: "about 1e-6", range: [1e-8, 1e-4] }
            }
        }
    }

    /// Says that a rate is far from the usual ones; `None` if it is not. A rate of 0 is meant.
    pub(crate) fn unusual(&self, lr: f64) -> Option<String> {
        let [least, most] = self.range;
        let outcome = match lr {
            0.0 => return None,
            lr if lr < least => "the policy may not move",
            lr if lr > most => "the policy may break",
            _ => return None,
        };
        Some(format!(
            "optim.lr is {lr:e}, and for {} {} is usual: {outcome}",
            self.what, self.usual
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::Optim;

    #[test]
    fn a_rate_that_is_far_from_the_usual_ones_is_told() {
        for origin in [PolicyOrigin::New, PolicyOrigin::Adapters, PolicyOrigin::Trained] {
            let rates = Rates::of(origin);
            assert_eq!(rates.unusual(Optim::default().learning_rate(origin)), None);
            assert_eq!(rates.unusual(0.0), None);
            assert!(rates.unusual(1e-9).unwrap().contains("may not move"));
            assert!(rates.unusual(1.0).unwrap().contains("may break"));
        }
    }
}
