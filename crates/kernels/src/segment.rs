//! Segments: the texts of a packed batch, and the prefixes that they share.

use std::ops::Range;

/// A text of a batch, or the part of a text that it does not share with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Tokens of the segment, as a range of the batch's.
    pub range: Range<usize>,
    /// Segment that this one continues: a prefix that it may share with others. That segment must have no prefix.
    pub prefix: Option<usize>,
}
