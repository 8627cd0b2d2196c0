//! Benches are in `benches/`, and this package has no code of its own.
