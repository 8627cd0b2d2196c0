//! What goes over the wire in a step whose updates are made on a server.

use serde::Serialize;

use crate::recipe::{OldLogprobs, Recipe};

/// Bytes between this process and a server that updates the policy, in one step whose texts are all as long as the
/// recipe allows. They are counted in JSON, with ids of six digits and numbers of a dozen characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Wire {
    /// Completions that a step trains on.
    pub completions: u64,
    /// Predicted tokens of a completion's text, its prompt included.
    pub targets: u64,
    /// Passes forward over each completion: the log-probabilities before the update, and those of a reference.
    pub passes: u64,
    /// Bytes that are sent and received for one round of completions.
    pub sampling: [u64; 2],
    /// Bytes that are sent and received for passes forward.
    pub forward: [u64; 2],
    /// Bytes that are sent and received for gradients.
    pub backward: [u64; 2],
}

/// Bytes of a token's id, with its comma.
const ID: u64 = 7;

/// Bytes of a number in 32 bits as this process writes it, and as a server does, which writes more digits.
const NUMBERS: [u64; 2] = [13, 22];

impl Wire {
    /// Counts the bytes of a recipe's step.
    pub fn new(recipe: &Recipe) -> Self {
        let prompts = recipe.sampling.prompts_per_step as u64;
        let completions = prompts * recipe.rollout.group_size as u64;
        let targets = recipe.longest_text() as u64;
        let written = recipe.longest_completion() as u64;
        let [sent, received] = NUMBERS;

        // Until it is measured, a run does not know that the sampler's log-probabilities are those of a pass.
        let recomputes =
            recipe.train.old_logprobs != OldLogprobs::Sampled || recipe.loss.tis_cap.is_some();
        let recomputes = u64::from(recomputes);
        let passes = 1 + recomputes + u64::from(recipe.loss.kl.is_some());
        let all = completions * targets;
        Wire {
            completions,
            targets,
            passes,
            sampling: [prompts * targets * ID, completions * written * (ID + received)],
            // A weight of 1 for each target.
            forward: [passes * all * (2 * ID + 4), passes * all * 2 * received],
            backward: [all * 2 * (ID + sent), all * 2 * received],
        }
    }

    /// Adds up what is sent, and what is received.
    pub fn all(&self) -> [u64; 2] {
        [0, 1].map(|way| self.sampling[way] + self.forward[way] + self.backward[way])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_costs_a_pass_more() {
        let mut recipe = Recipe::default();
        recipe.train.old_logprobs = OldLogprobs::Sampled;
        let plain = Wire::new(&recipe);
        recipe.loss.tis_cap = Some(2.0);
        let more = Wire::new(&recipe);
        assert_eq!(more.forward, plain.forward.map(|bytes| 2 * bytes));
        assert_eq!((more.sampling, more.backward), (plain.sampling, plain.backward));
        assert!(more.all()[0] > plain.all()[0]);
    }
}
