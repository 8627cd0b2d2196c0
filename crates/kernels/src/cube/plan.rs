//! Plan of an update's attention: which queries attend to which keys, in the order in which kernels process them. It
//! has items of queries and of keys, with a cube for each item and head.

use super::{
    tiles::{EACH, STRIP},
    *,
};
use crate::segment::Segment;

/// Number of queries that one cube processes for some keys, unless that makes more than [`PARTS`] parts: many
/// completions may attend to the same prompt.
const QUERIES: usize = 1024;

/// Upper bound on the parts that the queries of some keys make, apart from one more for each stretch of tokens in which
/// they are. Each part has a gradient in separate rows, so the number of these rows grows linearly with the tokens
/// instead of quadratically.
const PARTS: usize = 4;

/// Size of an item of a [`Plan`], in numbers.
pub(super) const ITEM: usize = 5;

/// A plan on the device.
#[derive(Clone)]
pub(crate) struct Plan {
    /// Position of each token in its text, followed by the items.
    pub(super) numbers: Buffer,
    /// Items of queries, each with an upper bound on the keys that it processes. Such an item holds the range of
    /// queries, that of the keys of their prefix, and the beginning of the segment.
    pub(super) queries: Vec<usize>,
    /// Items of keys, each with the number of queries that it processes. Such an item holds the range of keys, that of
    /// some queries, and the row for the gradients.
    pub(super) keys: Vec<usize>,
    /// Number of items of gradients in rows beyond those of tokens. Such an item holds the range of tokens that they
    /// belong to, and the range of these rows.
    pub(super) more: usize,
    pub(super) rows: usize,
    /// How many of a tile's rows and columns one unit has: fewer if all segments are short.
    pub(super) each: usize,
    /// Whether every token is in a segment, and none is padding.
    full: bool,
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} blocks of queries, {} of keys", self.queries.len(), self.keys.len())
    }
}

impl Plan {
    pub(super) fn new(segments: &[Segment], tokens: usize, x: &Buffer) -> Self {
        // Tiles are no larger than the longest segment needs.
        let longest = segments.iter().map(|segment| segment.range.len()).max().unwrap_or(0);
        let each = longest.div_ceil(STRIP).next_power_of_two().min(EACH);
        let tile = STRIP * each;

        let mut numbers = vec![0u32; tokens];
        let [mut queries, mut keys, mut more]: [Vec<[usize; ITEM]>; 3] = Default::default();
        let mut rows = tokens;

        for (index, segment) in segments.iter().enumerate() {
            let own = &segment.range;
            let prefix = segment.prefix.map_or(0..0, |prefix| segments[prefix].range.clone());
            for token in own.clone() {
                numbers[token] = (prefix.len() + token - own.start) as u32;
            }

            let continuing = segments.iter().filter(|other| other.prefix == Some(index));
            // Neighbouring segments that continue this one are one stretch of queries.
            let mut seen_by: Vec<std::ops::Range<usize>> = Vec::new();
            for other in continuing.map(|other| &other.range) {
                match seen_by.last_mut() {
                    Some(last) if last.end == other.start => last.end = other.end,
                    _ => seen_by.push(other.clone()),
                }
            }

            for first in own.clone().step_by(tile) {
                let end = own.end.min(first + tile);
                queries.push([first, end, prefix.start, prefix.end, own.start]);

                let more_from = rows;
                let all: usize = seen_by.iter().map(|seen_by| seen_by.len()).sum();
                let queries_each = (all + own.end - first).div_ceil(PARTS).max(QUERIES);

                let mut row = first;
                // The first part writes its gradients to the tokens' own rows, every other one to separate rows.
                for seen_by in std::iter::once(&(first..own.end)).chain(&seen_by) {
                    for start in seen_by.clone().step_by(queries_each) {
                        keys.push([first, end, start, seen_by.end.min(start + queries_each), row]);
                        row = rows;
                        rows += tile;
                    }
                }
                // The loop reserved rows for a next part, which does not exist.
                rows -= tile;

                if rows > more_from {
                    more.push([first, end, more_from, rows, 0]);
                }
            }
        }

        let items = queries.iter().chain(&keys).chain(&more).flatten();
        numbers.extend(items.map(|&number| number as u32));
        let covered: usize = segments.iter().map(|segment| segment.range.len()).sum();

        Plan {
            numbers: uploaded(numbers, x),
            queries: queries.iter().map(|[_, end, from, to, own]| end - own + to - from).collect(),
            keys: keys.iter().map(|[_, _, from, to, _]| to - from).collect(),
            more: more.len(),
            rows,
            each,
            full: covered == tokens,
        }
    }

    /// Allocates room for the results of the queries, with zeros if some tokens are in no segment.
    pub(super) fn room<const D: usize>(&self, x: &Buffer, shape: [usize; D]) -> Buffer {
        if self.full {
            empty(x, shape, DType::F32)
        } else {
            own(tensor::<D>(empty(x, shape, DType::F32)).zeros_like())
        }
    }
}
