use firebrick_reward::{LengthPenalty, PenaltyForm};
use firebrick_tests::golden::Case;

pub(crate) fn target(case: &Case) {
    let config = &case.config;
    let penalty = LengthPenalty {
        target: config.whole("target_length") as usize,
        free_factor: config.number("free_factor"),
        ramp_factor: config.number("ramp_factor"),
        max_cut: config.number("max_cut"),
        truncation_cut: config.number("truncation_cut"),
        form: PenaltyForm::AsWritten,
    };

    let reward = case.inputs.number("reward");
    let lengths = case.inputs.array("lengths").values;
    for (field, truncated) in [("reward_not_truncated", false), ("reward_truncated", true)] {
        let of_length = |&length: &f64| penalty.penalised(reward, length as usize, truncated);
        let got: Vec<f64> = lengths.iter().map(of_length).collect();
        case.compare(field, &got, &case.expected.array(field).values, case.f64);
    }
}
