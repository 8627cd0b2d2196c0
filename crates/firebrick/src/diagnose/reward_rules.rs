//! Rules on what a reward teaches and what a step costs.

use firebrick_core::Verdict;
use firebrick_recipe::{Recipe, RewardKind};
use firebrick_runs::Which;

use super::{
    finding::{RuleFinding, percent},
    history::History,
};

/// Finds a weighted reward whose format is learnt and whose answers are not.
pub(super) fn by_form(history: &History, recipe: &Recipe) -> Option<RuleFinding> {
    const LEARNT: f64 = 0.8;
    const RISEN: f64 = 0.1;
    const FEW: f64 = 0.2;
    const GAIN: f64 = 0.05;

    let RewardKind::Weighted { parts } = recipe.reward_kind() else { return None };
    // The first part's verdict is the completion's.
    let right = history.share_right()?;
    let at_first = history.share_right_at_first()?;

    let risen = |name: &str| {
        let part = format!("reward/part/{name}");
        let first = history.mean_first(&part)?;
        let now = history.mean(&part)?;
        (now >= LEARNT && now - first >= RISEN).then_some((first, now))
    };
    let (part, (first, now)) =
        parts.iter().skip(1).find_map(|part| Some((part, risen(&part.name)?)))?;

    if !history.is_long() || right > FEW || right > at_first + GAIN {
        return None;
    }

    Some(RuleFinding {
        what: format!("The reward is earned by its part {}, and not by right answers.", part.name),
        evidence: vec![
            format!("reward/part/{} rose from {first:.2} to {now:.2}", part.name),
            format!(
                "{} of the recent completions are right; at first it was {}",
                percent(right),
                percent(at_first)
            ),
        ],
        remedy: format!(
            "Give this part less weight in reward.parts ({}): the whole form should be worth less than one right answer. If \
             the form is learnt by now, leave the part out.",
            part.weight
        ),
        which: Some(Which::Verdict(Verdict::Wrong)),
        ..RuleFinding::default()
    })
}

/// Finds a credit that was lost within a few steps.
pub(super) fn fell(history: &History, recipe: &Recipe) -> Option<RuleFinding> {
    const LOST: f64 = 0.3;

    // A slow decline has other causes, which have rules of their own.
    let (step, best) = history.fallen("reward/credit", LOST)?;
    let now = history.mean("reward/credit")?;
    // A curriculum goes on to harder prompts.
    if best - now <= LOST || recipe.sampling.curriculum.is_some() {
        return None;
    }

    let gradient = history
        .most("update/grad_norm")
        .map(|(step, norm)| format!("update/grad_norm was highest in step {step}, {norm:.1}"));
    Some(RuleFinding {
        what: format!(
            "The policy has lost what it could: the credit fell from {best:.2} to {now:.2}."
        ),
        evidence: [Some(format!("reward/credit was {best:.2} around step {step}")), gradient]
            .into_iter()
            .flatten()
            .collect(),
        remedy: format!(
            "Go back to a checkpoint of step {step} or before, if there is one: remove the newer folders in checkpoints, \
             and continue with --resume and optim.lr = {:e} in place of {:e}. Otherwise begin a new run with that. \
             checkpoint.best = true keeps the best checkpoint.",
            recipe.learning_rate() / 10.0,
            recipe.learning_rate()
        ),
        which: Some(Which::Verdict(Verdict::Wrong)),
        ..RuleFinding::default()
    })
}

/// Finds that training prompts get better while prompts that are never trained on get worse.
pub(super) fn by_heart(history: &History, _: &Recipe) -> Option<RuleFinding> {
    const FALLEN: f64 = 0.1;
    const RISEN: f64 = 0.1;
    /// A fall of this many standard errors, of a difference of two accuracies, is not chance in a run of many
    /// evaluations.
    const ERRORS: f64 = 3.0;

    let chance =
        history.heldout.map_or(0.0, |prompts| ERRORS * (0.5 / prompts.max(1) as f64).sqrt());
    let fallen = FALLEN.max(chance);

    let first = history.mean_first("reward/credit")?;
    let recent = history.mean("reward/credit")?;
    let (best_step, best) = history.most("eval/heldout_accuracy")?;
    let latest = history.newest("eval/heldout_accuracy")?;
    if !history.is_long()
        || recent - first < RISEN
        || best - latest < fallen
        || recent - latest < fallen
    {
        return None;
    }

    Some(RuleFinding {
        what: "The policy gets better on the prompts that it is trained on, and worse on others.".into(),
        evidence: vec![
            format!("reward/credit rose from {first:.3} to {recent:.3}"),
            format!("eval/heldout_accuracy is {latest:.3}, and was {best:.3} after step {best_step}"),
        ],
        remedy: "Use more prompts (data.train), or end the run earlier: train.patience ends it, and checkpoint.best = true keeps the \
                 best checkpoint. If right answers of the training prompts look wrong to you, the judge is too kind to them: make it \
                 stricter, and keep the policy near its start (loss.kl)."
            .into(),
        which: Some(Which::Verdict(Verdict::Right)),
        ..RuleFinding::default()
    })
}

/// Finds a reward that stays where it was, though nothing else is wrong.
pub(super) fn flat(history: &History, recipe: &Recipe) -> Option<RuleFinding> {
    const STEPS: u64 = 100;
    const GAIN: f64 = 0.02;
    /// Above this accuracy there may be nothing left to gain.
    const GOOD: f64 = 0.85;
    const MOST: f64 = 0.5;

    let first = history.mean_first("reward/credit")?;
    let recent = history.mean("reward/credit")?;
    let heldout =
        history.oldest("eval/heldout_accuracy").zip(history.newest("eval/heldout_accuracy"));
    let gains =
        recent > first + GAIN || heldout.is_some_and(|(first, recent)| recent > first + GAIN);
    if history.last() < STEPS || gains || recent > GOOD {
        return None;
    }

    let filtered =
        history.share("sampling/groups_filtered", "sampling/groups_sampled").unwrap_or(0.0);
    let mut evidence =
        vec![format!("reward/credit was {first:.3} in the first steps and is {recent:.3}")];
    evidence.extend(heldout.map(|(first, recent)| {
        format!("eval/heldout_accuracy was {first:.3} at first and is {recent:.3}")
    }));
    evidence.push(format!(
        "{} of the recent groups were filtered, because their rewards had no spread",
        percent(filtered)
    ));

    let remedy = if filtered > MOST {
        format!(
            "Use prompts that the model answers right in some completions and wrong in others: \
             only their groups teach. A larger rollout.group_size ({}) finds spread in more \
             groups.",
            recipe.rollout.group_size
        )
    } else {
        format!(
            "Raise optim.lr ({}) threefold, and again if loss/approx_kl stays below some thousandths. If that is no \
             help, look at the completions: the judge may reward something else than you want.",
            recipe.learning_rate()
        )
    };

    Some(RuleFinding {
        what: format!("Nothing has been learnt in {} steps.", history.last()),
        evidence,
        remedy,
        which: Some(Which::Any),
        ..RuleFinding::default()
    })
}

/// Finds speed that is lost: to the judge, or from step to step.
pub(super) fn slow(history: &History, recipe: &Recipe) -> Option<RuleFinding> {
    /// Share of a step that may be spent waiting.
    const WAITING: f64 = 0.3;
    /// Shorter steps are not worth a finding.
    const SECONDS: f64 = 1.0;
    /// Less than this share of the speed is a finding. On a shared machine the speed varies by half.
    const LEFT: f64 = 0.4;
    /// Change of the completions' length that explains lost speed: longer ones take longer, by token too, and few tokens
    /// leave a device idle.
    const LONGER: f64 = 1.5;

    let step = history.mean("time/step").filter(|seconds| *seconds > SECONDS)?;
    let waiting = history.mean("time/reward_wait").unwrap_or(0.0);
    if waiting > WAITING * step {
        let judge = match recipe.fallible_kind() {
            RewardKind::Command { .. } => {
                "Let more copies of the program judge at once (reward.processes), or make the \
                 program of reward.program faster."
            }
            RewardKind::Python { .. } => {
                "Let more copies of Python judge at once (reward.processes), or make the function of reward.file faster."
            }
            RewardKind::Judge { .. } => {
                "Let each server judge more at once (reward.at_once), add servers, or ask for shorter answers (reward.rubric)."
            }
            RewardKind::Model { .. } => {
                "Let the reward model score more at once (reward.batch_tokens), or take a smaller one."
            }
            _ => {
                "Look at the slowest completions: a verifier that gives up on many (reward/over_budget) is slow on all of them."
            }
        };
        return Some(RuleFinding {
            what: format!("{} of a step is spent waiting for the judge.", percent(waiting / step)),
            evidence: vec![format!(
                "time/step is {step:.1} s, and time/reward_wait {waiting:.1} s of it"
            )],
            remedy: judge.into(),
            ..RuleFinding::default()
        });
    }

    let grown = history.mean("rollout/length_mean")? / history.mean_first("rollout/length_mean")?;
    if !history.is_long() || !(1.0 / LONGER..=LONGER).contains(&grown) {
        return None;
    }

    // A step without an update, or without a rollout, has no speed.
    let lost = |name: &str| {
        let first = history.mean_first(name)?;
        let now = history.mean_above_zero(name)?;
        (now < LEFT * first).then_some((first, now))
    };
    let speeds =
        [("Sampling", "rollout/tokens_per_second"), ("Updating", "update/tokens_per_second")];
    let (phase, name, (first, now)) =
        speeds.into_iter().find_map(|(phase, name)| Some((phase, name, lost(name)?)))?;

    Some(RuleFinding {
        what: format!("{phase} has become slow, at completions of about the same length."),
        evidence: vec![format!("{name} was {first:.0} in the first steps and is {now:.0}")],
        remedy: "Look for another program on the processor or the GPU, for a machine that swaps \
                 (compare memory/peak_bytes with its memory), and for heat. `firebrick bench` says \
                 how fast the device is alone."
            .into(),
        ..RuleFinding::default()
    })
}
