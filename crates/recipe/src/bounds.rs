//! The largest numbers that a recipe may have.
//!
//! A number without a bound can end the process without a word, where a list of so many entries is made. These
//! bounds are far above the needs of any run, and small enough that such a list can be asked for.

/// The largest size of a list in memory, the largest length in tokens, and the largest width of a model.
/// `config.json` has the same bound on its sizes.
pub(crate) const SIZE: u32 = 1 << 24;

/// The most completions of one prompt, the most examples of a supervised step, and the largest rank of adapters.
pub(crate) const GROUP: u32 = 1 << 16;

/// The most tokens that go through a model at once, and the most bytes of a text that are looked at.
pub(crate) const AT_ONCE: u32 = 1 << 30;

/// The most steps, and the most of whatever is counted in steps or once in each step.
pub(crate) const STEPS: u32 = 1_000_000_000;

/// The most layers of a model, as in `config.json`.
pub(crate) const LAYERS: u32 = 1 << 16;

/// The most values of a model's largest matrix, as in `config.json`.
pub(crate) const MATRIX: u128 = 1 << 31;

/// The most values of a new model: 4 TiB in float32.
pub(crate) const PARAMETERS: u128 = 1 << 40;

/// The largest number that is no whole number, and has no bound of its own. Products of two such numbers, and their
/// squares, are still numbers in float32, in which rewards, losses and steps of the optimizer are computed.
pub(crate) const NUMBER: f64 = 1e9;

/// The smallest such number that is not 0. Smaller ones could become 0 in float32, or divide to what is no number.
pub(crate) const SMALLEST: f64 = 1e-30;

/// The largest base of a rotary position embedding. Published models reach 1e11.
pub(crate) const ROPE_THETA: f64 = 1e15;

/// The most operations of one judgement: they take hours.
pub(crate) const OPERATIONS: u64 = 1_000_000_000_000;

/// The most copies of a program that run at once.
pub(crate) const PROCESSES: u32 = 1024;

/// The largest index of a device of one kind, and of a group in a pattern.
pub(crate) const INDEX: u32 = u16::MAX as u32;
