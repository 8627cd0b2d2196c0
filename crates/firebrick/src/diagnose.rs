//! The faults of a run, in words, from its record alone: nothing is sampled or judged again.

mod history;
mod reward_rules;
mod rules;

use std::ops::RangeInclusive;

use firebrick_core::{Step, short_numbers};
use firebrick_recipe::Recipe;
use firebrick_runs::{Judged, RunError, Store};

use self::{
    history::History,
    rules::{ANY, RULES, RuleFinding},
};

/// The key of the fact in `run.db` that says why the last process ended: the name of a limit, `interrupted`, or
/// an error. The fact is empty while a process is running.
pub const ENDED: &str = "ended";

/// The result of a look at a run's record.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    /// The number of rollout steps that have numbers; 0 if none has.
    pub steps: Step,
    /// The steps that are called recent: the last ones.
    pub recent: RangeInclusive<Step>,
    /// The reason why the last process ended, if it ended and could say why.
    pub ended: Option<String>,
    /// The faults, with causes before their effects.
    pub findings: Vec<Finding>,
    /// The seconds that recent steps took on average, by phase: `sampling`, `judging`, `updating`, and `the
    /// whole step`.
    pub seconds: Vec<(&'static str, f64)>,
    /// The share of the groups of recent steps that were sampled and not trained on, because they had no spread.
    pub filtered: Option<f64>,
}

impl Diagnosis {
    /// A sentence for a run without findings. It depends on the length of the run.
    pub fn nothing_found(&self) -> &'static str {
        match self.steps {
            0 => "No step is finished: there are no numbers to check.",
            1..20 => "Findings: none so far. Entropy and length are checked from step 20 on.",
            _ => "Findings: none.",
        }
    }
}

/// Something that is wrong with a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The finding's name, such as `cut-off`. It stays the same from version to version, and is a heading of
    /// the book's page "My reward is flat".
    pub name: &'static str,
    /// The fault, as a sentence.
    pub what: String,
    /// The numbers that show it.
    pub evidence: Vec<String>,
    /// The setting to change, and how to change it.
    pub remedy: String,
    /// Completions that show it, three at most.
    pub shown: Vec<Judged>,
}

/// The most completions that go with a finding.
const SHOWN: usize = 3;

/// Looks for faults of the run of `recipe` whose record is `store`. The run may still be running.
///
/// # Errors
/// When the record can't be read.
pub fn diagnose(store: &Store, recipe: &Recipe) -> Result<Diagnosis, RunError> {
    let history = History::read_all(store)?;
    let recent = history.recent();
    let mut findings = Vec::new();
    for RuleFinding { name, what, evidence, remedy, which } in check_rules(&history, recipe) {
        let shown = match which {
            Some(which) => store.judged(&recent, which, SHOWN)?,
            None => Vec::new(),
        };
        // A run that has come apart, or a stranger's, may have numbers of 300 digits.
        let evidence = evidence.iter().map(|line| short_numbers(line)).collect();
        findings.push(Finding { name, what: short_numbers(&what), evidence, remedy, shown });
    }
    let phases = [
        ("sampling", "time/rollout"),
        ("judging", "time/reward"),
        ("updating", "time/update"),
        ("the whole step", "time/step"),
    ];
    let seconds = phases.into_iter().filter_map(|(phase, name)| Some((phase, history.mean(name)?)));
    Ok(Diagnosis {
        steps: history.last(),
        recent: recent.clone(),
        ended: history.ended.clone(),
        findings,
        seconds: seconds.collect(),
        filtered: history.share("sampling/groups_filtered", "sampling/groups_sampled"),
    })
}

/// The number of steps after which a run looks at itself again.
pub(crate) const EVERY: Step = history::RECENT;

/// Returns the faults of a running run that were not told before, as lines for its watcher.
pub(crate) fn alarms(store: &Store, recipe: &Recipe) -> Result<Vec<String>, RunError> {
    let mut lines = Vec::new();
    for RuleFinding { name, what, remedy, .. } in check_rules(&History::read_ends(store)?, recipe) {
        let mark = format!("[{name}]");
        // Healthy runs learn the form of answers too.
        if name != "form" && !store.was_told(&mark)? {
            lines.push(format!("{} {mark} {remedy}", short_numbers(&what)));
        }
    }
    Ok(lines)
}

/// Returns the findings of the rules, without those that only follow from another finding.
fn check_rules(history: &History, recipe: &Recipe) -> Vec<RuleFinding> {
    let mut found: Vec<RuleFinding> = Vec::new();
    for rule in RULES {
        let explained = |name: &&str| found.iter().any(|of| of.name == *name || *name == ANY);
        if !rule.after.iter().any(explained)
            && let Some(finding) = (rule.check)(history, recipe)
        {
            found.push(RuleFinding { name: rule.name, ..finding });
        }
    }
    found
}
