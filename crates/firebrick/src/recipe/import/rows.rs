//! What a row of the table of keys is.

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
pub(super) enum Known {
    Row(&'static Row),
    Idle(Idle),
    Nothing,
}

/// What is known of `key`: by its own name, or by that of the nearest table above it.
pub(super) fn find(rows: &'static [Row], groups: &'static [Group], key: &str) -> Known {
    let below = |name: &str| {
        let table = name.strip_suffix('*').unwrap_or_default();
        !table.is_empty() && (key.starts_with(table) || key == table.trim_end_matches('.'))
    };
    let fit = |name: &str| match name == key {
        true => Some(usize::MAX),
        false => below(name).then_some(name.len()),
    };
    let rows = rows.iter().filter_map(|row| Some((fit(row.name)?, Known::Row(row))));
    let idle = groups.iter().flat_map(|group| {
        group.names().filter_map(move |name| Some((fit(&name)?, Known::Idle(group.why))))
    });
    rows.chain(idle).max_by_key(|(fit, _)| *fit).map_or(Known::Nothing, |(_, known)| known)
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
    Row { name, default, here, rule: Rule::Same, says: "" }
}

/// The same value, which has not quite the same effect.
pub(super) const fn nearly(
    name: &'static str,
    default: &'static str,
    here: &'static str,
    says: &'static str,
) -> Row {
    Row { name, default, here, rule: Rule::Same, says }
}

pub(super) const fn by(
    name: &'static str,
    default: &'static str,
    here: &'static str,
    function: fn(&Settings, &mut Draft),
    says: &'static str,
) -> Row {
    Row { name, default, here, rule: Rule::By(function), says }
}

pub(super) const fn read(
    name: &'static str,
    default: &'static str,
    here: &'static str,
    says: &'static str,
) -> Row {
    Row { name, default, here, rule: Rule::Read, says }
}

pub(super) const fn lacks(
    name: &'static str,
    default: &'static str,
    harmless: &'static [&'static str],
    says: &'static str,
) -> Row {
    Row { name, default, here: "", rule: Rule::Lacks(harmless), says }
}
