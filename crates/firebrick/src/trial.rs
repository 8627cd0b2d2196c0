//! A trial of a recipe before its run: one step with a few prompts, of which nothing is kept.

use std::path::PathBuf;

use burn::module::Module as _;
use firebrick_core::{Completion, RewardedGroup, Score};
use firebrick_data::DateTime;
use firebrick_models::PolicyModel as _;
use firebrick_train::Observer;

use crate::{
    Error,
    build::{BuiltRun, build_with_parts},
    custom_parts::CustomParts,
    device,
    recipe::{Dynamic, Recipe, RewardKind},
    source::Sources,
};

/// What a step with a few prompts was like.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The prompts with their judged completions.
    pub groups: Vec<RewardedGroup>,
    /// The score of each prompt's own reference as the completion; `None` if it has no reference.
    pub references: Vec<Option<Score>>,
    /// Description of the policy's size.
    pub size: String,
    /// Seconds that sampling took.
    pub rollout_seconds: f64,
    /// Seconds that judging took.
    pub reward_seconds: f64,
    /// Seconds that the update took.
    pub update_seconds: f64,
    /// Completions of an evaluation of the run.
    pub eval_completions: usize,
}

/// Samples `prompts` of the prompts to train on, each as often as the recipe's step would, judges the completions, and
/// makes one update with all of them. The recipe's SFT is left out. Once the model is loaded, what data, model and verifier
/// have to say goes to `hear`, also if the step then fails: a judge says why it could not judge.
///
/// # Errors
/// As for a run of the recipe, until its first step is done.
pub fn trial(
    recipe: &Recipe,
    prompts: usize,
    sources: &Sources,
    now: DateTime,
    observer: &mut dyn Observer,
    hear: &mut dyn FnMut(String),
) -> Result<Trial, Error> {
    // An engine on servers writes weights there, or into a folder of this one's name next to those of other runs.
    let name = format!("firebrick-try-{}", std::process::id());
    let folder = std::env::temp_dir().join(&name);
    if recipe.rollout.engine.is_remote() {
        // What is there already is somebody else's.
        std::fs::create_dir(&folder)
            .map_err(|source| Error::File { path: folder.clone(), source })?;
    }
    let shared = recipe.rollout.engine.weights.as_ref();
    let _removed = [shared.map(|weights| weights.join(name)), Some(folder.clone())]
        .map(|folder| folder.map(RemovedFolder));
    let parts = CustomParts { run_folder: Some(folder), ..CustomParts::default() };
    let recipe = of_trial(recipe, prompts);
    let mut built = build_with_parts(&recipe, parts, None, sources, now)?;
    let learner = &mut built.trainer.learner;
    if learner.updater.objective.needs_reference() {
        learner.reference = Some(learner.policy.valid());
    }
    if let Some(critic) = &built.critic {
        learner.critic = Some(critic.new_critic(&learner.policy));
    }

    let BuiltRun { mut trainer, heldout, sets, notes, size, .. } = built;
    let device = trainer.learner.policy.device().inner();
    let smaller = device::fewer_sequences(&recipe);
    let report =
        device::unsaved(&recipe, &device, "the trial", smaller, || Ok(trainer.step(observer)?));
    notes.try_iter().for_each(&mut *hear);
    let report = report?;

    let verifier = &trainer.sampler.task.verifier;
    let references = report.groups.iter().map(|group| {
        let prompt = &group.group.prompt;
        let reference = Some(&prompt.reference).filter(|reference| !reference.is_empty())?;
        Some(verifier.score(prompt, &Completion::of_text(reference.clone())))
    });
    let references = references.collect();
    notes.try_iter().for_each(hear);

    let further = sets.iter().map(|set| set.prompts.len() * set.samples).sum::<usize>();
    Ok(Trial {
        references,
        size,
        rollout_seconds: report.sampling.rollout_seconds,
        reward_seconds: report.sampling.reward_seconds,
        update_seconds: report.update.seconds,
        eval_completions: heldout.len() * recipe.eval.samples.max(1) + further,
        groups: report.groups,
    })
}

/// A folder that is removed at the end, if it is there.
struct RemovedFolder(PathBuf);

impl Drop for RemovedFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0); // Nobody may have written it.
    }
}

/// Returns the recipe of the trial: one step that trains on every group, with the same work for each completion as the
/// run's steps have.
fn of_trial(recipe: &Recipe, prompts: usize) -> Recipe {
    let mut recipe = recipe.clone();
    recipe.sft.steps = 0;
    recipe.sampling.prompts_per_step = prompts;
    recipe.sampling.dynamic = Dynamic::Off;
    recipe.sampling.curriculum = None;
    recipe.rollout.max_staleness = 0;
    recipe.train.steps = 1;
    recipe.train.mini_batch = recipe.train.mini_batch.min(prompts * recipe.rollout.group_size);
    recipe.train.adaptive = None;

    // A trial is for finding out on how many answers a judge fails.
    recipe.reward.max_errors = 1.0;
    for kind in recipe.reward_kinds_mut() {
        if let RewardKind::Python { restarts, .. } | RewardKind::Command { restarts, .. } = kind {
            *restarts = u32::MAX;
        }
    }
    recipe
}

impl Trial {
    /// Estimates the seconds of a step of the run, without and with all the rounds of dynamic sampling that it may
    /// take. Without a cap on rounds, a step is taken to need ten at most.
    pub fn step_seconds(&self, recipe: &Recipe) -> [f64; 2] {
        let scale = recipe.sampling.prompts_per_step as f64 / self.groups.len().max(1) as f64;
        let rounds = match (recipe.sampling.dynamic, recipe.sampling.max_rounds) {
            (Dynamic::Off, _) => 1,
            (_, 0) => 10,
            (_, rounds) => rounds,
        };
        [1, rounds].map(|rounds| {
            let sampled = self.rollout_seconds + self.reward_seconds;
            scale * (rounds as f64 * sampled + self.update_seconds)
        })
    }

    /// Estimates the seconds of an evaluation of the run.
    pub fn eval_seconds(&self) -> f64 {
        let completions: usize = self.groups.iter().map(|of| of.group.completions.len()).sum();
        let of_one = (self.rollout_seconds + self.reward_seconds) / completions.max(1) as f64;
        of_one * self.eval_completions as f64
    }
}
