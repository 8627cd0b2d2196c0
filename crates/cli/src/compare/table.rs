//! A comparison as Markdown that can be read as it stands.

use std::fmt::Write as _;

use firebrick::thousands;
use firebrick_core::short_numbers;

use super::{
    Compared, ComparedMetric, Comparison, Difference, Effect, Means, Outcome, RecipeMetric, State,
};

/// Writes the table of recipes, the notes that explain its columns, and the metrics that were asked for.
pub(super) fn table(comparison: &Comparison) -> String {
    let target = comparison.target.as_ref();
    let reach = target.map_or("reached".into(), |target| format!("reached {}", target.accuracy));
    let first = comparison.recipes.first().map_or("", |first| first.name.as_str());
    let against = format!("against {first}");

    let mut rows = vec![row([
        "recipe",
        "accuracy",
        &against,
        &reach,
        "steps to it",
        "completions to it",
        "seconds to it",
        "completions",
        "seconds",
        "entropy",
        "length",
        "cut off",
    ])];

    rows.extend(comparison.recipes.iter().map(|recipe| recipe_row(recipe, target.is_some())));
    markdown(&rows) + "\n" + &notes(comparison) + &missing(comparison) + &metrics(comparison)
}

/// Writes the text of `compare.md`, with the figures of these files and titles.
pub(super) fn page(comparison: &Comparison, figures: &[(&str, &str)]) -> String {
    let Comparison { command, machine, differences, recipes, .. } = comparison;
    let names: Vec<&str> = recipes.iter().map(|recipe| recipe.name.as_str()).collect();
    let mut text =
        format!("# {}\n\n```console\n$ {command}\n```\n\n{machine}.\n\n", names.join(", "));

    text += &table(comparison);
    for (file, title) in figures {
        let _ = write!(text, "\n![{title}]({file})\n");
    }

    if let Some(table) = differing(&names, differences) {
        let _ = write!(text, "\n## What differs\n\n{table}");
    }

    let _ = write!(text, "\n## Every run\n\n{}", runs(recipes));
    text
}

/// Writes the settings that differ, with a column for each recipe; `None` if none differ.
pub(crate) fn differing(names: &[&str], differences: &[Difference]) -> Option<String> {
    let heading = std::iter::once("key").chain(names.iter().copied()).map(str::to_owned);
    let mut rows = vec![heading.collect::<Vec<_>>()];
    rows.extend(differences.iter().map(|difference| {
        let key = format!("`{}`", difference.key);
        std::iter::once(key).chain(difference.cells()).collect()
    }));
    (rows.len() > 1).then(|| markdown(&rows))
}

fn recipe_row(recipe: &Compared, target: bool) -> Vec<String> {
    let Means { finished, reached, .. } = recipe.means;
    let means = &recipe.means;
    let accuracy = means.accuracy.map(|accuracy| format!("{accuracy:.3}"));
    let gain = means.gain.map(|gain| format!("{gain:+.3}"));

    let with = |mean: Option<String>, deviation: Option<f64>| {
        mean.map(|mean| match deviation {
            Some(deviation) => format!("{mean} ± {deviation:.3}"),
            None => mean,
        })
    };

    vec![
        recipe.name.clone(),
        shown(with(accuracy, means.accuracy_deviation)),
        shown(with(gain, means.gain_deviation)),
        shown(target.then(|| format!("{reached} of {finished}"))),
        shown(means.steps_to_target.map(rounded)),
        shown(means.completions_to_target.map(rounded)),
        shown(means.seconds_to_target.map(seconds)),
        shown(means.completions.map(rounded)),
        shown(means.seconds.map(seconds)),
        shown(means.entropy.map(|entropy| format!("{entropy:.3}"))),
        shown(means.length.map(|length| format!("{length:.1}"))),
        shown(means.truncated.map(percent)),
    ]
}

fn notes(comparison: &Comparison) -> String {
    let runs = || comparison.recipes.iter().flat_map(|recipe| &recipe.runs);
    let measured = || runs().filter_map(|run| run.state.measured());

    let mut text = String::from(
        "- accuracy: on the held-out prompts, the mean of a run's evaluations in the last quarter \
         of its steps; mean ± standard deviation over the seeds",
    );

    let error = measured().filter_map(|run| run.standard_error).reduce(f64::max);
    let prompts = measured().filter_map(|run| run.heldout_prompts).min();
    if let Some((error, prompts)) = error.zip(prompts) {
        let _ = write!(
            text,
            "; one evaluation has a standard error of at most {error:.3} ({prompts} prompts)"
        );
    }

    if comparison.recipes.len() > 1 {
        text += "\n- against: difference of accuracy to the first recipe's run with the same seed, mean \
                 ± standard deviation over the seeds";
    }

    match &comparison.target {
        Some(target) => {
            let _ = write!(
                text,
                "\n- reached {}: runs with an evaluation at or above this target, which is {}; \
                 \"to it\": mean over these runs up to their first such evaluation, without \
                 interpolation",
                target.accuracy, target.origin
            );
        }
        None => text += "\n- no target: no recipe has a measured gain in accuracy",
    }

    text += "\n- completions: sampled for training; seconds: sampling, judging and updating, without SFT, \
             evaluations and checkpoints\n- entropy (nats), length (tokens) and cut off: means over the completions \
             that were sampled in the last quarter of the steps\n";
    text
}

/// Writes a table of each metric, and a note that explains their columns.
fn metrics(comparison: &Comparison) -> String {
    if comparison.metrics.is_empty() {
        return String::new();
    }

    let mut text = String::new();
    for metric in &comparison.metrics {
        let _ = write!(text, "\n{}", markdown(&metric_rows(metric)));
    }
    text + "\n- each run counts with its mean over the last quarter of its steps; mean ± standard deviation over the \
            seeds\n- by pairs: mean difference of the two runs of a seed, over the seeds that both have; Welch: \
            difference of the means, because too few runs have a partner\n- 95 % interval: by Student's t; if 0 is \
            outside, the difference is more than chance, but for one in 20 that chance makes alone; t: the difference, \
            in standard errors\n"
        + &without_end(comparison)
}

/// Says how many finished runs a table leaves out, because they have no number to compare.
fn without_end(comparison: &Comparison) -> String {
    let mut text = String::new();
    for ComparedMetric { name, recipes } in &comparison.metrics {
        let finished: usize = comparison.recipes.iter().map(|recipe| recipe.means.finished).sum();
        let compared: usize = recipes.iter().map(|recipe| recipe.seeds).sum();
        let _ = match finished - compared {
            0 => continue,
            1 => writeln!(text, "- 1 run has no finite {name} in the last quarter of its steps"),
            runs => {
                writeln!(
                    text,
                    "- {runs} runs have no finite {name} in the last quarter of their steps"
                )
            }
        };
    }
    text
}

fn metric_rows(metric: &ComparedMetric) -> Vec<Vec<String>> {
    let baseline = metric.recipes.first().map_or("", |first| first.recipe.as_str());
    let against = format!("against {baseline}");
    let mut rows = vec![row([
        metric.name.as_str(),
        "seeds",
        "mean",
        &against,
        "standard error",
        "95 % interval",
        "t",
        "by",
    ])];

    // Four digits of the largest mean: enough for an error of a thousandth.
    let largest = metric
        .recipes
        .iter()
        .filter_map(|recipe| recipe.mean)
        .fold(0.0, |most: f64, mean| most.max(mean.abs()));
    let digits = (3.0 - largest.log10().floor()).clamp(0.0, 9.0) as usize;
    let baseline_seeds = metric.recipes.first().map_or(0, |first| first.seeds);
    rows.extend(metric.recipes.iter().map(|recipe| metric_row(recipe, baseline_seeds, digits)));
    rows
}

fn metric_row(recipe: &RecipeMetric, baseline_seeds: usize, digits: usize) -> Vec<String> {
    // Someone else's run may have numbers of 300 digits.
    let write = |value: f64| short_numbers(&format!("{value:.digits$}"));
    let signed = |value: f64| short_numbers(&format!("{value:+.digits$}"));
    let effect = |cell: &dyn Fn(&Effect) -> String| shown(recipe.effect.as_ref().map(cell));
    let most = recipe.seeds.max(baseline_seeds);

    vec![
        recipe.recipe.clone(),
        recipe.seeds.to_string(),
        shown(recipe.mean.map(|mean| match recipe.deviation {
            Some(deviation) => format!("{} ± {}", write(mean), write(deviation)),
            None => write(mean),
        })),
        effect(&|effect| signed(effect.difference)),
        effect(&|effect| write(effect.standard_error)),
        effect(&|effect| {
            format!("{} to {}", signed(effect.interval[0]), signed(effect.interval[1]))
        }),
        effect(&|effect| shown(effect.t.map(|t| short_numbers(&format!("{t:+.1}"))))),
        effect(&|effect| match effect.pairs {
            Some(pairs) if pairs < most => format!("{pairs} of {most} pairs"),
            Some(pairs) => format!("{pairs} pairs"),
            None => "Welch".to_owned(),
        }),
    ]
}

/// Lists the runs that the table lacks, each with the reason.
fn missing(comparison: &Comparison) -> String {
    let mut text = String::new();
    for recipe in &comparison.recipes {
        for Outcome { seed, state, .. } in &recipe.runs {
            let _ = match state {
                State::Finished(_) => continue,
                State::Unfinished => {
                    writeln!(text, "- **not finished**: {}, seed {seed}", recipe.name)
                }
                State::Failed { problem } => {
                    let problem = problem.replace('\n', " ");
                    writeln!(text, "- **failed**: {}, seed {seed}: {problem}", recipe.name)
                }
            };
        }
    }
    text
}

fn runs(recipes: &[Compared]) -> String {
    let mut rows = vec![row([
        "recipe",
        "seed",
        "accuracy",
        "steps to target",
        "completions to it",
        "seconds to it",
        "steps",
        "completions",
        "seconds",
        "seconds in all",
        "ended because of",
    ])];

    for recipe in recipes {
        for run in &recipe.runs {
            let measured = run.state.measured();
            let cell = |value: fn(&super::Measured) -> String| shown(measured.map(value));
            let until =
                |value: fn(&super::Evaluation) -> String| shown(run.reached.as_ref().map(value));

            rows.push(vec![
                recipe.name.clone(),
                run.seed.to_string(),
                shown(
                    measured.and_then(|run| run.accuracy).map(|accuracy| format!("{accuracy:.3}")),
                ),
                until(|at| at.step.to_string()),
                until(|at| rounded(at.completions)),
                until(|at| seconds(at.seconds)),
                cell(|run| run.steps.to_string()),
                cell(|run| thousands(run.completions)),
                cell(|run| seconds(run.seconds)),
                cell(|run| seconds(run.total_seconds)),
                cell(|run| run.stopped_because.clone()),
            ]);
        }
    }

    markdown(&rows)
}

/// Writes rows as a Markdown table. The first row is the heading. All columns but the first are numbers, aligned
/// on the right.
fn markdown(rows: &[Vec<String>]) -> String {
    // A bar in a setting or a message would begin a new cell.
    let escape = |cell: &String| cell.replace('|', "\\|").replace('\n', " ");
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(escape).collect()).collect();

    let columns = rows.first().map_or(0, Vec::len);
    let length = |row: &Vec<String>, column: usize| row[column].chars().count();
    let widths: Vec<usize> = (0..columns)
        .map(|column| rows.iter().map(|row| length(row, column)).max().unwrap_or(0).max(2))
        .collect();

    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = match column {
                0 => write!(text, "| {cell:<width$} |"),
                _ => write!(text, " {cell:>width$} |"),
            };
        }
        text.push('\n');

        // The line below the heading aligns the columns.
        if index == 0 {
            for (column, &width) in widths.iter().enumerate() {
                text += if column == 0 { "|" } else { "" };
                text += &"-".repeat(width + 1);
                text += if column == 0 { "-|" } else { ":|" };
            }
            text.push('\n');
        }
    }
    text
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

fn shown(cell: Option<String>) -> String {
    cell.unwrap_or_else(|| "–".into())
}

fn rounded(number: f64) -> String {
    thousands(number.round() as u64)
}

fn seconds(seconds: f64) -> String {
    if seconds < 99.5 { format!("{seconds:.1}") } else { rounded(seconds) }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
