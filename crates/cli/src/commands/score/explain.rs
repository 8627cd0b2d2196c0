//! Explains the verdict of one row.

use std::{fmt::Write as _, ops::Range};

use firebrick_core::Verdict;
use firebrick_reward::math::{Certainty, Extraction, Gold, Verifier};

use super::{
    Judged, Mode, Row, Rule,
    lines::Line,
    row::{clip, plain},
};

/// Explains how a row is judged, from the rule to the verdict, in one line each.
pub(super) fn explain(line: &Line, row: &Row, kind: Option<Mode>) -> String {
    let mut text = Text::default();
    text.line("row", &format!("{}, {}", clip(&line.id(row)), line.position()));
    if let Some(suite) = &row.suite {
        text.line("suite", &clip(suite));
    }

    let Some(rule) = row.rule(kind) else {
        text.line("rule", "none: the row tests the options of another program, and is skipped");
        return text.0;
    };

    let judged = rule.judge(&row.gold, &row.response);
    text.line("rule", &describe(&rule));
    text.line("gold", &clip(&row.gold));
    text.reading(&rule, judged.gold.as_deref());
    text.line("response", &format!("{} bytes", row.response.len()));

    match &judged.extracted {
        None => text.line("extracted", "nothing"),
        Some(extracted) => {
            text.line("extracted", &clip(extracted));
            if let Some(range) = &judged.range {
                text.line("where", &excerpt(&row.response, range));
            }
            text.reading(&rule, judged.canonical.as_deref());
        }
    }

    text.line("verdict", &verdict(&judged));
    text.line("why", &clip(&judged.why));
    if let Some(expected) = row.expected {
        text.line("expected", &expectation(row, &judged, expected));
    }
    text.0
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn line(&mut self, name: &str, value: &str) {
        writeln!(self.0, "{name:<10} {value}").expect("writing to a String cannot fail");
    }

    /// Writes the canonical form of an answer. Rules that compare texts have none to show.
    fn reading(&mut self, rule: &Rule, canonical: Option<&str>) {
        if matches!(rule, Rule::Math(_)) {
            self.line("  reads as", &canonical.map_or("nothing that can be read".into(), clip));
        }
    }
}

fn describe(rule: &Rule) -> String {
    let verifier = match rule {
        Rule::Math(verifier) => verifier,
        Rule::Text { mode, .. } => return format!("{}: compared as text", mode.name()),
    };
    let Verifier { extraction, gold, precision, .. } = verifier;

    let source = match extraction {
        Extraction::Auto => "the last box, else the last answer marker, else the last formula",
        Extraction::Boxed => "the last box",
        Extraction::AfterThinking => "the last box after the reasoning",
        Extraction::Bare => "the whole response",
        Extraction::Latex => "the last box, else the last answer marker, else the last LaTeX",
        Extraction::Plain => "the last bare number or expression",
    };

    let mut text = format!("math: the answer is in {source}; decimals agree to {precision} places");
    if *gold == Gold::Solution {
        text += "; the gold answer is extracted likewise";
    }

    for (option, what) in [
        (!verifier.strict_names, "; names of variables don't count"),
        (verifier.relation_for_set, "; an inequality may answer for a set"),
        (verifier.reduced_fractions, "; fractions have to be in lowest terms"),
        (verifier.evaluated, "; numbers have to be evaluated"),
    ] {
        if option {
            text += what;
        }
    }
    text
}

/// Quotes the bytes of `range`, with some of the text on either side.
fn excerpt(response: &str, range: &Range<usize>) -> String {
    const AROUND: usize = 40;

    // Slicing within a character would panic, so the bounds move outwards to those of characters.
    let start = response.floor_char_boundary(range.start);
    let end = response.ceil_char_boundary(range.end).max(start);
    let before = &response[response.floor_char_boundary(start.saturating_sub(AROUND))..start];
    let after = &response[end..response.ceil_char_boundary(end.saturating_add(AROUND))];

    format!(
        "bytes {start} to {end}: {}»{}«{}",
        plain(before),
        clip(&response[start..end]),
        plain(after)
    )
}

fn verdict(judged: &Judged) -> String {
    let name = judged.verdict.name().replace('_', " ");
    // If nothing was compared, there is nothing to be sure of.
    let compared = matches!(judged.verdict, Verdict::Right | Verdict::Wrong);
    match judged.certainty.filter(|_| compared) {
        None => name,
        Some(Certainty::Proved) => format!("{name}, proved"),
        Some(Certainty::Probable { bits }) => {
            format!("{name}, with a chance of error below 2^-{bits}")
        }
        Some(Certainty::Undecided) => format!("{name}, undecided"),
    }
}

fn expectation(row: &Row, judged: &Judged, expected: bool) -> String {
    let expected_verdict = if expected { "right" } else { "not right" };
    let is_right = judged.verdict == Verdict::Right;
    let result = match (row.counts(), is_right == expected) {
        (false, _) => "not counted: disputed, or either verdict will do",
        (true, true) => "agrees",
        (true, false) => "disagrees",
    };
    format!("{expected_verdict}; {result}")
}
