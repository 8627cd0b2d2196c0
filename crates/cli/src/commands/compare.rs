//! `firebrick compare`: runs recipes with several seeds and reports their differences.

mod folder;
mod plan;

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use clap::Args;
use firebrick::{Error, INTERRUPTED, Watcher as _, recipe::Recipe};
use firebrick_device::Name;
use firebrick_runs::{RunError, shell_word, write_atomically};
use firebrick_view::report;

use self::plan::{Job, Plan};
use super::{
    train::{interrupted, session, terminal},
    watch::open as open_runs,
};
use crate::{
    ProgramError,
    bars::Bars,
    compare::{Compared, Comparison, Difference, Measured, Outcome, State, differing},
    machine::machine,
    terminal::Terminal,
};

/// Arguments of `firebrick compare`.
#[derive(Args)]
#[command(allow_negative_numbers = true, after_help = EXAMPLES)]
pub struct Compare {
    /// The recipes: TOML or YAML files, or names that `firebrick recipes` lists. A folder stands for the recipes in it,
    /// or, if there are runs in it, for those runs
    #[arg(required = true, value_name = "RECIPE")]
    recipes: Vec<PathBuf>,
    /// The number of runs of each recipe: with its own seed, the next one, and so on; by default 3
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,
    /// The held-out accuracy to reach, whose cost the table shows; by default nine tenths of the best recipe's
    /// gain
    #[arg(long, value_name = "ACCURACY", value_parser = share)]
    target: Option<f64>,
    /// A metric to compare, such as loss/entropy; may be given several times
    #[arg(long, value_name = "NAME")]
    metric: Vec<String>,
    /// The recipe that the others are compared with; by default the one called `without`, or else the first
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,
    /// Replace a value in every recipe, such as train.steps=20; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Compute on this device instead of the recipes'
    #[arg(long, value_name = "KIND:INDEX")]
    device: Option<Name>,
    /// The folder for runs, tables and figures; by default runs/compare-FIRST-LAST, with the names of the first and
    /// the last recipe, or runs/compare-FOLDER. Without it, tables of runs that are there already are only printed
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Only list the runs to make and the settings in which the recipes differ
    #[arg(long)]
    dry_run: bool,
}

const EXAMPLES: &str = "\
The runs go one after another, so that each has the machine to itself: every
recipe with the first seed, then every recipe with the next one. Recipes that
differ only after SFT share it, seed by seed. Finished runs are taken
as they are, and interrupted runs are resumed. So the same command continues where
it was stopped, and adds runs if it has more --seeds or more recipes.

After each run the folder gets compare.md (the tables, and the settings that
differ), compare.json (every number), compare.svg, and with --metric metrics.svg.
At the end it gets compare.html, a report of all runs laid over each other.

A table of each metric has its mean over the last quarter of the steps, and the
difference to the baseline with its standard error and its 95 % interval.

If the only argument is a folder of runs, no run is made, and files are written
only with --out. A variant NAME has the runs FOLDER/NAME/ANY, or FOLDER/NAME-seed17
and so on, as this command calls its own runs; any other run FOLDER/NAME is a
variant by itself.

Examples:
  firebrick compare ablation/0-grpo ablation/5-dapo --seeds 3
  firebrick compare a.toml b.toml --target 0.9 --set train.steps=100
  firebrick compare a.toml b.toml --dry-run
  firebrick compare ablation --seeds 10 --metric loss/entropy
  firebrick compare runs/compare-ablation --metric eval/heldout_accuracy

Exit codes: 0 done, 1 a run failed, or one that was there already is not
finished or can't be read, 2 wrong arguments or recipe, 130 interrupted after
a clean save.";

impl Compare {
    pub(super) fn run(self) -> Result<u8, ProgramError> {
        let plan = self.plan()?;
        let intention = intention(&plan);
        if self.dry_run {
            super::print(&intention)?;
            return Ok(0);
        }

        let Plan { folder, out, recipes, values, differences, jobs, left_out } = plan;
        let bars = Bars::on_stderr();
        let mut under_way = UnderWay {
            folder,
            out,
            recipes,
            differences,
            left_out,
            machine: program_and_machine(&values, jobs.is_some()),
            target: self.target,
            metrics: self.metric,
            terminal: Terminal::plain(bars.clone()),
            bars,
        };

        under_way.say(intention.trim_end());
        under_way.run_jobs(jobs.unwrap_or_default())
    }
}

/// A comparison while it is running.
struct UnderWay {
    /// Folder of the runs.
    folder: PathBuf,
    /// Folder of the tables and the figures, if they are written.
    out: Option<PathBuf>,
    recipes: Vec<Compared>,
    differences: Vec<Difference>,
    left_out: Vec<String>,
    machine: String,
    target: Option<f64>,
    /// Names of the metrics to compare.
    metrics: Vec<String>,
    bars: Bars,
    terminal: Terminal,
}

impl UnderWay {
    /// Makes the runs, one after another, and prints the table. Returns the exit code.
    fn run_jobs(mut self, jobs: Vec<Job>) -> Result<u8, ProgramError> {
        let interrupted = interrupted(Some(self.bars.clone()));
        let jobs_in_all = jobs.len();
        let mut metrics_are_checked = false;
        for (index, job) in jobs.into_iter().enumerate() {
            self.say(&format!("\nrun {} of {jobs_in_all}: {}", index + 1, job.loaded.name));
            self.make(job, &interrupted)?;
            self.summarise()?;

            // A name that was mistyped is better known before the next hours.
            if !metrics_are_checked && self.has_finished_run() {
                metrics_are_checked = true;
                if let Err(error) = check_metrics(&self.metrics, &self.recipes) {
                    self.say(&error.to_string());
                }
            }

            if interrupted.load(Ordering::Relaxed) {
                let page = self.folder.join("compare.md");
                self.say(&format!(
                    "the same command continues the comparison; the table so far: {}",
                    page.display()
                ));
                return Ok(130);
            }
        }

        super::print(&format!("{}\n", self.summarise()?.table()))?;

        if let Some(out) = self.out.clone() {
            // A page that fails must not cost the results of hours of runs.
            let page = self.report(&out).map_err(|error| error.to_string());
            let files = out.join("compare.{md,json,svg}");
            let figure = if self.metrics.is_empty() { "" } else { ", and metrics.svg next to it" };
            self.say(&format!("table, numbers and figure: {}{figure}", files.display()));
            self.say(&match page {
                Ok(()) => format!("open {} in a browser", out.join("compare.html").display()),
                Err(error) => format!("no page could be made of the runs: {error}"),
            });
        }

        let all_are_measured = self.runs().all(|run| run.state.measured().is_some());
        Ok(u8::from(!all_are_measured || !self.left_out.is_empty()))
    }

    fn runs(&self) -> impl Iterator<Item = &Outcome> {
        self.recipes.iter().flat_map(|recipe| &recipe.runs)
    }

    fn has_finished_run(&self) -> bool {
        self.runs().any(|run| run.state.measured().is_some())
    }

    /// Begins a run or continues it. If the run fails, the other runs are made nevertheless.
    fn make(&mut self, job: Job, interrupted: &Arc<AtomicBool>) -> Result<(), ProgramError> {
        let Job { recipe, run, loaded, sft } = job;
        let name = loaded.name.clone();
        let folder = self.folder.join(&loaded.name);
        let resumed = folder.join("recipe.toml").is_file();

        let flag = interrupted.clone();
        let terminal = terminal(&self.bars, loaded.recipe.train.steps);
        let session = session(loaded, &self.folder, terminal, &self.bars, || flag).resume(resumed);

        let session = match sft {
            Some(folder) => session.share_sft(folder),
            None => session,
        };

        let state = match session.run().map_err(ProgramError::from) {
            Ok(run) if run.summary.stopped_because == INTERRUPTED => State::Unfinished,
            Ok(_) => State::read(&folder, &self.metrics),
            // Somebody else compares in this folder, so no measured time would be fair.
            Err(error @ ProgramError::Library(Error::Run(RunError::Busy { .. }))) => {
                return Err(error);
            }
            Err(error) => {
                let help = error.help().map(|help| format!("; {help}")).unwrap_or_default();
                self.say(&format!("{name} failed: {error}{help}"));
                State::Failed { problem: error.to_string() }
            }
        };

        self.recipes[recipe].runs[run].state = state;
        Ok(())
    }

    fn summarise(&self) -> Result<Comparison, ProgramError> {
        let comparison = Comparison::new(
            command(),
            self.machine.clone(),
            self.differences.clone(),
            self.target,
            self.recipes.clone(),
        );
        if let Some(out) = &self.out {
            std::fs::create_dir_all(out).map_err(ProgramError::file(out))?;
            comparison.write(out)?;
        }
        Ok(comparison)
    }

    /// Writes a page with the finished runs laid over each other.
    fn report(&self, out: &Path) -> Result<(), ProgramError> {
        let finished = self.runs().filter(|run| run.state.measured().is_some());
        let folders: Vec<PathBuf> = finished.map(|run| run.folder.clone()).collect();
        if folders.is_empty() {
            return Ok(());
        }

        let page = report(open_runs(&folders)?, None).map_err(ProgramError::View)?;
        Ok(write_atomically(&out.join("compare.html"), page.as_bytes())?)
    }

    fn say(&mut self, text: &str) {
        self.terminal.note(text);
    }
}

/// Describes in what the recipes differ, and which runs are there and which are not.
fn intention(plan: &Plan) -> String {
    let Plan { folder, recipes, differences, jobs, left_out, .. } = plan;
    let names: Vec<&str> = recipes.iter().map(|recipe| recipe.name.as_str()).collect();
    let mut text = match differing(&names, differences) {
        Some(table) => format!("The recipes differ in:\n\n{table}\n"),
        None if recipes.len() > 1 => "The recipes do not differ.\n\n".to_owned(),
        None => String::new(),
    };

    let state = |run: &Outcome| match &run.state {
        State::Finished(_) => " finished",
        _ if jobs.is_some() && run.folder.join("recipe.toml").is_file() => " to resume",
        _ if jobs.is_some() => "",
        State::Failed { .. } => " failed",
        State::Unfinished => " not finished",
    };

    let _ = writeln!(text, "Runs in {}:\n", folder.display());
    for Compared { name, runs, .. } in recipes {
        let seeds: Vec<String> =
            runs.iter().map(|run| format!("{}{}", run.seed, state(run))).collect();
        let _ = writeln!(text, "  {name}: seeds {}", seeds.join(", "));
    }
    for run in left_out {
        let _ = writeln!(text, "  left out: {}", run.replace('\n', " "));
    }
    text
}

/// Checks that some finished run has each metric at its end. Not every run has every metric: a run without a penalty has
/// no `loss/kl`.
fn check_metrics(metrics: &[String], recipes: &[Compared]) -> Result<(), ProgramError> {
    let runs = recipes.iter().flat_map(|recipe| &recipe.runs);
    let finished: Vec<(&Outcome, &Measured)> =
        runs.filter_map(|run| Some((run, run.state.measured()?))).collect();
    let Some((first, _)) = finished.first() else { return Ok(()) };

    let is_there = |name: &str| {
        let metrics = finished.iter().flat_map(|(_, run)| &run.metrics);
        metrics.filter(|metric| metric.name == name).any(|metric| metric.end.is_some())
    };
    match metrics.iter().find(|name| !is_there(name)) {
        Some(name) => Err(ProgramError::NoRunHasMetric {
            runs: finished.len(),
            name: name.clone(),
            run: first.folder.clone(),
        }),
        None => Ok(()),
    }
}

/// Describes the version of firebrick, the devices that the recipes name, and the number of cores. Runs that were there
/// already may be from another machine.
fn program_and_machine(recipes: &[Recipe], makes_runs: bool) -> String {
    let build = if cfg!(debug_assertions) { ", a debug build," } else { "" };
    let machine = if makes_runs {
        format!("on {}", machine(recipes.iter().map(|recipe| recipe.device.name())))
    } else {
        "read runs that were there already".to_owned()
    };
    format!("firebrick {}{build} {machine}", env!("CARGO_PKG_VERSION"))
}

/// Returns the command line in a form that a shell takes again.
fn command() -> String {
    let arguments = std::env::args_os().skip(1);
    let quoted = arguments.map(|argument| shell_word(&argument.to_string_lossy()));
    std::iter::once("firebrick".to_owned()).chain(quoted).collect::<Vec<_>>().join(" ")
}

/// Reads a number in [0, 1].
fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("expected an accuracy between 0 and 1".into()),
    }
}
