//! The rows of the tables that translate another program's keys.

use std::collections::HashMap;

use super::{Draft, Settings};

/// A key of another program, and its meaning here.
pub(super) struct Row {
    /// Its spelling in that program. `a.b.*` matches all keys below `a.b` that have no row.
    pub(super) name: &'static str,
    /// Value of a key that is left out, as YAML; empty if that has no meaning.
    pub(super) default: &'static str,
    /// Our key or keys; empty if there is none.
    pub(super) here: &'static str,
    pub(super) rule: Rule,
    /// Difference, or the reason why there is no key here; at most three sentences.
    pub(super) says: &'static str,
    /// Tells whether `says` holds, given the other keys.
    pub(super) fits: fn(&Settings) -> bool,
}

impl Row {
    /// Limits `says` to some settings. With others, a key without a counterpart is idle.
    pub(super) const fn when(self, fits: fn(&Settings) -> bool) -> Row {
        Row { fits, ..self }
    }
}

fn always(_: &Settings) -> bool {
    true
}

/// How a value gets into a recipe.
pub(super) enum Rule {
    /// Unchanged, under `here`.
    Same,
    /// A function writes it, and may read other keys too.
    By(fn(&Settings, &mut Draft)),
    /// The function of another row reads it.
    Read,
    /// Not at all, which matters unless it is one of these values.
    Lacks(&'static [&'static str]),
}

/// Keys that have no effect here.
pub(super) struct Group {
    pub(super) why: Idle,
    /// Table that they are in.
    pub(super) table: &'static str,
    /// Their names, separated by spaces; `a.*` matches everything below `a`.
    pub(super) keys: &'static str,
}

/// Why a key has no effect here.
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
    /// Returns the words that follow "mean nothing here:".
    pub(super) fn says(self) -> &'static str {
        match self {
            Idle::Cluster => {
                "one process computes; `device.count` gives it several devices of one machine; \
                 there are no nodes, ranks or jobs"
            }
            Idle::Engine => {
                "by default Firebrick samples itself; `rollout.engine` names servers that were \
                 started elsewhere"
            }
            Idle::Memory => {
                "these keys suit another machine; `firebrick plan` says what fits here, and \
                 train.micro_batch_tokens and rollout.max_sequences change it"
            }
            Idle::Records => {
                "metrics and checkpoints are in the run's folder, under --runs; --resume continues the run"
            }
            Idle::Always => "this is always the case here",
            Idle::Off => "only read by parts that have no counterpart here",
            Idle::Greedy => "held-out answers take the likeliest token, whatever this key says",
            Idle::Unpunished => "a punishment needs a length and a factor above 0",
        }
    }
}

/// A key as the book shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its spelling in the other program.
    pub name: String,
    /// Its value in that program when it is left out; empty if that has no meaning.
    pub default: &'static str,
    /// Our key or keys; empty if there is none.
    pub here: &'static str,
    /// Difference, or the reason why there is no key here; empty if there is neither.
    pub says: &'static str,
    /// True if the key is about something that does not exist here, so that nothing is lost.
    pub idle: bool,
}

/// What is known about a key.
#[derive(Clone, Copy)]
pub(super) enum KnownKey {
    Row(&'static Row),
    Idle(Idle),
    Nothing,
}

/// Finds what is known about each key.
pub(super) struct Index(HashMap<String, KnownKey>);

impl Index {
    pub(super) fn new(rows: &'static [Row], groups: &'static [Group]) -> Self {
        let rows = rows.iter().map(|row| (row.name.to_owned(), KnownKey::Row(row)));
        let idle = groups
            .iter()
            .flat_map(|group| group.names().map(move |name| (name, KnownKey::Idle(group.why))));
        Index(rows.chain(idle).collect())
    }

    /// Looks `key` up by its own name, or by that of the nearest table above it.
    pub(super) fn find(&self, key: &str) -> KnownKey {
        // No name has more parts than this. A key of a million dots has a million tables above it.
        let tables: Vec<usize> = key.match_indices('.').take(16).map(|(dot, _)| dot).collect();
        let tables = tables.into_iter().rev().map(|dot| &key[..dot]);
        let mut above = [key].into_iter().chain(tables).map(|table| format!("{table}.*"));
        let known = self.0.get(key).or_else(|| above.find_map(|name| self.0.get(&name)));
        known.copied().unwrap_or(KnownKey::Nothing)
    }
}

/// Returns all keys, as the book shows them.
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

/// Makes the row of a key that is the same here under another name.
pub(super) const fn same(name: &'static str, default: &'static str, here: &'static str) -> Row {
    Row { name, default, here, rule: Rule::Same, says: "", fits: always }
}

/// Makes the row of a key whose value is the same here, but not quite its effect.
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
