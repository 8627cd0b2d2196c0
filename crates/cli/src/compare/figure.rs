//! Draws a comparison as SVG: held-out accuracy against its cost.

use std::{error::Error, fmt::Display};

use plotters::{
    chart::ChartBuilder,
    coord::Shift,
    drawing::{DrawingArea, IntoDrawingArea},
    element::{PathElement, Polygon, Text},
    prelude::SVGBackend,
    series::LineSeries,
    style::{Color, IntoFont, RGBColor, ShapeStyle, TextStyle},
};

use super::{Compared, Comparison, Point};

/// Draws two panels and a legend below. Returns `None` if no recipe has two evaluations to draw a line between.
pub(super) fn draw(comparison: &Comparison) -> Result<Option<String>, String> {
    if comparison.recipes.iter().all(|recipe| recipe.curve.len() < 2) {
        return Ok(None);
    }

    let mut svg = String::new();
    paint(comparison, &mut svg).map_err(|error| error.to_string())?;

    // The figure is as wide as the page lets it be.
    let root = "<svg style=\"max-width:100%;height:auto\" role=\"img\" ";
    Ok(Some(svg.replacen("<svg ", root, 1)))
}

/// A grey halfway between black and white. It can be read on a light page and on a dark one, even if the figure is a
/// separate file that does not know the page's colour.
const INK: RGBColor = RGBColor(0x7a, 0x7a, 0x7a);

/// Colour of the line at the target.
const LEVEL: RGBColor = INK;

/// Colours of the recipes, which differ in hue and are about as light as `INK`.
const HUES: [RGBColor; 8] = [
    RGBColor(0x3b, 0x82, 0xc4),
    RGBColor(0xd9, 0x7a, 0x1e),
    RGBColor(0x2f, 0x9e, 0x6e),
    RGBColor(0xc9, 0x4f, 0x5f),
    RGBColor(0x8b, 0x72, 0xcf),
    RGBColor(0xa0, 0x85, 0x2f),
    RGBColor(0x2c, 0x9f, 0xb3),
    RGBColor(0xc0, 0x62, 0xa4),
];

const WIDTH: u32 = 860;
const PANEL: u32 = 330;
const LINE: u32 = 22;
/// Approximate width of a letter of the legend, since nothing here measures fonts.
const LETTER: usize = 8;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn paint(comparison: &Comparison, svg: &mut String) -> Result<(), Box<dyn Error>> {
    let mut legend: Vec<(String, ShapeStyle)> = Vec::new();
    for (index, recipe) in comparison.recipes.iter().enumerate() {
        legend.push((recipe.name.clone(), line(index)));
    }

    if let Some(target) = &comparison.target {
        legend.push((format!("target {}", target.accuracy), LEVEL.into()));
    }

    // The legend has as many columns as its longest entry leaves room for.
    let longest = legend.iter().map(|(words, _)| words.chars().count()).max().unwrap_or(0);
    let columns = (WIDTH as usize / (LETTER * longest + 60)).clamp(1, legend.len().max(1));
    let rows = legend.len().div_ceil(columns);
    let height = PANEL + LINE * rows as u32 + 10;

    let root = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
    let (panels, legend_area) = root.split_vertically(PANEL);
    let (left, right) = panels.split_horizontally(WIDTH / 2);
    panel(&left, comparison, "completions sampled", |at| at.completions)?;
    panel(&right, comparison, "seconds of training", |at| at.seconds)?;

    for (index, (words, style)) in legend.into_iter().enumerate() {
        let width = WIDTH as usize / columns;
        let x = (index % columns * width + 30) as i32;
        let y = (index / columns) as i32 * LINE as i32 + 12;
        legend_area.draw(&PathElement::new(vec![(x, y), (x + 24, y)], style))?;
        legend_area.draw(&Text::new(words, (x + 32, y - 7), ink(16)))?;
    }

    root.present()?;
    Ok(())
}

fn panel(
    area: &Area<'_>,
    comparison: &Comparison,
    label: &str,
    across: fn(&Point) -> f64,
) -> Result<(), Box<dyn Error>> {
    let points = || comparison.recipes.iter().flat_map(|recipe| &recipe.curve);
    // An axis needs a length, even if nothing was sampled.
    let max_x = points().map(across).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let min_y = points().map(|at| at.least).fold(1.0, f64::min);
    let max_y = points().map(|at| at.most).fold(0.0, f64::max);

    // A margin keeps the lines off the frame, but no axis of accuracies leaves the range from 0 to 1.
    let margin = (0.05 * (max_y - min_y)).max(0.005);
    let min_y = (min_y - margin).max(0.0);
    let max_y = (max_y + margin).min(1.0);

    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(44)
        .y_label_area_size(54)
        .build_cartesian_2d(0.0..max_x, min_y..max_y)?;

    chart
        .configure_mesh()
        .x_labels(6)
        .y_labels(8)
        .x_desc(label)
        .y_desc("held-out accuracy")
        .axis_style(INK.mix(0.7))
        .bold_line_style(INK.mix(0.25))
        .light_line_style(INK.mix(0.0))
        .label_style(ink(15))
        .axis_desc_style(ink(16))
        .x_label_formatter(&|value| short(*value))
        .y_label_formatter(&|value| format!("{value:.2}"))
        .draw()?;

    if let Some(target) = &comparison.target
        && (min_y..=max_y).contains(&target.accuracy)
    {
        let level = [(0.0, target.accuracy), (max_x, target.accuracy)];
        chart.draw_series(LineSeries::new(level, LEVEL))?;
    }

    // All bands come before all lines, so that no band covers a line.
    for (index, recipe) in comparison.recipes.iter().enumerate() {
        chart.draw_series([Polygon::new(band(recipe, across), hue(index).mix(0.15))])?;
    }
    for (index, recipe) in comparison.recipes.iter().enumerate() {
        let line_of = recipe.curve.iter().map(|at| (across(at), at.accuracy));
        chart.draw_series(LineSeries::new(line_of, line(index)))?;
    }
    Ok(())
}

/// Returns the outline of the area between the worst run and the best run.
fn band(recipe: &Compared, across: fn(&Point) -> f64) -> Vec<(f64, f64)> {
    let upper = recipe.curve.iter().map(|at| (across(at), at.most));
    let lower = recipe.curve.iter().rev().map(|at| (across(at), at.least));
    upper.chain(lower).collect()
}

fn hue(index: usize) -> RGBColor {
    HUES[index % HUES.len()]
}

fn line(index: usize) -> ShapeStyle {
    hue(index).stroke_width(2)
}

fn ink(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

/// Writes a number in few letters: `25k` for 25000.
fn short(value: f64) -> String {
    let tidy = |value: f64, unit: &dyn Display| format!("{}{unit}", (value * 10.0).round() / 10.0);
    match value {
        value if value >= 1e6 => tidy(value / 1e6, &"M"),
        value if value >= 1e4 => tidy(value / 1e3, &"k"),
        value => tidy(value, &""),
    }
}
