//! A block table on a GPU: the pages of each row, and the slots of its tokens in them.

use super::*;
use crate::block::{Block, PAGE};

/// Pages that one cube processes.
pub(super) const PAGES: usize = 8;

/// Tokens in these pages.
pub(super) const TOKENS: usize = PAGES * PAGE;

/// A table's rows on the device.
#[derive(Clone)]
pub(crate) struct Rows {
    /// Pages of each row, including those that it will write to.
    pub(super) pages: Buffer,
    /// Number of pages of a row in `pages`. A shorter row is padded with arbitrary pages.
    pub(super) across: usize,
    /// Position of each row's newest token, which is the number of tokens before it.
    pub(super) newest: Tensor<1, Int>,
    /// Largest of these positions.
    pub(super) farthest: usize,
}

impl std::fmt::Debug for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} pages a row", self.across)
    }
}

impl Rows {
    /// Uploads `rows`, whose pages are all full except the last one with tokens.
    pub(crate) fn new(rows: &[Vec<Block>], device: &Device) -> Self {
        let length = |row: &Vec<Block>| row.iter().map(|block| block.tokens).sum::<usize>();
        let newest: Vec<i32> = rows.iter().map(|row| length(row) as i32 - 1).collect();
        let farthest = newest.iter().max().map_or(0, |&newest| newest as usize);
        let newest = Tensor::from_data(TensorData::new(newest, [rows.len()]), device);

        let across = rows.iter().map(Vec::len).max().unwrap_or(0);
        let mut pages = Vec::with_capacity(rows.len() * across);
        for (index, row) in rows.iter().enumerate() {
            pages.extend(row.iter().map(|block| block.page as u32));
            pages.resize((index + 1) * across, 0);
        }
        Rows { pages: uploaded(pages, &whole(&newest)), across, newest, farthest }
    }

    /// Counts one more token in every row.
    pub(crate) fn stepped(self) -> Self {
        Rows { newest: self.newest.add_scalar(1), farthest: self.farthest + 1, ..self }
    }

    /// Counts `tokens` more tokens in every row, or fewer if negative. `newest` has counted them.
    pub(crate) fn counted(self, newest: Tensor<1, Int>, tokens: isize) -> Self {
        Rows { newest, farthest: self.farthest.saturating_add_signed(tokens), ..self }
    }

    /// Returns how many more tokens every row can take until the longest row fills the last of the pages that one cube
    /// processes. Until then, an attention is launched in the same way.
    pub(crate) fn replayable_steps(&self) -> usize {
        TOKENS - (self.farthest + 1) % TOKENS
    }

    /// Returns the position of each row's newest token.
    pub(crate) fn newest(&self) -> Tensor<1, Int> {
        self.newest.clone()
    }
}

/// Returns the slot of a row's token. The row's pages begin at `row`.
#[cube]
pub(super) fn slot(pages: &[u32], row: usize, token: usize) -> usize {
    pages[row + token / PAGE] as usize * PAGE + token % PAGE
}

#[cube]
pub(super) fn is_visible(token: usize, last: usize, window: u32) -> bool {
    let mut seen = false;
    if token <= last {
        seen = last - token < window as usize;
    }
    seen
}
