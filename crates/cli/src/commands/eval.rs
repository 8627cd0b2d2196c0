//! `firebrick eval`: evaluates a checkpoint on the held-out prompts of a recipe.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufWriter, Write as _},
    path::{Path, PathBuf},
};

use clap::Args;
use firebrick::{
    Error, Recipe, Stage, Watcher as _,
    build::{self, EvalSet},
    device,
    recipe::Loaded,
    runs::recipe_text,
    source::run_of_checkpoint,
};
use firebrick_core::{RewardedGroup, Seed, Verdict, printable};
use firebrick_device::Name;
use firebrick_train::{
    PhaseTokens,
    eval::{EvalReport, evaluate},
};
use serde_json::{Map, Value};

use crate::{ProgramError, bars::Bars, json, out::Out, terminal::Terminal};

/// Arguments of `firebrick eval`.
#[derive(Args)]
#[command(allow_negative_numbers = true)]
pub struct Eval {
    /// A run, by its name or folder: its newest checkpoint; or a checkpoint. With --recipe also any model folder, a GGUF
    /// file, or the name of a model on the Hugging Face Hub
    model: PathBuf,
    /// The number of completions per prompt, the k of avg@k and maj@k; by default the recipe's number
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65536))]
    samples: Option<u32>,
    /// The recipe that says what to evaluate on; by default the run's own recipe
    #[arg(long)]
    recipe: Option<PathBuf>,
    /// Replace a value of the recipe, such as eval.temperature=0.7
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Compute on this device instead of the recipe's, such as cpu or vulkan:0
    #[arg(long, value_name = "KIND:INDEX")]
    device: Option<Name>,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
    /// Write every completion into this file, one JSON object per line: question, reference, text, verdict, and
    /// the tokens with their log-probabilities
    #[arg(long, value_name = "FILE")]
    completions: Option<PathBuf>,
}

impl Eval {
    pub(super) fn run(self) -> Result<(), ProgramError> {
        let set = [self.set.as_slice(), &super::device_settings(self.device)].concat();

        let bars = Bars::on_stderr();
        let sources = super::sources::sources(&bars);
        let folder = super::model_folder(&self.model, &sources)?;
        let recipe = self.recipe(&folder, &set)?.recipe;

        let loading = bars.bar(Stage::Load.name(), 0);
        let mut evaluation = build::evaluation(&recipe, &folder, &sources, build::now())?;
        if evaluation.heldout.is_empty() {
            return Err(ProgramError::NoHeldout);
        }
        drop(loading);

        let lines = self.completions.as_deref().map(Out::at_path).transpose()?;
        // The evaluation takes time, so a file that can't be written is found before it.
        let lines = lines.map(|out| Ok::<_, ProgramError>((out.open()?, out))).transpose()?;

        let samples = self.samples.map_or(recipe.eval.samples.max(1), |samples| samples as usize);
        let heldout = EvalSet {
            name: String::new(),
            prompts: std::mem::take(&mut evaluation.heldout),
            samples,
        };

        // --samples applies to every set, even to one with its own number.
        let further = std::mem::take(&mut evaluation.sets).into_iter();
        let further = further
            .map(|set| EvalSet { samples: self.samples.map_or(set.samples, |_| samples), ..set });
        let sets: Vec<EvalSet> = std::iter::once(heldout).chain(further).collect();

        let total: usize = sets.iter().map(|set| set.prompts.len() * set.samples).sum();
        let bar = bars.bar(Stage::Eval.name(), total as u64);
        let device = evaluation.device.clone();
        let smaller = device::fewer_sequences(&recipe);

        let measured = device::unsaved(&recipe, &device, "the evaluation", smaller, || {
            let tokens = PhaseTokens::begin(&*evaluation.engine);
            let most = total as u64 * evaluation.sampling.max_completion_tokens as u64;
            let measure = |set: &EvalSet| {
                let mut advance = |finished| {
                    if let Some(sampled) = tokens.sampled() {
                        bar.tokens(sampled, most);
                    }
                    bar.advance(finished as u64);
                };
                Ok(evaluate(
                    &mut *evaluation.engine,
                    &*evaluation.verifier,
                    &set.prompts,
                    set.samples,
                    &evaluation.sampling,
                    Seed::run(recipe.seed).derive("eval", &[]),
                    &mut advance,
                )?)
            };
            sets.iter().map(measure).collect::<Result<Vec<_>, Error>>()
        })?;

        drop(bar);
        let mut terminal = Terminal::plain(bars);
        for note in evaluation.notes.try_iter() {
            terminal.note(&note);
        }

        if let Some((file, out)) = lines {
            let groups = sets.iter().zip(&measured).map(|(set, (_, groups))| (set, &groups[..]));
            write_lines(file, &out, groups).map_err(ProgramError::file(out.path()))?;
        }

        // The completions have already been written, and a mean over what is left of them would mislead.
        for (report, _) in &measured {
            if report.judged() == 0 {
                let completions = report.verdicts.iter().sum();
                return Err(ProgramError::NothingJudged { completions });
            }
            report.check_errors(recipe.reward.max_errors)?;
        }

        let reports = sets.iter().zip(&measured).map(|(set, (report, _))| (set, report));
        let text = if self.json {
            // The held-out set comes first and is the object itself, of which further sets are a field.
            let mut all = reports.map(|(set, report)| (set.name.clone(), report_json(report)));
            let mut first = all.next().map(|(_, first)| first).unwrap_or_default();
            let further: Map<String, Value> = all.collect();
            if !further.is_empty() {
                first["sets"] = further.into();
            }
            format!("{first}\n")
        } else {
            let name = |set: &EvalSet| match set.name.as_str() {
                "" => String::new(),
                name => format!("\n{name}: "),
            };
            let tables =
                reports.map(|(set, report)| name(set) + &table(report, &evaluation.sampling));
            tables.collect()
        };

        super::print(&text)
    }

    /// Loads the recipe that was given, or else that of the run that the checkpoint belongs to.
    fn recipe(&self, checkpoint: &Path, set: &[String]) -> Result<Loaded, ProgramError> {
        if let Some(path) = &self.recipe {
            return super::recipes::load(path, set);
        }

        let Some(run) = run_of_checkpoint(checkpoint) else {
            return Err(ProgramError::NotACheckpoint { path: self.model.clone() });
        };
        let text = recipe_text(&run)?;
        let path = run.join("recipe.toml");
        Ok(Recipe::load_text(&path, &text, set).map_err(Error::from)?)
    }
}

/// Writes a line for each completion, in the order of the prompts.
fn write_lines<'a>(
    file: File,
    out: &Out,
    sets: impl Iterator<Item = (&'a EvalSet, &'a [RewardedGroup])>,
) -> io::Result<()> {
    // Only now that there is something to write does the file lose its earlier contents.
    if matches!(out, Out::File(_)) {
        file.set_len(0)?;
    }

    let mut file = BufWriter::new(file);
    let groups = sets.flat_map(|(set, groups)| groups.iter().map(move |group| (set, group)));
    for (set, RewardedGroup { group, rewards }) in groups {
        for (completion, reward) in group.completions.iter().zip(rewards) {
            let mut line = serde_json::json!({
                "question": group.prompt.question_text(),
                "reference": json::reference(&group.prompt),
                "text": completion.text,
                "extracted": reward.score.extracted,
                "verdict": reward.score.verdict.name(),
                "finish": completion.finish,
                "prompt_tokens": group.prompt.tokens,
                "tokens": completion.tokens,
                "logprobs": completion.logprobs,
            });

            if !group.prompt.data_source.is_empty() {
                line["data_source"] = group.prompt.data_source.as_str().into();
            }
            if !set.name.is_empty() {
                line["set"] = set.name.as_str().into();
            }
            writeln!(file, "{}", printable(&line.to_string()))?;
        }
    }

    file.flush()
}

/// Number of difficulties that a table has room for.
const DIFFICULTIES: usize = 20;

fn table(report: &EvalReport, sampling: &firebrick_rollout::Sampling) -> String {
    let k = report.samples;
    let mut lines = vec![
        format!(
            "{} prompts × {k} completions, temperature {}, top_p {}",
            report.prompts, sampling.temperature, sampling.top_p
        ),
        format!(
            "pass@1   {:.4} ± {:.4}   95 %: {:.4} to {:.4}",
            report.accuracy, report.standard_error, report.interval.0, report.interval.1
        ),
        format!("avg@{k:<4} {:.4}", report.accuracy),
    ];

    if (report.credit - report.accuracy).abs() > 1e-9 {
        lines.push(format!("credit   {:.4}", report.credit));
    }
    for (k, pass) in report.pass_at.iter().skip(1) {
        lines.push(format!("pass@{k:<3} {pass:.4}"));
    }
    lines.push(format!("maj@{k:<4} {:.4}", report.majority));

    if k > 1 {
        let [never, sometimes, always] = report.solved;
        lines.push(format!("prompts  {never} never right, {sometimes} sometimes, {always} always"));
    }

    for (name, (prompts, accuracy)) in &report.by_data_source {
        lines.push(format!("{}: {accuracy:.4} of {prompts} prompts", printable(name)));
    }
    for (difficulty, (prompts, accuracy)) in report.by_difficulty.iter().take(DIFFICULTIES) {
        let difficulty = printable(difficulty);
        lines.push(format!("difficulty {difficulty}: {accuracy:.4} of {prompts} prompts"));
    }
    if report.by_difficulty.len() > DIFFICULTIES {
        lines.push(format!("further difficulties: {}", report.by_difficulty.len() - DIFFICULTIES));
    }

    let verdicts: Vec<String> = Verdict::ALL
        .iter()
        .zip(report.verdicts)
        .filter(|(_, count)| *count > 0)
        .map(|(verdict, count)| format!("{count} {}", verdict.name()))
        .collect();

    lines.push(format!("verdicts {}", verdicts.join(", ")));
    lines.push(format!(
        "length   {:.1} tokens, {:.1} % cut off",
        report.length,
        100.0 * report.truncated
    ));
    lines.join("\n") + "\n"
}

fn report_json(report: &EvalReport) -> Value {
    let pass: Map<String, Value> =
        report.pass_at.iter().map(|(k, pass)| (k.to_string(), (*pass).into())).collect();

    let verdicts: Map<String, Value> = Verdict::ALL
        .iter()
        .zip(report.verdicts)
        .map(|(verdict, count)| (verdict.name().to_owned(), count.into()))
        .collect();

    let by_name = |accuracies: &BTreeMap<String, (usize, f64)>| -> Map<String, Value> {
        let of = |(name, (prompts, accuracy)): (&String, &(usize, f64))| {
            (name.clone(), serde_json::json!({ "prompts": prompts, "pass@1": accuracy }))
        };
        accuracies.iter().map(of).collect()
    };

    serde_json::json!({
        "prompts": report.prompts,
        "samples": report.samples,
        "pass@1": report.accuracy,
        "avg@k": report.accuracy,
        "credit": report.credit,
        "standard_error": report.standard_error,
        "interval_95": [report.interval.0, report.interval.1],
        "solved": { "never": report.solved[0], "sometimes": report.solved[1], "always": report.solved[2] },
        "difficulty": by_name(&report.by_difficulty),
        "data_source": by_name(&report.by_data_source),
        "pass@k": pass,
        "maj@k": report.majority,
        "verdicts": verdicts,
        "length_mean": report.length,
        "truncated": report.truncated,
    })
}
