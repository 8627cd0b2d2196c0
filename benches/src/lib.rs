//! The benches are in `benches/`; this package has no code of its own.
