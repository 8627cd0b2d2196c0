//! What a recipe changes in a number against the baseline, and how much of that chance may have made.

use std::f64::consts::FRAC_PI_2;

use serde::Serialize;

use super::{deviation, mean};

/// Difference of a recipe's runs to those of the baseline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// Mean difference of the pairs, or difference of the means.
    pub difference: f64,
    /// Standard error of the difference.
    pub standard_error: f64,
    /// Ends of the 95 % interval of the difference.
    pub interval: [f64; 2],
    /// Difference, in standard errors; `None` if there is no error to divide by.
    pub t: Option<f64>,
    /// Number of seeds whose two runs were compared with each other. `None` if too many runs have no partner, and the
    /// means were compared.
    pub pairs: Option<usize>,
}

/// A run's number, after its seed.
pub(super) type Seeded = (u64, f64);

impl Effect {
    /// Compares the runs of a recipe with those of the baseline. `None` if there are too few to know what chance makes:
    /// it takes two seeds that both have, or two runs of each.
    ///
    /// Runs of one seed begin with the same weights and draw the same prompts, so their difference is compared, and
    /// what is lucky about a seed cancels out. Were the pairs no more alike than any two runs, the error would still be
    /// right, and cost only degrees of freedom. But where both recipes have runs without a partner, pairs would leave out
    /// runs of both, so the means of all are compared.
    pub(super) fn between(recipe: &[Seeded], baseline: &[Seeded]) -> Option<Self> {
        let differences = paired_differences(recipe, baseline);
        let fewer_runs = recipe.len().min(baseline.len());
        if differences.len() < fewer_runs.max(2) {
            return Effect::between_means(recipe, baseline);
        }
        let sample = Sample::from_values(differences.iter().copied())?;
        Some(sample.effect(Some(differences.len())))
    }

    /// Compares means that have different errors (Welch), with degrees of freedom by Satterthwaite.
    fn between_means(recipe: &[Seeded], baseline: &[Seeded]) -> Option<Self> {
        let sample = |runs: &[Seeded]| Sample::from_values(runs.iter().map(|(_, value)| *value));
        let own = sample(recipe)?;
        let other = sample(baseline)?;

        let variance = own.variance + other.variance;
        let freedom = if variance > 0.0 {
            variance.powi(2)
                / (own.variance.powi(2) / own.freedom + other.variance.powi(2) / other.freedom)
        } else {
            own.freedom.min(other.freedom)
        };

        let difference = Sample { mean: own.mean - other.mean, variance, freedom };
        Some(difference.effect(None))
    }
}

/// Returns the difference to the baseline's run with the same seed, for each run that has such a partner.
pub(super) fn paired_differences(recipe: &[Seeded], baseline: &[Seeded]) -> Vec<f64> {
    let difference = |(seed, value): &Seeded| {
        let (_, other) = baseline.iter().find(|(other, _)| other == seed)?;
        Some(value - other)
    };
    recipe.iter().filter_map(difference).collect()
}

/// A mean with its error.
struct Sample {
    mean: f64,
    /// Square of the mean's standard error.
    variance: f64,
    /// Degrees of freedom of the variance.
    freedom: f64,
}

impl Sample {
    /// Returns `None` for fewer than two values.
    fn from_values(values: impl Iterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.collect();
        let count = values.len() as f64;
        let variance = deviation(&values)?.powi(2) / count;
        Some(Sample { mean: mean(values.into_iter())?, variance, freedom: count - 1.0 })
    }

    fn effect(&self, pairs: Option<usize>) -> Effect {
        let error = self.variance.sqrt();
        let reach = error * t_quantile_975(self.freedom);
        Effect {
            difference: self.mean,
            standard_error: error,
            interval: [self.mean - reach, self.mean + reach],
            t: (error > 0.0).then(|| self.mean / error),
            pairs,
        }
    }
}

/// Returns how many standard errors a 95 % interval reaches to each side, if the error has so many degrees of freedom:
/// the quantile of Student's t at 0.975.
///
/// With t = √ν · tan θ, the density of t becomes cos(θ)^(ν − 1) up to a factor, so a sum over θ from 0 to π/2 needs
/// neither a gamma function nor an end at infinity.
fn t_quantile_975(freedom: f64) -> f64 {
    const PIECES: u32 = 20_000;
    /// From here on the quantile is that of the normal distribution to three digits.
    const MANY: f64 = 1e4;

    let freedom = freedom.clamp(1.0, MANY);
    let width = FRAC_PI_2 / f64::from(PIECES);
    let mass = |piece: u32| ((f64::from(piece) + 0.5) * width).cos().powf(freedom - 1.0);

    let mut left = 0.95 * (0..PIECES).map(mass).sum::<f64>();
    for piece in 0..PIECES {
        let here = mass(piece);
        if left < here {
            let angle = (f64::from(piece) + left / here) * width;
            return freedom.sqrt() * angle.tan();
        }
        left -= here;
    }
    f64::INFINITY
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_close(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-3, "{value}, expected {expected}");
    }

    #[test]
    fn the_quantile_is_that_of_the_tables() {
        for (freedom, expected) in
            [(1.0, 12.706), (2.0, 4.303), (4.5, 2.659), (9.0, 2.262), (30.0, 2.042), (1e9, 1.960)]
        {
            assert_close(t_quantile_975(freedom), expected);
        }
    }

    #[test]
    fn runs_of_one_seed_are_compared_with_each_other() {
        // The seeds are far apart, and the recipe is ahead by 0.1, 0.2 and 0.3. Seed 9 has no partner.
        let recipe = [(1, 10.1), (2, 20.2), (3, 30.3), (9, 500.0)];
        let effect = Effect::between(&recipe, &[(3, 30.0), (2, 20.0), (1, 10.0)]).unwrap();

        assert_eq!(effect.pairs, Some(3));
        assert_close(effect.difference, 0.2);
        // 0.1 / √3, and 4.303 times that.
        assert_close(effect.standard_error, 0.0577);
        assert_close(effect.interval[0], 0.2 - 0.2484);
        assert_close(effect.interval[1], 0.2 + 0.2484);
        assert_close(effect.t.unwrap(), 3.4641);
    }

    #[test]
    fn runs_of_other_seeds_are_compared_by_their_means() {
        // Both variances of a mean are 1 with one degree of freedom, so the difference has two.
        let effect = Effect::between(&[(1, 1.0), (2, 3.0)], &[(3, 0.0), (4, 2.0)]).unwrap();
        assert_eq!(effect.pairs, None);
        assert_close(effect.difference, 1.0);
        assert_close(effect.standard_error, 2.0_f64.sqrt());
        assert_close(effect.interval[1], 1.0 + 4.3027 * 2.0_f64.sqrt());
    }

    #[test]
    fn pairs_that_would_leave_out_runs_of_both_are_not_made() {
        let runs = |seeds: std::ops::Range<u64>| -> Vec<Seeded> {
            seeds.map(|seed| (seed, (seed * seed) as f64)).collect()
        };
        let pairs = |recipe: std::ops::Range<u64>, baseline: std::ops::Range<u64>| {
            Effect::between(&runs(recipe), &runs(baseline)).unwrap().pairs
        };

        assert_eq!(pairs(8..10, 0..10), Some(2));
        assert_eq!(pairs(0..10, 8..10), Some(2));
        // Two of ten, and one of two.
        assert_eq!(pairs(8..18, 0..10), None);
        assert_eq!(pairs(1..3, 0..2), None);
    }

    #[test]
    fn too_few_runs_have_no_effect_and_equal_runs_no_error() {
        assert_eq!(Effect::between(&[(1, 1.0)], &[(1, 0.0)]), None);
        assert_eq!(Effect::between(&[], &[(1, 0.0), (2, 0.0)]), None);

        let equal = Effect::between(&[(1, 1.0), (2, 1.0)], &[(1, 1.0), (2, 1.0)]).unwrap();
        assert_eq!((equal.interval, equal.t), ([0.0, 0.0], None));
        let equal = Effect::between(&[(1, 1.0), (2, 1.0)], &[(3, 1.0), (4, 1.0)]).unwrap();
        assert_eq!((equal.interval, equal.t), ([0.0, 0.0], None));
    }
}
