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
    /// Not at all: it is about something that is not here.
    Idle(Idle),
    /// Not at all, and it matters, unless it has one of these values.
    Lacks(&'static [&'static str]),
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

/// A row as the book shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// As the other program spells it.
    pub name: &'static str,
    /// Its value there when it is left out; empty if that says nothing.
    pub default: &'static str,
    /// Our key or keys; empty if there is none.
    pub here: &'static str,
    /// What is different, or why there is none; empty if nothing is.
    pub says: &'static str,
}

impl Row {
    pub(super) fn key(&self) -> Key {
        let says = match self.rule {
            Rule::Idle(why) if self.says.is_empty() => why.says(),
            _ => self.says,
        };
        Key { name: self.name, default: self.default, here: self.here, says }
    }
}

/// The row of a key: its own, or that of the nearest table above it.
pub(super) fn find(rows: &'static [Row], key: &str) -> Option<&'static Row> {
    let below = |row: &&Row| {
        row.name
            .strip_suffix('*')
            .is_some_and(|table| key.starts_with(table) || key == table.trim_end_matches('.'))
    };
    let exact = rows.iter().find(|row| row.name == key);
    exact.or_else(|| rows.iter().filter(below).max_by_key(|row| row.name.len()))
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

pub(super) const fn idle(name: &'static str, why: Idle) -> Row {
    Row { name, default: "", here: "", rule: Rule::Idle(why), says: "" }
}

pub(super) const fn lacks(
    name: &'static str,
    default: &'static str,
    harmless: &'static [&'static str],
    says: &'static str,
) -> Row {
    Row { name, default, here: "", rule: Rule::Lacks(harmless), says }
}
