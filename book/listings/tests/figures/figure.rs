//! Line charts and other drawings in SVG, to be included in a page: no background, and ink in the colour of the page's
//! text, so that they can be read in light and dark themes.

use std::fmt::Write;

/// A chart.
pub(super) struct Figure {
    pub(super) title: &'static str,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) curves: Vec<Curve>,
}

/// An axis with its range, and with the labels at some of its values.
pub(super) struct Axis {
    pub(super) label: &'static str,
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) ticks: Vec<(&'static str, f64)>,
}

/// A line through points from left to right.
pub(super) struct Curve {
    pub(super) label: &'static str,
    pub(super) hue: Hue,
    pub(super) dashed: bool,
    pub(super) points: Vec<(f64, f64)>,
}

/// Colours that stand out from light and from dark.
#[derive(Clone, Copy)]
pub(super) enum Hue {
    Blue,
    Orange,
    Green,
    Purple,
    Red,
    Grey,
}

impl Hue {
    /// Returns the colour as SVG names it.
    pub(super) fn ink(self) -> &'static str {
        match self {
            Hue::Blue => "#3b82c4",
            Hue::Orange => "#d97a1e",
            Hue::Green => "#4a9d5b",
            Hue::Purple => "#8a63d2",
            Hue::Red => "#c4514b",
            Hue::Grey => "#8a8a8a",
        }
    }
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 536.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 244.0;

impl Figure {
    /// Draws the chart as one element. It has no blank line, which would end the HTML in a page.
    pub(super) fn svg(&self) -> String {
        let mut svg = open(self.title, HEIGHT);
        for (label, value) in &self.x.ticks {
            let x = self.across(*value);
            line(&mut svg, (x, TOP), (x, BOTTOM), 0.15);
            text(&mut svg, (x, BOTTOM + 18.0), "middle", label);
        }
        for (label, value) in &self.y.ticks {
            let y = self.up(*value);
            line(&mut svg, (LEFT, y), (RIGHT, y), if *value == 0.0 { 0.6 } else { 0.15 });
            text(&mut svg, (LEFT - 8.0, y + 4.5), "end", label);
        }

        line(&mut svg, (LEFT, TOP), (LEFT, BOTTOM), 0.6);
        line(&mut svg, (LEFT, BOTTOM), (RIGHT, BOTTOM), 0.6);
        text(&mut svg, ((LEFT + RIGHT) / 2.0, HEIGHT - 14.0), "middle", self.x.label);
        let middle = (TOP + BOTTOM) / 2.0;
        let _ = writeln!(
            svg,
            "<text x=\"20\" y=\"{middle}\" text-anchor=\"middle\" \
             transform=\"rotate(-90 20 {middle})\">{}</text>",
            self.y.label
        );

        for (index, curve) in self.curves.iter().enumerate() {
            let points = corners(&curve.points);
            let points = points.iter().map(|&(x, y)| (self.across(x), self.up(y)));
            curve.draw(&mut svg, points);

            let y = TOP + 14.0 + 24.0 * index as f64;
            curve.draw(&mut svg, [(RIGHT + 16.0, y), (RIGHT + 44.0, y)].into_iter());
            text(&mut svg, (RIGHT + 52.0, y + 4.5), "start", curve.label);
        }

        svg + "</svg>\n"
    }

    fn across(&self, value: f64) -> f64 {
        LEFT + (RIGHT - LEFT) * (value - self.x.from) / (self.x.to - self.x.from)
    }

    fn up(&self, value: f64) -> f64 {
        BOTTOM - (BOTTOM - TOP) * (value - self.y.from) / (self.y.to - self.y.from)
    }
}

impl Curve {
    fn draw(&self, svg: &mut String, points: impl Iterator<Item = (f64, f64)>) {
        let hue = self.hue.ink();
        let dashes = if self.dashed { " stroke-dasharray=\"7 5\"" } else { "" };
        let points: Vec<String> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{hue}\" stroke-width=\"2.5\"{dashes}/>",
            points.join(" ")
        );
    }
}

/// Begins a drawing of this height, with its title.
pub(super) fn open(title: &str, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         style=\"max-width:100%;height:auto\" role=\"img\" font-family=\"sans-serif\" font-size=\"13\" \
         fill=\"currentColor\">\n<title>{title}</title>\n\
         <text x=\"{LEFT}\" y=\"20\" font-weight=\"bold\">{title}</text>\n"
    )
}

/// Draws a line in the ink of the text.
pub(super) fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), opacity: f64) {
    let _ = writeln!(
        svg,
        "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" stroke=\"currentColor\" \
         stroke-opacity=\"{opacity}\"/>",
        from.0, from.1, to.0, to.1
    );
}

/// Writes a text whose end `anchor` is at the point.
pub(super) fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}

/// Keeps the points at which the line bends, and its ends.
fn corners(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let bends = |window: &&[(f64, f64)]| {
        let before = window[0];
        let here = window[1];
        let after = window[2];
        // On a straight line both slopes are equal. The products avoid a division by 0.
        let left = (here.1 - before.1) * (after.0 - here.0);
        let right = (after.1 - here.1) * (here.0 - before.0);
        (left - right).abs() > 1e-9 * (after.0 - before.0)
    };
    let inner = points.windows(3).filter(bends).map(|window| window[1]);
    let ends = |point: Option<&(f64, f64)>| point.copied();
    ends(points.first()).into_iter().chain(inner).chain(ends(points.last())).collect()
}
