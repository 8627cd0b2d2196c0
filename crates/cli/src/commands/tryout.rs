//! `firebrick try`: shows what a recipe's model reads and answers, and what its judge says, before anything is trained.

use std::{fmt::Write as _, path::PathBuf};

use clap::Args;
use firebrick::{
    Recipe, Stage, Watcher as _, build,
    plan::Memory,
    trial::{Trial, trial},
};
use firebrick_core::{FinishReason, Reward, RewardedGroup, Verdict, counted, printable_lines};
use firebrick_device::{Name, gibibytes};
use firebrick_runs::peak_rss_bytes;
use firebrick_train::{Observer, Phase};
use serde_json::json;

use crate::{
    ProgramError,
    bars::{Bar, Bars},
    closing::duration,
    json,
    terminal::Terminal,
};

/// Arguments of `firebrick try`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Try {
    /// The recipe: a TOML or YAML file, the folder of a task, or a name that `firebrick recipes` lists
    #[arg(default_value = "recipe.toml")]
    recipe: PathBuf,
    /// Replace a value of the recipe, as in rollout.max_completion_tokens=64; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Compute on this device instead of the recipe's, such as cpu or vulkan:0
    #[arg(long, value_name = "KIND:INDEX")]
    device: Option<Name>,
    /// The number of prompts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=256))]
    prompts: u16,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
The model answers a few of the prompts as often as in a step of the run, the judge
scores the answers and each prompt's own reference, and one update is made and thrown
away. Nothing is written.

Examples:
  firebrick try
  firebrick try my-task/recipe.toml --prompts 10
  firebrick try quickstart";

impl Try {
    pub(super) fn run(self) -> Result<(), ProgramError> {
        let set = [self.set, super::device_settings(self.device)].concat();
        let recipe = super::recipes::load(&self.recipe, &set)?.recipe;

        let bars = Bars::on_stderr();
        let sources = super::sources::sources(&bars);
        let mut progress = Progress { bars: bars.clone(), bar: None };
        let loading = bars.bar(Stage::Load.name(), 0);
        progress.bar = Some(loading);
        let prompts = usize::from(self.prompts);
        let mut notes = Vec::new();
        let mut hear = |note| notes.push(note);
        let trial = trial(&recipe, prompts, &sources, build::now(), &mut progress, &mut hear);
        drop(progress);

        let mut terminal = Terminal::plain(bars);
        for note in &notes {
            terminal.note(note);
        }
        let trial = trial?;
        super::print(&if self.json {
            as_json(&trial, &recipe, &notes)
        } else {
            in_words(&trial, &recipe)
        })
    }
}

/// Shows the trial's phases as bars.
struct Progress {
    bars: Bars,
    bar: Option<Bar>,
}

impl Observer for Progress {
    fn begin(&mut self, phase: Phase, total: usize) {
        let stage = match phase {
            Phase::Rollout => Stage::Rollout,
            Phase::Update => Stage::Update,
            Phase::Eval => Stage::Eval,
        };
        self.bar = None;
        self.bar = Some(self.bars.bar(stage.name(), total as u64));
    }

    fn extend(&mut self, units: usize) {
        if let Some(bar) = &self.bar {
            bar.extend(units as u64);
        }
    }

    fn advance(&mut self, units: usize) {
        if let Some(bar) = &self.bar {
            bar.advance(units as u64);
        }
    }

    fn end(&mut self) {
        self.bar = None;
    }
}

fn in_words(trial: &Trial, recipe: &Recipe) -> String {
    let mut text = format!("{}\n", trial.size);
    let count = trial.groups.len();
    for (index, group) in trial.groups.iter().enumerate() {
        let _ = write!(text, "\nprompt {} of {count}, as the model reads it\n", index + 1);
        text += &prompt(trial, index, group);
    }
    text.push('\n');
    text += &expectation(trial, recipe);
    for finding in findings(trial, recipe) {
        let _ = writeln!(text, "\n{finding}");
    }
    text
}

/// Number of a prompt's answers that are shown.
const SHOWN: usize = 5;

/// Describes a prompt with its answers, the best first.
fn prompt(trial: &Trial, index: usize, group: &RewardedGroup) -> String {
    let RewardedGroup { group, rewards } = group;
    let mut text = quoted(&group.prompt.text, "  | ");

    if let Some(score) = &trial.references[index] {
        let reference = printable_lines(&group.prompt.reference).replace('\n', "⏎");
        let verdict = score.verdict.name();
        let _ = writeln!(
            text,
            "  reference {reference:?}; as an answer it gets {:.2}, {verdict}",
            score.credit
        );
    }

    let answers = group.completions.len();
    let judged = || rewards.iter().filter(|reward| reward.is_judged());
    let mean =
        judged().map(|reward| reward.score.credit).sum::<f32>() / judged().count().max(1) as f32;
    let cut_off = |finish: FinishReason| finish == FinishReason::Length;
    let cut = group.completions.iter().filter(|completion| cut_off(completion.finish)).count();
    let _ = writeln!(
        text,
        "  {}, score {mean:.2} on average, {cut} cut off",
        counted(answers as u64, "answer")
    );

    let mut order: Vec<usize> = (0..answers).collect();
    order.sort_by(|&a, &b| rewards[b].score.credit.total_cmp(&rewards[a].score.credit));
    // The best answers alone would hide what the others look like, and one on which the judge failed comes first.
    let step = answers.div_ceil(SHOWN).max(1);
    let failed = order.iter().find(|&&index| !rewards[index].is_judged());
    let judged = order.iter().step_by(step).filter(|&&index| rewards[index].is_judged());
    for &index in failed.into_iter().chain(judged) {
        let Reward { score, reward, .. } = &rewards[index];
        let completion = &group.completions[index];
        let is_shaped = (rewards[index].base_reward - reward).abs() > 1e-6;
        let shaped = if is_shaped && rewards[index].is_judged() {
            format!(", {reward:.2} with penalties")
        } else {
            String::new()
        };
        let head = format!("  {:.2} {}{shaped}", score.credit, score.verdict.name());
        let mark = if cut_off(completion.finish) { "…" } else { "" };
        let answer = completion.text.trim_end().to_owned() + mark;
        let answer = printable_lines(&answer).replace('\n', "⏎");
        let _ = writeln!(text, "{head}: {}", shortened(&answer, 160));
    }
    text
}

/// Writes the lines of a text, each behind a mark.
fn quoted(text: &str, mark: &str) -> String {
    let lines = printable_lines(text.trim_end_matches('\n'));
    lines.lines().map(|line| format!("{mark}{line}\n")).collect()
}

fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Says how long a step and the run will take, and what memory the trial took.
fn expectation(trial: &Trial, recipe: &Recipe) -> String {
    let [least, most] = trial.step_seconds(recipe);
    let steps = recipe.train.steps as f64;
    // There is one before the first step, and one after the last.
    let evaluations = recipe.train.steps.div_ceil(recipe.eval.every.max(1)) as f64 + 1.0;
    let evaluation = trial.eval_seconds();
    let span = |least: f64, most: f64| match (duration(least), duration(most)) {
        (least, most) if least == most => least,
        (least, most) => format!("{least} to {most}"),
    };

    let memory = match (peak_rss_bytes(), Memory::of_device(recipe.device.name()).bytes) {
        (Some(peak), Some(free)) => {
            format!(
                "memory       {} were used, {} more are free\n",
                gibibytes(peak),
                gibibytes(free)
            )
        }
        (Some(peak), None) => format!("memory       {} were used\n", gibibytes(peak)),
        (None, _) => String::new(),
    };
    let all = |step: f64| steps * step + evaluations * evaluation;
    format!(
        "a step       {}, if answers stay as long: shorter ones take less\n\
         evaluation   {}\n\
         the run      {} for {} and {}\n{memory}",
        span(least, most),
        duration(evaluation),
        span(all(least), all(most)),
        counted(recipe.train.steps, "step"),
        counted(evaluations as u64, "evaluation"),
    )
}

/// Draws conclusions from the answers.
fn findings(trial: &Trial, recipe: &Recipe) -> Vec<String> {
    let rewards = || trial.groups.iter().flat_map(|group| &group.rewards);
    let completions = || trial.groups.iter().flat_map(|group| &group.group.completions);
    let all = completions().count();
    let mut findings = Vec::new();

    let errors = rewards().filter(|reward| !reward.is_judged()).count();
    if errors > 0 {
        findings
            .push(format!("{errors} of {all} answers have no verdict, because the judge failed on them: correct it first. A run ends if \
                 more than reward.max_errors of them fail."));
    }

    let cut = completions().filter(|it| it.finish == FinishReason::Length).count();
    if 2 * cut > all {
        findings.push(format!(
            "{cut} of {all} answers were cut off at {} tokens. If their beginnings look sensible, raise \
             rollout.max_completion_tokens; or ask for a short answer in the question, or in data.system.",
            recipe.rollout.max_completion_tokens
        ));
    }

    let differ = |group: &&RewardedGroup| {
        let mut credits = group.rewards.iter().map(|reward| reward.base_reward);
        let first = credits.next();
        credits.any(|credit| Some(credit) != first)
    };
    let useful = trial.groups.iter().filter(differ).count();
    let best = rewards().map(|reward| reward.score.credit).fold(0.0, f32::max);
    if useful == 0 && best == 0.0 {
        findings.push(
            "No answer earned anything, so there is nothing to learn from yet. Give a part of the score to answers \
             that are nearly right, ask an easier question, or show the model some answers first ([sft])."
                .into(),
        );
    } else if useful == 0 {
        findings.push(
            "All answers to a prompt have the same score, so a step could not prefer one to another.".into(),
        );
    } else if !rewards().any(|reward| reward.score.verdict == Verdict::Right) {
        findings.push(
            "No answer is right yet, but some earn more than others, from which a step learns."
                .into(),
        );
    }

    findings
}

fn as_json(trial: &Trial, recipe: &Recipe, notes: &[String]) -> String {
    let groups: Vec<_> = trial
        .groups
        .iter()
        .zip(&trial.references)
        .map(|(RewardedGroup { group, rewards }, reference)| {
            let answers: Vec<_> = group
                .completions
                .iter()
                .zip(rewards)
                .map(|(completion, reward)| {
                    json!({
                        "completion": completion.text, "finish": completion.finish.name(),
                        "verdict": reward.score.verdict.name(), "score": reward.score.credit,
                        "extracted": reward.score.extracted, "reward": reward.reward,
                    })
                })
                .collect();
            json!({
                "question": group.prompt.question_text(), "prompt": group.prompt.text,
                "reference": json::reference(&group.prompt),
                "reference_score": reference.as_ref().map(|score| score.credit),
                "answers": answers,
            })
        })
        .collect();

    let value = json!({
        "prompts": groups,
        "step_seconds": trial.step_seconds(recipe),
        "evaluation_seconds": trial.eval_seconds(),
        "notes": notes,
        "findings": findings(trial, recipe),
    });
    format!("{value}\n")
}
