//! The recipes of runs, as a part of the page.

use std::fmt::Write as _;

use firebrick::{Recipe, differences::differences};

use crate::{html, run::Run};

/// Writes each recipe as its run keeps it; of a single run also what it changes.
pub(crate) fn recipes(runs: &[Run]) -> String {
    let mut page = String::new();
    for run in runs {
        let name = html::text(&run.name);
        if let ([_], Some(recipe)) = (runs, run.settings()) {
            page += &changed(&recipe);
        }
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

/// Writes the settings that are not the defaults, each with its default.
fn changed(recipe: &Recipe) -> String {
    let here = ["here".to_owned(), "default".to_owned()];
    let recipes = [recipe.clone(), Recipe::default()];
    let table = differing("", &here, &recipes).unwrap_or_default();
    format!("<details><summary>Settings that are not the defaults</summary>{table}</details>")
}

/// Writes a table of the settings in which recipes differ, with a column for each; `None` if there are none. Seeds are
/// not compared.
pub(crate) fn differing(caption: &str, names: &[String], recipes: &[Recipe]) -> Option<String> {
    let differences = differences(recipes);
    let rows = differences.iter().filter(|difference| difference.key != "seed").map(|difference| {
        let cells: String =
            difference.cells().map(|cell| format!("<td>{}</td>", html::text(&cell))).collect();
        format!("<tr><th scope=\"row\">{}</th>{cells}</tr>", html::text(&difference.key))
    });
    let rows: String = rows.collect();
    let head: String =
        names.iter().map(|name| format!("<th scope=\"col\">{}</th>", html::text(name))).collect();
    let caption = match caption {
        "" => String::new(),
        caption => format!("<caption>{caption}</caption>"),
    };
    (!rows.is_empty()).then(|| {
        format!(
            "<table class=\"differences\">{caption}<thead><tr><th scope=\"col\">setting</th>{head}\
             </tr></thead><tbody>{rows}</tbody></table>"
        )
    })
}
