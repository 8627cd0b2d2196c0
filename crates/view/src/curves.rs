//! Curves of runs as a part of the page: figures with their numbers, which the page's script draws.

use std::collections::{BTreeMap, BTreeSet};

use firebrick_core::{Step, Verdict};
use firebrick_runs::HELDOUT;
use serde::Serialize;
use serde_json::json;

use crate::{
    ViewError,
    charts::{BEHIND, Chart, Curve, Form, HEADINGS, LEAD, Unit},
    html,
    run::{RecipeRuns, Run, with_first},
};

/// Number of steps of a chart beyond which some are left out.
const STEPS: usize = 1200;

/// The same for charts that most readers never open, to keep the page small.
const OTHER_STEPS: usize = 300;

/// Number of the page's colours for lines.
const COLORS: usize = 8;

/// A line of a chart, as the page's script reads it.
#[derive(Debug, Serialize)]
struct Line {
    /// Text of the line where its values are read.
    name: String,
    /// Text at the end of the line; empty for the last value, and `None` for no text.
    label: Option<String>,
    /// Name of one of the page's colours.
    color: String,
    /// Number of the pattern of dashes; 0 means no dashes.
    dash: usize,
    /// Number of the run.
    run: usize,
    /// Number of the recipe among those of the page, and its name if there are several runs.
    group: usize,
    recipe: Option<String>,
    metric: String,
    /// Position among the lines of its chart, and what it is there.
    line: usize,
    words: String,
    /// True if the line may be smoothed.
    smooth: bool,
    /// True if the line is drawn thin, behind the others.
    behind: bool,
    /// Points, each a step and a value. Values that are not finite are gaps.
    points: Vec<(Step, f64)>,
    /// Band around the values, each entry a step, a lower and an upper bound.
    band: Vec<(Step, f64, f64)>,
}

/// Writes the figures of all charts that have numbers: the leading one, and the others under headings that fold. What no
/// chart shows has a chart of its own, under the last heading.
pub(crate) fn curves(runs: &[Run], book: Option<&str>) -> Result<String, ViewError> {
    let series: Vec<_> = runs
        .iter()
        .map(|run| run.store.all_series(&(0..=Step::MAX >> 1)))
        .collect::<Result<_, _>>()?;
    let recipes = RecipeRuns::of(runs);
    let mut shown = BTreeSet::new();
    let figure = |chart: &Chart, most: usize, shown: &mut BTreeSet<String>| {
        let mut lines = lines(runs, &recipes, &series, chart)?;
        thin(&mut lines, most);
        // The leading chart without an evaluation would show what another chart shows.
        if lines.iter().all(|line| line.behind) {
            return Ok(String::new());
        }
        shown.extend(lines.iter().map(|line| line.metric.clone()));
        Ok::<_, ViewError>(self::figure(chart, &lines, book))
    };

    let mut page = figure(&LEAD, STEPS, &mut shown)?;
    for (nth, heading) in HEADINGS.iter().enumerate() {
        let mut figures = String::new();
        for chart in heading.charts {
            figures += &figure(chart, STEPS, &mut shown)?;
        }
        page += &part(heading.id, heading.title, &figures, nth == 0);
    }

    let mut others: BTreeSet<&String> = series.iter().flat_map(BTreeMap::keys).collect();
    others.retain(|metric| !shown.contains(*metric));
    let mut figures = String::new();
    for (nth, metric) in others.into_iter().enumerate() {
        let id = format!("other-{nth}");
        let line = [(metric.as_str(), metric.as_str())];
        figures += &figure(&Chart::of_metric(&id, &line), OTHER_STEPS, &mut shown)?;
    }
    page += &part("others", "Every other metric", &figures, false);

    if page.is_empty() {
        page += "<p>No step is finished: there are no numbers yet.</p>";
    }
    Ok(page)
}

/// Writes charts under a heading; nothing if there are no charts.
fn part(id: &str, title: &str, figures: &str, is_open: bool) -> String {
    if figures.is_empty() {
        return String::new();
    }
    let open = if is_open { " open" } else { "" };
    format!(
        "<details class=\"part\" id=\"part-{id}\"{open}><summary><h3>{title}</h3> <span class=\"gist\"></span></summary>\
         <div class=\"grid\">{figures}</div></details>"
    )
}

/// Makes the chart's lines. The lines of a single run differ in colour. If there are several runs, each recipe has a
/// colour, and the lines of a run differ in dashes.
fn lines(
    runs: &[Run],
    recipes: &[RecipeRuns],
    series: &[BTreeMap<String, Vec<(Step, f64)>>],
    chart: &Chart,
) -> Result<Vec<Line>, ViewError> {
    let mut curves: Vec<Vec<Curve>> = series.iter().map(|series| chart.curves(series)).collect();
    if runs.len() > 1 {
        // All lines of all runs could not be told apart.
        let first = curves.iter().flatten().map(|curve| curve.pattern).min();
        curves.iter_mut().for_each(|of| of.retain(|curve| Some(curve.pattern) == first));
    }

    let mut lines = Vec::new();
    for (group, recipe) in recipes.iter().enumerate() {
        for &number in &recipe.runs {
            let run = &runs[number];
            for curve in std::mem::take(&mut curves[number]) {
                let of = Place { number, group, recipe: (runs.len() > 1).then_some(&recipe.name) };
                lines.push(line(run, chart, curve, &of)?);
            }
        }
    }

    Ok(lines)
}

/// Where a run stands among those of the page.
struct Place<'a> {
    number: usize,
    group: usize,
    /// Name of its recipe, if there are several runs.
    recipe: Option<&'a String>,
}

fn line(run: &Run, chart: &Chart, curve: Curve, of: &Place) -> Result<Line, ViewError> {
    let Curve { position, metric, words, mut points, .. } = curve;
    let band = if metric == "eval/heldout_accuracy" { band(run, &mut points)? } else { Vec::new() };

    // A verdict has its colour everywhere.
    let verdict =
        Verdict::ALL.into_iter().find(|verdict| verdict.name().replace('_', " ") == words);
    let (color, dash, name, label) = match of.recipe {
        None => {
            let color = match verdict {
                Some(verdict) => verdict.name().replace('_', "-"),
                None => format!("series-{}", position % COLORS),
            };
            let label = if chart.has_one_line() { String::new() } else { words.clone() };
            (color, 0, words.clone(), Some(label))
        }
        Some(recipe) => {
            let color = format!("series-{}", of.group % COLORS);
            let (dash, name) = if chart.has_pattern(&metric) {
                (position, format!("{} · {words}", run.name))
            } else {
                (0, run.name.clone())
            };
            (color, dash, name, (dash == 0).then(|| recipe.clone()))
        }
    };

    Ok(Line {
        name,
        label,
        color,
        dash,
        run: of.number,
        group: of.group,
        recipe: of.recipe.cloned(),
        line: position,
        words,
        smooth: !metric.starts_with("eval/"),
        behind: chart.id == LEAD.id && metric == BEHIND,
        metric,
        points,
        band,
    })
}

/// Returns the 95 % confidence interval of each held-out accuracy, if the record still has the evaluations. The accuracy
/// before the first step is put before the others.
fn band(run: &Run, points: &mut Vec<(Step, f64)>) -> Result<Vec<(Step, f64, f64)>, ViewError> {
    let shares = run.store.evaluated(HELDOUT)?;
    with_first(points, &shares);

    let known = points.iter().filter_map(|(step, _)| Some((*step, shares.get(step)?)));
    let bounds = known.map(|(step, shares)| {
        let (low, high) = run.interval(step, shares);
        (step, low, high)
    });
    Ok(bounds.collect())
}

fn figure(chart: &Chart, lines: &[Line], book: Option<&str>) -> String {
    let is_single = lines.iter().all(|line| line.recipe.is_none());
    let data = json!({
        "unit": match chart.unit {
            Unit::Number => "number",
            Unit::Share => "share",
            Unit::Seconds => "seconds",
            Unit::Bytes => "bytes",
        },
        "log": chart.form == Form::Log,
        // The shares of several runs would lie on each other.
        "stacked": matches!(chart.form, Form::Stacked(_)) && is_single,
        "lead": chart.id == LEAD.id,
        "series": lines,
    });

    // Of several runs each has one line, which is named here.
    let only = lines.first().filter(|line| !is_single && chart.lines.len() > 1 && line.dash == 0);
    let only = only.map_or("", |line| &line.words);
    let measure = [only, chart.measure].into_iter().filter(|part| !part.is_empty());
    let measure = measure.collect::<Vec<_>>().join(", ");
    let section = html::more(book, "metrics", chart.section);
    let about = if is_single { chart.about } else { SEVERAL };
    let about = match html::text(about) + &section {
        text if text.is_empty() => text,
        text => format!(
            "<details class=\"about\"><summary>What it says</summary><p>{text}</p></details>"
        ),
    };

    format!(
        "<figure class=\"chart{lead}\" id=\"chart-{id}\" data-chart=\"{data}\" data-label=\"{label}\">\
         <figcaption><{level}>{title}</{level}><p class=\"measure\">{measure}</p><span class=\"tools\">\
         <button type=\"button\" class=\"csv\" aria-label=\"{title} as CSV\">CSV</button>\
         <button type=\"button\" class=\"enlarge\" aria-pressed=\"false\" aria-label=\"{title}, large\">⤢</button>\
         </span></figcaption><div class=\"space\"></div>{about}</figure>",
        lead = if chart.id == LEAD.id { " lead" } else { "" },
        level = if chart.id == LEAD.id { "h3" } else { "h4" },
        measure = html::text(&measure),
        id = chart.id,
        data = html::text(&data.to_string()),
        label = html::text(&label(lines)),
        title = html::text(chart.title),
    )
}

/// What the lines of several runs are.
const SEVERAL: &str = "Each recipe has a colour. The runs of a recipe are thin lines, and their mean is a thick one, \
                       with a band from the lowest run to the highest.";

/// Writes the text for a reader who can't see the lines: the first and the last value of each.
fn label(lines: &[Line]) -> String {
    let of_line = |line: &Line| {
        let finite = || line.points.iter().filter(|point| point.1.is_finite());
        let (first, last) = (finite().next()?, finite().next_back()?);
        Some(format!(
            "{}: {} at step {}, {} at step {}",
            line.name,
            short(first.1),
            first.0,
            short(last.1),
            last.0
        ))
    };
    let lines: Vec<String> = lines.iter().filter_map(of_line).collect();
    format!("{}.", lines.join("; "))
}

/// Writes a number in four digits.
fn short(value: f64) -> String {
    let rounded: f64 = format!("{value:.3e}").parse().unwrap_or(value);
    // Numbers of a run that has diverged may have three hundred digits.
    if (1e-4..1e9).contains(&rounded.abs()) { rounded.to_string() } else { format!("{rounded:e}") }
}

/// Reduces the lines of a chart to about `most` steps. All lines keep the same steps: the first, the last, and in each
/// stretch between them the steps at which some line is lowest or highest.
fn thin(lines: &mut [Line], most: usize) {
    let mut steps: Vec<Step> =
        lines.iter().flat_map(|line| &line.points).map(|point| point.0).collect();
    steps.sort_unstable();
    steps.dedup();
    let (Some(&first), Some(&last)) = (steps.first(), steps.last()) else { return };
    if steps.len() <= most {
        return;
    }

    // Each line keeps two steps of a stretch: its lowest and its highest.
    let stretches = (most / (2 * lines.len())).max(2);
    let mut kept_steps = BTreeSet::from([first, last]);
    for line in lines.iter() {
        let stretch = line.points.len().div_ceil(stretches).max(1);
        for points in line.points.chunks(stretch) {
            let finite = || points.iter().filter(|point| point.1.is_finite());
            let by_value = |one: &&(Step, f64), other: &&(Step, f64)| one.1.total_cmp(&other.1);
            let extremes = [finite().min_by(by_value), finite().max_by(by_value)];
            kept_steps.extend(extremes.into_iter().flatten().map(|point| point.0));
        }
    }

    for line in lines {
        line.points.retain(|point| kept_steps.contains(&point.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(points: Vec<(Step, f64)>) -> Line {
        Line {
            name: "a".into(),
            label: None,
            color: "series-0".into(),
            dash: 0,
            run: 0,
            group: 0,
            recipe: None,
            metric: "a".into(),
            line: 0,
            words: "a".into(),
            smooth: true,
            behind: false,
            points,
            band: Vec::new(),
        }
    }

    #[test]
    fn lines_of_a_chart_keep_the_same_steps_and_their_extremes() {
        let wave = |offset: f64| (0..5000).map(move |step| (step, (step as f64 + offset).sin()));
        let mut lines = [line(wave(0.0).collect()), line(wave(1.0).collect())];
        lines[0].points[2500].1 = 9.0;
        lines[1].points[3000].1 = f64::NAN;
        thin(&mut lines, 400);

        let steps = |line: &Line| line.points.iter().map(|point| point.0).collect::<Vec<_>>();
        assert_eq!(steps(&lines[0]), steps(&lines[1]));
        assert!((200..=402).contains(&lines[0].points.len()), "{}", lines[0].points.len());
        assert_eq!((lines[0].points[0].0, lines[0].points.last().unwrap().0), (0, 4999));
        assert!(lines[0].points.contains(&(2500, 9.0)));
    }
}
