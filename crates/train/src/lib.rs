//! Training algorithm: sampling, advantage, batch, loss, update, evaluation, checkpoint.
//!
//! [`Trainer::step`] is the loop; each of its parts is a file of this crate. Nothing here knows a tokenizer, a
//! data set or a recipe.
//!
//! An update is fixed before it is split, because every divisor counts the whole update. So micro-batches,
//! padding and order change memory and speed, and the loss by rounding alone. Until a [`MicroBatch`] is made,
//! everything is plain numbers, which a test can write down:
//!
//! ```
//! use firebrick_core::{Completion, FinishReason};
//! use firebrick_train::{GroupNorm, Sample};
//!
//! // Two answers to one prompt, of which the second is right.
//! let advantages = GroupNorm::default().of_group(&[-1.0, 1.0]);
//! assert!((advantages[1] - 0.5_f32.sqrt()).abs() < 1e-5);
//!
//! let written = Completion::written(vec![7, 8], vec![-0.1, -2.3], FinishReason::Stop);
//! let sample = Sample::new(&[1, 2, 3], &written, 0).with_advantage(advantages[1]);
//! assert_eq!(sample.loss_tokens(), 2);
//! ```

mod adaptive;
mod advantage;
mod aggregation;
mod batch;
mod checkpoint;
mod checkpointed_forward;
mod collect;
mod critic;
mod curriculum;
mod draw;
mod error;
mod eval;
mod gae;
mod interruption;
mod judge;
mod logprob_check;
mod loss;
mod loss_scale;
mod mini_batch;
mod numbers;
mod observe;
mod oom;
mod optim;
mod prefetch;
mod replicas;
mod report;
mod reward;
mod samples;
mod sampling;
mod schedule;
mod sft;
mod trainer;
mod update;
mod value_loss;

pub use adaptive::{
    AdaptiveUpdates, Importance, Repeatable, Repeats, Signals, mean_advantage, mean_change, repeat,
};
pub use advantage::{
    BatchNorm, Gdpo, GroupNorm, LeaveOneOut, MeanOnly, ReinforceBaseline, SPREAD_TOLERANCE,
};
pub use aggregation::{Aggregation, Divisors};
pub use batch::{Layout, MicroBatch, Sample, ValueTargets, micro_batches};
pub use checkpoint::{TrainerState, load_state, save_state};
pub use critic::{Critic, CriticConfig, ValueHead, ValueModel};
pub use curriculum::{
    Beta, Curriculum, CurriculumRule, PosteriorRule, PromptHistory, PromptRecord, Selection,
    VarianceRule,
};
pub use error::TrainError;
pub use eval::{EvalReport, evaluate, interval, pass_at_k};
pub use gae::{Gae, TokenValues, whiten};
pub use interruption::Interruption;
pub use loss::{
    Cispo, ClipRange, Dapo, Gspo, Kl, KlEstimator, LossInput, LossOutput, Objective,
    ObjectiveOutput, PolicyLoss,
};
pub use loss_scale::LossScale;
pub use observe::Phrases;
pub use oom::OomBackoff;
pub use optim::{
    AdamW, Moments, Muon, MuonConfig, NamedState, OptimConfig, Optimizer, ParameterStep, Part,
    StepOutcome, check_finite, clipped_step, fingerprint, global_norm, hidden_matrix,
};
pub use prefetch::Prefetched;
pub use replicas::Replicas;
pub use report::{SamplingReport, UpdateTotals};
pub use reward::reward;
pub use sampling::{BufferStatus, Dynamic, GroupBuffer, KeepAll, Spread, copies};
pub use schedule::{
    ConstantLr, CosineDecay, LinearDecay, LrSchedule, LrWarmup, constant_with_warmup,
};
pub use sft::{CrossEntropy, sft_step};
pub use trainer::{Observer, OldLogprobs, OnCap, Phase, StepReport, Task, TrainConfig, Trainer};
pub use update::{
    EXPERT_LOAD_MAX, LOGPROB_CHANGE_MAX, MicroBatching, ROUTER_AUX_LOSS, UpdateReport,
    UpdateTarget, Updater,
};
pub use value_loss::{ValueInput, ValueLoss, ValueOutput};
