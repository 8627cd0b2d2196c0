//! A group of completions, judged and compared by the program's own verifier and estimator.

use std::fmt::Write as _;

use firebrick_core::{Completion, Prompt, Verdict, Verifier as _};
use firebrick_reward::Integer;
use firebrick_train::algorithm::GroupNorm;

use super::figure::{Hue, line, open, text};

/// A group that the quickstart sampled in its first step, with seed 17.
const PROMPT: &str = "58+97=";
const REFERENCE: &str = "155";
const COMPLETIONS: [&str; 8] = [
    "8+7+0=15,5+9+1=14;145",
    "8+7+0=15,5+9+1=15;155",
    "8+7+0=15,5+9+1=14;145",
    "8+7+0+03,8+7+01+9;933",
    "8+7+0=15,5+9+1=15;155",
    "8+7+0=15,5+9+1=14;145",
    "8+7+0=15,+9+0=15;155",
    "8+7+0=15,5+9+1=14;147",
];

/// Columns from left to right, and the pixels of an advantage of 1.
const COLUMNS: [f64; 4] = [8.0, 240.0, 370.0, 560.0];
const UNIT: f64 = 80.0;
const ROW: f64 = 26.0;

/// Draws the group: a row for each completion, with its verdict, its reward, and its advantage as a bar.
pub(super) fn svg() -> String {
    let judge = Integer { marker: Some(";".into()) };
    let prompt = Prompt { reference: REFERENCE.into(), ..Prompt::default() };
    let scores = COMPLETIONS.map(|words| judge.score(&prompt, &Completion::of_text(words)));
    // The quickstart pays 1 for a right answer and −1 for a wrong one.
    let rewards: Vec<f32> = scores.iter().map(|score| 2.0 * score.credit - 1.0).collect();
    let advantages = GroupNorm::default().of_group(&rewards);

    let bottom = 64.0 + ROW * COMPLETIONS.len() as f64;
    let mut svg =
        open("A group of eight: the prompt 58+97= of the quickstart's first step", bottom + 8.0);

    let [words, verdict, reward, zero] = COLUMNS;
    for (x, anchor, heading) in [
        (words, "start", format!("completion of {PROMPT}")),
        (verdict, "start", "verdict".into()),
        (reward, "end", "reward".into()),
        (zero, "middle", "advantage".into()),
    ] {
        text(&mut svg, (x, 50.0), anchor, &heading);
    }
    line(&mut svg, (words, 58.0), (712.0, 58.0), 0.4);
    line(&mut svg, (zero, 58.0), (zero, bottom), 0.4);

    for (row, completion) in COMPLETIONS.iter().enumerate() {
        let y = 58.0 + ROW * (row as f64 + 0.5);
        let baseline = y + 4.5;
        let _ = writeln!(
            svg,
            "<text x=\"{words:.1}\" y=\"{baseline:.1}\" font-family=\"monospace\">{completion}</text>"
        );

        let advantage = f64::from(advantages[row]);
        let right = scores[row].verdict == Verdict::Right;
        text(&mut svg, (verdict, baseline), "start", scores[row].verdict.name());
        text(&mut svg, (reward, baseline), "end", if right { "1" } else { "−1" });
        let width = UNIT * advantage.abs();
        let hue = if right { Hue::Blue } else { Hue::Orange };
        let from = if right { zero } else { zero - width };

        let _ = writeln!(
            svg,
            "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"14\" fill=\"{}\"/>",
            y - 7.0,
            hue.ink()
        );

        let (end, anchor) = if right { (zero + width + 6.0, "start") } else { (from - 6.0, "end") };
        let number = format!("{advantage:+.2}").replace('-', "−");
        text(&mut svg, (end, baseline), anchor, &number);
    }

    svg + "</svg>\n"
}
