//! A chart as SVG, in the page's colours.

use std::{collections::BTreeSet, error::Error, ops::Range};

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
    /// Text of the line in the legend.
    pub(crate) name: String,
    /// Number of one of the page's colours.
    pub(crate) color: usize,
    /// Number of the pattern of dashes; 0 means no dashes.
    pub(crate) dash: usize,
    /// Number of the run.
    pub(crate) run: usize,
    /// Points, each a step and a value. Values that are not finite are gaps.
    pub(crate) points: Vec<(f64, f64)>,
    /// Band around the values, each entry a step, a lower and an upper bound.
    pub(crate) band: Vec<(f64, f64, f64)>,
}

/// A drawn chart.
pub(crate) struct Drawing {
    pub(crate) svg: String,
    /// Edges of the part that has the lines: left, top, right, bottom, in the picture's units.
    pub(crate) plot: [i32; 4],
    /// Steps at the left and at the right of that part.
    pub(crate) x: [f64; 2],
    /// Values at the bottom and at the top of that part. On a logarithmic scale they are decimal logarithms.
    pub(crate) y: [f64; 2],
}

/// Size of the picture, which the page scales to the space it has.
pub(crate) const SIZE: (u32, u32) = (640, 260);

/// Number of the page's colours for lines.
pub(crate) const COLORS: usize = 8;

/// Draws the lines. `label` is read out to readers who can't see them.
pub(crate) fn draw(lines: &[Line], scale: Scale, label: &str) -> Result<Drawing, String> {
    paint(lines, scale, label).map_err(|error| error.to_string())
}

fn paint(lines: &[Line], scale: Scale, label: &str) -> Result<Drawing, Box<dyn Error>> {
    let (x, y) = ranges(lines, scale);
    let mut svg = String::new();
    let plot = {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        // Marks are counted up in steps, so the mark at 0 may be off by a rounding error.
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
                let around: Vec<_> =
                    upper.chain(lower).map(|(x, y)| (x, scale.position(y))).collect();
                chart.draw_series([Polygon::new(around, mark(BAND, line))])?;
            }
        }

        for line in lines {
            for piece in pieces(line, scale) {
                // A single point is drawn as a short line.
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

    let x = [x.start, x.end];
    let y = [y.start, y.end];
    Ok(Drawing { svg: in_the_pages_colors(&svg, lines, label), plot, x, y })
}

/// Bound beyond which values are gaps.
const LARGEST: f64 = 1e300;

impl Scale {
    fn position(self, value: f64) -> f64 {
        // The difference of larger values need not be a finite number.
        let value = if value.abs() < LARGEST { value } else { f64::NAN };
        match self {
            Scale::Log => value.log10(),
            _ => value,
        }
    }
}

/// Returns the ranges of steps and values that are shown.
fn ranges(lines: &[Line], scale: Scale) -> (Range<f64>, Range<f64>) {
    let steps = || lines.iter().flat_map(|line| &line.points).map(|point| point.0);
    let first = steps().fold(f64::MAX, f64::min);
    let last = steps().fold(f64::MIN, f64::max);
    let across = if first < last { first..last } else { first - 1.0..first + 1.0 };

    let bounds = lines.iter().flat_map(|line| &line.band).flat_map(|&(_, low, high)| [low, high]);
    let values = lines.iter().flat_map(|line| &line.points).map(|point| point.1);
    let values =
        values.chain(bounds).map(|value| scale.position(value)).filter(|value| value.is_finite());
    let (least, most) = values
        .fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)));

    if least > most {
        return (across, 0.0..1.0);
    }

    // A range must not be empty even if all values are the same.
    let room = match most - least {
        0.0 if least == 0.0 => 1.0,
        0.0 => 0.1 * least.abs(),
        range => 0.06 * range,
    };
    let within = |value: f64| if scale == Scale::Share { value.clamp(0.0, 1.0) } else { value };
    let mut low = within(least - room);
    let mut high = within(most + room);

    // A metric that is never negative is not shown below 0.
    if scale != Scale::Log && least >= 0.0 {
        low = low.max(0.0);
    }
    if low >= high {
        low -= 0.5;
        high += 0.5;
    }

    (across, low..high)
}

/// Splits the points of a line at its gaps.
fn pieces(line: &Line, scale: Scale) -> Vec<Vec<(f64, f64)>> {
    let values = line.points.iter().map(|&(step, value)| (step, scale.position(value)));
    let values: Vec<_> = values.collect();
    let whole = values.split(|(_, value)| !value.is_finite());
    whole.filter(|piece| !piece.is_empty()).map(<[_]>::to_vec).collect()
}

// These colours are placeholders. Each one marks what is drawn, and is replaced by a colour of the page.
const INK: RGBColor = RGBColor(1, 0, 1);
const GRID: RGBColor = RGBColor(1, 0, 2);
const LINE: u8 = 2;
const BAND: u8 = 3;

/// Patterns of dashes. The page's keys have the same patterns.
const DASHES: [&str; 5] = ["", "6 4", "2 3", "10 3 2 3", "14 4"];

fn mark(kind: u8, line: &Line) -> RGBColor {
    let style = line.color % COLORS * DASHES.len() + line.dash % DASHES.len();
    RGBColor(kind, (line.run % 256) as u8, style as u8)
}

fn text() -> TextStyle<'static> {
    // This makes 18 of the picture's units, because plotters divides by 1.24.
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
        let run = line.run;
        let color = line.color % COLORS;
        let dashes = match DASHES[line.dash % DASHES.len()] {
            "" => String::new(),
            pattern => format!(" stroke-dasharray=\"{pattern}\""),
        };

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

/// Writes a number in few characters: `25k` for 25000, `2e-7` for 0.0000002.
pub(crate) fn short(value: f64) -> String {
    let tidy = |value: f64| {
        let text = format!("{value:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match value.abs() {
        0.0 => "0".into(),
        size if size >= 1e12 => format!("{value:.1e}").replace(".0e", "e"),
        size if size >= 1e6 => format!("{}M", tidy(value / 1e6)),
        size if size >= 1e4 => format!("{}k", tidy(value / 1e3)),
        size if size >= 1e-2 => tidy(value),
        _ => format!("{value:.1e}").replace(".0e", "e"),
    }
}

/// Reduces the lines of a chart to about `most` steps. All lines keep the same steps: the first, the last, and in each
/// stretch between them the steps at which some line is lowest or highest.
pub(crate) fn thin(lines: &mut [Line], most: usize) {
    let mut steps: Vec<u64> =
        lines.iter().flat_map(|line| &line.points).map(|point| point.0 as u64).collect();
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
            let by_value = |one: &&(f64, f64), other: &&(f64, f64)| one.1.total_cmp(&other.1);
            let extremes = [finite().min_by(by_value), finite().max_by(by_value)];
            kept_steps.extend(extremes.into_iter().flatten().map(|point| point.0 as u64));
        }
    }

    for line in lines {
        line.points.retain(|point| kept_steps.contains(&(point.0 as u64)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(points: Vec<(f64, f64)>) -> Line {
        Line { name: "a".into(), color: 0, dash: 0, run: 0, points, band: Vec::new() }
    }

    #[test]
    fn lines_of_a_chart_keep_the_same_steps_and_their_extremes() {
        let wave = |offset: f64| {
            (0..5000).map(move |step| (f64::from(step), (f64::from(step) + offset).sin()))
        };
        let mut lines = [line(wave(0.0).collect()), line(wave(1.0).collect())];
        lines[0].points[2500].1 = 9.0;
        lines[1].points[3000].1 = f64::NAN;
        thin(&mut lines, 400);

        let steps = |line: &Line| line.points.iter().map(|point| point.0).collect::<Vec<_>>();
        assert_eq!(steps(&lines[0]), steps(&lines[1]));
        assert!((200..=402).contains(&lines[0].points.len()), "{}", lines[0].points.len());
        assert_eq!((lines[0].points[0].0, lines[0].points.last().unwrap().0), (0.0, 4999.0));
        assert!(lines[0].points.contains(&(2500.0, 9.0)));
    }

    #[test]
    fn whatever_the_numbers_are_a_chart_comes() {
        let series = [
            vec![],
            vec![(0.0, f64::NAN)],
            vec![(1.0, 0.0)],
            vec![(0.0, 1.7e308), (1.0, -1.7e308)],
            vec![(0.0, f64::INFINITY), (1.0, 5e-324), (2.0, -0.0)],
            vec![(0.0, 1e16), (1.0, 1e16 + 2.0)],
            vec![(9e15, 1.0), (0.0, 2.0)],
        ];

        for points in series {
            for scale in [Scale::Linear, Scale::Share, Scale::Log] {
                let drawing = draw(&[line(points.clone())], scale, "<a & \"b\">").unwrap();
                assert!(drawing.svg.contains("aria-label=\"&lt;a &amp; &quot;b&quot;&gt;\""));
                assert!(drawing.y[0] < drawing.y[1], "{points:?}: {:?}", drawing.y);
            }
        }
    }
}
