//! Training algorithm: sampling, advantage, batch, loss, update, evaluation, checkpoint.
//!
//! [`Trainer::step`] is the loop. A [`sampler`] draws prompts, samples completions and judges them; the [`algorithm`] turns
//! rewards into advantages, and log-probabilities into a loss; a [`learner`] turns that into weights. Nothing here knows
//! a tokenizer, a data set or a recipe.
//!
//! An update is fixed before it is split, because every divisor counts the whole update. So micro-batches,
//! padding and order change memory and speed, and the loss by rounding alone. Until a [`learner::MicroBatch`] is made,
//! everything is plain numbers, which a test can write down:
//!
//! ```
//! use firebrick_core::{Completion, FinishReason};
//! use firebrick_train::{Sample, algorithm::GroupNorm};
//!
//! // Two answers to one prompt, of which the second is right.
//! let advantages = GroupNorm::default().of_group(&[-1.0, 1.0]);
//! assert!((advantages[1] - 0.5_f32.sqrt()).abs() < 1e-5);
//!
//! let written = Completion::written(vec![7, 8], vec![-0.1, -2.3], FinishReason::Stop);
//! let sample = Sample::new(&[1, 2, 3], &written, 0).with_advantage(advantages[1]);
//! assert_eq!(sample.loss_tokens(), 2);
//! ```

pub mod adaptive;
pub mod algorithm;
pub mod checkpoint;
mod config;
mod error;
pub mod eval;
mod interruption;
pub mod learner;
mod logprob_check;
mod numbers;
mod observer;
mod phrases;
mod report;
mod sample;
pub mod sampler;
mod samples;
mod trainer;
mod updates;

pub use checkpoint::TrainerState;
pub use config::{OldLogprobs, TrainConfig};
pub use error::TrainError;
pub use interruption::Interruption;
pub use learner::{Learner, LocalLearner};
pub use observer::{Observer, Phase, PhaseTokens};
pub use phrases::Phrases;
pub use report::{SamplingReport, UpdateTotals};
pub use sample::{Sample, TokenValues};
pub use sampler::{Sampler, SamplerConfig};
pub use trainer::{StepReport, Trainer};
