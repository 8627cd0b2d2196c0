//! The heads of an attention: how many there are, and how wide they are.

/// How many heads an attention has, and how wide they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Number of query heads: a multiple of `key`.
    pub query: usize,
    /// Number of key heads, and also of value heads.
    pub key: usize,
    /// Width of a head.
    pub width: usize,
}
