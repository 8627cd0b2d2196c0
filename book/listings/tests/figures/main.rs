//! Figures of the book, drawn from the program's own functions.
//!
//! `FIREBRICK_UPDATE=1 cargo test --release --workspace --test figures` draws them again.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

mod figure;
mod group;
mod plan;

use std::{fs, path::Path};

use burn::tensor::{Device, Tensor, TensorData};
use figure::{Axis, Curve, Figure, Hue};
use firebrick_book::assert_current;
use firebrick_core::FinishReason;
use firebrick_reward::{
    LengthPenalty, PenaltyForm, StopPenalty, StopProperly, soft_overlong_penalty,
};
use firebrick_train::algorithm::{
    Aggregation, ClipRange, Dapo, Divisors, GroupNorm, LossInput, PolicyLoss as _,
};

#[test]
fn the_figures_are_current() {
    let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src");
    let charts = of_rewards().into_iter().chain(of_dapo());
    let charts = charts.map(|(page, name, figure)| (page, name, figure.svg()));
    let drawings =
        [("how-dapo-works.md", "group.svg", group::svg()), ("memory.md", "plan.svg", plan::svg())];
    for (page, name, drawn) in charts.chain(drawings) {
        let path = book.join("figures").join(name);
        assert_current(&path, &drawn);
        let text = fs::read_to_string(book.join(page)).unwrap();
        assert!(text.contains(&format!("figures/{name}}}}}")), "{page} does not show {name}");
    }
}

/// Plots each idea of DAPO that is a formula.
fn of_dapo() -> Vec<(&'static str, &'static str, Figure)> {
    let points = |from: f64, to: f64, steps: u32, value: &dyn Fn(f64) -> f64| {
        let at = |step| from + (to - from) * f64::from(step) / f64::from(steps);
        (0..=steps).map(at).map(|x| (x, value(x))).collect::<Vec<_>>()
    };
    let curve = |label, hue, dashed, points| Curve { label, hue, dashed, points };

    let clip = Figure {
        title: "A token's part of the objective, by its ratio: bounds 0.8 and 1.28",
        x: Axis {
            label: "ratio ρ",
            from: 0.5,
            to: 1.5,
            ticks: [("0.5", 0.5), ("0.8", 0.8), ("1", 1.0), ("1.28", 1.28), ("1.5", 1.5)].to_vec(),
        },
        y: Axis {
            label: "−loss",
            from: -1.6,
            to: 1.6,
            ticks: [("−1", -1.0), ("0", 0.0), ("1", 1.0)].to_vec(),
        },
        curves: vec![
            curve("advantage 1", Hue::Blue, false, points(0.5, 1.5, 100, &|r| gain(r, 1.0, 0.28))),
            curve("1, bound 1.2", Hue::Blue, true, points(0.5, 1.5, 100, &|r| gain(r, 1.0, 0.2))),
            curve(
                "advantage −1",
                Hue::Orange,
                false,
                points(0.5, 1.5, 100, &|r| gain(r, -1.0, 0.28)),
            ),
        ],
    };

    let group = |right: usize| {
        let rewards: Vec<f32> = (0..8).map(|at| if at < right { 1.0 } else { -1.0 }).collect();
        GroupNorm::default().of_group(&rewards)
    };

    let advantages = Figure {
        title: "Advantages in a group of eight, by the number of right completions",
        x: Axis {
            label: "right completions of 8",
            from: 0.0,
            to: 8.0,
            ticks: [
                ("0", 0.0),
                ("1", 1.0),
                ("2", 2.0),
                ("4", 4.0),
                ("6", 6.0),
                ("7", 7.0),
                ("8", 8.0),
            ]
            .to_vec(),
        },
        y: Axis {
            label: "advantage",
            from: -2.7,
            to: 2.7,
            ticks: [("−2", -2.0), ("−1", -1.0), ("0", 0.0), ("1", 1.0), ("2", 2.0)].to_vec(),
        },
        curves: vec![
            curve(
                "a right one",
                Hue::Blue,
                false,
                (1..=7).map(|right| (right as f64, f64::from(group(right)[0]))).collect(),
            ),
            curve(
                "a wrong one",
                Hue::Orange,
                false,
                (1..=7).map(|right| (right as f64, f64::from(group(right)[7]))).collect(),
            ),
        ],
    };

    // A group has spread unless all of its completions are right, or all are wrong.
    let spread = |size: i32| move |p: f64| 1.0 - p.powi(size) - (1.0 - p).powi(size);
    let share = Figure {
        title: "Groups with spread, by the chance that one completion is right",
        x: Axis {
            label: "chance that a completion is right",
            from: 0.0,
            to: 1.0,
            ticks: [
                ("0", 0.0),
                ("0.25", 0.25),
                ("0.5", 0.5),
                ("0.75", 0.75),
                ("0.9", 0.9),
                ("1", 1.0),
            ]
            .to_vec(),
        },
        y: Axis {
            label: "share of groups",
            from: 0.0,
            to: 1.05,
            ticks: [("0", 0.0), ("0.5", 0.5), ("1", 1.0)].to_vec(),
        },
        curves: vec![
            curve("groups of 16", Hue::Blue, false, points(0.0, 1.0, 100, &spread(16))),
            curve("groups of 8", Hue::Blue, true, points(0.0, 1.0, 100, &spread(8))),
            curve("groups of 4", Hue::Orange, false, points(0.0, 1.0, 100, &spread(4))),
        ],
    };

    // An update of one completion of each length from 10 to 200.
    let lengths: Vec<usize> = (1..=20).map(|tens| tens * 10).collect();
    let divisors = Divisors::count(lengths.iter().map(|&length| (0, length)));
    let weight = |aggregation: Aggregation| {
        lengths
            .iter()
            .map(|&length| (length as f64, 1000.0 * divisors.token_weight(aggregation, 0, length)))
            .collect()
    };

    let weights = Figure {
        title: "The weight of one token, by the length of its completion",
        x: Axis {
            label: "tokens of the completion",
            from: 10.0,
            to: 200.0,
            ticks: [("10", 10.0), ("50", 50.0), ("100", 100.0), ("150", 150.0), ("200", 200.0)]
                .to_vec(),
        },
        y: Axis {
            label: "weight · 1000",
            from: 0.0,
            to: 5.2,
            ticks: [("0", 0.0), ("1", 1.0), ("2", 2.0), ("3", 3.0), ("4", 4.0), ("5", 5.0)]
                .to_vec(),
        },
        curves: vec![
            curve("token_mean", Hue::Blue, false, weight(Aggregation::TokenMean)),
            curve("sequence_mean", Hue::Orange, false, weight(Aggregation::SequenceMean)),
        ],
    };

    vec![
        ("dapo/clip-higher.md", "clip.svg", clip),
        ("dapo/advantage.md", "advantages.svg", advantages),
        ("dapo/dynamic-sampling.md", "spread.svg", share),
        ("dapo/token-level.md", "weights.svg", weights),
    ]
}

/// Computes what a token with that ratio adds to the objective: minus the program's loss.
fn gain(ratio: f64, advantage: f32, high: f64) -> f64 {
    let one =
        |value: f32| Tensor::<2>::from_data(TensorData::new(vec![value], [1, 1]), &Device::flex());
    // With an old log-probability of 0, the new one is the logarithm of the ratio.
    let input = LossInput::new(one(ratio.ln() as f32), one(0.0), one(advantage), one(1.0));
    let loss = Dapo { clip: ClipRange { low: 0.2, high }, dual_clip: None };
    -f64::from(loss.loss(&input).token_loss.into_scalar::<f32>())
}

/// Plots the shaped reward of completions by their length, from the crate of rewards.
fn of_rewards() -> Vec<(&'static str, &'static str, Figure)> {
    let reward = || Axis {
        label: "shaped reward",
        from: -2.1,
        to: 1.1,
        ticks: [("−2", -2.0), ("−1", -1.0), ("0", 0.0), ("1", 1.0)].to_vec(),
    };

    let overlong = Figure {
        title: "Soft overlong punishment: L_max = 20,480, L_cache = 4,096, penalty 1",
        x: Axis {
            label: "length in tokens",
            from: 0.0,
            to: 20_480.0,
            ticks: [("0", 0.0), ("8,192", 8192.0), ("16,384", 16_384.0), ("20,480", 20_480.0)]
                .to_vec(),
        },
        y: reward(),
        curves: [("right", Hue::Blue, 1.0), ("wrong", Hue::Orange, -1.0)]
            .map(|(label, hue, base)| {
                let shaped = |length| base + soft_overlong_penalty(length, 20_480, 4096, 1.0);
                let points = (0..=80).map(|step| step * 256);
                Curve {
                    label,
                    hue,
                    dashed: false,
                    points: points.map(|length| (length as f64, shaped(length))).collect(),
                }
            })
            .into(),
    };

    let stop = Figure {
        title: "Stop properly: a completion that ran into the limit",
        x: Axis {
            label: "scale",
            from: 0.0,
            to: 1.0,
            ticks: [("0", 0.0), ("0.25", 0.25), ("0.5", 0.5), ("0.75", 0.75), ("1", 1.0)].to_vec(),
        },
        y: reward(),
        curves: both_forms(100, |reward, form, scale| {
            let penalty = StopPenalty::Scale(scale);
            (scale, StopProperly { penalty, form }.penalised(reward, FinishReason::Length))
        }),
    };

    let length = |title, truncated| Figure {
        title,
        x: Axis {
            label: "length as a multiple of the target",
            from: 0.0,
            to: 2.5,
            ticks: [("0", 0.0), ("0.5", 0.5), ("1", 1.0), ("1.5", 1.5), ("2", 2.0), ("2.5", 2.5)]
                .to_vec(),
        },
        y: reward(),
        curves: both_forms(250, |reward, form, share| {
            let tokens = (2500.0 * share).round() as usize;
            let penalty = LengthPenalty { form, ..LengthPenalty::new(1000) };
            (tokens as f64 / 1000.0, penalty.penalised(reward, tokens, truncated))
        }),
    };

    vec![
        ("dapo/overlong.md", "overlong.svg", overlong),
        ("rewards.md", "stop.svg", stop),
        ("rewards.md", "length.svg", length("Length penalty: a completion that stopped", false)),
        (
            "rewards.md",
            "truncation.svg",
            length("Length and truncation penalty: a completion that was cut off", true),
        ),
    ]
}

/// Draws a right answer, for which both forms are the same, and a wrong one in each form. `point` takes the
/// reward, the form and a share from 0 to 1.
fn both_forms(steps: u32, point: impl Fn(f64, PenaltyForm, f64) -> (f64, f64)) -> Vec<Curve> {
    [
        ("right, both forms", Hue::Blue, false, 1.0, PenaltyForm::SignSafe),
        ("wrong, sign-safe", Hue::Orange, false, -1.0, PenaltyForm::SignSafe),
        ("wrong, as written", Hue::Orange, true, -1.0, PenaltyForm::AsWritten),
    ]
    .map(|(label, hue, dashed, reward, form)| {
        let share = |step| f64::from(step) / f64::from(steps);
        let points = (0..=steps).map(|step| point(reward, form, share(step))).collect();
        Curve { label, hue, dashed, points }
    })
    .into()
}
