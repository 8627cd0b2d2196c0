//! The sampler: it draws prompts, samples completions, judges them, and keeps the groups that teach something.

mod collect;
pub(crate) mod config;
pub(crate) mod curriculum;
mod draw;
pub(crate) mod dynamic;
mod judge;
pub(crate) mod reward;
pub(crate) mod sampled;
pub(crate) mod task;

use firebrick_core::PromptSource;
use firebrick_rollout::RolloutEngine;

pub use firebrick_core::config::{CurriculumRule, Dynamic, OnCap, PosteriorRule, VarianceRule};

pub use config::SamplerConfig;
pub use curriculum::{Beta, Curriculum, PromptHistory, PromptRecord, Selection};
pub use dynamic::{BufferStatus, GroupBuffer, KeepAll, Spread, copies};
pub use reward::reward;
pub use sampled::Prefetched;
pub use task::Task;

use collect::Collection;
use sampled::{Beginning, Sampled};

use crate::{error::TrainError, eval::check_error_rate, observer::Observer};

/// Samples and judges the groups of a step, with an engine for policies of the type `P`.
pub struct Sampler<P> {
    /// Samples completions.
    pub engine: Box<dyn RolloutEngine<P>>,
    /// Source of the prompts.
    pub source: Box<dyn PromptSource>,
    /// Judges completions.
    pub task: Task,
    /// Sizes and rules.
    pub config: SamplerConfig,
}

impl<P> Sampler<P> {
    /// Samples until there are enough groups to train on, or the cap is reached. `generated` is raised by the
    /// completions, also if the cap is an error.
    ///
    /// # Errors
    /// When the engine or the verifier fails, or the cap was reached and the configuration makes that an error.
    pub(crate) fn sample(
        &mut self,
        from: &Beginning<'_>,
        generated: &mut u64,
        observer: &mut dyn Observer,
    ) -> Result<Sampled, TrainError> {
        let Sampler { engine, source, task, config } = self;
        source.seek(from.cursor);

        let mut collection = Collection::begin(config, from);
        collection.run(engine.as_mut(), source.as_mut(), task, from.vocab, observer)?;
        *generated += collection.sampled.completions();
        collection.finish()
    }

    /// Fails if too many of the completions have no verdict.
    pub(crate) fn check_error_rate(&self, sampled: &Sampled) -> Result<(), TrainError> {
        check_error_rate(sampled.errors(), sampled.completions(), self.config.max_errors)
    }
}
