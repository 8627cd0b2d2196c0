//! Judged completions as lines of the page.

use firebrick_core::Verdict;
use firebrick_runs::Judged;

use crate::{html, run::Run};

/// Limit of the characters of a text in a line.
const LETTERS: usize = 240;

/// Writes a judged completion as one item of a list.
pub(crate) fn example(run: &Run, judged: &Judged) -> String {
    let Judged { prompt, text, verdict, reference, .. } = judged;
    let question = run.frame().question(prompt).to_owned();
    let is_right = verdict == Verdict::Right.name();
    let reference = if is_right || reference.is_empty() {
        String::new()
    } else {
        format!(" <small>reference {}</small>", html::text(&shortened(reference)))
    };
    format!(
        "<li>{}<bdi class=\"asked\">{}</bdi> <bdi class=\"said\">{}</bdi>{reference}</li>",
        badge(verdict),
        html::text(&shortened(&question)),
        html::text(&shortened(text)),
    )
}

fn badge(verdict: &str) -> String {
    let known = Verdict::ALL.into_iter().find(|known| known.name() == verdict);
    let symbol = match known {
        Some(Verdict::Right) => "✓",
        Some(Verdict::Wrong) => "✗",
        Some(Verdict::Unparsable) => "?",
        Some(Verdict::OverBudget) => "…",
        Some(Verdict::Error) => "!",
        None => "•",
    };
    format!(
        "<span class=\"badge\" data-verdict=\"{name}\"><span aria-hidden=\"true\">{symbol}</span> {words}</span> ",
        name = html::text(verdict),
        words = html::text(&verdict.replace('_', " "))
    )
}

/// Cuts a text, and makes one line of it.
fn shortened(text: &str) -> String {
    let mut line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(LETTERS) {
        line.truncate(end);
        line.push('…');
    }
    if line.is_empty() { "(empty)".into() } else { line }
}
