//! The judges of a recipe: one for all prompts, or one for each data set that brings its own.

use std::collections::BTreeMap;

use firebrick_core::{Completion, Metrics, Prompt, Score, Verifier, VerifierFailed};

/// Verifiers, and which of them judges the prompts of each data set ([`Prompt::data_source`]).
pub(super) struct Judges {
    /// The verifier of `[reward]` comes first. It judges all prompts whose data set has no other.
    verifiers: Vec<Box<dyn Verifier>>,
    /// Index of a data set's own verifier, by the data set's name.
    own: BTreeMap<String, usize>,
}

impl Judges {
    /// Makes judges that are one verifier.
    pub(super) fn one(verifier: Box<dyn Verifier>) -> Self {
        Judges { verifiers: vec![verifier], own: BTreeMap::new() }
    }

    /// Adds a verifier, and returns its index. The first has index 0.
    pub(super) fn add(&mut self, verifier: Box<dyn Verifier>) -> usize {
        self.verifiers.push(verifier);
        self.verifiers.len() - 1
    }

    /// Has the verifier with that index judge the prompts of a data set.
    pub(super) fn assign(&mut self, source: String, index: usize) {
        self.own.insert(source, index);
    }

    /// Returns the verifier of a data set's prompts.
    pub(super) fn of(&self, source: &str) -> &dyn Verifier {
        &*self.verifiers[self.index(source)]
    }

    /// Returns all of them as one verifier, which asks the one that a prompt needs.
    pub(super) fn into_verifier(mut self) -> Box<dyn Verifier> {
        if self.verifiers.len() == 1 { self.verifiers.remove(0) } else { Box::new(self) }
    }

    fn index(&self, source: &str) -> usize {
        self.own.get(source).copied().unwrap_or(0)
    }
}

impl Verifier for Judges {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        self.of(&prompt.data_source).score(prompt, completion)
    }

    /// Asks each verifier once, about all of its completions. If one returns too few scores, there are too few in all, so
    /// that the caller sees that some are missing.
    fn score_all(&self, pairs: &[(&Prompt, &Completion)]) -> Result<Vec<Score>, VerifierFailed> {
        let mut scores: Vec<Option<Score>> = vec![None; pairs.len()];
        for (index, verifier) in self.verifiers.iter().enumerate() {
            let is_own = |&position: &usize| self.index(&pairs[position].0.data_source) == index;
            let own: Vec<usize> = (0..pairs.len()).filter(is_own).collect();
            if own.is_empty() {
                continue;
            }

            let asked: Vec<_> = own.iter().map(|&position| pairs[position]).collect();
            for (position, score) in own.into_iter().zip(verifier.score_all(&asked)?) {
                scores[position] = Some(score);
            }
        }
        Ok(scores.into_iter().flatten().collect())
    }

    fn same(&self, prompt: &Prompt, one: &str, other: &str) -> bool {
        self.of(&prompt.data_source).same(prompt, one, other)
    }

    /// Which references are JSON is decided for each data set by its own verifier ([`Judges::of`]).
    fn takes_json(&self) -> bool {
        self.verifiers.iter().any(|verifier| verifier.takes_json())
    }

    fn probe(&self, prompt: &Prompt, completion: &Completion) -> Result<(), VerifierFailed> {
        self.of(&prompt.data_source).probe(prompt, completion)
    }

    fn take_costs(&self) -> Metrics {
        let costs = self.verifiers.iter().map(|verifier| verifier.take_costs());
        costs.fold(Metrics::default(), Metrics::plus)
    }

    fn cancel(&self) {
        self.verifiers.iter().for_each(|verifier| verifier.cancel());
    }
}
