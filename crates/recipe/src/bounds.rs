//! The largest numbers that a recipe may have.
//!
//! A number without a bound ends the process where a list is made for it, and says nothing. These are
//! far above what any run needs, and small enough that a list of so many entries can be asked for.

/// The largest size of a list in memory, of a length in tokens, and of a width of a model; `config.json` has the same bound on these.
pub(crate) const SIZE: u32 = 1 << 24;

/// Completions of one prompt, examples of a supervised step, and the width of adapters.
pub(crate) const GROUP: u32 = 1 << 16;

/// Tokens that go through a model at once, and bytes of a text that is looked at.
pub(crate) const AT_ONCE: u32 = 1 << 30;

/// Steps, and whatever is counted in them or once in each.
pub(crate) const STEPS: u32 = 1_000_000_000;

/// Layers of a model, as in `config.json`.
pub(crate) const LAYERS: u32 = 1 << 16;

/// Values of a model's largest matrix, as in `config.json`.
pub(crate) const MATRIX: u128 = 1 << 31;

/// Values of a new model: 4 TiB in float32.
pub(crate) const PARAMETERS: u128 = 1 << 40;

/// Operations of one judgement: hours.
pub(crate) const OPERATIONS: u64 = 1_000_000_000_000;

/// Copies of a program that run at once.
pub(crate) const PROCESSES: u32 = 1024;

/// Devices of a kind, and groups of a pattern.
pub(crate) const INDEX: u32 = u16::MAX as u32;
