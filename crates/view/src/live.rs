//! The parts of the page of runs that change while the runs go on. A browser asks for them.

use std::collections::VecDeque;

use serde_json::json;

use crate::{
    ViewError,
    curves::curves,
    index::Index,
    page::{findings, page, status},
    run::Run,
};

/// The page that is served, and the parts of it that change.
pub(crate) struct Live {
    runs: Vec<Run>,
    book: Option<String>,
    /// The lists that open pages may have, the newest last. A page asks for texts by its own list, because newer
    /// lists are longer.
    indices: VecDeque<Index>,
    next: u64,
}

/// The number of lists that are kept.
const INDICES: usize = 4;

pub(crate) const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";

impl Live {
    pub(crate) fn new(runs: Vec<Run>, book: Option<String>) -> Self {
        Live { runs, book, indices: VecDeque::new(), next: 0 }
    }

    /// Returns a part of the page with its media type; `None` if there is no such part.
    pub(crate) fn content(
        &mut self,
        part: &str,
        query: &str,
    ) -> Result<Option<(&'static str, String)>, ViewError> {
        let book = self.book.as_deref();
        Ok(Some(match part {
            "" => (HTML, page(&self.runs, book, Some(&self.version()?), "")?),
            "state" => (JSON, self.state()?),
            "curves" => (HTML, curves(&self.runs, book)?),
            "findings" => (HTML, findings(&self.runs, book)?),
            "index" => (JSON, self.index()?),
            _ => {
                let number = part.strip_prefix("block/").and_then(|number| number.parse().ok());
                let id = query.strip_prefix("id=").and_then(|id| id.parse::<u64>().ok());
                let (Some(number), Some(id)) = (number, id) else { return Ok(None) };
                let Some(index) = self.indices.iter().find(|index| index.id == id) else {
                    return Ok(None);
                };
                match index.block(&self.runs, number)? {
                    Some(block) => (JSON, json(&block)),
                    None => return Ok(None),
                }
            }
        }))
    }

    fn index(&mut self) -> Result<String, ViewError> {
        self.next += 1;
        let index = Index::of(&self.runs, self.next)?;
        let text = json(&index);
        self.indices.push_back(index);
        if self.indices.len() > INDICES {
            self.indices.pop_front();
        }
        Ok(text)
    }

    fn state(&self) -> Result<String, ViewError> {
        let (mut going, mut rows) = (false, 0);
        for run in &self.runs {
            going |= run.ended()?.is_none();
            rows += run.store.completions()?;
        }
        let state = json!({
            "version": self.version()?, "rows": rows, "status": status(&self.runs)?, "going": going,
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
