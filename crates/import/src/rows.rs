//! What a row of the table of keys is.

use std::collections::HashMap;

use super::{Draft, Settings};

/// A key of another program, and what it is here.
pub(super) struct Row {
    /// As that program spells it; `a.b.*` stands for all keys below `a.b` that have no row.
    pub(super) name: &'static str,
    /// Its value when it is left out, as YAML; empty if that says nothing.
    pub(super) default: &'static str,
    /// Our key or keys, empty if there is none.
    pub(super) here: &'static str,
    pub(super) rule: Rule,
    /// What is different, or why there is none; at most three sentences.
    pub(super) says: &'static str,
    /// Whether what is said holds beside the other keys.
    pub(super) fits: fn(&Settings) -> bool,
}

impl Row {
    /// The row, where what it says holds beside some settings only; beside others the key is idle if
    /// it has no counterpart.
    pub(super) const fn when(self, fits: fn(&Settings) -> bool) -> Row {
        Row { fits, ..self }
    }
}

fn always(_: &Settings) -> bool {
    true
}

/// How a value gets into a recipe.
pub(super) enum Rule {
    /// As it is, under `here`.
    Same,
    /// By a function, which may read other keys too.
    By(fn(&Settings, &mut Draft)),
    /// By the function of another row.
    Read,
    /// Not at all, and it matters, unless it has one of these values.
    Lacks(&'static [&'static str]),
}

/// Keys that mean nothing here.
pub(super) struct Group {
    pub(super) why: Idle,
    /// The table that they are in.
    pub(super) table: &'static str,
    /// Their names, with spaces between; `a.*` stands for everything below `a`.
    pub(super) keys: &'static str,
}

/// Why a key means nothing here.
#[derive(Clone, Copy)]
pub(super) enum Idle {
    Cluster,
    Engine,
    Memory,
    Records,
    Always,
    Off,
    Greedy,
    Unpunished,
}

impl Idle {
    /// To stand behind "mean nothing here:".
    pub(super) fn says(self) -> &'static str {
        match self {
            Idle::Cluster => {
                "one process computes on one device; there are no nodes, ranks or jobs"
            }
            Idle::Engine => "sampling is Firebrick's own; there is no vLLM or SGLang to set up",
            Idle::Memory => {
                "memory and speed are another machine's; `firebrick plan` says what fits, \
                 train.micro_batch_tokens and rollout.max_sequences change it"
            }
            Idle::Records => {
                "metrics and checkpoints are in the run's folder, under --runs; --resume goes on"
            }
            Idle::Always => "it is always so here",
            Idle::Off => "only read by parts that have no counterpart here",
            Idle::Greedy => "held-out answers take the likeliest token, of which there is one",
            Idle::Unpunished => "it takes a length and a factor above 0 to punish something",
        }
    }
}

/// A key as the book shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// As the other program spells it.
    pub name: String,
    /// Its value there when it is left out; empty if that says nothing.
    pub default: &'static str,
    /// Our key or keys; empty if there is none.
    pub here: &'static str,
    /// What is different, or why there is none; empty if nothing is.
    pub says: &'static str,
    /// Whether it is about something that is not here, so that nothing is lost.
    pub idle: bool,
}

/// What is known of a key.
#[derive(Clone, Copy)]
pub(super) enum Known {
    Row(&'static Row),
    Idle(Idle),
    Nothing,
}

/// What is known of each key.
pub(super) struct Index(HashMap<String, Known>);

impl Index {
    pub(super) fn new(rows: &'static [Row], groups: &'static [Group]) -> Self {
        let rows = rows.iter().map(|row| (row.name.to_owned(), Known::Row(row)));
        let idle = groups
            .iter()
            .flat_map(|group| group.names().map(move |name| (name, Known::Idle(group.why))));
        Index(rows.chain(idle).collect())
    }

    /// What is known of `key`: by its own name, or by that of the nearest table above it.
    pub(super) fn find(&self, key: &str) -> Known {
        // No name has more parts; a key of a million dots has as many tables above it.
        let tables: Vec<usize> = key.match_indices('.').take(16).map(|(dot, _)| dot).collect();
        let tables = tables.into_iter().rev().map(|dot| &key[..dot]);
        let mut above = [key].into_iter().chain(tables).map(|table| format!("{table}.*"));
        let known = self.0.get(key).or_else(|| above.find_map(|name| self.0.get(&name)));
        known.copied().unwrap_or(Known::Nothing)
    }
}

/// All of them, as the book shows them.
pub(super) fn keys(rows: &'static [Row], groups: &'static [Group]) -> impl Iterator<Item = Key> {
    let rows = rows.iter().map(|row| Key {
        name: row.name.to_owned(),
        default: row.default,
        here: row.here,
        says: row.says,
        idle: false,
    });
    let idle = groups.iter().flat_map(|group| {
        let says = group.why.says();
        group.names().map(move |name| Key { name, default: "", here: "", says, idle: true })
    });
    rows.chain(idle)
}

impl Group {
    fn names(&self) -> impl Iterator<Item = String> {
        let dot = if self.table.is_empty() { "" } else { "." };
        self.keys.split_whitespace().map(move |key| format!("{}{dot}{key}", self.table))
    }
}

/// The same thing under another name.
pub(super) const fn same(name: &'static str, default: &'static str, here: &'static str) -> Row {
    Row { name, default, here, rule: Rule::Same, says: "", fits: always }
}

/// The same value, which has not quite the same effect.
pub(super) const fn nearly(
    name: &'static str,
    default: &'static str,
    here: &'static str,
    says: &'static str,
) -> Row {
    Row { name, default, here, rule: Rule::Same, says, fits: always }
}

pub(super) const fn by(
    name: &'static str,
    default: &'static str,
    here: &'static str,
    function: fn(&Settings, &mut Draft),
    says: &'static str,
) -> Row {
    Row { name, default, here, rule: Rule::By(function), says, fits: always }
}

pub(super) const fn read(
    name: &'static str,
    default: &'static str,
    here: &'static str,
    says: &'static str,
) -> Row {
    Row { name, default, here, rule: Rule::Read, says, fits: always }
}

pub(super) const fn lacks(
    name: &'static str,
    default: &'static str,
    harmless: &'static [&'static str],
    says: &'static str,
) -> Row {
    Row { name, default, here: "", rule: Rule::Lacks(harmless), says, fits: always }
}
