//! Rule of the curriculum that skips prompts whose next group will probably have no spread.
//!
//! The pass rate of a prompt is taken to be drawn from a [`Beta`] distribution: that of all prompts, with the
//! prompt's own right and wrong completions added. Because the policy moves, these completions count less
//! with every step. In the end only the distribution of all prompts is left.

use firebrick_core::config::PosteriorRule;

use super::PromptRecord;

/// A Beta distribution of a pass rate; both parameters above 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beta {
    /// Pseudo-count of right completions.
    pub a: f64,
    /// Pseudo-count of wrong completions.
    pub b: f64,
}

/// Number of prompts of evenly distributed pass rates that the prior starts from.
const EVEN_PROMPTS: f64 = 8.0;

impl Beta {
    /// Fits the distribution of pass rates over prompts. Each prompt counts once, however often it was
    /// sampled: the prompts sampled most are those that the rule likes, and would make the others look like
    /// them.
    ///
    /// The fit is by moments. With n completions an observed rate varies by mean (1 − mean) (ρ + (1 − ρ) /
    /// n), where ρ = 1 / (a + b + 1); the part with n is chance. Pass rates near 0 and 1, which most data
    /// sets have, give a small a + b, and so a weak prior. With an even prior, a prompt with 16 right
    /// completions of 16 would still have an even chance of spread.
    pub fn of_prompts<'a>(records: impl Iterator<Item = &'a PromptRecord>) -> Self {
        // An even distribution on [0, 1] has the mean 1/2 and the mean square 1/3.
        let mut count = EVEN_PROMPTS;
        let mut sum = EVEN_PROMPTS / 2.0;
        let mut squares = EVEN_PROMPTS / 3.0;
        let mut chance = 0.0;

        for record in records {
            let all = f64::from(record.right) + f64::from(record.wrong);
            if all > 0.0 {
                let rate = f64::from(record.right) / all;
                count += 1.0;
                sum += rate;
                squares += rate * rate;
                chance += 1.0 / all.max(1.0);
            }
        }

        let mean = sum / count;
        let chance = chance / count;
        let variance = (squares / count - mean * mean).max(0.0);
        let observed = variance / (mean * (1.0 - mean));
        let rho = ((observed - chance) / (1.0 - chance)).clamp(0.02, 0.98);

        let total = 1.0 / rho - 1.0;
        Beta { a: total * mean, b: total * (1.0 - mean) }
    }

    /// Computes the distribution of the pass rate of a prompt with this record, `steps` steps after it, if `self` is that
    /// of all prompts.
    pub fn posterior(
        self,
        rule: &PosteriorRule,
        record: Option<&PromptRecord>,
        steps: f64,
    ) -> Self {
        let Some(record) = record else { return self };
        let discount = rule.discount(steps);
        Beta {
            a: self.a + discount * f64::from(record.right),
            b: self.b + discount * f64::from(record.wrong),
        }
    }

    /// Computes P(0 < right < group size) of a group whose pass rate is drawn from this distribution: 1 minus
    /// the beta-binomial probabilities of no right completion and of all right.
    pub fn spread_probability(self, group_size: usize) -> f64 {
        let all = |right: f64| {
            (0..group_size)
                .map(|drawn| (right + drawn as f64) / (self.a + self.b + drawn as f64))
                .product::<f64>()
        };
        (1.0 - all(self.a) - all(self.b)).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::Seed;

    use super::*;

    #[test]
    fn the_probability_of_spread_is_that_of_the_beta_binomial() {
        let even = Beta { a: 1.0, b: 1.0 };
        // Every number of right completions is equally likely.
        for group_size in [2, 8, 16] {
            let expected = 1.0 - 2.0 / (group_size as f64 + 1.0);
            assert!((even.spread_probability(group_size) - expected).abs() < 1e-12);
        }
        // 1 − E[p³] − E[(1 − p)³] of Beta(2, 3): 1 − 24/210 − 60/210.
        let skewed = Beta { a: 2.0, b: 3.0 };
        assert!((skewed.spread_probability(3) - 126.0 / 210.0).abs() < 1e-12);
        assert_eq!(even.spread_probability(1), 0.0);
    }

    #[test]
    fn the_prior_is_found_again_in_groups_drawn_from_it() {
        let mut draws = Seed::run(3).stream();
        let mut next = {
            let mut position = 0;
            move || {
                position += 1;
                draws.uniform_at(position)
            }
        };

        // Pass rates of Beta(0.5, 0.5) are sin² of an even angle.
        let records: Vec<PromptRecord> = (0..4000)
            .map(|_| {
                let rate = (next() * std::f64::consts::FRAC_PI_2).sin().powi(2);
                let right = (0..8).filter(|_| next() < rate).count() as f32;
                PromptRecord { right, wrong: 8.0 - right, ..PromptRecord::default() }
            })
            .collect();

        let fitted = Beta::of_prompts(records.iter());
        for parameter in [fitted.a, fitted.b] {
            assert!((0.45..0.55).contains(&parameter), "{fitted:?}");
        }

        let even = Beta::of_prompts([].iter());
        assert!((even.a - 1.0).abs() < 1e-12 && (even.b - 1.0).abs() < 1e-12, "{even:?}");
    }

    #[test]
    fn what_was_seen_fades_into_the_prior() {
        let rule = PosteriorRule { min_spread_probability: 0.5, half_life: 10.0, explore: 0.0 };
        let prior = Beta { a: 1.0, b: 1.0 };
        let record = PromptRecord { right: 16.0, ..PromptRecord::default() };
        let spread = |steps| prior.posterior(&rule, Some(&record), steps).spread_probability(16);

        assert!((spread(0.0) - (1.0 - 17.0 / 33.0)).abs() < 1e-6, "{}", spread(0.0));
        assert!(spread(0.0) < spread(10.0) && spread(10.0) < spread(100.0));
        let unknown = prior.posterior(&rule, None, 0.0).spread_probability(16);
        assert!((spread(400.0) - unknown).abs() < 1e-6);
    }
}
