//! The findings of runs, as a part of the page.

use std::fmt::Write as _;

use firebrick::diagnose::Finding;

use crate::{ViewError, examples::example, html, run::Run};

/// Writes the findings. Of several runs, those that have the same finding stand together, folded.
pub(crate) fn findings(runs: &[Run], book: Option<&str>) -> Result<String, ViewError> {
    let mut page = String::new();
    let mut found: Vec<(&'static str, Vec<(&Run, Finding)>)> = Vec::new();
    for run in runs {
        let Some(diagnosis) = run.diagnosis() else {
            let of = if runs.len() > 1 { &run.name } else { "The run" };
            let _ = write!(
                page,
                "<p>{} has no recipe that can be read, so no faults were looked for.</p>",
                html::text(of)
            );
            continue;
        };

        let diagnosis = diagnosis?;
        if diagnosis.findings.is_empty() && runs.len() == 1 {
            let _ = write!(page, "<p>{}</p>", diagnosis.nothing_found());
        }
        for finding in diagnosis.findings {
            match found.iter_mut().find(|(name, _)| *name == finding.name) {
                Some((_, of)) => of.push((run, finding)),
                None => found.push((finding.name, vec![(run, finding)])),
            }
        }
    }

    for (name, of) in &found {
        if runs.len() == 1 {
            page +=
                &of.iter().map(|(run, finding)| article(run, finding, book)).collect::<String>();
            continue;
        }
        // The advice is that of the first run, unless a run has advice of its own.
        let names: Vec<&str> = of.iter().map(|(run, _)| run.name.as_str()).collect();
        let remedy = &of[0].1.remedy;
        let rest: String = of.iter().map(|(run, finding)| of_run(run, finding, remedy)).collect();
        let _ = write!(
            page,
            "<details id=\"found-{name}\"><summary>{}: {}</summary><article class=\"finding\">\
             <p class=\"remedy\">{}{}</p>{rest}</article></details>",
            html::text(&names.join(", ")),
            html::text(&of[0].1.what),
            html::text(remedy),
            html::more(book, "flat", name),
        );
    }
    if page.is_empty() {
        page += "<p>Findings: none.</p>";
    }
    Ok(page)
}

/// Writes a finding, with what shows it.
fn article(run: &Run, finding: &Finding, book: Option<&str>) -> String {
    format!(
        "<article class=\"finding\"><h3>{what}</h3><p class=\"remedy\">{remedy}{link}</p>\
         <details id=\"shows-{name}-{run}\"><summary>What shows it</summary>{evidence}</details></article>",
        name = finding.name,
        run = html::text(&run.name),
        what = html::text(&finding.what),
        remedy = html::text(&finding.remedy),
        link = html::more(book, "flat", finding.name),
        evidence = evidence(run, finding),
    )
}

/// Writes what shows a finding in one of several runs, and what differs from the `remedy` above it.
fn of_run(run: &Run, finding: &Finding, remedy: &str) -> String {
    let own = match finding.remedy.as_str() {
        own if own == remedy => String::new(),
        own => format!("<p class=\"remedy\">{}</p>", html::text(own)),
    };
    format!(
        "<h3>{}: {}</h3>{own}{}",
        html::text(&run.name),
        html::text(&finding.what),
        evidence(run, finding)
    )
}

fn evidence(run: &Run, finding: &Finding) -> String {
    let lines: String =
        finding.evidence.iter().map(|line| format!("<li>{}</li>", html::text(line))).collect();
    let shown: String = finding.shown.iter().map(|judged| example(run, judged)).collect();
    let shown = match shown.as_str() {
        "" => String::new(),
        rows => format!("<ul class=\"examples\">{rows}</ul>"),
    };
    format!("<ul class=\"evidence\">{lines}</ul>{shown}")
}
