//! Curves of runs as a part of the page.

use std::{collections::BTreeMap, fmt::Write as _};

use firebrick_core::Step;
use firebrick_runs::HELDOUT;
use serde_json::{Value, json};

use crate::{
    ViewError,
    charts::{Chart, Curve, HEADINGS, Scale},
    draw::{COLORS, Drawing, Line, draw, short, thin},
    html,
    run::Run,
};

/// Number of points of a line beyond which some are left out.
const POINTS: usize = 1200;

/// Number of rows of the table below a chart.
const ROWS: usize = 30;

/// Writes the figures, under their headings, of all charts that have numbers.
pub(crate) fn curves(runs: &[Run], book: Option<&str>) -> Result<String, ViewError> {
    let series: Vec<_> = runs
        .iter()
        .map(|run| run.store.all_series(&(0..=Step::MAX >> 1)))
        .collect::<Result<_, _>>()?;

    let mut page = String::new();
    for heading in HEADINGS {
        let mut figures = String::new();
        for chart in heading.charts {
            let lines = lines(runs, &series, chart)?;
            if !lines.is_empty() {
                figures += &figure(chart, &lines, book)?;
            }
        }
        if !figures.is_empty() {
            let _ = write!(page, "<h3>{}</h3>{figures}", heading.title);
        }
    }

    if page.is_empty() {
        page += "<p>No step is finished: there are no numbers yet.</p>";
    }
    Ok(page)
}

/// Makes the chart's lines. The lines of a single run differ in colour. If there are several runs, each run has a
/// colour, and its lines differ in dashes.
fn lines(
    runs: &[Run],
    series: &[BTreeMap<String, Vec<(Step, f64)>>],
    chart: &Chart,
) -> Result<Vec<Line>, ViewError> {
    let mut lines = Vec::new();
    let is_single = runs.len() == 1;

    for (number, (run, series)) in runs.iter().zip(series).enumerate() {
        for Curve { position, metric, words, mut points } in chart.curves(series) {
            let band = if metric == "eval/heldout_accuracy" {
                band(run, &mut points)?
            } else {
                Vec::new()
            };
            let points = points.iter().map(|&(step, value)| (step as f64, value));
            lines.push(Line {
                name: if is_single {
                    words
                } else if chart.has_one_line() {
                    run.name.clone()
                } else {
                    format!("{} · {words}", run.name)
                },
                color: if is_single { position % COLORS } else { number % COLORS },
                dash: if is_single { 0 } else { position },
                run: number,
                points: points.collect(),
                band,
            });
        }
    }

    thin(&mut lines, POINTS);
    Ok(lines)
}

/// Returns the 95 % confidence interval of each held-out accuracy, if the record still has the evaluations. The
/// evaluation before the first step is not a metric of a step, so its accuracy is put before the others.
fn band(run: &Run, points: &mut Vec<(Step, f64)>) -> Result<Vec<(f64, f64, f64)>, ViewError> {
    let shares = run.store.evaluated(HELDOUT)?;
    if let Some(first) = shares.get(&0)
        && points.first().is_none_or(|point| point.0 > 0)
    {
        points.insert(0, (0, first.iter().sum::<f64>() / first.len() as f64));
    }

    let known = points.iter().filter_map(|(step, _)| Some((*step, shares.get(step)?)));
    let bounds = known.map(|(step, shares)| {
        let (low, high) = run.interval(step, shares);
        (step as f64, low, high)
    });
    Ok(bounds.collect())
}

fn figure(chart: &Chart, lines: &[Line], book: Option<&str>) -> Result<String, ViewError> {
    let label = label(chart, lines);
    let draw = draw(lines, chart.scale, &label).map_err(ViewError::Page)?;
    let Drawing { svg, plot, x, y } = draw;
    let series: Vec<Value> = lines.iter().map(of_line).collect();
    let data = json!({
        "plot": plot, "x": x, "y": y, "log": chart.scale == Scale::Log, "series": series,
    });

    let unit = match chart.unit {
        "" => String::new(),
        unit => format!(" <small>{}</small>", html::text(unit)),
    };
    let section = match book {
        Some(book) => format!(
            " <a href=\"{}/metrics.html#{}\">More in the book</a>.",
            html::text(book.trim_end_matches('/')),
            chart.section
        ),
        None => String::new(),
    };

    Ok(format!(
        "<figure class=\"chart\" id=\"chart-{id}\" data-chart=\"{data}\"><figcaption><h4>{title}{unit}</h4></figcaption>\
         {svg}<details class=\"about\"><summary>What it says</summary><p>{about}{section}</p></details>\
         <details class=\"numbers\"><summary>Numbers</summary>{table}</details></figure>",
        id = chart.id,
        data = html::text(&data.to_string()),
        title = html::text(chart.title),
        about = html::text(chart.about),
        table = table(lines),
    ))
}

fn of_line(line: &Line) -> Value {
    let points = line.points.iter().map(|(step, value)| json!([step, value]));
    json!({
        "name": line.name, "color": line.color, "dash": line.dash, "run": line.run,
        "points": points.collect::<Vec<_>>(),
    })
}

/// Writes the text for a reader who can't see the lines: the first and the last value of each.
fn label(chart: &Chart, lines: &[Line]) -> String {
    let of_line = |line: &Line| {
        let finite = || line.points.iter().filter(|point| point.1.is_finite());
        let first = finite().next()?;
        let last_point = finite().next_back()?;
        Some(format!(
            "{}: {} at step {}, {} at step {}",
            line.name,
            short(first.1),
            first.0,
            short(last_point.1),
            last_point.0
        ))
    };
    let lines: Vec<String> = lines.iter().filter_map(of_line).collect();
    format!("{} by step. {}.", chart.title, lines.join("; "))
}

/// Writes a table of the lines' last values, and some before them.
fn table(lines: &[Line]) -> String {
    let mut steps: BTreeMap<u64, Vec<Option<f64>>> = BTreeMap::new();
    for (column, line) in lines.iter().enumerate() {
        for &(step, value) in &line.points {
            let row = steps.entry(step as u64).or_insert_with(|| vec![None; lines.len()]);
            row[column] = Some(value);
        }
    }

    let stride = steps.len().div_ceil(ROWS).max(1);
    let head: String = lines
        .iter()
        .map(|line| format!("<th scope=\"col\">{}</th>", html::text(&line.name)))
        .collect();
    let last = steps.len().saturating_sub(1);
    // The stride is counted from the end, so that the last step is always included.
    let shown = steps.iter().enumerate().filter(|(at, _)| (last - at).is_multiple_of(stride));
    let rows: String = shown.map(|(_, (step, values))| row(*step, values)).collect();

    format!(
        "<table><thead><tr><th scope=\"col\">step</th>{head}</tr></thead><tbody>{rows}</tbody></table>"
    )
}

fn row(step: u64, values: &[Option<f64>]) -> String {
    let cell = |value: &Option<f64>| match value {
        Some(value) => format!("<td>{}</td>", short(*value)),
        None => "<td>–</td>".into(),
    };
    format!("<tr><th scope=\"row\">{step}</th>{}</tr>", values.iter().map(cell).collect::<String>())
}
