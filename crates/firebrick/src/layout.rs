//! Folders inside a checkpoint.

/// Folder inside a checkpoint for everything that is not the model.
pub const TRAINER: &str = "trainer";

/// Folder inside [`TRAINER`] for the weights as they were trained, in float32. It is there if the checkpoint's
/// weights are rounded, because a resumed run must continue with the same bits.
pub const WEIGHTS: &str = "weights";
