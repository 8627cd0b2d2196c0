//! Rules on failures that a part of the algorithm is made against. Each names its part by the key in the recipe. Each is
//! silent where the recipe has the part, but for `entropy_gone` and `over_optimised`.

use firebrick_core::Verdict;
use firebrick_recipe::{Advantage, Aggregation, Dynamic, Part, Recipe, RewardKind};
use firebrick_runs::Which;

use super::{
    finding::{RuleFinding, percent},
    history::History,
};

/// Mean difference between the sampler's and the trainer's log-probability of a token, in nats, above which the two do not
/// compute with the same weights. Rounding in bf16 causes at most half of this.
const APART: f64 = 0.02;

/// Above this mean credit there may be nothing left to gain.
const GOOD: f64 = 0.85;

/// Lists the metrics whose whole course the rules look at, and not only its ends.
pub(super) fn whole_series(recipe: &Recipe) -> Vec<String> {
    let mut names = vec![ENTROPY.to_owned(), CLIPPED_HIGH.to_owned()];
    if let RewardKind::Weighted { parts } = recipe.reward_kind() {
        names.extend(parts.iter().map(metric_of_part));
    }
    names
}

const ENTROPY: &str = "loss/entropy";
const CLIPPED_HIGH: &str = "loss/clip_fraction_high";

fn metric_of_part(part: &Part) -> String {
    format!("reward/part/{}", part.name)
}

/// Finds a sampler that computes other probabilities than the trainer for the same weights. Truncated importance
/// sampling is made for it.
pub(super) fn mismatch(history: &History, recipe: &Recipe) -> Option<RuleFinding> {
    if recipe.loss.tis_cap.is_some() {
        return None;
    }

    // Older weights are expected to give different numbers. Step 1 has no older weights.
    let fresh = history.mean_without("rollout/logprob_diff_mean", "rollout/staleness_max");
    let difference = fresh.filter(|difference| *difference > APART)?;

    Some(RuleFinding {
        what: "Sampler and trainer disagree about the probability of tokens.".into(),
        evidence: vec![format!(
            "rollout/logprob_diff_mean is {difference:.3} where no completion is older than the \
             weights; rounding alone makes 1e-7 in f32 and 1e-2 in bf16"
        )],
        remedy: format!(
            "If you wrote the engine: let it sample at rollout.temperature ({}) and give log-probabilities at that \
             temperature, over the whole vocabulary. If the engine is this program's, test your device: `firebrick \
             doctor --suite`. If the engine has to round, as with weights of 4 bits, weigh its tokens: loss.tis_cap = \
             2.0 (truncated importance sampling); loss.tis_mask = [0.5, 2.0] also leaves out completions that the \
             trainer would hardly have written. Until then leave train.old_logprobs at \"auto\", which keeps the ratios \
             right while rollout.max_staleness is 0.",
            recipe.rollout.temperature
        ),
        ..RuleFinding::default()
    })
}

/// Finds samples of an older policy, from which the present one has moved too far.
pub(super) fn stale(history: &History, recipe: &Recipe) -> Option<RuleFinding> {
    /// Mean difference of a token's two log-probabilities, in nats. In runs of SmolLM2-135M that learn, the update of a
    /// step moves them by 0.02 to 0.27, averaged over ten steps, so a policy that is one step old is as far away, and no
    /// fault. This is above what one update moves.
    const BEHIND: f64 = 0.3;
    const GAIN: f64 = 0.02;

    if recipe.loss.tis_cap.is_some() || recipe.rollout.max_staleness == 0 || !history.is_long() {
        return None;
    }

    let difference = history.mean("rollout/logprob_diff_mean")?;
    let staleness = history.mean("rollout/staleness_mean")?;
    let at_first = history.mean_first("reward/credit")?;
    let credit = history.mean("reward/credit")?;
    if difference <= BEHIND || staleness <= 0.0 || credit > at_first + GAIN {
        return None;
    }

    Some(RuleFinding {
        what: "The completions are from an older policy, which the present one has left behind."
            .into(),
        evidence: vec![
            format!("rollout/logprob_diff_mean is {difference:.3} before a step's first update"),
            format!("rollout/staleness_mean is {staleness:.1} steps"),
            format!("reward/credit was {at_first:.3} in the first steps and is {credit:.3}"),
        ],
        remedy: format!(
            "Weigh the tokens: loss.tis_cap = 2.0 (truncated importance sampling), and loss.tis_mask = [0.5, 2.0] to \
             leave out completions that the policy would hardly write any more. Or sample with the weights that are \
             trained: rollout.max_staleness = 0. A lower optim.lr ({}) moves the policy less in a step.",
            recipe.learning_rate()
        ),
        ..RuleFinding::default()
    })
}

/// Finds completions that are cut off and count as wrong, although the right ones need nearly as much room. Overlong
/// filtering and the soft punishment are made for them.
pub(super) fn cut_off_noise(history: &History, recipe: &Recipe) -> Option<RuleFinding> {
    /// Share that is cut off. From here on one in three groups of eight has such a completion.
    const SOME: f64 = 0.05;
    /// Mean length of right completions, as a share of the limit. Shorter ones show that the limit has room, and that
    /// what is cut off has gone astray: then its punishment is no noise.
    const NEEDED: f64 = 0.75;
    /// Share that is left of ten steps before. If less is left, the punishment teaches to be shorter.
    const LEFT: f64 = 0.8;

    let overlong = &recipe.reward.overlong;
    let punished = overlong.buffer > 0 && overlong.penalty > 0.0;
    if overlong.filter || punished || recipe.environment.is_there() || !history.is_long() {
        return None;
    }

    let share = history.mean("rollout/truncated")?;
    let before = history.mean_before("rollout/truncated")?;
    let right = history.mean("rollout/length_right")?;
    let limit = recipe.rollout.max_completion_tokens;
    if share < SOME || share < LEFT * before || right < NEEDED * limit as f64 {
        return None;
    }

    Some(RuleFinding {
        what: format!(
            "{} of the completions are cut off and count as wrong, and right ones take {:.0} % of the limit in the mean.",
            percent(share),
            100.0 * right / limit as f64
        ),
        evidence: vec![
            format!("rollout/truncated is {share:.2}, and was {before:.2} ten steps before"),
            format!("rollout/length_right is {right:.0}, of {limit} tokens"),
        ],
        remedy: format!(
            "Leave them out of the loss with reward.overlong.filter = true: a text that was cut off says nothing about \
             its answer. To let the policy feel the limit before it, set reward.overlong = {{ buffer = {}, penalty = \
             1.0 }}. With more room (rollout.max_completion_tokens) it needs neither.",
            limit.div_ceil(5)
        ),
        which: Some(Which::CutOff),
        ..RuleFinding::default()
    })
}

/// Finds wrong completions that grow longer while the right ones do not, with a loss that lets them off lightly. The
/// token-level loss is made against it.
pub(super) fn wrong_grows(history: &History, recipe: &Recipe) -> Option<RuleFinding> {
    /// Growth of the wrong completions, by themselves and in relation to the right ones. As a policy learns, the
    /// questions that it still gets wrong are harder, and may take somewhat longer.
    const GROWN: f64 = 1.5;
    /// Share of wrong completions. The length of fewer is chance.
    const WRONG: f64 = 0.05;

    // All other means give every token of a group the same weight.
    if recipe.loss.aggregation != Aggregation::SequenceMean || !history.is_long() {
        return None;
    }

    let first = history.mean_first("rollout/length_wrong")?;
    let wrong = history.mean("rollout/length_wrong")?;
    let first_right = history.mean_first("rollout/length_right")?;
    let right = history.mean("rollout/length_right")?;
    let share = 1.0 - history.share_right()?;
    if share < WRONG || wrong < GROWN * first || wrong * first_right < GROWN * first * right {
        return None;
    }

    Some(RuleFinding {
        what: "The wrong completions grow longer, and the right ones do not.".into(),
        evidence: vec![
            format!("rollout/length_wrong rose from {first:.0} to {wrong:.0}"),
            format!("rollout/length_right was {first_right:.0} and is {right:.0}"),
            format!("{} of the recent completions are not right", percent(share)),
        ],
        remedy: "Set loss.aggregation = \"token_mean\": with \"sequence_mean\" the tokens of a wrong completion are \
                 punished the less, the more of them there are, so repetition pays. If they grow all the same, give \
                 length a cost near the limit (reward.overlong)."
            .into(),
        which: Some(Which::Verdict(Verdict::Wrong)),
        ..RuleFinding::default()
    })
}

/// Finds completions that grow longer without getting better.
pub(super) fn length_grows(history: &History, recipe: &Recipe) -> Option<RuleFinding> {
    const GROWN: f64 = 1.5;
    const GAIN: f64 = 0.02;

    let first = history.mean_first("rollout/length_mean")?;
    let recent = history.mean("rollout/length_mean")?;
    let at_first = history.mean_first("reward/credit")?;
    let credit = history.mean("reward/credit")?;
    if !history.is_long() || recent < GROWN * first || credit > at_first + GAIN {
        return None;
    }

    let aggregation = match recipe.loss.aggregation {
        Aggregation::SequenceMean => {
            ", and set loss.aggregation = \"token_mean\": a mean per completion lets long wrong completions off \
             lightly"
        }
        _ => "",
    };
    Some(RuleFinding {
        what: "The completions grow longer, but not better.".into(),
        evidence: vec![
            format!("rollout/length_mean rose from {first:.0} to {recent:.0}"),
            format!("reward/credit was {at_first:.3} in the first steps and is {credit:.3}"),
        ],
        remedy: format!(
            "Look at what fills the completions. Make length cost something (reward.overlong, reward.length)\
             {aggregation}."
        ),
        which: Some(Which::Verdict(Verdict::Wrong)),
        ..RuleFinding::default()
    })
}

/// Finds an entropy that is gone before the task is learnt. Clip-Higher is made against it.
pub(super) fn entropy_gone(history: &History, recipe: &Recipe) -> Option<RuleFinding> {
    const LEFT: f64 = 0.15;
    const GAIN: f64 = 0.02;
    /// Mean share of tokens cut above, while the entropy fell, up to which the clip is not the cause. SmolLM2-135M has 2
    /// to 3 in 10,000, and the ladder's task 1 to 2 in 1,000, where a higher clip changed nothing.
    const CLIPPED: f64 = 3e-3;

    let first = history.mean_first(ENTROPY)?;
    let recent = history.mean(ENTROPY)?;
    let earlier = history.mean_before("reward/credit")?;
    let credit = history.mean("reward/credit")?;
    let gains = credit > earlier + GAIN;
    if !history.is_long() || recent > LEFT * first || credit > GOOD || gains {
        return None;
    }

    let lr = recipe.learning_rate();
    // Once the entropy is gone, no token reaches a bound.
    let clipped = history.mean_until_low(CLIPPED_HIGH, ENTROPY, LEFT * first);
    let higher = match recipe.loss.kind.clip_ratios() {
        Some((_, high)) if clipped.is_some_and(|share| share <= CLIPPED) => format!(
            "The upper clip was not in the way, so a larger loss.clip_ratio_high ({high}) changes nothing. Lower \
             optim.lr ({lr}), or give entropy a bonus (loss.entropy_coef)."
        ),
        Some((low, high)) if high > low => {
            format!("Raise loss.clip_ratio_high ({high}) further, or lower optim.lr ({lr}).")
        }
        Some((low, high)) => format!(
            "Raise loss.clip_ratio_high ({high}) to {} or more: with symmetric clipping rare tokens can't become likely (Clip-Higher).",
            two_digits(1.4 * low)
        ),
        None => format!("Lower optim.lr ({lr})."),
    };

    let evidence = [
        Some(format!("loss/entropy fell from {first:.3} in the first steps to {recent:.3}")),
        Some(format!("reward/credit is {credit:.3}, and was {earlier:.3} before")),
        clipped.map(|share| format!("{CLIPPED_HIGH} was {share:.4} on average until then")),
    ];
    Some(RuleFinding {
        what: "The entropy is gone before the task is learnt: the policy has stopped trying anything else.".into(),
        evidence: evidence.into_iter().flatten().collect(),
        remedy: format!(
            "{higher} Continue from a checkpoint in which the entropy was higher, or begin a new run: \
             entropy does not come back by itself."
        ),
        which: Some(Which::WithoutSpread),
        ..RuleFinding::default()
    })
}

/// Finds batches that are mostly groups without spread, which nothing replaces. Dynamic sampling is made against them.
pub(super) fn no_spread(history: &History, recipe: &Recipe) -> Option<RuleFinding> {
    /// Share of groups without spread. From here on a step has half of its groups or fewer to learn from.
    const MANY: f64 = 0.5;
    /// Distance of the credit from the share of right completions. A larger one is partial credit, which gives spread to
    /// groups that are all wrong.
    const PARTIAL: f64 = 0.02;

    // A critic and a teacher give advantages without spread, and REINFORCE++ shifts those of all groups.
    let refills = !matches!(recipe.sampling.dynamic, Dynamic::Off | Dynamic::Drop);
    let needs_spread = !recipe.has_critic()
        && recipe.teacher_kinds().is_empty()
        && !matches!(recipe.advantage, Advantage::ReinforceBaseline);
    if refills || !needs_spread || !history.is_long() {
        return None;
    }

    let right = history.share("sampling/groups_all_right", "sampling/groups_sampled")?;
    let wrong = history.share("sampling/groups_all_wrong", "sampling/groups_sampled")?;
    let credit = history.mean("reward/credit")?;
    let partial = credit - history.share_right()?;
    if right + wrong <= MANY || credit > GOOD || partial.abs() > PARTIAL {
        return None;
    }

    Some(RuleFinding {
        what: format!(
            "{} of the groups are all right or all wrong: they have no right and wrong to compare.",
            percent(right + wrong)
        ),
        evidence: vec![
            format!("sampling/groups_all_right is {right:.2} of the recent groups"),
            format!("sampling/groups_all_wrong is {wrong:.2} of them"),
        ],
        remedy: format!(
            "Set sampling.dynamic = \"filter\": it samples further prompts until {} groups have spread. If prompts come \
             back, sampling.curriculum = {{ kind = \"posterior\" }} passes over those that are solved or out of reach \
             before their completions are paid for. A larger rollout.group_size ({}) finds spread in more groups.",
            recipe.sampling.prompts_per_step, recipe.rollout.group_size
        ),
        which: Some(Which::WithoutSpread),
        ..RuleFinding::default()
    })
}

/// Finds a weighted reward whose rule falls while another part goes on rising: the policy has found what that part pays
/// for by mistake. A penalty on the distance from the first policy is made against it.
pub(super) fn over_optimised(history: &History, recipe: &Recipe) -> Option<RuleFinding> {
    /// Fall of the first part, from its best ten steps.
    const FALLEN: f64 = 0.1;
    /// Rise of the other part since the first steps.
    const RISEN: f64 = 0.1;
    /// A fall of this many standard errors is not chance, although the best of many windows is compared.
    const ERRORS: f64 = 4.0;

    // A curriculum goes on to harder prompts.
    let RewardKind::Weighted { parts } = recipe.reward_kind() else { return None };
    if recipe.sampling.curriculum.is_some() || !history.is_long() {
        return None;
    }

    let (rule, others) = parts.split_first()?;
    let (step, best) = history.highest(&metric_of_part(rule))?;
    let now = history.mean(&metric_of_part(rule))?;

    // The completions of a prompt are alike, so the prompts are counted.
    let groups = history.sum("sampling/groups_sampled").max(1.0);
    let fallen = FALLEN.max(ERRORS * (0.5 / groups).sqrt());
    if best - now < fallen {
        return None;
    }

    // It has not fallen with the rule, so it was not the policy that came apart.
    let risen = |part: &Part| {
        let first = history.mean_first(&metric_of_part(part))?;
        let then = history.mean_until(&metric_of_part(part), step)?;
        let now = history.mean(&metric_of_part(part))?;
        (now >= then && now - first >= RISEN).then_some((first, now))
    };
    let (part, (first, recent)) = others.iter().find_map(|part| Some((part, risen(part)?)))?;

    let penalty = match &recipe.loss.kl {
        Some(kl) => format!("raise loss.kl.coef ({})", kl.coef),
        None => "set loss.kl".to_owned(),
    };
    Some(RuleFinding {
        what: format!(
            "The policy pleases the part {} of the reward, and gives fewer right answers than before.",
            part.name
        ),
        evidence: vec![
            format!("reward/part/{} was {best:.2} up to step {step}, and is {now:.2}", rule.name),
            format!("reward/part/{} rose from {first:.2} to {recent:.2}", part.name),
        ],
        remedy: format!(
            "Read what {} accepts, and make it stricter. To keep the policy near the one that the run began with, \
             {penalty}. To end the run in time, set train.patience, and checkpoint.best = true keeps the best \
             checkpoint: the held-out accuracy is that of the part {}.",
            part.name, rule.name
        ),
        which: Some(Which::Verdict(Verdict::Wrong)),
        ..RuleFinding::default()
    })
}

/// Rounds the number to two significant digits, without an exponent.
fn two_digits(value: f64) -> f64 {
    format!("{value:.1e}").parse().unwrap_or(value)
}
