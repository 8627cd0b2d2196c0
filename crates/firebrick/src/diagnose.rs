//! Finds the faults of a run and describes them, from its record alone: nothing is sampled or judged again.

mod finding;
mod history;
mod part_rules;
mod reward_rules;
mod rules;

use std::ops::RangeInclusive;

use firebrick_core::{Step, short_numbers};
use firebrick_recipe::Recipe;
use firebrick_runs::{Judged, RunError, Store};

use self::{finding::RuleFinding, history::History, part_rules::whole_series, rules::RULES};

/// Key in `run.db` of the reason why the last process ended: the name of a limit, `interrupted`, or an error. The value
/// is empty while a process is running.
pub const ENDED: &str = "ended";

/// Findings from a run's record.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    /// Number of rollout steps that have numbers; 0 if none has.
    pub steps: Step,
    /// Steps that are called recent: the last ones.
    pub recent: RangeInclusive<Step>,
    /// Why the last process ended, if it ended and could say why.
    pub ended: Option<String>,
    /// Faults, with causes before their effects.
    pub findings: Vec<Finding>,
    /// Seconds that recent steps took on average, by phase: `sampling`, `judging`, `updating`, and `the
    /// whole step`.
    pub seconds: Vec<(&'static str, f64)>,
    /// Share of the groups of recent steps that were sampled and not trained on, because they had no spread.
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

/// A fault of a run, with its evidence and its remedy.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Name of the finding, such as `cut-off`. It stays the same from version to version, and is a heading of
    /// the book's page "My reward is flat".
    pub name: &'static str,
    /// Fault, as a sentence.
    pub what: String,
    /// Numbers that show it.
    pub evidence: Vec<String>,
    /// Setting to change, and how to change it.
    pub remedy: String,
    /// Completions that show it, three at most.
    pub shown: Vec<Judged>,
}

/// Limit of the completions that go with a finding.
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
        // A run that has diverged, or someone else's, may have numbers of 300 digits.
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

/// Number of steps between a run's checks of itself.
pub(crate) const EVERY: Step = history::RECENT;

/// Returns the faults of a running run that were not reported to its watcher yet, as lines for it.
pub(crate) fn alarms(store: &Store, recipe: &Recipe) -> Result<Vec<String>, RunError> {
    let history = History::read_ends(store, &whole_series(recipe))?;
    let mut lines = Vec::new();
    for RuleFinding { name, what, remedy, .. } in check_rules(&history, recipe) {
        let mark = format!("[{name}]");
        // Healthy runs learn the format of answers too.
        if name != "form" && !store.was_told(&mark)? {
            lines.push(format!("{} {mark} {remedy}", short_numbers(&what)));
        }
    }
    Ok(lines)
}

/// Returns the findings of the rules, without those that only follow from another finding.
fn check_rules(history: &History, recipe: &Recipe) -> Vec<RuleFinding> {
    let mut findings: Vec<RuleFinding> = Vec::new();
    for rule in RULES {
        let explained = |name: &&str| findings.iter().any(|of| of.name == *name);
        if !rule.after.iter().any(explained)
            && let Some(finding) = (rule.check)(history, recipe)
        {
            findings.push(RuleFinding { name: rule.name, ..finding });
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use firebrick_core::{Metrics, Tracker as _};

    use super::*;

    #[test]
    fn a_running_run_sees_a_peak_that_is_long_over() {
        let text = "
            [model]
            path = 'a'
            [data]
            train = 't.jsonl'
            [reward]
            kind = 'weighted'
            parts = [{ name = 'rule', weight = 0.1, kind = 'integer' },
                     { name = 'judge', weight = 1.0, kind = 'integer' }]";
        let recipe = Recipe::parse(Path::new("a.toml"), text, &[]).unwrap().recipe;

        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(&folder.path().join("run.db")).unwrap();
        for step in 1..=100_u32 {
            let done = f64::from(step) / 100.0;
            // The rule is best at step 50. At both ends of the history it is lower, and no lower at the second.
            let rule = 0.6 - 0.6 * (done - 0.5).abs();
            let numbers = [
                ("reward/part/rule", rule),
                ("reward/part/judge", 0.5 + 0.4 * done),
                ("sampling/completions", 800.0),
                ("sampling/groups_sampled", 100.0),
            ];
            let metrics = Metrics(numbers.map(|(name, value)| (name.to_owned(), value)).into());
            store.log(step.into(), &metrics).unwrap();
        }

        let alarms = alarms(&store, &recipe).unwrap();
        assert_eq!(alarms.len(), 1, "{alarms:?}");
        assert!(alarms[0].contains("[over-optimised]"), "{alarms:?}");
    }
}
