use std::sync::Arc;

use firebrick_core::{Group, GroupFilter, Prompt, Reward, RewardScale, RewardedGroup, Score};
use firebrick_tests::golden::{Array, Case};
use firebrick_train::sampler::{BufferStatus, GroupBuffer, Spread};
use serde_json::{Value, json};

pub(crate) fn filter(case: &Case) {
    let groups = case.inputs.list("group_rewards");
    let in_loss = case.inputs.has("live").then(|| case.inputs.list("live"));
    let spread = spread(case);
    let mut kept = Vec::new();
    let mut kept_flat = Vec::new();
    let mut next = 0;

    for (index, base_rewards) in groups.iter().enumerate() {
        let mut group = group(base_rewards, base_rewards);
        if let Some(in_loss) = &in_loss {
            let in_loss = Array::new(&in_loss[index]).values;
            assert_eq!(in_loss.len(), group.rewards.len());
            for (reward, in_loss) in group.rewards.iter_mut().zip(in_loss) {
                reward.in_loss = in_loss != 0.0;
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

/// Training filters by the base reward, whatever the shaped reward is. The other half of the case shows what it
/// would keep if the shaped reward were the base reward.
pub(crate) fn filter_by_base_reward(case: &Case) {
    let base_rewards = case.inputs.list("group_accuracy");
    let shaped = case.inputs.list("group_shaped_rewards");
    let spread = spread(case);
    let kept = |groups: &[Value]| {
        let keep = |index: &usize| spread.keep(&group(&groups[*index], &shaped[*index]));
        (0..groups.len()).filter(keep).collect::<Vec<usize>>()
    };
    case.check_exact("kept_prompts_by_accuracy", kept(&base_rewards));
    case.check_exact("kept_prompts_by_shaped_reward", kept(&shaped));
}

pub(crate) fn fill(case: &Case) {
    // `group_size` only describes the input: a group has as many rewards as it has.
    case.config.value("group_size");
    let target = case.config.whole("train_batch_prompts") as usize;
    let max_rounds = case.config.whole("max_gen_batches") as usize;
    let spread = spread(case);

    let mut buffer = GroupBuffer::new(target, max_rounds, Vec::new());
    let mut status = buffer.status();
    let mut kept_after = Vec::new();
    for (batch, groups) in case.inputs.list("gen_batches").iter().enumerate() {
        if status != BufferStatus::NeedMore {
            break;
        }

        let groups = groups.as_array().expect("a batch is a list of groups");
        let round = groups.iter().enumerate().map(|(index, base_rewards)| {
            let mut group = group(base_rewards, base_rewards);
            let shared = Arc::make_mut(&mut group.group);
            (shared.step, shared.draw) = (batch as u64, index as u64);
            group
        });

        buffer.ask(target);
        round.for_each(|group| _ = buffer.take(group, &spread));
        status = buffer.status();
        kept_after.push(buffer.kept.len());
    }

    let name = match status {
        BufferStatus::Full => "filled",
        BufferStatus::NeedMore => "need_more",
        BufferStatus::CapReached => "too_many_batches",
    };
    case.check_exact("status", name);
    case.check_exact("gen_batches_used", buffer.rounds);
    case.check_exact("kept_after_each_batch", kept_after);

    let (kept, surplus) = buffer.finish();
    let full = status == BufferStatus::Full;
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
    // The case is SkyRL's, which keeps lone completions.
    Spread { tolerance: case.config.optional("tol").unwrap_or(0.0) as f32, keep_lone: true }
}

fn group(base_rewards: &Value, shaped: &Value) -> RewardedGroup {
    let base_rewards = Array::new(base_rewards).f32();
    let shaped = Array::new(shaped).f32();
    assert_eq!(base_rewards.len(), shaped.len());

    let reward = |(base_reward, shaped): (f32, f32)| Reward {
        reward: shaped,
        ..RewardScale { right: base_reward, wrong: 0.0 }.reward(Score::right(""))
    };
    RewardedGroup {
        group: Group { prompt: Prompt::default(), completions: Vec::new(), step: 0, draw: 0 }
            .into(),
        rewards: base_rewards.into_iter().zip(shaped).map(reward).collect(),
    }
}
