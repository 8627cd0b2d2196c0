//! Blocks: the pages that hold a row's tokens, each with the number of tokens in it.

/// Tokens in a page.
pub const PAGE: usize = 32;

/// One page of a row, with the row's tokens in it, from the page's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Index of the pool of pages.
    pub pool: usize,
    /// Index of the page in its pool.
    pub page: usize,
    /// Number of tokens; 0 if the row has reserved the page and continues in it later.
    pub tokens: usize,
}
