//! Which part of a text is its answer.
