//! The algorithm: advantages, losses and schedules, as functions of numbers and tensors. Nothing here knows a model.

pub(crate) mod advantage;
pub(crate) mod aggregation;
pub(crate) mod distillation;
pub(crate) mod gae;
pub(crate) mod loss;
pub(crate) mod schedule;
pub(crate) mod value_loss;

pub use advantage::{
    BatchNorm, Gdpo, GroupNorm, LeaveOneOut, MeanOnly, ReinforceBaseline, SPREAD_TOLERANCE,
};
pub use aggregation::Divisors;
pub use distillation::Distillation;
pub use firebrick_core::config::{Aggregation, KlEstimator};
pub use gae::{Gae, whiten};
pub use loss::{
    Cispo, ClipRange, Dapo, Divergence, Dppo, Gspo, Kl, LossInput, LossOutput, Objective,
    ObjectiveOutput, PolicyLoss, Sapo,
};
pub use schedule::{
    ConstantLr, CosineDecay, LinearDecay, LrSchedule, LrWarmup, constant_with_warmup,
};
pub use value_loss::{ValueInput, ValueLoss, ValueOutput};
