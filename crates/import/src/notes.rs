//! The remarks about a translation.

use std::{borrow::Cow, collections::HashSet, fmt::Write as _};

/// Characters of a value that are shown at most.
const MOST_SHOWN: usize = 200;

/// Remarks by kind, each in the order of the configuration.
#[derive(Default)]
pub(super) struct Notes {
    /// Keys that have a remark.
    remarked: HashSet<String>,
    /// Remarks made so far, so that none is made twice.
    made: HashSet<(String, String)>,
    /// `key = value` with the difference.
    differs: Vec<(String, String)>,
    /// `key = value` with the reason why there is no counterpart.
    lacks: Vec<(String, String)>,
    /// Reasons with the keys that they hold for.
    idle: Vec<(&'static str, Vec<String>)>,
    unknown: Vec<String>,
    /// Remarks about the file as a whole.
    general: Vec<String>,
}

impl Notes {
    pub(super) fn differs(&mut self, key: &str, value: &str, says: &str) {
        let subject = self.given(key, value);
        if self.made.insert((subject.clone(), says.to_owned())) {
            self.differs.push((subject, says.to_owned()));
        }
    }

    pub(super) fn lacks(&mut self, key: &str, value: &str, says: &str) {
        let subject = self.given(key, value);
        if self.made.insert((subject.clone(), says.to_owned())) {
            self.lacks.push((subject, says.to_owned()));
        }
    }

    pub(super) fn idle(&mut self, key: &str, why: &'static str) {
        self.remarked.insert(key.to_owned());
        match self.idle.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, keys)) => keys.push(key.to_owned()),
            None => self.idle.push((why, vec![key.to_owned()])),
        }
    }

    pub(super) fn unknown(&mut self, key: &str, value: &str) {
        let subject = self.given(key, value);
        self.unknown.push(subject);
    }

    pub(super) fn general(&mut self, says: String) {
        if self.made.insert((says.clone(), String::new())) {
            self.general.push(says);
        }
    }

    /// Tells whether a key has a remark.
    pub(super) fn has_remark(&self, key: &str) -> bool {
        self.remarked.contains(key)
    }

    /// Returns the remarks as comments for the end of the recipe.
    pub(super) fn comments(&self) -> String {
        let lines = self.lines();
        lines.iter().map(|line| format!("# {line}").trim_end().to_owned() + "\n").collect()
    }

    /// Returns the remarks for a terminal, with a summary first.
    pub(super) fn page<'k>(&self, origin: &str, keys: impl Iterator<Item = &'k str>) -> String {
        let translated = keys.filter(|&key| !self.remarked.contains(key)).count();
        let idle: usize = self.idle.iter().map(|(_, keys)| keys.len()).sum();
        let mut page = format!(
            "{origin}: keys translated as they are: {translated}; with differences: {}; without a counterpart: {}; \
             without meaning here: {idle}; unknown: {}\n",
            self.differs.len(),
            self.lacks.len(),
            self.unknown.len(),
        );

        for line in self.lines() {
            let _ = writeln!(page, "{line}");
        }
        page
    }

    fn given(&mut self, key: &str, value: &str) -> String {
        self.remarked.insert(key.to_owned());
        format!("{key} = {}", shown(value))
    }

    fn lines(&self) -> Vec<String> {
        let idle = |(why, keys): &(&'static str, Vec<String>)| (keys.join(", "), (*why).to_owned());
        let without_reason =
            |list: &[String]| list.iter().map(|text| (text.clone(), String::new())).collect();

        let sections: [(&str, Vec<(String, String)>); 5] = [
            ("To be checked", without_reason(&self.general)),
            ("Not quite the same here", self.differs.clone()),
            ("No counterpart here", self.lacks.clone()),
            ("No meaning here", self.idle.iter().map(idle).collect()),
            ("Not known", without_reason(&self.unknown)),
        ];

        let mut lines = Vec::new();
        for (heading, entries) in sections {
            if entries.is_empty() {
                continue;
            }

            lines.extend([String::new(), format!("{heading}:")]);
            for (subject, says) in entries {
                let colon = if says.is_empty() { "" } else { ": " };
                wrap(&format!("{subject}{colon}{says}"), &mut lines);
            }
        }

        lines
    }
}

/// Shortens a value that is long to its beginning.
pub(super) fn shown(value: &str) -> Cow<'_, str> {
    match value.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{} …", &value[..end]).into(),
        None => value.into(),
    }
}

/// Wraps a text at 96 characters. All lines but the first are indented further.
fn wrap(text: &str, lines: &mut Vec<String>) {
    const WIDTH: usize = 96;
    let mut line = String::from("  ");
    let mut empty = true;

    // A line break in the text would end the comment that it is in.
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()) {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(std::mem::replace(&mut line, String::from("    ")));
            empty = true;
        }

        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }

    lines.push(line);
}
