//! What a run has come to, at a glance: the strip above its curves.

use std::{fmt::Write as _, path::Path};

use firebrick::{Recipe, Step, is_done, runs::resume_command, thousands};
use firebrick_core::counted;
use firebrick_device::gibibytes;
use firebrick_runs::{HELDOUT, RunFolder, TRAIN};

use crate::{
    ViewError,
    examples::example,
    html,
    run::{Run, with_first},
};

/// What a run has come to.
pub(crate) struct Numbers {
    pub(crate) step: Step,
    pub(crate) steps: Option<Step>,
    /// Accuracies of the evaluations, by step.
    pub(crate) heldout: Vec<(Step, f64)>,
    /// 95 % confidence interval of the last one.
    pub(crate) interval: Option<(f64, f64)>,
    /// Number of prompts that it is of.
    pub(crate) prompts: usize,
    /// Last mean credit in training.
    pub(crate) credit: Option<f64>,
    pub(crate) tokens_per_second: Option<f64>,
    /// Mean seconds of the last steps, and of all together.
    pub(crate) step_seconds: Option<f64>,
    pub(crate) seconds: f64,
    pub(crate) completions: f64,
    pub(crate) peak_bytes: Option<f64>,
}

/// Number of steps from which the time left is estimated, as in the terminal.
const RECENT: usize = 20;

fn recent_of(values: &[f64]) -> &[f64] {
    &values[values.len().saturating_sub(RECENT)..]
}

impl Numbers {
    pub(crate) fn of(run: &Run) -> Result<Self, ViewError> {
        let store = &run.store;
        let shares = store.evaluated(HELDOUT)?;
        let mut heldout = store.metrics("eval/heldout_accuracy")?;
        with_first(&mut heldout, &shares);
        let interval =
            heldout.last().and_then(|(step, _)| Some(run.interval(*step, shares.get(step)?)));

        let values = |name: &str| -> Result<Vec<f64>, ViewError> {
            let values = store.metrics(name)?.into_iter().map(|(_, value)| value);
            Ok(values.filter(|value| value.is_finite()).collect())
        };
        let seconds = values("time/step")?;

        Ok(Numbers {
            step: store.last_step()?,
            steps: run.settings().map(|recipe| recipe.train.steps),
            prompts: heldout.last().and_then(|(step, _)| shares.get(step)).map_or(0, Vec::len),
            heldout,
            interval,
            credit: values("reward/credit")?.last().copied(),
            tokens_per_second: mean(recent_of(&values("rollout/tokens_per_second")?)),
            step_seconds: mean(recent_of(&seconds)),
            seconds: seconds.iter().sum(),
            completions: values("sampling/completions")?.iter().sum(),
            peak_bytes: values("memory/peak_bytes")?.last().copied(),
        })
    }

    /// Accuracy before the first step.
    pub(crate) fn start(&self) -> Option<f64> {
        self.heldout.first().filter(|(step, _)| *step == 0).map(|(_, accuracy)| *accuracy)
    }

    pub(crate) fn now(&self) -> Option<f64> {
        self.heldout.last().map(|(_, accuracy)| *accuracy)
    }
}

/// A number that matters, with what there is to say about it.
struct Tile {
    name: &'static str,
    value: String,
    about: String,
}

/// Writes the strip of a run.
pub(crate) fn strip(run: &Run) -> Result<String, ViewError> {
    let numbers = &Numbers::of(run)?;
    let recipe = run.settings();
    let ended = run.ended()?;
    let tiles = [
        Some(accuracy(numbers)),
        Some(progress(run, numbers, ended.as_deref())),
        numbers.tokens_per_second.map(|speed| Tile {
            name: "Tokens per second",
            value: thousands(speed.max(0.0).round() as u64),
            about: numbers.step_seconds.map_or_else(String::new, |seconds| {
                format!("{} a step, mean of the last {RECENT}", duration(seconds))
            }),
        }),
        (numbers.completions > 0.0).then(|| Tile {
            name: "Cost so far",
            value: duration(numbers.seconds),
            about: format!("of steps, for {} completions", thousands(numbers.completions as u64)),
        }),
        recipe.as_ref().map(|recipe| runs_on(recipe, numbers)),
    ];

    let mut page = String::new();
    // What was lost in training is seen before the next evaluation.
    let findings =
        run.diagnosis().transpose()?.map_or_else(Vec::new, |diagnosis| diagnosis.findings);
    let fell = findings.into_iter().find(|finding| finding.name == "fell");
    if let Some(short) = fell.map(|fell| fell.what).or_else(|| in_short(numbers)) {
        let _ = write!(page, "<p class=\"in-short\">{}</p>", html::text(&short));
    }
    page += "<div class=\"strip\"><dl class=\"tiles\">";
    for Tile { name, value, about } in tiles.into_iter().flatten() {
        let bar = if name == PROGRESS { bar(numbers) } else { String::new() };
        let _ = write!(
            page,
            "<div class=\"tile{}\"><dt>{name}</dt><dd><strong>{}</strong>{bar}<small>{}</small></dd></div>",
            if value.starts_with(|letter: char| letter.is_ascii_digit()) { "" } else { " words" },
            html::text(&value),
            html::text(&about)
        );
    }
    page += "</dl>";
    page += &examples(run, numbers)?;
    page += "</div>";
    if let Some(why) = ended.filter(|why| !is_done(why)) {
        let _ = write!(
            page,
            "<p class=\"go-on\">The run ended early: {}. Go on with <code>{}</code></p>",
            html::text(firebrick::reason(&why)),
            html::text(&resume_command(&run.folder))
        );
    }
    Ok(page)
}

/// Says in a sentence whether the run learns, as far as its evaluations prove it.
fn in_short(numbers: &Numbers) -> Option<String> {
    let (now, start, (low, high)) = (numbers.now()?, numbers.start()?, numbers.interval?);
    let last = numbers.heldout.last().map_or(0, |(step, _)| *step);
    Some(match () {
        () if last == 0 => return None,
        () if low > start => format!(
            "It learns: held-out accuracy rose from {} to {} in {last} steps.",
            percent(start),
            percent(now)
        ),
        () if high < start => format!(
            "It gets worse: held-out accuracy fell from {} to {} in {last} steps.",
            percent(start),
            percent(now)
        ),
        () => format!(
            "Not proven yet: the 95 % interval of held-out accuracy after step {last} still contains the {} of the start.",
            percent(start)
        ),
    })
}

fn accuracy(numbers: &Numbers) -> Tile {
    let Some(now) = numbers.now() else {
        return Tile {
            name: "Credit in training",
            value: numbers.credit.map_or_else(|| "–".into(), percent),
            about: "nothing is held out, or not evaluated yet".into(),
        };
    };

    let mut about = Vec::new();
    if let Some(start) = numbers.start().filter(|_| numbers.heldout.len() > 1) {
        about.push(format!("{} points since the start", points(now - start)));
    }
    if let Some((low, high)) = numbers.interval {
        about.push(format!(
            "95\u{a0}% interval {} to {} ({})",
            percent(low),
            percent(high),
            counted(numbers.prompts as u64, "prompt")
        ));
    }
    Tile { name: "Held-out accuracy", value: percent(now), about: about.join(" · ") }
}

const PROGRESS: &str = "Step";

fn progress(run: &Run, numbers: &Numbers, ended: Option<&str>) -> Tile {
    let Numbers { step, steps, step_seconds, .. } = numbers;
    let of = steps.map_or_else(String::new, |steps| format!(" of {}", thousands(steps)));
    let about = match (ended, steps, step_seconds) {
        (Some(why), ..) if is_done(why) => "finished".to_owned(),
        (Some(_), ..) => "ended early".to_owned(),
        (None, ..) if RunFolder::is_left(&run.folder) => "no process writes it any more".to_owned(),
        (None, Some(steps), Some(seconds)) => {
            format!("{} left", duration(seconds * steps.saturating_sub(*step) as f64))
        }
        (None, ..) => "at its first step".to_owned(),
    };
    Tile { name: PROGRESS, value: format!("{}{of}", thousands(*step)), about }
}

fn bar(numbers: &Numbers) -> String {
    let Some(steps) = numbers.steps else { return String::new() };
    format!(
        "<progress max=\"{}\" value=\"{}\" aria-label=\"Steps that are done\"></progress>",
        steps.max(1),
        numbers.step.min(steps)
    )
}

fn runs_on(recipe: &Recipe, numbers: &Numbers) -> Tile {
    let model = recipe.model.path.as_deref().map_or("a new model".into(), last_part);
    let model = model.trim_end_matches(".gguf").to_owned();
    let adapter = recipe.model.lora.as_ref().map_or("", |_| ", an adapter");
    let memory = numbers
        .peak_bytes
        .map_or_else(String::new, |bytes| format!(", {} of memory", gibibytes(bytes as u64)));
    Tile {
        name: "Model",
        value: model,
        about: format!("on {}{adapter}{memory}", recipe.device.name()),
    }
}

fn last_part(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Writes the newest right and the newest wrong answer, from the last evaluation or else from the last step.
fn examples(run: &Run, numbers: &Numbers) -> Result<String, ViewError> {
    let evaluated = numbers.heldout.last().map(|(step, _)| (HELDOUT, *step));
    let (source, step) = evaluated.unwrap_or((TRAIN, numbers.step));
    let examples = run.store.examples(source, step)?;
    if examples.is_empty() {
        return Ok(String::new());
    }
    let rows: String = examples.iter().map(|judged| example(run, judged)).collect();
    Ok(format!("<ul class=\"examples\">{rows}</ul>"))
}

pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

pub(crate) fn percent(share: f64) -> String {
    // The space does not break. A run that has diverged may have any number.
    if share.abs() < 1e4 { format!("{:.1}\u{a0}%", 100.0 * share) } else { format!("{share:.1e}") }
}

/// Writes a difference of shares in points.
pub(crate) fn points(difference: f64) -> String {
    let text = if difference.abs() < 1e4 {
        format!("{:+.1}", 100.0 * difference)
    } else {
        format!("{difference:+.1e}")
    };
    text.replace('-', "−")
}

/// Writes a span of time in its two largest units.
pub(crate) fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        _ if seconds < 10.0 => format!("{:.1} s", seconds.max(0.0)),
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        3600..86_400 => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
        _ => format!("{} d {} h", whole / 86_400, whole % 86_400 / 3600),
    }
}
