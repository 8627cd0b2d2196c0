//! Draws tokens on the CPU.

use super::{
    lanes::{exp, largest},
    simd,
};
use crate::choice::Choice;

/// Number of weights that are summed before it is checked whether the token is among them.
const BLOCK: usize = 256;

/// Draws a token of a row of logits, at a uniform number in `[0, 1)`. Also returns its log-probability.
pub(crate) fn sample_row(logits: &[f32], uniform: f64, choice: &Choice) -> (u32, f32) {
    let divisor = choice.divisor() as f32;

    let mut weights = vec![0.0; logits.len()];
    // Weights are f32, but their total is f64: a vocabulary has more tokens than f32 adds up well.
    let (max, total) = simd!({
        let max = largest(logits);
        for (weight, logit) in weights.iter_mut().zip(logits) {
            *weight = exp((logit - max) / divisor);
        }
        (max, weights.chunks(BLOCK).map(sum).sum::<f64>())
    });

    let token = if choice.temperature == 0.0 {
        logits.iter().position(|&logit| logit == max)
    } else if choice.truncates(logits.len()) {
        let mut likeliest = likeliest(&weights, total, choice);
        likeliest.sort_unstable();
        let weights: Vec<f32> = likeliest.iter().map(|&token| weights[token]).collect();
        let total = weights.chunks(BLOCK).map(sum).sum();
        inverse_cdf(&weights, uniform, total).map(|at| likeliest[at])
    } else {
        inverse_cdf(&weights, uniform, total)
    };

    let token = token.unwrap_or(0);
    let logprob = f64::from((logits[token] - max) / divisor) - total.ln();
    (token as u32, logprob as f32)
}

/// Lists the tokens that may be drawn, the likeliest first.
fn likeliest(weights: &[f32], total: f64, choice: &Choice) -> Vec<usize> {
    let most = if choice.top_k == 0 { weights.len() } else { choice.top_k };
    let mass = choice.top_p * total;
    // Sorting is the slow part, so unlikely tokens are left out of it.
    let least = least_power(weights, most, mass);

    let powers = weights.iter().map(|&weight| power(weight));
    let mut order: Vec<usize> =
        powers.enumerate().filter(|&(_, power)| power >= least).map(|(token, _)| token).collect();

    // Equally likely tokens are in the order of their ids.
    let likelier = |a: &usize, b: &usize| weights[*b].total_cmp(&weights[*a]).then(a.cmp(b));
    if order.len() > most {
        order.select_nth_unstable_by(most - 1, likelier);
        order.truncate(most);
    }
    order.sort_unstable_by(likelier);

    let mut reached = 0.0;
    let kept = order.iter().take_while(|&&token| {
        let before = reached;
        reached += f64::from(weights[token]);
        before < mass
    });
    let kept = kept.count();

    order.truncate(kept);
    order
}

/// Returns the power of two below which no weight is needed, for `most` tokens or for this `mass`.
fn least_power(weights: &[f32], most: usize, mass: f64) -> usize {
    let mut of_power = [(0usize, 0.0f64); 256];
    for &weight in weights {
        let (count, sum) = &mut of_power[power(weight)];
        *count += 1;
        *sum += f64::from(weight);
    }

    let mut count = 0;
    let mut sum = 0.0;
    for (power, (more, weight)) in of_power.iter().enumerate().rev() {
        count += more;
        sum += weight;
        // A sum in another order may be a little smaller.
        if count >= most || sum > mass * (1.0 + 1e-9) {
            return power;
        }
    }
    0
}

/// Returns the exponent bits of a non-negative number.
fn power(weight: f32) -> usize {
    (weight.to_bits() >> 23) as usize & 255
}

/// Finds the first index whose cumulative weight exceeds `uniform · total`, or the last index with any weight if
/// rounding leaves none.
fn inverse_cdf(weights: &[f32], uniform: f64, total: f64) -> Option<usize> {
    let target = uniform * total;
    let mut cumulative = 0.0;

    // Block by block until the target is passed, then token by token in that block.
    for (block, weights) in weights.chunks(BLOCK).enumerate() {
        let after = cumulative + simd!(sum(weights));
        if after > target {
            let mut last = None;
            for (at, &weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
                cumulative += f64::from(weight);
                last = Some(block * BLOCK + at);
                if cumulative > target {
                    break;
                }
            }
            return last;
        }

        cumulative = after;
    }
    weights.iter().rposition(|&weight| weight > 0.0)
}

/// Sums a block, in an order that depends only on its length.
#[inline(always)]
fn sum(weights: &[f32]) -> f64 {
    let mut lanes = [0.0f64; 8];
    let (chunks, rest) = weights.as_chunks::<8>();
    for chunk in chunks {
        for (lane, &weight) in lanes.iter_mut().zip(chunk) {
            *lane += f64::from(weight);
        }
    }
    lanes.iter().sum::<f64>() + rest.iter().map(|&weight| f64::from(weight)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only tokens that may be among the likeliest are sorted. They are the same as after sorting all.
    #[test]
    fn the_likeliest_are_those_of_a_whole_sort() {
        let mut state = 9u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as f32 / (1u64 << 24) as f32
        };

        for (vocab, spread) in [(1, 1.0), (7, 0.0), (600, 3.0), (5001, 60.0), (5001, 0.5)] {
            // Every third logit is as large as the one before, so that there are ties.
            let mut logits: Vec<f32> = (0..vocab).map(|_| spread * noise()).collect();
            (2..vocab).step_by(3).for_each(|at| logits[at] = logits[at - 1]);
            let largest = largest(&logits);
            let weights: Vec<f32> = logits.iter().map(|logit| exp(logit - largest)).collect();

            let total: f64 = weights.chunks(BLOCK).map(sum).sum();
            for top_k in [0, 1, 5, 1000] {
                for top_p in [1.0, 0.99, 0.7, 1e-6] {
                    let choice = Choice { temperature: 1.0, top_k, top_p };
                    let mut order: Vec<usize> = (0..vocab).collect();
                    order.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]));
                    order.truncate(if top_k == 0 { vocab } else { top_k });

                    let mut reached = 0.0;
                    order.retain(|&token| {
                        // A token is kept if the tokens before it have not yet reached top_p.
                        let keep = reached < top_p * total;
                        reached += f64::from(weights[token]);
                        keep
                    });

                    assert_eq!(likeliest(&weights, total, &choice), order, "{vocab}, {choice:?}");
                }
            }
        }
    }
}
