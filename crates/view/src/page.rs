//! Page of runs: one HTML file, as a report or fed by a server.

use std::io::Write as _;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use firebrick::is_done;
use flate2::{Compression, write::DeflateEncoder};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::{
    ViewError,
    comparison::comparison,
    curves::curves,
    findings::findings,
    glance::strip,
    html,
    index::Index,
    run::{RecipeRuns, Run, distinguish},
    settings::recipes,
};

const FRAME: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = concat!(
    include_str!("page/page.js"),
    "\n",
    include_str!("page/charts.js"),
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
    let names: Vec<String> = RecipeRuns::of(runs).into_iter().map(|recipe| recipe.name).collect();
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
        ("glance", &glance(runs)?),
        ("curves", &curves(runs, book)?),
        ("findings", &findings(runs, book)?),
        ("recipes", &recipes(runs)),
        ("data", data),
    ]))
}

/// Writes what the runs have come to.
pub(crate) fn glance(runs: &[Run]) -> Result<String, ViewError> {
    match runs {
        [run] => strip(run),
        runs => comparison(runs),
    }
}

/// Describes the progress of the runs in a line.
pub(crate) fn status(runs: &[Run]) -> Result<String, ViewError> {
    if let [run] = runs {
        return run.status();
    }
    let mut going = Vec::new();
    for run in runs {
        let is_finished = run.ended()?.is_some_and(|why| is_done(&why));
        if !is_finished {
            going.push(format!("{}: {}", run.name, run.status()?));
        }
    }
    Ok(match going.as_slice() {
        [] => format!("{} runs, all finished", runs.len()),
        going => format!("{} runs · {}", runs.len(), going.join(" · ")),
    })
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
