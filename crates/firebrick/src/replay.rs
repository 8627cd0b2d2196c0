//! A batch whose update was skipped, computed again, completion by completion.

use std::{
    fs, mem,
    path::{Path, PathBuf},
};

use burn::module::Module as _;
use firebrick_core::{Detokenizer as _, Step};
use firebrick_data::DateTime;
use firebrick_models::PolicyModel as _;
use firebrick_runs::read_own;
use firebrick_train::{
    Sample,
    learner::{AuxModels, TeacherDistributions, UpdateTarget, check_finite, global_norm},
};

use crate::{
    Error,
    build::{BuiltRun, build_run},
    device, recipe_of_run,
    source::Sources,
};

/// A batch that was computed again.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Checkpoint whose policy computed it.
    pub checkpoint: PathBuf,
    /// Loss and gradient of the whole batch, as the run computed them.
    pub whole: Gradient,
    /// Completions, each as a separate batch.
    pub completions: Vec<Replayed>,
}

/// Loss of a batch and the norm of its gradient. They are not finite if something is wrong.
#[derive(Clone, Copy, Debug)]
pub struct Gradient {
    /// Loss.
    pub loss: f64,
    /// Norm over all parameters, before clipping.
    pub norm: f64,
}

/// A completion of a batch.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// Text by the policy.
    pub text: String,
    /// Number of tokens that count.
    pub tokens: usize,
    /// Mean advantage of the completion's tokens.
    pub advantage: f64,
    /// Largest difference of a token's log-probability between the policy that sampled it and the policy of
    /// the checkpoint.
    pub change: f64,
    /// Loss and gradient of the completion alone.
    pub gradient: Gradient,
}

impl Gradient {
    fn is_finite(self) -> bool {
        self.loss.is_finite() && self.norm.is_finite()
    }
}

impl Replay {
    /// Says what the numbers mean: what is to blame for the skipped update, and what to do.
    pub fn conclusion(&self) -> String {
        let count = self.completions.len();
        let broken = self.completions.iter().filter(|row| !row.gradient.is_finite()).count();
        let no_advantage = self.completions.iter().filter(|row| !row.advantage.is_finite()).count();

        if no_advantage > 0 {
            return format!(
                "The advantages of {no_advantage} of {count} completions are not finite: the fault is in \
                 their rewards or in the estimator, and not in the policy."
            );
        }
        if broken > 0 && broken == count {
            return "No completion is to blame: the gradient of each is not finite. The weights are finite, so \
                    they have grown too large to compute with, or the number format is too narrow. Resume \
                    from an older checkpoint with a smaller optim.lr, or set model.dtype = \"float32\"."
                .into();
        }
        if broken > 0 {
            return format!(
                "{broken} of {count} completions are to blame: their loss or gradient is not finite."
            );
        }
        if self.whole.is_finite() {
            return "Nothing is wrong here: loss and gradient of the batch are finite. The update was skipped with \
                    weights of another step, or on another device; --checkpoint chooses the weights."
                .into();
        }
        "Each completion is finite by itself, and together they are too large: a smaller optim.lr from an older \
         checkpoint on, or an advantage with a smaller scale, keeps them finite."
            .into()
    }
}

/// Computes the batch in the file `batch` of a run's folder again. It uses the policy of `checkpoint`, or of the run's
/// newest checkpoint that is no newer than the batch. If the run ended with the batch, this is exactly the policy whose
/// update was skipped, because skipped updates do not change the policy. Otherwise it is a policy of a nearby step.
///
/// # Errors
/// When a file can't be read, the checkpoint is broken, or the device fails.
pub fn replay(
    batch: &Path,
    checkpoint: Option<&Path>,
    sources: &Sources,
    now: DateTime,
) -> Result<Replay, Error> {
    let text = read_own(batch, BATCH_BYTES)?;
    let samples: Vec<Sample> = serde_json::from_str(&text)
        .map_err(|error| Error::Batch { path: batch.to_owned(), problem: error.to_string() })?;
    let run = batch.parent().filter(|run| !run.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let recipe = recipe_of_run(run)?.recipe;
    let checkpoint = match checkpoint {
        Some(checkpoint) => checkpoint.to_owned(),
        None => newest(run, step_in(batch, "skipped-step-").unwrap_or(Step::MAX))?,
    };

    // The file may be damaged or written by hand, so nothing is indexed before the lists are checked.
    let lists = |sample: &Sample| {
        let all = &sample.completion;
        let count = all.len();
        let numbers = [&sample.rollout_logprobs, &sample.old_logprobs, &sample.advantages];
        let optional = [&sample.ref_logprobs, &sample.importance];
        !sample.prompt.is_empty()
            && !all.is_empty()
            && sample.mask.len() == count
            && numbers.iter().all(|list| list.len() == count)
            && optional.iter().all(|list| list.is_empty() || list.len() == count)
            && sample
                .token_values
                .as_ref()
                .is_none_or(|token| token.values.len() == count && token.returns.len() == count)
    };
    if !samples.iter().all(lists) {
        let problem = "a list of a completion does not have one entry for each token".into();
        return Err(Error::Batch { path: batch.to_owned(), problem });
    }

    let BuiltRun { mut trainer, tokenizer, .. } =
        build_run(&recipe, Some(&checkpoint), sources, now)?;
    let vocab = trainer.learner.policy.head().dims()[0];
    let tokens = samples.iter().flat_map(|sample| {
        sample.prompt.iter().chain(&sample.teacher_prompt).chain(&sample.completion)
    });
    if let Some(token) = tokens.into_iter().find(|&&token| token as usize >= vocab) {
        let problem = format!("token {token} is not among the {vocab} of the policy's vocabulary");
        return Err(Error::Batch { path: batch.to_owned(), problem });
    }

    let learner = &mut trainer.learner;
    learner.updater.loss_scale = learner.loss_scale();
    // Which tokens have a policy loss follows from the whole batch, so it is found before a completion is alone.
    let share = mem::replace(&mut learner.updater.top_entropy_quantile, 1.0);
    let learner = &*learner;

    let teachers = learner.teachers.as_ref();
    let teachers = teachers.and_then(|it| it.distributions(learner.policy.valid()));
    let teachers = teachers.as_ref().map(|it| it as &dyn TeacherDistributions);
    let aux = AuxModels { critic: learner.critic.as_ref(), teachers };
    let gradient = |samples: &[Sample]| {
        let computed =
            learner.updater.gradients_with(&learner.policy, aux, UpdateTarget::Policy, samples)?;
        let norm = global_norm(&learner.policy, &computed.gradients)?;
        let change = computed.logprob_change.max;
        Ok::<_, Error>((Gradient { loss: computed.loss, norm }, change))
    };

    let device = learner.policy.device();
    let smaller = device::smaller_model();
    device::unsaved(&recipe, &device.inner(), "the replay", smaller, || {
        check_finite(&learner.policy)?;
        let samples = if share < 1.0 {
            learner.updater.keep_top_entropy(&learner.policy, &samples, share)?
        } else {
            samples
        };
        let (whole, _) = gradient(&samples)?;
        let replayed = |sample: &Sample| {
            let (gradient, change) = gradient(std::slice::from_ref(sample))?;
            let own: Vec<f64> =
                sample.policy_tokens().map(|at| f64::from(sample.advantages[at])).collect();
            Ok(Replayed {
                text: tokenizer.detokenize(&sample.completion),
                tokens: own.len(),
                advantage: own.iter().sum::<f64>() / own.len() as f64,
                change,
                gradient,
            })
        };

        let counted = samples.iter().filter(|sample| sample.loss_tokens() > 0);
        let completions = counted.map(replayed).collect::<Result<_, Error>>()?;
        Ok(Replay { checkpoint, whole, completions })
    })
}

/// Limit of a batch's bytes. One with 1,000 completions of 16,384 tokens has some 500 MB.
const BATCH_BYTES: u64 = 4 << 30;

/// Finds the newest checkpoint of the run in this folder that has done no more than `last_step` steps.
fn newest(run: &Path, last_step: Step) -> Result<PathBuf, Error> {
    let folder = run.join("checkpoints");
    let entries = fs::read_dir(&folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, _>>())
        .map_err(|source| Error::File { path: folder.clone(), source })?;

    let steps = entries.into_iter().filter_map(|path| Some((step_in(&path, "step-")?, path)));
    let newest = steps.filter(|(step, _)| *step <= last_step).max();
    newest.map(|(_, path)| path).ok_or_else(|| Error::File {
        path: folder,
        source: std::io::Error::new(
            std::io::ErrorKind::NotFound,
            "it has no checkpoint from before the batch",
        ),
    })
}

/// Reads the number after `prefix` in a file's name.
fn step_in(path: &Path, prefix: &str) -> Option<Step> {
    let name = path.file_name()?.to_str()?.strip_prefix(prefix)?;
    name.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_conclusion_names_who_is_to_blame() {
        let finite = Gradient { loss: 1.0, norm: 2.0 };
        let nan = Gradient { loss: f64::NAN, norm: f64::NAN };
        let row = |advantage, gradient| Replayed {
            text: String::new(),
            tokens: 1,
            advantage,
            change: 0.0,
            gradient,
        };
        let conclusion = |whole, completions| {
            Replay { checkpoint: PathBuf::new(), whole, completions }.conclusion()
        };

        let (good, bad) = (row(1.0, finite), row(1.0, nan));
        for (whole, rows, words) in [
            (nan, vec![bad.clone(), bad.clone()], "No completion is to blame"),
            (nan, vec![bad, good.clone()], "1 of 2 completions are to blame"),
            (nan, vec![row(f64::NAN, nan), good.clone()], "advantages of 1 of 2"),
            (nan, vec![good.clone(), good.clone()], "together they are too large"),
            (finite, vec![good], "Nothing is wrong here"),
        ] {
            let said = conclusion(whole, rows);
            assert!(said.contains(words), "{said}");
        }
    }
}
