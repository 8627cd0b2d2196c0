//! Limits the size of a launch: a device that computes one for too long is treated as hung.

use std::ops::Range;

/// Splits items of work into runs, each for a separate launch. `cost` returns the multiplications of an item.
///
/// A driver aborts a launch that takes too long, and resets the device: Windows after 2 seconds, Intel's kernel module
/// sooner. An integrated GPU that multiplies and adds 5·10¹¹ times a second finishes a launch in 0.2 seconds. These
/// times were not measured on a card. Only attention is split: its work grows with the square of a text's length, while
/// a matmul's does not.
pub(crate) fn launch_ranges(items: &[usize], cost: impl Fn(usize) -> usize) -> Vec<Range<usize>> {
    let mut launches: Vec<Range<usize>> = Vec::new();
    let mut room = 0;

    for (index, &item) in items.iter().enumerate() {
        let cost = cost(item);
        match launches.last_mut() {
            Some(last) if cost <= room => last.end = index + 1,
            _ => {
                launches.push(index..index + 1);
                room = MULTIPLICATIONS;
            }
        }

        room = room.saturating_sub(cost);
    }
    launches
}

/// Upper bound on a launch's multiplications, unless a single item makes more.
const MULTIPLICATIONS: usize = 100_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_has_a_bound_of_work_and_each_item_is_in_one() {
        let third = MULTIPLICATIONS / 3;
        let cut = |items: &[usize]| launch_ranges(items, |item| item * third);
        assert!(cut(&[]).is_empty());
        assert_eq!(cut(&[1, 1, 1, 0]), std::slice::from_ref(&(0..4)));
        assert_eq!(cut(&[1, 1, 1, 1]), [0..3, 3..4]);
        assert_eq!(cut(&[2, 2, 1, 3, 0]), [0..1, 1..3, 3..5]);

        // An item can't be split.
        assert_eq!(cut(&[9, 1, 9]), [0..1, 1..2, 2..3]);
    }
}
