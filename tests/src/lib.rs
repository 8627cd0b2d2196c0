//! Helpers that several of this package's test binaries share.

pub mod close;
pub mod computed;
pub mod expected;
pub mod fixture;
pub mod gguf;
pub mod golden;
pub mod memory;
pub mod tiny;
pub mod transformers;
