//! What the dashboard draws, from the top to the bottom.

use firebrick_core::printable;
use firebrick_device::gibibytes;
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    symbols::Marker,
    text::{Line, Span},
    widgets::{Axis, Chart, Dataset, GraphType, Paragraph, Wrap},
};

use super::{CURVES, Curve, HELDOUT, State};
use crate::{closing, terminal::wants_color};

/// Number of columns from which two charts stand side by side.
const WIDE: u16 = 100;

pub(super) fn draw(frame: &mut Frame, state: &State) {
    let area = frame.area();
    let is_high = area.height >= 20;
    let (numbers, notes) = if is_high { (2, 2) } else { (1, 1) };
    let rows = [1, 1, 0, numbers, 2, notes, 1];
    let rows = rows.map(|rows| match rows {
        0 => Constraint::Min(3),
        rows => Constraint::Length(rows),
    });
    let [head, heldout, charts, numbers, answers, notes, foot] = Layout::vertical(rows).areas(area);

    frame.render_widget(first_line(state, head.width), head);
    frame.render_widget(accuracy(state), heldout);
    draw_charts(frame, state, charts);
    frame.render_widget(Paragraph::new(values(state)).wrap(Wrap { trim: true }), numbers);
    frame.render_widget(answers_of(state, answers.width), answers);
    frame.render_widget(newest_notes(state, notes), notes);
    frame.render_widget(last_line(state, foot.width), foot);
}

// The colours of the page of a run, as far as a terminal has them.
const RIGHT: Color = Color::Indexed(36);
const WRONG: Color = Color::Indexed(173);
const ACCENT: Color = Color::Indexed(39);

fn colored(color: Color) -> Style {
    if wants_color() { Style::new().fg(color) } else { Style::new() }
}

fn dim(text: impl Into<String>) -> Span<'static> {
    Span::styled(text.into(), Style::new().add_modifier(Modifier::DIM))
}

fn bold(text: impl Into<String>) -> Span<'static> {
    Span::styled(text.into(), Style::new().add_modifier(Modifier::BOLD))
}

/// The run, how far it is, and on what.
fn first_line(state: &State, width: u16) -> Line<'static> {
    let mut line = vec![bold(state.name.clone()), Span::raw("  ")];
    line.push(Span::raw(format!("step {} of {}", state.step, state.steps)));
    let share = state.step as f64 / state.steps.max(1) as f64;
    if width >= 70 {
        line.push(Span::styled(format!("  {}", bar(share, 16)), colored(ACCENT)));
    }
    if let Some(left) = state.time_left() {
        line.push(Span::raw(format!("  {left} left")));
    }

    let mut rest = vec![state.device.clone()];
    rest.extend(state.last.get("memory/peak_bytes").map(|bytes| gibibytes(*bytes as u64)));
    line.push(dim(format!("  {}", rest.join(", "))));
    Line::from(line)
}

fn bar(share: f64, width: usize) -> String {
    let filled = (share.clamp(0.0, 1.0) * width as f64).round() as usize;
    "█".repeat(filled) + &"░".repeat(width - filled)
}

/// The number that matters.
fn accuracy(state: &State) -> Line<'static> {
    let points = state.curves.get(HELDOUT.metric).map(Vec::as_slice).unwrap_or_default();
    match points {
        [] => match state.last.get("reward/credit") {
            Some(credit) => Line::from(vec![
                bold(format!("credit in training {}", percent(*credit))),
                dim("  nothing is evaluated yet"),
            ]),
            None => Line::from(dim("no step is finished yet")),
        },
        [only] => Line::from(vec![
            Span::raw("held-out accuracy "),
            bold(percent(only.1)),
            dim(if only.0 == 0.0 { "  before training" } else { "" }),
        ]),
        [first, .., last] => Line::from(vec![
            Span::raw("held-out accuracy "),
            Span::styled(percent(last.1), colored(ACCENT).add_modifier(Modifier::BOLD)),
            dim(format!("  after step {}, {} after step {}", last.0, percent(first.1), first.0)),
        ]),
    }
}

fn percent(share: f64) -> String {
    // A run that has diverged may have any number.
    if share.abs() < 1e4 { format!("{:.1} %", 100.0 * share) } else { format!("{share:.1e}") }
}

fn draw_charts(frame: &mut Frame, state: &State, area: Rect) {
    let chosen = &CURVES[state.chosen];
    let heldout = state.curves.get(HELDOUT.metric).map_or(0, Vec::len);
    if area.width >= WIDE {
        let [left, right] =
            Layout::horizontal([Constraint::Fill(3), Constraint::Fill(2)]).areas(area);
        draw_chart(frame, state, left, &[&HELDOUT]);
        draw_chart(frame, state, right, &[chosen]);
    } else if state.chosen == 0 && heldout > 0 {
        // Both are shares, so that they fit into one chart.
        draw_chart(frame, state, area, &[&HELDOUT, chosen]);
    } else {
        draw_chart(frame, state, area, &[chosen]);
    }
}

fn draw_chart(frame: &mut Frame, state: &State, area: Rect, curves: &[&Curve]) {
    let points =
        |curve: &Curve| state.curves.get(curve.metric).map(Vec::as_slice).unwrap_or_default();
    let all = || curves.iter().flat_map(|curve| points(curve));
    let range = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::MAX, f64::MIN), |(low, high), at| (low.min(at), high.max(at)))
    };
    let title = curves.iter().map(|curve| curve.name).collect::<Vec<_>>().join(" and ");
    if all().next().is_none() {
        frame.render_widget(Paragraph::new(dim(format!("{title}: no value yet"))), area);
        return;
    }

    let (first, last) = range(&mut all().map(|point| point.0));
    let (mut low, mut high) = range(&mut all().map(|point| point.1));
    if curves[0].share {
        low = 0.0;
        high = if high > 0.35 { 1.0 } else { (1.2 * high).max(0.01) };
    } else if low == high {
        low -= 0.5 * low.abs().max(1.0);
        high += 0.5 * high.abs().max(1.0);
    }
    let read = |value: f64| if curves[0].share { percent(value) } else { short(value) };

    let colors = [ACCENT, RIGHT];
    let datasets = curves.iter().zip(colors).map(|(curve, color)| {
        Dataset::default()
            .marker(Marker::Braille)
            .graph_type(GraphType::Line)
            .style(colored(color))
            .data(points(curve))
    });
    let labels = [low, (low + high) / 2.0, high].map(|value| Line::from(dim(read(value))));
    let steps = [first, last].map(|step| Line::from(dim(format!("{step}"))));
    let chart = Chart::new(datasets.collect())
        .legend_position(None)
        .x_axis(Axis::default().bounds([first, last.max(first + 1.0)]).labels(steps))
        .y_axis(Axis::default().bounds([low, high]).labels(labels));

    let [top, rest] = Layout::vertical([Constraint::Length(1), Constraint::Min(2)]).areas(area);
    let names = curves.iter().zip(colors).flat_map(|(curve, color)| {
        [Span::styled("■ ", colored(color)), Span::raw(format!("{}  ", curve.name))]
    });
    frame.render_widget(Line::from(names.collect::<Vec<_>>()), top);
    frame.render_widget(chart, rest);
}

/// The numbers of the last step.
fn values(state: &State) -> Line<'static> {
    let number = |name: &str, text: fn(f64) -> String| {
        state.last.get(name).filter(|value| value.is_finite()).map(|value| text(*value))
    };
    let kept = number("sampling/groups_kept", short);
    let filtered = number("sampling/groups_filtered", short);
    let groups = kept.zip(filtered).map(|(kept, filtered)| format!("{kept}/{filtered}"));
    let pairs = [
        ("reward", number("reward/mean", short)),
        ("credit", number("reward/credit", percent)),
        ("entropy", number("loss/entropy", short)),
        ("length", number("rollout/length_mean", short)),
        ("cut off", number("rollout/truncated", percent)),
        ("groups kept/out", groups),
        ("tokens/s", number("rollout/tokens_per_second", short)),
        ("rollout", number("time/rollout", closing::duration)),
        ("update", number("time/update", closing::duration)),
    ];
    let spans = pairs.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let spans =
        spans.flat_map(|(name, value)| [dim(format!("{name} ")), Span::raw(format!("{value}   "))]);
    Line::from(spans.collect::<Vec<_>>())
}

/// Writes a number in about four digits.
fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if !(1e-3..1e6).contains(&size) => format!("{value:.1e}"),
        size if size >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// The newest right and wrong answer.
fn answers_of(state: &State, width: u16) -> Paragraph<'static> {
    let of = |answer: &Option<crate::answer::Answer>, color| match answer {
        Some(answer) => Line::styled(answer.within(usize::from(width)), colored(color)),
        None => Line::default(),
    };
    Paragraph::new(vec![of(&state.right, RIGHT), of(&state.wrong, WRONG)])
}

/// The newest note, which may be a finding.
fn newest_notes(state: &State, area: Rect) -> Paragraph<'static> {
    let room = usize::from(area.width) * usize::from(area.height);
    let text = match state.notes.last() {
        Some(note) => format!("! {}", printable(&note.replace('\n', " "))),
        None => String::new(),
    };
    let text: String = text.chars().take(room).collect();
    Paragraph::new(text).wrap(Wrap { trim: true })
}

/// The phase, and the keys; or a question.
fn last_line(state: &State, width: u16) -> Line<'static> {
    if state.asks {
        return Line::from(vec![
            bold("end the run?  "),
            Span::raw("[s] save and end  [k] end at once  any other key: go on"),
        ]);
    }

    let mut line = Vec::new();
    if let Some(phase) = state.phases.last() {
        line.push(Span::raw(format!("{} ", phase.stage.name())));
        if let Some(share) = phase.share() {
            let columns = if width >= 70 { 24 } else { 8 };
            line.push(Span::styled(bar(share, columns), colored(ACCENT)));
            line.push(Span::raw(format!(" {} of {}", phase.done, phase.total)));
        }
        line.push(dim(format!("  {}", closing::duration(phase.began.elapsed().as_secs_f64()))));
    }
    let keys = if state.leave.is_some() { "←→ curve  q end" } else { "←→ curve  q leave" };
    line.push(dim(format!("   {keys}")));
    Line::from(line)
}

#[cfg(test)]
mod tests {
    use firebrick::Stage;
    use firebrick_core::Metrics;
    use ratatui::{Terminal, backend::TestBackend};

    use super::{super::Phase, *};

    #[test]
    fn what_matters_is_on_a_screen_of_any_size() {
        let mut state =
            State { name: "days".into(), device: "cpu".into(), steps: 25, ..State::default() };
        for step in 0..=10 {
            let mut metrics = Metrics::default();
            metrics.set("reward/credit", 0.05 * step as f64);
            metrics.set("sampling/groups_kept", 7.0);
            metrics.set("time/step", 6.0);
            if step % 5 == 0 {
                metrics.set("eval/heldout_accuracy", 0.08 * step as f64);
            }
            state.take(step, &metrics);
        }
        state.notes.push("the policy may not move [still]".into());
        let began = std::time::Instant::now();
        state.phases.push(Phase {
            stage: Stage::Rollout,
            total: 160,
            done: 40,
            tokens: 0.0,
            began,
        });

        for (columns, rows) in [(40, 12), (80, 24), (120, 40), (200, 60)] {
            let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
            terminal.draw(|frame| draw(frame, &state)).unwrap();
            let lines: Vec<String> = terminal
                .backend()
                .buffer()
                .content
                .chunks(usize::from(columns))
                .map(|row| row.iter().map(|cell| cell.symbol()).collect())
                .collect();
            let seen = lines.join("\n");
            for part in
                ["step 10 of 25", "held-out accuracy 80.0 %", "[still]", "rollout", "40 of 160"]
            {
                assert!(seen.contains(part), "{columns}×{rows}: {part} is not in\n{seen}");
            }
            assert!(seen.contains("1m30s left"), "{seen}");
            assert!(
                seen.chars().any(|letter| ('\u{2801}'..='\u{28ff}').contains(&letter)),
                "{seen}"
            );
        }
    }
}
