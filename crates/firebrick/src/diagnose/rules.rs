//! Rules of a diagnosis, each of which looks at the numbers of a run and names one thing that may be wrong.

use std::ops::Range;

use firebrick_core::Verdict;
use firebrick_recipe::{Dynamic, LossKind, Recipe, RewardKind};
use firebrick_runs::Which;

use super::{
    finding::{RuleFinding, percent},
    history::History,
    part_rules::{
        cut_off_noise, entropy_gone, length_grows, mismatch, no_spread, over_optimised, stale,
        wrong_grows,
    },
    reward_rules::{by_form, by_heart, fell, flat, slow},
};
use crate::rates::Rates;

/// A rule that looks for one kind of fault.
pub(super) struct Rule {
    pub(super) name: &'static str,
    /// Findings that explain this one. If the run has any of them, the rule is left out.
    pub(super) after: &'static [&'static str],
    pub(super) check: fn(&History, &Recipe) -> Option<RuleFinding>,
}

/// All rules, in this order: infrastructure, answers, the training signal, the policy's updates, and last its accuracy
/// and its cost.
pub(super) const RULES: &[Rule] = &[
    Rule { name: "judge", after: &[], check: judge },
    Rule { name: "skipped", after: &[], check: skipped },
    Rule { name: "still", after: &[], check: still },
    Rule { name: "mismatch", after: &[], check: mismatch },
    Rule { name: "too-fast", after: &["mismatch"], check: too_fast },
    Rule { name: "fell", after: &["judge", "mismatch", "too-fast"], check: fell },
    Rule { name: "stale", after: &["mismatch", "too-fast", "fell"], check: stale },
    // Where wrong completions grow, they are cut off and have no answer in the end.
    Rule { name: "wrong-grows", after: &["judge", "too-fast", "fell"], check: wrong_grows },
    Rule { name: "cut-off", after: &["judge", "too-fast", "fell", "wrong-grows"], check: cut_off },
    Rule {
        name: "cut-off-noise",
        after: &["judge", "too-fast", "fell", "wrong-grows", "cut-off"],
        check: cut_off_noise,
    },
    Rule {
        name: "unparsable",
        after: &["judge", "too-fast", "fell", "wrong-grows", "cut-off"],
        check: unparsable,
    },
    Rule {
        name: "form",
        after: &["judge", "too-fast", "fell", "wrong-grows", "cut-off", "unparsable"],
        check: form,
    },
    Rule {
        name: "one-answer",
        after: &["judge", "fell", "wrong-grows", "cut-off"],
        check: one_answer,
    },
    Rule {
        name: "too-hard",
        after: &["judge", "too-fast", "fell", "wrong-grows", "cut-off", "unparsable", "one-answer"],
        check: too_hard,
    },
    Rule { name: "too-easy", after: &["judge", "one-answer"], check: too_easy },
    Rule {
        name: "entropy-gone",
        after: &["fell", "too-easy", "one-answer", "still"],
        check: entropy_gone,
    },
    Rule {
        name: "entropy-grows",
        after: &["too-fast", "fell", "mismatch", "still"],
        check: entropy_grows,
    },
    Rule {
        name: "no-spread",
        after: &[
            "judge",
            "too-fast",
            "fell",
            "wrong-grows",
            "cut-off",
            "unparsable",
            "one-answer",
            "too-hard",
            "too-easy",
            "entropy-gone",
        ],
        check: no_spread,
    },
    Rule {
        name: "length-grows",
        after: &["cut-off", "too-fast", "fell", "wrong-grows"],
        check: length_grows,
    },
    Rule {
        name: "over-optimised",
        after: &["judge", "too-fast", "fell", "wrong-grows", "cut-off"],
        check: over_optimised,
    },
    Rule {
        name: "by-form",
        after: &["judge", "too-fast", "fell", "wrong-grows", "cut-off", "over-optimised"],
        check: by_form,
    },
    Rule { name: "by-heart", after: &["too-fast", "over-optimised"], check: by_heart },
    // `stale` and `cut-off-noise` are small faults, which do not explain that nothing is learnt.
    Rule {
        name: "flat",
        after: &[
            "judge",
            "skipped",
            "still",
            "mismatch",
            "too-fast",
            "fell",
            "wrong-grows",
            "cut-off",
            "unparsable",
            "form",
            "one-answer",
            "too-hard",
            "too-easy",
            "entropy-gone",
            "entropy-grows",
            "no-spread",
            "length-grows",
            "over-optimised",
            "by-form",
            "by-heart",
        ],
        check: flat,
    },
    Rule { name: "slow", after: &[], check: slow },
];

fn judge(history: &History, recipe: &Recipe) -> Option<RuleFinding> {
    const TOLERATED: f64 = 0.02;

    let (completions, errors) = history.errors;
    let share = errors as f64 / completions.max(1) as f64;
    let end_reason = history.ended.as_deref().filter(|why| {
        ["could not be judged", "is given up", "can't be asked"]
            .iter()
            .any(|sign| why.contains(sign))
    });
    if share <= TOLERATED && end_reason.is_none() {
        return None;
    }

    let remedy = match recipe.fallible_kind() {
        RewardKind::Command { .. } => {
            "Fix the program of reward.program: give it a line by hand, as the book shows. The \
             run's notes say why it failed first."
        }
        RewardKind::Python { .. } => {
            "Fix the function of reward.file; `firebrick try` asks it about a few completions. The run's notes say \
             why it failed first."
        }
        RewardKind::Judge { .. } => {
            "The run's notes say what the model answered, or why a server was not asked. Ask for the verdict on a line of its \
             own in reward.rubric, raise reward.max_tokens, or mend reward.servers."
        }
        RewardKind::Environment { .. } => {
            "Look at the notes of the run, which say why the environment failed first."
        }
        RewardKind::Weighted { .. } | RewardKind::Model { .. } => {
            "Look at the notes of the run, which say why the judge failed first."
        }
        _ => {
            "Look at the references: the verifier of reward.kind can't read them. Choose another \
             reward.kind, or another column for the references (data.columns.reference)."
        }
    };

    let mut evidence = Vec::new();
    if completions > 0 {
        evidence.push(format!("{errors} of the last {completions} completions have no verdict"));
    }
    evidence.extend(end_reason.map(|why| format!("the run ended because {why}")));

    Some(RuleFinding {
        what: "The judge fails, and nothing is learnt from the completions that it could not \
               judge."
            .into(),
        evidence,
        remedy: remedy.into(),
        which: Some(Which::Verdict(Verdict::Error)),
        ..RuleFinding::default()
    })
}

fn skipped(history: &History, recipe: &Recipe) -> Option<RuleFinding> {
    let steps = history.steps_above("update/skipped", 0.0);
    let first = steps.first()?;

    Some(RuleFinding {
        what: "Updates were skipped, because their gradient was not finite.".into(),
        evidence: vec![format!(
            "update/skipped is above 0 in {} steps, first in step {first}",
            steps.len()
        )],
        remedy: format!(
            "Find the completion to blame: run `firebrick replay` on \
             skipped-step-{first:06}-0.json in the run's folder. If no completion is to blame by \
             itself, lower optim.lr ({}) or optim.max_grad_norm ({}).",
            recipe.learning_rate(),
            recipe.optim.max_grad_norm
        ),
        ..RuleFinding::default()
    })
}

fn still(history: &History, recipe: &Recipe) -> Option<RuleFinding> {
    /// Log-probabilities that change by less than this have not been trained: the one that changes most, and
    /// their mean. The quickstart has 3 and 0.007 at its rate, and 9e-4 and 3e-6 at a ten-thousandth of it.
    const MOVED: f64 = 1e-4;
    const MOVED_ON_AVERAGE: f64 = 1e-5;
    /// The same for the whole of a step's single update. SmolLM2-135M has 0.002 with adapters at 1e-6, 0.02 at
    /// 1e-5, and 0.02 to 0.27 at 3e-4, averaged over ten steps; with all weights it has 0.05 at 1e-6.
    const MOVED_BY_ONE: f64 = 5e-3;
    /// Credits between which a policy has something to learn from. With no right answers, or only right ones, it has no
    /// reason to move, whatever its rate is.
    const TEACHES: Range<f64> = 0.02..0.85;

    // At first the critic learns alone.
    let alone = if recipe.has_critic() { recipe.critic.warmup_steps } else { 0 };
    if history.last() < alone + 5 || history.sum("update/count") == 0.0 {
        return None;
    }

    let rate = history.mean("update/lr")?;
    let change = history.mean("loss/logprob_change_max").unwrap_or(f64::INFINITY);
    let mean = history.mean("loss/logprob_change").unwrap_or(f64::INFINITY);
    // The numbers of a step's single update are from before it.
    let single = history.mean("update/logprob_moved");
    let moved = match single {
        Some(moved) => {
            moved > MOVED_BY_ONE || !TEACHES.contains(&history.mean("reward/credit").unwrap_or(0.0))
        }
        None => history.mean("update/count")? < 2.0 || change > MOVED && mean > MOVED_ON_AVERAGE,
    };
    if rate > 0.0 && moved {
        return None;
    }

    Some(RuleFinding {
        what: "The policy does not move.".into(),
        evidence: vec![
            format!("update/lr is {rate:.1e} on average in the recent steps"),
            match single {
                Some(moved) => format!(
                    "update/logprob_moved is {moved:.1e}: the mean change of a log-probability by a step's update"
                ),
                None => format!(
                    "loss/logprob_change is {mean:.1e}, and loss/logprob_change_max {change:.1e}: the mean and the \
                     largest change of a log-probability within a step"
                ),
            },
        ],
        remedy: format!(
            "Raise optim.lr ({}): {}. A schedule may have taken the rate to 0 (optim.schedule, \
             train.steps).",
            recipe.learning_rate(),
            Rates::USUAL
        ),
        ..RuleFinding::default()
    })
}

fn too_fast(history: &History, recipe: &Recipe) -> Option<RuleFinding> {
    /// A step that moves the policy by more than this is not small for any trust region.
    const LARGE: f64 = 0.1;
    /// One step of this size is enough for a finding.
    const HUGE: f64 = 0.5;
    /// Number of large steps that is enough for a finding. In a long run it has to be this share of all
    /// steps.
    const MANY: (usize, f64) = (5, 0.05);
    const CLIPPED: f64 = 0.3;
    const GAIN: f64 = 0.02;

    let (step, kl) = history.most("loss/approx_kl")?;
    let large = history.steps_above("loss/approx_kl", LARGE).len();
    let min_large = MANY.0.max((MANY.1 * history.last() as f64) as usize);

    // CISPO counts all tokens outside its bounds, and drops none of them.
    let clipped = match recipe.loss.kind {
        LossKind::Dapo { .. } => {
            Some(history.most_of_sum("loss/clip_fraction_low", "loss/clip_fraction_high"))
        }
        _ => None,
    };

    // A policy that learns has no finding, whatever happened before.
    let first = history.mean_first("reward/credit");
    let now = history.mean("reward/credit");
    let learns = history.is_long() && now.zip(first).is_some_and(|(now, first)| now > first + GAIN);
    if learns
        || (kl <= HUGE && large < min_large && clipped.is_none_or(|clipped| clipped <= CLIPPED))
    {
        return None;
    }

    Some(RuleFinding {
        what: "The steps are too large: a single step can throw the policy off.".into(),
        evidence: [
            Some(format!(
                "loss/approx_kl was {kl:.2} in step {step}, and above {LARGE} in {large} steps; some thousandths are usual"
            )),
            clipped.map(|clipped| format!("up to {clipped:.2} of a step's tokens were clipped")),
        ]
        .into_iter()
        .flatten()
        .collect(),
        remedy: format!(
            "Begin a new run with a tenth of optim.lr ({}), and divide it by ten again if the \
             finding comes back: a policy that was thrown off does not recover by itself.",
            recipe.learning_rate()
        ),
        ..RuleFinding::default()
    })
}

fn cut_off(history: &History, recipe: &Recipe) -> Option<RuleFinding> {
    const MANY: f64 = 0.3;
    let share = history.mean("rollout/truncated")?;
    if share <= MANY {
        return None;
    }

    let limit = recipe.rollout.max_completion_tokens;
    let tokens = if limit == 1 { "token" } else { "tokens" };
    let mean_share = |name: &str| history.mean(&format!("environment/{name}")).unwrap_or(0.0);
    let turns = mean_share("out_of_turns");
    let observed = mean_share("out_of_observation_tokens");

    if turns.max(observed) > mean_share("out_of_tokens") {
        let environment = &recipe.environment;
        let (name, met, value) = if turns > observed {
            ("out_of_turns", "max_turns", environment.max_turns)
        } else {
            (
                "out_of_observation_tokens",
                "max_observation_tokens",
                environment.max_observation_tokens,
            )
        };
        return Some(RuleFinding {
            what: format!(
                "{} of the conversations do not end: most of them reach environment.{met} = \
                 {value}.",
                percent(share)
            ),
            evidence: vec![
                format!("rollout/truncated is {share:.2} in the recent steps"),
                format!("environment/{name} is {:.2}", mean_share(name)),
            ],
            remedy: format!(
                "Look at some of them: if they need more room, raise environment.{met}. A game \
                 that is lost at its last turn is no fault."
            ),
            which: Some(Which::CutOff),
            ..RuleFinding::default()
        });
    }

    Some(RuleFinding {
        what: format!("{} of the completions are cut off at {limit} {tokens}.", percent(share)),
        evidence: vec![
            format!("rollout/truncated is {share:.2} in the recent steps"),
            format!(
                "rollout/length_mean is {:.0}",
                history.mean("rollout/length_mean").unwrap_or(0.0)
            ),
        ],
        remedy: format!(
            "Raise rollout.max_completion_tokens, to {} at first. If the texts give their answer \
             and continue all the same, the model does not know this form of prompt: set \
             data.template or data.prompt to the form that it was trained on.{}",
            2 * limit,
            if recipe.reward.overlong.filter {
                ""
            } else {
                " If they are on the right way and there is no room for more, reward.overlong.filter \
                 = true leaves them out of the loss."
            }
        ),
        which: Some(Which::CutOff),
        ..RuleFinding::default()
    })
}

fn unparsable(history: &History, recipe: &Recipe) -> Option<RuleFinding> {
    const MANY: f64 = 0.5;
    let share = history.share("reward/unparsable", "sampling/completions")?;
    if share <= MANY {
        return None;
    }

    Some(RuleFinding {
        what: format!(
            "{} of the completions have no answer that the judge can read.",
            percent(share)
        ),
        evidence: vec![format!("reward/unparsable is {share:.2} of the recent completions")],
        remedy: format!(
            "Compare a completion with the form that the verifier looks for (reward.kind). {} If \
             the model answers in another form, ask for the right form in data.prompt, or choose \
             the reward.kind that reads the model's form.",
            taught(recipe)
        ),
        which: Some(Which::Verdict(Verdict::Unparsable)),
        ..RuleFinding::default()
    })
}

/// Says where a model gets the format of prompts and answers from.
fn taught(recipe: &Recipe) -> &'static str {
    match recipe.model.path {
        Some(_) => TEMPLATE,
        None => "A new model has to be taught first: let SFT show it worked examples (sft.steps).",
    }
}

const TEMPLATE: &str = "If the model writes nonsense, it reads a form of prompt that it was never taught: use its \
                        chat template (data.template = \"chat\"), or the very form that it was trained on \
                        (data.prompt).";

/// Looks at step 1, because only the first steps show the format that a policy must learn before the task.
fn form(history: &History, recipe: &Recipe) -> Option<RuleFinding> {
    const MANY: f64 = 0.7;
    const LEARNT: f64 = 0.5;
    let at_first = |name| history.first(name);
    let share = at_first("reward/unparsable")? / at_first("sampling/completions")?.max(1.0);
    if recipe.model.path.is_none() || share <= MANY || history.mean("reward/credit")? > LEARNT {
        return None;
    }

    Some(RuleFinding {
        what: format!(
            "At first {} of the completions had no answer that the judge can read.",
            percent(share)
        ),
        evidence: vec![format!("reward/unparsable was {share:.2} of the completions of step 1")],
        remedy: format!("The policy spends its first steps on the form of an answer. {TEMPLATE}"),
        ..RuleFinding::default()
    })
}

fn one_answer(history: &History, _: &Recipe) -> Option<RuleFinding> {
    const MANY: f64 = 0.5;
    /// Honest policies too give the same answer to many prompts if there are few right answers, such as yes and no.
    const ANSWERS: u64 = 8;

    let most_frequent = history.given.as_ref()?;
    let share = most_frequent.completions as f64 / history.sum("sampling/completions").max(1.0);
    if share <= MANY || most_frequent.references < ANSWERS {
        return None;
    }

    Some(RuleFinding {
        what: format!("{} of the completions give the same answer.", percent(share)),
        evidence: vec![format!(
            "{:?} was given {} times in the recent steps, to prompts with {} different right answers",
            most_frequent.answer, most_frequent.completions, most_frequent.references
        )],
        remedy: "Look at the verdicts of these completions (`firebrick diagnose` shows some). If they are right, the \
                 judge accepts this answer to everything, or nearly all references are the same. If they are wrong, \
                 the policy has collapsed into this answer: begin a new run with a lower optim.lr and a higher \
                 loss.clip_ratio_high."
            .into(),
        which: Some(Which::Any),
        ..RuleFinding::default()
    })
}

fn too_hard(history: &History, recipe: &Recipe) -> Option<RuleFinding> {
    const MANY: f64 = 0.8;
    if recipe.rewards_only_measure() {
        return None;
    }
    let share = history.share("sampling/groups_all_wrong", "sampling/groups_sampled")?;
    // Partial credit can be learnt from, though nothing is right.
    if share <= MANY || history.mean("reward/credit")? >= 1.0 - MANY {
        return None;
    }

    Some(RuleFinding {
        what: format!(
            "{} of the groups have no right completion: nothing can be learnt from them.",
            percent(share)
        ),
        evidence: vec![
            format!("sampling/groups_all_wrong is {share:.2} of the recent groups"),
            format!("reward/credit is {:.3}", history.mean("reward/credit").unwrap_or(0.0)),
        ],
        remedy: format!(
            "Begin with easier problems, or with a larger model (model.path); with data.task SFT on worked examples helps too \
             (sft.steps). {TEMPLATE} A larger rollout.group_size ({}) finds rarer successes. If a completion that \
             `firebrick diagnose` shows is right, the judge or the reference is wrong.{}",
            recipe.rollout.group_size,
            match recipe.sampling.dynamic {
                Dynamic::Off | Dynamic::Drop => {
                    " Until then sampling.dynamic = \"filter\" fills the step with groups that have spread."
                }
                _ => "",
            }
        ),
        which: Some(Which::Verdict(Verdict::Wrong)),
        ..RuleFinding::default()
    })
}

fn too_easy(history: &History, recipe: &Recipe) -> Option<RuleFinding> {
    const MANY: f64 = 0.85;
    if recipe.rewards_only_measure() {
        return None;
    }
    let share = history.share("sampling/groups_all_right", "sampling/groups_sampled")?;
    // If right answers differ in credit, there is something left to learn.
    if share <= MANY || history.mean("reward/credit")? <= MANY {
        return None;
    }

    Some(RuleFinding {
        what: format!("{} of the groups are all right: there is nothing left to learn here.", percent(share)),
        evidence: vec![
            format!("sampling/groups_all_right is {share:.2} of the recent groups"),
            format!("reward/credit is {:.3}", history.mean("reward/credit").unwrap_or(0.0)),
        ],
        remedy: "Use harder problems (another data.train, or more digits, numbers or steps of data.task), or end the run \
                 (train.stop_at). If the accuracy on held-out prompts is low, the training prompts are known by heart or \
                 the judge is too kind."
            .into(),
        which: Some(Which::Verdict(Verdict::Right)),
        ..RuleFinding::default()
    })
}

fn entropy_grows(history: &History, recipe: &Recipe) -> Option<RuleFinding> {
    const GROWN: f64 = 2.5;
    const LOST: f64 = 0.8;

    let first = history.mean_first("loss/entropy")?;
    let recent = history.mean("loss/entropy")?;
    let credit = history.mean("reward/credit")?;
    let best = history.mean_first("reward/credit")?.max(history.mean_before("reward/credit")?);
    if !history.is_long() || recent < GROWN * first || credit > LOST * best {
        return None;
    }

    Some(RuleFinding {
        what: "The entropy runs away: the policy becomes noise.".into(),
        evidence: vec![
            format!("loss/entropy rose from {first:.3} in the first steps to {recent:.3}"),
            format!("reward/credit is {credit:.3}, and was {best:.3}"),
        ],
        remedy: format!(
            "Lower optim.lr ({}){}, and continue from a checkpoint with a higher accuracy, or begin a new run. \
             checkpoint.best = true keeps the best checkpoint.",
            recipe.learning_rate(),
            recipe.loss.kind.clip_ratios().map_or_else(String::new, |(_, high)| format!(
                " and loss.clip_ratio_high ({high})"
            ))
        ),
        which: Some(Which::Any),
        ..RuleFinding::default()
    })
}
