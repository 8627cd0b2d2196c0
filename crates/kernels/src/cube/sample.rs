//! Draws tokens on GPUs, from all of a row's logits or from the likeliest, without a sort.

use super::{
    shared::{first_of_cube, largest_of_cube, last_of_cube, sums_before},
    *,
};
use crate::choice::Choice;

/// Lower bound on the logits of a row that a cube sums first. A row has at most [`UNITS`] such blocks.
const BLOCK: usize = 1024;

/// Draws a token for each row of logits, and also returns its log-probability: see [`crate::sample_on_device`].
pub(crate) fn draw(
    logits: &Tensor<2>,
    uniforms: &Tensor<1>,
    choice: &Choice,
) -> Option<(Tensor<1, Int>, Tensor<1>)> {
    let [rows, vocab] = logits.dims();
    let (logits, uniforms) = (wide(logits)?, wide(uniforms)?);

    let client = logits.client.clone();
    let tokens = empty(&logits, [rows], DType::I32);
    let logprobs = empty(&logits, [rows], DType::F32);
    let divisor = choice.divisor() as f32;

    if choice.temperature > 0.0 && choice.truncates(vocab) {
        let most = if choice.top_k == 0 { vocab } else { choice.top_k.min(vocab) };
        truncated::launch(
            &client,
            cubes(rows),
            dim(),
            logits.into_buffer_arg(),
            uniforms.into_buffer_arg(),
            tokens.clone().into_buffer_arg(),
            logprobs.clone().into_buffer_arg(),
            divisor,
            most as f32,
            choice.top_p as f32,
            vocab,
        );
    } else {
        let block = vocab.div_ceil(UNITS as usize).max(BLOCK);
        let blocks = vocab.div_ceil(block);
        let parts = empty(&logits, [rows, blocks, 2], DType::F32);
        blocks_of_rows::launch(
            &client,
            cubes(rows * blocks),
            dim(),
            logits.clone().into_buffer_arg(),
            parts.clone().into_buffer_arg(),
            divisor,
            vocab,
            block,
        );

        // A second launch, because only then have all of a row's blocks been summed.
        drawn::launch(
            &client,
            cubes(rows),
            dim(),
            logits.into_buffer_arg(),
            parts.into_buffer_arg(),
            uniforms.into_buffer_arg(),
            tokens.clone().into_buffer_arg(),
            logprobs.clone().into_buffer_arg(),
            divisor,
            vocab,
            block,
            choice.temperature == 0.0,
        );
    }

    Some((int_tensor(tokens), tensor(logprobs)))
}

/// Finds the largest logit of each block, and the sum of its tokens' weights relative to that logit.
#[cube(launch)]
fn blocks_of_rows(logits: &[f32], parts: &mut [f32], divisor: f32, vocab: usize, block: usize) {
    if 2 * CUBE_POS < parts.len() {
        let blocks = vocab.div_ceil(block);
        let row = CUBE_POS / blocks * vocab;
        let start = row + CUBE_POS % blocks * block;
        let end = min(start + block, row + vocab);

        let mut largest = logits[start];
        let mut at = start + UNIT_POS as usize;
        while at < end {
            largest = max(largest, logits[at]);
            at += CUBE_DIM as usize;
        }
        let largest = largest_of_cube(largest);

        let mut sum = f32::new(0.0);
        at = start + UNIT_POS as usize;
        while at < end {
            // If all logits are −∞, no token has weight.
            let weight = ((logits[at] - largest) / divisor).exp();
            sum += select(largest > f32::new(-3e38), weight, 0.0);
            at += CUBE_DIM as usize;
        }

        sum = sum_of_cube(sum);
        if UNIT_POS == 0 {
            parts[2 * CUBE_POS] = largest;
            parts[2 * CUBE_POS + 1] = sum;
        }
    }
}

/// Finds the block in which the cumulative weight exceeds its share of all weight, and then the token in it: first by
/// sums of each unit's neighbouring tokens, and then among these tokens. If `greedy`, it takes the first of the
/// likeliest tokens.
#[cube(launch)]
fn drawn(
    logits: &[f32],
    parts: &[f32],
    uniforms: &[f32],
    tokens: &mut [i32],
    logprobs: &mut [f32],
    divisor: f32,
    vocab: usize,
    block: usize,
    #[comptime] greedy: bool,
) {
    if CUBE_POS < tokens.len() {
        let unit = UNIT_POS as usize;
        let row = CUBE_POS * vocab;
        let blocks = vocab.div_ceil(block);
        let part = 2 * CUBE_POS * blocks;

        let mut own = parts[part];
        if unit < blocks {
            own = parts[part + 2 * unit];
        }
        let largest = largest_of_cube(own);

        let mut weight = f32::new(0.0);
        if unit < blocks {
            weight = parts[part + 2 * unit + 1] * ((own - largest) / divisor).exp();
        }

        let (before, total) = sums_before(weight);
        let mut found = Shared::<[u32]>::new_slice(1usize);
        let mut rest = Shared::<[f32]>::new_slice(1usize);

        let target = uniforms[CUBE_POS] * total;
        if unit == 0 {
            found[0] = 0;
            rest[0] = target;
        }
        sync_cube();

        if greedy {
            let first = first_of_cube(unit < blocks && own == largest, unit);
            let start = first * block;
            let end = min(start + block, vocab);
            let each = block.div_ceil(CUBE_DIM as usize);

            let mut at = start + unit * each;
            let stop = min(at + each, end);
            while at < stop && logits[row + at] < largest {
                at += 1;
            }

            let chosen = min(first_of_cube(at < stop, at), vocab - 1);
            if unit == 0 {
                found[0] = chosen as u32;
            }
        } else {
            // Rounding may let two units find it, or none. If none does, the last block with weight has it.
            let here = unit < blocks && weight > 0.0 && before + weight > target;
            let within = first_of_cube(here, unit);
            let last = last_of_cube(unit < blocks && weight > 0.0, unit);
            let chosen = min(within, last);
            if unit == chosen {
                rest[0] = target - before;
            }

            sync_cube();
            let target = rest[0];
            let start = chosen * block;
            let end = min(start + block, vocab);
            let each = block.div_ceil(CUBE_DIM as usize);
            let first = start + unit * each;
            let stop = min(first + each, end);

            let mut sum = f32::new(0.0);
            let mut at = first;
            while at < stop {
                sum += ((logits[row + at] - largest) / divisor).exp();
                at += 1;
            }

            let (before, _) = sums_before(sum);
            let within = first_of_cube(sum > 0.0 && before + sum > target, unit);
            let last = last_of_cube(sum > 0.0, unit);
            if unit == min(within, last) {
                // The sums before may be rounded above the target, although the unit before did not reach it.
                let mut reached = min(before, target);
                at = first;
                while at < stop && reached <= target {
                    let weight = ((logits[row + at] - largest) / divisor).exp();
                    if weight > 0.0 {
                        found[0] = at as u32;
                    }
                    reached += weight;
                    at += 1;
                }
            }
        }

        sync_cube();
        if unit == 0 {
            let token = found[0] as usize;
            tokens[CUBE_POS] = i32::cast_from(found[0]);
            logprobs[CUBE_POS] = (logits[row + token] - largest) / divisor - total.ln();
        }
    }
}

/// Draws one of a row's likeliest tokens, in the order of their ids. These are at most `most` tokens, and no more than
/// are needed for the share `top_p` of all weight.
///
/// The least likely of them is found digit by digit. Its logit becomes an integer that grows with the logit, with
/// eight digits of sixteen values each. For each value of a digit, the tokens with it are counted and weighed.
#[cube(launch)]
fn truncated(
    logits: &[f32],
    uniforms: &[f32],
    tokens: &mut [i32],
    logprobs: &mut [f32],
    divisor: f32,
    most: f32,
    top_p: f32,
    vocab: usize,
) {
    if CUBE_POS < tokens.len() {
        let unit = UNIT_POS as usize;
        let row = CUBE_POS * vocab;
        let step = CUBE_DIM as usize;

        let mut own = logits[row];
        let mut at = unit;
        while at < vocab {
            own = max(own, logits[row + at]);
            at += step;
        }
        let largest = largest_of_cube(own);

        let mut sum = f32::new(0.0);
        at = unit;
        while at < vocab {
            sum += ((logits[row + at] - largest) / divisor).exp();
            at += step;
        }
        let total = sum_of_cube(sum);

        // Number and weight of the tokens above those that have the digits so far.
        let (mut above, mut weight_above) = (f32::new(0.0), f32::new(0.0));
        let wanted = select(top_p < 1.0, top_p * total, f32::MAX);

        let mut digits = 0u32;
        let mut round = 0u32;
        while round < 8 {
            let shift = 28 - 4 * round;
            let mut counts = Array::<f32>::new(16usize);
            let mut weights = Array::<f32>::new(16usize);
            #[unroll]
            for digit in 0..16usize {
                counts[digit] = 0.0;
                weights[digit] = 0.0;
            }

            at = unit;
            while at < vocab {
                let logit = logits[row + at];
                let key = key(logit);
                // All digits before this one are compared. The shift is in two steps, because a single one could be by
                // 32.
                if (key >> shift) >> 4 == (digits >> shift) >> 4 {
                    let digit = ((key >> shift) & 15) as usize;
                    counts[digit] += 1.0;
                    weights[digit] += ((logit - largest) / divisor).exp();
                }
                at += step;
            }

            // From the largest digit down, until the tokens are enough.
            let mut digit = 16usize;
            let mut enough = false;
            while digit > 0 && !enough {
                digit -= 1;
                let count = sum_of_cube(counts[digit]);
                let weight = sum_of_cube(weights[digit]);
                enough = digit == 0 || above + count >= most || weight_above + weight >= wanted;
                if !enough {
                    above += count;
                    weight_above += weight;
                }
            }

            digits |= (digit as u32) << shift;
            round += 1;
        }

        // Tokens at the end may be equally likely. As many of them are taken as are needed, those with the smallest
        // ids.
        let each = vocab.div_ceil(step);
        let first = min(unit * each, vocab);
        let stop = min(first + each, vocab);

        let mut equal = f32::new(0.0);
        let mut weight = f32::new(0.0);
        at = first;
        while at < stop {
            if key(logits[row + at]) == digits {
                equal += 1.0;
                weight = ((logits[row + at] - largest) / divisor).exp();
            }
            at += 1;
        }

        let (equal_before, all_equal) = sums_before(equal);
        let weight_of_equal = largest_of_cube(weight);

        let mut taken = min(most - above, all_equal);
        if top_p < 1.0 && weight_of_equal > 0.0 {
            taken = min(taken, ((wanted - weight_above) / weight_of_equal).ceil());
        }
        let taken = max(taken, 1.0);

        // Each unit weighs what is kept of its neighbouring tokens, and counts the equal ones before them.
        let mut kept = f32::new(0.0);
        let mut seen = equal_before;
        at = first;
        while at < stop {
            let logit = logits[row + at];
            let key = key(logit);
            if key > digits || (key == digits && seen < taken) {
                kept += ((logit - largest) / divisor).exp();
            }
            if key == digits {
                seen += 1.0;
            }
            at += 1;
        }

        let (before, all_kept) = sums_before(kept);
        let target = uniforms[CUBE_POS] * all_kept;
        let within = first_of_cube(kept > 0.0 && before + kept > target, unit);
        let chosen = min(within, last_of_cube(kept > 0.0, unit));

        if unit == chosen {
            // The sums before may be rounded above the target, although the unit before did not reach it.
            let mut reached = min(before, target);
            let mut token = 0u32;
            seen = equal_before;
            at = first;
            while at < stop && reached <= target {
                let logit = logits[row + at];
                let key = key(logit);
                if key > digits || (key == digits && seen < taken) {
                    let weight = ((logit - largest) / divisor).exp();
                    if weight > 0.0 {
                        token = at as u32;
                    }
                    reached += weight;
                }
                if key == digits {
                    seen += 1.0;
                }
                at += 1;
            }

            tokens[CUBE_POS] = i32::cast_from(token);
            logprobs[CUBE_POS] = (logits[row + token as usize] - largest) / divisor - total.ln();
        }
    }
}

/// Returns an integer that grows with `x`.
#[cube]
fn key(x: f32) -> u32 {
    let bits = u32::reinterpret(x);

    // Of negative numbers, all bits are inverted: a larger magnitude is then smaller. Others are moved above them.
    select(bits >> 31 == 1, !bits, bits | 0x8000_0000)
}
