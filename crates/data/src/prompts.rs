//! A finite set of prompts as a source, or several of them by weights, each reshuffled every epoch.

use firebrick_core::{Prompt, PromptSource, Seed};
use rand::{Rng as _, seq::SliceRandom};

use crate::DataError;

/// A finite set of prompts, drawn without repetition and reshuffled every epoch; or several sets, which take turns.
///
/// The order depends on the seed and the cursor alone, so the cursor is all that a resumed run needs to continue in the
/// middle of an epoch.
pub struct Prompts {
    pools: Vec<Pool>,
    /// Index of the pool that each draw of a cycle takes from.
    turns: Vec<usize>,
    cursor: u64,
}

/// Draws after which the turns of several sets begin anew. A set's share is exact to one draw of a cycle.
const CYCLE: usize = 10_000;

impl Prompts {
    /// Makes a source over `prompts`, in the order that the run's seed gives.
    ///
    /// # Errors
    /// Fails if there is no prompt.
    pub fn new(prompts: Vec<Prompt>, seed: Seed) -> Result<Self, DataError> {
        Ok(Prompts { pools: vec![Pool::new(prompts, seed)?], turns: vec![0], cursor: 0 })
    }

    /// Makes a source over several sets, each with its weight. Of any number of draws in a row, a set has the share that
    /// its weight has of all weights, to within a draw or two: sets take turns, and chance has no part in it. Each goes
    /// through its own epochs. Weights are positive and finite, and the smallest is at least a thousandth of their sum.
    ///
    /// # Errors
    /// Fails if there is no set, or one of them has no prompt.
    pub fn weighted(sets: Vec<(f64, Vec<Prompt>)>, seed: Seed) -> Result<Self, DataError> {
        let sum: f64 = sets.iter().map(|(weight, _)| weight).sum();
        let shares: Vec<f64> = sets.iter().map(|(weight, _)| weight / sum).collect();
        if sets.is_empty() {
            return Err(DataError::EmptySource);
        }

        let pools = sets
            .into_iter()
            .zip(0..)
            .map(|((_, prompts), index)| Pool::new(prompts, seed.derive("source", &[index])));
        Ok(Prompts { pools: pools.collect::<Result<_, _>>()?, turns: turns(&shares), cursor: 0 })
    }
}

/// Gives each draw of a cycle to the set that is furthest behind its share.
fn turns(shares: &[f64]) -> Vec<usize> {
    let mut drawn = vec![0.0; shares.len()];
    let turn = |draws: usize| {
        let behind = |index: usize| shares[index] * draws as f64 - drawn[index];
        // Of equals it is the first.
        let next = (0..shares.len()).rev().max_by(|&a, &b| behind(a).total_cmp(&behind(b)));
        let next = next.unwrap_or_default();
        drawn[next] += 1.0;
        next
    };
    (1..=CYCLE).map(turn).collect()
}

impl PromptSource for Prompts {
    fn draw(&mut self) -> Prompt {
        let place = (self.cursor % self.turns.len() as u64) as usize;
        self.cursor += 1;
        self.pools[self.turns[place]].draw()
    }

    fn cursor(&self) -> u64 {
        self.cursor
    }

    fn seek(&mut self, cursor: u64) {
        let (cycles, place) = (cursor / self.turns.len() as u64, cursor % self.turns.len() as u64);
        for (index, pool) in self.pools.iter_mut().enumerate() {
            let count =
                |turns: &[usize]| turns.iter().filter(|&&turn| turn == index).count() as u64;
            // A cursor from a damaged file may be anything.
            let of_cycles = cycles.wrapping_mul(count(&self.turns));
            pool.cursor = of_cycles.wrapping_add(count(&self.turns[..place as usize]));
        }
        self.cursor = cursor;
    }

    /// Returns the number of prompts; for several sets, the draws until the slowest has gone through its prompts.
    fn size(&self) -> u64 {
        // The draw in which a set gives its last prompt: so many whole cycles, and so many of its turns in the next.
        let draws = |(index, pool): (usize, &Pool)| {
            let own = self.turns.iter().enumerate().filter(|(_, turn)| **turn == index);
            let places: Vec<usize> = own.map(|(place, _)| place).collect();
            let last = pool.prompts.len() - 1;
            let cycles = (last / places.len()) as u64;
            cycles * self.turns.len() as u64 + places[last % places.len()] as u64 + 1
        };
        self.pools.iter().enumerate().map(draws).max().unwrap_or(1)
    }

    /// Returns a number for ids, tokens and references, in the order in which the prompts were given.
    fn fingerprint(&self) -> u64 {
        let prompts = self.pools.iter().flat_map(|pool| &pool.prompts);
        let hash = prompts.fold(Seed::run(0), |seed, prompt| {
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

/// A set of prompts, in the order of one epoch after the other.
struct Pool {
    prompts: Vec<Prompt>,
    seed: Seed,
    cursor: u64,
    /// Epoch that `order` belongs to.
    epoch: u64,
    order: Vec<usize>,
}

impl Pool {
    fn new(prompts: Vec<Prompt>, seed: Seed) -> Result<Self, DataError> {
        if prompts.is_empty() {
            return Err(DataError::EmptySource);
        }
        let order = shuffled(prompts.len(), seed, 0);
        Ok(Pool { prompts, seed, cursor: 0, epoch: 0, order })
    }

    fn draw(&mut self) -> Prompt {
        let size = self.prompts.len() as u64;
        let epoch = self.cursor / size;
        if epoch != self.epoch {
            self.order = shuffled(self.prompts.len(), self.seed, epoch);
            self.epoch = epoch;
        }

        let index = (self.cursor % size) as usize;
        self.cursor += 1;
        self.prompts[self.order[index]].clone()
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

    #[test]
    fn sets_take_turns_by_their_weights_and_are_found_again() {
        let set = |ids: std::ops::Range<u64>| -> Vec<Prompt> {
            ids.map(|id| Prompt { id, ..Prompt::default() }).collect()
        };
        let source = || {
            let sets = vec![(3.0, set(0..4)), (1.0, set(4..24)), (0.5, set(24..25))];
            Prompts::weighted(sets, Seed::run(7)).unwrap()
        };

        let mut straight = source();
        let ids: Vec<u64> = (0..22_500).map(|_| straight.draw().id).collect();
        let drawn = |from: u64, to: u64, ids: &[u64]| {
            ids.iter().filter(|id| (from..to).contains(id)).count()
        };

        // A step of nine prompts has six, two and one, whichever step it is.
        for step in ids.chunks(9).filter(|step| step.len() == 9).take(1000) {
            assert_eq!([drawn(0, 4, step), drawn(4, 24, step), drawn(24, 25, step)], [6, 2, 1]);
        }
        // No prompt is drawn again before its set is used up.
        let mut first: Vec<u64> = ids.iter().copied().filter(|&id| id < 4).take(4).collect();
        first.sort_unstable();
        assert_eq!(first, [0, 1, 2, 3]);

        let mut resumed = source();
        for cursor in [0, 1, 9_999, 10_000, 22_321, 5] {
            resumed.seek(cursor);
            let again: Vec<u64> = (0..50).map(|_| resumed.draw().id).collect();
            assert_eq!(again, ids[cursor as usize..][..50]);
        }
        resumed.seek(u64::MAX - 1);
        resumed.draw();
        // The twenty prompts of the second set are the slowest to be through.
        let mut seen: Vec<u64> = ids[..resumed.size() as usize].to_vec();
        let last = *seen.last().unwrap();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!((seen.len(), (4..24).contains(&last)), (25, true));
        assert!((80..100).contains(&resumed.size()), "{}", resumed.size());
    }
}
