//! `firebrick diagnose`: explains what may be wrong with a run.

use std::path::PathBuf;

use clap::Args;
use firebrick::{
    diagnose::{Diagnosis, Finding, diagnose},
    is_done, reason, recipe_of_run,
    runs::{Judged, PromptFrame, Store},
};
use firebrick_core::{counted, printable, short_numbers};
use serde_json::json;

use crate::{ProgramError, answer::Answer, terminal::columns_of_stdout};

/// Arguments of `firebrick diagnose`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Diagnose {
    /// The run, by its name or folder; it may still be under way
    #[arg(value_parser = super::run())]
    run: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  firebrick diagnose runs/quickstart
  firebrick diagnose runs/quickstart --json

The book's page \"My reward is flat\" has a section for each finding, under the
name that is printed with it. Nothing is sampled or judged again.";

impl Diagnose {
    pub(super) fn run(self) -> Result<(), ProgramError> {
        let database = self.run.join("run.db");
        if !database.is_file() {
            return Err(ProgramError::NotARun { path: self.run });
        }

        let recipe = recipe_of_run(&self.run)?.recipe;
        let store = Store::open_to_ask(&database)?;
        let diagnosis = diagnose(&store, &recipe)?;
        let text = if self.json {
            format!("{}\n", object(&diagnosis))
        } else {
            self.text(&diagnosis, &store.prompt_frame()?)
        };
        super::print(&text)
    }

    fn text(&self, diagnosis: &Diagnosis, frame: &PromptFrame) -> String {
        let Diagnosis { steps, recent, ended, findings, seconds, filtered } = diagnosis;
        let width = columns_of_stdout().unwrap_or(100).clamp(40, 120);
        let after = counted(*steps, "step");

        let state = match ended {
            Some(why) => {
                let end = if is_done(why) { "finished" } else { "stopped" };
                format!("{end} after {after}: {}", printable(reason(why)))
            }
            None => format!("{after} so far; it is still running, or it was killed"),
        };

        let mut text = wrapped(&format!("{}: {state}.", self.run.display()), "", width);
        if *steps > 0 {
            let spent: Vec<String> =
                seconds.iter().map(|(phase, seconds)| format!("{phase} {seconds:.2}")).collect();
            let filtered = filtered.map_or(String::new(), |share| {
                format!(
                    "; {:.0} % of the groups were filtered, because their rewards had no spread",
                    100.0 * share
                )
            });

            let (first, last) = (recent.start(), recent.end());
            let line = format!(
                "Mean seconds of a step (steps {first} to {last}; judging overlaps with sampling): {}{filtered}.",
                spent.join(", ")
            );
            text += &wrapped(&short_numbers(&line), "", width);
        }

        if findings.is_empty() {
            text += &format!("\n{}\n", diagnosis.nothing_found());
        }

        for (number, finding) in (1..).zip(findings) {
            text +=
                &wrapped(&format!("\n{number}. {} [{}]", finding.what, finding.name), "", width);
            for line in &finding.evidence {
                text += &wrapped(&format!("- {line}"), "   ", width);
            }
            text += &wrapped(&finding.remedy, "   ", width);
            for shown in &finding.shown {
                let line = Answer::of_record(shown, frame).within(width.saturating_sub(16));
                text += &format!("   {:<12} {}\n", format!("step {}:", shown.step), line.trim());
            }
        }
        text
    }
}

fn wrapped(text: &str, indent: &str, width: usize) -> String {
    let (break_before, text) = match text.strip_prefix('\n') {
        Some(rest) => ("\n", rest),
        None => ("", text),
    };

    let options = textwrap::Options::new(width).initial_indent(indent).subsequent_indent(indent);
    format!("{break_before}{}\n", textwrap::fill(text, options))
}

fn object(diagnosis: &Diagnosis) -> serde_json::Value {
    let finding = |finding: &Finding| {
        let shown = |judged: &Judged| {
            json!({
                "source": judged.source, "step": judged.step, "prompt": judged.prompt, "reference": judged.reference,
                "text": judged.text, "verdict": judged.verdict, "extracted": judged.extracted,
            })
        };
        json!({
            "name": finding.name, "what": finding.what, "evidence": finding.evidence, "remedy": finding.remedy,
            "completions": finding.shown.iter().map(shown).collect::<Vec<_>>(),
        })
    };

    let seconds =
        diagnosis.seconds.iter().map(|(phase, seconds)| ((*phase).to_owned(), (*seconds).into()));
    json!({
        "steps": diagnosis.steps, "ended": diagnosis.ended,
        "recent": [diagnosis.recent.start(), diagnosis.recent.end()],
        "seconds": seconds.collect::<serde_json::Map<_, _>>(), "filtered": diagnosis.filtered,
        "findings": diagnosis.findings.iter().map(finding).collect::<Vec<_>>(),
    })
}
