//! What several runs have come to, at a glance: a table of their recipes, with means over the seeds.

use std::fmt::Write as _;

use firebrick::{Recipe, Step, thousands};
use firebrick_core::counted;

use crate::{
    ViewError,
    glance::{Numbers, duration, mean, percent, points},
    html,
    run::{RecipeRuns, Run},
    settings::differing,
};

/// Writes whether the recipes differ, a row for each of them, and the settings in which they do.
pub(crate) fn comparison(runs: &[Run]) -> Result<String, ViewError> {
    let recipes = RecipeRuns::of(runs);
    let runs_of: Vec<SeededRun> = runs.iter().map(SeededRun::of).collect::<Result<_, _>>()?;
    let of = |recipe: &RecipeRuns| recipe.runs.iter().map(|&run| &runs_of[run]).collect::<Vec<_>>();
    let Some(first) = recipes.first() else { return Ok(String::new()) };
    let rows: Vec<Row> = recipes
        .iter()
        .map(|recipe| Row { name: &recipe.name, runs: of(recipe), against: of(first) })
        .collect();

    let head = [
        "recipe",
        "runs",
        "held-out accuracy",
        &format!("against {}", first.name),
        "held-out at the start",
        "credit in training",
        "steps",
        "completions",
        "time",
    ];
    let head: String =
        head.iter().map(|name| format!("<th scope=\"col\">{}</th>", html::text(name))).collect();

    let mut body = String::new();
    for (color, row) in rows.iter().enumerate() {
        let vague = if row.is_clear() { "" } else { " class=\"vague\"" };
        let _ = write!(
            body,
            "<tr><th scope=\"row\"><span class=\"spot\" style=\"background: var(--series-{})\"></span>{}</th>",
            color % 8,
            html::text(row.name),
        );
        for (column, cell) in row.cells(color == 0).iter().enumerate() {
            let class = if column == AGAINST { vague } else { "" };
            let _ = write!(body, "<td{class}>{}</td>", html::text(cell));
        }
        body += "</tr>";
    }

    Ok(format!(
        "<p class=\"in-short\">{}</p>\
         <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Recipes\"><table class=\"recipes\">\
         <caption>Means over the runs of each recipe; ± is the standard deviation over their seeds, and differences, in \
         points, are between runs with the same seed</caption>\
         <thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>\
         <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Differences\">{}</div>",
        html::text(&in_short(&rows)),
        differences(runs, &recipes),
    ))
}

/// A run's numbers, and its seed.
struct SeededRun {
    numbers: Numbers,
    seed: Option<u64>,
}

impl SeededRun {
    fn of(run: &Run) -> Result<Self, ViewError> {
        let seed = run.settings().map(|recipe| recipe.seed);
        Ok(SeededRun { numbers: Numbers::of(run)?, seed })
    }
}

/// A recipe with its runs, and those of the first recipe.
struct Row<'a> {
    name: &'a str,
    runs: Vec<&'a SeededRun>,
    against: Vec<&'a SeededRun>,
}

/// Position of the differences among the cells of a row.
const AGAINST: usize = 2;

impl Row<'_> {
    fn numbers(&self) -> impl Iterator<Item = &Numbers> {
        self.runs.iter().map(|run| &run.numbers)
    }

    /// Returns the differences to the first recipe's runs with the same seeds, which leave less to chance than all runs
    /// against all.
    fn gains(&self) -> Vec<f64> {
        let gain = |run: &&SeededRun| {
            let same = self.against.iter().find(|other| other.seed == run.seed)?;
            Some(run.numbers.now()? - same.numbers.now()?)
        };
        self.runs.iter().filter_map(gain).collect()
    }

    /// Tells whether the mean difference is larger than what the seeds make of it.
    fn is_clear(&self) -> bool {
        let gains = self.gains();
        let mean = mean(&gains).map_or(0.0, f64::abs);
        deviation(&gains).is_some_and(|deviation| mean > deviation)
    }

    fn cells(&self, is_first: bool) -> [String; 8] {
        let now: Vec<f64> = self.numbers().filter_map(Numbers::now).collect();
        let dash = || "–".to_owned();
        let mean_of = |value: fn(&Numbers) -> Option<f64>| {
            mean(&self.numbers().filter_map(value).collect::<Vec<_>>())
        };
        [
            self.runs.len().to_string(),
            with_deviation(&now, percent),
            if is_first { dash() } else { with_deviation(&self.gains(), points) },
            mean_of(Numbers::start).map_or_else(dash, percent),
            mean_of(|of| of.credit).map_or_else(dash, percent),
            self.steps(),
            mean_of(|of| Some(of.completions)).map_or_else(dash, |count| thousands(count as u64)),
            mean_of(|of| Some(of.seconds)).map_or_else(dash, duration),
        ]
    }

    fn steps(&self) -> String {
        let least = self.numbers().map(|of| of.step).min().unwrap_or(0);
        let all: Option<Step> = self.numbers().filter_map(|of| of.steps).max();
        match all {
            Some(all) if least < all => format!("{} of {}", thousands(least), thousands(all)),
            _ => thousands(least),
        }
    }
}

/// Says in a sentence which recipes differ from the first.
fn in_short(rows: &[Row]) -> String {
    let prompts = rows.iter().flat_map(Row::numbers).map(|of| of.prompts).max().unwrap_or(0);
    let prompts = counted(prompts as u64, "held-out prompt");
    let clear: Vec<String> = rows
        .iter()
        .filter(|row| row.is_clear())
        .map(|row| format!("{} ({} points)", row.name, with_deviation(&row.gains(), points)))
        .collect();
    match (rows, clear.as_slice()) {
        ([only], _) => format!("{} runs of one recipe, on {prompts}.", only.runs.len()),
        ([first, ..], []) => format!(
            "No recipe differs from {} on {prompts} by more than the seeds make of it.",
            first.name
        ),
        ([first, ..], clear) => {
            format!("Against {}, on {prompts}: {}.", first.name, clear.join(", "))
        }
        ([], _) => String::new(),
    }
}

fn differences(runs: &[Run], recipes: &[RecipeRuns]) -> String {
    let names: Vec<String> = recipes.iter().map(|recipe| recipe.name.clone()).collect();
    let settings: Option<Vec<Recipe>> =
        recipes.iter().map(|recipe| runs[recipe.runs[0]].settings()).collect();
    let Some(settings) = settings else {
        return "<p>Not every run has a recipe that can be read, so they are not compared.</p>"
            .into();
    };
    differing("Settings in which the recipes differ", &names, &settings).unwrap_or_default()
}

fn with_deviation(values: &[f64], write: impl Fn(f64) -> String) -> String {
    match (mean(values), deviation(values)) {
        (None, _) => "–".into(),
        (Some(mean), None) => write(mean),
        (Some(mean), Some(deviation)) => {
            format!("{} ± {}", write(mean), points(deviation).trim_start_matches('+'))
        }
    }
}

/// Returns the standard deviation; `None` of fewer than two values.
fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|_| values.len() > 1)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}
