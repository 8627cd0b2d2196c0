//! Cases of the suite: the attention of decoding, over keys and values in pages.

use std::{collections::BTreeSet, ops::Range};

use burn::tensor::Device;
use firebrick_kernels::{Block, BlockTable, Heads, PAGE, Pages, SlotMapping, paged_attention};

use super::{Array, Case, noise::Noise, operations::compute, tensors::values};
use crate::{Failure, Precision, Tolerance};

pub(super) fn cases() -> Vec<Case> {
    Case::in_every_format("attention/pages", Tolerance::ROUNDED, decoded).into()
}

/// Tokens of each row, the newest one included. A GPU's cube processes 256 tokens: some rows are on either side of
/// that, and the longest has six parts, which are joined.
const LENGTHS: [usize; 6] = [1, 255, 256, 257, 700, 1300];

/// Pages that the last two rows share.
const SHARED: usize = 9;

/// Steps of decoding. In the second one, the row of 256 tokens gets a second part.
const STEPS: usize = 2;

/// Decodes with heads of width 64, 128 and 512, 4, 8 or 12 of which share a head of keys. The pages of a row are scattered
/// and in no order.
fn decoded(device: &Device, precision: Precision) -> Result<Vec<Array>, Failure> {
    let mut arrays = Vec::new();
    let heads = |query, key, width| Heads { query, key, width };
    for heads in [heads(8, 2, 64), heads(16, 2, 128), heads(12, 1, 128), heads(8, 1, 512)] {
        let (mut table, count) = table();
        let kv = [heads.key, heads.width];
        let mut pages = Pages::new(count, kv, compute(precision), device);
        let tokens = |salt, count: usize| {
            Noise::new(salt).tensor([count, kv[0], kv[1]], device).mul_scalar(2.0)
        };

        // A page that two rows share is written once.
        let all: BTreeSet<usize> = table.rows().iter().flatten().flat_map(slots).collect();
        let mapping = SlotMapping::new((0..all.len()).collect(), all.iter().copied().collect());
        pages.write(&mapping, &tokens(1, all.len()), &tokens(2, all.len()));

        let rows = LENGTHS.len();
        for step in 0..STEPS {
            table.step(device);
            let salt = 8 * (step as u64 + 1);
            let keys = tokens(salt, rows);
            let token_values = tokens(salt + 1, rows);
            // Dense pages compute the slot of a row's newest token, while others need it as input.
            if pages.dense() {
                pages.write_newest(&table, &keys, &token_values);
            } else {
                let newest = |row: &Vec<Block>| row.iter().flat_map(slots).last();
                let newest = table.rows().iter().filter_map(newest).collect();
                pages.write(&SlotMapping::new((0..rows).collect(), newest), &keys, &token_values);
            }

            let query = Noise::new(salt + 2).tensor([rows, heads.query, heads.width], device);
            let query = query.mul_scalar(2.0).cast(compute(precision).dtype());

            let sinks = Noise::new(salt + 3).tensor([heads.query], device).mul_scalar(4.0);
            for window in [None, Some(1), Some(300)] {
                for sinks in [None, Some(&sinks)] {
                    let of = if sinks.is_some() { ", sinks" } else { "" };
                    let name = format!("step {step}, {heads:?}, window {window:?}{of}");
                    let query = query.clone();
                    let output = paged_attention(query, &[&pages], &mut table, window, sinks);
                    arrays.push(Array::new(name, values(output)?));
                }
            }
        }
    }
    Ok(arrays)
}

/// Makes the rows before their newest tokens, and returns how many pages there are. Each row has the pages that it is
/// going to write to.
fn table() -> (BlockTable, usize) {
    let of_row = LENGTHS.map(|length| (length + STEPS - 1).div_ceil(PAGE));
    let count: usize = of_row.iter().sum();

    // 37 is a prime, so all numbers below `count` occur once unless 37 divides it.
    let mut numbers = (0..count).map(|at| at * 37 % count);
    let mut rows: Vec<Vec<Block>> = Vec::new();
    for (length, pages) in LENGTHS.into_iter().zip(of_row) {
        let mut left = length - 1;
        let blocks = numbers.by_ref().take(pages).map(|page| {
            let tokens = left.min(PAGE);
            left -= tokens;
            Block { pool: 0, page, tokens }
        });
        rows.push(blocks.collect());
    }

    // As two completions share the pages of their prompt.
    let [.., before, last] = rows.as_mut_slice() else { unreachable!("there are two rows") };
    last[..SHARED].copy_from_slice(&before[..SHARED]);
    (BlockTable::new(rows), count)
}

/// Returns the slots of a block's tokens.
fn slots(block: &Block) -> Range<usize> {
    let first = block.page * PAGE;
    first..first + block.tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_share_the_pages_that_they_should_and_no_others() {
        let (table, count) = table();
        let lengths: Vec<usize> = (0..LENGTHS.len()).map(|row| table.length(row) + 1).collect();
        assert_eq!(lengths, LENGTHS);
        let pages = table.rows().iter().flatten().map(|block| block.page);
        let distinct: BTreeSet<usize> = pages.clone().collect();
        assert_eq!(distinct.len() + SHARED, pages.count());
        assert!(distinct.iter().all(|&page| page < count));
    }
}
