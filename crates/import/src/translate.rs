//! Translations of settings that both programs have, each under its own keys.

use super::{Draft, Settings, rows::Idle, settings::Value};

/// Translates the three keys of an adapter, which both programs have.
pub(super) fn adapters(
    rank: &str,
    alpha: &str,
    targets: &str,
    settings: &Settings,
    draft: &mut Draft,
) {
    let Some(width) = settings.whole(rank).filter(|&width| width > 0) else { return };
    draft.set("model.lora.rank", width, rank);
    draft.take("model.lora.alpha", alpha);

    if let Value::List(names) = settings.get(targets) {
        let names: toml_edit::Array = names.iter().map(Value::to_string).collect();
        draft.set("model.lora.targets", names, targets);
    } else if let Some(name) = settings.text(targets).filter(|name| name != "all-linear") {
        // Anything else is a pattern, or not known yet.
        if name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            draft.set("model.lora.targets", toml_edit::Array::from_iter([name]), targets);
        } else {
            draft.lacks(targets, "Write `model.lora.targets` as a list of projections.");
        }
    }
}

/// Translates the options of the chat template. Their names are the template's.
pub(super) fn template(settings: &Settings, draft: &mut Draft, table: &str) {
    for key in settings.keys() {
        let Some(option) = key.strip_prefix(table) else { continue };
        // The name is copied into the recipe unchanged, so it has to be a plain name.
        if option.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
            draft.take(&format!("data.template_options.{option}"), key);
        } else {
            draft.lacks(key, "Set `data.template_options` yourself.");
        }
    }
}

/// Translates the size of a group. Only a critic can use a group of one.
pub(super) fn group(key: &str, estimator: &str, settings: &Settings, draft: &mut Draft) {
    match settings.whole(key) {
        Some(1) if !has_critic(estimator, settings) => {
            draft.lacks(key, "A group of one has no advantage: set `rollout.group_size`.");
        }
        _ => draft.take("rollout.group_size", key),
    }
}

/// Translates dynamic sampling as verl and SkyRL do it: up to a number of rounds, then an error.
pub(super) fn refilled(rounds: i64, cap: &str, key: &str, draft: &mut Draft) {
    draft.set("sampling.max_rounds", rounds.max(0), cap);
    if rounds > 0 {
        draft.set("sampling.on_cap", "error", cap);
    }
    draft.set("sampling.carry_over", false, key);
}

pub(super) fn verifier(draft: &mut Draft, kind: &str, wrong: f64, from: &str) {
    draft.set("reward.kind", kind, from);
    draft.set("reward.right", 1.0, from);
    draft.set("reward.wrong", wrong, from);
}

pub(super) fn estimator(key: &str, by_std: &str, settings: &Settings, draft: &mut Draft) {
    match settings.text(key).unwrap_or_default().as_str() {
        "grpo" if settings.truth(by_std) => draft.set("advantage.kind", "group_norm", key),
        "grpo" => draft.set("advantage.kind", "mean_only", by_std),
        "rloo" => draft.set("advantage.kind", "leave_one_out", key),
        "reinforce_plus_plus_baseline" => draft.set("advantage.kind", "reinforce_baseline", key),
        "gae" => draft.set("advantage.kind", "gae", key),
        _ => draft.lacks(
            key,
            "The estimators here are group_norm (grpo), mean_only, leave_one_out (rloo), \
             reinforce_baseline, batch_norm, gdpo and gae; the recipe has the default, group_norm.",
        ),
    }
}

/// Translates `top_p` of the evaluation, if it samples its answers. `temperature` is the evaluation's.
pub(super) fn eval_top_p(
    key: &str,
    temperature: Option<f64>,
    settings: &Settings,
    draft: &mut Draft,
) {
    match temperature {
        Some(0.0) if settings.is_given(key) => draft.notes.idle(key, Idle::Greedy.says()),
        Some(0.0) => {}
        _ => draft.take("eval.top_p", key),
    }
}

/// Translates the soft punishment, which needs both of its values.
pub(super) fn overlong(
    [length, factor]: [&str; 2],
    defaults: (Option<i64>, Option<f64>),
    settings: &Settings,
    draft: &mut Draft,
) {
    // A default counts for a key that is left out, but not for one whose value is not a number.
    let buffer = settings.whole(length).or(defaults.0.filter(|_| !settings.is_given(length)));
    let penalty = settings.number(factor).or(defaults.1.filter(|_| !settings.is_given(factor)));

    match (buffer, penalty) {
        (Some(buffer), Some(penalty)) if buffer > 0 && penalty > 0.0 => {
            draft.set("reward.overlong.buffer", buffer, length);
            draft.set("reward.overlong.penalty", penalty, factor);
        }
        (Some(_), Some(_)) => {
            for key in [length, factor].into_iter().filter(|key| settings.is_given(key)) {
                draft.notes.idle(key, Idle::Unpunished.says());
            }
        }
        _ => {
            for key in [length, factor].into_iter().filter(|key| settings.is_given(key)) {
                draft.lacks(
                    key,
                    "Set `reward.overlong` yourself: it takes buffer and penalty as numbers.",
                );
            }
        }
    }
}

/// Translates truncated importance weights by token. There are no others here.
pub(super) fn importance(key: &str, cap: &str, settings: &Settings, draft: &mut Draft) {
    match settings.text(key).as_deref() {
        None | Some("null" | "none") => {}
        Some("token") if settings.number(cap).is_some_and(|cap| cap > 0.0) => {
            draft.take("loss.tis_cap", cap);
        }
        Some("token") => draft.lacks(cap, "Set `loss.tis_cap`, a number above 0."),
        Some(_) => draft.lacks(key, "Importance weights are by token here: `loss.tis_cap`."),
    }
}

/// Remark on importance weights.
pub(super) const IMPORTANCE: &str = "By default Firebrick samples with the trainer's weights and numerics. The importance weights \
     are then 1 except for rounding, and cost a pass over the step.";

/// Remark on other corrections for a sampler that differs from the trainer.
pub(super) const CORRECTION: &str = "By default Firebrick samples with the trainer's weights and numerics, so only rounding is \
     left to correct. Otherwise there are `loss.tis_cap` and `loss.tis_mask`.";

/// Remark on conversations.
pub(super) const TURNS: &str = "Conversations of several turns need `[environment]`.";

pub(super) fn betas(key: &str, settings: &Settings, draft: &mut Draft) {
    if let Value::List(betas) = settings.get(key) {
        for (beta, here) in betas.iter().zip(["optim.beta1", "optim.beta2"]) {
            if let Value::Number(beta) = beta
                && let Ok(beta) = beta.parse::<f64>()
            {
                draft.set(here, beta, key);
            }
        }
    }
}

/// Translates a mini-batch in prompts to one in completions. `step` is the number of prompts of a step, if it is
/// known.
pub(super) fn completions(
    key: &str,
    group: &str,
    step: Option<i64>,
    settings: &Settings,
    draft: &mut Draft,
) {
    match (settings.whole(key), settings.whole(group)) {
        (Some(prompts), Some(group)) => {
            let smaller_step = step.filter(|&step| step > 0 && prompts > step);
            if smaller_step.is_some() {
                let says =
                    "A step has fewer prompts than this, so the recipe makes one update of a step.";
                draft.notes.differs(key, &prompts.to_string(), says);
            }

            draft.set(
                "train.mini_batch",
                smaller_step.unwrap_or(prompts).saturating_mul(group),
                key,
            );
        }
        _ => draft.lacks(key, "Set `train.mini_batch`, in completions."),
    }
}

/// Translates the distance of a ratio's lower bound from 1. No ratio is below 0, so a distance of 1 is not a lower
/// bound in either program. There, any larger distance means the same: CISPO's scripts have 10.
pub(super) fn clip_low(key: &str, here: &str, settings: &Settings, draft: &mut Draft) {
    match settings.number(key) {
        Some(distance) if distance > 1.0 => {
            let says = "No ratio is below 0, so this is no lower bound, and 1.0 is none here.";
            draft.notes.differs(key, &settings.get(key).to_string(), says);
            draft.set(here, 1.0, key);
        }
        _ => draft.take(here, key),
    }
}

/// Translates a number of steps between two events; -1 is never.
pub(super) fn every(key: &str, here: &str, settings: &Settings, draft: &mut Draft) {
    match settings.whole(key) {
        Some(steps) if steps > 0 => draft.set(here, steps, key),
        _ if settings.is_given(key) => {
            draft.lacks(key, &format!("It can't be switched off; `{here}` has its default."));
        }
        _ => {}
    }
}

/// Translates a number for which 0 here, and null or -1 there, means no bound.
pub(super) fn or_none(key: &str, here: &str, settings: &Settings, draft: &mut Draft) {
    draft.set(here, settings.whole(key).unwrap_or(0).max(0), key);
}

/// Translates the run's name, if it can be the name of a folder.
pub(super) fn name(key: &str, settings: &Settings, draft: &mut Draft) {
    let Some(name) = settings.text(key) else { return };
    match firebrick_core::check_run_name(&name) {
        // The rest of an open name is known where the other program runs. `sort_out` says so.
        Ok(()) if settings.get(key).is_open() => {}
        Ok(()) => draft.set("name", name, key),
        Err(_) => draft.lacks(key, "This can't be the name of a folder: set `name`."),
    }
}

/// Translates the keys that go with GAE, each a pair of our key and theirs. The critic is a separate model in both
/// programs.
pub(super) fn critic(
    estimator: &str,
    keys: &[(&str, &str)],
    settings: &Settings,
    draft: &mut Draft,
) {
    if has_critic(estimator, settings) {
        for (here, key) in keys {
            draft.take(here, key);
        }
        draft.set("critic.kind", "separate", estimator);
        // Both programs take half of the squared error without a factor.
        draft.set("critic.coef", 1.0, estimator);
    } else {
        for (_, key) in keys.iter().filter(|(_, key)| settings.is_given(key)) {
            draft.notes.idle(key, Idle::Off.says());
        }
    }
}

/// Tells whether the estimator has a critic. In both programs only `gae` has one.
pub(super) fn has_critic(estimator: &str, settings: &Settings) -> bool {
    settings.text(estimator).as_deref() == Some("gae")
}

/// Remark on the critic's learning rate.
pub(super) const CRITIC_RATE: &str = "This rate rises over `optim.warmup_steps` here; there the policy's warm-up is not the critic's.";

/// Remark on several passes over a step.
pub(super) const PASSES: &str = "A step uses each completion once. `train.adaptive = { n_min = k, n_max = k, kl_stop = 1e9 }` \
     makes k updates with a mini-batch before the next mini-batch; the other program goes through \
     all mini-batches k times.";
