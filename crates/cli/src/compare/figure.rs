//! Draws a comparison as SVG: held-out accuracy against its cost, and metrics by step.

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

use super::{ComparedMetric, Comparison, Point, RecipeMetric};

/// Draws the accuracy in two panels, with a legend below. Returns `None` if no recipe has two evaluations to draw a line
/// between.
pub(super) fn accuracy(comparison: &Comparison) -> Result<Option<String>, String> {
    let panel = |x_label: &str, cost: fn(&Point) -> f64| {
        let at = |point: &Point| At {
            x: cost(point),
            mean: point.accuracy,
            least: point.least,
            most: point.most,
        };
        Panel {
            x_label: x_label.to_owned(),
            y_label: "held-out accuracy".to_owned(),
            lines: comparison.recipes.iter().map(|it| it.curve.iter().map(at).collect()).collect(),
            level: comparison.target.as_ref().map(|target| target.accuracy),
            y_bounds: [0.0, 1.0],
        }
    };
    let panels = [
        panel("completions sampled", |at| at.completions),
        panel("seconds of training", |at| at.seconds),
    ];

    let mut legend = legend(comparison);
    if let Some(target) = &comparison.target {
        legend.push((format!("target {}", target.accuracy), LEVEL.into()));
    }
    draw(&panels, legend)
}

/// Draws each metric in a panel of its own, with a legend below. Returns `None` if no metric has two points to draw a
/// line between.
pub(super) fn metrics(comparison: &Comparison) -> Result<Option<String>, String> {
    let line = |recipe: &RecipeMetric| -> Vec<At> {
        let points = recipe.curve.iter();
        points
            .map(|at| At { x: at.step as f64, mean: at.mean, least: at.least, most: at.most })
            .collect()
    };
    let panel = |metric: &ComparedMetric| Panel {
        x_label: "step".to_owned(),
        y_label: metric.name.clone(),
        lines: metric.recipes.iter().map(line).collect(),
        level: None,
        y_bounds: [f64::NEG_INFINITY, f64::INFINITY],
    };
    let panels: Vec<Panel> = comparison.metrics.iter().map(panel).collect();
    draw(&panels, legend(comparison))
}

/// Lines that have their axes in common.
struct Panel {
    /// Label of the horizontal axis, which begins at 0.
    x_label: String,
    /// Label of the vertical axis.
    y_label: String,
    /// Line of each recipe, in the order of the legend.
    lines: Vec<Vec<At>>,
    /// Height of a horizontal line.
    level: Option<f64>,
    /// Bounds that the vertical axis never leaves.
    y_bounds: [f64; 2],
}

/// A point of a line, in a band from the lowest run to the highest.
struct At {
    x: f64,
    mean: f64,
    least: f64,
    most: f64,
}

/// Returns the recipes' names, each with its line.
fn legend(comparison: &Comparison) -> Vec<(String, ShapeStyle)> {
    let recipes = comparison.recipes.iter().enumerate();
    recipes.map(|(index, recipe)| (recipe.name.clone(), line(index))).collect()
}

fn draw(panels: &[Panel], legend: Vec<(String, ShapeStyle)>) -> Result<Option<String>, String> {
    if panels.iter().flat_map(|panel| &panel.lines).all(|line| line.len() < 2) {
        return Ok(None);
    }

    let mut svg = String::new();
    paint(panels, legend, &mut svg).map_err(|error| error.to_string())?;

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

fn paint(
    panels: &[Panel],
    legend: Vec<(String, ShapeStyle)>,
    svg: &mut String,
) -> Result<(), Box<dyn Error>> {
    // The legend has as many columns as its longest entry leaves room for.
    let longest = legend.iter().map(|(words, _)| words.chars().count()).max().unwrap_or(0);
    let columns = (WIDTH as usize / (LETTER * longest + 60)).clamp(1, legend.len().max(1));
    let rows = legend.len().div_ceil(columns);

    let grid = (panels.len().div_ceil(2), panels.len().min(2));
    let panels_height = PANEL * grid.0 as u32;
    let height = panels_height + LINE * rows as u32 + 10;

    let root = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
    let (panels_area, legend_area) = root.split_vertically(panels_height);
    for (area, panel) in panels_area.split_evenly(grid).iter().zip(panels) {
        panel.paint(area)?;
    }

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

impl Panel {
    fn paint(&self, area: &Area<'_>) -> Result<(), Box<dyn Error>> {
        let points = || self.lines.iter().flatten();
        // An axis needs a length, even if nothing was sampled.
        let max_x = points().map(|at| at.x).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let min_y = points().map(|at| at.least).fold(f64::INFINITY, f64::min);
        let max_y = points().map(|at| at.most).fold(f64::NEG_INFINITY, f64::max);

        // A margin keeps the lines off the frame, and gives an axis to a line that never moves.
        let largest = min_y.abs().max(max_y.abs());
        let margin = (0.05 * (max_y - min_y)).max(0.005 * largest).max(1e-9);
        let min_y = (min_y - margin).max(self.y_bounds[0]);
        let max_y = (max_y + margin).min(self.y_bounds[1]);

        // A panel without a point stays empty, and so does one whose axes no number could describe: `plotters` would look
        // for the labels of an endless axis for ever.
        if !(max_y - min_y).is_finite() || min_y >= max_y || largest.max(max_x) > 1e100 {
            return Ok(());
        }

        let height_label = |value: &f64| height(*value, max_y - min_y);
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .x_label_area_size(44)
            .y_label_area_size(62)
            .build_cartesian_2d(0.0..max_x, min_y..max_y)?;

        chart
            .configure_mesh()
            .x_labels(6)
            .y_labels(8)
            .x_desc(&*self.x_label)
            .y_desc(&*self.y_label)
            .axis_style(INK.mix(0.7))
            .bold_line_style(INK.mix(0.25))
            .light_line_style(INK.mix(0.0))
            .label_style(ink(15))
            .axis_desc_style(ink(16))
            .x_label_formatter(&|value| short(*value))
            .y_label_formatter(&height_label)
            .draw()?;

        if let Some(level) = self.level
            && (min_y..=max_y).contains(&level)
        {
            chart.draw_series(LineSeries::new([(0.0, level), (max_x, level)], LEVEL))?;
        }

        // All bands come before all lines, so that no band covers a line.
        for (index, points) in self.lines.iter().enumerate() {
            chart.draw_series([Polygon::new(band(points), hue(index).mix(0.15))])?;
        }
        for (index, points) in self.lines.iter().enumerate() {
            let means = points.iter().map(|at| (at.x, at.mean));
            chart.draw_series(LineSeries::new(means, line(index)))?;
        }
        Ok(())
    }
}

/// Returns the outline of the area between the lowest run and the highest.
fn band(points: &[At]) -> Vec<(f64, f64)> {
    let upper = points.iter().map(|at| (at.x, at.most));
    let lower = points.iter().rev().map(|at| (at.x, at.least));
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

/// Writes a label of the vertical axis with the digits that tell it from its neighbours on an axis of this length.
fn height(value: f64, length: f64) -> String {
    match length {
        length if length >= 1e4 => short(value),
        length if length < 1e-3 => format!("{value:.1e}"),
        length => {
            let digits = (1.0 - length.log10().floor()).max(0.0) as usize;
            format!("{value:.digits$}")
        }
    }
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
