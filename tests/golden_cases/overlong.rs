use firebrick_core::{Completion, FinishReason, Group, Prompt, RewardScale, RewardShaper, Score};
use firebrick_reward::{Overlong, soft_overlong_penalty};
use firebrick_tests::golden::Case;

pub(crate) fn penalty(case: &Case) {
    let setting = setting(case);
    let penalty = |length: usize| {
        let Overlong { max_completion_tokens, buffer, penalty, .. } = setting;
        soft_overlong_penalty(length, max_completion_tokens, buffer, penalty)
    };
    let got: Vec<f64> = lengths(case).into_iter().map(penalty).collect();
    case.compare("penalty", &got, &case.expected.array("penalty").values, case.f64);
}

pub(crate) fn shaped_reward(case: &Case) {
    let completion =
        |length: usize| Completion::written(vec![0; length], vec![0.0; length], FinishReason::Stop);
    let completions = lengths(case).into_iter().map(completion).collect();
    let group = Group { prompt: Prompt::default(), completions, step: 1, draw: 0 };

    let rewards = case.inputs.array("rewards").f32();
    let mut rewards: Vec<_> = rewards
        .into_iter()
        .map(|right| RewardScale { right, wrong: 0.0 }.reward(Score::right("")))
        .collect();

    setting(case).shape(&group, &mut rewards);
    case.check("rewards", &rewards.iter().map(|reward| reward.reward).collect::<Vec<_>>());
}

fn setting(case: &Case) -> Overlong {
    Overlong {
        max_completion_tokens: case.config.whole("l_max") as usize,
        buffer: case.config.whole("l_cache") as usize,
        penalty: case.config.number("factor"),
        filter: false,
    }
}

fn lengths(case: &Case) -> Vec<usize> {
    case.inputs.array("lengths").values.iter().map(|&length| length as usize).collect()
}
