//! What a run prints at its end: a table, and the next commands.

use std::path::Path;

use firebrick::{INTERRUPTED, reason};
use firebrick_device::Name;
use firebrick_runs::{Summary, path_word, resume_command, shell_word};

/// Returns the rows, aligned in three columns. A value that was not measured has no row.
pub(crate) fn table(summary: &Summary, checkpoint: Option<&Path>) -> Vec<String> {
    let accuracy = |value: Option<f64>| value.map(|value| decimals(value, 3));
    let time = |seconds: f64| (seconds > 0.0).then(|| duration(seconds));
    let rate = |rate: f64| (rate > 0.0).then(|| decimals(rate, 0));
    let Summary { heldout, completions, seconds, tokens_per_second, .. } = summary;

    // If Ctrl-C ended the run, nothing was measured after the last step.
    let last_label = if summary.stopped_because == INTERRUPTED { "last measured" } else { "final" };
    let rows = [
        ("held-out accuracy", "initial", accuracy(heldout.initial)),
        ("held-out accuracy", "after SFT", accuracy(heldout.after_sft)),
        ("held-out accuracy", last_label, accuracy(heldout.r#final)),
        ("held-out credit", "initial", partial(heldout.initial_credit, heldout.initial)),
        ("held-out credit", last_label, partial(heldout.final_credit, heldout.r#final)),
        ("steps", "", Some(summary.steps.to_string())),
        ("completions", "generated", Some(completions.generated.to_string())),
        ("completions", "trained", Some(completions.trained.to_string())),
        ("tokens/s", "rollout", rate(tokens_per_second.rollout)),
        ("tokens/s", "update", rate(tokens_per_second.update)),
        ("time", "SFT", time(seconds.sft)),
        ("time", "rollout", time(seconds.rollout)),
        ("time", "reward", time(seconds.reward)),
        ("time", "update", time(seconds.update)),
        ("time", "evaluation", time(seconds.eval)),
        ("time", "checkpoints", time(seconds.checkpoint)),
        ("time", "total", time(seconds.total)),
        ("peak memory", "", summary.peak_rss_bytes.map(bytes)),
        ("stopped because", "", Some(reason(&summary.stopped_because).into())),
        ("checkpoint", "", checkpoint.map(|path| path.display().to_string())),
    ];

    let mut previous_subject = "";
    let mut lines = Vec::new();
    for (subject, part, value) in rows {
        let Some(value) = value else { continue };
        let subject_cell = if subject == previous_subject { "" } else { subject };
        previous_subject = subject;
        lines.push(format!("{subject_cell:<17}  {part:<13}  {value}"));
    }
    lines
}

/// Writes a mean credit, if it says more than the accuracy: only with partial credit do the two differ.
pub(crate) fn partial(credit: Option<f64>, accuracy: Option<f64>) -> Option<String> {
    let credit = credit.map(|credit| decimals(credit, 3))?;
    (Some(&credit) != accuracy.map(|accuracy| decimals(accuracy, 3)).as_ref()).then_some(credit)
}

/// Returns the commands that a user would give next: to measure the model, to ask it `prompt` on `device`, to talk to an
/// adapter beside its base, and last to continue the run. Measuring and continuing find the device in the recipe. Without
/// a checkpoint, the only command is to continue.
pub(crate) fn next(summary: &Summary, prompt: Option<&str>, device: Option<Name>) -> Vec<String> {
    let Some(run) = &summary.folder else { return Vec::new() };

    // More steps would not prolong a run that ended because it had seen its data or reached its accuracy.
    let more = match summary.stopped_because.as_str() {
        INTERRUPTED => Some(String::new()),
        "steps" => Some(format!(" --set train.steps={}", 2 * summary.steps.max(1))),
        _ => None,
    };

    let device = device.map_or_else(String::new, |device| format!(" --device {device}"));
    let mut lines = vec![String::new(), "next:".into()];

    if let Some(checkpoint) = &summary.checkpoint {
        let run = path_word(run);
        let prompt = prompt.unwrap_or("…");
        // After two dashes no word is taken for an option.
        let dashes = if prompt.starts_with('-') { " --" } else { "" };
        let prompt = shell_word(prompt);
        lines.push(format!("  firebrick eval {run} --samples 8"));
        lines.push(format!("  firebrick generate {run}{device}{dashes} {prompt}"));
        if checkpoint.join("adapter_config.json").is_file() {
            lines.push(format!("  firebrick chat {run}{device} --beside base"));
        }
    }

    lines.extend(more.map(|more| format!("  {}{more}", resume_command(run))));
    lines
}

/// Writes a number with that many decimals, or as a power of ten if it has too many digits to be read.
pub(crate) fn decimals(value: f64, decimals: usize) -> String {
    if value.abs() < 1e12 { format!("{value:.decimals$}") } else { format!("{value:.2e}") }
}

/// Writes a span of time in at most six letters, unless it is longer than 99 days: `4 ms`, `8.1s`, `1m02s`, `1h02m`,
/// `3d04h`.
pub(crate) fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "-".into();
    }

    // Each bound is where rounding would reach the next unit.
    if seconds < 0.0995 {
        return format!("{:.0} ms", seconds * 1e3);
    }
    if seconds < 59.95 {
        return format!("{seconds:.1}s");
    }

    if seconds >= 86_400.0 * 1e4 {
        return format!("{:.0e}d", seconds / 86_400.0);
    }

    let whole_seconds = seconds.round() as u64;
    let (large, small, units) = match whole_seconds {
        0..3600 => (whole_seconds / 60, whole_seconds % 60, ('m', 's')),
        3600..86_400 => (whole_seconds / 3600, whole_seconds % 3600 / 60, ('h', 'm')),
        _ => (whole_seconds / 86_400, whole_seconds % 86_400 / 3600, ('d', 'h')),
    };
    format!("{large}{}{small:02}{}", units.0, units.1)
}

pub(crate) fn bytes(count: u64) -> String {
    let mebibytes = count as f64 / f64::from(1 << 20);
    if mebibytes < 1.0 {
        format!("{} KiB", count.div_ceil(1024))
    } else if mebibytes < 1024.0 {
        format!("{mebibytes:.0} MiB")
    } else {
        format!("{:.1} GiB", mebibytes / 1024.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_time_stay_short() {
        let spans = [0.0, 0.0994, 0.0996, 59.94, 59.96, 3599.6, 86_399.0, 273_600.0, f64::NAN];
        let shown = spans.map(duration);
        assert_eq!(
            shown,
            ["0 ms", "99 ms", "0.1s", "59.9s", "1m00s", "1h00m", "23h59m", "3d04h", "-"]
        );
    }

    #[test]
    fn the_table_leaves_out_what_was_not_measured() {
        let mut summary =
            Summary { steps: 200, stopped_because: "steps".into(), ..Default::default() };
        summary.heldout.initial = Some(0.0125);
        summary.heldout.r#final = Some(0.871);
        summary.seconds.total = 754.0;
        summary.peak_rss_bytes = Some(3 << 30);

        let shown = table(&summary, Some(Path::new("runs/addition/checkpoints/step-000200")));
        assert_eq!(
            shown,
            [
                "held-out accuracy  initial        0.013",
                "                   final          0.871",
                "steps                             200",
                "completions        generated      0",
                "                   trained        0",
                "time               total          12m34s",
                "peak memory                       3.0 GiB",
                "stopped because                   all its steps are done",
                "checkpoint                        runs/addition/checkpoints/step-000200",
            ]
        );
    }
}
