//! A finite set of prompts as a source, reshuffled every epoch.

use firebrick_core::{Prompt, PromptSource, Seed};
use rand::{Rng as _, seq::SliceRandom};

use crate::DataError;

/// A finite set of prompts, drawn without repetition and reshuffled every epoch.
///
/// An epoch's order depends on the seed and the epoch's number alone, so the cursor is all that a resumed run needs
/// to continue in the middle of it.
pub struct Prompts {
    prompts: Vec<Prompt>,
    seed: Seed,
    cursor: u64,
    /// Epoch that `order` belongs to.
    epoch: u64,
    order: Vec<usize>,
}

impl Prompts {
    /// Makes a source over `prompts`, in the order that the run's seed gives.
    ///
    /// # Errors
    /// Fails if there is no prompt.
    pub fn new(prompts: Vec<Prompt>, seed: Seed) -> Result<Self, DataError> {
        if prompts.is_empty() {
            return Err(DataError::EmptySource);
        }
        let order = shuffled(prompts.len(), seed, 0);
        Ok(Prompts { prompts, seed, cursor: 0, epoch: 0, order })
    }
}

impl PromptSource for Prompts {
    fn draw(&mut self) -> Prompt {
        let size = self.size();
        let epoch = self.cursor / size;
        if epoch != self.epoch {
            self.order = shuffled(self.prompts.len(), self.seed, epoch);
            self.epoch = epoch;
        }

        let index = (self.cursor % size) as usize;
        self.cursor += 1;
        self.prompts[self.order[index]].clone()
    }

    fn cursor(&self) -> u64 {
        self.cursor
    }

    fn seek(&mut self, cursor: u64) {
        self.cursor = cursor;
    }

    fn size(&self) -> u64 {
        self.prompts.len() as u64
    }

    /// Returns a number for ids, tokens and references, in the order in which the prompts were given.
    fn fingerprint(&self) -> u64 {
        let hash = self.prompts.iter().fold(Seed::run(0), |seed, prompt| {
            let tokens = prompt.tokens.iter().map(|&token| u64::from(token));
            let reference = prompt.reference.bytes().map(u64::from);
            // The byte 255 is in no text.
            let json = prompt.json_reference.then_some(255);
            let numbers = std::iter::once(prompt.id).chain(tokens).chain(reference).chain(json);
            seed.derive("prompt", &numbers.collect::<Vec<u64>>())
        });

        hash.rng().next_u64()
    }
}

fn shuffled(count: usize, seed: Seed, epoch: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.shuffle(&mut seed.derive("shuffle", &[epoch]).rng());
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(seed: u64) -> Prompts {
        let prompts = (0..10).map(|id| Prompt { id, ..Prompt::default() }).collect();
        Prompts::new(prompts, Seed::run(seed)).unwrap()
    }

    #[test]
    fn an_epoch_has_every_prompt_once_and_its_own_order() {
        let mut source = source(7);
        let mut epoch = || (0..10).map(|_| source.draw().id).collect::<Vec<_>>();
        let first = epoch();
        let second = epoch();

        assert_ne!(first, second);
        for mut ids in [first, second] {
            ids.sort_unstable();
            assert_eq!(ids, (0..10).collect::<Vec<_>>());
        }
    }

    #[test]
    fn seeking_finds_the_same_place() {
        let mut straight = source(7);
        let ids: Vec<u64> = (0..35).map(|_| straight.draw().id).collect();

        let mut resumed = source(7);
        for cursor in [23, 4, 30, 0] {
            resumed.seek(cursor);
            assert_eq!(resumed.draw().id, ids[cursor as usize]);
            assert_eq!(resumed.cursor(), cursor + 1);
        }

        let mut other = source(8);
        assert_ne!((0..35).map(|_| other.draw().id).collect::<Vec<_>>(), ids);
    }
}
