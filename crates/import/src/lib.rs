//! Configurations of verl and SkyRL as recipes.
//!
//! A configuration becomes a flat list of keys, in whatever notation it is written (`settings`, `shell`). A table of
//! rows says what every key means here (`rows`, with the data in `verl` and `skyrl`). The draft of a recipe (`draft`)
//! and the remarks about it (`notes`) are made from it. The recipe is checked like any other before it is returned. A
//! script is never executed.
//!
//! ```
//! let text = "generator: {n_samples_per_prompt: 4, unheard_of: 1}";
//! let imported = firebrick_import::import("mine.yaml".as_ref(), text, &[], None).unwrap();
//! assert!(imported.text.contains("group_size = 4  # generator.n_samples_per_prompt"));
//! assert!(imported.remarks.contains("unheard_of"));
//! ```

mod budget;
mod draft;
mod notes;
mod rows;
mod settings;
mod shell;
mod skyrl;
mod translate;
mod verl;

use std::path::Path;

use draft::Draft;
use firebrick_recipe::{Problem, Recipe, RecipeError, Text};
use notes::Notes;
use rows::{Group, Idle, Index, KnownKey, Row, Rule};
use settings::Settings;

pub use rows::Key;

/// A program whose configurations can be translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// verl
    Verl,
    /// SkyRL
    Skyrl,
}

/// A configuration as a recipe.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// Recipe in TOML, with the remarks as comments at its end.
    pub text: String,
    /// Remarks for a terminal.
    pub remarks: String,
}

impl Origin {
    /// Returns the program's name for itself.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Verl => "verl",
            Origin::Skyrl => "SkyRL",
        }
    }

    /// Returns every key that is known, for the book.
    pub fn keys(self) -> impl Iterator<Item = Key> {
        rows::keys(self.rows(), self.idle())
    }

    /// Returns the sources that its keys were read in.
    pub fn source(self) -> &'static str {
        match self {
            Origin::Verl => verl::SOURCE,
            Origin::Skyrl => skyrl::SOURCE,
        }
    }

    fn rows(self) -> &'static [Row] {
        match self {
            Origin::Verl => verl::ROWS,
            Origin::Skyrl => skyrl::ROWS,
        }
    }

    fn idle(self) -> &'static [Group] {
        match self {
            Origin::Verl => verl::IDLE,
            Origin::Skyrl => skyrl::IDLE,
        }
    }

    /// Finds the program whose configuration this is, by the tables that only one of them has.
    fn of(settings: &Settings) -> Option<Self> {
        let has = |tables: &[&str]| {
            settings.keys().any(|key| tables.iter().any(|table| key.starts_with(table)))
        };
        if has(&["actor_rollout_ref."]) {
            Some(Origin::Verl)
        } else if has(&["generator.", "environment.", "trainer.algorithm.", "trainer.policy."]) {
            Some(Origin::Skyrl)
        } else {
            None
        }
    }
}

/// Translates the configuration in `text`: a shell script if `path` ends in `.sh` or the text begins with `#!`,
/// otherwise lines of `key=value` or YAML. `overrides`, each `key=value`, are applied to it as the programs
/// themselves do.
///
/// # Errors
/// When the text can't be read, belongs to neither program, or does not make a valid recipe.
pub fn import(
    path: &Path,
    text: &str,
    overrides: &[String],
    origin: Option<Origin>,
) -> Result<Imported, RecipeError> {
    let file = Text::new(path.display().to_string(), text);
    let mut notes = Notes::default();
    let mut settings =
        Settings::read(path, text, &mut notes).map_err(|problem| file.point(problem))?;
    settings.set_all(overrides)?;

    let origin = origin.or_else(|| Origin::of(&settings)).ok_or_else(|| {
        file.point(Problem {
            span: 0..0,
            keys: Vec::new(),
            message: "the file has no key of verl or SkyRL".into(),
            label: String::new(),
            help: Some(
                "verl's keys begin with actor_rollout_ref, SkyRL's with trainer.algorithm or \
                 generator; for other files name the program with --from"
                    .into(),
            ),
        })
    })?;
    settings.resolve(origin.rows()).map_err(|problem| file.point(problem))?;

    let mut draft = Draft::new(&settings, &mut notes);
    for row in origin.rows() {
        translate(row, &settings, &mut draft);
    }
    let body = valid(&mut draft)?;
    sort_out(&settings, origin, &mut notes);

    let comments = notes.comments();
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let file: String = file.chars().filter(|c| !c.is_control()).collect();
    let text = format!("# From a configuration of {}: {file}\n\n{body}\n{comments}", origin.name());

    // The comments are checked as well, because no remark may break out of its comment.
    Recipe::parse(Path::new("imported.toml"), &text, &[])?;
    Ok(Imported { text, remarks: notes.page(origin.name(), settings.keys()) })
}

/// Returns the draft as a recipe. A value that no recipe accepts is left out with a remark, because one value
/// should not cost all the others.
fn valid(draft: &mut Draft) -> Result<String, RecipeError> {
    loop {
        let body = draft.text();
        // Each round removes an entry, so this ends.
        match Recipe::parse(Path::new("imported.toml"), &body, &[]) {
            Err(RecipeError::Invalid(fault)) if draft.leave_out(&fault) => {}
            Err(error) => return Err(error),
            Ok(_) => return Ok(body),
        }
    }
}

fn translate(row: &Row, settings: &Settings, draft: &mut Draft) {
    match row.rule {
        Rule::Same => draft.take(row.here, row.name),
        Rule::By(function) => function(settings, draft),
        Rule::Read | Rule::Lacks(_) => return, // `sort_out` handles these.
    }

    let fits = !settings.get(row.name).is_open() && (row.fits)(settings);
    if settings.is_given(row.name) && fits && !row.says.is_empty() {
        draft.notes.differs(row.name, &settings.get(row.name).to_string(), row.says);
    }
}

/// Notes why each key that added nothing to the recipe did not.
fn sort_out(settings: &Settings, origin: Origin, notes: &mut Notes) {
    let index = Index::new(origin.rows(), origin.idle());

    for key in settings.keys() {
        let value = settings.get(key);
        match index.find(key) {
            KnownKey::Nothing => notes.unknown(key, &value.to_string()),
            KnownKey::Idle(why) => notes.idle(key, why.says()),
            KnownKey::Row(Row { rule: Rule::Lacks(_), fits, .. }) if !fits(settings) => {
                notes.idle(key, Idle::Off.says());
            }
            KnownKey::Row(Row { rule: Rule::Lacks(harmless), says, .. }) => {
                if harmless.contains(&value.to_string().as_str()) {
                    notes.idle(key, "at this value they change nothing");
                } else {
                    notes.lacks(key, &value.to_string(), says);
                }
            }

            // An open value is neither a number nor true, so the rows saw the key as left out.
            KnownKey::Row(_) if value.is_open() && !notes.has_remark(key) => {
                let why = "only the other program knows the rest of this value: set it yourself";
                notes.lacks(key, &value.to_string(), why);
            }
            KnownKey::Row(Row { rule: Rule::Read, says, fits, .. }) => {
                if fits(settings) && !says.is_empty() {
                    notes.differs(key, &value.to_string(), says);
                }
            }
            KnownKey::Row(_) => {}
        }
    }
}
