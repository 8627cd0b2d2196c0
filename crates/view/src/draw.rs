//! A chart as SVG, whose colours are the page's.

use std::{error::Error, ops::Range};

use plotters::{
    chart::ChartBuilder,
    drawing::IntoDrawingArea,
    element::Polygon,
    prelude::SVGBackend,
    series::LineSeries,
    style::{Color, IntoFont, RGBColor, TextStyle},
};

use crate::charts::Scale;

/// A line of a chart.
pub(crate) struct Line {
    /// Its words in the legend.
    pub(crate) name: String,
    /// Which of the page's colours.
    pub(crate) color: usize,
    /// Which pattern of dashes: 0 is none.
    pub(crate) dash: usize,
    /// The run's number.
    pub(crate) run: usize,
    /// Step and value; values that are not finite are gaps.
    pub(crate) points: Vec<(f64, f64)>,
    /// Step, lower and upper bound around the values.
    pub(crate) band: Vec<(f64, f64, f64)>,
}

/// A drawn chart.
pub(crate) struct Drawing {
    pub(crate) svg: String,
    /// The corners of the part that has the lines: left, top, right, bottom, in the picture's units.
    pub(crate) plot: [i32; 4],
    /// The steps at its left and at its right.
    pub(crate) x: [f64; 2],
    /// The values at its bottom and at its top; their decimal logarithms where the scale is such.
    pub(crate) y: [f64; 2],
}

/// The picture's size. It is scaled to its place.
pub(crate) const SIZE: (u32, u32) = (640, 260);

/// The page's colours for lines.
pub(crate) const COLORS: usize = 8;

/// Draws the lines; `label` is read to those who can't see them.
pub(crate) fn draw(lines: &[Line], scale: Scale, label: &str) -> Result<Drawing, String> {
    paint(lines, scale, label).map_err(|error| error.to_string())
}

fn paint(lines: &[Line], scale: Scale, label: &str) -> Result<Drawing, Box<dyn Error>> {
    let (x, y) = ranges(lines, scale);
    let mut svg = String::new();
    let plot = {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        // Counted up in steps, a mark at 0 may be off by a rounding error.
        let marked = {
            let least = 1e-9 * (y.end - y.start);
            move |value: f64| if value.abs() < least { 0.0 } else { value }
        };
        let mut chart = ChartBuilder::on(&root)
            .margin_top(12)
            .margin_right(18)
            .margin_bottom(2)
            .x_label_area_size(34)
            .y_label_area_size(72)
            .build_cartesian_2d(x.clone(), y.clone())?;
        chart
            .configure_mesh()
            .x_labels(6)
            .y_labels(5)
            .axis_style(GRID)
            .bold_line_style(GRID)
            .light_line_style(GRID.mix(0.0))
            .label_style(text())
            .x_label_formatter(&|value| short(*value))
            .y_label_formatter(&|value| match scale {
                Scale::Log => short(10_f64.powf(*value)),
                _ => short(marked(*value)),
            })
            .draw()?;
        for line in lines {
            if line.band.len() > 1 {
                let upper = line.band.iter().map(|at| (at.0, at.2));
                let lower = line.band.iter().rev().map(|at| (at.0, at.1));
                let around: Vec<_> = upper.chain(lower).map(|(x, y)| (x, scale.of(y))).collect();
                chart.draw_series([Polygon::new(around, mark(BAND, line))])?;
            }
        }
        for line in lines {
            for piece in pieces(line, scale) {
                // A point alone is a short line.
                let piece = match piece[..] {
                    [(x, y)] => vec![(x - 0.15, y), (x + 0.15, y)],
                    _ => piece,
                };
                chart.draw_series(LineSeries::new(piece, mark(LINE, line).stroke_width(2)))?;
            }
        }
        let (across, upward) = chart.plotting_area().get_pixel_range();
        root.present()?;
        [across.start, upward.start, across.end, upward.end]
    };
    let (x, y) = ([x.start, x.end], [y.start, y.end]);
    Ok(Drawing { svg: in_the_pages_colors(&svg, lines, label), plot, x, y })
}

impl Scale {
    fn of(self, value: f64) -> f64 {
        match self {
            Scale::Log => value.log10(),
            _ => value,
        }
    }
}

/// The steps and the values that are shown.
fn ranges(lines: &[Line], scale: Scale) -> (Range<f64>, Range<f64>) {
    let steps = || lines.iter().flat_map(|line| &line.points).map(|point| point.0);
    let (first, last) = (steps().fold(f64::MAX, f64::min), steps().fold(f64::MIN, f64::max));
    let across = if first < last { first..last } else { first - 1.0..first + 1.0 };
    let bounds = lines.iter().flat_map(|line| &line.band).flat_map(|&(_, low, high)| [low, high]);
    let values = lines.iter().flat_map(|line| &line.points).map(|point| point.1);
    let values =
        values.chain(bounds).map(|value| scale.of(value)).filter(|value| value.is_finite());
    let (least, most) = values
        .fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)));
    if least > most {
        return (across, 0.0..1.0);
    }
    let room = match most - least {
        0.0 if least == 0.0 => 1.0,
        0.0 => 0.1 * least.abs(),
        range => 0.06 * range,
    };
    let within = |value: f64| if scale == Scale::Share { value.clamp(0.0, 1.0) } else { value };
    let (mut low, mut high) = (within(least - room), within(most + room));
    // A metric that is never negative is not shown below 0.
    if scale != Scale::Log && least >= 0.0 {
        low = low.max(0.0);
    }
    if low >= high {
        (low, high) = (low - 0.5, high + 0.5);
    }
    (across, low..high)
}

/// The points of a line without its gaps.
fn pieces(line: &Line, scale: Scale) -> Vec<Vec<(f64, f64)>> {
    let values = line.points.iter().map(|&(step, value)| (step, scale.of(value)));
    let values: Vec<_> = values.collect();
    let whole = values.split(|(_, value)| !value.is_finite());
    whole.filter(|piece| !piece.is_empty()).map(<[_]>::to_vec).collect()
}

// Colours that no one sees: each tells what is drawn, and is replaced by the page's own.
const INK: RGBColor = RGBColor(1, 0, 1);
const GRID: RGBColor = RGBColor(1, 0, 2);
const LINE: u8 = 2;
const BAND: u8 = 3;

fn mark(kind: u8, line: &Line) -> RGBColor {
    RGBColor(kind, (line.run % 256) as u8, (line.color % COLORS * 4 + line.dash % 4) as u8)
}

fn text() -> TextStyle<'static> {
    // 18 of the picture's units: plotters divides by 1.24.
    ("sans-serif", 22.32).into_font().color(&INK)
}

fn in_the_pages_colors(svg: &str, lines: &[Line], label: &str) -> String {
    let (width, height) = SIZE;
    let begin = format!("<svg width=\"{width}\" height=\"{height}\"");
    let own = format!("<svg role=\"img\" aria-label=\"{}\"", crate::html::text(label));
    let mut svg = svg.replacen(&begin, &own, 1);
    let hex = |color: RGBColor| format!("\"#{:02X}{:02X}{:02X}\"", color.0, color.1, color.2);
    svg = svg.replace(&hex(INK), "\"var(--ink)\"").replace(&hex(GRID), "\"var(--grid)\"");
    for line in lines {
        let (run, color) = (line.run, line.color % COLORS);
        let dashes = [
            "",
            " stroke-dasharray=\"6 4\"",
            " stroke-dasharray=\"2 3\"",
            " stroke-dasharray=\"9 3 2 3\"",
        ][line.dash % 4];
        let stroke = format!("stroke={}", hex(mark(LINE, line)));
        let of_page = format!("class=\"run-{run}\" stroke=\"var(--series-{color})\"{dashes}");
        svg = svg.replace(&stroke, &of_page);
        let fill = format!("fill={}", hex(mark(BAND, line)));
        let of_page =
            format!("class=\"run-{run}\" fill=\"var(--series-{color})\" fill-opacity=\"0.15\"");
        svg = svg.replace(&fill, &of_page);
    }
    svg
}

/// `25k` for 25000, `2e-7` for 0.0000002.
pub(crate) fn short(value: f64) -> String {
    let tidy = |value: f64| {
        let text = format!("{value:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match value.abs() {
        0.0 => "0".into(),
        size if size >= 1e6 => format!("{}M", tidy(value / 1e6)),
        size if size >= 1e4 => format!("{}k", tidy(value / 1e3)),
        size if size >= 1e-2 => tidy(value),
        _ => format!("{value:.1e}").replace(".0e", "e"),
    }
}

/// At most some `most` points, of which each stretch keeps its lowest and its highest.
pub(crate) fn thinned(points: &[(f64, f64)], most: usize) -> Vec<(f64, f64)> {
    if points.len() <= most {
        return points.to_vec();
    }
    let stretch = points.len().div_ceil(most / 2);
    let extremes = points.chunks(stretch).flat_map(|points| {
        let by_value = |one: &&(f64, f64), other: &&(f64, f64)| one.1.total_cmp(&other.1);
        let mut kept: Vec<_> = points.iter().min_by(by_value).into_iter().copied().collect();
        kept.extend(points.iter().max_by(by_value).filter(|most| **most != kept[0]));
        kept.sort_by(|one, other| one.0.total_cmp(&other.0));
        kept
    });
    extremes.collect()
}
