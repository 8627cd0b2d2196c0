//! Page of runs: one HTML file, as a report or fed by a server.

use std::{fmt::Write as _, io::Write as _};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use firebrick::differences::differences;
use flate2::{Compression, write::DeflateEncoder};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::{
    ViewError,
    curves::curves,
    html,
    index::Index,
    run::{Run, distinguish},
};

const FRAME: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = concat!(
    include_str!("page/page.js"),
    "\n",
    include_str!("page/opened.js"),
    "\n",
    include_str!("page/completions.js")
);

/// Makes a report of runs, overlaid on each other: one HTML file that needs no other file.
///
/// `book` is the address of the book, to which charts and findings link. Without it there are no links.
///
/// # Errors
/// Fails if a run's record can't be read.
pub fn report(mut runs: Vec<Run>, book: Option<&str>) -> Result<String, ViewError> {
    distinguish(&mut runs);
    let index = Index::of_runs(&runs, 0)?;
    let mut data = embedded("index", &index)?;
    for number in 0..index.blocks() {
        if let Some(block) = index.block(&runs, number)? {
            data += &embedded(&format!("block-{number}"), &block)?;
        }
    }
    page(&runs, book, None, &data)
}

/// Makes the page with `data` in it. A page with `live` asks a server for its data instead; `live` is the version
/// that it shows.
pub(crate) fn page(
    runs: &[Run],
    book: Option<&str>,
    live: Option<&str>,
    data: &str,
) -> Result<String, ViewError> {
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    // By its hash the policy allows exactly this script and no other.
    let sum = STANDARD.encode(Sha256::digest(SCRIPT));
    let connect = if live.is_some() { "'self'" } else { "'none'" };
    let live = live.map_or(String::new(), |version| format!("data-live=\"{version}\""));
    let policy = format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{sum}'; img-src data:; \
         connect-src {connect}; base-uri 'none'; form-action 'none'"
    );

    Ok(filled(&[
        ("title", &html::text(&names.join(", "))),
        ("policy", &policy),
        ("style", STYLE),
        ("script", SCRIPT),
        ("live", &live),
        ("status", &html::text(&status(runs)?)),
        ("curves", &curves(runs, book)?),
        ("findings", &findings(runs, book)?),
        ("recipes", &recipes(runs)),
        ("data", data),
    ]))
}

/// Describes the progress of the runs in a line.
pub(crate) fn status(runs: &[Run]) -> Result<String, ViewError> {
    let of_run = |run: &Run| {
        let text = run.status()?;
        Ok(if runs.len() > 1 { format!("{}: {text}", run.name) } else { text })
    };
    Ok(runs.iter().map(of_run).collect::<Result<Vec<_>, ViewError>>()?.join(" · "))
}

/// Writes the findings, run by run.
pub(crate) fn findings(runs: &[Run], book: Option<&str>) -> Result<String, ViewError> {
    let mut page = String::new();
    for run in runs {
        if runs.len() > 1 {
            let _ = write!(page, "<h3>{}</h3>", html::text(&run.name));
        }
        let Some(diagnosis) = run.diagnosis() else {
            page += "<p>The run has no recipe that can be read, so no faults were looked for.</p>";
            continue;
        };

        let diagnosis = diagnosis?;
        if diagnosis.findings.is_empty() {
            let _ = write!(page, "<p>{}</p>", diagnosis.nothing_found());
        }

        for finding in diagnosis.findings {
            let evidence: String = finding
                .evidence
                .iter()
                .map(|line| format!("<li>{}</li>", html::text(line)))
                .collect();
            let link = match book {
                Some(book) => format!(
                    " <a href=\"{}/flat.html#{}\">More in the book</a>.",
                    html::text(book.trim_end_matches('/')),
                    finding.name
                ),
                None => String::new(),
            };

            let _ = write!(
                page,
                "<article class=\"finding\" id=\"finding-{name}\"><h4>{what}</h4><ul>{evidence}</ul>\
                 <p class=\"remedy\">{remedy}{link}</p></article>",
                name = finding.name,
                what = html::text(&finding.what),
                remedy = html::text(&finding.remedy),
            );
        }
    }
    Ok(page)
}

/// Writes the settings in which the recipes differ, and each recipe as its run keeps it.
fn recipes(runs: &[Run]) -> String {
    let settings: Option<Vec<_>> = runs.iter().map(Run::settings).collect();
    let mut page = String::new();
    match settings {
        Some(settings) if runs.len() > 1 => {
            let differences = differences(&settings);
            if differences.is_empty() {
                page += "<p>The recipes are the same.</p>";
            } else {
                let head: String = runs
                    .iter()
                    .map(|run| format!("<th scope=\"col\">{}</th>", html::text(&run.name)))
                    .collect();

                let rows = differences.iter().map(|difference| {
                    let cells: String = difference
                        .cells()
                        .map(|cell| format!("<td>{}</td>", html::text(&cell)))
                        .collect();
                    format!(
                        "<tr><th scope=\"row\"><code>{}</code></th>{cells}</tr>",
                        html::text(&difference.key)
                    )
                });

                let _ = write!(
                    page,
                    "<table class=\"differences\"><caption>Settings that are not the same in all runs</caption>\
                     <thead><tr><th scope=\"col\">setting</th>{head}</tr></thead><tbody>{}</tbody></table>",
                    rows.collect::<String>()
                );
            }
        }
        Some(_) => {}
        None => {
            page += "<p>Not every run has a recipe that can be read, so the recipes are not \
                 compared.</p>"
        }
    }

    for run in runs {
        let name = html::text(&run.name);
        match &run.recipe {
            Ok(recipe) if recipe.is_empty() => {}
            Ok(recipe) => {
                let _ = write!(
                    page,
                    "<details><summary><code>recipe.toml</code> of {name}</summary><pre>{}</pre></details>",
                    html::text(recipe)
                );
            }
            Err(problem) => {
                let problem = html::text(problem);
                let _ = write!(page, "<p>The recipe of {name} is not shown: {problem}.</p>");
            }
        }
    }
    page
}

/// Writes data into the page itself, compressed.
fn embedded(name: &str, value: &impl Serialize) -> Result<String, ViewError> {
    // The encoder gets the data in one piece, because it clears its buffer for each piece.
    let compress = || {
        let json = serde_json::to_vec(value)?;
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&json)?;
        encoder.finish()
    };

    let bytes = compress().map_err(|error| ViewError::Page(error.to_string()))?;
    Ok(format!(
        "<script type=\"application/octet-stream\" id=\"{name}\">{}</script>\n",
        STANDARD.encode(bytes)
    ))
}

/// Replaces each `{{name}}` of the frame in one pass, so that inserted text is never searched again.
fn filled(values: &[(&str, &str)]) -> String {
    let mut page = String::new();
    let mut rest = FRAME;
    while let Some((before, after)) = rest.split_once("{{") {
        page += before;
        let Some((name, after)) = after.split_once("}}") else {
            rest = after;
            break;
        };
        if let Some((_, value)) = values.iter().find(|(known, _)| *known == name) {
            page += value;
        }
        rest = after;
    }
    page + rest
}
