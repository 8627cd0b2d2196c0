//! Largest numbers that a recipe may have.
//!
//! A number without a bound can end the process without a message, where a list of that many entries is made. These
//! bounds are far above the needs of any run, and small enough that such a list can be allocated.

/// Largest size of a list in memory, largest length in tokens, and largest width of a model. `config.json`
/// has the same bound on its sizes.
pub(crate) const SIZE: u32 = firebrick_core::config::MAX_SIZE;

/// Maximum number of completions of one prompt and of examples of a supervised step, and maximum rank of adapters.
pub(crate) const GROUP: u32 = 1 << 16;

/// Maximum number of tokens that go through a model together, and of bytes of a text that are searched.
pub(crate) const AT_ONCE: u32 = 1 << 30;

/// Maximum number of steps, and of whatever is counted in steps or once in each step.
pub(crate) const STEPS: u32 = firebrick_core::config::MAX_STEPS;

/// Maximum number of layers of a model, as in `config.json`.
pub(crate) const LAYERS: u32 = 1 << 16;

/// Maximum number of values of a model's largest matrix, as in `config.json`.
pub(crate) const MATRIX: u128 = 1 << 31;

/// Maximum number of values of a new model: 4 TiB in float32.
pub(crate) const PARAMETERS: u128 = 1 << 40;

/// Largest number that is not an integer and does not have its own bound. Products of two such numbers, and their
/// squares, are still numbers in float32, in which rewards, losses and steps of the optimizer are computed.
pub(crate) const NUMBER: f64 = 1e9;

/// Smallest such number that is not 0. Smaller ones could become 0 in float32, or make a quotient infinite or
/// NaN.
pub(crate) const SMALLEST: f64 = 1e-30;

/// Largest base of a rotary position embedding. Published models reach 1e11.
pub(crate) const ROPE_THETA: f64 = 1e15;

/// Maximum number of operations of one judgement: they take hours.
pub(crate) const OPERATIONS: u64 = 1_000_000_000_000;

/// Maximum number of copies of a program that run at the same time.
pub(crate) const PROCESSES: u32 = 1024;

/// Largest index of a device of one kind, and of a group in a pattern.
pub(crate) const INDEX: u32 = u16::MAX as u32;
