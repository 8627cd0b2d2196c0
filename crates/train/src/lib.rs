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
mod algorithm;
mod checkpoint;
mod config;
mod error;
mod eval;
mod interruption;
mod learner;
mod logprob_check;
mod numbers;
mod observer;
mod phrases;
mod report;
mod sample;
mod sampler;
mod samples;
mod trainer;
mod updates;

pub use adaptive::{
    AdaptiveUpdates, Importance, Repeatable, Repeats, Signals, mean_advantage, mean_change, repeat,
};
pub use algorithm::{
    advantage::{
        BatchNorm, Gdpo, GroupNorm, LeaveOneOut, MeanOnly, ReinforceBaseline, SPREAD_TOLERANCE,
    },
    aggregation::{Aggregation, Divisors},
    gae::{Gae, whiten},
    loss::{
        Cispo, ClipRange, Dapo, Gspo, Kl, KlEstimator, LossInput, LossOutput, Objective,
        ObjectiveOutput, PolicyLoss,
    },
    schedule::{ConstantLr, CosineDecay, LinearDecay, LrSchedule, LrWarmup, constant_with_warmup},
    value_loss::{ValueInput, ValueLoss, ValueOutput},
};
pub use checkpoint::{TrainerState, load_state, save_state};
pub use config::{OldLogprobs, TrainConfig};
pub use error::TrainError;
pub use eval::{EvalReport, evaluate, interval, pass_at_k};
pub use interruption::Interruption;
pub use learner::{
    Applied, Learner, LogprobChange, Update,
    critic::{Critic, CriticConfig, ValueHead, ValueModel},
    local::{LearnerState, LocalGradient, LocalLearner},
    loss_scale::LossScale,
    micro_batch::{Layout, MicroBatch, MicroBatching, ValueTargets, micro_batches},
    oom::OomBackoff,
    optim::{
        AdamW, Moments, Muon, MuonConfig, NamedState, OptimConfig, Optimizer, ParameterStep, Part,
        StepOutcome, check_finite, clipped_step, fingerprint, global_norm, hidden_matrix,
    },
    replicas::Replicas,
    sft::{CrossEntropy, sft_step},
    update::{EXPERT_LOAD_MAX, ROUTER_AUX_LOSS, UpdateReport, UpdateTarget, Updater},
};
pub use observer::{Observer, Phase};
pub use phrases::Phrases;
pub use report::{SamplingReport, UpdateTotals};
pub use sample::{Sample, TokenValues};
pub use sampler::{
    Sampler,
    config::{OnCap, SamplerConfig},
    curriculum::{
        Beta, Curriculum, CurriculumRule, PosteriorRule, PromptHistory, PromptRecord, Selection,
        VarianceRule,
    },
    dynamic::{BufferStatus, Dynamic, GroupBuffer, KeepAll, Spread, copies},
    reward::reward,
    sampled::Prefetched,
    task::Task,
};
pub use trainer::{StepReport, Trainer};
