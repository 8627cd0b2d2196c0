//! The algorithm: advantages, losses and schedules, as functions of numbers and tensors. Nothing here knows a model.

pub(crate) mod advantage;
pub(crate) mod aggregation;
pub(crate) mod gae;
pub(crate) mod loss;
pub(crate) mod schedule;
pub(crate) mod value_loss;
