use firebrick_core::{Group, GroupFilter, Prompt, Reward, RewardScale, RewardedGroup, Score};
use firebrick_tests::golden::{Array, Case};
use firebrick_train::{Filled, Refill, Spread};
use serde_json::{Value, json};

pub(crate) fn filter(case: &Case) {
    let groups = case.inputs.list("group_rewards");
    let live = case.inputs.has("live").then(|| case.inputs.list("live"));
    let spread = spread(case);
    let (mut kept, mut kept_flat, mut next) = (Vec::new(), Vec::new(), 0);
    for (index, accuracies) in groups.iter().enumerate() {
        let mut group = group(accuracies, accuracies);
        if let Some(live) = &live {
            let live = Array::new(&live[index]).values;
            assert_eq!(live.len(), group.rewards.len());
            for (reward, live) in group.rewards.iter_mut().zip(live) {
                reward.live = live != 0.0;
            }
        }
        let responses = next..next + group.rewards.len();
        next = responses.end;
        if spread.keep(&group) {
            kept.push(index);
            kept_flat.extend(responses);
        }
    }
    case.check_exact("kept_prompts", kept);
    case.check_exact("kept_flat_indices", kept_flat);
}

/// Training filters by accuracy whatever the shaped reward is; the other half of the case shows
/// what it would keep if the shaped reward were the accuracy.
pub(crate) fn filter_by_accuracy(case: &Case) {
    let accuracies = case.inputs.list("group_accuracy");
    let shaped = case.inputs.list("group_shaped_rewards");
    let spread = spread(case);
    let kept = |groups: &[Value]| {
        let keep = |index: &usize| spread.keep(&group(&groups[*index], &shaped[*index]));
        (0..groups.len()).filter(keep).collect::<Vec<usize>>()
    };
    case.check_exact("kept_prompts_by_accuracy", kept(&accuracies));
    case.check_exact("kept_prompts_by_shaped_reward", kept(&shaped));
}

pub(crate) fn fill(case: &Case) {
    // `group_size` only describes the input: a group has as many rewards as it has.
    case.config.value("group_size");
    let target = case.config.whole("train_batch_prompts") as usize;
    let max_rounds = case.config.whole("max_gen_batches") as usize;
    let spread = spread(case);
    let mut refill = Refill::new(target, max_rounds, Vec::new());
    let mut status = refill.status();
    let mut kept_after = Vec::new();
    for (batch, groups) in case.inputs.list("gen_batches").iter().enumerate() {
        if status != Filled::NeedMore {
            break;
        }
        let groups = groups.as_array().expect("a batch is a list of groups");
        let round = groups.iter().enumerate().map(|(index, accuracies)| {
            let mut group = group(accuracies, accuracies);
            (group.group.step, group.group.draw) = (batch as u64, index as u64);
            group
        });
        refill.ask(target);
        round.for_each(|group| _ = refill.take(group, &spread));
        status = refill.status();
        kept_after.push(refill.kept.len());
    }
    let name = match status {
        Filled::Full => "filled",
        Filled::NeedMore => "need_more",
        Filled::CapReached => "too_many_batches",
    };
    case.check_exact("status", name);
    case.check_exact("gen_batches_used", refill.rounds);
    case.check_exact("kept_after_each_batch", kept_after);
    let (kept, surplus) = refill.finish();
    let full = status == Filled::Full;
    let kept: Vec<[u64; 2]> =
        kept.iter().map(|group| [group.group.step, group.group.draw]).collect();
    case.check_exact("kept_prompts", if full { json!(kept) } else { Value::Null });
    case.check_exact(
        "surplus_prompts_dropped",
        if full { json!(surplus.len()) } else { Value::Null },
    );
}

fn spread(case: &Case) -> Spread {
    if case.config.has("rule") {
        assert_eq!(case.config.text("rule"), "spread_above_tol");
    }
    // SkyRL made the case, and keeps lone completions.
    Spread { tolerance: case.config.optional("tol").unwrap_or(0.0) as f32, keep_lone: true }
}

fn group(accuracies: &Value, shaped: &Value) -> RewardedGroup {
    let (accuracies, shaped) = (Array::new(accuracies).f32(), Array::new(shaped).f32());
    assert_eq!(accuracies.len(), shaped.len());
    let reward = |(accuracy, shaped): (f32, f32)| Reward {
        shaped,
        ..RewardScale { right: accuracy, wrong: 0.0 }.reward(Score::right(""))
    };
    RewardedGroup {
        group: Group { prompt: Prompt::default(), completions: Vec::new(), step: 0, draw: 0 },
        rewards: accuracies.into_iter().zip(shaped).map(reward).collect(),
    }
}
