//! Parts of the page of runs that change while the runs are active. A browser asks for them.

use std::{collections::VecDeque, sync::Arc};

use serde_json::json;

use crate::{
    ViewError,
    curves::curves,
    findings::findings,
    index::Index,
    page::{glance, page, status},
    run::Run,
};

/// Serves the page, and the parts of it that change.
pub(crate) struct LivePage {
    runs: Vec<Run>,
    book: Option<String>,
    /// Lists that open pages may use, the newest last. A page asks for texts by its own list, because newer lists are
    /// longer.
    indices: VecDeque<Index>,
    next: u64,
    /// Parts that were made last, with the version of the runs that they are of. Concurrent readers share one text.
    made: Vec<CachedPart>,
}

/// A part of the page, made for a version of the runs.
struct CachedPart {
    part: &'static str,
    version: String,
    text: Arc<str>,
}

/// Parts that are kept as they were made.
const KEPT: [&str; 5] = ["", "glance", "curves", "findings", "index"];

/// Number of lists that are kept.
const INDICES: usize = 4;

pub(crate) const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";

impl LivePage {
    pub(crate) fn new(runs: Vec<Run>, book: Option<String>) -> Self {
        LivePage { runs, book, indices: VecDeque::new(), next: 0, made: Vec::new() }
    }

    /// Returns a part of the page with its media type; `None` if there is no such part.
    pub(crate) fn content(
        &mut self,
        part: &str,
        query: &str,
    ) -> Result<Option<(&'static str, Arc<str>)>, ViewError> {
        if let Some(part) = KEPT.into_iter().find(|kept| *kept == part) {
            let kind = if part == "index" { JSON } else { HTML };
            return Ok(Some((kind, self.kept(part)?)));
        }

        Ok(Some(match part {
            "state" => (JSON, self.state()?.into()),
            _ => {
                let number = part.strip_prefix("block/").and_then(|number| number.parse().ok());
                let id = query.strip_prefix("id=").and_then(|id| id.parse::<u64>().ok());
                let (Some(number), Some(id)) = (number, id) else { return Ok(None) };
                let Some(index) = self.indices.iter().find(|index| index.id == id) else {
                    return Ok(None);
                };
                match index.block(&self.runs, number)? {
                    Some(block) => (JSON, json(&block).into()),
                    None => return Ok(None),
                }
            }
        }))
    }

    /// Returns a part of the page, made again if the runs have continued since it was made.
    fn kept(&mut self, part: &'static str) -> Result<Arc<str>, ViewError> {
        // Completions are recorded before the numbers of their step, so their count belongs to the version.
        let version = format!("{} {}", self.version()?, self.rows()?);
        let made = self.made.iter().find(|made| made.part == part && made.version == version);
        if let Some(made) = made {
            return Ok(Arc::clone(&made.text));
        }

        self.made.retain(|made| made.part != part);
        let book = self.book.as_deref();
        let text: Arc<str> = match part {
            "glance" => glance(&self.runs)?,
            "curves" => curves(&self.runs, book)?,
            "findings" => findings(&self.runs, book)?,
            "index" => self.index()?,
            _ => page(&self.runs, book, Some(&self.version()?), "")?,
        }
        .into();

        self.made.push(CachedPart { part, version, text: Arc::clone(&text) });
        Ok(text)
    }

    fn rows(&self) -> Result<u64, ViewError> {
        self.runs.iter().map(|run| Ok(run.store.completions()?)).sum()
    }

    fn index(&mut self) -> Result<String, ViewError> {
        self.next += 1;
        let index = Index::of_runs(&self.runs, self.next)?;
        let text = json(&index);
        self.indices.push_back(index);
        // Open pages may still ask for blocks of the older lists.
        if self.indices.len() > INDICES {
            self.indices.pop_front();
        }
        Ok(text)
    }

    fn state(&self) -> Result<String, ViewError> {
        let mut going = false;
        for run in &self.runs {
            going |= run.ended()?.is_none();
        }

        let state = json!({
            "version": self.version()?, "rows": self.rows()?, "status": status(&self.runs)?, "going": going,
        });
        Ok(state.to_string())
    }

    /// Returns a text that changes with new numbers, new lines, and a run's end.
    fn version(&self) -> Result<String, ViewError> {
        let of_run = |run: &Run| {
            let (numbers, lines) = run.store.extent()?;
            Ok(format!("{numbers}.{lines}.{}", u8::from(run.ended()?.is_some())))
        };
        Ok(self.runs.iter().map(of_run).collect::<Result<Vec<_>, ViewError>>()?.join("-"))
    }
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".into())
}
