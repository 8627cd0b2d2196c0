//! Seeds, and the streams of uniform numbers that are derived from them.

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The only source of randomness in a run.
///
/// A seed is derived from its parent by hashing a name and numbers, so two draws share a stream only if everything
/// that names them is equal: run, step, prompt, completion, position. No state is carried along, so a resumed run
/// needs none.
///
/// ```
/// use firebrick_core::Seed;
///
/// let run = Seed::run(17);
/// let completion = run.derive("completion", &[3, 141, 5]);
/// assert_eq!(completion.stream().uniform_at(9), completion.stream().uniform_at(9));
/// assert_ne!(completion, run.derive("completion", &[3, 141, 6]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seed([u8; 32]);

impl Seed {
    /// Makes the seed of a whole run, from the recipe's number.
    pub fn run(seed: u64) -> Self {
        Seed([0; 32]).derive("run", &[seed])
    }

    /// Derives the seed of a part: `what` names the kind of part, and the numbers `which` say which part it is.
    ///
    /// SHA-256 hashes the parent, the length of the name, the name and the numbers, all little-endian. Because of the
    /// length no two different paths hash the same bytes.
    pub fn derive(self, what: &str, which: &[u64]) -> Self {
        let mut hash = Sha256::new();
        hash.update(self.0);
        hash.update((what.len() as u64).to_le_bytes());
        hash.update(what.as_bytes());

        for number in which {
            hash.update(number.to_le_bytes());
        }
        Seed(hash.finalize().into())
    }

    /// Returns the seed itself: 32 bytes that identify everything that the seed was derived from.
    pub fn bytes(self) -> [u8; 32] {
        self.0
    }

    /// Returns the stream of numbers of this seed.
    pub fn stream(self) -> RandomStream {
        RandomStream { rng: self.rng(), next: Some(0) }
    }

    /// Returns a generator for code that takes one of `rand`'s, such as a shuffle.
    pub fn rng(self) -> ChaCha8Rng {
        ChaCha8Rng::from_seed(self.0)
    }
}

/// Uniform numbers addressed by position, from ChaCha8 in counter mode.
///
/// Asking for position 9 first and 3 later gives the same two numbers as the other way round, so a completion's
/// tokens do not depend on the batch it was in.
#[derive(Clone, Debug)]
pub struct RandomStream {
    rng: ChaCha8Rng,
    /// Position of the generator, unless the last position was the maximum.
    next: Option<u64>,
}

impl RandomStream {
    /// Returns a number in `[0, 1)`, a multiple of 2⁻⁵³.
    pub fn uniform_at(&mut self, position: u64) -> f64 {
        // A seek discards the block of 32 numbers that was computed last, so it costs as much as 32 numbers. A caller
        // that reads forwards one by one never seeks.
        if self.next != Some(position) {
            // Two 32-bit words make one number.
            self.rng.set_word_pos(u128::from(position) * 2);
        }

        self.next = position.checked_add(1);
        uniform(self.rng.next_u64())
    }

    /// Writes the numbers starting at `position` into `numbers`.
    pub fn uniforms(&mut self, position: u64, numbers: &mut [f64]) {
        let mut bytes = [0; 4096];
        self.rng.set_word_pos(u128::from(position) * 2);

        for numbers in numbers.chunks_mut(bytes.len() / 8) {
            let bytes = &mut bytes[..8 * numbers.len()];
            self.rng.fill_bytes(bytes);
            for (number, word) in numbers.iter_mut().zip(bytes.as_chunks().0) {
                *number = uniform(u64::from_le_bytes(*word));
            }
        }

        // The generator has been moved, and computing its position is not worth it.
        self.next = None;
    }
}

/// Makes a number in `[0, 1)` from the upper 53 bits.
fn uniform(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_independent_of_the_order_of_asking() {
        let seed = Seed::run(7).derive("completion", &[1, 2, 3]);
        let forwards: Vec<f64> = {
            let mut stream = seed.stream();
            (0..100).map(|position| stream.uniform_at(position)).collect()
        };

        // Backwards, every draw has to seek.
        let mut stream = seed.stream();
        for position in (0..100).rev() {
            assert_eq!(stream.uniform_at(position), forwards[position as usize]);
        }

        let mut many = vec![0.0; 97];
        stream.uniforms(3, &mut many);
        assert_eq!(many, forwards[3..]);

        // After the largest position there is none to continue to.
        let last = stream.uniform_at(u64::MAX);
        assert_eq!(stream.uniform_at(0), forwards[0]);
        assert_eq!(stream.uniform_at(u64::MAX), last);

        let mean = forwards.iter().sum::<f64>() / 100.0;
        assert!((0.4..0.6).contains(&mean), "mean of 100 uniforms was {mean}");
    }

    #[test]
    fn names_and_numbers_do_not_run_into_each_other() {
        let run = Seed::run(7);
        assert_ne!(run.derive("a", &[1]), run.derive("a", &[1, 0]));
        assert_ne!(run.derive("ab", &[]), run.derive("a", &[u64::from(b'b')]));
        assert_ne!(Seed::run(7), Seed::run(8));
    }
}
