//! Vectors that are written once, in pieces, on all cores.

use std::{mem::MaybeUninit, ops::Range};

use rayon::prelude::*;

/// A piece of a vector, written from its beginning to its end.
pub(super) struct Out<'a> {
    rest: &'a mut [MaybeUninit<f32>],
}

impl Out<'_> {
    /// Writes the next numbers.
    ///
    /// # Panics
    /// If there is no room for that many, or if the iterator returns fewer than it announced.
    #[inline(always)]
    pub(super) fn put(&mut self, values: impl ExactSizeIterator<Item = f32>) {
        let (now, rest) = std::mem::take(&mut self.rest).split_at_mut(values.len());
        let mut left = now.len();
        for (slot, value) in now.iter_mut().zip(values) {
            slot.write(value);
            left -= 1;
        }
        assert!(left == 0, "an iterator gave fewer numbers than it said");
        self.rest = rest;
    }
}

/// Writes three results of one computation: the first as the next numbers of `one`, the second as the next numbers of
/// `other`, and the third directly after those in `other`.
///
/// # Panics
/// As [`Out::put`].
#[inline(always)]
pub(super) fn put_three(
    one: &mut Out<'_>,
    other: &mut Out<'_>,
    values: impl ExactSizeIterator<Item = [f32; 3]>,
) {
    let count = values.len();
    let (first, rest) = std::mem::take(&mut one.rest).split_at_mut(count);
    one.rest = rest;

    // The third is directly after the second.
    let (second, rest) = std::mem::take(&mut other.rest).split_at_mut(count);
    let (third, rest) = rest.split_at_mut(count);
    other.rest = rest;

    let mut left = count;
    for (((x, y), z), [a, b, c]) in first.iter_mut().zip(second).zip(third).zip(values) {
        x.write(a);
        y.write(b);
        z.write(c);
        left -= 1;
    }
    assert!(left == 0, "an iterator gave fewer numbers than it said");
}

/// Makes vectors of `rows` rows, each of its width. `write` fills them, `step` rows at a time and on all cores. Also
/// returns the results of `write`, one for each piece, in the order of the rows.
///
/// # Panics
/// If `write` leaves out a number of its rows.
pub(super) fn pieces<const N: usize, R: Send>(
    rows: usize,
    widths: [usize; N],
    step: usize,
    write: impl Fn(Range<usize>, &mut [Out<'_>; N]) -> R + Sync,
) -> ([Vec<f32>; N], Vec<R>) {
    let mut vectors = widths.map(|width| Vec::<f32>::with_capacity(rows * width));

    let starts: Vec<usize> = (0..rows).step_by(step).collect();
    let mut left = vectors.each_mut().map(|vector| vector.spare_capacity_mut());
    // Each piece borrows its rows of every vector, so tasks need no lock.
    let work: Vec<(Range<usize>, [Out<'_>; N])> = starts
        .into_iter()
        .map(|start| {
            let these = start..(start + step).min(rows);
            let mut at = 0;
            let outs = left.each_mut().map(|left| {
                let (rest, after) = std::mem::take(left).split_at_mut(these.len() * widths[at]);
                *left = after;
                at += 1;
                Out { rest }
            });
            (these, outs)
        })
        .collect();

    let one = |(these, mut outs): (Range<usize>, [Out<'_>; N])| {
        let given = write(these, &mut outs);
        assert!(outs.iter().all(|out| out.rest.is_empty()), "a piece was not written whole");
        given
    };

    let given = match work.len() {
        1 => work.into_iter().map(one).collect(),
        _ => work.into_par_iter().map(one).collect(),
    };

    for (vector, width) in vectors.iter_mut().zip(widths) {
        // SAFETY: the vector has this capacity. Its pieces are consecutive from its beginning, and were written to
        // their ends, because `one` would have panicked otherwise.
        #[allow(unsafe_code)]
        unsafe {
            vector.set_len(rows * width);
        }
    }

    (vectors, given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_put_together_in_order() {
        let ([first, second], given) = pieces(10, [2, 1], 3, |rows, [first, second]| {
            for row in rows.clone() {
                first.put([row as f32, -(row as f32)].into_iter());
                second.put(std::iter::once(row as f32));
            }
            rows.start
        });

        assert_eq!(given, [0, 3, 6, 9]);
        assert_eq!(second, (0..10).map(|row| row as f32).collect::<Vec<_>>());
        assert_eq!(first[18..], [9.0, -9.0]);
    }

    #[test]
    #[should_panic(expected = "a piece was not written whole")]
    fn a_piece_with_a_hole_is_not_given_away() {
        pieces(4, [2], 2, |_, [out]| out.put([1.0f32; 3].into_iter()));
    }
}
